"""The clipped sum of per-record gradients of a network, at about the price of a plain gradient.

Per-record norms and weighted sums of gradients come from `gradients`, for a module as in
`flat_module`, which is *tried* before it is used (`trial`).

*Persons.* Where persons are the records, each row's gradient is clipped as above, and the sum of a
person's rows once more: rows of a person are positions of one record, whose norm follows from
δ_i·δ_j and a_i·a_j (`layers`), and no gradient of a row or a person is kept. Of a person with more
rows than are worked on at once the sum itself is made, in pieces.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from skdp.engine.modules.flat_module import PHYSICAL_BATCH_SIZE, FlatModule, Loss, autocast
from skdp.engine.modules.gradients import Gradients, book_keeping, taken, vmapped
from skdp.engine.modules.network_records import NetworkBatch
from skdp.fitting.validate import in_range, one_of, positive
from skdp.rows.bounded_sum import BoundedSum
from skdp.rows.person_sums import RowSum
from skdp.rows.persons import PersonUnit, sizes_between

T = TypeVar("T")

# One record's clipped gradient, computed in single precision, may exceed C by the rounding of its
# norm and factor. The order of a sum's additions is not covered: see docs/privacy.md, §8.
ROUNDING = 1e-4
AUTOMATIC_GAMMA = 0.01  # Bu et al., *Automatic Clipping*, NeurIPS 2023

_VMAP_NUMBERS = 2**25  # in the gradients that vmap keeps


class NetworkClippedSum(RowSum):
    """Sum over records of the log-likelihood's gradient in θ, each clipped to a norm.

    The module's output for a record must depend on that record alone; ``loss`` maps outputs and
    targets to losses (B,), and the sum is of *minus* their gradients. ``clip_norm`` C > 0 bounds
    the norm of a record's gradient over all parameters, infinite for none; ``clipping`` scales it
    by min(1, C/‖g‖) ("flat") or C/(‖g‖ + .01) ("automatic"). A record's weight is at most
    ``weight_bound`` > 0.

    ``physical_batch_size`` records are worked on at once; None is 1024, fewer where layers or vmap
    keep much, or as many as a device has room for; halved where memory runs out. ``prenoise_scale``
    is the deviation of normal noise on each coordinate of a gradient *before* it is clipped: it
    adds nothing to the sensitivity, does not protect, and needs the method "vmap".
    """

    def __init__(
        self,
        module: FlatModule,
        loss: Loss,
        clip_norm: float,
        *,
        clipping: str = "flat",
        physical_batch_size: int | None = None,
        method: str = "book-keeping",
        weight_bound: float = 1.0,
        prenoise_scale: float = 0.0,
    ) -> None:
        self.module, self.loss = module, loss
        self.weight_bound = positive(weight_bound=weight_bound)
        self.clip_norm = positive(clip_norm=clip_norm, allow_inf=True)
        self.clipping = one_of(("flat", "automatic"), clipping=clipping)
        self.physical_batch_size = physical_batch_size
        self.method = one_of(("book-keeping", "vmap"), method=method)
        self.prenoise_scale = in_range(0.0, 1e10, prenoise_scale=prenoise_scale, closed="left")
        if self.prenoise_scale > 0.0 and method != "vmap":
            raise ValueError("Noise on a record's gradient needs the gradient: use method='vmap'.")

    rounding = ROUNDING

    @property
    def record_bound(self) -> float:
        """Bound on the norm of one record's term: C times the largest weight."""
        return self.clip_norm * self.weight_bound

    def of_persons(self, unit: PersonUnit) -> NetworkPersonSum:
        """The same over persons, whose gradients nearly cancel: clipped to c times the bound."""
        return NetworkPersonSum(self, unit.clip * self.record_bound)

    def __call__(self, theta: Tensor, batch: NetworkBatch) -> Tensor:
        """Return the clipped sum, a flat vector, for parameters of that shape."""
        self.module.set(theta)
        return self.between(batch, 0, len(batch))

    @property
    def at_once(self) -> int:
        """Number of rows that are worked on at once, at most."""
        on_cpu = self.module.flat.device.type == "cpu"
        size = self.physical_batch_size or (PHYSICAL_BATCH_SIZE if on_cpu else self.module.at_once)
        of_vmap = _VMAP_NUMBERS // self.module.flat.numel()
        return size if self.method == "book-keeping" else max(1, min(size, of_vmap))

    def between(self, batch: NetworkBatch, start: int, stop: int) -> Tensor:
        """Sum over some rows of a batch, at the module's parameters."""
        total, size = None, self.at_once
        if self.physical_batch_size is None:
            size = min(size, self.module.at_once)
        while start < stop:
            size = min(size, stop - start)
            try:
                piece = self.piece(*batch.piece(start, start + size))
            except Exception as error:
                if not out_of_memory(error):
                    piece = self._one_at_a_time(batch, start, start + size)
                elif size == 1:
                    raise
                else:
                    size = (size + 1) // 2  # the sum so far stands; noise is added after it, once
                    continue
            total = piece if total is None else total.add_(piece)
            start += size
        return torch.zeros_like(self.module.flat) if total is None else total

    def piece(
        self, x: Tensor, y: Tensor, weights: Tensor | None, persons: PersonClip | None = None
    ) -> Tensor:
        """Sum over a few rows, or over persons who have them: each person's sum clipped too."""
        with autocast(x.device.type, False):  # norms and sums keep their precision
            if self.method == "book-keeping":
                found = book_keeping(self.module, self.loss, x, y)
            else:
                found = vmapped(self.module, self.loss, x, y, self.prenoise_scale)
            norms = found.norms
            if not math.isfinite(norms.sum()):
                finite = torch.isfinite(norms)
                # Records without a finite gradient contribute nothing. They are taken out before
                # the sum, because 0·inf = NaN there would tell everyone that they are present.
                if not finite.any():
                    return torch.zeros_like(self.module.flat)
                if not finite.all():  # else only the sum of norms is infinite
                    persons = None if persons is None else persons.without(~finite)
                    weights = None if weights is None else weights[finite]
                    return self.piece(x[finite], y[finite], weights, persons)
            factors = self._factors(norms)
            if weights is not None:
                factors = factors * weights.clamp(0.0, self.weight_bound)
            if persons is not None:
                factors = factors * persons.factors(found, factors)
            return found.weighted_sum(-factors)

    def _one_at_a_time(self, batch: NetworkBatch, start: int, stop: int) -> Tensor:
        """Sum over records of which one makes the module fail: it contributes nothing.

        The module works on synthetic records, so it fails because of a value; raising would tell
        everyone that the record is there.
        """
        total = torch.zeros_like(self.module.flat)
        for i in range(start, stop):
            piece = attempted(lambda i=i: self.piece(*batch.piece(i, i + 1)))
            total = total if piece is None else total.add_(piece)
        return total

    def _factors(self, norms: Tensor) -> Tensor:
        if self.clip_norm == float("inf"):
            return torch.ones_like(norms)
        if self.clipping == "automatic":
            return self.clip_norm / (norms + AUTOMATIC_GAMMA)
        return self.clip_norm / norms.clamp(min=self.clip_norm)


