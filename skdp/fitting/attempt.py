"""A fit as a whole: all of it or nothing, with callbacks and a progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from skdp.engine.precision import strict
from skdp.fitting import checkpoint as checkpoints

if TYPE_CHECKING:
    pass


_T = TypeVar("_T")


@contextmanager
def attempt(estimator: Any) -> Iterator[None]:
    """Start callbacks, where scikit-learn has them, and put everything back if the fit fails.

    A fit with a checkpoint finds it, and deletes it when it ends.
    """
    if hasattr(estimator, "_init_callback_context"):
        estimator._init_callback_context(max_subtasks=None)
    with all_or_nothing(estimator), checkpoints.opened(estimator, estimator.get_params):
        yield


@contextmanager
def all_or_nothing(estimator: Any) -> Iterator[None]:
    """Put every attribute back if the block fails: no half-fitted estimator, ever.

    All of it is computed in full precision.
    """
    before = dict(vars(estimator))
    try:
        with strict():
            yield
    except BaseException as error:
        report: Any = vars(estimator).get("privacy_")
        vars(estimator).clear()
        vars(estimator).update(before)
        charged = report is not before.get("privacy_")
        if charged and report is not None and type(error) is KeyboardInterrupt and not error.args:
            left = "nothing of this fit is left, and"
            if getattr(estimator, "checkpoint", None) is not None:
                left = "the same fit goes on from its checkpoint at no further charge;"
            raise KeyboardInterrupt(
                f"{type(estimator).__name__} was interrupted after it had been charged: {left} "
                f"epsilon={report.epsilon:.4g} stays spent."
            ) from None
        raise


def progress_bar(verbose: int, n_steps: int | None) -> Callable[[Iterable], Iterable]:
    """Wrap an iteration over steps: in a progress bar if verbose, else not at all."""
    if not verbose:
        return iter
    from tqdm.auto import tqdm

    return partial(tqdm, total=n_steps, desc="noisy steps")


def progress(estimator: Any, n_steps: int | None) -> Callable[[Iterable[_T]], Iterable[_T]]:
    """Wrap an iteration over steps in a progress bar if verbose, and tell callbacks of each.

    Callbacks are told of steps and of nothing else: no data and no state. A wish to stop early is
    not followed, because the whole run has been paid for.
    """
    bar = progress_bar(getattr(estimator, "verbose", 0), n_steps)
    context = getattr(estimator, "_callback_fit_ctx", None)
    if context is None:
        return bar

    def told(steps: Iterable[_T]) -> Iterator[_T]:
        context.call_on_fit_task_begin(estimator=estimator)
        for state in bar(steps):
            step = context.subcontext(task_name="noisy step")
            step.call_on_fit_task_begin(estimator=estimator)
            yield state
            step.call_on_fit_task_end(estimator=estimator)
        context.call_on_fit_task_end(estimator=estimator)

    return told
