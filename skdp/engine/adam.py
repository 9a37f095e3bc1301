"""Adam for gradients whose noise has a known variance: of arrays and of tensors alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

_TINY = 2.0**-126  # the least variance, also in single precision


class Moments(NamedTuple):
    """Running first and second moments of a noisy gradient, and how many it has seen."""

    first: Any
    second: Any
    count: int


@dataclass(frozen=True)
class NoiseCorrectedAdam:
    """Adam's direction with the known variance of the DP noise taken out of the second moment.

    At small ε that variance turns Adam into slow sign-less gradient descent; it is public, so it
    can be subtracted (Tang, Shpilevskiy & Lécuyer, *DP-AdamBC*, AAAI 2024). At least a ``floor`` of
    it is left: where noise dominates the gradient, steps must stay short. Each coordinate of the
    direction is bounded by ``max_direction``.
    """

    beta1: float = 0.9
    beta2: float = 0.99
    floor: float = 0.3
    max_direction: float = 3.0

    def init(self, like: Any) -> Moments:
        """Start with zero moments."""
        return Moments(like * 0.0, like * 0.0, 0)

    def with_noise(self, moments: Moments, more: float) -> Moments:
        """Return what the moments would be, had the noise had so much more variance."""
        weight = 1 - self.beta2**moments.count
        return moments._replace(second=moments.second + weight * more)

    def direction(
        self, moments: Moments, gradient: Any, noise_variance: Any
    ) -> tuple[Any, Moments]:
        """Return the ascent direction, to be multiplied by a learning rate, and the new moments."""
        first = _between(gradient, moments.first, self.beta1)
        second = _between(gradient**2, moments.second, self.beta2)
        count = moments.count + 1
        corrected = second / (1 - self.beta2**count) - noise_variance
        variance = corrected.clip(self.floor * noise_variance + _TINY)
        step = first / (1 - self.beta1**count) / variance**0.5
        return step.clip(-self.max_direction, self.max_direction), Moments(first, second, count)

    def saved(self, state: Moments) -> tuple[np.ndarray, np.ndarray, int]:
        """Return the moments of tensors as arrays."""
        return state.first.numpy(force=True), state.second.numpy(force=True), state.count

    def restored(self, saved: Any, like: Any, more: float) -> Moments:
        """Return saved moments for steps whose noise has so much more variance."""
        first, second, count = saved
        moments = Moments(like.new_tensor(first), like.new_tensor(second), count)
        return self.with_noise(moments, more)

    def step(
        self, state: Moments, theta: Any, gradient: Any, noise_variance: float, rate: float
    ) -> tuple[Any, Moments]:
        """Return the next parameters and moments."""
        direction, moments = self.direction(state, gradient, noise_variance)
        direction *= rate
        direction += theta
        return direction, moments


def _between(new: Any, old: Any, weight: float) -> Any:
    """New + weight (old − new), without arrays in between."""
    mean = old - new
    mean *= weight
    mean += new
    return mean
