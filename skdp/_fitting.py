"""The steps that every private fit shares: check the input, name the public facts, spend, seed."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar

import numpy as np
from sklearn.utils import check_random_state

from skdp._bounded_sum import MAX_ROWS
from skdp._input import LABELS, row_norm, without_data
from skdp._random import Streams, seed_material
from skdp._validate import expected, in_range, integer, is_real, one_of, positive
from skdp._version import __version__
from skdp._warnings import PrivacyWarning
from skdp.privacy.accounting import ACCOUNTANTS
from skdp.privacy.calibration import calibrate_noise_multiplier
from skdp.privacy.ledger import BudgetExceededError, Cover, charge, covered
from skdp.privacy.report import PrivacyReport
from skdp.relations import ADD_OR_REMOVE_ONE, check_relation

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks  # type: ignore
except ImportError:  # before scikit-learn 1.9

    class CallbackSupportMixin:
        """Stands in where scikit-learn has no callbacks."""

    def with_callbacks(method: Callable) -> Callable:
        """Return the method as it is."""
        return method


__all__ = ["CallbackSupportMixin", "PrivacyWarning", "with_callbacks"]

_T = TypeVar("_T")

_said: set[tuple[str, ...]] = set()


@contextmanager
def all_or_nothing(estimator: Any) -> Iterator[None]:
    """Put every attribute back if the block fails: no half-fitted estimator, ever."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def encode_labels(y: np.ndarray, classes: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the classes, sorted, and each label's number among them.

    ``classes`` is what the caller declared, or None to read them from y.
    """
    if classes is None:
        with without_data(LABELS):
            found, codes = np.unique(y, return_inverse=True)
        if len(found) < 2:
            raise ValueError(
                f"{name} needs at least 2 classes, but y holds only one class; declare "
                "classes=[...] if a class may be absent from the data."
            )
        return found, codes
    declared = _distinct(classes)
    if len(declared) < 2:
        raise expected("a list of at least 2 distinct labels", classes=classes)
    with without_data(LABELS):
        known = np.isin(y, declared).all()
    if not known:
        raise ValueError(
            f"Expected every label in y to be one of the {len(declared)} declared classes, but "
            "there are others; declare them in classes or drop their rows."
        )
    return declared, np.searchsorted(declared, y)


def _distinct(labels: Any) -> np.ndarray:
    """Distinct labels, sorted; none if these are no list of comparable labels."""
    try:
        array = np.asarray(labels)
        return np.unique(array) if array.ndim == 1 else array[:0].ravel()
    except (TypeError, ValueError, IndexError):
        return np.empty(0)


def target_bounds(bounds: Any) -> tuple[float, float]:
    """Check ``target_bounds``; None is no bound."""
    if bounds is None:
        return -np.inf, np.inf
    is_pair = isinstance(bounds, tuple | list | np.ndarray) and len(bounds) == 2
    if not is_pair or not all(map(is_real, bounds)) or not -np.inf < bounds[0] < bounds[1] < np.inf:
        raise expected("None or two finite numbers (low, high), low < high", target_bounds=bounds)
    low, high = float(bounds[0]), float(bounds[1])
    if not 1e-100 < (high - low) / 2 < 1e100:
        raise expected("neither closer than 1e-100 nor farther than 1e100", target_bounds=bounds)
    return low, high


def public_n_rows(estimator: Any, X: np.ndarray) -> int:
    """Return the number of rows that defaults may depend on; under add/remove never ``len(X)``."""
    if estimator.n_samples is not None:
        return integer(1, n_samples=estimator.n_samples)
    if estimator.neighboring_relation == ADD_OR_REMOVE_ONE:
        raise expected(
            "a public number of rows",
            "under add_or_remove_one the number of rows is private, and rates and step sizes "
            "must not depend on it: give a public estimate, e.g. n_samples=10_000",
            n_samples=None,
        )
    return len(X)


def auto_norm(X: np.ndarray) -> float:
    """``data_norm="auto"``: the norm that an earlier step declared, else √n_features."""
    declared = row_norm(X)
    return X.shape[1] ** 0.5 if declared is None else declared


def check_n_rows(X: np.ndarray, most: float | None = None) -> None:
    """Refuse more rows than the rounding bound of a sum covers."""
    most = MAX_ROWS if most is None else most
    if len(X) > most:
        raise ValueError(
            f"Expected X to have at most {most} rows: beyond, the rounding of a sum is not covered "
            "by the declared sensitivity. Fit on a random subset."
        )


def warn_if_inferred(estimator: Any, facts: tuple[str, ...]) -> None:
    """Say once in a process which facts an estimator's ε takes to be public."""
    key = (type(estimator).__name__, *facts)
    if facts and key not in _said:
        _said.add(key)
        warnings.warn(
            f"The privacy statement of {key[0]} is conditional on facts that were read from the "
            f"data being public: {', '.join(facts)}. Declare them ({', '.join(facts)}=...) if they "
            "are. This is said once; every report lists them.",
            PrivacyWarning,
            stacklevel=4,
        )


