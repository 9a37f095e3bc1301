"""Exact samples of the discrete Gaussian: integers x with probability ∝ exp(−x²/2σ²), σ = 2ᵏ.

A normal number in floating point is not normal: its last bits tell more than the theorems allow
(Mironov, CCS 2012). Canonne, Kamath & Steinke (NeurIPS 2020) sample integers from coins and integer
comparisons alone, and here σ is a power of two, which leaves comparisons of k random bits. With
|y| = u + 2ᵏ v a candidate of law ∝ exp(−|y|/2ᵏ) (their Algorithm 2) is accepted with probability
exp(−(|y| − 2ᵏ)²/2²ᵏ⁺¹) (Algorithm 3). For v ≥ 1, w = v − 1 and f = u/2ᵏ that is

    exp(−(f + w)²/2) = exp(−f²/2) · exp(−f)^w · exp(−½)^(w²),

and for v = 0 it is exp(−f²/2) with f = 1 − u/2ᵏ: products of coins of probability exp(−x), x ≤ 1,
which Algorithm 1 makes of coins of probability x.

>>> from skdp.fitting.streams import SecureStream
>>> from skdp.engine.discrete_gaussian import discrete_gaussian_integers
>>> x = discrete_gaussian_integers(20, 1000, SecureStream(bytes(16)))
>>> x.dtype, bool(0.9 < x.std() / 2**20 < 1.1)
(dtype('int64'), True)
"""

from __future__ import annotations

import numpy as np

from skdp.engine.coins import all_pass, exp_coins, first_accepted, fractions, geometric
from skdp.fitting.streams import SecureStream
from skdp.fitting.validate import integer

MAX_BITS = 62


def discrete_gaussian_integers(bits: int, size: int, stream: SecureStream) -> np.ndarray:
    """Draw independent integers of the discrete Gaussian of parameter σ = 2^bits, bits in [0, 62].

    In int64, modulo 2⁶⁴: a function of the sample, and thus of a sum that it is added to.
    """
    bits = integer(0, bits=bits)
    if bits > MAX_BITS:
        raise ValueError(f"Expected bits={bits} to be at most {MAX_BITS}.")
    return first_accepted(lambda n: _accepted(bits, n, stream), 2.4, size)


def _accepted(bits: int, n_candidates: int, stream: SecureStream) -> np.ndarray:
    """Algorithms 2 and 3 on a number of candidates at once."""
    random = stream.generator.integers
    one = np.int64(1) << bits
    u = random(one, size=n_candidates)
    u = u[exp_coins(fractions(u, bits, random), len(u), random)]
    v = geometric(len(u), random)
    negative = random(2, size=len(u)) == 1
    w = np.maximum(v - 1, 0)
    fraction = fractions(np.where(v == 0, one - u, u), bits, random)  # f over 2^bits, at most 1

    def half(at: np.ndarray) -> np.ndarray:
        return random(2, size=len(at)) == 0

    kept = ~(negative & (u == 0) & (v == 0))  # or zero would come twice as often
    kept &= exp_coins(lambda at: half(at) & fraction(at) & fraction(at), len(u), random)
    kept &= all_pass(fraction, w, random)
    kept &= all_pass(half, w * w, random)
    size = u + (v << bits)
    return np.where(negative, -size, size)[kept]
