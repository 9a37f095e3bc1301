"""Rows and targets on their way into a network: a batch is copied a piece at a time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from skdp.rows.records import Selection, copied, selected_rows

_ROWS_ON_DEVICE = 2**32  # bytes of rows of which a device has a copy


class NetworkRecords:
    """Rows and targets on their way into a network.

    X (n, ...) has any numeric type and may be a memory map; inputs get the dtype and device of a
    tensor ``like``, or another dtype. From the second piece on a device has a copy of all rows, if
    there is room: to gather rows beside it takes longer than a step. With ``starts``, as in
    `LinearRows`, records are persons. Weights are those of rows.
    """

    def __init__(
        self,
        X: np.ndarray,
        targets: np.ndarray,
        like: Tensor,
        starts: np.ndarray | None = None,
        *,
        dtype: torch.dtype | None = None,
        weights: np.ndarray | None = None,
    ) -> None:
        self._X: Any = X
        self._targets: Any = targets
        self._starts, self._n_pieces = starts, 0
        self._weights = None if weights is None else torch.from_numpy(weights).to(like)
        self._device, self._dtype = like.device, dtype or like.dtype

    def __len__(self) -> int:
        return len(self._X) if self._starts is None else len(self._starts) - 1

    def sum(self, term: Callable[[NetworkBatch], Any], selection: Selection) -> Any:
        """Sum over the selected records."""
        return term(self.take(selection))

    def take(self, selection: Selection) -> NetworkBatch:
        """Note which records are in the batch; nothing is copied yet."""
        if isinstance(selection, slice):
            rows, starts = range(len(self._X)), self._starts
            return NetworkBatch(self, rows[selection] if starts is None else rows, starts)
        # In the order of the file.
        return NetworkBatch(self, *selected_rows(np.sort(selection), self._starts))

    def copy(self, rows: np.ndarray | range) -> tuple[Tensor, Tensor, Tensor | None]:
        """Copy rows and targets to the device, with weights if there are any."""
        index = slice(rows.start, rows.stop) if isinstance(rows, range) else rows
        weights = None if self._weights is None else self._weights[index]
        self._n_pieces += 1
        if self._n_pieces == 2 and self._device.type != "cpu" and self._X.nbytes <= _ROWS_ON_DEVICE:
            self._move()
        if isinstance(self._X, Tensor):
            at = index if isinstance(index, slice) else torch.from_numpy(index).to(self._device)
            x, y = self._X[at].clone(), self._targets[at].clone()
            return x.to(self._dtype), y, weights
        x, y = copied(self._X, index), copied(self._targets, index)
        if isinstance(index, slice):  # a network never gets the caller's memory
            x, y = np.array(x), np.array(y)
        x = torch.from_numpy(x).to(self._device, self._dtype)
        return x, torch.from_numpy(y).to(self._device), weights

    def _move(self) -> None:
        """Copy all rows to the device, if it has room."""
        with suppress(torch.OutOfMemoryError):
            both = (torch.from_numpy(np.array(a)) for a in (self._X, self._targets))
            self._X, self._targets = [a.to(self._device) for a in both]


class NetworkBatch(NamedTuple):
    """Some of the records, copied a piece at a time: numbers of rows, and whose they are."""

    records: NetworkRecords
    index: np.ndarray | range
    starts: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.index)

    def piece(self, start: int, stop: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """Copy some records of the batch."""
        return self.records.copy(self.index[start:stop])
