"""Persons who enter by weights: samplers, quantiles, temperatures, and budgets over them."""

from functools import partial

import numpy as np
import pytest
import torch
from dp_accounting.dp_event import ComposedDpEvent
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline

from skdp import DPVariationalLogisticRegression, OPSPosteriorSampler, Persons, PrivacyLedger
from skdp.algorithms.parts.network_models import NetworkModel, PrivateRows
from skdp.algorithms.temperature_scaling import TARGETS, Temperature, bounded
from skdp.calibration import DPTemperatureScaler
from skdp.model_selection import split_budget
from skdp.preprocessing import DPQuantileScaler
from skdp.privacy import epsilon_of_event
from skdp.privacy.events import dp_sgd_event
from skdp.privacy.report import PrivacyReport
from skdp.testing import fixed_streams

N, PERSONS = 60, 20
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (N, 3))
GROUPS = RNG.permutation(np.arange(N) % PERSONS)
LABELS = (X[:, 0] > 0).astype(int)
UNIT = {"unit": Persons(PERSONS, rows_per_group=3)}


def classifier(**more):
    return OPSPosteriorSampler(**{"classes": [0, 1], **UNIT, **more})


def scaler(**more):
    return DPQuantileScaler(**{"unit": Persons(), "epsilon": 5.0, **more})


def calibrated(inner=None, **more):
    of_inner = {"classes": [0, 1], "max_iter": 3, **UNIT, **(inner or {})}
    classifier = DPVariationalLogisticRegression(**of_inner)
    return DPTemperatureScaler(classifier, **{"max_iter": 3, **UNIT, **more})


def test_the_order_of_rows_of_different_persons_does_not_matter():
    order = np.argsort(GROUPS, kind="stable")
    with fixed_streams():
        first = classifier().fit(X, LABELS, groups=GROUPS)
        second = classifier().fit(X[order], LABELS[order], groups=GROUPS[order])
    np.testing.assert_array_equal(first.sample_posterior(), second.sample_posterior())


def test_a_chain_refuses_more_persons_than_were_declared_and_says_nothing_of_rows():
    many = np.vstack([X] * 5)
    classifier().fit(many, np.tile(LABELS, 5), groups=np.tile(GROUPS, 5))
    with pytest.raises(ValueError, match="at least the number of persons"):
        classifier(unit=Persons(PERSONS - 1, rows_per_group=3)).fit(X, LABELS, groups=GROUPS)
    classifier(unit=Persons(PERSONS - 1, rows_per_group=3), delta=0).fit(X, LABELS, groups=GROUPS)


def test_batches_of_persons_are_refused():
    with pytest.raises(ValueError, match="'auto' with persons"):
        classifier(batch_size=7).fit(X, LABELS, groups=GROUPS)


def test_convergence_is_shown_of_the_weighted_posterior():
    pytest.importorskip("arviz")
    with pytest.warns(UserWarning, match="not private"):
        data = classifier().diagnose_convergence(X, LABELS, 2, 3, groups=GROUPS)
    assert data["posterior"]["theta"].shape == (2, 3, 4)
    with pytest.raises(ValueError, match="one label per row"):
        classifier().diagnose_convergence(X, LABELS)


def test_a_person_who_owns_half_of_the_table_moves_no_quantile_of_the_others():
    """200 persons in [-1, 1], one with as many rows at 1e6: the 75th percentile stays put."""
    values = np.linspace(-1, 1, 400).repeat(2)[:, None]
    everything = np.vstack([values, np.full((800, 1), 1e6)])
    groups = np.concatenate([np.arange(800) % 400, np.full(800, 400)])
    made = DPQuantileScaler(epsilon=50.0, quantile_range=(25, 75), unit=Persons())
    assert abs(made.fit(everything, groups=groups).upper_[0]) < 2
    rows = DPQuantileScaler(epsilon=50.0, quantile_range=(25, 75)).fit(everything)
    assert rows.upper_[0] > 1e5


# --- temperatures -------------------------------------------------------------------------------


class Given(ClassifierMixin, BaseEstimator):
    """Reads probabilities of class 1 from its rows; costs next to nothing."""

    relation = None

    def fit(self, X, y, groups=None):
        self.classes_, self.n_features_in_ = np.array([0, 1]), 1
        facts = {"delta": 1e-5, "neighboring_relation": self.relation, "sampling": "none"}
        self.privacy_ = PrivacyReport.of(dp_sgd_event(1e9, 1.0, 1), **facts)
        return self

    def predict_proba(self, X):
        p = np.asarray(X)[:, 0]
        return np.column_stack([1 - p, p])

    def predict(self, X):
        return (np.asarray(X)[:, 0] > 0.5).astype(int)


class GivenOfRows(Given):
    relation = "add_or_remove_one"


class GivenOfPersons(Given):
    relation = "add_or_remove_one_group"


