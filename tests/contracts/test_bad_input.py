"""Bad and odd input × every public estimator: a clear error and nothing spent, or a valid release.

No kind of exception but ValueError and TypeError, no message, warning or log record that holds a
value of the data, no charge for what is refused. The table is in `skdp.testing` and `subjects`.
"""

import functools
import warnings
from collections import Counter

import numpy as np
import pytest
from contracts.subjects import (
    ALL_ROWS,
    ALL_TARGETS,
    CLASSES,
    CLASSIFIERS,
    ESTIMATORS,
    KINDS,
    SEARCHES,
    TRANSFORMERS,
    VARIANTS,
    WITHOUT_TARGETS,
    build,
    good_rows,
    targets,
)
from sklearn.base import clone, is_classifier
from sklearn.utils import get_tags

from skdp import FitWarning, PrivacyLedger, PrivacyWarning
from skdp.relations import check_relation
from skdp.testing import bad_inputs
from skdp.testing._inputs import (
    INF,
    LABELS,
    NAN,
    NUMBERS,
    ROWS,
    SECRET,
    TARGETS,
    TEXT,
    N,
    Treacherous,
    X,
    assert_no_data,
)
from skdp.testing._refusals import (
    assert_clear,
    assert_quotes_nothing,
    check_bad_input,
    nothing_said,
)
from skdp.testing._subjects import relation_of

# Inference that accounts for the noise takes 30 times as long as what reads its input, and
# all ways of a class read alike: one way of each takes all kinds.
READERS = [
    {
        "DPVariationalLogisticRegression": "DPVariationalLogisticRegression, dpvi",
        "DPVariationalLinearRegression": "DPVariationalLinearRegression, target_bounds",
        "DPVariationalPoissonRegression": "DPVariationalPoissonRegression, dpvi, Poisson",
        "OPSPosteriorSampler": "OPSPosteriorSampler, exact",
        "DPAdditiveClassifier": "DPAdditiveClassifier, few bins",
        "DPAdditiveRegressor": "DPAdditiveRegressor, bounded",
    }.get(name, name)
    for name in ESTIMATORS
]
# What an inference sees of odd numbers.
ODD_NUMBERS = (
    "1e308", "a denormal", "zeros everywhere", "1e308 everywhere", "denormals everywhere",
    "10 000 duplicates", "one row", "one column", "more columns than rows", "targets of 1e308",
    "a target of 1e308", "a denormal target", "rows with a declared norm",
)  # fmt: skip


def inputs(name, kinds=KINDS):
    rows = {kind: ALL_ROWS[kind] for kind in kinds if kind in ALL_ROWS}
    targets = {kind: ALL_TARGETS[kind] for kind in kinds if kind in ALL_TARGETS}
    classifier = is_classifier(VARIANTS[name])
    return bad_inputs(classifier=classifier, rows=rows, targets=targets)


# Forms in which the same good numbers come: whoever takes one takes them all, by the same function.
FORMS = [
    "lists", "tuples", "decimals", "fractions", "a number as text", "texts", "bytes", "float16",
    "long doubles", "big-endian", "big-endian integers", "Fortran order", "read-only",
    "a negative zero", "every second row twice", "rows backwards", "a masked array",
    "an array.array", "a memory view", "a tensor", "a frame with two columns of one name",
    "a frame with names of two types", "a frame with many indices", "a sparse frame",
    "a polars frame", "a column vector", "big-endian targets", "float32 targets",
    "long double targets", "a tensor of targets", "targets with gradients", "polars targets",
    "a series with its own index", "masked targets", "boolean targets", "dates", "durations",
]  # fmt: skip
LONG = (
    "DPVariationalLinearRegression, target_bounds", "DPVariationalModel", "DPTemperatureScaler",
    "DPAdditiveClassifier, few bins", "DPAdditiveRegressor, bounded", "DPAdditivePoissonRegressor",
)  # fmt: skip


def kinds_for(name):
    """All kinds; fewer where a fit is long, or where it looks at no target."""
    unread = list(ALL_TARGETS)[5:] if name.partition(",")[0] in WITHOUT_TARGETS else []
    left_out = {*unread, *(FORMS if name in LONG else ())}
    return [kind for kind in KINDS if kind not in left_out]


