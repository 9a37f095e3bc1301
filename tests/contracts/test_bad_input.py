"""Bad and odd input × every public estimator: a clear error and nothing spent, or a valid release.

No kind of exception but ValueError and TypeError, no message, warning or log record that holds a
value of the data, no charge for what is refused. See `kinds` for the table.
"""

import functools
import io
import itertools
import logging
import pickle
import re
import struct
import warnings
from collections import Counter
from contextlib import contextmanager, redirect_stderr, redirect_stdout

import numpy as np
import pytest
import sklearn.base
from hardening.kinds import (
    CLASSES,
    CLASSIFIERS,
    ESTIMATORS,
    INF,
    KINDS,
    NAN,
    ROWS,
    SECRET,
    TARGETS,
    TARGETS_OF,
    TEXT,
    TRANSFORMERS,
    WITHOUT_TARGETS,
    N,
    Treacherous,
    X,
    data,
    make,
    targets,
)

import skdp
from skdp import PrivacyLedger, PrivacyWarning, preprocessing

REFUSED, RELEASED = "refused", "released"

# What a message may name: the argument, or what of it is wrong.
NAMES = re.compile(
    r"\b(X|y|samples?|rows?|features?|columns?|labels?|class(es)?|targets?|inputs?|array|data"
    r"|data_norm|row_norm|n_samples|n_components|string column names)\b",
    re.IGNORECASE,
)


def assert_no_data(text, where):
    """No digits of the secret; addresses of objects are none."""
    shown = re.sub(r"0x[0-9a-f]+", "", text)
    assert "8675" not in shown, f"{where} quotes the data: {shown[:300]}"
    assert "8.675" not in shown, f"{where} quotes the data: {shown[:300]}"


@contextmanager
def nothing_said():
    """No warning, log record or printed line inside the block holds a value of the data."""
    said, printed = [], io.StringIO()

    class Listener(logging.Handler):
        def emit(self, record):
            said.append(record.getMessage())

    listener, root = Listener(level=0), logging.getLogger()
    level = root.level
    root.addHandler(listener)
    root.setLevel(1)
    try:
        with (
            warnings.catch_warnings(record=True) as caught,
            redirect_stdout(printed),
            redirect_stderr(printed),
        ):
            warnings.simplefilter("always")
            yield
    finally:
        root.removeHandler(listener)
        root.setLevel(level)
    for message in [*said, printed.getvalue(), *(str(w.message) for w in caught)]:
        assert_no_data(message, "what was said")
    numerical = [w for w in caught if issubclass(w.category, RuntimeWarning)]
    assert not numerical, f"a numerical warning tells of values: {numerical[0].message}"


def all_texts_of(error):
    """The error with all that a traceback would print of its causes."""
    while error is not None:
        yield f"{error!r}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def assert_quotes_nothing(error):
    assert_no_data(f"{error} {error.args}", "the error")
    for text in all_texts_of(error):
        assert_no_data(text, "a cause of the error")


def assert_refused(error, estimator, ledger):
    """In clear words, for nothing, and with nothing learned."""
    learned = {a for a in vars(estimator) if a.endswith("_") and not a.endswith("__")}
    assert learned <= {"n_features_in_", "feature_names_in_"}
    assert_clear(error, ledger)


def assert_clear(error, ledger):
    assert ledger.entries == (), f"charged and then refused: {error}"
    assert_quotes_nothing(error)
    assert NAMES.search(str(error)), f"the error names nothing: {error}"


@functools.cache
def outcome(name, kind):
    """Fit on a kind of input; check what must hold, and say how it ended."""
    rows, y = data(name, kind)
    estimator = make(name)
    with PrivacyLedger() as ledger, nothing_said():
        try:
            estimator.fit(rows, y)
        except (ValueError, TypeError) as error:
            assert_refused(error, estimator, ledger)
            return REFUSED
        assert len(ledger.entries) == ESTIMATORS[name][2]
        shown = [repr(estimator)]
        if ledger.entries:
            assert estimator.privacy_.valid
            shown.append(repr(estimator.privacy_))
        assert_finite(estimator, np.zeros((2, estimator.n_features_in_)))
    for text in shown:
        assert_no_data(text, "a repr")
    pickled = pickle.dumps(estimator)
    if kind in ROWS:
        for secret in (struct.pack("<d", SECRET), TEXT.encode(), b"8675309"):
            assert secret not in pickled
    return RELEASED


def assert_finite(estimator, rows):
    for method in ("predict", "predict_proba", "transform", "sample_posterior"):
        if hasattr(estimator, method):
            ask = getattr(estimator, method)
            found = np.asarray(ask() if method == "sample_posterior" else ask(rows))
            assert found.dtype.kind not in "fc" or np.isfinite(found).all(), method


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_clear_error_and_nothing_spent_or_a_valid_release(name, kind):
    assert outcome(name, kind) in (REFUSED, RELEASED)


