"""`dp_covariance`: second moments about private means, by one release of the upper triangle."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from dp_accounting.dp_event import DpEvent
from scipy.special import ndtri

from skdp.fitting.streams import Streams
from skdp.fitting.types import ArrayLike, Given, Seed
from skdp.fitting.validate import as_array
from skdp.mechanisms import GaussianMechanism, GeometricMechanism
from skdp.privacy.events import ComposedDpEvent, PureDpEvent
from skdp.relations import ROW, ZERO_OUT
from skdp.rows.persons import Persons
from skdp.statistics._noise import geometric_quantile
from skdp.statistics._query import Answer, PrivateStatistic, answer, sums
from skdp.statistics.moments import MeanConfig, Share

_GRID_BITS, _NORM_BITS = 16, 33
_CHUNK, _PART = 2**17, 2**19  # rows and numbers whose sums of products doubles hold
_MEANS_SHARE = 0.05, 0.5  # of ε, least and most
_PRIVATE_SHARE = 0.2
_DOUBT = 0.2  # of 1 - level: for the means


def _moments(y: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Σ w y yᵀ of integers y (n, d) and w (n, 1), exactly: each product in two parts."""
    total = np.zeros((y.shape[1], y.shape[1]), object)
    for i in range(0, len(y), _CHUNK):
        part = y[i : i + _CHUNK]
        high, low = np.divmod(w[i : i + _CHUNK] * part, _PART)
        for unit, of in ((_PART, high), (1, low)):
            total += unit * (of.T @ part).astype(np.int64).astype(object)
    return total


