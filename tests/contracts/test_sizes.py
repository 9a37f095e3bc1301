"""Where the number of rows is private: none is refused, and nothing that is said tells of it."""

import warnings

import numpy as np
import pytest
from contracts.subjects import PUBLIC, RELEASING, VARIANTS, with_facts
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from skdp import (
    DPSGDClassifier,
    DPStandardScaler,
    DPVariationalLinearRegression,
    DPVariationalLogisticRegression,
    Persons,
    PrivacyLedger,
)
from skdp.conformal import DPConformalClassifier
from skdp.data import ChunkedRows
from skdp.evaluation import DPEvaluator
from skdp.preprocessing import BoundedScaler, NormClipper
from skdp.testing import record_releases
from skdp.testing._persons import GROUPS, with_persons
from skdp.testing._subjects import good_data

pytestmark = pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning", "ignore::skdp.FitWarning")
ADDED = "add_or_remove_one"
SIZES = (0, 1, 2, 3)
# Which rows go where is a matter of coins: of each size several fits.
BY_COINS = ("DPConformalClassifier", "DPConformalRegressor", "DPDisjointSearch")
SEARCHED = "DPRandomizedSearch"  # whose number of trials is a secret


def set_everywhere(estimator, **values):
    known = estimator.get_params()
    names = {name: name.rpartition("__")[2] for name in known}
    return estimator.set_params(**{n: values[own] for n, own in names.items() if own in values})


def outcome(name, estimator, relation, given, **how):
    """What a fit says and is charged, and how often it releases something."""
    ledger = PrivacyLedger(neighboring_relation=relation)
    with ledger, record_releases() as tape, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            estimator.fit(*given, **how)
            said = ""
        except ValueError as error:
            said = f"{type(error).__name__}: {error}"
    n_releases = None if name.startswith(SEARCHED) else len(tape)
    kinds = {str(one.message) for one in told if "conditional" in str(one.message)}
    return said, len(ledger.entries), n_releases, frozenset(kinds)


def outcomes(name, fitted):
    """Distinct outcomes over all sizes."""
    n_fits = 4 if name.startswith(BY_COINS) else 1
    return {fitted(n) for n in SIZES for _ in range(n_fits)}


@pytest.mark.quick(20)
@pytest.mark.parametrize("name", RELEASING)
def test_any_number_of_rows_is_fitted(name):
    X, y = good_data(VARIANTS[name])
    estimator = set_everywhere(with_facts(name), neighboring_relation=ADDED)

    def fitted(n):
        return outcome(name, estimator, ADDED, (X[:n], None if y is None else y[:n]))

    found = outcomes(name, fitted)
    assert len(found) == 1
    said, n_entries, _, _ = found.pop()
    assert not said
    assert n_entries


OF_PERSONS = [name for name in RELEASING if "unit" in VARIANTS[name].get_params()]


@pytest.mark.quick(10)
@pytest.mark.parametrize("relation", [ADDED, "zero_out"])
@pytest.mark.parametrize("name", [name for name in OF_PERSONS if "," not in name])
def test_any_number_of_persons_rows_is_fitted(name, relation):
    X, y = good_data(VARIANTS[name])
    estimator = set_everywhere(with_facts(name), neighboring_relation=relation, unit=Persons())
    estimator = with_persons(estimator)

    def fitted(n):
        given = X[:n], None if y is None else y[:n]
        return outcome(name, estimator, f"{relation}_group", given, groups=GROUPS[:n])

    found = outcomes(name, fitted)
    assert len(found) == 1
    assert not found.pop()[0]


