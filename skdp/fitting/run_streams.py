"""What a checkpoint is made of: streams per step, states as numbers, files replaced whole."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

from skdp._version import __version__
from skdp.fitting.streams import SecureStream, Streams, hashed, this_process
from skdp.fitting.validate import expected


class RunStreams(Streams):
    """Streams of a run that can be resumed: those of a step are a function of a key and its number.

    ``run`` keys the streams that are no step's, ``chain`` those of the first step. ``keep`` gets
    the number of steps done and what makes the state; ``seen`` a step's exact sum, before its
    noise.
    """

    by_step = True

    def __init__(
        self,
        run: bytes,
        chain: bytes,
        step: int,
        saved: Any = None,
        keep: Callable[[int, Callable[[], Any]], None] | None = None,
        seen: Callable[[int, Any], None] | None = None,
    ) -> None:
        super().__init__()
        self._master, self._chain, self._step = run, chain, step
        self._present = Streams.of(chain)
        self.first, self.saved, self._keep, self._seen = step, saved, keep, seen

    def __call__(self, purpose: str) -> SecureStream:
        """Return the stream for one purpose, once."""
        self._check_process()
        return super().__call__(purpose)

    def keep(self, step: int, save: Callable[[], Any]) -> None:
        """Keep the state after a number of steps, if there is a place for it."""
        if self._keep is not None:
            self._keep(step, save)

    def compared(self, step: int, value: Callable[[], Any]) -> Callable[[], Any]:
        """Return what computes the exact sum of a step, and holds it against an earlier attempt."""
        seen = self._seen
        if seen is None:
            return value

        def computed() -> Any:
            exact = value()
            seen(step, exact)
            return exact

        return computed

    def chained(self, step: int) -> bytes:
        """Return the key of the present step or of a later one."""
        if step < self._step:
            raise RuntimeError("The keys of earlier steps are gone.")
        chain = self._chain
        for _ in range(step - self._step):
            chain = hashed(b"next", chain)
        return chain

    def of_step(self, step: int) -> Streams:
        """Return the streams of the present step, or move on to a later one."""
        self._check_process()
        if step != self._step:
            self._chain, self._step = self.chained(step), step
            self._present = Streams.of(self._chain)
        return self._present

    def _check_process(self) -> None:
        if this_process() != self._process:  # here the key that must not repeat is the very same
            raise RuntimeError("A run with a checkpoint cannot go on in a forked child.")


# --- states as numbers --------------------------------------------------------------------------


def encoded(value: Any, arrays: list[np.ndarray]) -> Any:
    """Return what JSON can hold of numbers, text and containers, and append arrays and tensors."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple | list):
        return [encoded(one, arrays) for one in value]
    if isinstance(value, dict) and all(isinstance(k, int | str) for k in value):
        return {"items": [[k, encoded(one, arrays)] for k, one in value.items()]}
    array = array_of(value)
    if array is None:
        kind = type(value).__name__
        raise expected(
            f"None, because the optimiser or the module has a state ({kind}) that no file of "
            "numbers can hold",
            checkpoint="given",
        )
    arrays.append(array)
    return {"array": len(arrays) - 1}


def decoded(value: Any, arrays: Sequence[np.ndarray]) -> Any:
    """Undo `encoded`, but for tuples and tensors, which become lists and arrays."""
    if isinstance(value, list):
        return [decoded(one, arrays) for one in value]
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return arrays[value["array"]]
    return {k: decoded(one, arrays) for k, one in value["items"]}


def array_of(value: Any) -> np.ndarray | None:
    """Return the numbers or texts of an array or a tensor; None for anything else."""
    if not isinstance(value, np.ndarray | np.generic):
        try:
            value = value.numpy(force=True)
        except (AttributeError, TypeError):  # no tensor, or one of numbers that numpy lacks
            return None
    return np.asarray(value) if value.dtype.kind in "biufcSU" else None


def plain(value: Any) -> Any:
    """Return a parameter as the builtin object that means the same to every estimator."""
    if type(value) in (np.float64, np.int64, np.bool_, np.str_):
        return value.item()
    is_device = f"{type(value).__module__}.{type(value).__name__}" == "torch.device"
    return str(value) if is_device else value


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