def spend(
    estimator: Any,
    event: Any,
    sampling: str,
    *,
    before: PrivacyReport | None = None,
    declared: tuple[str, ...] = (),
    assumptions: tuple[str, ...] = (),
) -> PrivacyReport:
    """Write the event to the open ledgers, and return the report. Before any row is used.

    The report is of this event and of what was spent ``before``; ``declared`` names public facts
    that were given otherwise than as parameters, and ``assumptions`` what else ε is conditional on.
    """
    if _planning.get() is estimator:
        raise _Planned(event)
    parameters = estimator.get_params(deep=False)
    inferred_public_facts = tuple(
        fact
        for fact in ("classes", "n_samples")
        if parameters.get(fact, "") is None and fact not in declared
    )
    report = PrivacyReport.of(
        event,
        delta=estimator.delta,
        sampling=sampling,
        neighboring_relation=estimator.neighboring_relation,
        accountant=getattr(estimator, "accountant", "auto"),
        inferred_public_facts=inferred_public_facts,
        seeded=estimator.random_state is not None,
        assumptions=assumptions,
    )
    total = report if before is None else before + report
    warn_if_inferred(estimator, inferred_public_facts)
    if report.seeded:
        warnings.warn(
            f"{type(estimator).__name__} was given a random_state: epsilon is nominal only, "
            "because whoever knows or guesses the seed can recompute the noise. Use "
            "random_state=None for anything that is released.",
            PrivacyWarning,
            stacklevel=4,
        )
    charge(
        event,
        label=type(estimator).__name__,
        neighboring_relation=estimator.neighboring_relation,
        nominal=report.seeded,
        owner=estimator,
    )
    return total


def planned_event(estimator: Any, X: Any, y: Any) -> Any:
    """Event that a fit to data like this would be charged. Nothing is spent and no row is used.

    The fit runs up to where it would spend: parameters and input are checked on the way, and the
    plan is made from public facts, as ever. A release on the way, of what is inside the estimator
    or of the caller's own code, is refused before it touches a row.

    Returns
    -------
    DpEvent

    Raises
    ------
    ValueError
        If a parameter or the input is invalid.
    BudgetExceededError
        If something is released before the estimator itself would spend.
    """
    token, cover = _planning.set(estimator), Cover()
    try:
        with covered(cover):
            estimator.fit(X, y)
    except _Planned as planned:
        if cover.refused:
            raise BudgetExceededError(
                f"Planning the fit of {type(estimator).__name__} made a private release, or "
                "another thread did meanwhile. Fit what is inside it beforehand, one at a time."
            ) from None
        return planned.event
    finally:
        _planning.reset(token)
    raise expected("an estimator that is charged for its fit", estimator=estimator)


class _Planned(BaseException):
    """Ends a fit that is only being planned; no `except Exception` on the way may stop it."""

    def __init__(self, event: Any) -> None:
        super().__init__()
        self.event = event


# The estimator whose fit is being planned.
_planning: ContextVar[Any] = ContextVar("skdp_planning", default=None)


def streams(estimator: Any, *arrays: np.ndarray) -> Streams:
    """Return the random streams of a fit: keyed by the system, or by the seed and all of the input.

    With a seed, no two data sets, folds or settings share noise, while the same fit repeats.
    """
    if estimator.random_state is None:
        return Streams()
    seed = check_random_state(estimator.random_state).randint(2**31 - 1)
    parameters = {k: _named(v) for k, v in estimator.get_params().items() if k != "random_state"}
    parameters["declared norms"] = [row_norm(array) for array in arrays]
    name = f"{type(estimator).__qualname__} {__version__}"
    return Streams(seed_material(int(seed), name, parameters, *arrays))


