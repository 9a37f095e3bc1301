"""Models that a user writes: a log-likelihood and a prior as functions of torch tensors.

A function is tried on synthetic records before it sees private ones, so that every error names it
and quotes no data.

>>> import torch
>>> def log_likelihood(theta, x):
...     return -0.5 * ((x - theta) ** 2).sum(1)
>>> model = UserModel(log_likelihood, n_parameters=2, supervised=False)
>>> theta = torch.zeros(2, dtype=torch.float64)
>>> x, y = made_up_records(3, 2)
>>> model.check(theta, x, y)
>>> bool((model.gradients(theta, x, y) == x).all())
True
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from skdp.fitting.validate import expected, in_range, is_real

N_MADE_UP = 5


@dataclass(frozen=True)
class UserModel:
    """Log-densities of records under parameters, and their gradients record by record.

    Parameters
    ----------
    log_likelihood : callable
        Maps θ (n_parameters,) and rows x (n, d), and targets y (n,) if supervised, to log-densities
        (n,).
    n_parameters : int
        Length of θ.
    supervised : bool
        Whether the function takes y.
    """

    log_likelihood: Callable[..., Any]
    n_parameters: int
    supervised: bool

    def values(self, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Log-densities of the records, (n,)."""
        with no_argument_checks():
            return self.log_likelihood(theta, x, *((y,) if self.supervised else ()))

    def gradients(self, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """∂ log p/∂θ of each record by itself, (n, n_parameters)."""

        def of_one(theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
            return self.values(theta, x[None], y[None])[0]

        return torch.func.vmap(torch.func.grad(of_one), (None, 0, 0))(theta, x, y)

    def check(self, theta: Tensor, x: Tensor, y: Tensor) -> None:
        """Try the function on synthetic records, at and near θ.

        Raises
        ------
        ValueError
            If it fails, returns anything but (n,) finite numbers, mixes records, or its gradients
            cannot be taken.
        """
        generator = torch.Generator().manual_seed(0)
        noise = torch.randn(theta.shape, generator=generator, dtype=theta.dtype)
        for at in (theta, theta + 0.1 * noise):
            self._check_values(at.clone(), x, y)
            self._check_gradients(at.clone(), x, y)

    def _check_values(self, theta: Tensor, x: Tensor, y: Tensor) -> None:
        n = len(x)
        values = self._tried(theta, x, y)
        if not isinstance(values, Tensor):
            raise _wrong(
                "return a torch tensor",
                f"got {type(values).__name__}",
                "use torch functions of theta and x throughout",
            )
        if values.shape != (n,):
            raise _wrong(
                "return one log-density a record, shape (n,)",
                f"got shape {tuple(values.shape)} for {n} records",
                "sum over features, not over records",
            )
        if values.dtype != torch.float64:
            raise _wrong(
                "work in double precision",
                f"got {values.dtype}",
                "leave theta and x in float64: the rounding of sums is part of the guarantee",
            )
        if not torch.isfinite(values).all():
            raise _wrong(
                "be finite on ordinary records",
                "got NaN or infinity on synthetic ones",
                "mend it, e.g. torch.logsumexp in place of log(sum(exp)), or give example_rows of "
                "the kind that it is meant for",
            )
        alone = torch.cat([self._tried(theta, x[i : i + 1], y[i : i + 1]) for i in range(n)])
        flipped = self._tried(theta, x.flip(0), y.flip(0)).flip(0)
        if not (_close(values, alone) and _close(values, flipped)):
            raise _wrong(
                "treat each record by itself",
                "its value for a record changes with the other records, or by chance",
                "remove what mixes the rows of x, and random numbers",
            )

    def _tried(self, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        try:
            return self.values(theta, x.clone(), y.clone())
        except Exception as error:
            arguments = "(theta, x, y)" if self.supervised else "(theta, x)"
            raise _wrong(
                f"work on {arguments} of shapes {tuple(theta.shape)}, {tuple(x.shape)}"
                + (f", {tuple(y.shape)}" if self.supervised else ""),
                f"it raised {type(error).__name__} on synthetic records: {error}",
                "" if self.supervised else "give y to fit where the function takes one",
            ) from error

    def _check_gradients(self, theta: Tensor, x: Tensor, y: Tensor) -> None:
        try:
            gradients = self.gradients(theta, x, y)
            of_all = torch.func.grad(lambda t: self.values(t, x, y).sum())(theta)
        except Exception as error:
            raise _wrong(
                "be differentiable record by record",
                f"torch.func.vmap raised {type(error).__name__} on synthetic records: {error}",
                "write it without .item(), .numpy(), changes in place, and branches on values",
            ) from error
        if not torch.isfinite(gradients).all():
            raise _wrong(
                "have finite gradients on ordinary records",
                "got NaN or infinity on synthetic ones",
                "mend it where a value is at the edge of a function's domain",
            )
        if not gradients.any():
            raise _wrong(
                "be differentiable in theta",
                "all its gradients are zero",
                "do not detach or round theta, and use it",
            )
        if not torch.allclose(gradients.sum(0), of_all, rtol=1e-6, atol=1e-9):
            raise _wrong(
                "treat each record by itself",
                "gradients of single records do not add up to that of all",
                "remove what mixes the rows of x",
            )


def _close(values: Tensor, others: Tensor) -> bool:
    return torch.allclose(values, others, rtol=1e-6, atol=1e-9)


def _wrong(what: str, found: str, remedy: str, of: str = "log_likelihood") -> ValueError:
    tail = f"; {remedy}" if remedy else ""
    return ValueError(f"Expected {of} to {what}, but {found}{tail}.")


def takes_targets(log_likelihood: Callable[..., Any]) -> bool:
    """Whether a function can be called as (theta, x, y)."""
    try:
        inspect.signature(log_likelihood).bind(None, None, None)
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature
        return True
    return True


@contextmanager
def no_argument_checks() -> Iterator[None]:
    """Let torch's distributions not look at values: that cannot be vectorised, and would tell."""
    before = Distribution._validate_args
    Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        Distribution.set_default_validate_args(before)


def made_up_records(n: int, n_features: int, *, integers: bool = False) -> tuple[Tensor, Tensor]:
    """Standard normal rows, with standard normal targets or the labels 0 and 1 in turn."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn((n, n_features), generator=generator, dtype=torch.float64)
    y = torch.randn((n,), generator=generator, dtype=torch.float64)
    return x, torch.arange(n) % 2 if integers else y


@dataclass(frozen=True)
class Simulator:
    """Draws targets from a model that a user wrote.

    Parameters
    ----------
    simulate : callable
        Maps θ (n_parameters,), rows x (m, d) and a `torch.Generator` to targets (m,).
    """

    simulate: Callable[..., Any]

    def __post_init__(self) -> None:
        if not callable(self.simulate):
            kind = "None, or a function of (theta, x, generator)"
            raise expected(kind, simulate=self.simulate)

    def targets(self, theta: Tensor, x: Tensor, generator: torch.Generator) -> Tensor:
        """Draw one target per row, (m,).

        Raises
        ------
        ValueError
            If the function fails, or returns anything but (m,) numbers.
        """
        try:
            with torch.no_grad():
                found = self.simulate(theta.clone(), x.clone(), generator)
        except Exception as error:
            raise _wrong(
                f"work on (theta, x, generator) with shapes {tuple(theta.shape)}, {tuple(x.shape)}",
                f"it raised {type(error).__name__}: {error}",
                "",
                of="simulate",
            ) from error
        if not isinstance(found, Tensor):
            kind = f"got {type(found).__name__}"
            raise _wrong("return a torch tensor", kind, "use torch functions", of="simulate")
        if found.shape != (len(x),):
            raise _wrong(
                "return one target per row, shape (m,)",
                f"got shape {tuple(found.shape)} for {len(x)} rows",
                "draw for each row of x",
                of="simulate",
            )
        return found if found.dtype == torch.int64 else found.to(torch.float64)

    def check(self, model: UserModel, theta: Tensor, x: Tensor) -> None:
        """Try the function on synthetic rows at θ, with the log-likelihood of what it draws.

        Raises
        ------
        ValueError
            If it fails, ignores its generator, or draws what has no finite log-likelihood.
        """
        first, again = (self.targets(theta, x, torch.Generator().manual_seed(0)) for _ in range(2))
        if not torch.equal(first, again):
            raise _wrong(
                "draw the same from generators with the same seed",
                "got other targets",
                "pass generator=generator to all random functions of torch",
                of="simulate",
            )
        if not torch.isfinite(model.values(theta, x, first)).all():
            raise _wrong(
                "draw targets with a finite log-likelihood",
                "got NaN or infinity on synthetic rows",
                "let both be of the same model",
                of="simulate",
            )


@dataclass(frozen=True)
class Prior:
    """A log-density of θ that torch can differentiate twice.

    Parameters
    ----------
    log_density : callable
        Maps θ (n_parameters,) to a number.
    start : Tensor of shape (n_parameters,)
        Its mean where it is known, else zeros.
    covariance : Tensor of shape (n_parameters, n_parameters) or None
        Its covariance; None where it is not known.
    distribution : torch.distributions.Distribution or None
        The distribution that it is, where it is neither a normal of scales nor a function.
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

            def log_density(theta: Tensor) -> Tensor:
                return torch.as_tensor(prior.log_prob(theta)).sum()

            if not _has_real_support(prior):
                raise expected("a distribution over all of R^n, without bounds", prior=prior)
            found = cls(log_density, _mean_of(prior, zero), _covariance_of(prior, zero), prior)
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
    """Check for one scale per parameter."""
    try:
        scales = torch.as_tensor(np.array(prior, dtype=np.float64))
    except (TypeError, ValueError):
        scales = torch.zeros(0)
    if scales.shape != (n_parameters,) or not ((scales > 1e-100) & (scales < 1e100)).all():
        raise expected(f"a scale > 0, or {n_parameters} of them", prior=prior)
    return scales


def _mean_of(prior: Distribution, zero: Tensor) -> Tensor:
    try:
        mean = prior.mean.detach().to(torch.float64)
    except (NotImplementedError, AttributeError):
        return zero
    usable = mean.shape in (zero.shape, ()) and bool(torch.isfinite(mean).all())
    return zero + mean if usable else zero


def _has_real_support(prior: Distribution) -> bool:
    try:
        support: Any = prior.support
    except NotImplementedError:
        return True
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    return support is constraints.real


def _covariance_of(prior: Distribution, zero: Tensor) -> Tensor | None:
    known: Any = prior
    try:
        found = getattr(known, "covariance_matrix", None)
        if found is None:
            found = torch.diag((zero + known.variance.detach()).to(torch.float64))
        found = found.detach().to(torch.float64)
    except (NotImplementedError, AttributeError, RuntimeError):
        return None
    usable = found.shape == (len(zero), len(zero)) and bool(torch.isfinite(found).all())
    return found if usable else None
