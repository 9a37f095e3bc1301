"""Several prior scales: one block is one scale, several are found apart, chains are right."""

import math

import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn.base import clone

from skdp import DPVariationalLinearRegression
from skdp.algorithms.parts import block_scales
from skdp.algorithms.parts.binned_moments import BinnedMoments
from skdp.algorithms.parts.prior_scales import PriorScales, log_density
from skdp.algorithms.parts.residual_releases import Information, with_prior
from skdp.algorithms.parts.row_moments import Beliefs
from skdp.fitting.streams import Streams
from skdp.models.additive import Additive, Number, Pair

pytestmark = pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")


def random_case(B=3, K=2, D=5, seed=0):
    rng = np.random.default_rng(seed)
    vectors = np.linalg.qr(rng.normal(size=(B, D, D)))[0]
    precision = rng.uniform(1, 20, (B, K, D))
    found = Information(precision, rng.normal(size=(B, K, D)) * 10, rng.normal(size=(B, K)))
    return found, Beliefs(rng.uniform(1, 2, (B, D)), vectors)


def test_equal_scales_are_the_prior_of_one_scale():
    information, beliefs = random_case()
    expected = with_prior(information, np.array([0.3**2]))
    given = block_scales.given(information, np.full((1, 5), 0.3**-2), beliefs)
    for found, right in zip(given, expected, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-10)
    weights = np.array([[0.3, 0.7]] * 3)
    U = beliefs.vectors
    variance = np.einsum("bk,bkd->bd", weights, expected.variance[:, :, 0])
    right = (U * variance[:, None]) @ U.transpose(0, 2, 1)
    found = block_scales.covariances(information, np.full((1, 5), 0.3**-2), beliefs, weights)
    np.testing.assert_allclose(found, right, atol=1e-12)


def test_draws_of_scales_are_those_of_the_marginal_posterior():
    """Against a grid over the two scales, where θ is integrated out."""
    information, beliefs = random_case(B=1, K=1, D=4, seed=3)
    prior = PriorScales(2.0, (0, 0, 0, 1))
    grid = np.linspace(math.log(0.02), math.log(8), 60)
    first, second = np.meshgrid(grid, grid, indexing="ij")
    scales = np.exp(np.stack([first.ravel(), second.ravel()], axis=1))
    evidence = [
        block_scales.given(information, prior.precision(s)[None], beliefs).log_evidence.item()
        + log_density(np.log(s), 2.0).sum()
        for s in scales
    ]
    weights = np.exp(evidence - logsumexp(evidence))
    mean = weights @ np.log(scales)
    deviation = np.sqrt(weights @ (np.log(scales) - mean) ** 2)
    many = Information(*(np.repeat(part, 3000, axis=0) for part in information))
    copies = Beliefs(*(np.repeat(part, 3000, axis=0) for part in beliefs))
    draws = np.log(
        block_scales.drawn(prior, prior.start, many, np.ones(1), copies, Streams(b"s")("inference"))
    )
    # Four standard errors of 3000 independent draws, and the cells of the grid of draws.
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=4 * deviation.max() / 3000**0.5)
    np.testing.assert_allclose(draws.std(axis=0), deviation, rtol=0.08)


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_small_coefficients_are_found_where_they_have_a_scale_of_their_own(epsilon):
    """Three large coefficients and twelve that are 0."""
    rng, n = np.random.default_rng(0), 3000
    X = rng.uniform(-1, 1, (n, 15))
    y = X[:, :3] @ [3.0, -2.0, 2.0] + rng.normal(0, 1, n)
    labels = ["large"] * 3 + ["small"] * 12
    model = DPVariationalLinearRegression(epsilon, target_bounds=(-12, 12), n_samples=n)
    errors = []
    for seed in range(1 if epsilon == math.inf else 20):
        one = clone(model).set_params(random_state=seed).fit(X, y)
        blocks = clone(model).set_params(random_state=seed, prior_blocks=labels).fit(X, y)
        np.testing.assert_allclose(blocks.coef_[:3], [3.0, -2.0, 2.0], atol=0.5)
        assert blocks.prior_scale_[1] < 0.2 * blocks.prior_scale_[0]
        errors.append([np.square(fitted.coef_[3:]).sum() for fitted in (blocks, one)])
    # .3 over many seeds at ε = 1; of 20 above .6 with a chance of less than 1e-4.
    of_blocks, of_one = np.mean(errors, axis=0)
    assert of_blocks < 0.6 * of_one


