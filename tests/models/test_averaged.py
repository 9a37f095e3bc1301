"""Averages of class probabilities over normal logits, against quadrature that takes its time."""

import itertools

import numpy as np
import pytest
from scipy.special import expit, softmax

from skdp.models import averaged
from skdp.models.averaged import mean_sigmoid, mean_softmax

NODES = np.linspace(-12.0, 12.0, 2401)  # trapezoids: exact for what is analytic and dies out
WEIGHTS = np.exp(-(NODES**2) / 2.0) / np.exp(-(NODES**2) / 2.0).sum()


def pairs(means, variances):
    """Every mean with every variance, (n,) each."""
    return (part.ravel() for part in np.meshgrid(means, variances))


def slow_sigmoid(mean, variance):
    z = mean[:, None] + np.sqrt(variance)[:, None] * NODES
    return np.column_stack([expit(-z) @ WEIGHTS, expit(z) @ WEIGHTS])


class TestSigmoid:
    @pytest.mark.parametrize("ends", [(0.0, 0.1), (0.1 + 1e-9, 1.0), (1.0 + 1e-9, 4.0)])
    def test_it_is_the_integral(self, ends):
        mean, variance = pairs(np.linspace(-30.0, 30.0, 121), np.linspace(*ends, 15))
        expected = slow_sigmoid(mean, variance)
        np.testing.assert_allclose(mean_sigmoid(mean, variance), expected, rtol=0, atol=2e-7)
        point = np.column_stack([expit(-mean), expit(mean)])
        assert np.abs(point - expected).max() > 1e-3  # what leaves the variance out

    def test_each_class_is_accurate_in_its_own_tail(self):
        mean, variance = pairs(np.linspace(-30.0, 30.0, 121), np.linspace(0.0, 0.1, 15))
        expected = slow_sigmoid(mean, variance)
        assert expected.min() < 1e-12
        np.testing.assert_allclose(mean_sigmoid(mean, variance), expected, rtol=2e-7)

    def test_complements_sum_to_1_and_change_places_with_the_sign(self):
        mean, variance = pairs(np.linspace(-800.0, 800.0, 401), [0.0, 0.05, 0.5, 2.0, 9.0, 1e6])
        found = mean_sigmoid(mean, variance)
        np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=0, atol=2.0**-52)
        np.testing.assert_allclose(mean_sigmoid(-mean, variance), found[:, ::-1], atol=1e-15)
        assert found.min() >= 0.0


# --- softmax ------------------------------------------------------------------------------------


GRID = np.linspace(-8.0, 8.0, 65)
POINTS = np.array(list(itertools.product(GRID, repeat=2)))
MASSES = np.exp(-(POINTS**2).sum(axis=1) / 2.0) / np.exp(-(POINTS**2).sum(axis=1) / 2.0).sum()
DIFFERENCES = np.array([[1.0, 0.0, -1.0], [0.0, 1.0, -1.0]])


def slow_softmax(mean, covariance):
    """Probabilities of three classes depend on two differences of logits."""
    L = np.linalg.cholesky(DIFFERENCES @ covariance @ DIFFERENCES.T + 1e-15 * np.eye(2))
    z = np.column_stack([DIFFERENCES @ mean + POINTS @ L.T, np.zeros(len(POINTS))])
    return MASSES @ softmax(z, axis=1)


def logits(trace, K=3, n=30, seed=0):
    """Means, and covariances of a trace: of any shape, and all in the direction that counts."""
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(n, K, K))
    roots[n // 2 :] *= 1e-6
    roots[n // 2 :, :2, 0] = [1.0, -1.0]
    covariance = roots @ roots.transpose(0, 2, 1)
    covariance *= trace / np.trace(covariance, axis1=1, axis2=2)[:, None, None]
    return 2.0 * rng.normal(size=(n, K)), covariance


class TestSoftmax:
    # The second order leaves out v²/8 σ⁗, of at most 0.13, where the difference of two logits has
    # a variance v of twice the trace.
    @pytest.mark.parametrize(
        ("trace", "most"),
        [
            *[(0.001, 1e-7), (0.01, 7e-6), (averaged._LITTLE * (1 - 1e-9), 2e-5)],
            *[(averaged._LITTLE * (1 + 1e-9), 2e-6), (0.2, 4e-5), (1.0, 4e-4)],
        ],
    )
    def test_it_is_the_integral_on_both_sides_of_the_threshold(self, trace, most):
        mean, covariance = logits(trace)
        expected = np.array([slow_softmax(*one) for one in zip(mean, covariance, strict=True)])
        found = mean_softmax(mean, covariance)
        np.testing.assert_allclose(found, expected, rtol=0, atol=most)
        assert np.abs(softmax(mean, axis=1) - expected).max() > 20 * most

    @pytest.mark.parametrize("K", [2, 3, 10, 300])
    @pytest.mark.parametrize("trace", [0.0, 0.01, 1.0, 1e4])
    def test_complements_sum_to_1(self, trace, K):
        found = mean_softmax(*logits(trace, K))
        np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=0, atol=1e-14)
        assert found.min() >= 0.0


# --- rows alone ---------------------------------------------------------------------------------


def sigmoid_rows():
    rng = np.random.default_rng(0)
    return 5.0 * rng.normal(size=60), rng.choice([0.0, 0.03, 0.5, 2.0, 30.0], 60)


def softmax_rows(K):
    parts = [logits(trace, K, n=20, seed=seed) for seed, trace in enumerate([0.001, 0.02, 2.0])]
    mixed = np.random.default_rng(0).permutation(60)
    return [np.concatenate(part)[mixed] for part in zip(*parts, strict=True)]


@pytest.mark.parametrize(
    ("average", "rows"),
    [
        (mean_sigmoid, sigmoid_rows()),
        (mean_softmax, softmax_rows(3)),
        (mean_softmax, softmax_rows(10)),
    ],
    ids=["sigmoid", "softmax of 3", "softmax of 10"],
)
class TestRowsAlone:
    def test_a_row_is_averaged_alike_whatever_rows_stand_beside_it(
        self, average, rows, monkeypatch
    ):
        whole = average(*rows)
        for start, length in [*((i, 1) for i in range(60)), (1, 7), (3, 16), (5, 33), (0, 59)]:
            part = slice(start, start + length)
            np.testing.assert_array_equal(average(*(of[part] for of in rows)), whole[part])
        backwards = average(*(of[::-1].copy() for of in rows))
        np.testing.assert_array_equal(backwards[::-1], whole)
        monkeypatch.setattr(averaged, "_AT_ONCE", 13)
        np.testing.assert_array_equal(average(*rows), whole)

    def test_no_rows_have_no_averages(self, average, rows):
        assert average(*(of[:0] for of in rows)).shape == (0, average(*rows).shape[1])

    def test_a_spread_that_is_no_number_leaves_none(self, average, rows):
        """And neither what lay in memory before, nor a change of the other rows."""
        mean, spread = (of.copy() for of in rows)
        spread[7] = np.nan
        found, whole = average(mean, spread), average(*rows)
        assert np.isnan(found[7]).all()
        np.testing.assert_array_equal(np.delete(found, 7, axis=0), np.delete(whole, 7, axis=0))
