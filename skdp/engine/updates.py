"""Update rules: pure functions of released values, hence free of privacy cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class Moments(NamedTuple):
    """Running first and second moments of a noisy gradient, and how many it has seen."""

    first: Tensor
    second: Tensor
    count: int


@dataclass(frozen=True)
class NoiseCorrectedAdam:
    """Adam's direction with the known variance of the DP noise taken out of the second moment.

    DP noise adds its variance to Adam's second moment, which turns Adam into slow sign-less
    gradient descent at small ε; the variance is public, so it can be subtracted (Tang, Shpilevskiy
    & Lécuyer, *DP-AdamBC*, AAAI 2024). What is left is floored at a share of the noise variance:
    where the noise drowns the gradient, the steps must stay short.

    Parameters
    ----------
    beta1, beta2 : float
        Decay rates of the two moments.
    floor : float
        Least corrected second moment, as a share of the noise variance.
    max_direction : float
        Bound on each coordinate of the direction.
    """

    beta1: float = 0.9
    beta2: float = 0.99
    floor: float = 0.3
    max_direction: float = 3.0

    def init(self, like: Tensor) -> Moments:
        """Start with zero moments."""
        return Moments(torch.zeros_like(like), torch.zeros_like(like), 0)

    def direction(
        self, moments: Moments, gradient: Tensor, noise_variance: Tensor | float
    ) -> tuple[Tensor, Moments]:
        """Return the ascent direction, to be multiplied by a learning rate, and the new moments."""
        first = torch.lerp(gradient, moments.first, self.beta1)
        second = torch.lerp(gradient.square(), moments.second, self.beta2)
        count = moments.count + 1
        corrected = second / (1 - self.beta2**count) - noise_variance
        variance = torch.maximum(
            corrected, torch.as_tensor(self.floor * noise_variance + 1e-300, dtype=corrected.dtype)
        )
        step = first / (1 - self.beta1**count) / variance.sqrt()
        return step.clamp(-self.max_direction, self.max_direction), Moments(first, second, count)
