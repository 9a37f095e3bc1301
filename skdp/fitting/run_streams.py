"""The random streams of a run with a checkpoint: one per step, found again when it is resumed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skdp.fitting.streams import SecureStream, Streams, hashed, this_process


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
    seen : callable or None, default=None
        Called with a step and its exact sum, before noise is drawn for it.
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
