"""Rows that outgrow memory: read in chunks from files or by a function, one chunk at a time.

>>> from skdp.data import ChunkedRows, ParquetRows, RowWise
"""

from skdp.data._parquet import ParquetRows
from skdp.data._row_wise import RowWise
from skdp.rows.chunk_tasks import Chunk
from skdp.rows.chunks import ChunkedRows

__all__ = ["Chunk", "ChunkedRows", "ParquetRows", "RowWise"]
