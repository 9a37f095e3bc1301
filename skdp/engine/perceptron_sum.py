"""Clipped gradients of a perceptron by products of integers, for sums on a grid.

A matrix product in floating point rounds a record's numbers by where it stands and how many others
there are. Here each factor of each product is rounded to integers first,

    a_i ≈ u_i A_i,    A_i = ⌊2¹⁶ a_i/‖a_i‖⌉,    W ≈ 2^−e ⌊2^e W⌉,

so that every sum of products is of integers below 2⁵³ in size, exact in any order, and the bits of
a record are a function of that record and of W alone (docs/privacy.md, section 8, has the proof,
and what is tested only). The A_i are the right factors of `skdp.engine.grid.OuterGridSum` too, of
which the δ_i that come back to a layer are the left ones; the network is that of inputs rounded to
16 bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Self

import numpy as np
from scipy.special import expit, ndtr
from torch import Tensor, nn

from skdp.engine.grid import Outer
from skdp.engine.linear_sums import Residual
from skdp.engine.modules.network_sum import AUTOMATIC_GAMMA
from skdp.fitting.validate import one_of, positive
from skdp.rows.person_sums import RowSum, by_person
from skdp.rows.records import LinearBatch, LinearRows, Selection, copied, row_sums

BITS = 16  # of a factor
_WEIGHT_BITS = 34  # ‖A_i‖ ≤ 2¹⁷ and ‖⌊2^e W⌉‖ ≤ 2³⁵: no sum of products exceeds 2⁵²
_AT_ONCE, _BLOCK = 2048, 2**17  # rows, and numbers: what is worked on stays in the cache
_TINY = 1e-100  # norms below are zero: squares underflow


def _gelu(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    share = ndtr(z)
    return z * share, share + z * np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)


def _logistic(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    a = expit(z)
    return a, a * (1.0 - a)


def _tanh(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    a = np.tanh(z)
    return a, 1.0 - a * a


# z -> value and slope, elementwise.
ACTIVATIONS: dict[type[nn.Module], Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]] = {
    nn.Tanh: _tanh,
    nn.ReLU: lambda z: (np.maximum(z, 0.0), (z > 0.0).astype(float)),
    nn.GELU: _gelu,
    nn.Sigmoid: _logistic,
    nn.Identity: lambda z: (z, np.ones_like(z)),
}


class Rounded(NamedTuple):
    """Rows as integers A_i, as doubles, and what one of them is worth; NaN for no finite row."""

    integers: np.ndarray
    units: np.ndarray

    @classmethod
    def of(cls, rows: np.ndarray) -> Self:
        """Round rows (m, D), in place, in proportion to their norms: to ‖A_i‖ ≤ 2¹⁶ + √D/2."""
        units, size = np.empty(len(rows)), max(1, _BLOCK // rows.shape[1])
        for start in range(0, len(rows), size):
            block = rows[start : start + size]
            norms = np.sqrt(row_sums(block * block))
            if (lost := ~(norms < np.inf)).any():
                block[lost], norms[lost] = 0.0, np.nan
            block *= np.where(norms > _TINY, 2.0**BITS / np.maximum(norms, _TINY), 0.0)[:, None]
            np.rint(block, out=block)
            units[start : start + size] = np.ldexp(norms, -BITS)
        return cls(rows, units)

    @property
    def squares(self) -> np.ndarray:
        """‖A_i‖² < 2³⁴, exactly."""
        return np.einsum("ij,ij->i", self.integers, self.integers)

    def times(self, weights: np.ndarray) -> np.ndarray:
        """Rows times weights (K, D), (m, K): a row's result is a function of it alone."""
        largest = int(np.frexp(np.abs(weights).max())[1])  # squares of 1e160 have no double
        norm = np.linalg.norm(np.ldexp(weights, -largest))
        bits = _WEIGHT_BITS - largest - int(np.frexp(norm)[1])
        whole = np.rint(np.ldexp(weights, bits))
        return (self.integers @ whole.T) * np.ldexp(self.units, -bits)[:, None]


class RoundedRows(LinearRows):
    """Rows with a 1 appended, as integers in units ``norms``; the last target is the weight."""

    def _copy(self, selection: Selection, starts: np.ndarray | None) -> LinearBatch:
        X, targets = copied(self.X, selection), copied(self.targets, selection)
        rows = np.ones((len(X), X.shape[1] + 1))
        rows[:, :-1] = X
        with np.errstate(all="ignore"):
            rows, units = Rounded.of(rows)
        return LinearBatch(rows, units, targets, np.zeros((len(X), 2), bool), starts=starts)


