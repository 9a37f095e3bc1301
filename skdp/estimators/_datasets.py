"""Rows that a map-style dataset of torch holds, read by their numbers when a step needs them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

_LOADED = (
    "Expected X to be an array or a map-style Dataset, got {}: each step draws a Poisson sample of "
    "the rows by itself. Pass {}."
)
_A_DICT = (
    "Expected items x or (x, y) of the dataset, got dicts: wrap it in a Dataset whose items are "
    "tuples of the arrays under two of their keys."
)


class DatasetRows:
    """The records of a dataset as rows (n, ...), none of them kept."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        (first,) = self._item(0)
        if first.ndim == 0 or first.dtype.kind not in "biuf":
            raise ValueError("Expected items of the dataset whose x is an array of numbers.")
        self.shape, self.dtype = (len(dataset), *first.shape), first.dtype
        self.ndim = len(self.shape)

    def _item(self, i: int, most: int = 1) -> list[np.ndarray]:
        """Read the first parts of an item, (x, y) or x; words of a failure could quote data."""
        try:
            item = self._dataset[i]
            if not isinstance(item, Mapping):
                parts = item if isinstance(item, tuple | list) else [item]
                return [np.asarray(part) for part in parts[:most]]
        except MemoryError:
            raise
        except Exception as error:
            raise ValueError(
                "Expected each item of the dataset to be x or (x, y), arrays of numbers, but one "
                f"cannot be read ({type(error).__name__})."
            ) from None
        raise ValueError(_A_DICT)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        return self.take(np.arange(len(self))[rows])

    def take(self, index: np.ndarray, axis: int = 0) -> np.ndarray:
        """Return some rows, (m, ...)."""
        out = np.empty((len(index), *self.shape[1:]), self.dtype)
        for place, i in zip(out, index.tolist(), strict=True):
            (place[...],) = self._item(i)
        return out

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self[:].astype(dtype or self.dtype, copy=False)

    def targets(self) -> list[Any]:
        """Read all of it once, and return the targets: (x, y) is what an item has to be."""
        found = []
        for i in range(len(self)):
            item = self._item(i, 3)
            if len(item) != 2:
                raise ValueError("Expected items (x, y) of the dataset, or y beside it.")
            self._check(item[0])
            if item[1].shape != (found or item[1:])[0].shape:
                raise ValueError("Expected items (x, y) of the dataset whose y have one shape.")
            found.append(item[1])
        return found

    def check(self) -> None:
        """Read all of it once."""
        for i in range(len(self)):
            self._check(*self._item(i))

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
        if len(targets) > 1:
            remedy = "weights are sample_weight, persons are groups of fit"
            raise ValueError(
                f"Expected a TensorDataset of x, or of x and y, not of more: {remedy}."
            )
        if with_targets and targets and y is not None:
            raise ValueError("Expected a TensorDataset of x alone, or no y: it holds targets.")
        return X, targets[0] if y is None and targets else y
    if not hasattr(X, "__len__") or not len(X):  # type: ignore[arg-type]
        raise ValueError("Expected a dataset that says how many records it has, at least one.")
    rows = DatasetRows(X)
    if not with_targets:
        return rows, y
    if y is not None:
        if len(rows._item(0, 2)) > 1:
            raise ValueError("Expected items x of the dataset, or no y: its items hold targets.")
        rows.check()
        return rows, y
    return rows, np.array(rows.targets())
