"""What is released as an attribute, by a search or by a mechanism lies on a public grid.

That every release of every fit does is one of the checks in `test_private_estimators`.
"""

import math

import numpy as np
import pytest
import torch
from contracts.subjects import RELEASING, SEARCHES, VARIANTS, with_facts

from skdp import DPVariationalLogisticRegression
from skdp.engine.release_hook import grid_width
from skdp.mechanisms import GaussianMechanism, LaplaceMechanism, QuantileMechanism
from skdp.mechanisms.quantile import GRID
from skdp.model_selection import DPRandomizedSearch
from skdp.testing import record_releases
from skdp.testing._checks import assert_on_grid
from skdp.testing._subjects import good_data

pytestmark = pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")
X, Y = good_data(VARIANTS["DPSGDClassifier"])
N = len(X)


def fitted(variant, rows=X):
    """Fit under the recording hook; return the estimator and the tape."""
    estimator = with_facts(variant)
    with record_releases() as tape:
        estimator.fit(rows, good_data(estimator)[1])
    return estimator, tape


def assert_all_on_grid(estimator, tape):
    """Return the number of entries and of values, all of them checked."""
    assert tape
    n_values = 0
    for release in tape:
        output = np.asarray(release.output)
        assert release.call.scale > 0
        assert output.shape == release.call.shape
        assert_on_grid(output, release.call.width)
        n_values += output.size
    for values, width in released_attributes(estimator, tape):
        assert_on_grid(values, width)
        n_values += np.size(values)
    return len(tape), n_values


def released_attributes(estimator, tape):
    """Yield what an estimator hands out as released, each with its public grid."""
    if hasattr(estimator, "posterior_samples_"):  # iterates of DP-SGLD
        T, n_rows = estimator.temperature_, estimator.n_samples
        for iterate, step in zip(
            estimator.posterior_samples_, estimator.posterior_steps_, strict=True
        ):
            eta = estimator.learning_rates_[step - 1]
            yield iterate, grid_width(math.sqrt(2 * T * eta / n_rows))
    elif type(estimator).__name__.startswith("OPS"):
        width = tape[-1].call.width
        yield estimator.sample_posterior(estimator.n_posterior_samples), width


def neighbour():
    """Another data set: one record far away."""
    rows = X.copy()
    rows[3] = [1e6, -1e6, 0.0]
    return rows


@pytest.mark.parametrize(
    "variant", [name for name in RELEASING if name.startswith(("DPSGLD", "OPS"))]
)
def test_every_release_is_on_the_grid_that_neighbours_declare_too(variant):
    estimator, tape = fitted(variant)
    assert_all_on_grid(estimator, tape)
    other, other_tape = fitted(variant, neighbour())
    assert_all_on_grid(other, other_tape)
    assert [release.call for release in tape] == [release.call for release in other_tape]


def searched(rows=X):
    model = DPVariationalLogisticRegression(classes=[0, 1], n_samples=N, max_iter=2)
    search = DPRandomizedSearch(model, {"prior_scale": [1.0]}, epsilon=2.0, mean_trials=1.01)
    with record_releases() as tape:
        search.fit(rows, Y)
    return search, tape


def test_every_release_of_a_search_is_on_a_grid():
    search, tape = searched()
    assert_all_on_grid(search, tape)
    calls = {release.call for release in tape}  # of all trials, whose number is random
    assert calls == {release.call for release in searched(neighbour())[1]}


MECHANISMS = [
    GaussianMechanism(record_norm=3.0, scale=0.7),
    LaplaceMechanism(record_norm=3.0, scale=0.7),
    GaussianMechanism(record_norm=1e-9, scale=1e-9, neighboring_relation="replace_one"),
]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_what_a_mechanism_returns_is_on_the_grid_of_its_scale(mechanism):
    for values in ([1 / 3, -1e-3], [1e9 / 3, 0.0]):
        with record_releases() as tape:
            noisy = mechanism.release(values)
        assert_on_grid(noisy, grid_width(mechanism.scale))
        np.testing.assert_array_equal(noisy, tape[0].output)
        assert tape[0].call.width == grid_width(mechanism.scale)


def test_what_a_quantile_mechanism_returns_is_a_point_of_its_range():
    mechanism = QuantileMechanism(quantile=0.5, lower=-1.0, upper=3.0, epsilon=1.0)
    for rows in (X, neighbour()):
        with record_releases() as tape:
            answer = mechanism.release(rows[:, 0])
        assert_on_grid(tape[0].output, 1.0)
        assert answer == -1.0 + 4.0 * (tape[0].output / GRID)


def test_a_value_off_the_grid_is_found():
    with pytest.raises(AssertionError):
        assert_on_grid(np.array([0.5, 0.5 + 2.0**-40]), 2.0**-30)
    with pytest.raises(AssertionError):
        assert_on_grid(torch.tensor([3.0]), 3.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in RELEASING if "," not in name])
def test_many_fits_of_each_class_are_on_their_grids(name, figure):
    variants = [variant for variant in VARIANTS if variant.partition(",")[0] == name]
    entries = values = 0
    calls = {}
    n_fits = 10 if name in SEARCHES else 100  # which have several fits in each
    for trial in range(n_fits):
        variant = variants[trial % len(variants)]
        estimator, tape = fitted(variant, X if trial % 2 else neighbour())
        one, more = assert_all_on_grid(estimator, tape)
        entries, values = entries + one, values + more
        declared = [release.call for release in tape]
        if name == "DPRandomizedSearch":  # the number of its trials is random
            declared = set(declared)
        assert calls.setdefault(variant, declared) == declared
    figure(f"{name}: {entries} releases of {n_fits} fits, {values} values, each on its grid")
