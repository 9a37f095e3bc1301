"""Every estimator that protects persons: the checks of `skdp.testing`, and labels of any kind."""

import pickle
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from contracts.subjects import CLASSES, PUBLIC, VARIANTS
from sklearn.base import clone

from skdp import DPStandardScaler, DPVariationalLogisticRegression, Persons, PrivacyLedger
from skdp.base import PrivateEstimator, ProtectedUnit, Records, check_features
from skdp.conformal import DPConformalClassifier
from skdp.engine.release_hook import record
from skdp.evaluation import private_report
from skdp.mechanisms import GaussianMechanism
from skdp.model_selection import DPDisjointSearch
from skdp.privacy.ledger import charge
from skdp.rows.person_sums import by_person
from skdp.statistics import dp_mean
from skdp.testing import (
    check_private_estimator,
    fixed_streams,
    private_estimator_checks,
    record_releases,
)
from skdp.testing._checks import PERSON_CHECKS, check_ledger, check_plan
from skdp.testing._inputs import TEXT, N, Treacherous, assert_no_data
from skdp.testing._persons import GROUPS, with_persons
from skdp.testing._replayed import (
    check_persons_bounded,
    check_persons_refused,
    check_persons_replay,
)
from skdp.testing._subjects import declared, good_data, relation_of

pytestmark = pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")


def of_persons(name, **changes):
    """Return an estimator of the registry that protects persons, at every level."""
    estimator = clone(VARIANTS[name])
    units = [key for key in estimator.get_params() if key.rpartition("__")[2] == "unit"]
    return estimator.set_params(**dict.fromkeys(units, Persons()), **changes)


KNOWING = [name for name in VARIANTS if "unit" in VARIANTS[name].get_params(deep=False)]
FIRST = [name for name in CLASSES if name in KNOWING]
SPLITTING = ["DPConformalClassifier", "DPConformalRegressor", "DPDisjointSearch"]
OTHERS = [name for name in KNOWING if name not in FIRST]


def test_all_that_spend_know_persons():
    assert set(CLASSES) - set(FIRST) == set(PUBLIC)


