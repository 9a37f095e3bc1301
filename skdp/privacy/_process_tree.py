"""How child processes find the ledgers that a process above them holds open.

A search with ``n_jobs=2`` fits in worker processes, which may be older than the ledger. So an open
ledger is announced in a folder of the user's own, under the number of its process, and a process
that is about to spend looks up the processes above it. It misses the ledger where a process in
between has ended, the user is another, or the folder is not the same. An announcement counts while
its file is locked: the system releases the lock when the process ends, whatever way.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import psutil

from skdp.fitting.types import Json
from skdp.privacy._ledger_file import fcntl

_A_DAY = 86_400


def announce(ledger: dict[str, Json]) -> IO[str]:
    """Announce an open ledger to processes below, which else spend unseen; `withdraw` ends it."""
    _sweep()
    pid = os.getpid()
    descriptor, name = tempfile.mkstemp(prefix=f"{pid}-", suffix=".new", dir=folder())
    file = os.fdopen(descriptor, "w")
    fcntl.flock(file, fcntl.LOCK_EX)
    json.dump(ledger, file)
    file.flush()
    public = name.removesuffix(".new") + ".open"
    os.rename(name, public)  # no one sees it before it is whole and locked
    _announced[file] = pid, public
    return file


def withdraw(file: IO[str]) -> None:
    """Take an announcement back; a forked child only lets go of it."""
    pid, name = _announced.pop(file)
    if pid == os.getpid():
        Path(name).unlink(missing_ok=True)
    file.close()


_announced: dict[IO[str], tuple[int, str]] = {}


def new_ledger_file() -> str:
    """Make the file of a ledger that lives as long as its process."""
    descriptor, name = tempfile.mkstemp(prefix=f"ledger-{os.getpid()}-", dir=folder())
    os.close(descriptor)
    return name


def announced_above() -> list[dict[str, Json]]:
    """Ledgers that processes above this one hold open."""
    if fcntl is None or not os.path.isdir(_folder_name()):
        return []
    announced = sorted(folder().glob("*.open"))
    if not announced:
        return []
    # Only now: to walk up the processes takes as long as a small fit.
    above = {str(process.pid) for process in psutil.Process().parents()}
    return list(_held(path for path in announced if path.name.partition("-")[0] in above))


def _held(paths: Iterable[Path]) -> Iterator[dict[str, Json]]:
    """Announcements of living processes; those that a killed one left behind are removed."""
    for path in paths:
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
    """Remove what processes that were killed left behind."""
    for _ in _held(folder().glob("*.open")):
        pass
    for path in folder().glob("ledger-*"):
        with contextlib.suppress(FileNotFoundError, IndexError, ValueError):
            gone = not psutil.pid_exists(int(path.name.split("-")[1]))
            if gone and time.time() - path.stat().st_mtime > _A_DAY:  # no child goes on with it
                path.unlink()


def folder() -> Path:
    """Folder of announcements and of ledgers in memory, for this user's eyes alone."""
    path = Path(_folder_name())
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise OSError(
            f"The folder {path.name!r} among the temporary files is not this user's own, so "
            "ledgers cannot be kept there; remove it."
        )
    return path


def _folder_name() -> str:
    # Not that of TMPDIR, which a child may have changed.
    shared = "/tmp" if os.access("/tmp", os.W_OK) else tempfile.gettempdir()
    return os.path.join(shared, f"skdp-ledgers-{os.getuid()}")
