"""Exact samples of sheared discrete Gaussians: integer vectors v with probability ∝ exp(−Q(v)).

For a precision matrix M = LLᵀ the normal density is ∝ exp(−½ Σ_i L_ii² (v_i + Σ_{k>i} t_ik v_k)²)
with t_ik = L_ki/L_ii. Here the sums of the other coordinates are rounded to integers,

    z_i = v_i + ⌊Σ_{k>i} t_ik v_k + ½⌋,    Q(v) = 2^−50 Σ_i J_i z_i²,

which keeps v ↦ z one to one on ℤᵖ, so that independent integers z_i of probability
∝ exp(−2^−50 J_i z_i²) make a sample v whose normaliser is a product of p constants, whatever the t
are, and Q is known to the last bit at each point (docs/privacy.md, section 4).

>>> import numpy as np
>>> from skdp.fitting.streams import SecureStream
>>> from skdp.engine.lattice_gaussian import ShearedGaussian
>>> law = ShearedGaussian.within(np.array([[2.0, 1.0], [1.0, 2.0]]) * 1e-6, largest=10_000)
>>> z = law.integers(5000, SecureStream(bytes(16)).generator.integers)
>>> v, near = law.points(z)
>>> bool((law.coordinates(v) == z).all()), bool(near.all())
(True, True)
>>> bool(abs(np.cov(v.T)[0, 1] * 1e-6 + 1 / 3) < 0.05)
True
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import Self

import numpy as np
from scipy.linalg import solve_triangular

from skdp.engine.coins import Choice, Integers, exp_minus

BITS = 50  # fractional bits of every exponent
_DIGITS = 2**53  # integers that doubles hold
_FINEST = 20  # bits of t
_MARGIN = 1e-6  # of eigenvalues, which are found in doubles
_BLOCK = 2**43  # 2⁵⁰/128
_FRACTION = 2**50 - 1
_FAR = 512


def gaussian_integers(precisions: np.ndarray, widths: np.ndarray, random: Integers) -> np.ndarray:
    """Draw integers z_i with probability ∝ exp(−2^−50 J_i z_i²), of the shape of J in [1, 2⁴³].

    A candidate is ±(iB + u) with 0 ≤ u < B even and i of probability ∝ exp(−b_i), where
    b_i = i²/128 and B, an eighth of the standard deviation, is the least integer with J B² ≥ 2⁴³
    (`block_widths`), so that 2^−50 J y² ≥ b_i. It is accepted with the exponential of their
    difference. From i = 512 on b_i is the tangent 2048 + 8(i − 512), and i − 512 is geometric. The
    law is the stated one but for the weights of the i, which are rounded by a relative 2^−100.
    """
    J, B = precisions.ravel(), widths.ravel()
    drawn, pending = np.empty(J.shape, dtype=np.int64), np.arange(len(J))
    while pending.size:
        value, kept = _candidates(J[pending], B[pending], random)
        drawn[pending[kept]] = value[kept]
        pending = pending[~kept]
    return drawn.reshape(precisions.shape)


def block_widths(precisions: np.ndarray) -> np.ndarray:
    """Least integers B with J B² ≥ 2⁴³."""
    return np.array([math.isqrt((_BLOCK - 1) // j) + 1 for j in precisions.ravel().tolist()])


def _candidates(J: np.ndarray, B: np.ndarray, random: Integers) -> tuple[np.ndarray, np.ndarray]:
    """One candidate for each position, and whether it is accepted."""
    i = _blocks().draw(len(J), random)
    far = np.flatnonzero(i == _FAR)
    if far.size:
        i[far] += _geometric(len(far), random)
    y = i * B + random(B)
    exponent = _exponent(J, y, i)
    kept = exp_minus(exponent >> BITS, (exponent & _FRACTION).astype(np.int64), BITS, random)
    negative = random(2, size=len(J)) == 1
    kept &= ~(negative & (y == 0))  # or zero would come twice as often
    return np.where(negative, -y, y), kept


def _exponent(J: np.ndarray, y: np.ndarray, i: np.ndarray) -> np.ndarray:
    """2⁵⁰ (2^−50 J y² − b_i), in int64 if that holds it."""
    if i.max(initial=0) >= _FAR // 2:
        J, y, i = (a.astype(object) for a in (J, y, i))
    near = np.minimum(i, _FAR)
    exponent: np.ndarray = J * y * y - (near * near + 2 * _FAR * (i - near)) * _BLOCK
    return exponent


def _geometric(size: int, random: Integers) -> np.ndarray:
    """Number of successes before the first failure, each with the tangent's probability."""
    whole, fraction = divmod(2 * _FAR * _BLOCK, 1 << BITS)
    count, at = np.zeros(size, dtype=np.int64), np.arange(size)
    while at.size:
        at = at[exp_minus(np.full(len(at), whole), np.full(len(at), fraction), BITS, random)]
        count[at] += 1
    return count


