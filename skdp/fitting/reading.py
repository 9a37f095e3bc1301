"""The private rows of a fit, as they were read: at once, or a chunk at a time."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from skdp.fitting.plan import FitPlan, PublicFacts
from skdp.fitting.warnings import FitWarning
from skdp.rows.chunk_tasks import Chunk
from skdp.rows.chunks import ArrayInChunks
from skdp.rows.sparse import SparseRows

if TYPE_CHECKING:
    pass


class Records(NamedTuple):
    """The private rows of a fit, checked, with their targets where there are any.

    Where persons are the records, the rows of each lie together.

    Parameters
    ----------
    X : ndarray of shape (n, n_features)
        Rows.
    targets : ndarray of shape (n, ...)
        Targets in the form that a run reads; of any shape for a run that reads none.
    starts : ndarray of shape (n_persons + 1,) or None, default=None
        Where each person's rows begin, and where all end; None where a row is a record.
    weights : ndarray of shape (n,) or None, default=None
        Weights of rows, of which a bound is declared; None where all are 1.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp.base import Records
    >>> len(Records(np.zeros((5, 2)), np.zeros(5)).X)
    5
    """

    X: np.ndarray
    targets: np.ndarray
    starts: np.ndarray | None = None
    weights: np.ndarray | None = None

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """All that there is; of rows in chunks, their fingerprints."""
        if isinstance(self.X, ArrayInChunks):
            return (self.X.fingerprints,)
        arrays = tuple(array for array in self if array is not None)
        return (*self.X.arrays, *arrays[1:]) if isinstance(self.X, SparseRows) else arrays


def refuse_beside(given: Any) -> None:
    """Refuse what was given beside rows in chunks."""
    if given is not None:
        raise ValueError(
            "Expected nothing beside rows in chunks: a chunk is X, (X, y) or (X, y, groups)."
        )


def with_state(estimator: Any, state: dict[str, Any]) -> Any:
    """Another of the class with these very attributes: pickling and copying may make others."""
    other = object.__new__(type(estimator))
    vars(other).update(state)
    return other


def read_chunk(
    estimator: Any, how: dict[str, Any], subset: bytes, chunk: Chunk
) -> tuple[Records, tuple[PublicFacts, dict[str, Any], bool]]:
    """Read a chunk as rows in memory are read; return what is public, and learned, beside them."""
    reader, before = with_state(estimator, vars(estimator)), vars(estimator)
    records, facts = reader._read_all(chunk.X, chunk.y, **how)
    records = reader._by_person(records, chunk.groups, subset)
    learned = {k: v for k, v in vars(reader).items() if k not in before or before[k] is not v}
    return records, (facts, learned, chunk.groups is not None)


def check_in_chunks(estimator: Any, plan: FitPlan, records: Records) -> None:
    """Refuse rows in chunks where a run needs more of them than sums; say how long passes take."""
    if not isinstance(records.X, ArrayInChunks):
        return
    config, name = plan.config, plan.facts.label
    if not getattr(config, "asks_sums", False):
        instead = getattr(config, "instead_of_all_rows", "")
        raise ValueError(
            f"Expected arrays: {name} with these parameters needs all rows at once, and takes none "
            "in chunks." + f" Or use {instead}." * bool(instead)
        )
    n_passes = getattr(config, "n_passes", config.n_releases)
    minutes, told = 0.0, f"{name} reads all chunks {n_passes} times at most."
    if estimator._relation.n_is_public:  # or else the time would tell of it
        minutes = n_passes * records.X.reading.seconds / 60.0
        told += (
            f" The first look at them took {records.X.reading.seconds:.2g} s: that makes "
            f"{minutes:.2g} minutes, or about."
        )
    if getattr(estimator, "verbose", 0):
        print(told)
    elif minutes > _MANY_MINUTES:
        warnings.warn(told, FitWarning, stacklevel=5)


_MANY_MINUTES = 10.0