def _named(value: Any) -> Any:
    """Name a function that can be imported, whose repr is an address; other functions keep it."""
    if inspect.isroutine(value) and "<" not in value.__qualname__:
        return f"{value.__module__}.{value.__qualname__}"
    return value


def initial_seed(estimator: Any) -> int:
    """Return a seed for initial weights, which need not be secret: no function of the data."""
    if estimator.random_state is None:
        return int.from_bytes(os.urandom(4), "little")
    return int(check_random_state(estimator.random_state).randint(2**31 - 1))


def progress_bar(verbose: int, n_steps: int) -> Callable[[Iterable], Iterable]:
    """Wrap an iteration over steps: in a progress bar if verbose, else not at all."""
    if not verbose:
        return iter
    from tqdm.auto import tqdm

    return partial(tqdm, total=n_steps, desc="noisy steps")


def start_callbacks(estimator: Any) -> None:
    """Set up the callbacks that scikit-learn let the user set; at the very start of a fit."""
    if hasattr(estimator, "_init_callback_context"):
        estimator._init_callback_context(max_subtasks=None)


def progress(estimator: Any, n_steps: int) -> Callable[[Iterable[_T]], Iterable[_T]]:
    """Wrap an iteration over steps in a progress bar if verbose, and tell callbacks of each.

    Callbacks are told of steps and of nothing else: no data and no state. A wish to stop early is
    not followed, because the whole run has been paid for.
    """
    bar = progress_bar(estimator.verbose, n_steps)
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


def sampling_rate(estimator: Any, n_rows: int, default: float) -> float:
    """Return the rate that ``sampling_rate`` or ``batch_size`` asks for, or the default."""
    if estimator.sampling_rate is None:
        if estimator.batch_size == "auto":
            return default
        return min(1.0, integer(1, "or 'auto'", batch_size=estimator.batch_size) / n_rows)
    if estimator.batch_size != "auto":
        raise expected(
            "'auto' when sampling_rate is given",
            "the two are alternatives",
            batch_size=estimator.batch_size,
        )
    return in_range(1e-12, 1.0, closed="both", sampling_rate=estimator.sampling_rate)


def noise_multiplier(estimator: Any, rate: float, n_steps: int) -> float:
    """Return the noise multiplier that was given, or the one that the budget asks for."""
    one_of(ACCOUNTANTS, accountant=estimator.accountant)
    if estimator.epsilon is None:
        return positive(noise_multiplier=estimator.noise_multiplier)
    return calibrate_noise_multiplier(
        epsilon=estimator.epsilon,
        delta=estimator.delta,
        sampling_rate=rate,
        n_steps=n_steps,
        neighboring_relation=estimator.neighboring_relation,
        accountant=estimator.accountant,
    )


_MOST_EPSILON = 1e9  # of a finite one


def check_budget(estimator: Any, instead: str = "noise_multiplier", *, pure: bool = False) -> None:
    """Check ``epsilon``, ``delta``, the parameter ``instead`` of ε, and the relation.

    With ``pure``, δ may be 0. What is no seed is refused here too: later it would be charged for.
    """
    check_relation(estimator.neighboring_relation)
    try:
        check_random_state(estimator.random_state)
    except ValueError:
        kind = "None, an integer in [0, 2**32 - 1] or a RandomState"
        raise expected(kind, random_state=estimator.random_state) from None
    delta, alternative = estimator.delta, getattr(estimator, instead)
    if not is_real(delta) or not (0 < delta < 1 or (pure and delta == 0)):
        kind = "a number in [0, 1)" if pure else "a number in (0, 1)"
        raise expected(kind, "well below 1/n, e.g. 1e-5", delta=delta)
    if alternative is None:
        remedy = f"use float('inf') for a fit without privacy, or give {instead} instead"
        if _MOST_EPSILON < positive(remedy, epsilon=estimator.epsilon, allow_inf=True) < np.inf:
            raise expected(f"at most {_MOST_EPSILON:g}, or float('inf')", epsilon=estimator.epsilon)
        return
    positive(**{instead: alternative})
    if instead == "noise_multiplier":
        in_range(1e-30, 1e30, noise_multiplier=alternative)  # its square is a double too
    if estimator.epsilon is not None:
        raise expected(
            f"None when {instead} is given",
            "the two are alternatives: one fixes the other",
            epsilon=estimator.epsilon,
        )
