"""`DPConformalClassifier` and `DPConformalRegressor`: coverage of any model, cost, refusals."""

import copy
import itertools
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdp import (
    BoundedScaler,
    DisjointSplit,
    DPAdditiveClassifier,
    DPDisjointSearch,
    DPVariationalLinearRegression,
    DPVariationalLogisticRegression,
    FitWarning,
    Persons,
    PrivacyLedger,
    privacy_of,
)
from skdp.algorithms.conformal import ConformalConfig, shift
from skdp.conformal import DPConformalClassifier, DPConformalRegressor
from skdp.fitting.streams import Streams
from skdp.mechanisms import QuantileMechanism
from skdp.privacy import PrivacyReport
from skdp.privacy.parts import PartDpEvent

pytestmark = pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")

N = 2000
rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (N, 2))
y = (X[:, 0] + rng.normal(0, 0.4, N) > 0).astype(int)
z = np.abs(X[:, 1]) + rng.uniform(-0.3, 0.3, N)


def classifier(**parameters):
    given = {"classes": [0, 1], "n_samples": N, "max_iter": 5} | parameters
    return DPVariationalLogisticRegression(**given)


def sets(model=None, **parameters):
    return DPConformalClassifier(classifier() if model is None else model, **parameters)


def frozen(rows=slice(0, 1000)):
    return FrozenEstimator(classifier(n_samples=1000).fit(X[rows], y[rows]))


class Wrong(ClassifierMixin, BaseEstimator):
    """Probabilities that have nothing to do with the labels; fitted without a look at rows."""

    def __init__(self, sure=4.0, last=1.0):
        self.sure, self.last = sure, last

    def fit(self, X, y):
        self.classes_ = np.arange(3)
        return self

    def predict_proba(self, X):
        p = np.exp(self.sure * np.sin(np.outer(50 * X[:, 0], [1, 2, 3])))
        p[:, 2] *= self.last
        return p / p.sum(axis=1, keepdims=True)

    def predict(self, X):
        return self.predict_proba(X).argmax(axis=1)


# --- the rank -------------------------------------------------------------------------------------


def uncovered(counts, m, rank, rate) -> float:
    """Chance that a random one of m + 1 scores is above the threshold drawn from the others.

    ``counts`` are the numbers of all scores up to each point; the last is m + 1.
    """
    sizes, chance = np.diff(counts, prepend=0), 0.0
    for k in np.flatnonzero(sizes):
        up_to = np.cumsum(sizes - (np.arange(len(sizes)) == k))
        below = np.concatenate([[0], up_to[:-1]])
        weights = np.exp(-rate * np.maximum(np.maximum(below - rank, rank - up_to), 0))
        chance += sizes[k] * weights[:k].sum() / weights.sum()
    return chance / (m + 1)


def worst(m, n_points, rank, rate) -> float:
    """The most of all arrangements of the scores on the points."""
    profiles = itertools.combinations_with_replacement(range(m + 2), n_points - 1)
    return max(uncovered([*profile, m + 1], m, rank, rate) for profile in profiles)


@pytest.mark.parametrize(("n_points", "m"), [(2, 40), (3, 24), (4, 14)])
@pytest.mark.parametrize("rate", [0.1, 0.3, 1.0, 4.0])
def test_no_arrangement_of_scores_is_covered_too_seldom(n_points: int, m: int, rate: float) -> None:
    extra = shift(n_points - 1) / rate
    for fraction in (0.0, 0.5, 0.99):
        rank = min(math.floor(0.6 * (m + 1) + extra) + fraction, m)
        alpha = 1 - (rank - extra) / (m + 1)
        assert worst(m, n_points, rank, rate) <= alpha


def test_some_arrangement_needs_most_of_the_shift() -> None:
    u, m, rate = 1000, 4000, 0.05

    def most(part: float) -> float:
        rank = 0.9 * (m + 1) + part * shift(u) / rate
        end = [math.floor(rank + 1 + 4 / rate), m + 1]
        lows = [math.floor(rank - h / rate) for h in np.arange(4.0, 5.5, 0.25)]
        return max(uncovered([*[low] * (u - 1), *end], m, rank, rate) for low in lows)

    assert most(1.0) <= 0.1 < most(0.7)


