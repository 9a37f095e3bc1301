"""Sums of integers: each record's term rounded to a grid, so that a computed sum is the sum.

In floating point a sum depends on the order of its terms, and a bound on one record's share needs a
bound on the rounding of all the others. Here each term is rounded to integer multiples of a public
grid width by itself, and integers add exactly in any order, chunk or machine. The noise is 2ᵏ grid
units for every release (`skdp.engine.discrete_gaussian`), and a record's integer vector has a norm
of at most

    Δ = ⌊2ᵏ/σ⌋,    2³³ ≤ Δ ≤ 2³⁴,

which is *checked*, record by record, on the integers themselves (docs/privacy.md, section 8; under
replace_one see `GridSum.width`). So the release is an integer query of sensitivity Δ with a
discrete Gaussian of parameter 2ᵏ ≥ σΔ, whatever the floating-point arithmetic before it did with
one record, as long as that is a function of the record alone. A grid unit is worth C/(Δ − 2¹⁵): the
room of 2¹⁵ units, four millionths of C at most, keeps rounding, up to √D/2 units, from pushing a
term of norm C over Δ.

>>> from skdp.engine.grid import lattice_bits, lattice_bound
>>> lattice_bits(40.0), lattice_bound(40.0)
(39, 13743895347)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from skdp.engine.release_hook import grid_width
from skdp.fitting.validate import in_range
from skdp.relations import ZERO_OUT, sensitivity_factor
from skdp.rows.records import LinearBatch, row_sums

BOUND_BITS = 34  # sums of 2²⁶ records fit in int64, and sums of 2¹⁸ in the digits of a double
ROOM = 2**15
# A sum of D squares in doubles errs by a relative (D + 1) 2⁻⁵³, less than this for D < 4·10⁹; and
# (Δ − 2¹⁵ + √D/2)² is below (1 − 1e-6) Δ² for D up to four million.
_MARGIN = 1e-6
_CHUNK_ENTRIES = 2**19  # terms at work at once: in the cache, whatever the dimension
_CHUNK_ROWS = 2**14
_LEAST_NOISE, _MOST_NOISE = 2.0**-20, 2.0**28


class Outer(NamedTuple):
    """Terms l_i ⊗ a_i, (m, K) and (m, D), of integers a_i as doubles; and ‖a_i‖², exactly."""

    left: np.ndarray
    right: np.ndarray
    squares: np.ndarray


def lattice_bits(noise_multiplier: float) -> int:
    """Bits k of the noise parameter 2ᵏ in grid units: those for which ⌊2ᵏ/σ⌋ has 34 bits."""
    sigma = in_range(_LEAST_NOISE, _MOST_NOISE, closed="both", noise_multiplier=noise_multiplier)
    return BOUND_BITS - 1 + math.frexp(sigma)[1]


def lattice_bound(noise_multiplier: float) -> int:
    """Δ = ⌊2ᵏ/σ⌋, in exact arithmetic: the largest integer norm for which 2ᵏ/Δ ≥ σ."""
    return int(2 ** lattice_bits(noise_multiplier) / Fraction(noise_multiplier))


@dataclass(frozen=True)
class GridSum:
    """Sum over records of integer vectors, each of bounded norm; neighbours differ by Δ or 2Δ.

    Every bit of a term of the inner sum, whose terms are its ``records``, must depend on its own
    record alone; the noise multiplier σ is in [2⁻²⁰, 2²⁸]. Where terms cannot be opposite,
    replacing one moves the inner sum by less than 2C, and a grid unit is worth less under that
    relation.
    """

    inner: Any
    noise_multiplier: float
    neighboring_relation: str = ZERO_OUT

    room = ROOM

    def __post_init__(self) -> None:
        lattice_bits(self.noise_multiplier)
        grid_width(self.noise_scale)  # refuses what doubles cannot hold

    @property
    def width(self) -> float:
        """What one grid unit is worth.

        Rounding moves an integer vector by √D/2 units, two by less than `ROOM`: the sum moves by at
        most 2Δ units where the relation doubles Δ, and by Δ elsewhere.
        """
        relation = self.neighboring_relation
        moved = self.inner.moved_by(relation) / sensitivity_factor(relation)
        return moved / (lattice_bound(self.noise_multiplier) - self.room)

    @property
    def bound(self) -> int:
        """Bound on the norm of one record's integer vector, checked: Δ, or more (see `width`)."""
        return int(self.inner.record_bound / self.width) + self.room

    @property
    def norm_bound(self) -> float:
        """The same in units of the inner sum."""
        return self.bound * self.width

    @property
    def noise_scale(self) -> float:
        """2ᵏ grid units."""
        return math.ldexp(self.width, lattice_bits(self.noise_multiplier))

    def sensitivity(self, neighboring_relation: str) -> float:
        """How far neighbours can move the sum, in Euclidean norm."""
        if neighboring_relation != self.neighboring_relation:
            return sensitivity_factor(neighboring_relation) * self.norm_bound
        factor = sensitivity_factor(neighboring_relation)
        return factor * lattice_bound(self.noise_multiplier) * self.width

    def shape(self, theta_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the inner sum."""
        return self.inner.shape(theta_shape)

    def __call__(self, theta: np.ndarray, batch: LinearBatch) -> np.ndarray:
        """Return the sum in grid units, in int64."""
        shape = self.shape(tuple(theta.shape))
        total = np.zeros(math.prod(shape), dtype=np.int64)
        with np.errstate(all="ignore"):
            for chunk in batch.chunks(self._at_once(len(total))):
                total += self._integers(theta, chunk).astype(np.int64)
        return total.reshape(shape)

    def _at_once(self, size: int) -> int:
        return max(1, min(_CHUNK_ROWS, _CHUNK_ENTRIES // size))

    @property
    def _limit(self) -> float:
        """Bound on the computed square of a record's integers."""
        return (1.0 - _MARGIN) * self.bound**2

    def _integers(self, theta: np.ndarray, chunk: LinearBatch) -> np.ndarray:
        """Sum over a chunk: of integers up to 2³⁵, at most 2¹⁴ of them, which doubles hold."""
        terms = rounded(self.inner.records(theta, chunk), self.width, self._limit)
        return np.add.reduce(terms, axis=0)


class OuterGridSum(GridSum):
    """The same of terms l_i ⊗ a_i, none of which is ever written down.

    The inner sum has ``factors``, lists of `Outer` side by side, each bit a function of its own
    record alone;
    ``at_once``, the number of records worked on at once, at most 2¹⁸; and ``room``, a bound on what
    rounding the l_i adds to a term's norm, in grid units.

    The a_i are integers and the l_i are rounded to some, so that Σ l_i ⊗ a_i is a product of two
    matrices of integers. No |l_ij a_ik| exceeds ‖l_i‖‖a_i‖ ≤ Δ ≤ 2³⁴ (2Δ under replace_one for what
    cannot be opposite), and 2¹⁸ of them add up to 2⁵² at most: any order of additions, fused or
    not, is exact in doubles.
    """

    @property
    def room(self) -> int:
        """Grid units between the bound on a term and Δ."""
        return ROOM + self.inner.room

    def _at_once(self, size: int) -> int:
        return self.inner.at_once

    def _integers(self, theta: np.ndarray, chunk: LinearBatch) -> np.ndarray:
        factors = self.inner.factors(theta, chunk)
        lefts = [np.rint(factor.left * (1.0 / self.width)) for factor in factors]
        squares = np.zeros(len(chunk.rows))
        for left, factor in zip(lefts, factors, strict=True):
            squares += row_sums(left * left) * factor.squares
        outside = ~(squares <= self._limit)
        if outside.any():
            for left in lefts:
                left[outside] = 0.0
        products = (left.T @ factor.right for left, factor in zip(lefts, factors, strict=True))
        return np.concatenate([product.ravel() for product in products])


def grid_sum(inner: Any, noise_multiplier: float, neighboring_relation: str) -> GridSum:
    """Round the terms of a sum to a grid, by their factors where they are outer products."""
    kind = OuterGridSum if hasattr(inner, "factors") else GridSum
    return kind(inner, noise_multiplier, neighboring_relation)


def rounded(terms: np.ndarray, width: float, limit: float) -> np.ndarray:
    """Round terms (m, size) to integers in place, and to 0 where squares exceed a limit, or NaN.

    No term within the inner sum's bound exceeds it; the integers keep the limit whether or not the
    terms keep that bound.
    """
    terms *= 1.0 / width
    np.rint(terms, out=terms)
    inside = np.einsum("ij,ij->i", terms, terms) <= limit
    if not inside.all():
        terms[~inside] = 0.0
    return terms
