"""How child processes find the ledgers that a process above them holds open.

A search with ``n_jobs=2`` fits in worker processes, which may be older than the ledger. So an open
ledger is announced in a folder of the user's own, under the number of its process, and a process
that is about to spend looks up the processes above it. An announcement counts while its file is
locked: the system releases the lock when the process ends, whatever way.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import psutil

from skdp.privacy._ledger_file import fcntl


def announce(ledger: dict[str, Any]) -> IO[str]:
    """Announce an open ledger to the processes below; `withdraw` takes it back.

    Raises
    ------
    OSError
        If there is no folder to do so. The ledger would not see what those processes spend.
    """
    _sweep()
    descriptor, name = tempfile.mkstemp(prefix=f"{os.getpid()}-", suffix=".new", dir=folder())
    file = os.fdopen(descriptor, "w")
    fcntl.flock(file, fcntl.LOCK_EX)
    json.dump(ledger, file)
    file.flush()
    _names[file] = name.removesuffix(".new") + ".open"
    os.rename(name, _names[file])  # nobody sees it before it is whole and locked
    return file


def withdraw(file: IO[str]) -> None:
    """Take an announcement back."""
    Path(_names.pop(file)).unlink(missing_ok=True)
    file.close()


_names: dict[IO[str], str] = {}


def announced_above() -> list[dict[str, Any]]:
    """Ledgers that processes above this one hold open."""
    if fcntl is None or not os.path.isdir(_folder_name()):
        return []
    return [ledger for process in psutil.Process().parents() for ledger in _of(process.pid)]


def _of(pid: int | str) -> Iterator[dict[str, Any]]:
    """Announcements of one process; those that a killed one left behind are removed."""
    for path in sorted(folder().glob(f"{pid}-*.open")):
        try:
            with path.open() as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:  # held
                    yield json.load(file)
                else:
                    path.unlink()
        except FileNotFoundError:  # withdrawn meanwhile
            continue


def _sweep() -> None:
    for _ in _of("*"):
        pass


def folder() -> Path:
    """Folder of announcements and of ledgers in memory, for this user's eyes alone."""
    path = Path(_folder_name())
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise OSError(
            f"The folder {path.name!r} among the temporary files is not this user's own, so "
            "ledgers cannot be kept there; remove it, or set TMPDIR."
        )
    return path


def _folder_name() -> str:
    return os.path.join(tempfile.gettempdir(), f"skdp-ledgers-{os.getuid()}")
