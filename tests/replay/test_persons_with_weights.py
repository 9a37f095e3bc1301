"""Persons who enter by weights: nothing but releases tells of the rows of one (record, replay)."""

import pickle
import warnings

import numpy as np
import pytest
from replay.persons_changed import VALUES, persons_changed

from skdp import OPSPosteriorSampler, OPSRegressor, PrivacyLedger
from skdp.preprocessing import DPQuantileScaler
from skdp.testing import fixed_streams, record_releases, replay_releases

N, PERSONS = 60, 20
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (N, 3))
GROUPS = RNG.permutation(np.arange(N) % PERSONS)
LABELS = (X[:, 0] > 0).astype(int)
UNIT = {"unit": "group", "n_groups": PERSONS, "rows_per_group": 3}


def classifier(**more):
    return OPSPosteriorSampler(**{"classes": [0, 1], **UNIT, **more})


def regressor(**more):
    return OPSRegressor(**{"target_bounds": (-1, 1), **UNIT, **more})


def scaler(**more):
    return DPQuantileScaler(**{"unit": "group", "epsilon": 5.0, **more})


MODELS = {
    "langevin": (classifier, {}),
    "langevin, few rows each": (classifier, {"max_rows_per_group": 2}),
    "langevin, another person": (classifier, {"neighboring_relation": "replace_one"}),
    "langevin, several classes": (classifier, {"classes": [0, 1, 2], "max_iter": 5}),
    "exact": (classifier, {"delta": 0, "n_posterior_samples": 2}),
    "exact, lighter": (classifier, {"delta": 0, "group_clip": 1.5}),
    "exact, added": (classifier, {"delta": 0, "neighboring_relation": "add_or_remove_one"}),
    "regression": (regressor, {}),
    "quantiles": (scaler, {}),
    "quantiles, pure": (scaler, {"delta": 0.0, "max_rows_per_group": 2}),
    "quantiles, another person": (scaler, {"neighboring_relation": "replace_one"}),
    "exact regression": (regressor, {"delta": 0, "group_clip": 0.5}),
}


def shown(make, parameters, X, y, groups):
    """Fit, and return all that can be seen of it."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model = make(**parameters).fit(X, y, groups=groups)
    messages = [str(warning.message) for warning in said]
    return pickle.dumps(model), repr(model), repr(model.privacy_), messages


@pytest.mark.parametrize("name", MODELS)
def test_with_the_releases_frozen_nothing_tells_of_a_persons_rows(name):
    make, parameters = MODELS[name]
    y = X[:, 0] if make is regressor else LABELS
    targets = (1e300, -0.5) if make is regressor else (0, 1)
    missing = [np.nan] * 3 * (make is scaler)
    with fixed_streams():
        with record_releases() as tape:
            first = shown(make, parameters, X, y, GROUPS)
        for other in persons_changed(X, y, GROUPS, VALUES + missing, targets):
            with replay_releases(tape) as again:
                second = shown(make, parameters, *other)
            assert [r.call for r in again] == [r.call for r in tape]
            assert second == first


@pytest.mark.parametrize("delta", [1e-5, 0])
@pytest.mark.parametrize("make", [OPSPosteriorSampler, OPSRegressor])
def test_persons_with_a_row_each_are_rows(make, delta):
    y = X[:, 0] if make is OPSRegressor else LABELS
    facts = {"target_bounds": (-1, 1)} if make is OPSRegressor else {"classes": [0, 1]}
    facts |= {"delta": delta, "neighboring_relation": "add_or_remove_one"}
    with fixed_streams():
        rows = make(n_samples=N, **facts).fit(X, y)
        persons = make(unit="group", n_groups=N, rows_per_group=1, **facts)
        persons.fit(X, y, groups=np.arange(N))
    np.testing.assert_array_equal(persons.sample_posterior(), rows.sample_posterior())
    assert persons.likelihood_power_ == rows.likelihood_power_
    assert persons.privacy_.epsilon == rows.privacy_.epsilon
    assert persons.privacy_.neighboring_relation == "add_or_remove_one_group"


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
        classifier(n_groups=PERSONS - 1).fit(X, LABELS, groups=GROUPS)
    classifier(n_groups=PERSONS - 1, delta=0).fit(X, LABELS, groups=GROUPS)


def test_batches_of_persons_are_refused():
    with pytest.raises(ValueError, match="'auto' with unit='group'"):
        classifier(batch_size=7).fit(X, LABELS, groups=GROUPS)


def test_convergence_is_shown_of_the_weighted_posterior():
    pytest.importorskip("arviz")
    with pytest.warns(UserWarning, match="not private"):
        data = classifier().diagnose_convergence(X, LABELS, 2, 3, groups=GROUPS)
    assert data["posterior"]["theta"].shape == (2, 3, 4)
    with pytest.raises(ValueError, match="one label a row"):
        classifier().diagnose_convergence(X, LABELS)


@pytest.mark.parametrize("delta", [1e-5, 0])
def test_quantiles_of_persons_with_a_row_each_are_those_of_rows(delta):
    with fixed_streams():
        rows = DPQuantileScaler(-2, 2, delta=delta).fit(X)
        persons = DPQuantileScaler(-2, 2, delta=delta, unit="group").fit(X, groups=np.arange(N))
    np.testing.assert_array_equal(persons.lower_, rows.lower_)
    np.testing.assert_array_equal(persons.upper_, rows.upper_)
    assert persons.privacy_.epsilon == rows.privacy_.epsilon
    assert persons.privacy_.neighboring_relation == "zero_out_group"


def test_a_person_who_owns_half_of_the_table_moves_no_quantile_of_the_others():
    """200 persons in [-1, 1], one with as many rows at 1e6: the 75th percentile stays put."""
    values = np.linspace(-1, 1, 400).repeat(2)[:, None]
    everything = np.vstack([values, np.full((800, 1), 1e6)])
    groups = np.concatenate([np.arange(800) % 400, np.full(800, 400)])
    made = DPQuantileScaler(epsilon=50.0, quantile_range=(25, 75), unit="group")
    assert abs(made.fit(everything, groups=groups).upper_[0]) < 2
    rows = DPQuantileScaler(epsilon=50.0, quantile_range=(25, 75)).fit(everything)
    assert rows.upper_[0] > 1e5


def test_too_many_persons_for_ranks_are_refused_before_the_charge(monkeypatch):
    monkeypatch.setattr("skdp.mechanisms.quantile.MAX_PERSONS", PERSONS - 1)
    ledger = PrivacyLedger(neighboring_relation="zero_out_group")
    with ledger, pytest.raises(ValueError, match="at most 19 persons"):
        scaler().fit(X, groups=GROUPS)
    assert not ledger.entries
