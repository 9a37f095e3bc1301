"""Types of what users hand over, of estimators as far as skdp knows them, and of checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["ArrayLike", "Estimator", "Given", "Json", "Label", "Opaque", "Params", "Seed"]


Given: TypeAlias = ArrayLike | None  # an array that may be left out

Seed: TypeAlias = int | np.random.RandomState | None  # random_state, as in scikit-learn

Label: TypeAlias = str | float | np.generic  # of one class

Params: TypeAlias = dict[str, Any]  # arguments by name, as `get_params` returns them

Json: TypeAlias = "Mapping[str, Json] | Sequence[Json] | str | float | None"


EVERY = 50  # steps from one checkpoint to the next
PLACES = ("checkpoint", "every")  # parameters that say where one is, and nothing of the run


class Estimator(Protocol):
    """What has parameters, in the way of scikit-learn."""

    def get_params(self, deep: bool = True) -> Params: ...  # noqa: D102
    def set_params(self, **params: Any) -> Estimator: ...  # noqa: D102


class Opaque(Protocol):
    """An object of a class that skdp does not know: its attributes are read by name."""

    def __getattr__(self, name: str, /) -> Any: ...
