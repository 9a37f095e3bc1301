"""Exact draws of a grid point, with integer weights; and the integer weights of records."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skdp.engine.coins import Choice, Integers

MANTISSA_BITS = 53
# A person's values share so many integer weights; of more values some have none.
SHARES = 2**10
STEPS = 2**20  # to which declared weights are rounded


class Segments(NamedTuple):
    """Runs of grid points between which no record lies, and the weight of each of their points."""

    first: np.ndarray
    size: np.ndarray
    mantissa: np.ndarray  # integer ...
    halvings: np.ndarray  # ... times 2^(-MANTISSA_BITS - halvings)


def levels(segments: Segments) -> Choice:
    """Choice of a level: points of equal halvings, from those of most on."""
    totals = np.bincount(segments.halvings, segments.size)  # of integers, and exact in doubles
    return Choice([int(total) << e for e, total in enumerate(totals[::-1])])


def attempt(segments: Segments, level: Choice, random: Integers) -> int | None:
    """Choose a level of halvings, and a grid point of it; None where its mantissa refuses it."""
    (chosen,) = level.draw(1, random)
    at = np.flatnonzero(segments.halvings == segments.halvings.max() - chosen)
    up_to = np.cumsum(segments.size[at])
    place = int(random(up_to[-1]))
    i = np.searchsorted(up_to, place, side="right")
    if not random(1 << MANTISSA_BITS) < segments.mantissa[at[i]]:
        return None
    return int(segments.first[at[i]] + segments.size[at[i]] - up_to[i] + place)


def integer_weights(
    there: np.ndarray, starts: np.ndarray | None = None, weights: np.ndarray | None = None
) -> tuple[np.ndarray, int]:
    """Integer weights of the values that are there, and the most that those of a record add up to.

    The values of a person share the mean of their weights.
    """
    if weights is None:
        most = 1 if starts is None else SHARES
        each = np.full(int(there.sum()), most)
    else:
        each, most = np.rint(weights[there] * STEPS).astype(np.int64), STEPS
    if starts is None:
        return each, most
    person = np.repeat(np.arange(len(starts) - 1), np.diff(starts))[there]
    counts = np.bincount(person, minlength=len(starts) - 1)
    k, up_to = counts[person], np.concatenate([[0], np.cumsum(each)])
    before = up_to[np.cumsum(counts) - counts][person]  # of all persons that come first
    return (up_to[1:] - before) // k - (up_to[:-1] - before) // k, most
