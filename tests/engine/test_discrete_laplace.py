"""The discrete Laplace law: exact on small trees, and in samples."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chisquare

from skdp.engine.discrete_laplace import MOST_NUMERATOR, discrete_laplace_integers
from skdp.fitting.streams import SecureStream

N = 200_000


@pytest.mark.parametrize("scale", ["1", "10/3", "1/4", "5/2", "7", "1000001/1048576"])
def test_law(scale: str) -> None:
    b = Fraction(scale)
    x = discrete_laplace_integers(b, N, SecureStream(b"law of integers!"))
    values = np.arange(-max(1, int(6 * float(b))), max(1, int(6 * float(b))) + 1)
    p = np.exp(-abs(values) / float(b)) * np.tanh(0.5 / float(b))
    values, p = values[p * N > 20], p[p * N > 20]
    observed = np.array([(x == value).sum() for value in values])
    assert chisquare(observed, p * (observed.sum() / p.sum())).pvalue > 1e-4
    assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 5 / N**0.5


def test_large_scales() -> None:
    b = Fraction(2**49 - 1)
    x = discrete_laplace_integers(b, 20_000, SecureStream(bytes(16)))
    assert abs(abs(x).mean() / float(b) - 1) < 5 / 20_000**0.5
    assert len(set(x.tolist())) > 19_990
    assert len(set((x % 1024).tolist())) == 1024


@pytest.mark.parametrize("scale", [Fraction(0), Fraction(-1), Fraction(2 * MOST_NUMERATOR)])
def test_bad_scales(scale: Fraction) -> None:
    with pytest.raises(ValueError, match="positive fraction"):
        discrete_laplace_integers(scale, 1, SecureStream(bytes(16)))


def test_no_draws() -> None:
    assert len(discrete_laplace_integers(Fraction(1), 0, SecureStream(bytes(16)))) == 0
