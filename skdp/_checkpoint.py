"""Checkpoints: a run that was killed goes on with the same releases, and is charged once.

Two files. The *checkpoint* holds the state after some step: a function of what was released. The
*key file* beside it (``.key``, mode 0600) holds what noise, batches and masks of the steps to come
are functions of. So a step that was under way when the process died is made again with the same
noise, on the same batch, at the same parameters: the same value, not another release.

    k_{t+1} = H(k_t),    noise, coins and masks of step t: streams keyed by H'(k_t)

With each checkpoint the key file moves on: who reads it learns the noise of later steps, and of
none before. Fresh noise would need no key on the disk, but only a run of which nothing was seen
since its checkpoint, and which is resumed once: a copied file or a second resumption would be
further releases that were not paid for.

What must be as it was is compared before the charge: versions, parameters, and rows by a MAC under
the key file's secret. Files are replaced as a whole, and no file is a pickle.

>>> from skdp._checkpoint import RunStreams
>>> streams = RunStreams(bytes(32), bytes(32), step=0)
>>> again = RunStreams(bytes(32), streams.chained(3), step=3)
>>> noise = [s.of_step(3)("noise").normal(2) for s in (streams, again)]
>>> bool((noise[0] == noise[1]).all())
True
"""

from __future__ import annotations

import copyreg
import functools
import hmac
import io
import json
import os
import stat
import sys
import sysconfig
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from skdp._random import SecureStream, Streams, hashed
from skdp._validate import expected, integer
from skdp._version import __version__

fcntl: Any
try:
    import fcntl
except ImportError:  # pragma: no cover - not a POSIX system
    fcntl = None

FORMAT, EVERY = 1, 50
_BLOCK = 2**14  # rows that are hashed at once
PLACES = ("checkpoint", "every")  # parameters that say where, and nothing of the run
_WORDS = "Key of a private fit that has not ended: as secret as its rows. The fit deletes it."


class RunStreams(Streams):
    """Streams of a run that can be resumed: those of a step are a function of a key and its number.

    Parameters
    ----------
    run : bytes of length 32
        Keys the streams that are no step's.
    chain : bytes of length 32
        Key of a step, from which those of later ones follow.
    step : int
        That step, with which the run begins.
    saved : Any, default=None
        State with which it begins.
    keep : callable or None, default=None
        Called with a number of steps done and with what makes the state after them.
    """

    by_step = True

    def __init__(
        self,
        run: bytes,
        chain: bytes,
        step: int,
        saved: Any = None,
        keep: Callable[[int, Callable[[], Any]], None] | None = None,
    ) -> None:
        super().__init__()
        self._master, self._chain, self._step = run, chain, step
        self._present = Streams.of(chain)
        self.first, self.saved, self._keep = step, saved, keep

    def __call__(self, purpose: str) -> SecureStream:
        """Return the stream for one purpose, once."""
        self._check_process()
        return super().__call__(purpose)

    def keep(self, step: int, save: Callable[[], Any]) -> None:
        """Keep the state after a number of steps, if there is a place for it."""
        if self._keep is not None:
            self._keep(step, save)

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
        if os.getpid() != self._pid:  # here the key that must not repeat is the very same
            raise RuntimeError("A run with a checkpoint cannot go on in a forked child.")