@pytest.mark.parametrize("name", FIRST)
@pytest.mark.parametrize("check", [*PERSON_CHECKS, check_ledger, check_plan])
def test_persons_are_protected(name, check):
    check(of_persons(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("check", [*PERSON_CHECKS, check_ledger, check_plan])
def test_persons_are_protected_in_every_way(name, check):
    check(of_persons(name))


@pytest.mark.parametrize("relation", ["replace_one", "add_or_remove_one"])
def test_persons_are_protected_under_each_relation(relation):
    for check in PERSON_CHECKS:
        check(of_persons("DPStandardScaler", neighboring_relation=relation))
        check(of_persons("DPVariationalLogisticRegression", neighboring_relation=relation))


def test_the_checks_by_person_are_part_of_the_check_of_who_protects_persons():
    names = {check.__name__ for check in PERSON_CHECKS}
    of_rows = dict(private_estimator_checks(DPStandardScaler()))
    checks = dict(private_estimator_checks(DPStandardScaler(unit=Persons())))
    assert names.isdisjoint(of_rows)
    assert set(checks) == names | set(of_rows)
    left_out = {"check_persons_bounded": "slow"}
    checks = dict(
        private_estimator_checks(DPStandardScaler(unit=Persons()), expected_failed_checks=left_out)
    )
    assert set(checks) == set(of_rows) | names - set(left_out)


@pytest.mark.thorough
def test_the_whole_check_runs_with_persons():
    check_private_estimator(DPStandardScaler(lower=-100, upper=100, unit=Persons()))


# --- an estimator of your own, and that the checks can fail --------------------------------------


@dataclass(frozen=True)
class SumConfig:
    mechanism: GaussianMechanism
    summed: Callable
    n_releases = 1
    sampling = "full batch, 1 release"

    def event(self):
        return self.mechanism.event()

    def run(self, records, streams, progress=iter):
        return self.mechanism.release(self.summed(records), streams("noise"), charged=True)


def clipped(rows):
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)


def over_persons(records):
    scaled = np.clip(records.X, -1e9, 1e9)
    return clipped(by_person(scaled, records)).sum(axis=0)


def over_rows(records):
    return clipped(np.clip(records.X, -1e9, 1e9)).sum(axis=0)


@dataclass(eq=False, repr=False)
class PrivateSum(ProtectedUnit, PrivateEstimator):
    """Sum of rows, or of persons, clipped to norm 1; what is private is the record.

    Parameters
    ----------
    epsilon, delta : float
        The budget.
    neighboring_relation : str
        Who is a neighbour.
    random_state : int or None
        A seed.
    """

    epsilon: float = 1.0
    delta: float = 1e-5
    _: KW_ONLY
    neighboring_relation: str = "zero_out"
    random_state: Any = None

    summed = staticmethod(over_persons)

    def _read(self, X, y):
        X = check_features(self, X)
        return Records(X, np.zeros(len(X))), self._facts_of(X)

    def _configure(self, facts, budget):
        mechanism = GaussianMechanism.from_budget(
            epsilon=budget.epsilon,
            delta=budget.delta,
            record_norm=1.0 + 1e-9,
            neighboring_relation=budget.neighboring_relation,
        )
        return SumConfig(mechanism, self.summed)

    def _keep(self, plan, released):
        self.sum_ = released


class ForgetsPersons(PrivateSum):
    summed = staticmethod(over_rows)


class CountsRows(PrivateSum):
    """The sum moves with the number of all rows."""

    @staticmethod
    def summed(records):
        return over_persons(records) + 0.1 * len(records.X)


class KeepsTheirNumber(PrivateSum):
    def _prepared(self, plan, records, around):
        self.n_persons_ = len(records.starts) - 1
        return super()._prepared(plan, records, around)


class NamesALabel(PrivateSum):
    def fit(self, X, y=None, groups=None):
        if groups is not None and len(groups) != N:
            raise ValueError(f"Wrong groups: {groups[0]}")
        return super().fit(X, y, groups)


class ChargesFirst(PrivateSum):
    def _read(self, X, y):
        charge(self.plan(n_features=3).event, label="", neighboring_relation=self._relation)
        return super()._read(X, y)


class MakesPersonsUp(PrivateSum):
    def fit(self, X, y=None, groups=None):
        return super().fit(X, y, np.arange(len(X)) if groups is None else groups)


@pytest.mark.parametrize("relation", ["zero_out", "add_or_remove_one", "replace_one"])
def test_a_right_estimator_of_ones_own_passes(relation):
    estimator = PrivateSum(unit=Persons(), neighboring_relation=relation)
    for check in PERSON_CHECKS:
        check(estimator)


@pytest.mark.parametrize("relation", ["zero_out", "add_or_remove_one", "replace_one"])
def test_who_sums_rows_and_claims_persons_is_found(relation):
    wrong = ForgetsPersons(unit=Persons(), neighboring_relation=relation)
    with pytest.raises(AssertionError, match="are rows bounded instead of persons"):
        check_persons_bounded(wrong)


@pytest.mark.parametrize(
    ("wrong", "check", "text"),
    [
        (CountsRows, check_persons_bounded, "times the sensitivity"),
        (KeepsTheirNumber, check_persons_replay, "shows in attributes, n_persons_"),
        (NamesALabel, check_persons_refused, "quotes the data"),
        (ChargesFirst, check_persons_refused, "charged before it was refused"),
        (MakesPersonsUp, check_persons_refused, "not refused"),
    ],
)
def test_other_mistakes_are_found(wrong, check, text):
    with pytest.raises(AssertionError, match=text):
        check(wrong(unit=Persons()))


# --- labels of any kind ---------------------------------------------------------------------------


class TreacherousLabel:
    """A label of which a method raises an error that quotes it."""

    def __init__(self, method):
        self.method = method

    def raised(self, method, value):
        if method == self.method:
            raise RuntimeError(TEXT)
        return value

    def __hash__(self):
        return self.raised("__hash__", 1)

    def __eq__(self, other):
        return self.raised("__eq__", self is other)

    def __repr__(self):
        return self.raised("__repr__", "a label")


LABELS = {
    "a list": GROUPS.tolist(),
    "a tuple": tuple(GROUPS.tolist()),
    "texts": [f"{TEXT}{code}" for code in GROUPS],
    "an array of texts": np.array([f"{TEXT}{code}" for code in GROUPS]),
    "bytes": np.array([f"{code}".encode() for code in GROUPS]),
    "floats": GROUPS / 2,
    "booleans": GROUPS > 3,
    "dates": np.datetime64("8675-03-09") + GROUPS,
    "durations": GROUPS.astype("timedelta64[s]"),
    "complex numbers": GROUPS * 1j,
    "tuples": [(TEXT, code) for code in GROUPS],
    "labels of several types": [code if code % 2 else str(code) for code in GROUPS],
    "a series": pd.Series(GROUPS, index=np.arange(N) + 100),
    "a series of texts": pd.Series([f"{TEXT}{code}" for code in GROUPS]),
    "nullable integers": pd.Series(GROUPS, dtype="Int64"),
    "categories": pd.Categorical([f"{TEXT}{code}" for code in GROUPS]),
    "a series of categories": pd.Series(GROUPS).astype("category"),
    "timestamps": pd.Series(pd.Timestamp("2020-01-01") + pd.to_timedelta(GROUPS, "D")),
    "timestamps of a zone": pd.Series(pd.Timestamp("2020-01-01", tz="UTC")).repeat(N),
    "an index": pd.Index(GROUPS),
    "polars numbers": pl.Series(GROUPS),
    "polars texts": pl.Series([f"{TEXT}{code}" for code in GROUPS]),
    "one person": np.zeros(N, dtype=int),
    "a person a row": np.arange(N),
    "a masked array without masks": np.ma.masked_equal(GROUPS, 99),
}
NO_LABELS = {
    "pandas NA": [pd.NA, *LABELS["texts"][1:]],
    "nullable integers with NA": pd.Series([None, *GROUPS[1:]], dtype="Int64"),
    "texts with NA": pd.Series([None, *LABELS["texts"][1:]], dtype="string"),
    "categories with NaN": pd.Categorical([None, *LABELS["texts"][1:]]),
    "NaT": pd.Series([pd.NaT, *LABELS["timestamps"][1:]]),
    "polars null": pl.Series([None, *LABELS["texts"][1:]]),
    "NaN among floats": [float("nan"), *map(float, GROUPS[1:])],
    "a frame": pd.DataFrame({"person": LABELS["texts"]}),
    "a dictionary": dict.fromkeys(LABELS["texts"], 1),
    "a label that is a dictionary": [{TEXT: 1}, *LABELS["texts"][1:]],
    "a generator": (label for label in LABELS["texts"]),
    "a matrix": np.tile(GROUPS, (2, 1)).T,
    "no rows": [],
    "a set": set(LABELS["texts"]),
    "a dictionary with as many keys": {f"{TEXT}{row}": 1 for row in range(N)},
    "a set of as many": {f"{TEXT}{row}" for row in range(N)},
    "a frame with as many columns": pd.DataFrame(np.zeros((N, N))),
    "labels whose hash quotes them": [TreacherousLabel("__hash__") for _ in range(N)],
    "labels whose comparison quotes them": [TreacherousLabel("__eq__") for _ in range(N)],
    "labels that quote themselves when read": Treacherous(RuntimeError, N),
}


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", FIRST)
def test_labels_of_any_kind_are_persons_or_a_clear_error(name):
    estimator = declared(with_persons(of_persons(name)))
    estimator.set_params(unit=replace(estimator.unit, n_groups=N))
    data = good_data(estimator)
    for kind, groups in {**LABELS, **NO_LABELS}.items():
        if name in SPLITTING and kind in LABELS and len(set(map(str, groups))) < N:
            continue  # of few persons a part may have none, and a fit needs rows
        fitted = clone(estimator)
        ledger = PrivacyLedger(neighboring_relation=relation_of(fitted))
        with ledger, record_releases() as tape:
            if kind in NO_LABELS:
                with pytest.raises(ValueError, match="groups") as refused:
                    fitted.fit(*data, groups=groups)
                assert_no_data(f"{refused.value!r} {refused.value.__cause__!r}", kind)
                assert (ledger.entries, tape) == ((), []), kind
                continue
            fitted.fit(*data, groups=groups)
        assert len(ledger.entries) >= 1
        assert tape
        assert_no_data(f"{fitted!r} {fitted.privacy_!r}", kind)


@pytest.mark.parametrize("kind", [kind for kind in LABELS if len(set(map(str, LABELS[kind]))) == 8])
def test_persons_are_who_they_are_in_any_form(kind):
    """The same persons in whatever form: the same sums, but for their order."""
    X, _ = good_data(DPStandardScaler())
    with fixed_streams():
        means = [
            DPStandardScaler(unit=Persons(rows_per_group=3)).fit(X, groups=groups).mean_
            for groups in (GROUPS, LABELS[kind])
        ]
    np.testing.assert_allclose(*means, atol=1e-6)


def test_a_person_beyond_the_most_rows_is_bounded_and_its_label_is_not_told():
    X, y = np.ones((60, 2)), np.arange(60) % 2
    groups = [TEXT] * 50 + [f"{code}" for code in range(10)]
    model = clone(MODEL).set_params(unit=Persons(11, rows_per_group=4, max_rows=6))
    with record() as tape:
        model.fit(X, y, groups=groups)
    assert tape
    assert_no_data(f"{model!r} {model.privacy_!r} {vars(model)}", "a fit")


HALF, BOTH = np.full(N, 0.5), np.arange(N) % 2
MODEL = DPVariationalLogisticRegression(classes=[0, 1], unit=Persons(9), max_iter=2)
ONE_FIELD = [
    (partial(dp_mean, HALF, lower=0, upper=1, epsilon=1.0, groups=GROUPS), "max_rows"),
    (partial(private_report, BOTH, HALF, n_samples=N, groups=GROUPS), "max_rows"),
    (lambda unit: DPConformalClassifier(MODEL, unit=unit).fit(HALF[:, None], BOTH, GROUPS), "n_gr"),
    (lambda unit: DPDisjointSearch(MODEL, {}, unit=unit).fit(HALF[:, None], BOTH, GROUPS), "n_gr"),
]


@pytest.mark.parametrize(("what", "field"), ONE_FIELD)
def test_what_one_field_of_persons_has_a_meaning_for_refuses_the_others(what, field):
    with pytest.raises(ValueError, match=f"Persons with {field}.* alone"):
        what(unit=Persons(9, max_rows=2))


def test_persons_are_a_value():
    one, same = Persons(9, rows_per_group=3), Persons(n_groups=9, rows_per_group=3)
    assert one == same == pickle.loads(pickle.dumps(one)) == clone(one, safe=False)
    assert len({one, same, Persons(9)}) == 2
    assert repr(one) == "Persons(n_groups=9, rows_per_group=3)"
    for bad in ({"n_groups": "many"}, {"rows_per_group": 0.5}, {"clip": -1}, {"max_rows": True}):
        with pytest.raises(ValueError, match=f"{next(iter(bad))}="):
            Persons(**bad)


def test_no_noise_is_added_for_rows_that_cannot_take_part():
    units = (Persons(9, rows_per_group=mean, max_rows=2) for mean in (40, 2))
    models = (DPVariationalLogisticRegression(classes=[0, 1], unit=unit) for unit in units)
    plans = [model.plan(n_features=2) for model in models]
    assert plans[0].config == plans[1].config
    assert "squares to 2 times" in plans[0].privacy.sampling


def test_a_label_that_cannot_be_shown_is_not_told_either():
    model = DPStandardScaler(unit=Persons(max_rows=1))
    label = TreacherousLabel("__repr__")
    with pytest.raises(ValueError, match="groups") as refused:
        model.fit(np.ones((3, 2)), groups=[label] * 3)
    assert_no_data(f"{refused.value!r} {refused.value.__cause__!r}", "a label")


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_missing_text_is_no_person(missing):
    if not hasattr(np.dtypes, "StringDType"):
        pytest.skip("numpy before 2.0 has no such type")
    texts = np.array(["a", missing, "b"], dtype=np.dtypes.StringDType(na_object=missing))
    with pytest.raises(ValueError, match="some are missing"):
        DPStandardScaler(unit=Persons()).fit(np.ones((3, 2)), groups=texts)


@pytest.mark.slow
def test_a_million_persons():
    n = 10**6
    X = np.random.default_rng(0).uniform(-1, 1, (n, 1))
    labels = [f"{TEXT}{code}" for code in range(n)]
    rows = DPStandardScaler(epsilon=float("inf")).fit(X)
    persons = DPStandardScaler(unit=Persons(rows_per_group=1), epsilon=float("inf"))
    persons.fit(X, groups=labels)
    np.testing.assert_allclose(persons.mean_, rows.mean_, atol=1e-12)
