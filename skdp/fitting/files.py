"""Files that are replaced as a whole, on the disk; and the versions that they are of."""

from __future__ import annotations

import os
import platform
import sys
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_info

from skdp._version import __version__

fcntl: Any

try:
    import fcntl
except ImportError:  # pragma: no cover - not a POSIX system
    fcntl = None


def new_file(path: Path) -> Path:
    """Where a file is written before it takes the place of another."""
    return Path(f"{path}.skdp-new")


def replaced(path: Path, content: Any) -> int:
    """Replace a file as a whole, on the disk; return the new one's descriptor, which holds it."""
    new = new_file(path)
    new.unlink(missing_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(new, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        os.fsync(descriptor)
        os.replace(new, path)
        synced(path.parent)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def synced(folder: Path) -> None:
    """Let what a folder lists reach the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    with suppress(OSError):  # not all file systems sync folders
        os.fsync(descriptor)
    os.close(descriptor)


def versions_here() -> dict[str, str]:
    """Versions and numbers of threads on which noise, and the rounding of sums, depend."""
    found = {name: version(name) for name in ("numpy", "randomgen", "torch")}
    found |= {"skdp": __version__, "python": platform.python_version()}
    threads = {f"{pool['user_api']} threads": pool["num_threads"] for pool in threadpool_info()}
    if "torch" in sys.modules:
        threads["torch threads"] = sys.modules["torch"].get_num_threads()
    return found | {name: str(number) for name, number in threads.items()}


def listed(versions: dict[str, str]) -> str:
    """Versions in words."""
    return ", ".join(f"{name} {number}" for name, number in sorted(versions.items()))
