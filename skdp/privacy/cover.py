"""`Cover`: releases that are parts of one which has been charged as a whole."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import reduce
from typing import ClassVar

from dp_accounting.dp_event import DpEvent

from skdp.fitting.types import Estimator
from skdp.privacy.parts import PartDpEvent
from skdp.relations import ZERO_OUT


class BudgetExceededError(RuntimeError):
    """A release was refused: it would have cost more than the ledger's ceiling allows.

    Also raised where more posterior samples are asked for than were paid for.

    Examples
    --------
    >>> from skdp.privacy import BudgetExceededError, PrivacyLedger
    >>> from skdp.privacy.events import dp_sgd_event
    >>> ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    >>> try:
    ...     ledger.spend(dp_sgd_event(4.0, 1.0, 16), label="a survey")
    ... except BudgetExceededError:
    ...     print("refused:", len(ledger.entries), "entries")
    refused: 0 entries
    """


class Cover:
    """Releases that are part of one which has been charged as a whole; each may happen once.

    A private selection is one event; its trials are parts of it. What is in no plan is refused
    before it touches a row: charged by itself it would tell how many trials there were, and the
    price of a selection holds for the trial that was planned. It covers a block in one thread: what
    other threads charge meanwhile may be a part of it that escaped, and it counts as refused then.
    ``covers`` says whether a planned event costs at least as much as another; ``owners`` made the
    releases.
    """

    # How often something was charged, or tried to be, that no cover was asked about; under the lock
    # of the ledgers.
    charged_alone: ClassVar[int] = 0

    def __init__(
        self,
        planned: Sequence[DpEvent] = (),
        covers: Callable[[DpEvent, DpEvent], bool] = operator.eq,
        neighboring_relation: str = ZERO_OUT,
    ) -> None:
        self._left, self._covers, self._relation = list(planned), covers, neighboring_relation
        self.owners: list[Estimator] = []
        self._refused, self._charged_before = False, Cover.charged_alone

    @property
    def refused(self) -> bool:
        """Whether a release was refused, even if the error was caught on the way, or escaped."""
        return self._refused or Cover.charged_alone != self._charged_before

    def take(
        self, event: DpEvent, label: str, neighboring_relation: str, owner: Estimator | None
    ) -> None:
        """Use up what was planned for an event, or refuse the release."""
        while isinstance(event, PartDpEvent):  # the whole is charged as one that reads the part
            event = event.event
        fitting = [planned for planned in self._left if self._covers(planned, event)]
        # Without an owner the cost would not be stated.
        if not fitting or owner is None or neighboring_relation != self._relation:
            self._refused = True
            raise BudgetExceededError(
                f"A release of {label} is not in the plan of what it is part of, so it was refused "
                "and no data was used for it. Make it a step of the pipeline with an epsilon of "
                "its own, which the plan then includes, or fit it beforehand."
            )
        # The least that will do: another release may need the rest.
        tightest = reduce(lambda a, b: b if self._covers(a, b) else a, fitting)
        self._left.remove(tightest)
        self.owners.append(owner)


# What this thread releases is part of a release that has been charged as a whole; or it is about no
# private rows at all ("free").
cover_of_thread: ContextVar[Cover | str | None] = ContextVar("skdp_cover", default=None)


@contextmanager
def covered(cover: Cover | str) -> Iterator[None]:
    """Charge nothing inside the block, but hold releases against a plan.

    ``"free"`` is for where no private rows are at work, as in an audit on synthetic ones.
    """
    token = cover_of_thread.set(cover)
    try:
        yield
    finally:
        cover_of_thread.reset(token)