@pytest.mark.quick(8)
@pytest.mark.parametrize("persons", [False, True])
@pytest.mark.parametrize("name", [name for name in OF_PERSONS if "," not in name])
def test_any_number_of_rows_in_chunks_is_fitted_or_none(name, persons):
    X, y = good_data(VARIANTS[name])
    estimator = set_everywhere(with_facts(name), neighboring_relation=ADDED)
    if persons:
        estimator = with_persons(set_everywhere(estimator, unit=Persons()))

    def fitted(n):
        def load(i):
            own = slice(i * n // 2, (i + 1) * n // 2)
            parts = X[:n][own], None if y is None else y[:n][own], GROUPS[:n][own]
            return parts if persons else parts[:2]

        relation = ADDED + "_group" * persons
        return outcome(name, estimator, relation, (ChunkedRows(load, 2), None))

    assert len(outcomes(name, fitted)) == 1


def test_steps_before_a_fit_take_any_number_of_rows():
    X, y = good_data(VARIANTS["DPSGDClassifier"])
    last = set_everywhere(with_facts("DPSGDClassifier"), neighboring_relation=ADDED)
    scaler = DPStandardScaler(neighboring_relation=ADDED, lower=-1, upper=1)
    steps = make_pipeline(BoundedScaler(lower=-1, upper=1), scaler, NormClipper(), last)
    found = {outcome("", steps, ADDED, (X[:n], y[:n])) for n in SIZES}
    assert len(found) == 1
    assert not found.pop()[0]


@pytest.mark.parametrize("name", PUBLIC)
def test_public_steps_take_any_number_of_rows(name):
    X, _ = good_data(VARIANTS[name])
    step = with_facts(name)
    widths = {step.fit(X[:n]).transform(X[:n]).shape[1] for n in SIZES}
    assert len(widths) == 1


def test_a_part_without_rows_is_calibrated_all_the_same():
    X, y = good_data(VARIANTS["DPSGDClassifier"])
    model = DPVariationalLogisticRegression(classes=[0, 1], neighboring_relation=ADDED)
    conformal = DPConformalClassifier(model, n_samples=100, neighboring_relation=ADDED, epsilon=2.0)
    for n in (1, 1, 1, 1, 2, 2, 2, 2):
        assert not outcome("", conformal, ADDED, (X[:n], y[:n]))[0]


def test_a_public_number_is_refused_where_it_is_too_small():
    X, y = good_data(VARIANTS["DPSGDClassifier"])
    with pytest.raises(ValueError, match=r"n_samples=2 .*to be a larger number"):
        DPConformalClassifier(LogisticRegression(), n_samples=1).fit(X[:2], y[:2])


# --- what is said ---------------------------------------------------------------------------------

WRONG = {
    "fewer targets": lambda X, y: (X, y[1:]),
    "no columns": lambda X, y: (X[:, :0], y),
    "targets in columns": lambda X, y: (X, np.stack([y, y], axis=1)),
    "rows of unequal length": lambda X, y: ([*X.tolist()[1:], [1.0]], y),
    "targets of unequal length": lambda X, y: (X, [*([v] for v in y.tolist()[1:]), [1, 0]]),
    "three dimensions": lambda X, y: (X[:, :, None], y),
    "one dimension": lambda X, y: (X[:, 0], y),
    "missing targets": lambda X, y: (X, np.full(len(y), np.nan)),
    "undeclared labels": lambda X, y: (X, y + 7),
}
TELLING = {
    "classifier": DPVariationalLogisticRegression(
        classes=[0, 1], n_samples=50, inference="dpvi", neighboring_relation=ADDED
    ),
    "regressor": DPVariationalLinearRegression(
        n_samples=50, target_bounds=(0, 1), neighboring_relation=ADDED
    ),
    "network": DPSGDClassifier(classes=[0, 1], n_samples=50, neighboring_relation=ADDED),
    "scaler": DPStandardScaler(neighboring_relation=ADDED),
    **{
        name: set_everywhere(with_facts(name), neighboring_relation=ADDED)
        for name in ("DPDisjointSearch", "DPConformalClassifier", "DPTemperatureScaler")
    },
}


def said_of(model, given):
    try:
        model.fit(*given)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("kind", TELLING)
def test_a_refusal_is_the_same_of_any_number_of_rows(kind, wrong):
    model, said = TELLING[kind], set()
    for n in (23, 24):
        X = np.random.default_rng(0).uniform(-1, 1, (n, 3))
        said.add(said_of(model, WRONG[wrong](X, np.arange(n) % 2)))
    assert len(said) == 1


IN_CHUNKS = {
    "a value": lambda X, y: (np.full_like(X, np.nan), y),
    "fewer targets": lambda X, y: (X, y[1:]),
    "no columns": lambda X, y: (X[:, :0], y),
    "undeclared labels": lambda X, y: (X, y + 7),
    "unreadable": lambda X, y: 1 // 0,
    "other columns": lambda X, y: (X[:, :1], y) if (X[0, 0] > 0) else (X, y),
}


@pytest.mark.parametrize("wrong", IN_CHUNKS)
@pytest.mark.parametrize("step", [False, True])
def test_of_chunks_it_does_not_say_how_many_there_are(wrong, step):
    def load(i):
        return IN_CHUNKS[wrong](np.full((2, 3), 0.5 if i == 1 else -0.5), np.arange(2))

    model = DPSGDClassifier(classes=[0, 1], n_samples=50, neighboring_relation=ADDED)
    model = make_pipeline(BoundedScaler(lower=-1, upper=1), model) if step else model
    said = {said_of(model, (ChunkedRows(load, n), None)) for n in (2, 5)}
    assert len(said) == 1
    assert "hunk" in said.pop()


def test_of_chunks_verbose_fits_say_passes_alone(capsys):
    def load(i):
        return np.full((2, 3), 0.5), np.arange(2)

    model = DPSGDClassifier(
        classes=[0, 1], n_samples=50, neighboring_relation=ADDED, max_iter=2, verbose=1
    )
    model.fit(ChunkedRows(load, 3))
    told = capsys.readouterr().out
    assert told == "DPSGDClassifier reads all chunks 2 times at most.\n"
    model.set_params(neighboring_relation="zero_out", n_samples=6).fit(ChunkedRows(load, 3))
    assert "The first look" in capsys.readouterr().out


def test_rows_in_chunks_do_not_show_how_many_there_are():
    rows = ChunkedRows(lambda i: None, 12345)
    assert repr(rows) == "ChunkedRows()"
    assert "12345" not in repr(rows.map(len))


def test_a_report_is_made_of_any_number_of_rows():
    X, y = good_data(VARIANTS["DPSGDClassifier"])
    model = DPVariationalLogisticRegression(classes=[0, 1], n_samples=24).fit(X, y)
    evaluator = DPEvaluator(model, n_samples=24, neighboring_relation=ADDED)
    for n in SIZES:
        with PrivacyLedger(neighboring_relation=ADDED) as ledger:
            assert evaluator.report(X[:n], y[:n]).n_ is None
        assert len(ledger.entries) == 1
