"""`PrivacyLedger`: what has been spent, written down *before* the data is touched.

Every fit inside the block first writes its event. A fit that would break the ceiling is refused
before a row enters a sum, and one that fails half way stays charged: its noisy steps happened. Fits
in all threads of the process are seen, and fits in all processes below it whose parents are alive,
of the same user on the same machine: ``n_jobs`` with loky, `multiprocessing`, a local Dask cluster.
Orphaned processes, those of other users or with a private ``/tmp``, and other machines are not;
they need a ledger of their own on a common file.
"""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import RLock
from typing import IO

from dp_accounting.dp_event import ComposedDpEvent, DpEvent

from skdp._version import __version__
from skdp.fitting.types import Estimator, Json, Params
from skdp.fitting.validate import expected, in_range, one_of, positive
from skdp.policy import Policy, policy_for
from skdp.privacy import _process_tree
from skdp.privacy._ledger_file import LedgerFile, fcntl
from skdp.privacy.accounting import epsilon_of_event
from skdp.privacy.cover import BudgetExceededError, Cover, cover_of_thread
from skdp.privacy.events import event_from_dict, event_to_dict, terms_of
from skdp.relations import ROW, UNITS, check_relation


@dataclass(frozen=True)
class LedgerEntry:
    """One line of a ledger: who released what.

    A ``nominal`` entry has no guarantee: its noise was seeded. ``inferred`` are facts that the code
    read from the data because they were not declared. ``run`` is the random name of a run with a
    checkpoint, which is charged once, however often it is resumed.
    """

    label: str
    event: DpEvent
    nominal: bool = False
    inferred: tuple[str, ...] = ()
    run: str = ""


