"""One progress over two runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from skdp.engine.loop import Progress


def parts_of_progress(progress: Progress) -> Callable[[int | None], Progress]:
    """Wrap two iterations in one: the first is of so many states, the second is the rest."""
    waiting: list[Iterable] = []

    def each() -> Iterator:
        while waiting:
            yield from waiting.pop()

    both = iter(progress(each()))

    def part(count: int | None) -> Progress:
        def wrapped(states: Iterable) -> Iterable:
            waiting.append(states)
            return islice(both, count)

        return wrapped

    return part
