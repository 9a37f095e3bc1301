"""Priors of models that a user writes: scales, a distribution of torch, or a log-density."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from skdp.fitting.validate import expected, in_range, is_real
from skdp.models.user_models import no_argument_checks


@dataclass(frozen=True)
class Prior:
    """A log-density of θ that torch can differentiate twice.

    It starts at its mean where that is known, else at zeros; its covariance may not be known. The
    distribution is kept where it is neither a normal of scales nor a function.
    """

    log_density: Callable[[Tensor], Tensor]
    start: Tensor
    covariance: Tensor | None = None
    distribution: Distribution | None = None

    @classmethod
    def of(cls, prior: Any, n_parameters: int) -> Prior:
        """Take a scale, scales, a distribution, or a function for a prior, and check it."""
        zero = torch.zeros(n_parameters, dtype=torch.float64)
        if is_real(prior):
            in_range(1e-100, 1e100, prior=prior)
            prior = [prior] * n_parameters
        if isinstance(prior, list | tuple | np.ndarray):
            precision = _scales(prior, n_parameters) ** -2.0
            covariance = torch.diag(1.0 / precision)
            return cls(lambda theta: -0.5 * (precision * theta.square()).sum(), zero, covariance)
        if isinstance(prior, Distribution):
            found = _of_distribution(prior, zero)
        elif callable(prior):
            function: Any = prior
            found = cls(function, zero)
        else:
            raise expected(
                "a scale > 0, one per parameter, a torch distribution, or a function of theta",
                prior=prior,
            )
        try:
            value = found.log_density(found.start)
            usable = value.shape == () and bool(torch.isfinite(found.gradient(found.start)).all())
            usable = usable and bool(torch.isfinite(found.precision(found.start)).all())
        except Exception as error:
            raise expected(
                f"a log-density of {n_parameters} numbers that torch can differentiate twice",
                f"it raised {type(error).__name__}: {error}",
                prior=prior,
            ) from error
        if not usable or not math.isfinite(value):
            raise expected(
                "a finite log-density with finite derivatives at its mean or at zero",
                "a function returns a tensor of shape (); a distribution lives on all of R^n",
                prior=prior,
            )
        return found

    def sample(self, n: int, generator: torch.Generator) -> Tensor | None:
        """Draw θ, (n, n_parameters); None where only a log-density is known."""
        P = len(self.start)
        if self.distribution is not None:
            one = self.distribution.batch_shape + self.distribution.event_shape
            # Distributions draw from torch's own stream.
            with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
                torch.manual_seed(generator.initial_seed())
                drawn = self.distribution.sample(torch.Size((n,) if one == (P,) else (n, P)))
            return drawn.reshape(n, P).to(torch.float64)
        if self.covariance is None:
            return None
        normals = torch.randn((n, P), generator=generator, dtype=torch.float64)
        return self.start + normals @ torch.linalg.cholesky(self.covariance).mT

    def gradient(self, theta: Tensor) -> Tensor:
        """∇ log p(θ)."""
        with no_argument_checks():
            return torch.func.grad(self.log_density)(theta)

    def precision(self, theta: Tensor) -> Tensor:
        """−∇² log p(θ)."""
        with no_argument_checks():
            hessian = torch.func.jacrev(torch.func.grad(self.log_density))(theta)
        return -(hessian + hessian.mT) / 2


def _scales(prior: Any, n_parameters: int) -> Tensor:
    try:
        scales = torch.as_tensor(np.array(prior, dtype=np.float64))
    except (TypeError, ValueError, OverflowError):
        scales = torch.zeros(0)
    if scales.shape != (n_parameters,) or not ((scales > 1e-100) & (scales < 1e100)).all():
        raise expected(f"a scale > 0, or {n_parameters} of them", prior=prior)
    return scales


def _of_distribution(prior: Any, zero: Tensor) -> Prior:
    """Prior that is a distribution over all of Rⁿ, with the moments that it knows."""

    def known(name: str) -> Tensor | None:
        try:
            return getattr(prior, name).detach().to(torch.float64)
        except (NotImplementedError, AttributeError, RuntimeError):
            return None

    try:
        support = prior.support
    except NotImplementedError:
        support = constraints.real
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    if support is not constraints.real:
        raise expected("a distribution over all of R^n, without bounds", prior=prior)
    n, mean, covariance = len(zero), known("mean"), known("covariance_matrix")
    if mean is None or mean.shape not in ((n,), ()) or not torch.isfinite(mean).all():
        mean = zero
    variance = known("variance")
    if covariance is None and variance is not None and variance.shape in ((n,), (1,), ()):
        covariance = torch.diag(zero + variance)
    if covariance is not None and not (
        covariance.shape == (n, n) and torch.isfinite(covariance).all()
    ):
        covariance = None

    def log_density(theta: Tensor) -> Tensor:
        return torch.as_tensor(prior.log_prob(theta)).sum()

    return Prior(log_density, zero + mean, covariance, prior)