@dataclass(frozen=True)
class PerceptronSum(RowSum):
    """Sum over records of the log-likelihood's gradient in θ, each clipped to a norm.

    θ holds the matrix (outputs, inputs + 1) of each layer, its biases last; ``sizes`` are features,
    neurons of hidden layers, outputs. ``activations`` of hidden layers are keys of ``ACTIVATIONS``;
    ``residual`` maps outputs and targets (m, K) to −∂ loss/∂ outputs, each row by itself. All else
    is as in `NetworkClippedSum`.
    """

    sizes: tuple[int, ...]
    activations: tuple[type[nn.Module], ...]
    residual: Residual
    clip_norm: float
    clipping: str = "flat"
    weight_bound: float = 1.0
    physical_batch_size: int | None = None
    cancelling = True
    rounding = 0.0  # integers add exactly

    def __post_init__(self) -> None:
        positive(clip_norm=self.clip_norm)
        one_of(("flat", "automatic"), clipping=self.clipping)

    @property
    def record_bound(self) -> float:
        """Bound on the norm of one record's term: C times the largest weight."""
        return self.clip_norm * self.weight_bound

    @property
    def room(self) -> int:
        """2¹⁷√K/2, as rounding moves an l_i by √K/2 at most; layers add in squares."""
        return math.ceil(2**BITS * math.sqrt(sum(self.sizes[1:])))

    @property
    def at_once(self) -> int:
        """Records that are worked on at once."""
        return min(self.physical_batch_size or _AT_ONCE, _AT_ONCE)

    def factors(self, theta: Tensor, chunk: LinearBatch) -> list[Outer]:
        """Return the terms, a pair of factors per layer."""
        matrices, a = self.matrices(self.sizes, theta.numpy()), Rounded(chunk.rows, chunk.norms)
        inputs, slopes = [a], []
        for matrix, activation in zip(matrices, self.activations, strict=False):
            value, slope = ACTIVATIONS[activation](a.times(matrix))
            a = Rounded.of(np.hstack([value, np.ones((len(value), 1))]))
            inputs.append(a)
            slopes.append(slope)
        delta = self.residual(a.times(matrices[-1]), chunk.targets[:, :-1])
        deltas = [delta]
        for matrix, slope in zip(matrices[:0:-1], slopes[::-1], strict=True):
            delta = Rounded.of(delta.copy()).times(matrix[:, :-1].T) * slope
            deltas.insert(0, delta)
        squares = [a.squares for a in inputs]
        norms = np.sqrt(
            sum(
                row_sums(delta * delta) * (a.units * a.units * square)
                for delta, a, square in zip(deltas, inputs, squares, strict=True)
            )
        )
        factors = self._factors(norms) * np.clip(chunk.targets[:, -1], 0.0, self.weight_bound)
        lefts = [
            delta * (factors * a.units)[:, None] for delta, a in zip(deltas, inputs, strict=True)
        ]
        if (lost := ~(norms < np.inf)).any():  # these contribute nothing, whatever the products are
            for left in lefts:
                left[lost] = 0.0
        rights = [a.integers for a in inputs]
        return [Outer(*parts) for parts in zip(lefts, rights, squares, strict=True)]

    def persons(self, theta: Tensor, chunk: LinearBatch) -> np.ndarray:
        """Return the sums (n_persons, P) of each person's terms, a function of these alone."""
        columns = (
            by_person(outer.right, chunk, column)
            for outer in self.factors(theta, chunk)
            for column in outer.left.T
        )
        return np.hstack(list(columns))

    def _factors(self, norms: np.ndarray) -> np.ndarray:
        if self.clipping == "automatic":
            return self.clip_norm / (norms + AUTOMATIC_GAMMA)
        return self.clip_norm / np.maximum(norms, self.clip_norm)

    @staticmethod
    def matrices(sizes: tuple[int, ...], theta: np.ndarray) -> list[np.ndarray]:
        """Return the matrix of each layer, a view."""
        shapes = [(after, before + 1) for before, after in pairwise(sizes)]
        ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
        return [
            part.reshape(shape) for part, shape in zip(np.split(theta, ends), shapes, strict=True)
        ]