@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 30.0])
def test_the_rank_pays_for_the_rate_of_its_own_mechanism(relation: str, epsilon: float) -> None:
    how = {"alpha": 0.1, "n_records": 1500, "neighboring_relation": relation}
    config = ConformalConfig(epsilon=epsilon, **how)
    mechanism = config.mechanism
    rate = (epsilon - 2**-38) / mechanism.sensitivity
    assert mechanism.n_points == len(config.points) == config.n_points
    assert mechanism.quantile * 1500 >= 0.9 * 1501 + shift(config.n_points - 1) / rate
    assert config.rank < 0.9 * 1501 + 1.01 * shift(config.n_points - 1) / rate
    assert (np.diff(config.points) > 0).all()


@pytest.mark.thorough
def test_fewer_points_are_a_law_of_their_own() -> None:
    """The mechanism on a coarse grid has the stated law."""
    mechanism = QuantileMechanism(0.5, 0.0, 3.0, epsilon=1.0, n_points=4)
    values = [0.0, 1.0, 1.0, 2.0, 3.0, 3.0]
    d = np.array([2.0, 0.0, 0.0, 1.0])
    weights = np.exp(-d / mechanism.sensitivity)
    drawn = [mechanism.release(values, charged=True) for _ in range(4000)]
    found = np.bincount(np.array(drawn, dtype=int), minlength=4) / 4000
    np.testing.assert_allclose(found, weights / weights.sum(), atol=4 * 0.5 / 4000**0.5)
    for wrong in (1, 2**30 + 2, 2.5):
        with pytest.raises(ValueError, match="n_points"):
            QuantileMechanism(0.5, 0.0, 1.0, 1.0, n_points=wrong)


# --- coverage -------------------------------------------------------------------------------------


@pytest.mark.parametrize("largest", [None, 8.0])
@pytest.mark.parametrize("ties", [False, True])
def test_coverage_over_rows_and_noise(largest, ties: bool) -> None:
    config = ConformalConfig(alpha=0.1, n_records=500, epsilon=2.0, largest=largest)
    covered = []
    for _ in range(400):
        scores = rng.beta(1, 4, 700)
        scores = np.round(scores, 1) if ties else scores
        threshold = config.run((scores[:500],), Streams())
        covered.append((scores[500:] <= threshold).mean())
    assert np.mean(covered) >= 0.9 - 2 * np.std(covered) / 20
    assert ties or np.mean(covered) <= 0.92 + 2 * np.std(covered) / 20


@pytest.mark.parametrize("conformity", ["lac", "aps"])
def test_a_wrong_model_is_covered(conformity: str) -> None:
    labels = rng.integers(3, size=N)
    model = FrozenEstimator(Wrong().fit(X, labels))
    fitted = sets(model, n_samples=1000, conformity=conformity).fit(X[:1000], labels[:1000])
    chosen = fitted.predict_set(X[1000:])
    assert chosen[np.arange(1000), labels[1000:]].mean() > 0.87
    assert (fitted.predict(X) == Wrong().predict(X)).all()
    assert fitted.predict_proba(X[:3]).shape == (3, 3)


def test_without_privacy_it_is_split_conformal_prediction() -> None:
    model = frozen()
    fitted = sets(model, epsilon=math.inf).fit(X[1000:], y[1000:])
    scores = 1 - model.predict_proba(X[1000:])[np.arange(1000), y[1000:]]
    assert fitted.threshold_ == np.sort(scores)[math.ceil(0.9 * 1001) - 1]
    assert not fitted.privacy_.valid


