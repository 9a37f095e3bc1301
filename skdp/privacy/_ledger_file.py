"""The ledger on disk: one JSON line an entry, locked between processes, synced before it counts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from skdp.fitting.types import Json

fcntl: Any
try:
    import fcntl
except ImportError:  # pragma: no cover - not a POSIX system
    fcntl = None


class LedgerFile:
    """Append-only file of lines; what `append` has returned from survives a crash.

    The file is made if it is not there. One that is ``passing`` is there only for as long as the
    process that made it, and so need not reach the disk.
    """

    def __init__(self, path: str | os.PathLike[str], *, passing: bool = False) -> None:
        self.path = Path(os.path.abspath(path))  # where it is now, wherever the process goes
        self.passing = passing
        if fcntl is None:
            raise ValueError("A ledger file needs file locks, which this system does not have.")

    @contextmanager
    def locked(self, *, make: bool = True) -> Iterator[IO[bytes]]:
        """Hold the file against other processes, and yield it; ``make`` it if it is not there."""
        descriptor = os.open(self.path, os.O_RDWR | (os.O_CREAT if make else 0), 0o600)
        with os.fdopen(descriptor, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # released when the file closes, by a crash too
            yield file

    def read(self, file: IO[bytes]) -> list[dict[str, Json]]:
        """Return all entries; a line that is not an entry is a ValueError: the total is unknown.

        A last line that breaks off is an entry whose writer died before the write was confirmed, so
        before it touched any data: it does not count, and the next write replaces it.
        """
        file.seek(0)
        *lines, tail = file.read().split(b"\n")
        if _is_entry(tail):  # whole, but for the end of its line
            lines.append(tail)
            tail = b""
        if not all(map(_is_entry, lines)) or tail[:9] != b'{"label":'[: len(tail)]:
            raise ValueError(
                f"The ledger file {self.path.name!r} has been damaged, or is not a ledger: one of "
                "its lines is not an entry. What was spent is unknown; restore the file before "
                "spending more."
            )
        return [json.loads(line) for line in lines]

    def append(self, file: IO[bytes], entry: dict[str, Json]) -> None:
        """Write an entry, and return when it is on the disk."""
        file.seek(0)
        content = file.read()
        start = content.rfind(b"\n") + 1
        if _is_entry(content[start:]):
            file.write(b"\n")
        else:  # over the torn line, if there is one
            file.seek(start)
            file.truncate()
        file.write(json.dumps(entry).encode() + b"\n")
        file.flush()
        if not self.passing:
            os.fsync(file.fileno())


def _is_entry(line: bytes) -> bool:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(entry, dict) and {"label", "neighboring_relation", "event"} <= entry.keys()