class Checkpoint:
    """The files of one run: found, to be resumed, or to be made.

    Parameters
    ----------
    path : str or path-like
        The checkpoint.
    every : int
        Number ≥ 1 of steps from one checkpoint to the next.
    parameters : dict
        What the run depends on besides its rows.

    Attributes
    ----------
    name : str
        Of the run: random, and in the ledger's entry.
    streams : RunStreams or None
        Streams of the run, once it has begun.
    notes : list
        Kept with the state: functions of what was released.
    charged : bool
        Whether the run has been charged, or may have been.
    """

    def __init__(self, path: Any, every: int, parameters: dict[str, Any]) -> None:
        if not isinstance(path, str | os.PathLike) or not os.path.basename(os.fspath(path)):
            raise expected("None or the path of a file", checkpoint=path)
        if fcntl is None:
            raise expected("None on a system without file locks", checkpoint=path)
        self._every = integer(1, every=every)
        self._path = Path(os.path.abspath(path))  # where it is now, wherever the process goes
        self._key_path = Path(f"{self._path}.key")
        self.name, self.streams, self.notes = os.urandom(16).hex(), None, []
        self._found: dict[str, Any] | None = None
        self._made = False  # whether what may lie at the path is ours
        self.charged = self._path.exists()
        if self.charged and not self._key_path.exists():
            raise self._refused(f"has no key file {self._key_path.name}", "Restore that file")
        self._descriptor = self._locked()
        if not self.charged and not self._ours():
            os.close(self._descriptor)
            raise ValueError(
                f"Expected checkpoint={self._path.name!r} to be a path beside which there is no "
                f"file {self._key_path.name} yet; give another one, or, if that is the key of a "
                "run, put its checkpoint back. Nothing has been charged now."
            )
        try:
            new: dict[str, Any] = {"secret": os.urandom(32).hex()}
            self._key = self._read_key() if self.charged else new
            self.secret = bytes.fromhex(self._key["secret"])
            self._parameters = {
                name: described(self.secret, value)
                for name, value in parameters.items()
                if name not in (*PLACES, "verbose")
            }
            if self.charged:
                self._found = self._read()
                self.name = self._found["name"]
                self.notes += map(tuple, self._found["notes"])
        except BaseException:
            self.close(ended=False)
            raise

    def derived(self, purpose: str) -> bytes:
        """Return 32 bytes that are the same whenever the run is resumed."""
        return hashed(self.secret, purpose.encode())

    # --- beginning and end ----------------------------------------------------------------------

    def begin(self, facts: str, event: str, arrays: Sequence[np.ndarray], streams: Streams) -> None:
        """Begin the run with streams, or hold it against what was found; before the charge.

        Parameters
        ----------
        facts, event : str
            What the plan was made of, and what it will release.
        arrays : sequence of ndarray
            All that a step reads: rows, with what stands beside them, and weights.
        streams : Streams
            Keys a new run.
        """
        mac = _Mac(self.secret, facts)
        for array in arrays:
            mac.add(array)
        rows, event = mac.hexdigest(), described(self.secret, event)
        found, key = self._found, self._key
        if found is None:
            self._about = {
                "format": FORMAT,
                "versions": _versions(),
                "name": self.name,
                "parameters": self._parameters,
                "event": event,
                "rows": rows,
            }
            run, chain, first, saved = streams.secret("run"), streams.secret("chain"), 0, None
            self._made = True
            self._key = {**key, "words": _WORDS, "format": FORMAT, "run": run.hex()}
            self._key["begun"] = False
            self._write_key(0, chain)
            self._write(0, None)
            self._key["begun"] = True
            self._write_key(0, chain)
        else:
            if not hmac.compare_digest(rows, found["rows"]):
                raise self._refused(
                    "is of a fit to other rows, targets, weights or persons, or from other "
                    "initial weights",
                    "Fit the same rows in the same order, or give another path",
                )
            if event != found["event"]:
                raise self._refused("is of a fit with another plan", "Give another path")
            self._about = {k: v for k, v in found.items() if k not in ("step", "state", "notes")}
            run, first, saved = bytes.fromhex(key["run"]), found["step"], found["state"]
            chain = RunStreams(run, bytes.fromhex(key["chain"]), key["step"]).chained(first)
        self.streams = RunStreams(run, chain, first, saved, self._keep)

    def close(self, *, ended: bool) -> None:
        """Delete the files of a run that has ended or was never charged; let go of the others."""
        if ended or not self.charged:
            ours = ended or self._made
            for path in (self._key_path, self._path)[: 1 + ours]:  # what is secret first
                for file in (path, _new(path)):
                    file.unlink(missing_ok=True)
            _sync(self._path.parent)
        os.close(self._descriptor)

    def _keep(self, step: int, save: Callable[[], Any]) -> None:
        """Write the state after a number of steps, every few of them; then let the key follow."""
        if step % self._every == 0:
            assert self.streams is not None
            self._write(step, save())
            self._write_key(step, self.streams.chained(step))

    # --- the checkpoint -------------------------------------------------------------------------

    def _write(self, step: int, state: Any) -> None:
        arrays: list[np.ndarray] = []
        about = {**self._about, "step": step, "notes": self.notes}
        about["state"] = encoded(state, arrays)
        text = json.dumps(about)
        content = io.BytesIO()
        named: dict[str, Any] = {str(i): array for i, array in enumerate(arrays)}
        np.savez(content, about=np.array(text), tag=np.array(self._tag(text, arrays)), **named)
        with self._refusing_files():
            os.close(_replace(self._path, content.getbuffer()))

    def _tag(self, text: str, arrays: Sequence[np.ndarray]) -> str:
        mac = _Mac(self.secret, text)
        for array in arrays:
            mac.add(array)
        return mac.hexdigest()

    def _read(self) -> dict[str, Any]:
        """Read what is there, and refuse what is not of this fit."""
        try:
            with open(self._path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
                text, tag = str(file["about"]), str(file["tag"])
                arrays = [file[str(i)] for i in range(len(file.files) - 2)]
            about = json.loads(text)
            newest, versions = int(about["format"]), dict(about["versions"])
        except Exception:  # whatever numpy and zipfile say of a file that is none
            raise self._refused(
                "is not a checkpoint, or is damaged", "Restore it, or give another path"
            ) from None
        if newest > FORMAT:
            raise self._refused(
                f"is of a newer version, skdp {versions.get('skdp')}", "Resume with that version"
            )
        if not hmac.compare_digest(tag, self._tag(text, arrays)):
            raise self._refused("is damaged, or of another key file", "Restore both files")
        if versions != _versions():
            raise self._refused(
                f"was written with other versions ({_listed(versions)})",
                f"Resume with those (here are {_listed(_versions())})",
            )
        differ = [
            name
            for name in sorted({*about["parameters"], *self._parameters})
            if about["parameters"].get(name) != self._parameters.get(name)
        ]
        if differ:
            raise self._refused(
                f"is of a fit with other parameters ({', '.join(differ)})",
                "Give those of that fit, or another path",
            )
        if self._key["step"] > about["step"]:
            raise self._refused(
                "is older than its key file, which makes the noise of later steps alone",
                "Restore the checkpoint that was written last",
            )
        return {**about, "state": decoded(about["state"], arrays)}

    def _refused(self, why: str, remedy: str) -> ValueError:
        return ValueError(
            f"Expected checkpoint={self._path.name!r} to be one that this fit can resume, but it "
            f"{why}. {remedy}; or delete the checkpoint and its key, and the fit begins anew and "
            "is charged anew. Nothing has been charged now."
        )

    @contextmanager
    def _refusing_files(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ValueError(
                f"Expected checkpoint={str(self._path)!r} to be a file that can be written, with "
                f"another beside it ({type(error).__name__}); give a path in a folder of yours."
            ) from error

    # --- the key --------------------------------------------------------------------------------

    def _locked(self) -> int:
        """Open the key file, hold it against other fits, and return its descriptor."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with self._refusing_files():
            descriptor = os.open(self._key_path, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            there = os.stat(self._key_path).st_ino == os.fstat(descriptor).st_ino
        except OSError:
            there = False
        if not there:
            os.close(descriptor)
            raise ValueError(
                f"Expected checkpoint={self._path.name!r} to be no other fit's, but one that has "
                "not ended uses it. Give each fit a path of its own; candidates of a search that "
                "run at once share one, and so need checkpoint=None. Nothing has been charged now."
            )
        return descriptor

    def _ours(self) -> bool:
        """Whether a key file without a checkpoint is new, or of a run that was not charged."""
        with open(self._descriptor, "rb", closefd=False) as file:
            text = file.read()
        with suppress(ValueError):
            key = json.loads(text)
            return isinstance(key, dict) and key.get("words") == _WORDS and not key.get("begun", 1)
        return not text

    def _read_key(self) -> dict[str, Any]:
        found = os.fstat(self._descriptor)
        if stat.S_IMODE(found.st_mode) & 0o077 or found.st_uid != os.geteuid():
            raise self._refused(
                f"has a key file {self._key_path.name} that others may read, or own",
                "If no one did, make it private to you (chmod 600)",
            )
        try:
            with open(self._descriptor, "rb", closefd=False) as file:
                key = json.loads(file.read())
            for name in ("secret", "run", "chain"):
                if len(bytes.fromhex(key[name])) != 32:
                    raise ValueError(name)
            integer(0, step=key["step"])
        except (ValueError, KeyError, TypeError):
            raise self._refused(
                f"has a key file {self._key_path.name} that is damaged", "Restore that file"
            ) from None
        return key

    def _write_key(self, step: int, chain: bytes) -> None:
        self._key = {**self._key, "chain": chain.hex(), "step": step}
        with self._refusing_files():
            new = _replace(self._key_path, json.dumps(self._key).encode())
        os.close(self._descriptor)
        self._descriptor = new


def _new(path: Path) -> Path:
    return Path(f"{path}.skdp-new")


def _replace(path: Path, content: Any) -> int:
    """Replace a file as a whole, on the disk; return the new one's descriptor, which holds it."""
    new = _new(path)
    new.unlink(missing_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(new, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        os.fsync(descriptor)
        os.replace(new, path)
        _sync(path.parent)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _sync(folder: Path) -> None:
    """Let what a folder lists reach the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    with suppress(OSError):  # not all file systems sync folders
        os.fsync(descriptor)
    os.close(descriptor)


def _versions() -> dict[str, str]:
    """Versions on which noise, and the rounding of sums, depend."""
    return {"skdp": __version__} | {name: version(name) for name in ("numpy", "randomgen", "torch")}


def _listed(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(versions.items()))


# --- states as numbers --------------------------------------------------------------------------


def encoded(value: Any, arrays: list[np.ndarray]) -> Any:
    """Return what JSON can hold, and append arrays and tensors.

    Parameters
    ----------
    value : Any
        Numbers, text, arrays and tensors in tuples, lists and dicts.
    arrays : list of ndarray
        Gets those that the value holds.

    Raises
    ------
    ValueError
        If it holds anything else.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple | list):
        return [encoded(one, arrays) for one in value]
    if isinstance(value, dict) and all(isinstance(k, int | str) for k in value):
        return {"items": [[k, encoded(one, arrays)] for k, one in value.items()]}
    array = _array(value)
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


class _Mac:
    """A keyed hash of a text and of arrays: it tells nothing to whoever lacks the key."""

    def __init__(self, secret: bytes, text: str) -> None:
        self._mac = hmac.new(secret, digestmod="sha256")
        self.add_text(text)

    def add_text(self, text: str) -> None:
        """Take in a text."""
        content = text.encode()
        self._mac.update(len(content).to_bytes(8, "little"))
        self._mac.update(content)

    def add(self, array: Any) -> None:
        """Take in an array, or what gives one by slices of its rows."""
        self.add_text(f"{array.dtype.str}{array.shape}")
        rows = array if array.shape else array[None]
        for start in range(0, len(rows), _BLOCK):
            block = np.ascontiguousarray(rows[start : start + _BLOCK])
            self._mac.update(block.reshape(-1).view(np.uint8).data)

    def hexdigest(self) -> str:
        """Return the hash."""
        return self._mac.hexdigest()


def described(secret: bytes, value: Any) -> str:
    """Hash a parameter: numbers by value, functions and classes by code and by what they refer to.

    Two that may compute different things must have different hashes: steps that are made again with
    the same noise but another term would show the terms' difference. So an object is all that its
    pickle would hold, and one that has no pickle is refused. What a function calls is followed
    within its own module; modules and libraries are names.

    Raises
    ------
    ValueError
        If the value, or something that it refers to, cannot be told from another.
    """
    return _Description(secret).of(value)


class _Description:
    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._mac = _Mac(secret, "parameter")
        self._seen: dict[int, Any] = {}

    def of(self, value: Any) -> str:
        """Return the hash."""
        self._add(value)
        return self._mac.hexdigest()

    def _add(self, value: Any) -> None:
        self._mac.add_text(f"{type(value).__module__}.{type(value).__qualname__}")
        if value is None or isinstance(value, _PLAIN):
            self._mac.add_text(repr(value))
            return
        self._mac.add_text(str(id(value) in self._seen))
        if id(value) in self._seen:
            return
        self._seen[id(value)] = value  # kept, or another object could get its place in memory
        array = None if isinstance(value, np.ma.MaskedArray) else _array(value)
        if array is not None:
            self._mac.add(array)
        elif isinstance(value, set | frozenset):
            for hashed_part in sorted(described(self._secret, one) for one in value):
                self._mac.add_text(hashed_part)
        else:
            for part in _parts(value):
                self._add(part)


_PLAIN = bool | int | float | complex | str | bytes
_INSTALLED = tuple(sysconfig.get_path(name) for name in ("purelib", "platlib"))
_OF_CLASSES = {  # which tell nothing of what a class does, or appear later
    "__abstractmethods__", "__annotate__", "__annotate_func__", "__annotations__",
    "__annotations_cache__", "__dataclass_fields__", "__dataclass_params__", "__dict__", "__doc__",
    "__firstlineno__", "__module__", "__slotnames__", "__static_attributes__", "__weakref__",
    "_abc_impl",
}  # fmt: skip


def _parts(value: Any) -> Iterable[Any]:
    """What an object is made of."""
    if isinstance(value, types.CodeType):
        return value.co_code, value.co_names, value.co_consts
    if isinstance(value, types.FunctionType):
        if _library(value.__module__) and _named(value):
            return value.__module__, value.__qualname__
        cells = [_content(cell) for cell in value.__closure__ or ()]
        given = value.__defaults__, value.__kwdefaults__, cells, _globals(value)
        return value.__module__, value.__qualname__, value.__code__, *given
    if isinstance(value, types.MethodType):
        return value.__func__, value.__self__
    if isinstance(value, functools.partial):
        return value.func, value.args, value.keywords
    if isinstance(value, types.ModuleType):
        return (value.__name__,)
    if isinstance(value, staticmethod | classmethod):
        return (value.__func__,)
    if isinstance(value, property):
        return value.fget, value.fset, value.fdel
    if isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType):
        return (value.__name__,)
    if isinstance(value, type):
        name = value.__module__, value.__qualname__
        if _library(value.__module__):
            return name
        of_class = {k: v for k, v in vars(value).items() if k not in _OF_CLASSES}
        return *name, value.__bases__, of_class
    if isinstance(value, dict | types.MappingProxyType):
        return type(value), *(part for item in value.items() for part in item)
    if isinstance(value, tuple | list | range):
        return type(value), len(value), *value
    if type(value) is np.ndarray:  # of objects
        return value.shape, value.tolist()
    tensor: Any = value if hasattr(value, "to_dense") else None
    if tensor is not None:  # of numbers that numpy lacks, or sparse
        return str(tensor.dtype), str(tensor.layout), tensor.to_dense().double()
    return type(value), *_reduced(value)


def _reduced(value: Any) -> Iterable[Any]:
    """What a pickle of an object holds, and what it wraps."""
    try:
        by_type = copyreg.dispatch_table.get(type(value))
        reduced: Any = value.__reduce_ex__(4) if by_type is None else by_type(value)
    except Exception:  # whatever it says of why it cannot
        reduced = None
    if isinstance(reduced, str):
        return reduced, getattr(value, "__module__", None), getattr(value, "__wrapped__", None)
    if not isinstance(reduced, tuple):
        kind = type(value).__name__
        raise expected(
            f"None, because a parameter holds an object ({kind}) that cannot be told from another "
            "one of its kind: give functions of numbers, arrays and tensors",
            checkpoint="given",
        )
    return [list(part) if isinstance(part, Iterator) else part for part in reduced]


def _library(module: str | None) -> bool:
    """Whether a module is Python's, skdp's or of an installed package: known by its name."""
    top = (module or "").partition(".")[0]
    if top == "skdp" or top in sys.stdlib_module_names:
        return True
    return str(getattr(sys.modules.get(top), "__file__", None)).startswith(_INSTALLED)


def _named(function: types.FunctionType) -> bool:
    """Whether a function is what its name says, and not one of many that were made there."""
    found: Any = sys.modules.get(function.__module__)
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is function


def _globals(function: types.FunctionType) -> dict[str, Any]:
    """What a function of the user's refers to in its module; of other modules' functions, names."""
    if _library(function.__module__):
        return {}
    codes, names = [function.__code__], set()
    for code in codes:
        names |= {*code.co_names}
        codes += [one for one in code.co_consts if isinstance(one, types.CodeType)]
    found = {k: function.__globals__[k] for k in sorted(names & function.__globals__.keys())}
    return {
        k: f"{v.__module__}.{v.__qualname__}"
        if isinstance(v, types.FunctionType | type) and v.__module__ != function.__module__
        else v
        for k, v in found.items()
    }


def _array(value: Any) -> np.ndarray | None:
    """Return the numbers or texts of an array or a tensor; None for anything else."""
    if not isinstance(value, np.ndarray | np.generic):
        try:
            value = value.numpy(force=True)
        except (AttributeError, TypeError):  # no tensor, or one of numbers that numpy lacks
            return None
    return np.asarray(value) if value.dtype.kind in "biufcSU" else None


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return None


# --- the one that a fit uses --------------------------------------------------------------------

_current: ContextVar[Checkpoint | None] = ContextVar("skdp_checkpoint", default=None)


def current() -> Checkpoint | None:
    """Return the checkpoint of the fit that is under way, if it has one."""
    return _current.get()


def notes() -> list:
    """Return a list that lasts as long as the run does, however often it is resumed."""
    checkpoint = current()
    return [] if checkpoint is None else checkpoint.notes


@contextmanager
def opened(estimator: Any, parameters: Callable[[], dict[str, Any]]) -> Iterator[None]:
    """Open the checkpoint that an estimator asks for, and end it with the fit."""
    path, every = getattr(estimator, "checkpoint", None), getattr(estimator, "every", EVERY)
    if path is None and every != EVERY:
        raise expected(f"{EVERY} without checkpoint", "nothing would be kept", every=every)
    checkpoint = None if path is None else Checkpoint(path, every, parameters())
    token, ended = _current.set(checkpoint), False
    try:
        yield
        ended = True
    finally:
        _current.reset(token)
        if checkpoint is not None:
            checkpoint.close(ended=ended)
