"""Update rules equal those of torch, and the known noise is taken out."""

import functools

import numpy as np
import pytest
import torch

from skdp.engine.adam import NoiseCorrectedAdam
from skdp.engine.updates import MomentumSGD, TorchOptimizer


def gradients(steps, size=7):
    rng = np.random.default_rng(0)
    return [torch.from_numpy(rng.standard_normal(size)) for _ in range(steps)]


def path(rule, steps, rates, noise_variance=0.0):
    theta = torch.linspace(-1, 1, 7, dtype=torch.float64)
    state, found = rule.init(theta), []
    for gradient, rate in zip(gradients(steps), rates, strict=True):
        theta, state = rule.step(state, theta, gradient, noise_variance, rate)
        found.append(theta)
    return torch.stack(found)


def test_our_momentum_is_that_of_torch():
    rates = [0.1, 0.2, 0.05, 0.1, 0.3, 0.01]
    torchs = TorchOptimizer(functools.partial(torch.optim.SGD, lr=1.0, momentum=0.9))
    ours, theirs = path(MomentumSGD(0.9), 6, rates), path(torchs, 6, rates)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_without_noise_our_adam_is_that_of_torch():
    make = functools.partial(torch.optim.Adam, betas=(0.9, 0.99), eps=1e-30)
    rates = [0.1] * 5 + [0.01] * 5
    ours, theirs = path(NoiseCorrectedAdam(), 10, rates), path(TorchOptimizer(make), 10, rates)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


@pytest.mark.parametrize("of", [np.array, torch.tensor])
class TestAdam:
    def test_known_noise_is_taken_out_of_the_second_moment_down_to_a_floor(self, of):
        rule = NoiseCorrectedAdam(floor=0.25, max_direction=3.0)
        numbers = np.array([2.0, -2.0, 1.1, 0.1, 0.0])
        gradient = of(numbers)
        direction, _ = rule.direction(rule.init(gradient), gradient, 1.0)
        corrected = np.sqrt(np.maximum(numbers**2 - 1.0, 0.25))
        np.testing.assert_allclose(direction, numbers / corrected, rtol=1e-12)
        direction, _ = rule.direction(rule.init(gradient), gradient, 3.999)
        assert abs(direction).max() <= 3.0

    def test_directions_are_bounded_and_zero_gradients_stand_still(self, of):
        rule = NoiseCorrectedAdam()
        state = rule.init(of([0.0, 0.0]))
        for gradient in (of([1e-6, 0.0]), of([1.0, 0.0])):
            direction, state = rule.direction(state, gradient, 0.0)
            assert abs(direction).max() <= rule.max_direction
            assert direction[1] == 0


RULES = (MomentumSGD(), NoiseCorrectedAdam(), TorchOptimizer(torch.optim.Adam))


def test_update_rules_leave_what_they_are_given_alone():
    ones = torch.ones(7)
    for rule, theta in [(NoiseCorrectedAdam(), np.ones(7)), *((rule, ones) for rule in RULES)]:
        gradient = 2.0 * theta
        state = rule.init(theta)
        for _ in range(2):
            found, state = rule.step(state, theta, gradient, 0.0, 0.1)
        assert (found > 1.0).all()  # up the log-likelihood
        assert (theta == 1.0).all()
        assert (gradient == 2.0).all()
