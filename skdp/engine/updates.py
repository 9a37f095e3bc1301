"""Update rules: pure functions of released values, hence free of privacy cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from skdp._validate import expected


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

    def with_noise(self, moments: Moments, more: float) -> Moments:
        """Return what the moments would be, had the noise had so much more variance."""
        weight = 1 - self.beta2**moments.count
        return moments._replace(second=moments.second + weight * more)

    def direction(
        self, moments: Moments, gradient: Tensor, noise_variance: Tensor | float
    ) -> tuple[Tensor, Moments]:
        """Return the ascent direction, to be multiplied by a learning rate, and the new moments."""
        first = torch.lerp(gradient, moments.first, self.beta1)
        second = torch.lerp(gradient.square(), moments.second, self.beta2)
        count = moments.count + 1
        corrected = second / (1 - self.beta2**count) - noise_variance
        tiny = torch.finfo(corrected.dtype).tiny
        like = {"dtype": corrected.dtype, "device": corrected.device}
        variance = torch.maximum(
            corrected, torch.as_tensor(self.floor * noise_variance + tiny, **like)
        )
        step = first / (1 - self.beta1**count) / variance.sqrt()
        return step.clamp(-self.max_direction, self.max_direction), Moments(first, second, count)

    def saved(self, state: Moments) -> tuple[np.ndarray, np.ndarray, int]:
        """Return the moments as arrays."""
        return state.first.numpy(force=True), state.second.numpy(force=True), state.count

    def restored(self, saved: Any, like: Tensor, more: float) -> Moments:
        """Return saved moments for steps whose noise has so much more variance."""
        first, second, count = saved
        moments = Moments(torch.tensor(first).to(like), torch.tensor(second).to(like), count)
        return self.with_noise(moments, more)

    def step(
        self, state: Moments, theta: Tensor, gradient: Tensor, noise_variance: float, rate: float
    ) -> tuple[Tensor, Moments]:
        """Return the next parameters and moments."""
        direction, moments = self.direction(state, gradient, noise_variance)
        return torch.add(theta, direction, alpha=rate), moments


class UpdateRule(Protocol):
    """How parameters follow a released gradient of the log-likelihood."""

    def init(self, like: Tensor) -> Any:
        """Return the state before the first step."""
        ...

    def saved(self, state: Any) -> Any:
        """Return what there is of the state, as arrays."""
        ...

    def restored(self, saved: Any, like: Tensor, more: float) -> Any:
        """Return a saved state; the noise of the steps to come has so much more variance."""
        ...

    def step(
        self, state: Any, theta: Tensor, gradient: Tensor, noise_variance: float, rate: float
    ) -> tuple[Tensor, Any]:
        """Return the next parameters and state; ``noise_variance`` is public."""
        ...


@dataclass(frozen=True)
class MomentumSGD:
    """Gradient ascent with heavy-ball momentum: v ← βv + g, θ ← θ + rate·v."""

    momentum: float = 0.9

    def init(self, like: Tensor) -> Tensor:
        """Start at rest."""
        return torch.zeros_like(like)

    def saved(self, state: Tensor) -> np.ndarray:
        """Return the velocity as an array."""
        return state.numpy(force=True)

    def restored(self, saved: np.ndarray, like: Tensor, more: float) -> Tensor:
        """Return a saved velocity."""
        return torch.tensor(saved).to(like)

    def step(
        self, state: Tensor, theta: Tensor, gradient: Tensor, noise_variance: float, rate: float
    ) -> tuple[Tensor, Tensor]:
        """Return the next parameters and velocity."""
        velocity = torch.add(gradient, state, alpha=self.momentum)
        return torch.add(theta, velocity, alpha=rate), velocity


@dataclass(frozen=True)
class TorchOptimizer:
    """Any torch optimiser, fed with released gradients.

    Parameters
    ----------
    make : callable
        Makes the optimiser from a list of parameters, as its class does.
    """

    make: Callable[..., torch.optim.Optimizer]

    def init(self, like: Tensor) -> tuple[torch.nn.Parameter, torch.optim.Optimizer]:
        """Let the optimiser own one flat parameter."""
        parameter = torch.nn.Parameter(like.detach().clone())
        try:
            return parameter, self.make([parameter])
        except Exception as error:
            raise self._unfit() from error

    def saved(self, state: Any) -> dict[str, Any]:
        """Return the optimiser's state, with arrays in place of tensors."""
        return _each(state[1].state_dict(), Tensor, lambda t: t.numpy(force=True).copy())

    def restored(self, saved: dict[str, Any], like: Tensor, more: float) -> Any:
        """Return an optimiser with a saved state."""
        parameter, optimizer = self.init(like)
        optimizer.load_state_dict(_each(saved, np.ndarray, torch.tensor))
        return parameter, optimizer

    def step(
        self, state: Any, theta: Tensor, gradient: Tensor, noise_variance: float, rate: float
    ) -> tuple[Tensor, Any]:
        """Return the next parameters; the optimiser descends on minus the log-likelihood."""
        parameter, optimizer = state
        parameter.data.copy_(theta)
        parameter.grad = -gradient
        for group in optimizer.param_groups:
            group["lr"] = rate
        try:
            optimizer.step()
        except Exception as error:
            raise self._unfit() from error
        return parameter.detach().clone(), state

    def _unfit(self) -> ValueError:
        return expected(
            "an optimiser that steps from a gradient alone",
            "e.g. torch.optim.SGD; those that evaluate the loss themselves cannot be private",
            optimizer=self.make,
        )


def _each(values: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """Change all values of a kind in nested dicts and lists, of which copies are made."""
    if isinstance(values, kind):
        return change(values)
    if isinstance(values, dict):
        return {name: _each(value, kind, change) for name, value in values.items()}
    if isinstance(values, list):
        return [_each(value, kind, change) for value in values]
    return values


def like(template: Any, saved: Any) -> Any:
    """Return what a checkpoint holds in the form of a state: its tensors and named tuples."""
    if isinstance(template, Tensor):
        return torch.from_numpy(saved).to(template, copy=True)
    if hasattr(template, "_fields"):
        return type(template)(*map(like, template, saved))
    return saved