@pytest.mark.parametrize("target", ["accuracy", "log_loss"])
@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
def test_no_person_moves_a_slope_further_than_stated(target, relation):
    """Persons with half of the table, sure and wrong, sure and right, or without a number."""
    unit = Persons(PERSONS, rows_per_group=3, clip=1.5)
    scaler = DPTemperatureScaler(Given(), target=target, neighboring_relation=relation, unit=unit)
    plan = scaler.plan(n_samples=None, n_features=1, classes=[0, 1]).config
    assert plan.persons.clip == 1.5
    module = NetworkModel(Temperature(), TARGETS[target].loss, "vmap")
    slopes = plan.descent.release_plan(module)
    sums, call = slopes.step((1,), 0)
    assert call.sensitivity == pytest.approx(
        1.5 * TARGETS[target].clip_norm * (1 if relation == "zero_out" else 2), rel=1e-3
    )
    others = [np.full(1, 0.6), np.linspace(0.1, 0.9, 5)]

    def total(*persons, label=0):
        p = np.concatenate(persons)
        starts = np.cumsum([0] + [len(person) for person in persons])
        with np.errstate(all="ignore"):
            log_p = bounded(np.log(np.column_stack([1 - p, p])))
        codes = np.full(len(p), label)
        codes[: len(others)] = 1
        records = module.records(PrivateRows(log_p, codes, starts))
        u = torch.tensor([0.7], dtype=torch.float64)
        return float(records.sum(partial(sums, u), slice(None)))

    moved = [
        total(*others, np.full(k, p), label=label) - total(*others)
        for k in (1, 2, 6, 50)
        for p in (0.0, 1e-9, 0.5, 1.0, np.nan)
        for label in (0, 1)
    ]
    bound = sums.sensitivity("zero_out_group")
    assert max(map(abs, moved)) <= bound
    assert max(map(abs, moved)) > 0.9 * bound
    assert max(moved) - min(moved) <= 2 * bound


def test_temperatures_of_persons_with_a_row_each_are_those_of_rows():
    p = RNG.uniform(0, 1, (N, 1))
    y = (RNG.random(N) < 0.5).astype(int)
    facts = {"neighboring_relation": "add_or_remove_one", "epsilon": 5.0}
    with fixed_streams():
        rows = GivenOfRows().fit(p, y)
        rows = DPTemperatureScaler(FrozenEstimator(rows), n_samples=N, **facts).fit(p, y)
        persons = GivenOfPersons().fit(p, y)
        persons = DPTemperatureScaler(
            FrozenEstimator(persons), unit=Persons(N, rows_per_group=1), **facts
        ).fit(p, y, groups=np.arange(N))
    assert rows.temperature_ != 1.0
    assert persons.temperature_ == rows.temperature_
    assert persons.noise_multiplier_ == rows.noise_multiplier_
    assert persons.temperature_privacy_.neighboring_relation == "add_or_remove_one_group"


def test_a_classifier_of_rows_is_refused_before_anything_is_charged():
    inner = {"unit": "row"}
    ledger = PrivacyLedger(neighboring_relation="zero_out_group")
    with ledger, pytest.raises(ValueError, match="'zero_out' as in the classifier"):
        calibrated(inner).fit(X, LABELS, groups=GROUPS)
    assert not ledger.entries
    with ledger, pytest.raises(ValueError, match="one label per row"):
        calibrated().fit(X, LABELS)
    with ledger, pytest.raises(ValueError, match="one hashable label per row"):
        calibrated().fit(X, LABELS, groups=GROUPS[:-1])
    assert not ledger.entries


def test_the_classifier_gets_the_persons_and_both_are_charged():
    ledger = PrivacyLedger(neighboring_relation="zero_out_group")
    with ledger:
        model = calibrated().fit(X, LABELS, groups=GROUPS)
    assert len(ledger.entries) == 2
    assert model.privacy_.neighboring_relation == "zero_out_group"
    assert model.estimator_.privacy_.neighboring_relation == "zero_out_group"
    planned = calibrated().plan(n_features=3, classes=[0, 1])
    assert planned.epsilon == pytest.approx(model.privacy_.epsilon, rel=1e-9)


# --- budgets and searches -----------------------------------------------------------------------


def pipeline(**of_scaler):
    return make_pipeline(scaler(**of_scaler), classifier())


def test_a_budget_is_split_among_steps_that_protect_persons():
    made = split_budget(pipeline(), 1.0, 1e-5, n_features=3)
    assert all(isinstance(step.unit, Persons) for _, step in made.steps)
    with PrivacyLedger(neighboring_relation="zero_out_group") as ledger:
        rows = made[0].fit(X, groups=GROUPS).transform(X)
        made[1].fit(rows, LABELS, groups=GROUPS)
    events = ComposedDpEvent([entry.event for entry in ledger.entries])
    assert 0.95 < epsilon_of_event(events, 1e-5, "zero_out_group") <= 1.0


def test_steps_of_different_units_are_refused_and_named():
    with pytest.raises(ValueError, match=r"'row' in \['dpq.*Persons.* in \['ops"):
        split_budget(pipeline(unit="row"), 1.0, 1e-5, n_features=3)
