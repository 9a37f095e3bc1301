"""Sums over persons with several rows each, of whom each contributes one clipped sum.

A person contributes clip_C(Σ s_i) over its rows, so that all of them together move the sum by no
more than one row does otherwise (docs/privacy.md, section 2). Scores s_i have mean zero where the
model holds, so that k of them add up to √k, and a bound C of √k times that of a row cuts little;
counts and squares add up to k.

Rounding stays within `BoundedSum.rounding`, which counts 2²⁶ terms and chunks of 8192 rows. A chunk
ends before a person who does not fit, so that of n rows there may be c > n/8192 chunks; but such a
person has more rows than the chunk lacks, and is one term: of at most 2n − 8191c, in sums that are
deeper by c − n/8192 only. A person of more rows than a chunk holds is one term too. Within a person
rounding comes before the clip, or is that of its own bound.

Every bit of what a person contributes is a function of that person's rows: they are added up one
after the other, whoever stands before them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from skdp.fitting.validate import positive
from skdp.rows.bounded_sum import CHUNK_ROWS, BoundedSum
from skdp.rows.persons import PersonUnit
from skdp.rows.records import ON_BOUND, norms_of


def by_person(terms: np.ndarray, batch: Any, weights: np.ndarray | None = None) -> np.ndarray:
    """Sum terms (m, size), times weights (m,), over each person's rows, in their order."""
    starts, m = batch.starts, len(terms)
    if starts is None:
        return terms if weights is None else weights[:, None] * terms
    weights = np.ones(m) if weights is None else weights
    places, shape = np.arange(m, dtype=np.int32), (len(starts) - 1, m)
    return csr_matrix((weights, places, starts.astype(np.int32)), shape) @ terms


@dataclass(frozen=True)
class PersonSum(BoundedSum):
    """Sum over persons of the sum of their rows' terms, each clipped to a norm."""

    inner: Any  # `RowSum`: the terms of rows
    bound: float  # > 0: a person's sum is scaled down to it where it exceeds that

    def __post_init__(self) -> None:
        positive(bound=self.bound, allow_inf=True)

    @property
    def record_bound(self) -> float:
        """Bound on the norm of one person's term."""
        return self.bound

    @property
    def apart(self) -> float:
        """What the inner sum says of several terms together."""
        return self.inner.together

    def shape(self, theta_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the inner sum."""
        return self.inner.shape(theta_shape)

    def __call__(self, theta: np.ndarray, batch: Any) -> np.ndarray:
        """Return the sum over persons."""
        shape = self.shape(tuple(theta.shape))
        total = np.zeros(math.prod(shape))
        with np.errstate(all="ignore"):
            for chunk in batch.chunks(CHUNK_ROWS):
                terms, factors = self._terms(theta, chunk)
                total += factors @ terms
        return total.reshape(shape)

    def records(self, theta: np.ndarray, chunk: Any) -> np.ndarray:
        """Return the terms (n_persons, size), each a function of its own person alone."""
        terms, factors = self._terms(theta, chunk)
        terms *= factors[:, None]
        return terms

    def _terms(self, theta: np.ndarray, chunk: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the persons' sums, a new array, and the factors that clip them."""
        terms = self.inner.persons(theta, chunk)
        if self.bound == math.inf:
            return terms, np.ones(len(terms))
        return terms, shrunk(self.bound, norms_of(terms))


def shrunk(bound: float, found: np.ndarray) -> np.ndarray:
    """Factors that bring what is above a bound down to it; what is on it by rounding stays."""
    return np.where(found > bound * (1 + ON_BOUND), bound / np.maximum(found, bound), 1.0)


class RowSum(BoundedSum):
    """A sum over rows, of which there is one over persons too."""

    cancelling = False  # whether terms are scores, of mean zero where the model holds

    def shape(self, theta_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the sum at parameters of a shape: the same."""
        return theta_shape

    def records(self, theta: np.ndarray, chunk: Any) -> np.ndarray:
        """Return the terms (m, size), each a function of its own record alone."""
        raise NotImplementedError

    def __call__(self, theta: np.ndarray, batch: Any) -> np.ndarray:
        """Return the sum."""
        total = np.zeros(self.shape(tuple(theta.shape)))
        with np.errstate(all="ignore"):
            for chunk in batch.chunks(CHUNK_ROWS):
                total += self.records(theta, chunk).sum(axis=0)
        return total

    def persons(self, theta: np.ndarray, chunk: Any) -> np.ndarray:
        """Return the sums (n_persons, size) of each person's terms, a function of these alone."""
        return by_person(self.records(theta, chunk), chunk)

    def of_persons(self, unit: PersonUnit) -> Any:
        """The same over persons: clipped to k̄ times the bound, to c times where terms cancel."""
        times = unit.clip if self.cancelling else unit.rows_per_group
        return PersonSum(self, times * self.record_bound)