@dataclass(frozen=True, kw_only=True)
class CovarianceConfig(MeanConfig):
    """The covariance matrix of the columns; a row with a missing value counts nowhere."""

    @property
    def half(self) -> int:
        """H: values less their centre are rounded to integers in [-H, H]."""
        bits = _NORM_BITS - math.log2(len(self.lower) ** 2 * self.most_rows)
        return 2 ** min(_GRID_BITS, math.floor(bits / 2))

    @property
    def steps(self) -> int:
        """Steps of weights, of which H² is a multiple: what they make of it is an integer."""
        return min(self.grid, self.half**2) if self.weight_bound else 1

    @property
    def means_epsilon(self) -> float:
        """ε of the means; their errors count by their products alone."""
        if not self.n:
            return _PRIVATE_SHARE * self.epsilon
        share = (2 * self.neighboring_relation.factor / (self.n * self.epsilon)) ** 0.5
        return min(max(share, _MEANS_SHARE[0]), _MEANS_SHARE[1]) * self.epsilon

    @cached_property
    def noise(self) -> GeometricMechanism | GaussianMechanism:
        """The mechanism of the upper triangle: the one with the smaller standard deviation."""
        d, epsilon = len(self.lower), math.nextafter(self.epsilon - self.means_epsilon, 0.0)
        unit = self.half**2 * self.most_rows
        l1, l2 = d * d / 2, (d * (2 * d - 1) / 4) ** 0.5
        if not self.n:
            l1, l2 = self.factor * d * (d + 1) / 2, (d * (d + 1) / 2) ** 0.5
        elif self.factor == 2:
            l1 = d * (d + 1) / 2
        pure = self.mechanism(math.ceil(l1 * unit), epsilon)
        if not self.delta:
            return pure
        normal = GaussianMechanism.from_budget(
            epsilon=epsilon,
            delta=self.delta,
            record_norm=l2 * unit,
            neighboring_relation=self.neighboring_relation,
        )
        return normal if normal.scale < pure.standard_deviation else pure

    def event(self) -> DpEvent:
        """What the run releases."""
        if isinstance(self.noise, GeometricMechanism):
            return PureDpEvent(self.epsilon)
        return ComposedDpEvent([PureDpEvent(self.means_epsilon), self.noise.event()])

    def run(self, records: Any, streams: Streams, progress: Callable = iter) -> Answer:
        """Release the covariance of values (n, d), (d, d)."""
        there = ~np.isnan(records[0]).any(axis=1)
        values, w = records[0][there], np.broadcast_to(self.weights_of(records), (len(there), 1))
        w, stream, H, d = w[there], streams("noise"), self.half, len(self.lower)
        t, _ = self.on_grid(values)
        alpha, (m,) = 1.0 - self.level, sums(w)
        means = self.shares(sums(w * t), [m] * d, self.means_epsilon, stream)
        # On [-1, 1]: the centre c, and by how much the mean may be off it.
        c = np.array([2 * share.value() - 1 for share in means])
        ends = np.array([share.interval(_DOUBT * alpha / 2) for share in means])
        off = np.abs(2 * ends - 1 - c[:, None]).max(axis=1)
        r = 1.0 + np.abs(c)
        y = np.rint(((2.0 * t / self.grid - 1.0) - c) / r * H)
        at, moments = np.triu_indices(d), (_moments(y, w) // self.steps).astype(np.int64)
        exact = moments[at]
        if not self.n:  # and what is left of n times the square of the range, as for the mean
            exact = np.concatenate([exact, m * H * H // self.steps - np.diag(moments)])
        noisy = self.noise.release(exact, stream, charged=True) / (H * H)
        A = np.zeros((d, d))
        A[at] = A.T[at] = noisy[: len(at[0])]
        n, error = self.n or 0.0, self._error(alpha * (1 - _DOUBT) / (1 if self.n else 2))
        low_n = high_n = float(n)
        if not self.n:
            n = float((np.diag(A) + noisy[len(at[0]) :]).mean())
            sd = self._sum_error(alpha * (1 - _DOUBT) / 2) / d
            low_n, high_n = n - sd, n + sd
        # On [-1, 1] now. The squares of what means are off by are in the second moments.
        units, product = np.outer(r, r), np.outer(off, off)
        value = A / max(n, 1.0) * units
        value[np.diag_indices(d)] -= np.minimum(self._variances(means, max(n, 1.0)), off**2)
        ends = [(A + sign * error) / max(k, 1.0) for sign in (-1, 1) for k in (low_n, high_n)]
        step = 1.0 / H  # what rounding moves a product by, at most
        low = (np.min(ends, axis=0) - step) * units - product
        high = (np.max(ends, axis=0) + step) * units + np.where(np.eye(d), 0.0, product)
        if low_n < 1.0:
            low, high = -np.ones((d, d)), np.ones((d, d))
        low = np.maximum(low, np.where(np.eye(d), 0.0, -1.0))
        value, high = _possible(value), np.minimum(high, 1.0)
        scale = np.outer(self.widths, self.widths) / 4
        low, high = np.minimum(low, value), np.maximum(high, value)
        return Answer(value * scale, low * scale, high * scale)

    def doubts(self, answer: Answer) -> Iterable[tuple[int, str]]:
        """Variances that are 0, or the largest that there can be."""
        return self.of_variances(np.diag(answer.low), np.diag(answer.high))

    def _error(self, alpha: float) -> float:
        """What the noise on one entry exceeds with probability α."""
        if isinstance(self.noise, GeometricMechanism):
            return geometric_quantile(self.noise, alpha) / self.half**2
        return float(-ndtri(alpha / 2)) * self.noise.scale / self.half**2

    def _sum_error(self, alpha: float) -> float:
        """What the sum of the noise on 2d numbers exceeds with at most this probability."""
        k = 2 * len(self.lower)
        if not isinstance(self.noise, GeometricMechanism):
            return self._error(alpha) * k**0.5
        t = np.linspace(0.001, 0.999, 999)  # Chernoff: E exp(tX) = 1/(1 - t²) for Laplace noise
        least = float(((math.log(2 / alpha) - k * np.log1p(-t * t)) / t).min())
        return least * float(self.noise.scale) / self.half**2

    def _variances(self, means: list[Share], n: float) -> np.ndarray:
        """Variances of the noise of the means, on [-1, 1]."""
        both = [1.0 if self.n else s.value() ** 2 + (1 - s.value()) ** 2 for s in means]
        return 8 * np.array(both) * (means[0].scale / (n * self.grid)) ** 2


def _possible(matrix: np.ndarray) -> np.ndarray:
    """The nearest positive semidefinite matrix, scaled to variances of at most 1."""
    eigenvalues, vectors = np.linalg.eigh(matrix)
    found = (vectors * np.maximum(eigenvalues, 0.0)) @ vectors.T
    scale = 1.0 / np.sqrt(np.maximum(np.diag(found), 1.0))
    return (found + found.T) / 2 * np.outer(scale, scale)


def dp_covariance(
    values: ArrayLike,
    *,
    lower: ArrayLike,
    upper: ArrayLike,
    epsilon: float,
    delta: float = 0.0,
    neighboring_relation: str = ZERO_OUT,
    missing: bool = False,
    unit: str | Persons = ROW,
    groups: Given = None,
    sample_weight: Given = None,
    max_sample_weight: float = 1.0,
    level: float = 0.9,
    random_state: Seed = None,
) -> PrivateStatistic:
    """Release the covariance matrix of columns within declared bounds.

    Parameters
    ----------
    values : array-like of shape (n, d)
        Numbers. A row with a missing value (NaN) counts nowhere.
    lower, upper, epsilon, neighboring_relation, missing, unit, groups, \
sample_weight, max_sample_weight, level, random_state
        As in `dp_mean`.
    delta : float, default=0.0
        δ in [0, 1), well below 1/n. With δ > 0 Gaussian noise is taken if it is smaller, which it
        is from a few columns on.

    Returns
    -------
    PrivateStatistic
        Of shape (d, d), divided by n or the sum of weights, and positive semidefinite. Intervals
        are for the data set's covariances, each by itself; where they miss what is positive
        semidefinite, they reach to the value.

    Raises
    ------
    ValueError, BudgetExceededError
        As in `dp_mean`.

    Notes
    -----
    A share of ε releases the means as in `dp_mean`, the rest the upper triangle of the second
    moments about them; less the known variance of the noise of the means it becomes the nearest
    positive semidefinite matrix. Sensitivities: docs/derivations.md.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp.statistics import dp_covariance
    >>> X = np.tile([[0.0, 0.0], [1.0, 1.0]], (5000, 1))
    >>> bool(np.abs(dp_covariance(X, lower=0, upper=1, epsilon=5.0).value - 0.25).max() < 0.01)
    True
    """
    if np.ndim(as_array(values)) != 2:
        raise ValueError("Expected values of shape (n, d), a column for each variable.")
    return answer("dp_covariance", CovarianceConfig, locals())