@pytest.mark.parametrize("residual", ["absolute", "scaled"])
def test_intervals_of_a_line_that_is_wrong(residual: str) -> None:
    model = DPVariationalLinearRegression(target_bounds=(-1, 2), n_samples=N, max_iter=5)
    fitted = DPConformalRegressor(model, residual=residual, calibration_share=0.5).fit(X, z)
    low, high = fitted.predict_interval(X).T
    assert 0.87 < np.mean((low <= z) & (z <= high)) < 0.95
    assert (np.ptp(high - low) > 1e-6) == (residual == "scaled")
    assert not fitted.diagnostics_


def test_persons_have_one_row_each() -> None:
    groups = np.concatenate([np.arange(1000), np.zeros(1000, dtype=int)])  # one has half of all
    labels = np.where(groups == 0, 2, rng.integers(2, size=N))
    model = FrozenEstimator(Wrong(1.0, last=1e-3).fit(X, labels))  # whose label is unlikely
    fitted = sets(model, unit=Persons(1000), n_samples=N, alpha=0.2)
    fitted.fit(X, labels, groups=groups)
    assert fitted.privacy_.neighboring_relation == "zero_out_group"
    of_one = fitted.predict_set(X)[np.arange(N), labels][1:1000]
    assert 0.75 < of_one.mean() < 0.9


def test_a_class_that_the_model_does_not_know_is_never_covered() -> None:
    labels = y.copy()
    labels[0] = 2  # in one of the two parts
    fitted = sets(LogisticRegression(), epsilon=30.0).fit(X, labels)
    assert fitted.predict_set(X).shape == (N, len(fitted.classes_))


# --- what it costs --------------------------------------------------------------------------------


def test_a_fit_and_its_calibration_cost_the_larger() -> None:
    with PrivacyLedger() as ledger:
        fitted = sets(classifier(epsilon=1.0), epsilon=0.7).fit(X, y)
    labels = [entry.label for entry in ledger.entries]
    assert labels == ["DPVariationalLogisticRegression", "DPConformalClassifier"]
    assert ledger.total(1e-5) == pytest.approx(1.0)
    assert privacy_of(fitted).epsilon == fitted.privacy_.epsilon == pytest.approx(1.0)
    assert fitted.threshold_privacy_.epsilon == pytest.approx(0.7)
    plan = sets(classifier(epsilon=1.0), epsilon=0.7, n_samples=N).plan(n_features=2)
    assert plan.epsilon == pytest.approx(1.0)
    plan = sets(classifier(epsilon=0.4), epsilon=0.7, n_samples=N).plan(n_features=2)
    assert 0.69 < plan.epsilon <= 0.7  # at δ = 1e-5


@pytest.mark.parametrize("container", [np.asarray, pd.DataFrame])
def test_parts_of_a_split(container) -> None:
    split = DisjointSplit(N, parts={"train": 0.5, "calibrate": 0.5})
    columns = container(X)
    with PrivacyLedger() as ledger:
        model = classifier(n_samples=1000).fit(*split.take("train", columns, y))
        fitted = sets(FrozenEstimator(model)).fit(*split.take("calibrate", columns, y))
    assert ledger.total(1e-5) == fitted.privacy_.epsilon == pytest.approx(1.0)
    assert not fitted.diagnostics_
    with pytest.warns(FitWarning, match="was fitted on part 'train' of"):
        again = sets(FrozenEstimator(model)).fit(*split.take("train", columns, y))
    assert again.privacy_.epsilon > 1.4
    with pytest.warns(FitWarning, match="was fitted on part 'train' of"):
        sets(FrozenEstimator(fitted.estimator_.estimator)).fit(*split.take("train", columns, y))
    unmarked = sets(FrozenEstimator(model)).fit(columns[1000:], y[1000:])
    assert unmarked.privacy_.epsilon > 1.4


