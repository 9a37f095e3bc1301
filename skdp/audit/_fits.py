"""Fits of an audit, and what is seen of each."""

from __future__ import annotations

import copy
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.parallel import Parallel, delayed

from skdp.audit._neighbours import Record, Rows
from skdp.engine import release_hook
from skdp.fitting.types import ArrayLike, Given, Opaque, Params
from skdp.fitting.validate import expected
from skdp.privacy.cover import BudgetExceededError, covered

Statistic = Callable[[Any], ArrayLike] | str | None  # of a fitted object

_CHUNKS, _LEAST = 16, 8  # most parts of parallel fits, and least fits an arm of each
_MOST_NUMBERS = 64  # of a fitted object that are looked at without being asked to


def made_here(estimator: Opaque, neighbor: Any, *given: Given | Record) -> bool:
    """Whether no row can be anybody's: all are zeros and the canary."""
    nothing_given = all(part is None for part in given)
    return hasattr(estimator, "fit") and nothing_given and isinstance(neighbor, str | None)


@contextmanager
def _booked(free: bool) -> Iterator[None]:
    """Charge open ledgers for what is fitted inside, or not."""
    if free:
        with covered("free"):
            yield
        return
    try:
        yield
    except BudgetExceededError as error:
        error.add_note("If all rows of the audit are synthetic or public, public=True says so.")
        raise


def fitted_to(estimator: Any, rows: Rows, free: bool) -> tuple[Any, list]:
    """Fit a copy; return it and the record of its releases."""
    with _booked(free), release_hook.record() as tape:
        if not hasattr(estimator, "fit"):
            return estimator(*rows.given), tape
        copied: Callable = clone if hasattr(estimator, "get_params") else copy.deepcopy
        if rows.persons is None:
            return copied(estimator).fit(rows.X, rows.y), tape
        return copied(estimator).fit(rows.X, rows.y, groups=rows.persons), tape


@dataclass(frozen=True)
class Look:
    """What is seen of a fitted object: a vector."""

    statistic: Statistic
    canary: np.ndarray

    def __call__(self, fitted: Opaque, tape: list) -> np.ndarray:
        if self.statistic == "trace":
            return _weighted_sums(tape)
        seen = self.statistic(fitted) if callable(self.statistic) else self._numbers(fitted)
        return np.atleast_1d(np.asarray(seen, dtype=float)).ravel()

    def _numbers(self, fitted: Any) -> np.ndarray:
        """Coefficients; else probabilities of the canary; else every fitted number."""
        if hasattr(fitted, "coef_"):
            return _flat([fitted.coef_, getattr(fitted, "intercept_", 0.0)])
        if hasattr(fitted, "predict_proba"):
            return _flat([np.asarray(fitted.predict_proba(self.canary))[0, 1:]])
        if hasattr(fitted, "__dict__"):
            names = sorted(name for name in vars(fitted) if name.endswith("_") and name[0] != "_")
            fitted = [getattr(fitted, name) for name in names]
            fitted = [value for value in fitted if _is_numbers(value)]
        found = _flat([fitted])
        if 0 < found.size <= _MOST_NUMBERS:
            return found
        remedy = f"the fitted object holds {found.size} numbers: say which to look at"
        raise expected("a function", remedy, statistic=None)


def _is_numbers(value: Any) -> bool:
    return isinstance(value, float | np.floating) or (
        isinstance(value, np.ndarray) and value.dtype.kind == "f"
    )


def _flat(values: ArrayLike) -> np.ndarray:
    if not isinstance(values, list | tuple):
        return np.asarray(values, dtype=float).ravel()
    return np.concatenate([np.empty(0), *map(_flat, values)])


def _weighted_sums(tape: list) -> np.ndarray:
    """Σ_t Δ_t/s_t² · release_t, for each shape of release.

    Where the canary moves every release the same way by as much as it may, the log-likelihood ratio
    of all releases is linear in these.
    """
    sums: dict[tuple, np.ndarray] = {}
    for release in tape:
        call = release.call
        weight = call.sensitivity / call.scale**2 if call.scale > 0 else 1.0
        key = call.kind, tuple(call.shape)
        released = np.asarray(release.output, dtype=float).ravel()
        sums[key] = sums.get(key, np.zeros(released.size)) + weight * released
    if not sums:
        raise expected("a function", "the fit recorded no releases", statistic="trace")
    return np.concatenate([sums[key] for key in sorted(sums)])


@dataclass(frozen=True)
class Fits:
    """What is fitted again and again, and how the results are looked at."""

    estimator: Any
    arms: tuple[Rows, Rows]
    look: Look
    free: bool

    def __call__(self, n_fits: int, parent: int) -> list[list]:
        """Fit both arms in turn, so that what changes with time changes for both."""
        if os.getpid() != parent:
            _seed_afresh()
        results: list[list] = [[], []]
        for _ in range(n_fits):
            for arm, found in zip(self.arms, results, strict=True):
                found.append(self.look(*fitted_to(self.estimator, arm, self.free)))
        return results


def _seed_afresh() -> None:
    """Give a worker global generators of its own: forked ones would all repeat the parent's."""
    random.seed()
    np.random.seed()  # noqa: NPY002
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.seed()


def results(fits: Fits, n_fits: int, n_jobs: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Fit both arms so many times, in parallel if asked to; return what was seen of each."""
    chunks: list[Any] = []
    if n_jobs in (None, 1):
        chunks = [fits(n_fits, os.getpid())]
    else:
        n_chunks = min(_CHUNKS, n_fits // _LEAST)
        sizes = [len(part) for part in np.array_split(np.arange(n_fits), n_chunks)]
        parts = (delayed(fits)(n, os.getpid()) for n in sizes)
        one_by_one: Params = {"batch_size": 1}  # together they would share a copy
        chunks.extend(Parallel(n_jobs, **one_by_one)(parts) or [])
    joined = [[row for chunk in chunks for row in chunk[arm]] for arm in (0, 1)]
    lengths = {len(row) for arm in joined for row in arm}
    if len(lengths) > 1:
        remedy = f"it was one of {sorted(lengths)} numbers"
        raise expected("a vector of one length", remedy, statistic=fits.look.statistic)
    if _repeat(chunks):
        remedy = "the noise is from a generator of which each worker has the same copy"
        raise expected("None, because workers repeat each other's fits", remedy, n_jobs=n_jobs)
    return np.array(joined[0]), np.array(joined[1])


def _repeat(chunks: list[list[list[np.ndarray]]]) -> bool:
    """Whether two chunks are the same, and so varied that it is no chance."""
    pairs = list(combinations(chunks, 2))
    for pair in pairs:
        chance = float(len(pairs))
        for one, other in zip(*pair, strict=True):
            drawn, again = [[row.tobytes() for row in arm] for arm in (one, other)]
            length = min(len(drawn), len(again))
            if drawn[:length] != again[:length]:
                break
            shares = np.array(list(Counter(drawn[:length]).values())) / length
            chance *= float(shares @ shares) ** length  # of as many results to be the same
        else:
            if chance < 1e-6:
                return True
    return False
