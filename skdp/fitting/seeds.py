"""Random streams of a fit, and what else of it is drawn."""

from __future__ import annotations

import inspect
import os
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state

from skdp._version import __version__
from skdp.fitting import checkpoint as checkpoints
from skdp.fitting.streams import Streams, seed_material
from skdp.rows.bounds import row_norm

if TYPE_CHECKING:
    pass


def streams(estimator: Any, *arrays: np.ndarray) -> Streams:
    """Return the random streams of a fit: keyed by the system, or by the seed and all of the input.

    With a seed, no two data sets, folds or settings share noise, while the same fit repeats. Those
    of a run with a checkpoint are the run's.
    """
    checkpoint = checkpoints.current()
    if checkpoint is not None and checkpoint.streams is not None:
        return checkpoint.streams
    if estimator.random_state is None:
        return Streams()
    seed = check_random_state(estimator.random_state).randint(2**31 - 1)
    elsewhere = ("random_state", *checkpoints.PLACES)
    parameters = {k: _named(v) for k, v in estimator.get_params().items() if k not in elsewhere}
    parameters["declared norms"] = [row_norm(array) for array in arrays]
    name = f"{type(estimator).__qualname__} {__version__}"
    return Streams(seed_material(int(seed), name, parameters, *arrays))


def _named(value: Any) -> Any:
    """Name a function that can be imported, whose repr is an address; other functions keep it."""
    if inspect.isroutine(value) and "<" not in value.__qualname__:
        return f"{value.__module__}.{value.__qualname__}"
    return value


def system_bytes(purpose: str, size: int) -> bytes:
    """Return random bytes, which are the same again in a run that is resumed."""
    checkpoint = checkpoints.current()
    return os.urandom(size) if checkpoint is None else checkpoint.derived(purpose)[:size]


def fingerprint_key(estimator: Any) -> bytes:
    """Return a key of fingerprints, which repeat in a seeded fit: its streams are keyed by them."""
    return system_bytes("chunks", 16) if estimator.random_state is None else bytes(16)


def initial_seed(estimator: Any) -> int:
    """Return a seed for initial weights, which need not be secret: no function of the data."""
    if estimator.random_state is None:
        return int.from_bytes(system_bytes("initial weights", 4), "little")
    return int(check_random_state(estimator.random_state).randint(2**31 - 1))
