"""Private records of a network: arrays of any size, of which only batches are ever copied."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from skdp._rows import copied


class NetworkRecords:
    """Rows and targets on their way into a network.

    Parameters
    ----------
    X : ndarray of shape (n, ...)
        Inputs of any numeric type; may be a memory map.
    targets : ndarray of shape (n, ...)
        Targets as the loss wants them.
    like : Tensor
        Whose dtype and device the inputs get.
    """

    def __init__(self, X: np.ndarray, targets: np.ndarray, like: Tensor) -> None:
        self._X, self._targets, self._like = X, targets, like

    def __len__(self) -> int:
        return len(self._X)

    def take(self, selection: slice | np.ndarray) -> NetworkBatch:
        """Note which records are in the batch; nothing is copied yet."""
        if isinstance(selection, slice):
            index = np.arange(*selection.indices(len(self)))
            return NetworkBatch(self, index, contiguous=True)
        return NetworkBatch(self, np.sort(selection), contiguous=False)  # in the order of the file

    def copy(self, index: np.ndarray | slice) -> tuple[Tensor, Tensor]:
        """Copy records to the device."""
        device, dtype = self._like.device, self._like.dtype
        x, y = copied(self._X, index), copied(self._targets, index)
        if isinstance(index, slice):  # a network never gets the caller's memory
            x, y = np.array(x), np.array(y)
        return torch.from_numpy(x).to(device, dtype), torch.from_numpy(y).to(device)


class NetworkBatch(NamedTuple):
    """Some of the records, copied a piece at a time."""

    records: NetworkRecords
    index: np.ndarray
    contiguous: bool

    def __len__(self) -> int:
        return len(self.index)

    def piece(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Copy some records of the batch."""
        if self.contiguous:
            first = int(self.index[0]) if len(self.index) else 0
            return self.records.copy(slice(first + start, first + stop))
        return self.records.copy(self.index[start:stop])
