"""`CSVRows`: the rows of CSV files, some at a time."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from skdp.fitting.validate import expected, integer
from skdp.rows.chunks import ChunkedRows

ROWS_PER_CHUNK = 2**17


class CSVRows(ChunkedRows):
    """Rows of CSV files with a header line each, in chunks of so many rows.

    When it is made, it reads the files once, to learn where chunks begin; rows are parsed when a
    fit asks for them. Columns are read as a frame of pandas, under their names.

    Parameters
    ----------
    files : sequence of str or path
        In their order. UTF-8, with commas; columns may be in another order in each.
    columns : sequence of str
        Features, in their order: numbers, NaN where there is none.
    target : str or None, default=None
        Column of the labels or targets; None where there are none.
    groups : str or None, default=None
        Column of the persons, for ``unit=Persons(...)``.
    rows_per_chunk : int, default=131072
        A chunk has so many rows; the last one of a file may have fewer.

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
    >>> from skdp.data import CSVRows
    >>> frame = pd.DataFrame(np.random.default_rng(0).uniform(-1, 1, (4000, 2)), columns=["a", "b"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     frame.assign(ill=frame.a > 0).to_csv(folder + "/visits.csv", index=False)
    ...     rows = CSVRows([folder + "/visits.csv"], columns=["a", "b"], target="ill")
    ...     model = DPVariationalLogisticRegression(classes=[False, True], n_samples=4000).fit(rows)
    >>> rows.n_chunks, model.feature_names_in_.tolist()
    (1, ['a', 'b'])
    """

    def __init__(
        self,
        files: Sequence[str | os.PathLike],
        *,
        columns: Sequence[str],
        target: str | None = None,
        groups: str | None = None,
        rows_per_chunk: int = ROWS_PER_CHUNK,
    ) -> None:
        most = integer(1, rows_per_chunk=rows_per_chunk)
        if isinstance(files, str | os.PathLike) or not all(map(os.path.isfile, files)):
            raise expected("a sequence of paths of CSV files that exist", files=files)
        self.columns, self.target, self.groups = list(columns), target, groups
        self._wanted = [*columns, *(name for name in (target, groups) if name is not None)]
        self._chunks = [chunk for file in files for chunk in _chunks(file, self._wanted, most)]
        if not self._chunks:
            raise ValueError("Expected at least one row, but the files have none.")
        super().__init__(self._read, len(self._chunks))

    def _read(self, number: int) -> tuple[Any, ...]:
        import pandas as pd

        file, names, start, n_rows = self._chunks[number]
        with open(file, "rb") as lines:
            lines.seek(start)
            types: Any = dict.fromkeys(self.columns, "float64")  # the same in all chunks
            how = {"header": None, "names": names, "usecols": self._wanted, "dtype": types}
            frame = pd.read_csv(lines, nrows=n_rows, **how)
        y, groups = (None if n is None else frame[n].to_numpy() for n in (self.target, self.groups))
        return frame[self.columns], y, groups


def _chunks(file: Any, wanted: list[str], most: int) -> Iterator[tuple[Any, list[str], int, int]]:
    """Yield of each chunk of a file: where it begins, and how many rows it has."""
    with open(file, "rb") as lines:  # no line is read ahead: `tell` is where the next row begins
        reader = csv.reader(line.decode("utf-8-sig") for line in iter(lines.readline, b""))
        names = next(reader, [])
        for name in wanted:
            if name not in names:
                raise ValueError(f"Expected a column {name!r} in each file; one has none.")
        rows, start = filter(None, reader), lines.tell()  # an empty line is no row
        while n_rows := sum(1 for _ in islice(rows, most)):
            yield file, names, start, n_rows
            start = lines.tell()