ALWAYS_REFUSED = [
    "an infinity", "a negative infinity", "no rows", "no columns", "one dimension", "a number",
    "three dimensions", "None", "a text", "lists of unequal length", "a text among objects",
    "words", "complex", "sparse rows", "a long double beyond a double",
    "an object that is no array", "an integer of 400 digits",
]  # fmt: skip


@pytest.mark.parametrize("name", ESTIMATORS)
def test_what_is_no_table_of_finite_numbers_is_refused(name):
    released = [kind for kind in ALWAYS_REFUSED if outcome(name, kind) == RELEASED]
    assert released == []


ODD_BUT_FINE = [
    "1e308", "a denormal", "a constant column", "zeros everywhere", "10 000 duplicates",
    "lists", "booleans", "int8", "int64", "float32", "big-endian", "Fortran order", "read-only",
    "a memory map", "a matrix", "a frame", "a polars frame", "strides of zero", "one column",
    "more columns than rows", "rows with a declared norm",
]  # fmt: skip


@pytest.mark.parametrize("name", ESTIMATORS)
def test_odd_tables_of_finite_numbers_are_taken(name):
    # A frame whose names have changed, one matrix: what scikit-learn itself refuses is no promise.
    excused = {"a matrix"} | ({"more columns than rows"} if name == "DPPCA" else set())
    refused = [kind for kind in ODD_BUT_FINE if outcome(name, kind) == REFUSED]
    assert set(refused) <= excused


def test_the_table_has_sixty_kinds_and_every_public_estimator(figure):
    public = {
        name
        for module in (skdp, preprocessing, skdp.calibration)
        for name in dir(module)
        if isinstance(kind := getattr(module, name), type)
        and issubclass(kind, sklearn.base.BaseEstimator)
        and kind.__module__.startswith("skdp")
    }
    # A search is no estimator of its own: it hands the data on to one of these.
    assert public - {"DPRandomizedSearch"} == set(ESTIMATORS)
    assert len(KINDS) >= 60
    cells = Counter(outcome(name, kind) for name in ESTIMATORS for kind in KINDS)
    figure(
        f"{len(KINDS)} kinds × {len(ESTIMATORS)} estimators: {cells[REFUSED]} refused,"
        f" {cells[RELEASED]} valid releases; crashes, values of the data in messages, budget spent"
        " by what is refused: 0, 0, 0"
    )
    assert sum(cells.values()) == len(KINDS) * len(ESTIMATORS)
    assert min(cells.values()) > 0.2 * sum(cells.values())


# --- prediction ---------------------------------------------------------------------------------

METHODS = [
    "predict",
    "predict_proba",
    "predict_log_proba",
    "decision_function",
    "transform",
    "inverse_transform",
    "sample_predictive",
    "score_samples",
]


@functools.cache
def fitted(name):
    rows, y = np.linspace(-1, 1, X.size).reshape(X.shape), CLASSES
    return make(name).fit(rows, y if targets(name) is CLASSES else y / 2)


def answer(name, method, kind):
    model = fitted(name)
    rows, y = data(name, kind)
    with PrivacyLedger() as ledger, nothing_said():
        try:
            ask = getattr(model, method)
            found = ask(rows, y) if method == "score" else ask(rows)
        except (ValueError, TypeError) as error:
            assert_clear(error, ledger)
            found = None
    assert ledger.entries == ()
    return found


@pytest.mark.parametrize("name", ESTIMATORS)
def test_prediction_refuses_clearly_or_answers_with_finite_numbers(name):
    for method, kind in itertools.product(METHODS, ROWS):
        if hasattr(fitted(name), method):
            found = answer(name, method, kind)
            if found is None or (name in TRANSFORMERS and kind in MISSING):
                continue  # a scaler lets what is missing be missing
            values = np.asarray(found)
            if values.dtype.kind == "f" and method not in MAY_BE_INFINITE:
                assert not np.isnan(values).any(), (method, kind)


@pytest.mark.parametrize("name", [n for n in ESTIMATORS if n not in TRANSFORMERS])
def test_a_score_refuses_clearly_or_is_a_number(name):
    for kind in KINDS:
        found = answer(name, "score", kind)
        undefined = kind == "one row" and name not in CLASSIFIERS  # R² of one row
        if found is not None and not undefined:
            assert isinstance(found, float), kind
            assert found <= 1.0, kind  # and no NaN


@pytest.mark.parametrize("kind", [k for k in KINDS if "raise" in k])
def test_what_data_say_of_themselves_is_refused_by_a_score_too(kind):
    for name in ESTIMATORS:
        if name not in TRANSFORMERS and (kind in ROWS or name not in WITHOUT_TARGETS):
            assert answer(name, "score", kind) is None