def assert_keeps(name, kinds):
    """Check the kinds; return how many were refused and taken."""
    estimator = build(name)
    if not check_relation(relation_of(estimator)).n_is_public:
        estimator.set_params(n_samples=N)
    taken = check_bad_input(estimator, inputs(name, kinds))
    assert list(taken) == kinds
    of_some = {"sparse rows"} if get_tags(VARIANTS[name]).input_tags.sparse else set()
    of_some |= set() if "epsilon" in estimator.get_params() else {"no rows"}  # a step before a fit
    assert [kind for kind in ALWAYS_REFUSED if taken[kind] and kind not in of_some] == []
    # A frame whose names have changed, one matrix: what scikit-learn refuses is no promise.
    excused = {"a matrix"} | ({"more columns than rows"} if name == "DPPCA" else set())
    excused |= {"one column"} if name.endswith("pairs") else set()
    assert {kind for kind in ODD_BUT_FINE if not taken.get(kind, True)} <= excused
    return Counter(taken.values())


@pytest.mark.thorough
@pytest.mark.parametrize("name", READERS)
def test_a_clear_error_and_nothing_spent_or_a_valid_release(name, figure):
    kinds = kinds_for(name)
    cells = assert_keeps(name, kinds)
    figure(
        f"{name}: {len(kinds)} kinds of input, {cells[False]} refused, {cells[True]} valid"
        " releases; crashes, values of the data in messages, budget spent by what is refused:"
        " 0, 0, 0"
    )
    assert min(cells.values()) > 0.1 * len(kinds)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in VARIANTS if n not in SEARCHES])
def test_every_way_meets_every_kind(name):
    assert assert_keeps(name, KINDS)


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", [n for n in CLASSES if n not in READERS and n in ESTIMATORS])
def test_inference_takes_odd_numbers(name):
    taken = check_bad_input(VARIANTS[name], inputs(name, ODD_NUMBERS))
    assert len(taken) == len(ODD_NUMBERS)


ALWAYS_REFUSED = [
    "an infinity", "a negative infinity", "no rows", "no columns", "one dimension", "a number",
    "three dimensions", "None", "a text", "lists of unequal length", "a text among objects",
    "words", "complex", "sparse rows", "a long double beyond a double",
    "an object that is no array", "an integer of 400 digits",
]  # fmt: skip
ODD_BUT_FINE = [
    "1e308", "a denormal", "a constant column", "zeros everywhere", "10 000 duplicates",
    "lists", "booleans", "int8", "int64", "float32", "big-endian", "Fortran order", "read-only",
    "a memory map", "a matrix", "a frame", "a polars frame", "strides of zero", "one column",
    "more columns than rows", "rows with a declared norm",
]  # fmt: skip


def test_the_table_has_more_than_180_kinds_for_every_estimator():
    assert len(KINDS) == len(set(KINDS)) > 180
    assert {name.partition(",")[0] for name in READERS} == set(ESTIMATORS)
    assert set(ALWAYS_REFUSED + ODD_BUT_FINE + FORMS) <= set(KINDS)


# --- prediction ---------------------------------------------------------------------------------

METHODS = [
    "predict", "predict_proba", "predict_log_proba", "decision_function", "transform",
    "inverse_transform", "sample_predictive", "score_samples",
]  # fmt: skip
MISSING = (
    "a NaN", "a column of NaN", "NaN everywhere", "None among objects", "a frame with pd.NA",
    "a polars frame with null", "not a time",
)  # fmt: skip
# Scales go back to where they came from, and a density of an absurd row is 0.
MAY_BE_INFINITE = ("inverse_transform", "score_samples", "predict_log_proba")


@functools.cache
def fitted(name):
    return build(name).fit(good_rows(), LABELS if targets(name) is LABELS else LABELS / 2)


def answer(name, method, rows, y):
    model = fitted(name)
    with PrivacyLedger() as ledger, nothing_said():
        try:
            ask = getattr(model, method)
            found = ask(rows, y) if method == "score" else ask(rows)
        except (ValueError, TypeError) as error:
            assert_clear(error, ledger)
            found = None
    assert ledger.entries == ()
    return found


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_prediction_refuses_clearly_or_answers_with_finite_numbers(name):
    methods = [method for method in METHODS if hasattr(fitted(name), method)]
    for method in methods:
        # All of them read their rows alike; that each does read them so, a part of the table shows.
        kinds = list(ALL_ROWS) if method == methods[0] else [*ALWAYS_REFUSED, *ODD_NUMBERS]
        for kind, rows, _ in inputs(name, [kind for kind in kinds if kind in ALL_ROWS]):
            found = answer(name, method, rows, None)
            if found is None or (name in TRANSFORMERS and kind in MISSING):
                continue  # a scaler lets what is missing be missing
            if hasattr(found, "dask"):
                continue  # a lazy answer to lazy rows, which its caller computes
            values = np.asarray(found)
            if values.dtype.kind == "f" and method not in MAY_BE_INFINITE:
                assert not np.isnan(values).any(), (method, kind)


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", [n for n in ESTIMATORS if n not in TRANSFORMERS])
def test_a_score_refuses_clearly_or_is_a_number(name):
    for kind, rows, y in inputs(name, kinds_for(name)):
        found = answer(name, "score", rows, y)
        undefined = kind == "one row" and name not in CLASSIFIERS  # R² of one row
        unread = name in WITHOUT_TARGETS and kind not in ALL_ROWS
        assert found is None or "raise" not in kind or unread  # what data say is no score
        if found is not None and not undefined:
            assert isinstance(found, float), kind
            assert found <= 1.0, kind  # and no NaN


