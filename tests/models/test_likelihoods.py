"""The constants that the samplers' guarantees rest on, against brute force."""

import numpy as np
import pytest
from bundles import bundled

from skdp.models.likelihoods import Bernoulli, Categorical, HuberRegression

LIKELIHOODS = {
    "bernoulli": Bernoulli(),
    "categorical 3": Categorical(3),
    "categorical 7": Categorical(7),
    "huber": HuberRegression(0.5, 1.0, target_bound=1.0),
    "huber, tight": HuberRegression(0.2, 0.3, target_bound=1.0),
    "huber, any target": HuberRegression(0.5, 1.0),
}
COIN = np.random.default_rng(0)


def made_up(likelihood, reach, n=4000):
    """Return logits of norm ≤ reach, many of them on the sphere, and targets."""
    K = likelihood.n_outputs
    z = COIN.standard_normal((n, K))
    z *= reach * np.minimum(1.0, COIN.uniform(0.5, 3, (n, 1))) / np.linalg.norm(z, axis=1)[:, None]
    if isinstance(likelihood, HuberRegression):
        return z, COIN.choice([-1.0, -0.3, 1.0], (n, 1))
    return z, likelihood.targets(COIN.integers(max(2, K), size=n))


@bundled("name", LIKELIHOODS)
@bundled("reach", [0.1, 1.0, 8.0])
def test_derivatives_are_those_of_the_log_likelihood(name, reach):
    likelihood = LIKELIHOODS[name]
    z, targets = made_up(likelihood, reach, 200)
    residual, h = likelihood.residual(z, targets), 1e-6
    for k, unit in enumerate(np.eye(likelihood.n_outputs)):
        up, down = (likelihood.loss(z + s * h * unit, targets) for s in (1, -1))
        np.testing.assert_allclose((down - up) / (2 * h), residual[:, k], atol=3e-7)
        slopes = [likelihood.residual(z + s * h * unit, targets)[:, k] for s in (1, -1)]
        smooth = np.abs(np.abs(targets - z) - getattr(likelihood, "threshold", 9.0)).min(1) > h
        still = np.zeros(len(z))
        curvature = likelihood.least_curvature(z, targets, still, reach)[:, k, k]
        np.testing.assert_allclose(
            (slopes[1] - slopes[0])[smooth] / (2 * h), curvature[smooth], atol=1e-7
        )


@bundled("name", LIKELIHOODS)
@bundled("reach", [0.1, 1.0, 8.0])
def test_residual_and_curvature_stay_within_their_bounds(name, reach):
    likelihood = LIKELIHOODS[name]
    z, targets = made_up(likelihood, reach)
    assert np.linalg.norm(
        likelihood.residual(z, targets), axis=1
    ).max() <= likelihood.residual_bound * (1 + 1e-12)
    other, _ = made_up(likelihood, reach)
    # Over any segment the gradient turns by at most the curvature bound times its length.
    turn = np.linalg.norm(
        likelihood.residual(z, targets) - likelihood.residual(other, targets), axis=1
    )
    assert np.all(turn <= likelihood.curvature_bound * np.linalg.norm(z - other, axis=1) + 1e-12)


def range_by_ascent(likelihood, target, reach):
    """Largest minus smallest log-likelihood over the ball, by projected ascent from many starts."""
    ends = []
    for sign in (1.0, -1.0):
        z = COIN.standard_normal((300, likelihood.n_outputs)) * reach
        targets = np.broadcast_to(target, (300, len(target)))
        for _ in range(500):
            z = z + sign * 0.04 * reach * likelihood.residual(z, targets)
            z *= np.minimum(1.0, reach / np.maximum(np.linalg.norm(z, axis=1), 1e-9))[:, None]
        ends.append((-sign * likelihood.loss(z, targets)).max())
    return sum(ends)


@pytest.mark.thorough
@bundled("reach", [0.1, 1.0, 8.0])
@bundled("name", LIKELIHOODS)
def test_range_bound_holds_and_is_not_wasteful(name, reach):
    likelihood = LIKELIHOODS[name]
    if isinstance(likelihood, HuberRegression):
        found = max(range_by_ascent(likelihood, [y], reach) for y in (-1.0, 0.0, 1.0))
    else:
        found = range_by_ascent(likelihood, likelihood.targets(np.array([0]))[0], reach)
    bound = likelihood.value_range(reach)
    assert found <= bound * (1 + 1e-9)
    assert bound < 1.5 * found if "any" not in name else bound < 2.5 * found


def test_softmax_range_exceeds_the_binary_one():
    # K = 3, RD = 1: 1.593, more than √2.
    found = range_by_ascent(Categorical(3), np.array([1.0, 0.0, 0.0]), 1.0)
    assert found == pytest.approx(1.593, abs=2e-3)
    assert np.sqrt(2) < found <= Categorical(3).value_range(1.0) < 2 * np.sqrt(2)


def test_binary_range_is_attained():
    assert range_by_ascent(Bernoulli(), np.array([1.0]), 3.0) == pytest.approx(3.0, rel=1e-3)


@bundled("name", LIKELIHOODS)
@bundled("reach", [0.1, 1.0, 8.0])
def test_losses_lie_within_their_stated_range(name, reach):
    likelihood = LIKELIHOODS[name]
    z, targets = made_up(likelihood, reach, 2000)
    targets = likelihood.tamed(targets, reach)
    excess = likelihood.loss(z, targets) - likelihood.least_loss(targets, reach)
    assert excess.min() >= -1e-12
    assert excess.max() <= likelihood.value_range(reach) + 1e-12


@bundled("name", LIKELIHOODS)
@bundled("reach", [0.1, 1.0, 8.0])
@bundled("move", [0.0, 0.05, 1.0, 20.0])
def test_a_loss_bends_at_least_as_much_as_is_said(name, reach, move):
    likelihood, rng = LIKELIHOODS[name], np.random.default_rng(1)
    z, targets = made_up(likelihood, reach, 500)
    A = likelihood.least_curvature(z, targets, np.full(len(z), move), reach)
    at, slope = likelihood.loss(z, targets), -likelihood.residual(z, targets)
    for _ in range(20):
        end = rng.normal(size=z.shape)
        end *= reach * rng.random((len(z), 1)) / np.linalg.norm(end, axis=1, keepdims=True)
        d = end - z
        apart = np.abs(d).max(1) if d.shape[1] == 1 else np.ptp(d, axis=1)
        d *= np.minimum(1.0, move / np.maximum(apart, 1e-300))[:, None]
        rise = likelihood.loss(z + d, targets) - at - (slope * d).sum(axis=1)
        least = 0.5 * np.einsum("ni,nij,nj->n", d, A, d)
        assert (rise >= least - 1e-9 * (1 + np.abs(at))).all()