@lru_cache(maxsize=1)
def _blocks() -> Choice:
    """Blocks i < 512 of probability ∝ exp(−i²/128), and 512 for all from there on."""
    with localcontext(prec=60):
        near = [(Decimal(-i * i) / 128).exp() for i in range(_FAR + 1)]
        beyond = near.pop() / (1 - (Decimal(-2 * _FAR) / 128).exp())
    return Choice.of([*near, beyond])


@dataclass(frozen=True)
class ShearedGaussian:
    """Law of v on ℤᵖ with probability ∝ exp(−Q(v)); see the module.

    J_i are in [1, 2⁴³]; the shear holds 2^shift t_ik, strictly upper triangular (p, p). Sums of
    points |v_i| ≤ ``largest``, which are all that are asked for, are exact.
    """

    precisions: np.ndarray
    shear: np.ndarray
    shift: int
    largest: int

    @classmethod
    def within(cls, precision: np.ndarray, largest: int) -> Self:
        """Law whose quadratic form, before rounding to integers, is at most ½ vᵀMv everywhere."""
        L = np.linalg.cholesky(precision)
        t = np.triu((L / np.diag(L)).T, 1)
        room = _DIGITS / (4.0 * largest * max(1.0, float(np.abs(t).sum(axis=1).max())))
        shift = min(_FINEST, math.floor(math.log2(room)))
        if shift < 0:
            raise FloatingPointError("The columns are too nearly dependent for a lattice.")
        shear = np.rint(np.ldexp(t, shift)).astype(np.int64)
        J = np.ldexp(np.diag(L) ** 2, BITS - 1)
        law = cls(_integers(J), shear, shift, largest)
        excess = float(relative_eigenvalues(law.form, precision)[-1])
        return replace(law, precisions=_integers(law.precisions / (excess * (1 + _MARGIN))))

    @property
    def form(self) -> np.ndarray:
        """Matrix F with Q(v) = ½ vᵀFv but for the rounding of coordinates, (p, p)."""
        rows = np.eye(len(self.shear)) + np.ldexp(self.shear.astype(np.float64), -self.shift)
        return np.ldexp((rows.T * self.precisions) @ rows, 1 - BITS)

    @property
    def trace(self) -> float:
        """Σ_i 2^−50 J_i."""
        return math.ldexp(float(self.precisions.sum()), -BITS)

    def integers(self, size: int, random: Integers) -> np.ndarray:
        """Sample coordinates z, (size, p)."""
        shape = size, len(self.shear)
        widths = np.broadcast_to(block_widths(self.precisions), shape)
        return gaussian_integers(np.broadcast_to(self.precisions, shape), widths, random)

    def points(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Points v of coordinates z, (m, p), and which are within the bound; others are cut to 0.

        Without the bound a coordinate that left 64 bits would come back as that of another point.
        """
        v, near, half = z.copy(), np.ones(len(z), dtype=bool), (1 << self.shift) >> 1
        for i in range(z.shape[1] - 1, -1, -1):
            v[:, i] -= (v[:, i + 1 :] @ self.shear[i, i + 1 :] + half) >> self.shift
            near &= np.abs(v[:, i]) <= self.largest
            v[~near, i] = 0
        return v, near

    def coordinates(self, v: np.ndarray) -> np.ndarray:
        """Coordinates z of points v within the bound, (m, p), by sums that doubles hold."""
        sums = (v.astype(np.float64) @ self.shear.T.astype(np.float64)).astype(np.int64)
        return v + ((sums + ((1 << self.shift) >> 1)) >> self.shift)

    def energy(self, z: np.ndarray) -> np.ndarray:
        """2⁵⁰ Q, (m,), as Python's integers: no bound is needed."""
        return (z.astype(object) ** 2) @ self.precisions.astype(object)


def relative_eigenvalues(matrix: np.ndarray, precision: np.ndarray) -> np.ndarray:
    """Eigenvalues of P⁻¹M, ascending, for symmetric M and a positive definite P."""
    root = np.linalg.cholesky(precision)
    half = solve_triangular(root, matrix, lower=True)
    found: np.ndarray = np.linalg.eigvalsh(solve_triangular(root, half.T, lower=True))
    return found


def _integers(precisions: np.ndarray) -> np.ndarray:
    """Integers at or below, in the range of `gaussian_integers`: a smaller J is within M too."""
    found = np.minimum(np.floor(precisions), _BLOCK)
    if not (found >= 1.0).all():
        raise FloatingPointError("A precision is too small for a lattice.")
    return found.astype(np.int64)
