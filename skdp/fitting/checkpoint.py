"""Checkpoints: a run that was killed goes on with the same releases, and is charged once.

The *checkpoint* holds the state after some step: a function of what was released. The *key file*
beside it (``.key``, mode 0600) holds what noise, batches and masks of the steps to come are
functions of, and moves on with each checkpoint: who reads it learns the noise of later steps alone.
A step that was under way when the process died is made again, the same value and not another
release.

    k_{t+1} = H(k_t),    noise, coins and masks of step t: streams keyed by H'(k_t)

Before the charge versions, threads, and MACs of rows and parameters (`skdp.fitting.object_mac`) are
compared. Before the noise of a step is drawn, a MAC of its exact sum is appended to the key file: a
step that is made again must have that sum, bit by bit, or the run ends there. Files are replaced as
a whole, and no file is a pickle. Why so: docs/privacy.md, section 12.

>>> from skdp.fitting.run_streams import RunStreams
>>> streams = RunStreams(bytes(32), bytes(32), step=0)
>>> again = RunStreams(bytes(32), streams.chained(3), step=3)
>>> noise = [s.of_step(3)("noise").normal(2) for s in (streams, again)]
>>> bool((noise[0] == noise[1]).all())
True
"""

from __future__ import annotations

import hmac
import io
import json
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from skdp.fitting import run_streams
from skdp.fitting.object_kinds import Mac
from skdp.fitting.object_mac import described
from skdp.fitting.run_streams import RunStreams, fcntl
from skdp.fitting.streams import Streams, hashed
from skdp.fitting.types import PLACES
from skdp.fitting.validate import expected, integer

FORMAT = 1

_SHARED = "what several of them share"

_WORDS = "Key of a private fit that has not ended: as secret as its rows. The fit deletes it."


