"""A tempered posterior on the points of a public grid, with a potential that is an integer.

    π(g) ∝ exp(−2^−m Û(g)),    Û(g) = P(g) + Σ_i L_i(g),    g ∈ ℤᵖ, ‖g‖ ≤ D/h,    θ = hg

in the notation of `algorithms.tempered`. The prior's term P is free of data. Each L_i is the loss
of one record, 2^m ρ(ℓ_i(θ) − its least value), rounded to an integer and *cut to [0, H]* with
H = ⌊2^m ρ·value_range(RD)⌋. So a record that is there or not changes 2^−m Û over a range of at most
η = ρ·value_range(RD), and one that is replaced over 2η, whatever the arithmetic did with the
record, as long as L_i(g) is a function of the record and of g alone. It is, to the last bit:

- rows are cut to R and rounded towards 0 to multiples of R·2^−b, each by itself, and g is integer,
  so that logits are sums of products of integers that doubles hold: the same in any order, on any
  processor, by any matrix product;
- the loss of a logit is made of operations that IEEE 754 rounds in one way, element by element
  (`models.rounded_losses`), and so is its rounding;
- integers add up to the same sum in any order, batch, chunk or thread.

*Persons.* The k rows of a person have weights w (`algorithms.tempered`), and their integers, the
rounded 2^m ρw(ℓ_i(θ) − least), are cut to [0, min(H, ⌊H₀/k⌋)] with H₀ = ⌊2^m ρk₀·value_range(RD)⌋.
They are functions of the row, of k and of g, and whatever they are, they add up to an integer in
[0, k⌊H₀/k⌋] ⊂ [0, H₀]: a person changes 2^−m Û over a range of at most k₀ρ·value_range(RD).

m is such that H has about 30 bits and no sum of 2³² records leaves 62. ℓ_i itself is within its
value range, so cutting only undoes roundings, and L_i is within ½ + 2^(m−40) ρ of 2^m ρ times the
loss of the rounded row: `algorithms.envelopes` needs that to be fast, and no guarantee does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from skdp.algorithms.tempered import TemperedPosterior
from skdp.rows.persons import rows_beside
from skdp.rows.records import LinearRows

# Bits of the least standard deviation that a posterior can have over the grid's width, and of the
# largest one: `engine.lattice_gaussian` holds 24, and a shell far out takes 4 of them.
GRID_BITS, LEAST_GRID_BITS, _WIDEST_BITS = 12, 6, 19
_RANGE_BITS, _MOST_BITS, _SUM_BITS = 30, 40, 62
_DIGITS = 52
_NUMBERS = 2**18  # logits at work at once


@dataclass(frozen=True)
class Lattice:
    """Grid, ball and unit of a posterior on a bounded domain: public facts alone.

    The guarantee does not depend on ``n_rows``, which may be approximate.
    """

    posterior: TemperedPosterior
    power: float
    n_rows: int

    def check(self) -> None:
        """Refuse facts for which 64 bits are too few."""
        square = self.square.bit_length() + self.posterior.n_parameters.bit_length()
        if self.grid_bits < LEAST_GRID_BITS or self._row_bits < 20 or square > _SUM_BITS:
            raise ValueError(
                "Doubles hold no grid that is fine beside the posterior over so wide a domain: "
                "give a smaller theta_norm, prior_scale or data_norm."
            )

    @cached_property
    def grid_bits(self) -> int:
        """Bits of the least standard deviation that a posterior can have, or the ball, over h."""
        # A posterior that is wider than the ball is pulled into it (`algorithms.envelopes`).
        widest = min(self.posterior.prior_scale, self.posterior.theta_norm)
        ratio = widest / self._least_deviation
        return min(GRID_BITS, _WIDEST_BITS - math.ceil(math.log2(ratio)))

    @cached_property
    def _least_deviation(self) -> float:
        stiffest = self.power * self.posterior.curvature(self.n_rows)
        inside = self.posterior.theta_norm / math.sqrt(self.posterior.n_parameters)
        return min(inside, 1 / math.sqrt(stiffest + self.posterior.prior_precision))

    @cached_property
    def width(self) -> float:
        """Width h of the grid, a power of two."""
        return 2.0 ** (math.floor(math.log2(self._least_deviation)) - self.grid_bits)

    @cached_property
    def square(self) -> int:
        """Largest ‖g‖²: ⌊(D/h)²⌋."""
        return math.floor((Fraction(self.posterior.theta_norm) / Fraction(self.width)) ** 2)

    @cached_property
    def bits(self) -> int:
        """Fractional bits m of the potential."""
        of_records = _RANGE_BITS - math.ceil(math.log2(self._record_range))
        of_prior = 2 * _RANGE_BITS - math.ceil(math.log2(self.prior_range))
        return min(_MOST_BITS, of_records, of_prior)

    @cached_property
    def _record_range(self) -> float:
        reach = self.posterior.row_bound * self.posterior.theta_norm
        return self.power * self.posterior.likelihood.value_range(reach)

    @cached_property
    def prior_range(self) -> float:
        """Range of the prior's term over the ball."""
        return 0.5 * (self.posterior.theta_norm / self.posterior.prior_scale) ** 2

    @cached_property
    def largest_loss(self) -> int:
        """H: the range of a record's integer."""
        return math.floor(Fraction(self._record_range) * 2**self.bits)

    def largest_losses(self, starts: np.ndarray) -> np.ndarray:
        """Ranges of the integers of persons' rows, (n,), which add up to H₀ at most for each."""
        of_person = Fraction(self._record_range) * Fraction(self.posterior.record_weight)
        together = math.floor(of_person * 2**self.bits)
        return np.minimum(self.largest_loss, together // rows_beside(starts))

    @cached_property
    def row_unit(self) -> float:
        """Rows are multiples of it."""
        return math.ldexp(self.posterior.row_bound, -self._row_bits)

    @cached_property
    def _row_bits(self) -> int:
        return _DIGITS - math.isqrt(self.square).bit_length()


class LatticePotential:
    """Û of private rows, and the smooth potential that it rounds.

    Rows (n, n_features) are clipped here, and rounded to integers (n, D) in their unit; those of
    persons have weights (n,), others have 1. ``starts`` of persons stand beside the targets.
    """

    def __init__(self, lattice: Lattice, records: tuple[np.ndarray, np.ndarray]) -> None:
        posterior = lattice.posterior
        batch = LinearRows.of(posterior, records, alone=True).take(slice(None))
        self.lattice, self.likelihood = lattice, posterior.likelihood
        self.reach = posterior.row_bound * posterior.theta_norm
        self.rows = np.trunc(batch.rows / lattice.row_unit)
        self.targets = self.likelihood.tamed(batch.targets, self.reach)
        self._least = self.likelihood.least_loss(self.targets, self.reach)
        starts = batch.starts
        if starts is None:
            starts = np.arange(len(self.rows) + 1)
        self.weights = posterior.row_weights(starts)
        self._largest = lattice.largest_losses(starts)

    def logits(self, g: np.ndarray) -> np.ndarray:
        """Logits (..., n, K) at g (..., p): exact but for the unit where g are integers."""
        shape = self.lattice.posterior.shape
        weights = np.swapaxes(g.reshape(*g.shape[:-1], *shape).astype(np.float64), -1, -2)
        return (self.rows @ weights) * (self.lattice.row_unit * self.lattice.width)

    def energies(self, g: np.ndarray) -> np.ndarray:
        """Û of points (m, p) of the ball, (m,): integers."""
        return np.concatenate([self._energies(g[part]) for part in self.parts(len(g))])

    def parts(self, n_points: int) -> Iterator[slice]:
        """Slices of so many points that memory has room to look at together."""
        size = max(1, _NUMBERS // max(self.targets.size, 1))
        yield from (slice(start, start + size) for start in range(0, n_points, size))

    def _energies(self, g: np.ndarray) -> np.ndarray:
        lattice, total = self.lattice, self.prior(g)
        scale, size = math.ldexp(lattice.power, lattice.bits), max(1, _NUMBERS // len(g))
        logits = self.logits(g)
        for start in range(0, len(self.rows), size):
            part = slice(start, start + size)
            losses = self.likelihood.loss(logits[:, part], self.targets[part]) - self._least[part]
            integers = np.rint(losses * (self.weights[part] * scale))
            integers = np.clip(integers, 0, self._largest[part])
            # At most 2¹⁸ integers of 31 bits: a sum that doubles hold.
            total += integers.sum(axis=1).astype(np.int64)
        return total

    def prior(self, g: np.ndarray) -> np.ndarray:
        """P of points of the ball, (m,)."""
        scale = 0.5 * (self.lattice.width / self.lattice.posterior.prior_scale) ** 2
        squares = np.einsum("ij,ij->i", g, g).astype(np.float64)
        return np.rint(squares * math.ldexp(scale, self.lattice.bits)).astype(np.int64)

    @property
    def rounding(self) -> float:
        """How far 2^−m Û can be from the smooth potential of the rounded rows."""
        lattice = self.lattice
        cut = 1.0 if (self._largest < lattice.largest_loss).any() else 0.5  # ⌊H₀/k⌋ takes one off
        unit = len(self.rows) * (cut + math.ldexp(lattice.power, lattice.bits - 40)) + 1.0
        return math.ldexp(unit, -lattice.bits) + math.ldexp(lattice.prior_range, -48)

    def smooth(self, g: np.ndarray) -> tuple[float, np.ndarray]:
        """Σ of the record's part of the smooth potential at one real g, and its gradient in g."""
        power, logits = self.lattice.power, self.logits(g)
        residual = self.likelihood.residual(logits, self.targets) * self.weights[:, None]
        unit = self.lattice.row_unit * self.lattice.width
        gradient = -power * unit * (residual.T @ self.rows).ravel()
        losses = self.likelihood.loss(logits, self.targets) * self.weights
        return power * float(losses.sum()), gradient

    def curvature(self, logits: np.ndarray, move: np.ndarray) -> np.ndarray:
        """Σ of the records' least curvature in g, (p, p): see the likelihood's."""
        matrices = self.likelihood.least_curvature(logits, self.targets, move, self.reach)
        K, D = self.lattice.posterior.shape
        total = np.empty((K, D, K, D))
        for k in range(K):
            for j in range(k, K):
                weights = self.weights * matrices[:, k, j]
                total[k, :, j] = (self.rows.T * weights) @ self.rows
                total[j, :, k] = total[k, :, j].T
        unit = self.lattice.row_unit * self.lattice.width
        return self.lattice.power * unit**2 * total.reshape(K * D, K * D)

    def moves(self, inverse: np.ndarray) -> np.ndarray:
        """Largest change of a difference of each row's logits over vᵀMv ≤ 1, given M⁻¹: (n,)."""
        K, D = self.lattice.posterior.shape
        blocks = inverse.reshape(K, D, K, D)
        if K == 1:
            squares = np.einsum("nd,nd->n", self.rows @ blocks[0, :, 0], self.rows)
        else:
            squares = np.zeros(len(self.rows))
            for k in range(K):
                for j in range(k):
                    block = blocks[k, :, k] + blocks[j, :, j] - blocks[k, :, j] - blocks[j, :, k]
                    pair = np.einsum("nd,nd->n", self.rows @ block, self.rows)
                    squares = np.maximum(squares, pair)
        return np.sqrt(np.maximum(squares, 0.0)) * (self.lattice.row_unit * self.lattice.width)
