"""`PrivacyLedger`: what has been spent, written down *before* the data is touched.

Every fit inside the block first writes its event. A fit that would break the ceiling is refused
before it has read a row, and one that fails half way stays charged: its noisy steps happened. Fits
in all threads of the process are seen; fits in *other* processes (``n_jobs`` with the loky backend)
are not.

>>> from skdp import DPVariationalLogisticRegression
>>> from skdp.privacy import BudgetExceededError, PrivacyLedger
>>> X, y = [[-1.0], [-0.9], [0.9], [1.0]], [0, 0, 1, 1]
>>> classifier = DPVariationalLogisticRegression(epsilon=1.0, classes=[0, 1], n_samples=4)
>>> with PrivacyLedger(epsilon=1.2, delta=1e-5) as ledger:
...     for _ in range(3):
...         try:
...             _ = classifier.fit(X, y)
...         except BudgetExceededError:
...             print("refused")
refused
refused
>>> len(ledger.entries), round(ledger.total(delta=1e-5), 6)
(1, 1.0)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from threading import RLock

from dp_accounting.dp_event import ComposedDpEvent, DpEvent

from skdp._validate import expected, in_range, positive
from skdp.privacy.accounting import epsilon_of_event
from skdp.relations import check_relation


class BudgetExceededError(RuntimeError):
    """A release was refused: it would have cost more than the ledger's ceiling allows."""


@dataclass(frozen=True)
class LedgerEntry:
    """One line of a ledger: who released what."""

    label: str
    event: DpEvent


class PrivacyLedger:
    """Write-ahead ledger of private releases, with an optional ceiling.

    Parameters
    ----------
    epsilon : float or None, default=None
        Ceiling on the total ε at ``delta``; None only records.
    delta : float or None, default=None
        δ in (0, 1) at which the ceiling holds; needed with ``epsilon``.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}
        The relation every entry must be stated in: statements about different neighbours do not
        add up.

    Attributes
    ----------
    entries : tuple of LedgerEntry
        What has been charged, in order. Entries only ever get more.

    Raises
    ------
    ValueError
        If the ceiling is out of range, or has no δ.
    """

    def __init__(
        self,
        epsilon: float | None = None,
        delta: float | None = None,
        *,
        neighboring_relation: str = "zero_out",
    ) -> None:
        if epsilon is not None and delta is None:
            raise expected("given with epsilon", "an epsilon alone is no ceiling", delta=delta)
        self.epsilon = math.inf if epsilon is None else positive(epsilon=epsilon)
        self.delta = None if delta is None else in_range(0.0, 1.0, delta=delta)
        self.neighboring_relation = check_relation(neighboring_relation)
        self._entries: list[LedgerEntry] = []

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """What has been charged, in order."""
        return tuple(self._entries)

    def total(self, delta: float) -> float:
        """ε of everything charged so far, composed by the accountant, at the given δ."""
        with _lock:
            return self._total(self._entries, delta)

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
            If the relation is not the ledger's.
        """
        with _lock:
            self._check(entry := LedgerEntry(label, event), neighboring_relation)
            self._entries.append(entry)

    def _check(self, entry: LedgerEntry, neighboring_relation: str) -> None:
        if neighboring_relation != self.neighboring_relation:
            raise expected(
                f"the ledger's own relation {self.neighboring_relation!r}",
                "keep one ledger per neighbouring relation",
                neighboring_relation=neighboring_relation,
            )
        if self.delta is None:
            return
        total = self._total([*self._entries, entry], self.delta)
        if total > self.epsilon:
            raise BudgetExceededError(
                f"{entry.label} would bring the total to epsilon={total:.4g} at "
                f"delta={self.delta:g}, above the ceiling epsilon={self.epsilon:.4g}; nothing was "
                "charged and no data was read. Raise the ceiling or spend less a fit."
            )

    def _total(self, entries: list[LedgerEntry], delta: float) -> float:
        event = ComposedDpEvent([entry.event for entry in entries])
        return epsilon_of_event(event, delta, self.neighboring_relation)

    def __enter__(self) -> PrivacyLedger:
        with _lock:
            _open.append(self)
        return self

    def __exit__(self, *exception: object) -> None:
        with _lock:
            _open.remove(self)

    def __repr__(self) -> str:
        ceiling = "no ceiling"
        if self.delta is not None:
            ceiling = f"ceiling epsilon={self.epsilon:g} at delta={self.delta:g}"
        count = len(self._entries)
        return f"PrivacyLedger({count} entries, {ceiling}, {self.neighboring_relation})"


# Open ledgers belong to the process, not to a thread or a context: a fit that another thread
# starts meanwhile is charged too. Charging too much annoys, missing a release breaks the promise.
_open: list[PrivacyLedger] = []
_lock = RLock()


def charge(event: DpEvent, *, label: str, neighboring_relation: str) -> None:
    """Write an event to every open ledger of this process: to all of them, or to none."""
    entry = LedgerEntry(label, event)
    with _lock:
        for ledger in _open:
            ledger._check(entry, neighboring_relation)
        for ledger in _open:
            ledger._entries.append(entry)