class Checkpoint:
    """The files of one run: found, to be resumed, or to be made.

    The ledger's entry has its random ``name``. ``notes``, functions of what was released, are kept
    with the state; ``charged`` is whether the run has been, or may have been.
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
            self._key, self._sums = self._read_key() if self.charged else (new, {})
            self.secret = bytes.fromhex(self._key["secret"])
            given = {
                k: run_streams.plain(v)
                for k, v in parameters.items()
                if k not in (*PLACES, "verbose")
            }
            self._parameters = {k: described(self.secret, value) for k, value in given.items()}
            self._parameters[_SHARED] = described(self.secret, given)
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

    def begin(self, plan: Any, arrays: Sequence[np.ndarray], streams: Streams) -> None:
        """Begin the run with streams, or hold it against what was found; before the charge."""
        rows, event = self._mac("rows", arrays), described(self.secret, plan)
        found, key = self._found, self._key
        if found is None:
            self._about = {
                "format": FORMAT,
                "versions": run_streams.versions_here(),
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
                raise self._refused(
                    "is of a fit with another plan, or with other X_public and y_public",
                    "Give those of that fit, or another path",
                )
            self._about = {k: v for k, v in found.items() if k not in ("step", "state", "notes")}
            run, first, saved = bytes.fromhex(key["run"]), found["step"], found["state"]
            chain = RunStreams(run, bytes.fromhex(key["chain"]), key["step"]).chained(first)
        self.streams = RunStreams(run, chain, first, saved, self._keep, self._seen)

    def close(self, *, ended: bool) -> None:
        """Delete the files of a run that has ended or was never charged; let go of the others."""
        if ended or not self.charged:
            ours = ended or self._made
            for path in (self._key_path, self._path)[: 1 + ours]:  # what is secret first
                for file in (path, run_streams.new_file(path)):
                    file.unlink(missing_ok=True)
            run_streams.synced(self._path.parent)
        os.close(self._descriptor)

    def _keep(self, step: int, save: Callable[[], Any]) -> None:
        """Write the state after a number of steps, every few of them; then let the key follow."""
        if step % self._every == 0:
            assert self.streams is not None
            self._write(step, save())
            self._write_key(step, self.streams.chained(step))

    def _seen(self, step: int, exact: Any) -> None:
        """Hold the exact sum of a step against that of an earlier attempt, or write its MAC down.

        In the file before noise is drawn: no two sums ever have the noise of one step.
        """
        array = run_streams.array_of(exact)
        assert array is not None
        found = self._mac(f"sum {step}", [array])
        if step not in self._sums:
            self._sums[step] = found
            os.write(self._descriptor, f"{step} {found}\n".encode())
        elif not hmac.compare_digest(found, self._sums[step]):
            raise self._refused(
                f"has step {step} with another sum: the model, its libraries or the machine adds "
                "up otherwise, or a function of yours depends on more than its parameters",
                "Resume where and how the run began",
                charged="Nothing more has been released.",
            )

    # --- the checkpoint -------------------------------------------------------------------------

    def _write(self, step: int, state: Any) -> None:
        arrays: list[np.ndarray] = []
        about = {**self._about, "step": step, "notes": self.notes}
        about["state"] = run_streams.encoded(state, arrays)
        text = json.dumps(about)
        content = io.BytesIO()
        named: dict[str, Any] = {str(i): array for i, array in enumerate(arrays)}
        np.savez(content, about=np.array(text), tag=np.array(self._mac(text, arrays)), **named)
        with self._refusing_files():
            os.close(run_streams.replaced(self._path, content.getbuffer()))

    def _mac(self, text: str, arrays: Sequence[np.ndarray]) -> str:
        mac = Mac(self.secret, text)
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
        if not hmac.compare_digest(tag, self._mac(text, arrays)):
            raise self._refused("is damaged, or of another key file", "Restore both files")
        if versions != run_streams.versions_here():
            raise self._refused(
                f"was written with other versions or threads ({run_streams.listed(versions)})",
                f"Resume with those (here are {run_streams.listed(run_streams.versions_here())})",
            )
        differ = [
            name
            for name in sorted({*about["parameters"], *self._parameters})
            if about["parameters"].get(name) != self._parameters.get(name)
        ]
        if differ:
            differ = [name for name in differ if name != _SHARED] or differ
            raise self._refused(
                f"is of a fit with other parameters ({', '.join(differ)})",
                "Give those of that fit, or another path",
            )
        if self._key["step"] > about["step"]:
            raise self._refused(
                "is older than its key file, which makes the noise of later steps alone",
                "Restore the checkpoint that was written last",
            )
        return {**about, "state": run_streams.decoded(about["state"], arrays)}

    def _refused(
        self, why: str, remedy: str, *, charged: str = "Nothing has been charged now."
    ) -> ValueError:
        return ValueError(
            f"Expected checkpoint={self._path.name!r} to be one that this fit can resume, but it "
            f"{why}. {remedy}; or delete the checkpoint and its key, and the fit begins anew and "
            f"is charged anew. {charged}"
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
            key = json.loads(text.partition(b"\n")[0])
            return isinstance(key, dict) and key.get("words") == _WORDS and not key.get("begun", 1)
        return not text

    def _read_key(self) -> tuple[dict[str, Any], dict[int, str]]:
        """Return the key, and MACs of the sums that were made with it."""
        found = os.fstat(self._descriptor)
        if stat.S_IMODE(found.st_mode) & 0o077 or found.st_uid != os.geteuid():
            raise self._refused(
                f"has a key file {self._key_path.name} that others may read, or own",
                "If no one did, make it private to you (chmod 600)",
            )
        try:
            with open(self._descriptor, "rb", closefd=False) as file:
                text, *lines = file.read().split(b"\n")
            key = json.loads(text)
            for name in ("secret", "run", "chain"):
                if len(bytes.fromhex(key[name])) != 32:
                    raise ValueError(name)
            integer(0, step=key["step"])
            # A last line without its end is of a step that drew no noise.
            sums = {int(step): mac.decode() for step, mac in map(bytes.split, lines[:-1])}
            os.ftruncate(self._descriptor, sum(len(line) + 1 for line in (text, *lines[:-1])))
            os.lseek(self._descriptor, 0, os.SEEK_END)
        except (ValueError, KeyError, TypeError):
            raise self._refused(
                f"has a key file {self._key_path.name} that is damaged", "Restore that file"
            ) from None
        return key, sums

    def _write_key(self, step: int, chain: bytes) -> None:
        self._key = {**self._key, "chain": chain.hex(), "step": step}
        with self._refusing_files():
            new = run_streams.replaced(self._key_path, json.dumps(self._key).encode() + b"\n")
        self._sums = {}
        os.close(self._descriptor)
        self._descriptor = new