class PrivacyLedger:
    """Write-ahead ledger of private releases, with an optional ceiling.

    Parameters
    ----------
    epsilon, delta : float or None, default=None
        Ceiling on the total ε at a δ in (0, 1); None only records.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}
        The relation every entry must be stated in: statements about different neighbours do not
        add up.
    unit : {"row", "group"}, default="row"
        What every entry must protect: rows, or persons with all of their rows.
    path : str or path-like or None, default=None
        A file that keeps the entries, one JSON line each, for later sessions and for processes
        that are not below this one; entries it already holds count. None keeps them for as long as
        the ledger lives.
    policy : str, path-like, Policy or None, default=None
        A file of policies, or one (`skdp.policy`): its ceiling, in place of ``epsilon`` and
        ``delta``, its unit, and what else it does not allow. Fits are held to it before they begin.
    data : str or None, default=None
        Which data set of the file; None if it has one only.

    Examples
    --------
    >>> from skdp.privacy import PrivacyLedger
    >>> from skdp.privacy.events import dp_sgd_event
    >>> ledger = PrivacyLedger(epsilon=5.0, delta=1e-5)
    >>> ledger.spend(dp_sgd_event(4.0, 1.0, 16), label="a survey")
    >>> round(ledger.total(delta=1e-5), 3)
    4.377
    """

    def __init__(
        self,
        epsilon: float | None = None,
        delta: float | None = None,
        *,
        neighboring_relation: str = "zero_out",
        unit: str = ROW,
        path: str | os.PathLike[str] | None = None,
        policy: str | os.PathLike[str] | Policy | None = None,
        data: str | None = None,
    ) -> None:
        if policy is not None and not isinstance(policy, Policy):
            policy = policy_for(policy, data)
        self.policy = policy
        if policy is not None:
            if epsilon is not None or delta is not None:
                raise expected("None with a policy", "the ceiling is the policy's", epsilon=epsilon)
            epsilon, delta, unit = policy.epsilon, policy.delta, policy.unit
        if epsilon is not None and delta is None:
            raise expected("given with epsilon", "a ceiling needs both", delta=delta)
        self.epsilon = math.inf if epsilon is None else positive(epsilon=epsilon)
        self.delta = None if delta is None else in_range(0.0, 1.0, delta=delta)
        relation, in_rows = check_relation(neighboring_relation), one_of(UNITS, unit=unit) == ROW
        self.neighboring_relation = relation = relation if in_rows else relation.of_unit(unit)
        if policy is not None and (why := policy.objections(relation, version=__version__)):
            raise ValueError(f"The policy does not allow this ledger: {'; '.join(why)}.")
        self._entries: list[LedgerEntry] = []
        self._file = None if path is None else LedgerFile(path)
        self._announcement: IO[str] | None = None
        self._owner: int | None = None  # the process whose memory also holds what a file holds
        _ = self.entries  # reads what the file holds

    @property
    def path(self) -> str | None:
        """The ledger's file, or None."""
        if self._file is None or self._file.passing:
            return None
        return str(self._file.path.resolve())

    @property
    def _place(self) -> str:
        """What is one ledger has one place, under whatever names."""
        if self._file is None:
            return f"memory {id(self)}"
        try:
            found = os.stat(self._file.path)
        except FileNotFoundError:
            return str(self._file.path)
        return f"{found.st_dev} {found.st_ino}"

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """What has been charged, in order; entries only ever get more."""
        with self._locked():
            return tuple(self._entries)

    @property
    def valid(self) -> bool:
        """Whether the total is a guarantee: false once a seeded fit has been charged."""
        return not any(entry.nominal for entry in self.entries)

    def total(self, delta: float) -> float:
        """ε of everything charged so far at a δ in [0, 1), rounded up; see `valid`."""
        return self._total(self.entries, delta)

    def spend(self, event: DpEvent, *, label: str, neighboring_relation: str = "zero_out") -> None:
        """Charge an event, or refuse it; to be called before the data is touched.

        Parameters
        ----------
        event : DpEvent
            What is about to be released.
        label : str
            Who releases it.
        neighboring_relation : str
            The relation in which the event is stated.

        Raises
        ------
        BudgetExceededError
            If the total would exceed the ceiling. Nothing is charged then.
        ValueError
            If the relation is not the ledger's, or the event cannot be accounted.
        OSError
            If the ledger file cannot be written. The release must not happen then.
        """
        _spend([self], LedgerEntry(label, event), neighboring_relation)

    @contextmanager
    def _locked(self) -> Iterator[Callable[[LedgerEntry], None]]:
        """Hold the ledger against threads and processes; yield what appends an entry."""
        with _lock:
            if self._file is None:
                yield self._entries.append
                return
            owned = self._owner == os.getpid()
            with self._file.locked(make=owned or not self._file.passing) as file:
                known = self._entries
                self._entries = [self._from_line(line) for line in self._file.read(file)]

                def append(entry: LedgerEntry) -> None:
                    line: dict[str, Json] = {
                        "label": entry.label,
                        "neighboring_relation": self.neighboring_relation,
                        "event": event_to_dict(entry.event),
                        "skdp_version": __version__,
                    }
                    rare = {"nominal": entry.nominal, "inferred": list(entry.inferred)}
                    line |= {k: v for k, v in (rare | {"run": entry.run}).items() if v}
                    assert self._file is not None
                    self._file.append(file, line)
                    self._entries.append(entry)

                for entry in known[len(self._entries) :]:  # the file is new, or has been removed
                    append(entry)
                yield append

    def _from_line(self, line: dict) -> LedgerEntry:
        self._check_relation(line["neighboring_relation"], line["label"])
        try:
            event = event_from_dict(line["event"])
            terms_of(event)  # what has no known cost is not an entry
        except (AttributeError, TypeError, RecursionError, ValueError) as error:
            raise ValueError(
                "The ledger file has been damaged, or is not a ledger: an entry's event cannot be "
                "read. What was spent is unknown; restore the file before spending more."
            ) from error
        nominal, inferred = line.get("nominal", False), line.get("inferred", ())
        return LedgerEntry(line["label"], event, nominal, tuple(inferred), line.get("run", ""))

    def _check_relation(self, neighboring_relation: str, label: str) -> None:
        if neighboring_relation != self.neighboring_relation:
            what = f"the ledger's own relation {self.neighboring_relation!r} for {label}"
            remedy = "keep one ledger per neighbouring relation and unit"
            raise expected(what, remedy, neighboring_relation=str(neighboring_relation))

    def _holds(self, entry: LedgerEntry) -> bool:
        """Whether a run that is resumed has been charged here."""
        found = [charged for charged in self._entries if entry.run and charged.run == entry.run]
        return any(event_to_dict(charged.event) == event_to_dict(entry.event) for charged in found)

    def _check(self, entry: LedgerEntry, neighboring_relation: str) -> None:
        self._check_relation(neighboring_relation, entry.label)
        why = ()
        if self.policy is not None:
            of_entry = entry.inferred, __version__, entry.nominal
            why = self.policy.objections(neighboring_relation, *of_entry)
        if why:
            raise BudgetExceededError(
                f"The policy does not allow {entry.label}: {'; '.join(why)}. Nothing was charged "
                "for it and no data was used."
            )
        if self.delta is None:
            terms_of(entry.event)  # an event without a known cost must not get in
            return
        total = self._total([*self._entries, entry], self.delta)
        if total > self.epsilon:
            raise BudgetExceededError(
                f"{entry.label} would bring the total to epsilon={total:.4g} at "
                f"delta={self.delta:g}, above the ceiling epsilon={self.epsilon:.4g}; nothing was "
                f"charged for it and no data was used. The {len(self._entries)} entries charged "
                "before stay. Raise the ceiling or spend less per fit."
            )

    def _total(self, entries: Sequence[LedgerEntry], delta: float) -> float:
        event = ComposedDpEvent([entry.event for entry in entries])
        return epsilon_of_event(event, delta, self.neighboring_relation)

    def __enter__(self) -> PrivacyLedger:
        with _lock:
            if self.path and any(other.path == self.path for other in _open):
                raise ValueError(f"A ledger on the file {Path(self.path).name!r} is already open.")
            if fcntl is not None and self._announcement is None:
                self._share()
                self._announcement = _process_tree.announce(self._described())
            _open.append(self)
        return self

    def __exit__(self, *exception: object) -> None:
        with _lock:
            _open.remove(self)
            if self._announcement is not None and self not in _open:
                _process_tree.withdraw(self._announcement)
                self._announcement = None

    def _share(self) -> None:
        """Put the entries where other processes can write to them."""
        if self._file is not None:
            return
        name = _process_tree.new_ledger_file()
        weakref.finalize(self, _remove, name, os.getpid())
        self._file = LedgerFile(name, passing=True)
        self._owner = os.getpid()
        _ = self.entries  # writes what there is

    def _described(self) -> dict[str, Json]:
        assert self._file is not None
        own = self.policy is None  # else the ceiling is the policy's
        return {
            "epsilon": self.epsilon if own and math.isfinite(self.epsilon) else None,
            "delta": self.delta if own else None,
            "unit": self.neighboring_relation.unit,
            "policy": None if self.policy is None else asdict(self.policy),
            "neighboring_relation": self.neighboring_relation,
            "path": str(self._file.path.resolve()),
            "passing": self._file.passing,
        }

    @classmethod
    def _from_description(cls, description: Params) -> PrivacyLedger:
        """Another view of a ledger that is open elsewhere."""
        own = dict(description)
        path, passing, policy = own.pop("path"), own.pop("passing"), own.pop("policy")
        ledger = cls(**own, policy=None if policy is None else Policy(**policy))
        ledger._file = LedgerFile(path, passing=passing)
        return ledger

    def __reduce__(self) -> tuple[Callable[[dict], PrivacyLedger], tuple[dict]]:
        """Go to another process as the same ledger: what is charged there is charged here."""
        self._share()
        return PrivacyLedger._from_description, (self._described(),)

    def __repr__(self) -> str:
        ceiling = f"ceiling epsilon={self.epsilon:g} at delta={self.delta:g}" if self.delta else ""
        entries = self.entries
        nominal = sum(entry.nominal for entry in entries)
        count = f"{len(entries)} entries" + (f", {nominal} only nominal" if nominal else "")
        return f"PrivacyLedger({count}, {ceiling or 'no ceiling'}, {self.neighboring_relation})"


