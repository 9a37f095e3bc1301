"""States of optimisers and modules as numbers, which a checkpoint can hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from skdp.fitting.validate import expected

# --- states as numbers --------------------------------------------------------------------------


def encoded(value: Any, arrays: list[np.ndarray]) -> Any:
    """Return what JSON can hold, and append arrays and tensors.

    Parameters
    ----------
    value : Any
        Numbers, text, arrays and tensors in tuples, lists and dicts.
    arrays : list of ndarray
        Gets those that the value holds.

    Raises
    ------
    ValueError
        If it holds anything else.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple | list):
        return [encoded(one, arrays) for one in value]
    if isinstance(value, dict) and all(isinstance(k, int | str) for k in value):
        return {"items": [[k, encoded(one, arrays)] for k, one in value.items()]}
    array = array_of(value)
    if array is None:
        kind = type(value).__name__
        raise expected(
            f"None, because the optimiser or the module has a state ({kind}) that no file of "
            "numbers can hold",
            checkpoint="given",
        )
    arrays.append(array)
    return {"array": len(arrays) - 1}


def decoded(value: Any, arrays: Sequence[np.ndarray]) -> Any:
    """Undo `encoded`, but for tuples and tensors, which become lists and arrays."""
    if isinstance(value, list):
        return [decoded(one, arrays) for one in value]
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return arrays[value["array"]]
    return {k: decoded(one, arrays) for k, one in value["items"]}


def array_of(value: Any) -> np.ndarray | None:
    """Return the numbers or texts of an array or a tensor; None for anything else."""
    if not isinstance(value, np.ndarray | np.generic):
        try:
            value = value.numpy(force=True)
        except (AttributeError, TypeError):  # no tensor, or one of numbers that numpy lacks
            return None
    return np.asarray(value) if value.dtype.kind in "biufcSU" else None


def plain(value: Any) -> Any:
    """Return a parameter as the builtin object that means the same to every estimator."""
    if type(value) in (np.float64, np.int64, np.bool_, np.str_):
        return value.item()
    return (
        str(value)
        if f"{type(value).__module__}.{type(value).__name__}" == "torch.device"
        else value
    )
