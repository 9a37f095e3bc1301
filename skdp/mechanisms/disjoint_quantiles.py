"""Quantiles of several disjoint cells of a range, at the price of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from skdp.engine import release_hook
from skdp.engine.release_hook import MechanismCall
from skdp.fitting.streams import SecureStream
from skdp.mechanisms.quantile import GRID, WEIGHT_ERROR, QuantileMechanism
from skdp.relations import check_relation


class Cell(NamedTuple):
    """An interval (lower, upper] of the values, and which of their quantiles there is asked for."""

    quantile: float
    lower: float
    upper: float


def split(
    cells: Sequence[Cell],
    values: np.ndarray,
    stream: SecureStream,
    *,
    epsilon: float,
    neighboring_relation: str,
    starts: np.ndarray | None = None,
) -> np.ndarray:
    """Release one quantile of each of several disjoint cells at the price of one.

    **Privacy.** ε-DP for neighbours under ``neighboring_relation``, and the log-density of all
    answers together moves by a function whose range is at most ε; charged by the caller. A cell has
    the law of `QuantileMechanism` on the values in it. A record is in one cell: a record that
    comes, goes or is zeroed out moves the log-density of one answer, over a range of ε. Where it is
    replaced it may leave one cell for another, so each has half of ε. The values of a person have
    weights that add up to 1 over all cells: the ranges of the cells, which are ε times the person's
    weight in each, add up to ε. Doubles err by 4ξ in each cell that is touched.

    Cells are public and in ascending order; of one without length the answer is its end. ``values``
    and ``starts`` are as in `QuantileMechanism.release`, and ε is well above 4ξ times the number of
    cells. Returns points of the cells, ascending.
    """
    factor = check_relation(neighboring_relation).factor
    each = (epsilon - 4 * WEIGHT_ERROR * len(cells)) / factor
    sensitivity = factor * max(2 * max(cell.quantile, 1 - cell.quantile) for cell in cells)

    def drawn() -> np.ndarray:
        answers = np.zeros(len(cells))
        for k, (quantile, low, high) in enumerate(cells):
            if low < high:
                inside = (values <= high) & ((values > low) if k else (values >= low))
                mechanism = QuantileMechanism(quantile, low, high, each)
                answers[k] = mechanism._draw(values, starts, stream.generator.integers, inside)
        return answers

    shape = (len(cells),)
    call = MechanismCall("quantile", sensitivity, sensitivity / epsilon, 1.0, shape, 0, 1.0)
    share = np.clip(release_hook.release(call, drawn) / GRID, 0.0, 1.0)
    lower, upper = np.array([cell[1:] for cell in cells]).T
    return np.minimum(lower + (upper - lower) * share, upper)