def test_blocks_are_refused_where_no_scale_is_inferred():
    X, y = np.zeros((30, 2)), np.zeros(30)
    for wrong in (
        {"prior_blocks": [0]},
        {"prior_blocks": [0, 1], "prior_scale": 1.0},
        {"prior_blocks": [0, 1], "inference": "dpvi"},
    ):
        with pytest.raises(ValueError, match="prior_blocks"):
            DPVariationalLinearRegression(target_bounds=(-1, 1), **wrong).fit(X, y)


class TestBinnedMoments:
    MODEL = Additive(
        tuple(
            Number(name, tuple(np.linspace(-1, 1, 17)), n_waves=5, told_missing=False)
            for name in "ab"
        )
    )

    def case(self, noise, seed=0):
        """Columns that are skewed and depend on each other."""
        rng, n = np.random.default_rng(seed), 20_000
        first = 2 * rng.beta(1, 4, n) - 1
        second = np.clip(0.7 * first + rng.normal(0, 0.3, n), -1, 1)
        rows = np.hstack([self.MODEL.rows(self.MODEL.codes([first, second])), np.ones((n, 1))]) / 2
        exact = rows.T @ rows / n
        upper = np.triu(rng.normal(size=exact.shape), 1) / math.sqrt(2)
        noisy = exact + noise * (upper + upper.T + np.diag(rng.normal(size=len(exact))))
        tables = tuple(part.table / 2 for part in self.MODEL.parts)
        pairs = tuple(pair.places for pair in self.MODEL.pairs)
        return BinnedMoments(noisy, noise, tables, 0.5, pairs), exact, noisy

    @staticmethod
    def matrices(beliefs):
        return (beliefs.vectors * beliefs.values[:, None]) @ beliefs.vectors.transpose(0, 2, 1)

    def test_without_much_noise_they_are_what_was_released(self):
        moments, exact, _ = self.case(1e-5)
        np.testing.assert_allclose(self.matrices(moments.beliefs(1))[0], exact, atol=1e-3)

    def test_they_are_nearer_to_the_truth_than_what_was_released(self):
        for seed in range(5):
            moments, exact, noisy = self.case(0.05, seed)
            found = self.matrices(moments.beliefs(1))[0]
            assert np.linalg.norm(found - exact) < 0.6 * np.linalg.norm(noisy - exact)

    def test_draws_are_positive_and_scatter_around_the_truth(self):
        moments, exact, _ = self.case(0.02)
        found = self.matrices(moments.beliefs(1, Streams(b"m")("inference"), 60))
        assert np.linalg.eigvalsh(found).min() > 0
        one = found[:, -1, -1]  # 1/4, but for the floor under eigenvalues
        assert np.abs(one - 0.25).max() < 0.04
        assert abs(one.mean() - 0.25) < 0.01
        off, spread = found.mean(axis=0) - exact, found.std(axis=0)
        assert (np.abs(off) <= 3 * spread + 0.01).mean() > 0.9


class TestBinnedMomentsOfPairs(TestBinnedMoments):
    """With the products of two columns that depend on each other."""

    MODEL = Additive(
        TestBinnedMoments.MODEL.columns, (Pair(TestBinnedMoments.MODEL.columns, (0, 1), 0.005),)
    )

    def test_of_independent_columns_products_are_what_the_shares_of_both_say(self):
        rng, n, noise = np.random.default_rng(0), 200_000, 0.01
        values = [2 * rng.beta(1, 4, n) - 1, 2 * rng.beta(3, 1, n) - 1]
        rows = np.hstack([self.MODEL.rows(self.MODEL.codes(values)), np.ones((n, 1))]) / 2
        exact = rows.T @ rows / n
        upper = np.triu(rng.normal(size=exact.shape), 1) / math.sqrt(2)
        noisy = exact + noise * (upper + upper.T + np.diag(rng.normal(size=len(exact))))
        tables = tuple(part.table / 2 for part in self.MODEL.parts)
        moments = BinnedMoments(noisy, noise, tables, 0.5, ((0, 1),))
        off = (self.matrices(moments.beliefs(1))[0] - exact)[self.MODEL.places[2]]
        assert np.linalg.norm(off) < 0.25 * np.linalg.norm((noisy - exact)[self.MODEL.places[2]])