@pytest.mark.parametrize("name", [n for n in ESTIMATORS if n not in WITHOUT_TARGETS])
def test_a_weight_of_a_score_is_named_and_not_quoted(name):
    y = LABELS if name in CLASSIFIERS else LABELS / 2
    for bad in (SECRET, [TEXT] * N, y[:3], np.full(N, NAN), np.full(N, INF), np.zeros(N), y * 1j):
        with pytest.raises(ValueError, match="sample_weight") as error:
            fitted(name).score(np.zeros((N, 3)), y, sample_weight=bad)
        assert_quotes_nothing(error.value)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_what_does_not_fit_into_memory_is_not_quoted(name):
    with PrivacyLedger() as ledger, pytest.raises(MemoryError) as caught:
        build(name).fit(Treacherous(MemoryError, N, 3), targets(name))
    assert_quotes_nothing(caught.value)
    assert ledger.entries == ()


class Label:
    """A label that cannot be compared."""

    def __lt__(self, other):
        raise KeyError(TEXT)

    __gt__ = __eq__ = __lt__
    __hash__ = object.__hash__


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_labels_that_were_not_declared_are_not_quoted(name):
    for label, says in ((Label(), "y"), (TEXT, "class")):
        y = LABELS.astype(object)
        y[5] = label
        model = clone(build(name))
        inner = model if hasattr(model, "classes") else model.estimator
        inner.set_params(classes=[0, 1])
        with PrivacyLedger() as ledger, pytest.raises(ValueError, match=says) as error:
            model.fit(X, y)
        assert_quotes_nothing(error.value)
        assert ledger.entries == ()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_number_of_draws_that_is_none_is_named(name):
    if hasattr(fitted(name), "sample_posterior"):
        for value in (1.5, "2", -1, 0, NAN, [3], 10**400, TEXT, b"1", 1j):
            with pytest.raises(ValueError, match="n_samples"):
                fitted(name).sample_posterior(value)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_weight_that_is_not_bounded_is_refused(name):
    # A weighted row has another sensitivity: where weights are taken, they have a bound.
    takes = "max_sample_weight" in build(name).get_params(deep=False)
    refused = ValueError if takes else TypeError
    with PrivacyLedger() as ledger, pytest.raises(refused, match="sample_weight"):
        build(name).fit(X, targets(name), sample_weight=np.full(len(X), NAN))
    assert ledger.entries == ()


@pytest.mark.parametrize("name", [n for n in CLASSIFIERS if "classes" in build(n).get_params()])
def test_no_warning_counts_rows_per_class(name):
    # scikit-learn warns where more than half of over 20 labels are distinct.
    y = np.resize(np.arange(16), 30)
    rows = np.random.default_rng(0).uniform(-1, 1, (30, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "The privacy statement", PrivacyWarning)
        warnings.simplefilter("ignore", FitWarning)  # what is released tells nothing of n
        model = build(name).set_params(classes=None, n_samples=90).fit(rows, y)
        assert 0 <= model.score(rows, y) <= 1


def test_the_targets_of_the_table_are_secrets():
    # Otherwise the search for them would find nothing whatever was said.
    assert all("8675" in str(value) for value in [*X.ravel(), *NUMBERS])
    assert set(TARGETS).isdisjoint(ROWS)


def test_warnings_of_this_library_are_the_only_ones_of_a_fit():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for name in ESTIMATORS:
            build(name).fit(X, targets(name))
    assert {w.category for w in caught} <= {FitWarning, PrivacyWarning}


def test_digits_of_the_data_are_found_but_not_in_the_name_of_a_split():
    assert_no_data("full batch, 5 steps, of part 'fit'\n  of 1c98675077a42000; at 0x8675", "a repr")
    for text in ("of 8.675", "of 8675309000000000", "of part 'fit' of 8.675309"):
        with pytest.raises(AssertionError, match="a repr quotes the data"):
            assert_no_data(text, "a repr")
