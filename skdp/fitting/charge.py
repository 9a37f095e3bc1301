"""What stands around a run: all of it or nothing, doubts, the charge, streams and progress."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from sklearn.utils import check_random_state

from skdp._version import __version__
from skdp.engine.precision import strict
from skdp.fitting.plan import Config, FitPlan, PublicFacts
from skdp.fitting.streams import Streams, seed_material
from skdp.fitting.types import EVERY, PLACES
from skdp.fitting.validate import expected
from skdp.fitting.warnings import FitWarning, PrivacyWarning
from skdp.rows.bounds import row_norm
from skdp.rows.parts import part_read

if TYPE_CHECKING:
    from skdp.fitting.checkpoint import Checkpoint
    from skdp.privacy.budget import Budget
    from skdp.privacy.report import PrivacyReport

SAID: set[tuple[str, ...]] = set()


class Around(NamedTuple):
    """What stands around a run: its checkpoint, what was spent before, and what may be shown."""

    checkpoint: Checkpoint | None = None
    before: PrivacyReport | None = None  # of the fit that this one goes on from
    public: Any = None


ALONE = Around()


def warn_if_inferred(name: str, facts: tuple[str, ...]) -> None:
    """Say once in a process which facts an estimator's ε takes to be public."""
    if (name, *facts) not in SAID:
        SAID.add((name, *facts))
        warnings.warn(
            f"The privacy statement of {name} is conditional on facts that were read from the data "
            f"being public: {', '.join(facts)}. Declare them ({', '.join(facts)}=...) if they are. "
            "This warning comes once; every report lists them.",
            PrivacyWarning,
            stacklevel=5,
        )


def begun(
    estimator: Any, plan: FitPlan, checkpoint: Checkpoint, arrays: Sequence[Any], beside: Any
) -> None:
    """Begin a run with a checkpoint, or hold one that is resumed against the rows and the plan."""
    from skdp.privacy.cover import cover_of_thread

    if cover_of_thread.get() is not None:
        remedy = "what a trial leaves on the disk is a release that no selection accounts for"
        raise expected("None inside a search or an audit", remedy, checkpoint=estimator.checkpoint)
    # Methods that it has instead of those of its class are of the run too.
    kind = type(estimator)
    held = {k: v for k, v in vars(estimator).items() if callable(getattr(kind, k, None))}
    about = plan.facts, plan.privacy.event, (kind, held), beside
    checkpoint.begin(about, arrays, streams(estimator, *arrays))


def charged(
    estimator: Any,
    plan: FitPlan,
    rows: tuple[Any, ...],
    around: Around = ALONE,
    *,
    groups: Any = None,
    arrays: Sequence[Any] = (),
) -> PrivacyReport:
    """Write what a plan costs to the open ledgers, and return the report. Before any row is used.

    The report is of this plan, on the part of a split that the ``rows`` as given, X, targets and
    whatever else there is of each row, are of, and of what was spent before. A run with a
    checkpoint begins here; ``arrays`` have to be the same when it is resumed.
    """
    from skdp.privacy.ledger import charge

    checkpoint = around.checkpoint
    if checkpoint is not None:
        begun(estimator, plan, checkpoint, arrays, around.public)
    name, n = plan.facts.label, plan.facts.n_samples
    mark = part_read(*rows, groups=groups, relation=plan.privacy.neighboring_relation)
    report = plan.privacy if mark is None else plan.privacy.of_part(mark)
    report = report.of_release(estimator, name, n)
    total = report if around.before is None else around.before + report
    if report.inferred_public_facts:
        warn_if_inferred(name, report.inferred_public_facts)
    if report.seeded:
        warnings.warn(
            f"{name} was given a random_state: epsilon is nominal only, because whoever knows or "
            "guesses the seed can recompute the noise. Use random_state=None for anything that is "
            "released.",
            PrivacyWarning,
            stacklevel=5,
        )
    charge(
        report.event,
        run="" if checkpoint is None else checkpoint.name,
        label=name,
        neighboring_relation=report.neighboring_relation,
        nominal=report.seeded,
        inferred=report.inferred_public_facts,
        owner=estimator,
    )
    if checkpoint is not None:
        checkpoint.charged = True
    return total


_T = TypeVar("_T")


@contextmanager
def attempt(estimator: Any) -> Iterator[Checkpoint | None]:
    """Start callbacks, where scikit-learn has them, and put everything back if the fit fails.

    A fit with a checkpoint finds it, and deletes it when it ends.
    """
    if hasattr(estimator, "_init_callback_context"):
        estimator._init_callback_context(max_subtasks=None)
    path, every = getattr(estimator, "checkpoint", None), getattr(estimator, "every", EVERY)
    with all_or_nothing(estimator):
        if path is None:
            if every != EVERY:
                raise expected(f"{EVERY} without checkpoint", "nothing would be kept", every=every)
            yield None
            return
        from skdp.fitting.checkpoint import Checkpoint

        checkpoint, ended = Checkpoint(path, every, estimator.get_params()), False
        try:
            yield checkpoint
            ended = True
        finally:
            checkpoint.close(ended=ended)


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


