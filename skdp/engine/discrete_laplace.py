"""Exact samples of the discrete Laplace law: integers x with probability ∝ exp(−|x| s/t).

Canonne, Kamath & Steinke (NeurIPS 2020), Algorithm 2: u uniform below t, kept with probability
exp(−u/t); v successes of probability exp(−1) before a failure; then u + t v has law ∝ exp(−x/t),
its quotient by s law ∝ exp(−x s/t), and a fair sign, of which a negative zero is drawn again, makes
it two-sided.

>>> from fractions import Fraction
>>> from skdp.fitting.streams import SecureStream
>>> from skdp.engine.discrete_laplace import discrete_laplace_integers
>>> x = discrete_laplace_integers(Fraction(10, 3), 1000, SecureStream(bytes(16)))
>>> x.dtype, bool(4 < x.std() < 5.5)
(dtype('int64'), True)
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from skdp.engine.coins import exp_coins, first_accepted, geometric
from skdp.fitting.streams import SecureStream

# u + t v stays below 2⁶³ unless v is 2¹³ or more, which has probability e^−8192.
MOST_NUMERATOR = 2**50


def discrete_laplace_integers(scale: Fraction, size: int, stream: SecureStream) -> np.ndarray:
    """Draw independent integers of law ∝ exp(−|x|/b), in int64, for b = t/s > 0 with t ≤ 2⁵⁰."""
    return first_accepted(lambda n: _accepted(_checked(scale), n, stream), 2.2, size)


def geometric_integers(scale: Fraction, size: int, stream: SecureStream) -> np.ndarray:
    """Draw independent integers from 0 on, of law ∝ exp(−x/b); see `discrete_laplace_integers`."""
    return first_accepted(lambda n: _magnitudes(_checked(scale), n, stream), 2.2, size)


def _checked(scale: Fraction) -> Fraction:
    if not 0 < scale.numerator <= MOST_NUMERATOR:
        raise ValueError("Expected scale to be a positive fraction with a numerator up to 2**50.")
    return scale


def _magnitudes(scale: Fraction, n_candidates: int, stream: SecureStream) -> np.ndarray:
    random, t = stream.generator.integers, np.int64(scale.numerator)
    u = random(t, size=n_candidates)
    u = u[exp_coins(lambda at: random(t, size=len(at)) < u[at], len(u), random)]
    return (u + t * geometric(len(u), random)) // scale.denominator


def _accepted(scale: Fraction, n_candidates: int, stream: SecureStream) -> np.ndarray:
    x = _magnitudes(scale, n_candidates, stream)
    negative = stream.generator.integers(2, size=len(x)) == 1
    return np.where(negative, -x, x)[~negative | (x > 0)]
