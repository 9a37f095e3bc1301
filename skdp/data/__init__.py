"""Rows that outgrow memory: read in chunks from files or by a function, one chunk at a time.

>>> from skdp.data import ChunkedRows, ParquetRows, RowWise
"""

from skdp._chunked_rows import Chunk, ChunkedRows
from skdp.data._parquet import ParquetRows
from skdp.data._row_wise import RowWise

__all__ = ["Chunk", "ChunkedRows", "ParquetRows", "RowWise"]