def attempted(function: Callable[..., T], *arguments: Any) -> T | None:
    """What a function returns; None where it fails for another reason than memory."""
    try:
        return function(*arguments)
    except Exception as error:
        if out_of_memory(error):
            raise
        return None


def out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, on the device or beside it."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


class PersonClip(NamedTuple):
    """Persons whose rows follow each other, and the norm to which each one's sum is clipped."""

    starts: np.ndarray  # (n_persons + 1,): where the rows of each begin, and where all end
    bound: float

    def without(self, rows: Tensor) -> PersonClip:
        """The same persons without the rows of a mask (B,)."""
        gone = np.concatenate([[0], np.cumsum(rows.cpu().numpy())])
        return self._replace(starts=self.starts - gone[self.starts])

    def factors(self, found: Gradients, c: Tensor) -> Tensor:
        """Factor of each row, (B,): that of its person, whose rows have weights c (B,)."""
        if self.bound == math.inf:
            return torch.ones_like(c)
        sizes, lengths = np.diff(self.starts), c * found.norms
        norms = torch.zeros(len(sizes), dtype=torch.float64, device=c.device)
        for persons, rows in _by_size(self.starts):
            chosen = torch.from_numpy(persons).to(c.device)
            rows = torch.from_numpy(rows).to(c.device)
            if rows.shape[1] == 1:
                norms[chosen] = lengths[rows[:, 0]].double()
                continue
            # In single precision a sum of k terms is rounded by up to √k 2⁻²⁴ times the sum of
            # their norms, and they may cancel: that must be little beside the bound.
            terms = taken(lengths, rows).double().reshape(rows.shape).sum(1)
            least = 1e-6 * sizes[persons].astype(np.float64)
            least = torch.from_numpy(least).to(c.device) * terms.square()
            norms[chosen] = torch.maximum(found.squares_of_sums(c, rows), least).sqrt()
        of_persons = self.bound / norms.clamp(min=self.bound)
        of_persons = torch.where(norms <= self.bound * (1 + _ON_BOUND), 1.0, of_persons)
        counts = torch.from_numpy(sizes).to(c.device)
        return of_persons.to(c.dtype).repeat_interleave(counts)


