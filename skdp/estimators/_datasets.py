"""Rows that a map-style dataset of torch holds, read by their numbers when a step needs them."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

_LOADED = (
    "Expected X to be an array or a map-style Dataset, got {}: each step draws a Poisson sample of "
    "the rows by itself. Pass {}."
)


class DatasetRows:
    """The records of a dataset as rows (n, ...), none of them kept.

    Parameters
    ----------
    dataset : Dataset
        Item i is x, or begins with x.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        first = self._row(0)
        self.shape, self.dtype = (len(dataset), *first.shape), first.dtype
        self.ndim = len(self.shape)

    def _row(self, i: int) -> np.ndarray:
        item = self._dataset[i]
        return np.asarray(item[0] if isinstance(item, tuple | list) else item)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        return self.take(np.arange(len(self))[rows])

    def take(self, index: np.ndarray, axis: int = 0) -> np.ndarray:
        """Return some rows, (m, ...)."""
        out = np.empty((len(index), *self.shape[1:]), self.dtype)
        for place, i in zip(out, index.tolist(), strict=True):
            place[...] = self._row(i)
        return out

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self[:].astype(dtype or self.dtype, copy=False)

    def targets(self) -> list[Any]:
        """Read all of it once, and return the targets: (x, y) is what an item has to be."""
        found = []
        for i in range(len(self)):
            item = self._dataset[i]
            if not isinstance(item, tuple | list) or len(item) != 2:
                raise ValueError("Expected items (x, y) of the dataset, or y beside it.")
            self._check(np.asarray(item[0]))
            found.append(np.asarray(item[1]))
        return found

    def check(self) -> None:
        """Read all of it once."""
        for i in range(len(self)):
            self._check(self._row(i))

    def _check(self, row: np.ndarray) -> None:
        if row.shape != self.shape[1:] or row.dtype != self.dtype:
            raise ValueError("Expected items of the dataset to have one shape and one type.")
        if row.dtype.kind == "f" and not np.isfinite(row).all():
            raise ValueError("Input X contains NaN or infinity; drop those records.")


def from_dataset(X: Any, y: Any, *, with_targets: bool = True) -> tuple[Any, Any]:
    """Return rows and targets where X is a dataset, and what was given where it is not."""
    if isinstance(X, DataLoader):
        raise ValueError(_LOADED.format("a DataLoader", "loader.dataset"))
    if isinstance(X, IterableDataset):
        raise ValueError(
            _LOADED.format("an IterableDataset", "one that is read by index, or a numpy.memmap")
        )
    if not isinstance(X, Dataset):
        return X, y
    if isinstance(X, TensorDataset):
        X, *targets = (tensor.numpy(force=True) for tensor in X.tensors)
        return X, targets[0] if y is None and targets else y
    if not hasattr(X, "__len__") or not len(X):  # type: ignore[arg-type]
        raise ValueError("Expected a dataset that says how many records it has, at least one.")
    rows = DatasetRows(X)
    if not with_targets:
        return rows, y
    if y is not None:
        rows.check()
        return rows, y
    return rows, np.array(rows.targets())
