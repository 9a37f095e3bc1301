"""`ParquetRows`: the rows of Parquet files, some row groups at a time."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from glob import glob
from pathlib import Path
from typing import Any

import numpy as np

from skdp.fitting.validate import expected, integer
from skdp.rows.chunks import ChunkedRows

ROWS_PER_CHUNK = 2**17


class ParquetRows(ChunkedRows):
    """Rows of Parquet files, in chunks of whole row groups.

    Columns are read as a frame of pandas, under their names. Needs ``pip install skdp[parquet]``.

    Parameters
    ----------
    path : str, path or sequence of them
        A file, a directory of ``*.parquet`` files, a pattern such as ``"visits/*.parquet"``, or
        several files. Files are read in the order of their names; those of a sequence, in its own.
    columns : sequence of str or None, default=None
        Features, in their order; None is all columns but ``target`` and ``groups``.
    target : str or None, default=None
        Column of the labels or targets; None where there are none.
    groups : str or None, default=None
        Column of the persons, for ``unit=Persons(...)``.
    rows_per_chunk : int, default=131072
        Row groups are joined until a chunk has so many rows; a row group with more of them is a
        chunk by itself. Row groups of files that are to be fitted should have 10⁵ rows or so.

    Attributes
    ----------
    n_chunks : int
        Number of chunks.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import pandas as pd
    >>> from skdp import DPVariationalLogisticRegression
    >>> from skdp.data import ParquetRows
    >>> frame = pd.DataFrame(np.random.default_rng(0).uniform(-1, 1, (4000, 2)), columns=["a", "b"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     frame.assign(ill=frame.a > 0).to_parquet(folder + "/visits.parquet", row_group_size=500)
    ...     rows = ParquetRows(folder, target="ill", rows_per_chunk=1000)
    ...     model = DPVariationalLogisticRegression(classes=[False, True], n_samples=4000).fit(rows)
    >>> rows.n_chunks, model.feature_names_in_.tolist()
    (4, ['a', 'b'])
    """

    def __init__(
        self,
        path: Any,
        *,
        columns: Sequence[str] | None = None,
        target: str | None = None,
        groups: str | None = None,
        rows_per_chunk: int = ROWS_PER_CHUNK,
    ) -> None:
        most = integer(1, rows_per_chunk=rows_per_chunk)
        others = [name for name in (target, groups) if name is not None]
        chunks: list[list[tuple[str, int]]] = []  # files and numbers of row groups
        room = 0
        for file in _files(path):
            about = _parquet().ParquetFile(file).metadata
            names = about.schema.to_arrow_schema().names
            if columns is None:
                columns = [name for name in names if name not in others]
            for name in (*columns, *others):
                if name not in names:
                    raise ValueError(f"Expected a column {name!r} in each file; one has none.")
            for number in range(about.num_row_groups):
                n_rows = about.row_group(number).num_rows
                if not chunks or n_rows > room:
                    chunks.append([])
                    room = most
                room -= n_rows
                chunks[-1].append((file, number))
        if not chunks:
            raise ValueError("Expected at least one row, but the files of path have none.")
        self.columns, self.target, self.groups = tuple(columns or ()), target, groups
        self._chunks = chunks
        super().__init__(self._read, len(chunks))

    def _read(self, number: int) -> tuple[Any, ...]:
        others = self.target, self.groups
        names = [*self.columns, *(name for name in others if name is not None)]
        parts = [
            _parquet().ParquetFile(file, memory_map=True).read_row_group(group, names)
            for file, group in self._chunks[number]
        ]
        import pyarrow

        table = pyarrow.concat_tables(parts)
        y, groups = (None if name is None else table.column(name).to_numpy() for name in others)
        return _frame(table.select(list(self.columns))), y, groups


def _frame(table: Any) -> Any:
    """Make a frame, of numbers in one array, as fits read them."""
    import pandas as pd

    columns = [column.to_numpy() for column in table.columns]
    if not columns or any(column.dtype.kind not in "biuf" for column in columns):
        return table.to_pandas()
    rows = np.empty((table.num_rows, len(columns)), np.result_type(*columns), order="F")
    for number, column in enumerate(columns):
        rows[:, number] = column
    return pd.DataFrame(rows, columns=table.column_names, copy=False)


def _files(path: Any) -> Iterable[str]:
    """Files that a path names, in their order."""
    if not isinstance(path, str | os.PathLike):
        given = list(path) if isinstance(path, Sequence) else []
        if not given or not all(isinstance(one, str | os.PathLike) for one in given):
            raise expected("a path, a pattern or a sequence of paths", path=path)
        return [os.fspath(one) for one in given]
    text = os.fspath(path)
    if Path(text).is_dir():
        found = sorted(map(str, Path(text).glob("**/*.parquet")))
    else:
        found = sorted(glob(text, recursive=True))
    if not found:
        raise expected("the path of Parquet files that exist", path=path)
    return found


def _parquet() -> Any:
    try:
        import pandas  # noqa: F401
        import pyarrow.parquet
    except ImportError:
        raise ImportError(
            "ParquetRows needs pyarrow and pandas: pip install skdp[parquet]."
        ) from None
    return pyarrow.parquet