def _remove(name: str, pid: int) -> None:
    if os.getpid() == pid:  # a forked child is not the one who made it
        Path(name).unlink(missing_ok=True)


# Open ledgers belong to the process, not to a thread or a context: a fit that another thread
# starts meanwhile is charged too. Charging too much annoys, missing a release breaks the promise.
_open: list[PrivacyLedger] = []
_lock = RLock()


def lock() -> RLock:
    """Return the lock that all ledgers of the process share."""
    return _lock


def _new_lock() -> None:
    global _lock
    _lock = RLock()


if hasattr(os, "register_at_fork"):
    # No fork while a thread is at a ledger: the child would inherit a locked file, and wait for it.
    os.register_at_fork(
        before=lambda: _lock.acquire(),
        after_in_parent=lambda: _lock.release(),
        after_in_child=_new_lock,
    )


def charge(
    event: DpEvent,
    *,
    label: str,
    neighboring_relation: str,
    nominal: bool = False,
    inferred: Sequence[str] = (),
    owner: Estimator | None = None,
    run: str = "",
) -> None:
    """Write an event to every open ledger of this process: to all of them, or to none.

    A ``nominal`` event is no guarantee, because its noise is seeded; ``inferred`` facts were read
    from the data; the ``owner`` will state the price; a ledger that has the entry of a ``run`` is
    not charged again. Raises a `BudgetExceededError` if a ledger refuses, or the event is not in
    the plan of what it is part of.
    """
    cover = cover_of_thread.get()
    if isinstance(cover, Cover):
        cover.take(event, label, neighboring_relation, owner)
    if cover is not None:
        return
    with _lock:
        Cover.charged_alone += 1
        above = map(PrivacyLedger._from_description, _process_tree.announced_above())
        ledgers = list(dict.fromkeys([*_open, *above]))
        if ledgers:
            entry = LedgerEntry(label, event, nominal, tuple(inferred), run)
            _spend(ledgers, entry, neighboring_relation)


def _spend(ledgers: list[PrivacyLedger], entry: LedgerEntry, neighboring_relation: str) -> None:
    # A ledger can be open here and above; it is locked, and charged, once. Files are locked in the
    # order of their paths, so that two processes cannot wait for each other.
    places: dict[str, list[PrivacyLedger]] = {}
    for ledger in sorted(ledgers, key=lambda ledger: str(ledger._file and ledger._file.path)):
        places.setdefault(ledger._place, []).append(ledger)
    with ExitStack() as locks:
        appends = []
        for first, *others in places.values():
            append = locks.enter_context(first._locked())
            for other in others:
                other._entries = first._entries
            if not first._holds(entry):
                appends.append(append)
        for ledger in ledgers:
            if not ledger._holds(entry):
                ledger._check(entry, neighboring_relation)
        for append in appends:
            append(entry)