def progress(estimator: Any, n_steps: int | None) -> Callable[[Iterable[_T]], Iterable[_T]]:
    """Wrap an iteration over steps in a progress bar if verbose, and tell callbacks of each.

    Callbacks are told of steps and of nothing else: no data and no state. A wish to stop early is
    not followed, because the whole run has been paid for.
    """
    bar, context = iter, getattr(estimator, "_callback_fit_ctx", None)
    if getattr(estimator, "verbose", 0):
        from tqdm.auto import tqdm

        bar = partial(tqdm, total=n_steps, desc="noisy steps")
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


_MOST_NOISE = 1e3  # noise multiplier over the number of rows
_FEW_COLUMNS = 50  # of which a sparse row may well fill most


def warn_if_undeclared(estimator: Any, X: Any, facts: PublicFacts) -> None:
    """Say once in a process if nothing tells where the numbers of a frame lie.

    Arrays have been prepared by whoever made them; a frame is often a table as it was found.
    """
    own = [getattr(estimator, name, None) for name in ("bounds", "edges", "categories")]
    told = not all(given is None or isinstance(given, str) for given in own)
    told |= not isinstance(getattr(estimator, "data_norm", "auto"), str)
    told |= getattr(estimator, "module", None) is not None  # which would know of units
    if told or facts.norm_lost or row_norm(X) is not None:
        return
    dtypes = [str(dtype).lower() for dtype in getattr(X, "dtypes", ())] * hasattr(X, "columns")
    where = (facts.label, "columns")
    if where in SAID or not any(t.startswith(("int", "uint", "float")) for t in dtypes):
        return
    SAID.add(where)
    warnings.warn(
        f"{facts.label} takes the numbers in X as they are, for values in [-1, 1] or so: "
        "nothing says where those of this table lie, and of columns in other units little is "
        f"learned. {estimator._declared_by} This warning comes once.",
        FitWarning,
        stacklevel=6,
    )


def norm_cautions(estimator: Any, facts: PublicFacts) -> tuple[str, ...]:
    """Say if ``data_norm="auto"`` is far above what sparse rows can be expected to have."""
    told = facts.declared_norm is not None or not isinstance(
        getattr(estimator, "data_norm", 0), str
    )
    if told or not facts.sparse or facts.features <= _FEW_COLUMNS:
        return ()
    return (
        f"{facts.label} clips the rows of a sparse X to data_norm='auto', which is "
        f"√{facts.n_features}: noise is in proportion to it, and sparse rows are far shorter. "
        "Give data_norm=, or put a NormClipper(norm=...) right before.",
    )


def norm_diagnosed(estimator: Any, facts: PublicFacts) -> tuple[str, ...]:
    """Say if ``data_norm="auto"`` stands in for a norm that was declared and lost."""
    if not facts.norm_lost or not isinstance(getattr(estimator, "data_norm", None), str):
        return ()
    return (
        f"{facts.label} clips rows to data_norm='auto', which is √{facts.n_features}: a step "
        "before declared a norm, which was lost where its columns were joined with columns "
        "that have none, as in a ColumnTransformer. Give data_norm=, or put a "
        "NormClipper(norm=...) right before.",
    )


def check_noise(estimator: Any, config: Config, budget: Budget) -> None:
    """Refuse noise that dominates any sum over the rows: the budget would buy nothing."""
    sigma, n = getattr(config, "noise_multiplier", 0.0), getattr(config, "n_rows", None)
    if n is None or not isinstance(sigma, float) or sigma <= _MOST_NOISE * n:
        return
    remedy = f"noise would be over {_MOST_NOISE:.0e} times what {n} rows can come to"
    if budget.given is None:
        raise expected("larger", remedy, epsilon=budget.epsilon)
    raise expected("smaller", remedy, noise_multiplier=budget.given)


def streams(estimator: Any, *arrays: np.ndarray) -> Streams:
    """Return the random streams of a fit: keyed by the system, or by the seed and all of the input.

    With a seed, no two data sets, folds or settings share noise, while the same fit repeats.
    """
    if estimator.random_state is None:
        return Streams()
    seed = check_random_state(estimator.random_state).randint(2**31 - 1)
    elsewhere = ("random_state", *PLACES)
    parameters = {k: _named(v) for k, v in estimator.get_params().items() if k not in elsewhere}
    parameters["declared norms"] = [row_norm(array) for array in arrays]
    name = f"{type(estimator).__qualname__} {__version__}"
    return Streams(seed_material(int(seed), name, parameters, *arrays))


def _named(value: Any) -> Any:
    """Name a function that can be imported, whose repr is an address; other functions keep it."""
    if inspect.isroutine(value) and "<" not in value.__qualname__:
        return f"{value.__module__}.{value.__qualname__}"
    return value


def system_bytes(purpose: str, size: int, checkpoint: Checkpoint | None = None) -> bytes:
    """Return random bytes, which are the same again in a run that is resumed."""
    return os.urandom(size) if checkpoint is None else checkpoint.derived(purpose)[:size]


def fingerprint_key(estimator: Any, checkpoint: Checkpoint | None = None) -> bytes:
    """Return a key of fingerprints, which repeat in a seeded fit: its streams are keyed by them."""
    if estimator.random_state is not None:
        return bytes(16)
    return system_bytes("chunks", 16, checkpoint)


def initial_seed(estimator: Any, checkpoint: Checkpoint | None = None) -> int:
    """Return a seed for initial weights, which need not be secret: no function of the data."""
    if estimator.random_state is None:
        return int.from_bytes(system_bytes("initial weights", 4, checkpoint), "little")
    return int(check_random_state(estimator.random_state).randint(2**31 - 1))
