"""Models that a user writes: a log-likelihood, and a simulator, as functions of torch tensors.

A function is tried on synthetic records before private ones, so that no error quotes data.

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from skdp.fitting.validate import expected

N_MADE_UP = 5


@dataclass(frozen=True)
class UserModel:
    """Log-densities of records under parameters, and their gradients record by record.

    The function maps θ (n_parameters,) and rows x (n, d), and targets y (n,) if supervised, to
    log-densities (n,).
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

        It must return (n,) finite numbers, mix no records, and let its gradients be taken.
        """
        generator = torch.Generator().manual_seed(0)
        noise = torch.randn(theta.shape, generator=generator, dtype=theta.dtype)
        for at in (theta, theta + 0.1 * noise):
            self._check_values(at.clone(), x, y)
            self._check_gradients(at.clone(), x, y)

    def _check_values(self, theta: Tensor, x: Tensor, y: Tensor) -> None:
        n = len(x)
        values = self._tried(theta, x, y)
        _refuse_other_than_tensors(values, "log_likelihood", "of theta and x throughout")
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
                _NOT_FINITE,
                "mend it, e.g. torch.logsumexp in place of log(sum(exp)), or give example_rows of "
                "the kind that it is meant for",
            )
        alone = torch.cat([self._tried(theta, x[i : i + 1], y[i : i + 1]) for i in range(n)])
        flipped = self._tried(theta, x.flip(0), y.flip(0)).flip(0)
        if not all(torch.allclose(values, same, rtol=1e-6, atol=1e-9) for same in (alone, flipped)):
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
            remedy = "mend it where a value is at the edge of a function's domain"
            raise _wrong("have finite gradients on ordinary records", _NOT_FINITE, remedy)
        if not gradients.any():
            found, remedy = "all its gradients are zero", "do not detach or round theta, and use it"
            raise _wrong("be differentiable in theta", found, remedy)
        if not torch.allclose(gradients.sum(0), of_all, rtol=1e-6, atol=1e-9):
            raise _wrong(
                "treat each record by itself",
                "gradients of single records do not add up to that of all",
                "remove what mixes the rows of x",
            )


_NOT_FINITE = "got NaN or infinity on synthetic ones"


def _wrong(what: str, found: str, remedy: str, of: str = "log_likelihood") -> ValueError:
    tail = f"; {remedy}" if remedy else ""
    return ValueError(f"Expected {of} to {what}, but {found}{tail}.")


def _refuse_other_than_tensors(found: Any, of: str, where: str = "") -> None:
    if not isinstance(found, Tensor):
        remedy = f"use torch functions {where}".rstrip()
        raise _wrong("return a torch tensor", f"got {type(found).__name__}", remedy, of)


def takes_targets(log_likelihood: Callable[..., Any]) -> bool:
    """Whether a function can be called as (theta, x, y)."""
    try:
        inspect.signature(log_likelihood).bind(None, None, None)
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature
        pass
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
    """Draws targets (m,) from a model that a user wrote, of θ, rows (m, d) and a generator."""

    simulate: Callable[..., Any]

    def __post_init__(self) -> None:
        if not callable(self.simulate):
            kind = "None, or a function of (theta, x, generator)"
            raise expected(kind, simulate=self.simulate)

    def targets(self, theta: Tensor, x: Tensor, generator: torch.Generator) -> Tensor:
        """Draw one target per row, (m,)."""
        try:
            with torch.no_grad():
                found = self.simulate(theta.clone(), x.clone(), generator)
        except Exception as error:
            what = (
                f"work on (theta, x, generator) with shapes {tuple(theta.shape)}, {tuple(x.shape)}"
            )
            raised = f"it raised {type(error).__name__}: {error}"
            raise _wrong(what, raised, "", "simulate") from error
        _refuse_other_than_tensors(found, "simulate")
        if found.shape != (len(x),):
            shape = f"got shape {tuple(found.shape)} for {len(x)} rows"
            remedy = "draw for each row of x"
            raise _wrong("return one target per row, shape (m,)", shape, remedy, "simulate")
        return found if found.dtype == torch.int64 else found.to(torch.float64)

    def check(self, model: UserModel, theta: Tensor, x: Tensor) -> None:
        """Try the function on synthetic rows at θ, with the log-likelihood of what it draws.

        It is refused if it ignores its generator, or draws what has no finite log-likelihood.
        """
        first, again = (self.targets(theta, x, torch.Generator().manual_seed(0)) for _ in range(2))
        if not torch.equal(first, again):
            raise _wrong(
                "draw the same from generators with the same seed",
                "got other targets",
                "pass generator=generator to all random functions of torch",
                "simulate",
            )
        if not torch.isfinite(model.values(theta, x, first)).all():
            what, remedy = (
                "draw targets with a finite log-likelihood",
                "let both be of the same model",
            )
            raise _wrong(what, "got NaN or infinity on synthetic rows", remedy, "simulate")