@pytest.mark.parametrize("name", [n for n in ESTIMATORS if n not in WITHOUT_TARGETS])
def test_a_weight_of_a_score_is_named_and_not_quoted(name):
    y = CLASSES if name in CLASSIFIERS else CLASSES / 2
    for bad in (SECRET, [TEXT] * N, y[:3], np.full(N, NAN), np.full(N, INF), np.zeros(N), y * 1j):
        with pytest.raises(ValueError, match="sample_weight") as error:
            fitted(name).score(np.zeros((N, 3)), y, sample_weight=bad)
        assert_quotes_nothing(error.value)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_what_does_not_fit_into_memory_is_not_quoted(name):
    with PrivacyLedger() as ledger, pytest.raises(MemoryError) as caught:
        make(name).fit(Treacherous(MemoryError, N, 3), targets(name))
    assert_quotes_nothing(caught.value)
    assert ledger.entries == ()


def test_a_label_that_cannot_be_compared_is_not_quoted():
    class Label:
        def __lt__(self, other):
            raise KeyError(TEXT)

        __gt__ = __eq__ = __lt__
        __hash__ = object.__hash__

    y = CLASSES.astype(object)
    y[5] = Label()
    for name in CLASSIFIERS:
        model = sklearn.base.clone(make(name))
        inner = model.estimator if name == "DPTemperatureScaler" else model
        inner.set_params(classes=[0, 1])
        with PrivacyLedger() as ledger, pytest.raises(ValueError, match="y") as error:
            model.fit(X, y)
        assert_quotes_nothing(error.value)
        assert ledger.entries == ()


MISSING = (
    "a NaN",
    "a column of NaN",
    "NaN everywhere",
    "None among objects",
    "a frame with pd.NA",
    "a polars frame with null",
    "not a time",
)
# Scales go back to where they came from, and a density of an absurd row is 0.
MAY_BE_INFINITE = ("inverse_transform", "score_samples", "predict_log_proba")


@pytest.mark.parametrize("name", [n for n in ESTIMATORS if n not in TRANSFORMERS])
@pytest.mark.parametrize("value", [1.5, "2", -1, 0, NAN, [3], 10**400, TEXT, b"1", 1j])
def test_a_number_of_draws_that_is_none_is_named(name, value):
    if not hasattr(fitted(name), "sample_posterior"):
        pytest.skip("has no posterior")
    with pytest.raises(ValueError, match="n_samples"):
        fitted(name).sample_posterior(value)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_weight_is_no_argument_of_a_private_fit(name):
    # A weighted row would have another sensitivity.
    with PrivacyLedger() as ledger, pytest.raises(TypeError, match="sample_weight"):
        make(name).fit(X, targets(name), sample_weight=np.full(len(X), NAN))
    assert ledger.entries == ()


@pytest.mark.parametrize("name", [n for n in ESTIMATORS if n not in WITHOUT_TARGETS])
@pytest.mark.parametrize("kind", ["two words as targets", "bytes as targets"])
def test_secret_labels_are_in_no_message(name, kind):
    # Labels become public with classes_, so they may be in the model, but in no message.
    assert outcome(name, kind) in (REFUSED, RELEASED)


def test_an_unseen_label_is_not_quoted():
    y = CLASSES.astype(object)
    y[5] = TEXT
    for name in ESTIMATORS:
        if "classes" in make(name).get_params(deep=False):
            with PrivacyLedger() as ledger, pytest.raises(ValueError, match="class") as error:
                make(name).set_params(classes=[0, 1]).fit(X, y)
            assert_no_data(str(error.value), "the error")
            assert ledger.entries == ()


@pytest.mark.parametrize("name", [n for n in CLASSIFIERS if "classes" in make(n).get_params()])
def test_no_warning_counts_rows_per_class(name):
    # scikit-learn warns where more than half of over 20 labels are distinct.
    y = np.resize(np.arange(16), 30)
    rows = np.random.default_rng(0).uniform(-1, 1, (30, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "The privacy statement", PrivacyWarning)
        model = make(name).set_params(classes=None, n_samples=100).fit(rows, y)
        assert 0 <= model.score(rows, y) <= 1


def test_the_targets_of_the_table_are_secrets():
    # Otherwise the search for them would find nothing whatever was said.
    assert all("8675" in str(value) for value in [*X.ravel(), *TARGETS])
    assert set(TARGETS_OF).isdisjoint(ROWS)


def test_private_warnings_are_the_only_ones_of_a_good_fit():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for name in ESTIMATORS:
            make(name).fit(X, targets(name))
    assert {w.category for w in caught} <= {PrivacyWarning}