@pytest.mark.parametrize("relation", ["zero_out", "add_or_remove_one"])
@pytest.mark.parametrize("by_person", [False, True])
def test_a_part_that_is_split_again_stays_a_part(relation: str, by_person: bool) -> None:
    groups = np.arange(N) // 2
    facts = {"unit": Persons(1000)} if by_person else {}
    of = {"groups": groups if by_person else None, "neighboring_relation": relation}
    split, fits = DisjointSplit(N, test_size=0.5, **of), []
    facts |= {"neighboring_relation": relation, "n_samples": 1000}
    for part in split.parts:
        rows, labels, persons = split.take(part, X, y, groups)
        model = sets(classifier(**facts), **facts)
        fits.append(model.fit(rows, labels, **({"groups": persons} if by_person else {})))
    assert isinstance(fits[0].threshold_privacy_.event, PartDpEvent)
    assert privacy_of(*fits).epsilon == pytest.approx(1.0)


@pytest.mark.parametrize(
    "labels",
    [
        [("person", i // 4) for i in range(N)],
        [i // 4 if i % 8 < 4 else str(i // 4) for i in range(N)],
        pd.Categorical([f"p{i // 4}" for i in range(N)]),
        pd.Series([f"p{i // 4}" for i in range(N)], index=range(7, N + 7)),
        pl.Series([i // 4 for i in range(N)]),
    ],
    ids=["tuples", "two types", "categories", "a series", "polars"],
)
def test_labels_of_persons(labels) -> None:
    facts = {"unit": Persons(N // 4)}
    fitted = sets(classifier(**facts), n_samples=N, **facts).fit(X, y, groups=labels)
    assert fitted.privacy_.epsilon == pytest.approx(1.0)
    search = DPDisjointSearch(classifier(**facts), {"prior_scale": [1.0, 2.0]}, **facts)
    assert search.fit(X, y, groups=labels).privacy_.epsilon <= 1.0


def test_beside_its_model_a_conformal_one_counts_it_once() -> None:
    model = classifier(n_samples=1000).fit(X[:1000], y[:1000])
    pipeline = make_pipeline(BoundedScaler(lower=-1, upper=1), classifier(n_samples=1000))
    for given in (model, pipeline.fit(X[:1000], y[:1000])):
        fitted = sets(FrozenEstimator(given)).fit(X[1000:], y[1000:])
        once = fitted.privacy_.epsilon
        assert privacy_of(given, fitted).epsilon == pytest.approx(once)
        assert privacy_of(fitted, given).epsilon == pytest.approx(once)
    # One more release each: another threshold, another fit, and a copy, which may be any.
    other = sets(FrozenEstimator(model)).fit(X[1000:], y[1000:])
    fitted = sets(FrozenEstimator(model)).fit(X[1000:], y[1000:])
    both = fitted.privacy_ + other.threshold_privacy_
    assert privacy_of(fitted, other).epsilon == pytest.approx(both.epsilon)
    assert privacy_of(fitted, copy.deepcopy(model)).epsilon > 1.2 * fitted.privacy_.epsilon
    before = model.privacy_
    again = privacy_of(model.fit(X[:1000], y[:1000]), fitted)
    whole = before + model.privacy_ + other.threshold_privacy_
    assert again.epsilon == pytest.approx(whole.epsilon)


def test_what_its_model_leaves_unaccounted_stays_so_beside_it() -> None:
    pipeline = make_pipeline(StandardScaler(), classifier(n_samples=1000))
    pipeline.fit(X[:1000], y[:1000])
    fitted = sets(FrozenEstimator(pipeline)).fit(X[1000:], y[1000:])
    report = privacy_of(pipeline[-1], fitted, delta=1e-6)
    assert not report.valid
    assert "StandardScaler" in report.unaccounted[0]
    assert report.delta == 1e-6


def test_a_model_that_states_nothing_is_named() -> None:
    fitted = sets(FrozenEstimator(LogisticRegression().fit(X[:1000], y[:1000])))
    fitted.fit(X[1000:], y[1000:])
    assert not fitted.privacy_.valid
    assert "LogisticRegression" in fitted.privacy_.unaccounted[0]
    assert fitted.threshold_privacy_.valid
    assert fitted.threshold_privacy_.epsilon == pytest.approx(1.0)


def test_pipelines_and_columns() -> None:
    frame = pd.DataFrame(X, columns=["a", "b"])
    pipeline = make_pipeline(BoundedScaler(lower=-1, upper=1), classifier())
    assert sets(pipeline).fit(frame, y).privacy_.epsilon == pytest.approx(1.0)
    inside = make_pipeline(BoundedScaler(lower=-1, upper=1), sets())
    assert privacy_of(inside.fit(X, y)).epsilon == pytest.approx(1.0)
    frame["c"] = np.where(y, "yes", "no")
    additive = DPAdditiveClassifier(
        bounds={"a": (-1, 1), "b": (-1, 1)}, categories={"c": ["yes", "no"]}, classes=[0, 1]
    )
    assert sets(additive).fit(frame, y).predict_set(frame).mean() < 0.8


# --- too little, and bad input --------------------------------------------------------------------


def test_too_few_rows_leave_nothing_out_and_cost_nothing() -> None:
    model = frozen()
    with PrivacyLedger() as ledger, pytest.warns(FitWarning, match="too few for alpha=0.1"):
        fitted = sets(model, epsilon=0.1).fit(X[1000:1400], y[1000:1400])
    assert fitted.predict_set(X).all()
    assert fitted.threshold_privacy_.epsilon == 0.0
    assert ledger.total(1e-5) == 0.0
    model = FrozenEstimator(LinearRegression().fit(X[:1000], z[:1000]))
    with pytest.warns(FitWarning, match="far too large"):
        DPConformalRegressor(model, residual_bound=1e9).fit(X[1000:], z[1000:])
    with pytest.warns(FitWarning, match="larger residual_bound"):
        line = DPConformalRegressor(model, residual_bound=1e-3).fit(X[1000:], z[1000:])
    assert np.isinf(line.predict_interval(X)).all()


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (lambda: sets(alpha=0.6), "alpha=0.6"),
        (lambda: sets(alpha=0), "alpha=0"),
        (lambda: sets(calibration_share=1.0), "calibration_share"),
        (lambda: sets(conformity="best"), "conformity='best'"),
        (lambda: sets(LinearRegression()), "predict_proba"),
        (lambda: sets(classifier(neighboring_relation="replace_one")), "neighboring_relation"),
        (lambda: sets(classifier(unit=Persons(9))), "neighboring_relation"),
        (lambda: sets(FrozenEstimator(classifier())), "not fitted"),
        (lambda: sets(n_samples=100), "n_samples=100"),
        (lambda: sets(classifier(classes=[0, 7])), "declared classes"),
        (lambda: DPConformalRegressor(LinearRegression()), "residual_bound=None"),
        (lambda: DPConformalRegressor(LinearRegression(), residual="scaled"), "residual='scaled'"),
        (lambda: DPConformalRegressor(LinearRegression(), residual_bound=-1), "residual_bound=-1"),
    ],
)
def test_refusals_cost_nothing(model, match: str) -> None:
    with PrivacyLedger() as ledger, pytest.raises(ValueError, match=match):
        model().fit(X, y)
    assert not ledger.entries


def test_plans_of_two_fits_are_of_splits_of_their_own():
    """The same rows may be in the one's fit and in the other's calibration."""
    inner = DPVariationalLogisticRegression(epsilon=1.0, classes=[0, 1], n_samples=750)
    plans = [sets(inner, epsilon=0.7, n_samples=1000).plan(n_features=2) for _ in range(2)]
    fit, cal = (PrivacyReport.compose([p] * 2) for p in _inner_events(plans[0]))
    reports = [r for p in plans for r in (p.privacy, p.parts["estimator"].privacy)]
    both = PrivacyReport.compose(reports)
    assert both.epsilon > max(fit.epsilon, cal.epsilon) + 0.05


def _inner_events(plan):
    """What the fit and the calibration cost by themselves, whatever their parts."""
    of_fit, own = plan.parts["estimator"].privacy, plan.privacy
    return [replace(one, event=one.event.event) for one in (of_fit, own)]
