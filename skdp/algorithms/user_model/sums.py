"""Sums over records of functions of a user's gradients, in units of the clip."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from skdp.engine.linear_sums import packed
from skdp.engine.modules.network_records import NetworkBatch
from skdp.fitting.validate import one_of, positive
from skdp.models.user_models import UserModel
from skdp.rows.bounded_sum import CHUNK_ROWS, NUMBERS, OPPOSITE, POSITIVE, BoundedSum
from skdp.rows.persons import PersonUnit, sizes_between
from skdp.rows.records import ON_BOUND

GRADIENT, OUTER, SQUARES = "gradient", "outer", "squares"
CHUNK_NUMBERS = 2**21  # of per-record gradients in memory
_MOST_CANCELLED = 1e4  # lengths of a person's gradients over the clip, beyond which it shrinks


def safe_gradients(model: UserModel, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Gradients of records, (n, n_parameters): zero where the function fails."""
    try:
        return model.gradients(theta.clone(), x, y).to(torch.float64)
    except Exception as error:
        if isinstance(error, MemoryError | torch.OutOfMemoryError):
            raise
        if len(x) == 1:
            # The function works on synthetic records, so a value makes it fail; raising would
            # tell everyone that the record is there.
            return torch.zeros((1, len(theta)), dtype=torch.float64)
        pairs = zip(x.split(1), y.split(1), strict=True)
        return torch.cat([safe_gradients(model, theta, *pair) for pair in pairs])


