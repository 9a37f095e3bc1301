"""What transformers share: declared bounds and norms, rows clipped to a norm, one noisy sum.

>>> import numpy as np
>>> from skdp.preprocessing._releases import clipped_to_norm
>>> clipped_to_norm(np.array([[3e300, 4e300], [0.3, 0.4]]), 1.0)
array([[0.6, 0.8],
       [0.3, 0.4]])
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdp._bounded_sum import CHUNK_ROWS, OPPOSITE, BoundedSum
from skdp._random import SecureStream
from skdp._validate import expected, in_range
from skdp.mechanisms import GaussianMechanism
from skdp.preprocessing.bounded_scaler import declared_bounds
from skdp.privacy.calibration import calibrate_noise_multiplier
from skdp.privacy.events import dp_sgd_event
from skdp.relations import sensitivity_factor

MOST_EPSILON = 1e9
_LEAST_WIDTH, _MOST_BOUND = 1e-150, 1e150  # their squares are doubles too


@dataclass(frozen=True)
class NoisySum(BoundedSum):
    """One Gaussian release of a sum over rows; the exact sum where the noise multiplier is 0.

    Parameters
    ----------
    record_norm : float
        C: bound on the Euclidean norm of what one row adds to the sum.
    noise_multiplier : float
        Standard deviation of the noise over the bound on one row's share of the *computed* sum;
        under replace_one over half of what that moves by.
    neighboring_relation : str
        Who is a neighbour.
    apart : float, default=2.0
        How far apart the shares of two rows can be, over C.

    Notes
    -----
    In real arithmetic a row that comes or goes moves the sum by at most C. The computed sum adds
    chunks of `CHUNK_ROWS` rows and then at most MAX_ROWS/CHUNK_ROWS chunks, so with unit roundoff
    u = 2⁻⁵³ it is off by at most (CHUNK_ROWS + MAX_ROWS/CHUNK_ROWS) u Σ|terms| in every coordinate,
    in whatever order and with the rounding of one product a term (Higham 2002, §3.1 and §4.2). As
    a vector that is at most (CHUNK_ROWS + MAX_ROWS/CHUNK_ROWS) u n C, on each of two neighbours:
    with n ≤ MAX_ROWS, `ROUNDING` times C, of which 1e-9 is for the rounding of a single row's
    share. So the declared bound is C (1 + ROUNDING) (PRIVACY §8).
    """

    record_norm: float
    noise_multiplier: float
    neighboring_relation: str
    apart: float = OPPOSITE  # pyright: ignore[reportIncompatibleVariableOverride]

    @classmethod
    def planned(cls, estimator: Any, record_norm: float, apart: float = OPPOSITE) -> NoisySum:
        """Plan the release that the estimator's budget or its noise multiplier asks for."""
        if estimator.epsilon is None:
            sigma = in_range(1e-100, 1e100, noise_multiplier=estimator.noise_multiplier)
        else:
            sigma = calibrate_noise_multiplier(
                epsilon=affordable(estimator.epsilon),
                delta=estimator.delta,
                neighboring_relation=estimator.neighboring_relation,
            )
        return cls(record_norm, sigma, estimator.neighboring_relation, apart)

    @property
    def record_bound(self) -> float:
        """C."""
        return self.record_norm

    @property
    def unit(self) -> float:
        """Bound on one row's share as the accountant reads it: it doubles under replace_one."""
        relation = self.neighboring_relation
        return self.sensitivity(relation) / sensitivity_factor(relation)

    @property
    def scale(self) -> float:
        """Standard deviation of the noise."""
        return self.noise_multiplier * self.unit

    def event(self) -> Any:
        """Return what the release costs."""
        return dp_sgd_event(self.noise_multiplier, sampling_rate=1.0, n_steps=1)

    def release(self, total: np.ndarray, stream: SecureStream) -> np.ndarray:
        """Add the noise."""
        if self.noise_multiplier == 0.0:
            return total
        mechanism = GaussianMechanism(self.unit, self.scale, self.neighboring_relation)
        return mechanism.release(total, stream, charged=True)


@contextmanager
def told(estimator: Any) -> Iterator[None]:
    """Tell scikit-learn's callbacks, where there are any, of the fit: no data and no state."""
    context = getattr(estimator, "_callback_fit_ctx", None)
    if context is None:
        yield
        return
    context.call_on_fit_task_begin(estimator=estimator)
    yield
    context.call_on_fit_task_end(estimator=estimator)


def affordable(epsilon: float) -> float:
    """Check that ε is one that mechanisms take; infinite is none at all."""
    if MOST_EPSILON < epsilon < math.inf:
        raise expected(f"at most {MOST_EPSILON:g}, or float('inf')", epsilon=epsilon)
    return epsilon


def summed(X: np.ndarray, chunk_sum: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Sum over the rows, in the chunks that `NoisySum` reckons with."""
    starts = range(0, len(X), CHUNK_ROWS)
    return sum((chunk_sum(X[i : i + CHUNK_ROWS]) for i in starts), start=np.zeros(()))


def clipped_to_norm(rows: np.ndarray, norm: float) -> np.ndarray:
    """Scale rows of finite numbers down to a norm where they exceed it, in float64.

    No square of a value is formed, so that none can overflow, or vanish.
    """
    rows = rows.astype(np.float64)
    largest = np.abs(rows).max(axis=1, keepdims=True)
    directions = rows / np.where(largest > 0.0, largest, 1.0)
    lengths = np.sqrt(np.einsum("ij,ij->i", directions, directions))[:, None]
    lengths = np.maximum(lengths, 1.0)  # less only for a row of zeros
    return np.where(largest > norm / lengths, directions * (norm / lengths), rows)


def norm_or_auto(default: float, **kw: Any) -> float:
    """Check a norm, or take the default for ``"auto"``."""
    ((_, value),) = kw.items()
    if isinstance(value, str) and value == "auto":
        return default
    # Squares of numbers beyond these leave the range of a double, and a bound would bound nothing.
    return in_range(1e-100, 1e100, "or 'auto'", **kw)


def declared_range(estimator: Any, n_features: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the declared bounds of the features, lower and upper, (n_features,) each."""
    lower = declared_bounds(n_features, lower=estimator.lower)
    upper = declared_bounds(n_features, upper=estimator.upper)
    if not (lower < upper).all():
        raise expected("below upper in every feature", "swap or widen them", lower=estimator.lower)
    if (upper / 2 - lower / 2 < _LEAST_WIDTH).any():
        raise expected(f"{_LEAST_WIDTH:g} or more from upper", lower=estimator.lower)
    for name, bounds in (("lower", lower), ("upper", upper)):
        if (np.abs(bounds) > _MOST_BOUND).any():
            value = getattr(estimator, name)
            raise expected(f"between -{_MOST_BOUND:g} and {_MOST_BOUND:g}", **{name: value})
    return lower, upper


def float_tags(tags: Any, *, allow_nan: bool) -> Any:
    """Tags of transformers that keep float32, and of those that take NaN."""
    tags.input_tags.allow_nan = allow_nan
    tags.transformer_tags.preserves_dtype = ["float64", "float32"]
    return tags