_ON_BOUND = 1e-5  # relative, in single precision: a row that has been clipped to the bound is on it


def _by_size(starts: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield persons (G,) of about equal size, with the numbers of their rows (G, k).

    The number of all rows stands in the place of rows that a person lacks; k is less than twice a
    person's size.
    """
    sizes, n = np.diff(starts), int(starts[-1])
    powers = np.frexp(np.maximum(sizes - 1, 0))[1]
    for power in np.unique(powers[sizes > 0]):
        persons = np.flatnonzero((powers == power) & (sizes > 0))
        numbers = np.arange(sizes[persons].max())
        rows = starts[persons, None] + numbers
        yield persons, np.where(numbers < sizes[persons, None], rows, n)


class NetworkPersonSum(BoundedSum):
    """Sum over persons of their rows' clipped gradients, each person's sum clipped to a bound."""

    rounding = ROUNDING

    def __init__(self, inner: NetworkClippedSum, bound: float) -> None:
        self.inner, self.bound = inner, positive(bound=bound, allow_inf=True)

    @property
    def record_bound(self) -> float:
        """Bound on the norm of one person's term."""
        return self.bound

    def shape(self, theta_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the sum: that of θ."""
        return theta_shape

    def __call__(self, theta: Tensor, batch: NetworkBatch) -> Tensor:
        """Return the clipped sum, a flat vector, for parameters of that shape."""
        self.inner.module.set(theta)
        if batch.starts is None:
            raise ValueError("Expected a batch that says whose its rows are.")
        total = torch.zeros_like(theta)
        for first, last in sizes_between(batch.starts, self.inner.at_once):
            total += self._of(batch, batch.starts[first : last + 1])
        return total

    def _of(self, batch: NetworkBatch, starts: np.ndarray) -> Tensor:
        """Sum over persons, as many as are worked on at once; or over one with many rows."""
        start, stop = int(starts[0]), int(starts[-1])
        if stop - start <= self.inner.at_once:
            # If memory runs out or the module fails at a row, each person's sum is made by itself.
            with suppress(Exception):
                persons = PersonClip(starts - start, self.bound)
                return self.inner.piece(*batch.piece(start, stop), persons)
        total = torch.zeros_like(self.inner.module.flat)
        for start, stop in pairwise(starts.tolist()):
            total += self._whole(batch, start, stop)
        return total

    def _whole(self, batch: NetworkBatch, start: int, stop: int) -> Tensor:
        """Return one person's sum, made in pieces and then clipped."""
        total = torch.zeros_like(self.inner.module.flat, dtype=torch.float64)
        for first in range(start, stop, self.inner.at_once):
            total += self.inner.between(batch, first, min(first + self.inner.at_once, stop))
        if self.bound < math.inf:
            total *= self.bound / max(float(torch.linalg.vector_norm(total)), self.bound)
        return total.to(self.inner.module.flat)