@dataclass(frozen=True)
class _ModelSum(BoundedSum):
    """Sum over records of a function of g/C, at a query (θ, C) of n_parameters + 1 numbers."""

    model: UserModel

    @property
    def record_bound(self) -> float:
        """Bound on the norm of one record's term, whatever C is."""
        return 1.0

    def of_persons(self, unit: PersonUnit) -> BoundedSum:
        """The same of persons, whose gradients are sums: C is what those are clipped to."""
        return self

    def __call__(self, theta: Tensor, batch: NetworkBatch) -> Tensor:
        theta, clip_norm = theta[:-1], float(theta[-1])
        total = torch.zeros(self._shape(len(theta)), dtype=torch.float64)
        for gradients in self._records(theta, clip_norm, batch):
            norms = torch.linalg.vector_norm(gradients, dim=1)
            finite = torch.isfinite(norms)
            # Records without a finite gradient contribute nothing; 0·inf = NaN would tell.
            if not finite.all():
                gradients, norms = gradients[finite], norms[finite]
            total += self._sum(gradients, norms)
        return total

    def _records(self, theta: Tensor, clip_norm: float, batch: NetworkBatch) -> Iterator[Tensor]:
        """Yield gradients g/C of records (m, n_parameters), some at a time."""
        if batch.starts is None:
            yield from (g for g, _ in self._rows(theta, clip_norm, batch, 0, len(batch)))
            return
        for starts in _runs(batch.starts, len(theta)):
            sums = torch.zeros((len(starts) - 1, len(theta)), dtype=torch.float64)
            lengths = torch.zeros(len(sums), dtype=torch.float64)
            whose = torch.from_numpy(np.repeat(np.arange(len(sums)), np.diff(starts)))
            for gradients, first in self._rows(theta, clip_norm, batch, starts[0], starts[-1]):
                # A row without a finite gradient contributes nothing to its person.
                norms = torch.linalg.vector_norm(gradients, dim=1)
                finite = torch.isfinite(norms)
                persons = whose[first - starts[0] :][: len(gradients)]
                sums.index_add_(0, persons[finite], gradients[finite])
                lengths.index_add_(0, persons[finite], norms[finite])
            if self.record_bound < math.inf:
                # The last bits of a row's gradient depend on where the row stands, so on other
                # persons. Where rows cancel those bits are what is left, and they must be little
                # beside the clip.
                sums /= (lengths / _MOST_CANCELLED).clamp(min=1.0)[:, None]
            yield sums

    def _rows(
        self, theta: Tensor, clip_norm: float, batch: NetworkBatch, start: int, stop: int
    ) -> Iterator[tuple[Tensor, int]]:
        """Yield gradients g/C of rows (m, n_parameters) and the number of the first of them."""
        size = _chunk_rows(len(theta))
        for first in range(start, stop, size):
            x, y, _ = batch.piece(first, min(first + size, stop))
            yield safe_gradients(self.model, theta, x, y) / clip_norm, first

    def shape(self, theta_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the sum at a query (θ, C)."""
        return self._shape(theta_shape[0] - 1)

    def _shape(self, n_parameters: int) -> tuple[int, ...]:
        return (1,)

    def _sum(self, gradients: Tensor, norms: Tensor) -> Tensor:
        raise NotImplementedError


def _chunk_rows(n_parameters: int) -> int:
    """Number of rows whose gradients are in memory at once."""
    return max(1, min(CHUNK_ROWS, CHUNK_NUMBERS // n_parameters))


def _runs(starts: np.ndarray, n_parameters: int) -> Iterator[np.ndarray]:
    """Yield where rows begin of as many persons as fit in memory, or of one with more rows."""
    for first, beyond in sizes_between(starts, _chunk_rows(n_parameters)):
        # Persons of a batch have rows: there are no more of them than of rows.
        yield starts[first : beyond + 1]


@dataclass(frozen=True)
class ModelClippedSum(_ModelSum):
    """Sum over records of ĝ, of ĝĝᵀ (packed), or of ĝ∘ĝ, for ĝ = g/C clipped to norm b > 0.

    One record's share of a sum of ``kind`` "gradient", "outer" or "squares" has norm ≤ b, = ‖ĝ‖² ≤
    b², ≤ ‖ĝ‖² ≤ b². An infinite b clips nothing.
    """

    kind: str = GRADIENT
    bound: float = 1.0

    def __post_init__(self) -> None:
        one_of((GRADIENT, OUTER, SQUARES), kind=self.kind)
        positive(bound=self.bound, allow_inf=True)

    @property
    def record_bound(self) -> float:
        """Bound on the norm of one record's term: b or b²."""
        return self.bound ** (1 if self.kind == GRADIENT else 2)

    @property
    def apart(self) -> float:
        """√2 for ĝĝᵀ and ĝ∘ĝ, whose inner products are (ĝ·ĥ)² and Σ ĝ²ĥ², both ≥ 0."""
        return OPPOSITE if self.kind == GRADIENT else POSITIVE

    def shape(self, theta_shape: tuple[int, ...]) -> tuple[int, ...]:
        """One number per parameter, or one per pair of parameters."""
        n = theta_shape[0] - 1
        return (n * (n + 1) // 2,) if self.kind == OUTER else (n,)

    def __call__(self, theta: Tensor, batch: NetworkBatch) -> Tensor:
        """Return the sum for θ and C, (n_parameters + 1,)."""
        total = super().__call__(theta, batch)
        return torch.from_numpy(packed(total.numpy())) if self.kind == OUTER else total

    def _shape(self, n_parameters: int) -> tuple[int, ...]:
        return (n_parameters, n_parameters) if self.kind == OUTER else (n_parameters,)

    def _sum(self, gradients: Tensor, norms: Tensor) -> Tensor:
        if self.bound < math.inf:
            gradients = gradients * (self.bound / norms.clamp(min=self.bound))[:, None]
        if self.kind == OUTER:
            return gradients.mT @ gradients
        return gradients.sum(0) if self.kind == GRADIENT else gradients.square().sum(0)

    def of_persons(self, unit: PersonUnit) -> BoundedSum:
        """The same of persons' sums of gradients; of curvatures, the sum over their rows."""
        if self.kind == GRADIENT:
            return self
        return PersonCurvatureSum(self.model, self.kind, self.bound, unit=unit)


@dataclass(frozen=True)
class PersonCurvatureSum(ModelClippedSum):
    """Sum over rows of ĝĝᵀ (packed) or ĝ∘ĝ, of which each person's share is scaled to a trace.

    The query holds the clip c·C of a person, and ĝ = g/C of a row is clipped to a norm b. A
    person's share has a trace of at most k̄b², which its norm does not exceed.
    """

    unit: PersonUnit = field(kw_only=True)

    @property
    def record_bound(self) -> float:
        """Bound on the norm of one person's term."""
        return self.unit.rows_per_group * self.bound**2

    def __call__(self, theta: Tensor, batch: NetworkBatch) -> Tensor:
        """Return the sum for θ and c·C, (n_parameters + 1,)."""
        if batch.starts is None:
            raise ValueError("Expected a batch that says whose its rows are.")
        theta, clip_norm = theta[:-1], float(theta[-1]) / self.unit.clip
        total = torch.zeros(self._shape(len(theta)), dtype=torch.float64)
        for starts in _runs(batch.starts, len(theta)):
            total += self._of_persons(theta, clip_norm, batch, starts)
        return torch.from_numpy(packed(total.numpy())) if self.kind == OUTER else total

    def _of_persons(
        self, theta: Tensor, clip_norm: float, batch: NetworkBatch, starts: np.ndarray
    ) -> Tensor:
        """Sum over persons, or over one whose rows come in pieces."""
        total = torch.zeros(self._shape(len(theta)), dtype=torch.float64)
        trace = torch.zeros(len(starts) - 1, dtype=torch.float64)
        sizes = torch.from_numpy(np.diff(starts))
        for gradients, _ in self._rows(theta, clip_norm, batch, starts[0], starts[-1]):
            norms = torch.linalg.vector_norm(gradients, dim=1)
            gone = ~torch.isfinite(norms)
            norms[gone], gradients[gone] = 0.0, 0.0
            if self.bound < math.inf:
                gradients = gradients * (self.bound / norms.clamp(min=self.bound))[:, None]
                norms = norms.clamp(max=self.bound)
            if len(trace) == 1:
                trace += norms.square().sum()
            else:
                whose = torch.arange(len(trace)).repeat_interleave(sizes)
                trace.index_add_(0, whose, norms.square())
                gradients = gradients * self._factors(trace).sqrt()[whose, None]
            total += self._sum(gradients, norms)
        return total * self._factors(trace) if len(trace) == 1 else total

    def _factors(self, trace: Tensor) -> Tensor:
        if self.bound == math.inf:
            return torch.ones_like(trace)
        most = self.record_bound
        return torch.where(trace > most * (1 + ON_BOUND), most / trace.clamp(min=most), 1.0)


@dataclass(frozen=True)
class SquaredLengths(_ModelSum):
    """Sum over records of ‖ĝ‖², for ĝ = g/C clipped to norm 1, or not clipped."""

    bound: float = 1.0
    apart = NUMBERS

    @property
    def record_bound(self) -> float:
        """Bound on one record's term."""
        return self.bound

    def _sum(self, gradients: Tensor, norms: Tensor) -> Tensor:
        return norms.clamp(max=self.bound).square().sum()[None]


@dataclass(frozen=True)
class LengthCounts(_ModelSum):
    """Number of records by the length of g/C: cell k counts lengths in (edges[k], edges[k + 1]].

    The last cell is open. A record is in one cell, or in none if its gradient is no longer than the
    first edge or not finite; a null record has gradient 0.
    """

    edges: tuple[float, ...]
    apart = POSITIVE  # one-hot rows

    def _shape(self, n_parameters: int) -> tuple[int, ...]:
        return (len(self.edges),)

    def _sum(self, gradients: Tensor, norms: Tensor) -> Tensor:
        edges = torch.tensor(self.edges, dtype=torch.float64)
        cell = torch.bucketize(norms, edges)  # 0: in none
        return torch.bincount(cell, minlength=len(edges) + 1)[1:].to(torch.float64)
