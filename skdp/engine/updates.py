"""Update rules: pure functions of released values, hence free of privacy cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from skdp.engine.adam import Moments as Moments  # where 0.1.0 stored it
from skdp.engine.adam import NoiseCorrectedAdam as NoiseCorrectedAdam
from skdp.fitting.validate import expected


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
    """Any torch optimiser, made of a list of parameters and fed with released gradients."""

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


# How parameters follow a released gradient of the log-likelihood; a state that is `restored` has
# noise of so much ``more`` variance to come, and ``noise_variance`` is public.
UpdateRule = NoiseCorrectedAdam | MomentumSGD | TorchOptimizer


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
