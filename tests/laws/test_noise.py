"""The noise that really went in: its size each step, its independence, its key."""

import warnings

import numpy as np
import pytest
from scipy import stats

from skdp import DPVariationalLogisticRegression, PrivacyWarning
from skdp.engine import release_hook
from skdp.rows.bounded_sum import ROUNDING

D, STEPS, CLIP, SIGMA = 2000, 12, 0.5, 3.0


def noise_of_steps(**setting):
    """Noisy sums over rows that are all zero: pure noise, without the intercept."""
    estimator = DPVariationalLogisticRegression(
        inference="dpvi",
        epsilon=None,
        noise_multiplier=SIGMA,
        clip_norm=CLIP,
        max_iter=STEPS,
        fit_intercept=False,
        classes=[0, 1],
        n_samples=10,
        **setting,
    )
    with release_hook.record() as tape:
        estimator.fit(np.zeros((10, D)), [0, 1] * 5)
    # The last release is of counts.
    return np.array([release.output.ravel() for release in tape[:-1]])


@pytest.fixture(scope="module")
def releases():
    return noise_of_steps()


def chi_square_accepts(noise, scale):
    low, high = stats.chi2.ppf([1e-6, 1 - 1e-6], noise.size)
    return low < (noise**2).sum() / scale**2 < high


def test_each_step_has_the_declared_noise_and_no_other(releases):
    scale = SIGMA * CLIP * (1 + ROUNDING)
    for step in releases:
        assert chi_square_accepts(step, scale)
        for wrong in (2 / 3, 3 / 2, 1 / CLIP, 1 / np.sqrt(STEPS)):
            assert not chi_square_accepts(step, scale * wrong)


def test_noise_of_another_size_is_found_out_each_time(figure):
    """The same test on 4000 numbers of 20 steps, 50 times each."""
    d, steps, rng = 4000, 20, np.random.default_rng(0)
    scale = SIGMA * CLIP
    wrong = {
        "noise of one step for T": np.full(steps, scale / np.sqrt(steps)),
        "noise not times C": np.full(steps, SIGMA),
        "noise over the realised batch": scale * 40 / rng.binomial(400, 0.1, size=(50, steps)),
    }
    for name, scales in wrong.items():
        found = 0
        for repetition in np.broadcast_to(scales, (50, steps)):
            noise = repetition[:, None] * rng.standard_normal((steps, d))
            found += not all(chi_square_accepts(step, scale) for step in noise)
        figure(f"{name}: found {found} of 50 times")
        assert found == 50
    right = scale * rng.standard_normal((50 * steps, d))
    assert all(chi_square_accepts(step, scale) for step in right)


def test_the_noise_is_normal(releases):
    assert stats.kstest(releases.ravel() / (SIGMA * CLIP * (1 + ROUNDING)), "norm").pvalue > 1e-6


def test_steps_share_no_noise(releases):
    # Correlations of independent normals are N(0, 1/D); 6 standard deviations over 66 pairs.
    correlations = np.corrcoef(releases)[np.triu_indices(STEPS, 1)]
    assert np.abs(correlations).max() < 6 / np.sqrt(D)
    lagged = np.corrcoef(releases[:, :-1].ravel(), releases[:, 1:].ravel())[0, 1]
    assert abs(lagged) < 6 / np.sqrt(releases.size)


def test_poisson_noise_does_not_depend_on_the_batch():
    for step in noise_of_steps(sampling_rate=0.3):
        assert chi_square_accepts(step, SIGMA * CLIP * (1 + ROUNDING))


def fits(X, y, seed, count=1, **parameters):
    found = []
    for _ in range(count):
        with release_hook.record() as tape, warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)
            DPVariationalLogisticRegression(
                inference="dpvi", max_iter=5, random_state=seed, **parameters
            ).fit(X, y)
        found.append(np.array([release.output for release in tape[:-1]]))  # not counts
    return found


def test_ten_seeded_fits_on_one_data_set_agree_bit_for_bit(two_blobs):
    first, *others = fits(*two_blobs, seed=0, count=10)
    for other in others:
        np.testing.assert_array_equal(first, other)


def test_seeded_fits_on_neighbouring_data_share_no_noise():
    # All rows are zero without an intercept, so the releases *are* the noise; only y differs.
    X, y = np.zeros((10, 500)), np.array([0, 1] * 5)
    neighbour = y.copy()
    neighbour[0] = 1
    (first,) = fits(X, y, seed=0, fit_intercept=False)
    for data, parameters in [
        ((X, neighbour), {}),
        ((X[:-1], y[:-1]), {}),
        ((X, y), {"prior_scale": 2.0}),
    ]:
        (second,) = fits(*data, seed=0, fit_intercept=False, **parameters)
        correlation = np.corrcoef(first.ravel(), second.ravel())[0, 1]
        assert abs(correlation) < 6 / np.sqrt(first.size)
    (same,) = fits(X, y, seed=0, fit_intercept=False)
    assert np.corrcoef(first.ravel(), same.ravel())[0, 1] == pytest.approx(1.0)


def test_unseeded_fits_share_no_noise(two_blobs):
    first, second = fits(*two_blobs, seed=None, count=2)
    assert not (first == second).any()
