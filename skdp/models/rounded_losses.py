"""log Σ exp(z) from operations that IEEE 754 rounds in one way: the same bits everywhere.

A library's exponential may give one element of an array other bits than another, by where in the
array it stands, by processor and by version. Where a claim rests on a record's loss being a
function of that record alone, as that of `algorithms.lattice_posterior` does, it is computed from
additions, products, quotients and comparisons, each of one element, and from tables.

>>> import numpy as np
>>> from skdp.models.rounded_losses import log_sum_exp
>>> z = np.array([[0.5, -30.0, 700.0]])
>>> bool(abs(log_sum_exp(z) - 700.0)[0] < 1e-12)
True
"""

from __future__ import annotations

import math

import numpy as np

ERROR = 2.0**-44  # bound on the error of a log Σ exp(z) less its largest z

_STEPS = 128  # entries of the tables a unit
_FAR = 64.0  # exp(−d) of larger d are taken for exp(−64)
_EXPONENTIALS = np.array([math.exp(-i / _STEPS) for i in range(int(_FAR) * _STEPS + 1)])
_LOGARITHMS = np.array([math.log(1 + i / _STEPS) for i in range(_STEPS + 1)])
_LOG_2 = math.log(2.0)


def log_sum_exp(z: np.ndarray) -> np.ndarray:
    """Return log Σ_k exp(z_k) over the last axis, of finite numbers."""
    columns = [z[..., k] for k in range(z.shape[-1])]
    largest = columns[0]
    for column in columns[1:]:
        largest = np.maximum(largest, column)
    total = np.zeros_like(largest)
    for column in columns:
        total += _exp_minus(largest - column)
    return largest + _log(total)


def softplus(z: np.ndarray) -> np.ndarray:
    """Return log(1 + exp(z)) of each element."""
    return np.maximum(z, 0.0) + _log(1.0 + _exp_minus(np.abs(z)))


def _exp_minus(d: np.ndarray) -> np.ndarray:
    """Return exp(−d) of d ≥ 0: a table, and Taylor's series of its rest f < 1/128."""
    d = np.minimum(d, _FAR)
    steps = np.floor(d * _STEPS)
    f = steps / _STEPS - d
    series = 1.0 + f * (1.0 + f * (1 / 2 + f * (1 / 6 + f * (1 / 24 + f * (1 / 120)))))
    return _EXPONENTIALS[steps.astype(np.int64)] * series


def _log(y: np.ndarray) -> np.ndarray:
    """Return log y of y ≥ 1: the exponent, a table, and the series of log(1 + r) of the rest."""
    mantissa, exponent = np.frexp(y)
    mantissa += mantissa  # in [1, 2)
    steps = np.floor((mantissa - 1.0) * _STEPS)
    node = 1.0 + steps / _STEPS
    r = (mantissa - node) / node
    series = r * (1.0 - r * (1 / 2 - r * (1 / 3 - r * (1 / 4 - r * (1 / 5 - r * (1 / 6))))))
    return (exponent - 1) * _LOG_2 + (_LOGARITHMS[steps.astype(np.int64)] + series)
