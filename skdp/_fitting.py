"""`PrivateEstimator`: the one way in which a fit reads, plans, spends, runs and keeps."""

from __future__ import annotations

import copy
import inspect
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from skdp import _checkpoint
from skdp._bounded_rows import norm_lost, row_norm
from skdp._bounded_sum import MAX_ROWS
from skdp._chunked_rows import (
    ArrayInChunks,
    Chunk,
    ChunkedRows,
    first_look,
    in_chunks,
    takes_chunks,
)
from skdp._input import LABELS, without_data
from skdp._marked_rows import part_read
from skdp._named_methods import name_methods
from skdp._persons import PersonUnit, rows_of_persons
from skdp._plan import Config, FitPlan, PublicFacts
from skdp._random import Streams, seed_material
from skdp._rows import copied
from skdp._sparse_rows import SparseRows
from skdp._types import Seed
from skdp._validate import expected, in_range, integer, is_real, is_true, one_of, positive
from skdp._version import __version__
from skdp._warnings import FitWarning, PrivacyWarning
from skdp.engine.precision import strict
from skdp.relations import GROUP, ROW, UNITS, Relation, check_relation

if TYPE_CHECKING:
    from skdp.privacy.budget import Budget
    from skdp.privacy.report import PrivacyReport

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks  # type: ignore
except ImportError:  # before scikit-learn 1.9

    class CallbackSupportMixin:
        """Stands in where scikit-learn has no callbacks."""

    def with_callbacks(method: Callable) -> Callable:
        """Return the method as it is."""
        return method


_T = TypeVar("_T")

PREDICTED_BY_ROW = (
    "the prediction for a row depends on a released model and on that row alone, bit by bit"
)

_said: set[tuple[str, ...]] = set()


@contextmanager
def attempt(estimator: Any) -> Iterator[None]:
    """Start callbacks, where scikit-learn has them, and put everything back if the fit fails.

    A fit with a checkpoint finds it, and deletes it when it ends.
    """
    if hasattr(estimator, "_init_callback_context"):
        estimator._init_callback_context(max_subtasks=None)
    with all_or_nothing(estimator), _checkpoint.opened(estimator, estimator.get_params):
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


def encode_labels(y: np.ndarray, classes: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the classes, sorted, and each label's number among them.

    Parameters
    ----------
    y : ndarray of shape (n,)
        Labels of rows.
    classes : array-like or None
        The declared classes; None reads them from y.
    name : str
        Of the estimator, for messages.

    Returns
    -------
    tuple of ndarray, (n_classes,) and (n,)

    Raises
    ------
    ValueError
        If y holds a label that was not declared, or only one; the label is not named.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp.base import encode_labels
    >>> encode_labels(np.array(["b", "a"]), ["a", "b", "c"], "DPClassifier")[1]
    array([1, 0])
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
    with without_data(LABELS):
        known = np.isin(y, declared).all()
    if not known:
        raise ValueError(
            f"Expected every label in y to be one of the {len(declared)} declared classes, but "
            "there are others; declare them in classes or drop their rows."
        )
    return declared, np.searchsorted(declared, y)


def _distinct(classes: Any) -> np.ndarray:
    """Distinct labels, sorted."""
    try:
        array = np.asarray(classes)
        found = np.unique(array) if array.ndim == 1 else array[:0].ravel()
    except (TypeError, ValueError, IndexError):
        found = np.empty(0)
    if len(found) < 2:
        raise expected("a list of at least 2 distinct labels", classes=classes)
    return found


def n_classes(estimator: Any, classes: Any) -> int | None:
    """Return the number of classes, given or declared; None for neither.

    Parameters
    ----------
    estimator : estimator
        With the parameter ``classes``.
    classes : array-like or None
        Given classes, which go first.

    Returns
    -------
    int or None

    Examples
    --------
    >>> from skdp import DPSGDClassifier
    >>> from skdp.base import n_classes
    >>> n_classes(DPSGDClassifier(classes=["a", "b"]), None)
    2
    """
    labels = estimator.classes if classes is None else classes
    return None if labels is None else len(_distinct(labels))


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


# A declared n may be that of a whole of which folds are fitted, or of last year's table.
_TOO_FEW, _TOO_MANY, _FAR_FROM = 2, 3, 2.1  # of two folds each is half of what was declared
_MORE_THAN = 1.5  # of what was declared, which no fold is


def public_n_rows(declared: int | None, n: int, *, is_public: bool) -> int:
    """Return the number of rows that defaults may depend on: never n, that of X, unless public.

    Where n is public, a number that was declared is held against it.
    """
    if declared is None and not is_public:
        raise expected(
            "a public number of rows",
            "under add_or_remove_one the number of rows is private, and rates and step sizes "
            "must not depend on it: give a public estimate, e.g. n_samples=10_000",
            n_samples=None,
        )
    found = n if declared is None else integer(1, n_samples=declared)
    if is_public and not n <= _TOO_FEW * found <= _TOO_FEW * _TOO_MANY * n:
        raise expected(
            f"near the number of rows, {n}",
            "steps and noise are planned for it; n_samples=None takes it from X and says so in the "
            "report, as learning curves and halving searches need",
            n_samples=declared,
        )
    if is_public and not n <= _MORE_THAN * found <= _MORE_THAN * _FAR_FROM * n:
        which = "for rows that are not there" if found > n else "without many that are there"
        warnings.warn(
            f"n_samples={found} is {found / n:.2g} times the number of rows, {n}: steps, noise and "
            f"posterior are planned {which}. Declare a number nearby.",
            FitWarning,
            stacklevel=6,
        )
    return found


def warn_of_delta(estimator: Any, n: int, name: str = "") -> None:
    """Warn where δ allows one of n records, rows or persons, to be shown."""
    delta, epsilon = estimator.delta, estimator.epsilon
    if is_real(delta) and 1.0 <= delta * n < n and not (is_real(epsilon) and np.isinf(epsilon)):
        one, all_of_them = ("a row", "rows") if estimator.unit == ROW else ("a person", "persons")
        warnings.warn(
            f"{name or type(estimator).__name__} has delta={delta:g} for {n} {all_of_them}: a "
            f"delta of 1/n or more allows a fit that publishes {one} at random. Choose one well "
            "below 1/n.",
            PrivacyWarning,
            stacklevel=6,
        )


def check_n_rows(X: np.ndarray, most: float = MAX_ROWS) -> None:
    """Refuse more rows than the rounding bound of a sum covers."""
    if len(X) > most:
        raise ValueError(
            f"Expected X to have at most {most} rows: beyond, the rounding of a sum is not covered "
            "by the declared sensitivity. Fit on a random subset."
        )


def warn_if_inferred(name: str, facts: tuple[str, ...]) -> None:
    """Say once in a process which facts an estimator's ε takes to be public."""
    if facts and (name, *facts) not in _said:
        _said.add((name, *facts))
        warnings.warn(
            f"The privacy statement of {name} is conditional on facts that were read from the data "
            f"being public: {', '.join(facts)}. Declare them ({', '.join(facts)}=...) if they are. "
            "This warning comes once; every report lists them.",
            PrivacyWarning,
            stacklevel=5,
        )


def begun(estimator: Any, plan: FitPlan, *arrays: np.ndarray, beside: Any = None) -> None:
    """Begin a run with a checkpoint, or hold one that is resumed against the rows and the plan."""
    checkpoint = _checkpoint.current()
    if checkpoint is None:
        return
    from skdp.privacy.ledger import is_covered

    if is_covered():
        remedy = "what a trial leaves on the disk is a release that no selection accounts for"
        raise expected("None inside a search or an audit", remedy, checkpoint=estimator.checkpoint)
    about = plan.facts, plan.privacy.event, _own(estimator), beside
    checkpoint.begin(about, arrays, streams(estimator, *arrays))


def _own(estimator: Any) -> tuple[type, dict[str, Any]]:
    """Return the class of an estimator, and methods that it has instead of those of its class."""
    kind = type(estimator)
    held = {k: v for k, v in vars(estimator).items() if callable(getattr(kind, k, None))}
    return kind, held


def charged(
    estimator: BaseEstimator,
    plan: FitPlan,
    rows: tuple[Any, ...],
    before: PrivacyReport | None = None,
    *,
    groups: Any = None,
) -> PrivacyReport:
    """Write what a plan costs to the open ledgers, and return the report. Before any row is used.

    The report is of this plan, on the part of a split that the ``rows`` as given, X, targets and
    whatever else there is of each row, are of, and of what was spent ``before``.
    """
    from skdp.privacy.ledger import charge

    name, n = plan.facts.label, plan.facts.n_samples
    of_persons = check_relation(plan.privacy.neighboring_relation).unit == GROUP
    mark = part_read(*rows, groups=groups, of_persons=of_persons)
    report = plan.privacy.of_part(mark).of_release(estimator, name, n)
    total = report if before is None else before + report
    warn_if_inferred(name, report.inferred_public_facts)
    if report.seeded:
        warnings.warn(
            f"{name} was given a random_state: epsilon is nominal only, because whoever knows or "
            "guesses the seed can recompute the noise. Use random_state=None for anything that is "
            "released.",
            PrivacyWarning,
            stacklevel=5,
        )
    checkpoint = _checkpoint.current()
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


def streams(estimator: Any, *arrays: np.ndarray) -> Streams:
    """Return the random streams of a fit: keyed by the system, or by the seed and all of the input.

    With a seed, no two data sets, folds or settings share noise, while the same fit repeats. Those
    of a run with a checkpoint are the run's.
    """
    checkpoint = _checkpoint.current()
    if checkpoint is not None and checkpoint.streams is not None:
        return checkpoint.streams
    if estimator.random_state is None:
        return Streams()
    seed = check_random_state(estimator.random_state).randint(2**31 - 1)
    elsewhere = ("random_state", *_checkpoint.PLACES)
    parameters = {k: _named(v) for k, v in estimator.get_params().items() if k not in elsewhere}
    parameters["declared norms"] = [row_norm(array) for array in arrays]
    name = f"{type(estimator).__qualname__} {__version__}"
    return Streams(seed_material(int(seed), name, parameters, *arrays))


def _named(value: Any) -> Any:
    """Name a function that can be imported, whose repr is an address; other functions keep it."""
    if inspect.isroutine(value) and "<" not in value.__qualname__:
        return f"{value.__module__}.{value.__qualname__}"
    return value


def system_bytes(purpose: str, size: int) -> bytes:
    """Return random bytes, which are the same again in a run that is resumed."""
    checkpoint = _checkpoint.current()
    return os.urandom(size) if checkpoint is None else checkpoint.derived(purpose)[:size]


def fingerprint_key(estimator: Any) -> bytes:
    """Return a key of fingerprints, which repeat in a seeded fit: its streams are keyed by them."""
    return system_bytes("chunks", 16) if estimator.random_state is None else bytes(16)


def initial_seed(estimator: Any) -> int:
    """Return a seed for initial weights, which need not be secret: no function of the data."""
    if estimator.random_state is None:
        return int.from_bytes(system_bytes("initial weights", 4), "little")
    return int(check_random_state(estimator.random_state).randint(2**31 - 1))


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


def sampling_rate(estimator: Any, facts: PublicFacts, default: Callable[[int], float]) -> float:
    """Return the rate that ``sampling_rate`` or ``batch_size`` asks for, or the default for n."""
    if estimator.sampling_rate is None:
        if estimator.batch_size == "auto":
            return default(facts.rows)
        return min(1.0, integer(1, "or 'auto'", batch_size=estimator.batch_size) / facts.rows)
    if estimator.batch_size != "auto":
        raise expected(
            "'auto' when sampling_rate is given",
            "the two are alternatives",
            batch_size=estimator.batch_size,
        )
    return in_range(1e-12, 1.0, closed="both", sampling_rate=estimator.sampling_rate)


def check_seed(random_state: Seed) -> None:
    """Refuse what is no seed."""
    try:
        check_random_state(random_state)
    except ValueError:
        kind = "None, an integer in [0, 2**32 - 1] or a RandomState"
        raise expected(kind, random_state=random_state) from None


_MOST_EPSILON = 1e9  # of a finite one
_MOST_NOISE = 1e3  # noise multiplier over the number of rows


def check_budget(
    estimator: Any, instead: str = "noise_multiplier", *, pure: bool = False
) -> Budget:
    """Check ``epsilon``, ``delta``, the parameter ``instead`` of ε, and the relation.

    With ``pure``, δ may be 0. What is no seed is refused here too: later it would be charged for.
    """
    from skdp.privacy.accounting import ACCOUNTANTS
    from skdp.privacy.budget import Budget

    check_relation(estimator.neighboring_relation)
    relation = estimator._relation
    check_seed(estimator.random_state)
    epsilon, delta, given = estimator.epsilon, estimator.delta, getattr(estimator, instead, None)
    if not is_real(delta) or not (0 < delta < 1 or (pure and delta == 0)):
        kind = "a number in [0, 1)" if pure else "a number in (0, 1)"
        remedy = "" if pure or delta != 0 else "; OPSPosteriorSampler and OPSRegressor have delta=0"
        raise expected(kind, f"well below 1/n, e.g. 1e-5{remedy}", delta=delta)
    accountant = one_of(ACCOUNTANTS, accountant=getattr(estimator, "accountant", "auto"))
    if given is None:
        remedy = "use float('inf') for a fit without privacy"
        if hasattr(estimator, instead):
            remedy += f", or give {instead} instead"
        if _MOST_EPSILON < positive(remedy, epsilon=epsilon, allow_inf=True) < np.inf:
            raise expected(f"at most {_MOST_EPSILON:g}, or float('inf')", epsilon=epsilon)
        return Budget(epsilon, delta, relation, accountant)
    positive(**{instead: given})
    if instead == "noise_multiplier":
        remedy = "use epsilon=float('inf') for a fit without privacy"
        in_range(1e-9, 1e30, remedy, closed="both", noise_multiplier=given)
    if epsilon is not None:
        raise expected(
            f"None when {instead} is given",
            "the two are alternatives: one fixes the other",
            epsilon=epsilon,
        )
    return Budget(None, delta, relation, accountant, float(given))


class Records(NamedTuple):
    """The private rows of a fit, checked, with their targets where there are any.

    Where persons are the records, the rows of each lie together.

    Parameters
    ----------
    X : ndarray of shape (n, n_features)
        Rows.
    targets : ndarray of shape (n, ...)
        Targets in the form that a run reads; of any shape for a run that reads none.
    starts : ndarray of shape (n_persons + 1,) or None, default=None
        Where each person's rows begin, and where all end; None where a row is a record.
    weights : ndarray of shape (n,) or None, default=None
        Weights of rows, of which a bound is declared; None where all are 1.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp.base import Records
    >>> len(Records(np.zeros((5, 2)), np.zeros(5)).X)
    5
    """

    X: np.ndarray
    targets: np.ndarray
    starts: np.ndarray | None = None
    weights: np.ndarray | None = None

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """All that there is; of rows in chunks, their fingerprints."""
        if isinstance(self.X, ArrayInChunks):
            return (self.X.fingerprints,)
        arrays = tuple(array for array in self if array is not None)
        return (*self.X.arrays, *arrays[1:]) if isinstance(self.X, SparseRows) else arrays


def _refuse_beside(given: Any) -> None:
    if given is not None:
        raise ValueError(
            "Expected nothing beside rows in chunks: a chunk is X, (X, y) or (X, y, groups)."
        )


def _with_state(estimator: Any, state: dict[str, Any]) -> Any:
    """Another of the class with these very attributes: pickling and copying may make others."""
    other = object.__new__(type(estimator))
    vars(other).update(state)
    return other


def _read_chunk(
    estimator: PrivateEstimator, how: dict[str, Any], subset: bytes, chunk: Chunk
) -> tuple[Records, tuple[PublicFacts, dict[str, Any], bool]]:
    """Read a chunk as rows in memory are read; return what is public, and learned, beside them."""
    reader, before = _with_state(estimator, vars(estimator)), vars(estimator)
    records, facts = reader._read_all(chunk.X, chunk.y, **how)
    records = reader._by_person(records, chunk.groups, subset)
    learned = {k: v for k, v in vars(reader).items() if k not in before or before[k] is not v}
    return records, (facts, learned, chunk.groups is not None)


def check_in_chunks(estimator: Any, plan: FitPlan, records: Records) -> None:
    """Refuse rows in chunks where a run needs more of them than sums; say how long passes take."""
    if not isinstance(records.X, ArrayInChunks):
        return
    config, name = plan.config, plan.facts.label
    if not getattr(config, "asks_sums", False):
        instead = getattr(config, "instead_of_all_rows", "")
        raise ValueError(
            f"Expected arrays: {name} with these parameters needs all rows at once, and takes none "
            "in chunks." + f" Or use {instead}." * bool(instead)
        )
    n_passes = getattr(config, "n_passes", config.n_releases)
    minutes, told = 0.0, f"{name} reads all chunks {n_passes} times at most."
    if estimator._relation.n_is_public:  # or else the time would tell of it
        minutes = n_passes * records.X.reading.seconds / 60.0
        told += (
            f" The first look at them took {records.X.reading.seconds:.2g} s: that makes "
            f"{minutes:.2g} minutes, or about."
        )
    if getattr(estimator, "verbose", 0):
        print(told)
    elif minutes > _MANY_MINUTES:
        warnings.warn(told, FitWarning, stacklevel=5)


_NAMES = "DP", "OPS"  # of the classes that users call, not of what these share
_OF_GROUPS = "it is for unit='group', which protects a person with all of its rows"
_PLAIN = frozenset([int, float, str, bool, type(None)])
_MOST_PLANS, _MOST_REMEMBERED = 256, 1000  # plans that are kept, and columns or labels of one
_MANY_MINUTES = 10.0
_FEW_COLUMNS = 50  # of which a sparse row may well fill most
_plans: dict[tuple, FitPlan] = {}


def _plan_key(estimator: BaseEstimator, facts: PublicFacts) -> tuple | None:
    """Everything that a plan depends on, types included; None where an object could change.

    Classes of other packages have attributes and code of their own, which may change too. Plans of
    very many columns or classes are large, and not kept either.
    """
    if not type(estimator).__module__.startswith("skdp."):
        return None
    if max(facts.n_features or 0, facts.n_outputs or 0) > _MOST_REMEMBERED:
        return None
    parts: list[Any] = [type(estimator), facts]
    for name, value in estimator.get_params(deep=False).items():
        values = tuple(value) if isinstance(value, list | tuple | range) else (value,)
        kinds = tuple(map(type, values))
        if not _PLAIN.issuperset(kinds) or len(values) > _MOST_REMEMBERED:
            return None
        parts += [name, type(value), kinds, values]
    return tuple(parts)


@dataclass(eq=False, repr=False)
class ProtectedUnit:
    """Parameters of the privacy unit, of estimators that can protect persons.

    Parameters
    ----------
    unit : {"row", "group"}, default="row"
        Whose presence is protected: a row's, or that of a person with all of its rows together.
        With ``"group"``, `fit` takes ``groups``: one label per row.
    n_groups : int or None, default=None
        Public number of persons; needed with ``unit="group"`` where a fit depends on it.
    rows_per_group : float or None, default=None
        Public mean number ≥ 1 of rows of a person. None is ``n_samples / n_groups`` where both are
        declared, else 5.
    group_clip : float or "auto", default="auto"
        What the scores of a person are clipped to together, over the bound on those of one row.
        ``"auto"`` is √((3 rows_per_group + 1)/4).
    max_rows_per_group : int or None, default=None
        Rows of a person that take part, at most: a random subset, by a hash of the person's label
        and number of rows. A larger ``rows_per_group`` counts as this number.

    Examples
    --------
    >>> from skdp import DPStandardScaler
    >>> scaler = DPStandardScaler(unit="group", rows_per_group=3, epsilon=float("inf"))
    >>> scaler.fit([[1.0], [0.5], [-1.0]], groups=["ann", "bo", "ann"]).n_features_in_
    1
    """

    _: KW_ONLY
    unit: str = ROW
    n_groups: int | None = None
    rows_per_group: float | None = None
    group_clip: float | str = "auto"
    max_rows_per_group: int | None = None

    def _persons(self) -> PersonUnit | None:
        """Public facts about persons, where these are the records."""
        if one_of(UNITS, unit=self.unit) == ROW:
            for name in ("n_groups", "rows_per_group", "max_rows_per_group"):
                if getattr(self, name) is not None:
                    raise expected(
                        "None with unit='row'", _OF_GROUPS, **{name: getattr(self, name)}
                    )
            if not isinstance(self.group_clip, str) or self.group_clip != "auto":
                raise expected("'auto' with unit='row'", _OF_GROUPS, group_clip=self.group_clip)
            return None
        n_groups = self.n_groups
        if n_groups is None and hasattr(self, "n_samples"):
            remedy = "persons cannot be counted privately: declare about how many there are"
            raise expected("a public number of persons", remedy, n_groups=None)
        if n_groups is not None:
            n_groups = integer(1, n_groups=n_groups)
        return PersonUnit.of(
            n_groups,
            self.rows_per_group,
            self.group_clip,
            self.max_rows_per_group,
            getattr(self, "n_samples", None),
        )


class PrivateEstimator(CallbackSupportMixin, BaseEstimator):
    """A private estimator or transformer: plans from public facts, spends, then runs.

    A subclass says three things: `_read` checks the input and names the public facts, `_configure`
    turns facts and parameters into the config of a run, `_keep` stores what it released. See
    docs/adding_an_algorithm.md.

    Attributes
    ----------
    privacy_ : PrivacyReport
        The privacy statement of the fit.
    diagnostics_ : tuple of str
        Doubts about the fit that released values raise; each was a `FitWarning`.

    Examples
    --------
    >>> from skdp import DPStandardScaler
    >>> from skdp.base import PrivateEstimator
    >>> isinstance(DPStandardScaler(), PrivateEstimator)
    True
    """

    privacy_: PrivacyReport
    n_features_in_: int
    neighboring_relation: str
    random_state: Any
    unit: str = ROW  # without `ProtectedUnit` before this class, rows are the records
    # The parameter that takes the place of epsilon, and whether delta may be 0.
    _instead_of_epsilon: ClassVar[str] = "noise_multiplier"
    _takes_pure_budget: ClassVar[bool] = False
    _takes_sparse: ClassVar[bool] = False
    # What declares where the columns of a frame lie; "" where there is no such thing.
    _declared_by: ClassVar[str] = ""
    _no_unit: ClassVar[str] = ""  # remedy where ``unit`` was something else
    _max_rows: ClassVar[float] = MAX_ROWS  # beyond, the rounding of a sum is not covered

    def plan(
        self, n_samples: int | None = None, n_features: int | None = None, classes: Any = None
    ) -> FitPlan:
        """Plan a fit from public facts: ε, noise, steps and memory, before any data exist.

        Parameters
        ----------
        n_samples : int or None, default=None
            Public number of rows; not asked for where the estimator declares one.
        n_features : int or None, default=None
            Number of features.
        classes : array-like or None, default=None
            Class labels; None for those that were declared.

        Returns
        -------
        FitPlan
            What `fit` on such data would do and be charged.

        Raises
        ------
        ValueError
            If a parameter is invalid, or a fact that the plan depends on is missing; the message
            names it.
        """
        if n_samples is not None:
            integer(1, n_samples=n_samples)
        if n_features is not None:
            integer(1, n_features=n_features)
        declared = self._declared_n_samples()
        return self._plan(
            self._facts(
                n_samples=n_samples if declared is None else integer(1, n_samples=declared),
                n_features=n_features,
                n_outputs=self._n_outputs(classes),
                declared=() if declared is None else ("n_samples",),
            )
        )

    def fit(self, X, y=None, groups=None) -> Self:
        """Fit, privately.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Numbers; dense, and finite unless the class takes NaN.
        y : array-like of shape (n_samples,) or None, default=None
            Class labels or targets; a transformer ignores them.
        groups : array-like of shape (n_samples,) or None, default=None
            With ``unit="group"``: the person whose row it is, as any label.

        Returns
        -------
        Self
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter or the input is invalid; nothing has been spent then.
        BudgetExceededError
            If an open `PrivacyLedger` refuses the fit; no row has been used then.
        """
        return self._fit(X, y, groups=groups)

    @with_callbacks
    def _fit(self, X: Any, y: Any, *, groups: Any = None, **how: Any) -> Self:
        """Fit to rows, and to what else a subclass takes beside them."""
        told = getattr(self, "verbose", 0) if self._relation.n_is_public else 0
        with attempt(self), in_chunks(X, y, groups, verbose=told) as (X, y, groups):
            given = (X, y, how.get("sample_weight"))
            self._check_beside(X, groups)
            records, facts = self._taken_in(X, y, **how)
            self._warn_if_undeclared(given[0], facts)
            check_n_rows(records.X, self._max_rows)
            records = self._by_person(records, groups)
            plan = self._plan(facts)
            check_in_chunks(self, plan, records)
            run = self._prepared(plan, records)
            begun(self, plan, *records.arrays)
            steps = progress(self, plan.n_steps)
            self.privacy_ = charged(self, plan, given, groups=groups)
            released = run(records, streams(self, *records.arrays), steps)
            self._keep(plan, released)
            self.diagnostics_ = self._norm_diagnosed(facts) + self._diagnosed(plan, released)
        # Outside: as errors, by a filter, they must not throw away a fit that has been paid for.
        for message in self.diagnostics_:
            warnings.warn(message, FitWarning, stacklevel=4)
        return self

    # --- what a subclass says -------------------------------------------------------------------

    def _read(self, X: Any, y: Any) -> tuple[Records, PublicFacts]:
        """Check the input, and name what is public about it but for its number of rows.

        Of rows in chunks it is asked of each chunk, in each pass, on a copy of the estimator.
        """
        raise NotImplementedError

    def _configure(self, facts: PublicFacts, budget: Budget) -> Config:
        """Check the parameters and fill in the defaults, from public facts alone."""
        raise NotImplementedError

    def _keep(self, plan: FitPlan, released: Any) -> None:
        """Store what a run released as fitted attributes."""
        raise NotImplementedError

    def _diagnosed(self, plan: FitPlan, released: Any) -> tuple[str, ...]:
        """Say what the released values, and they alone, tell against the fit."""
        return ()

    def _prepared(self, plan: FitPlan, records: Records) -> Callable[..., Any]:
        """Build what can be built before the charge, and return what runs."""
        return plan.config.run

    def _n_outputs(self, classes: Any) -> int | None:
        """Number of outputs, for given or declared classes."""
        return 1

    def _declared_n_samples(self) -> int | None:
        """Return the number of rows that was declared, of persons by how many they have."""
        declared, persons = getattr(self, "n_samples", None), self._persons()
        return declared if persons is None or persons.n_rows is None else persons.n_rows

    def _assumptions(self) -> tuple[str, ...]:
        """What ε is conditional on besides public facts."""
        return ()

    def _memory_told_by(self) -> str:
        """Name of the method that finds out what memory a fit takes, where no plan can know."""
        return ""

    def _budget(self) -> Budget:
        """Check what the fit may spend."""
        return check_budget(self, self._instead_of_epsilon, pure=self._takes_pure_budget)

    # --- what is the same for all ---------------------------------------------------------------

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        of_rows = isinstance(self.unit, str) and self.unit == ROW
        secure = is_true(getattr(self, "secure", False))
        tags.input_tags.sparse = self._takes_sparse and of_rows and not secure
        return tags

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        takes_chunks(cls)
        if cls.__name__.startswith(_NAMES):
            name_methods(cls)

    def _taken_in(self, X: Any, y: Any, **how: Any) -> tuple[Records, PublicFacts]:
        """Read the rows, at once or a chunk at a time, and count them."""
        if not isinstance(X, ChunkedRows):
            records, facts = self._read_all(X, y, **how)
        else:
            records, facts = self._first_look(X, y, how)
        return records, self._counted(facts, len(records.X))

    def _read_all(self, X: Any, y: Any, **how: Any) -> tuple[Records, PublicFacts]:
        """Read rows, with all that is given beside them."""
        return self._read(X, y, **how)

    def _first_look(
        self, rows: ChunkedRows, y: Any, how: dict[str, Any]
    ) -> tuple[Records, PublicFacts]:
        """Look at each chunk, and take on what is learned from their columns."""
        _refuse_beside(y)
        key = fingerprint_key(self)
        if self.unit == GROUP:
            rows = rows.by_person(key)
        subset = initial_seed(self).to_bytes(4, "little")
        # Chunks are to agree on what is learned from them, not on what a former fit has left.
        if not how.get("goes_on", False):
            vars(self).pop("feature_names_in_", None)
            state = self.get_params(deep=False)
        else:
            state = vars(self)
        # Noise is drawn here: those who read need no seed.
        read = partial(_read_chunk, _with_state(self, state | {"random_state": None}), how, subset)
        n_is_public = self._relation.n_is_public
        arrays, (facts, learned, has_groups) = first_look(rows, read, key, n_is_public=n_is_public)
        self._check_groups("given" if has_groups else None)
        vars(self).update(learned)
        return Records(*arrays), facts

    def _counted(self, facts: PublicFacts, n: int) -> PublicFacts:
        """Public facts with the number of rows, where the plan depends on it."""
        is_public, persons = self._relation.n_is_public, facts.persons
        if hasattr(self, "n_samples"):
            n_samples = public_n_rows(self._declared_n_samples(), n, is_public=is_public)
            facts = replace(facts, n_samples=n_samples)
        told = n if is_public else facts.n_samples
        if told := told if persons is None else persons.n_groups:
            warn_of_delta(self, told, facts.label)
        return facts

    @property
    def _relation(self) -> Relation:
        """Who is a neighbour: a row, or a person."""
        return check_relation(self.neighboring_relation).of_unit(
            one_of(UNITS, self._no_unit, unit=self.unit)
        )

    def _persons(self) -> PersonUnit | None:
        """Public facts about persons, where these are the records; see `ProtectedUnit`."""
        return None

    def _persons_in_words(self, persons: PersonUnit | None) -> str:
        """Say how the rows of a person are bounded, where persons are the records."""
        if persons is None:
            return ""
        most = "all" if persons.most_rows is None else f"at most {persons.most_rows}"
        return f", each person as one record of {most} of its rows: {self._person_bound(persons)}"

    def _person_bound(self, persons: PersonUnit) -> str:
        """Say what all rows of a person may contribute."""
        return persons.bound_in_words

    def _check_beside(self, X: Any, groups: Any) -> None:
        """Check labels of persons that were given beside rows; chunks have them inside."""
        if isinstance(X, ChunkedRows):
            _refuse_beside(groups)
        else:
            self._check_groups(groups)

    def _check_groups(self, groups: Any) -> None:
        """Refuse labels of persons that no one would look at, and their absence."""
        if one_of(UNITS, self._no_unit, unit=self.unit) == ROW:
            if groups is not None:
                raise expected("None with unit='row'", _OF_GROUPS, groups="given")
        elif groups is None:
            raise expected(
                "one label per row with unit='group'",
                "pipelines and searches pass them on by metadata routing alone: "
                "sklearn.set_config(enable_metadata_routing=True), and then "
                "set_fit_request(groups=True) on this estimator",
                groups=None,
            )

    def _by_person(self, records: Records, groups: Any, key: bytes | None = None) -> Records:
        """Bring the rows of each person together; rows in chunks are so already."""
        persons = self._persons()
        if persons is None or isinstance(records.X, ArrayInChunks):
            return records
        key = initial_seed(self).to_bytes(4, "little") if key is None else key
        rows, starts = rows_of_persons(groups, len(records.X), persons.most_rows, key)
        X, targets = copied(records.X, rows), copied(records.targets, rows)
        weights = None if records.weights is None else records.weights[rows]
        return records._replace(X=X, targets=targets, starts=starts, weights=weights)

    def _warn_if_undeclared(self, X: Any, facts: PublicFacts) -> None:
        """Say once in a process if nothing tells where the numbers of a frame lie.

        Arrays have been prepared by whoever made them; a frame is often a table as it was found.
        """
        own = [getattr(self, name, None) for name in ("bounds", "edges", "categories")]
        told = not all(given is None or isinstance(given, str) for given in own)
        told |= not isinstance(getattr(self, "data_norm", "auto"), str)
        if told or not self._declared_by or facts.norm_lost or row_norm(X) is not None:
            return
        dtypes = [str(dtype).lower() for dtype in getattr(X, "dtypes", ())] * hasattr(X, "columns")
        where = (facts.label, "columns")
        if where in _said or not any(t.startswith(("int", "uint", "float")) for t in dtypes):
            return
        _said.add(where)
        warnings.warn(
            f"{facts.label} takes the numbers in X as they are, for values in [-1, 1] or so: "
            "nothing says where those of this table lie, and of columns in other units little is "
            f"learned. {self._declared_by} This warning comes once.",
            FitWarning,
            stacklevel=5,
        )

    def _norm_cautions(self, facts: PublicFacts) -> tuple[str, ...]:
        """Say if ``data_norm="auto"`` is far above what sparse rows can be expected to have."""
        told = facts.declared_norm is not None or not isinstance(getattr(self, "data_norm", 0), str)
        if told or not facts.sparse or facts.features <= _FEW_COLUMNS:
            return ()
        return (
            f"{facts.label} clips the rows of a sparse X to data_norm='auto', which is "
            f"√{facts.n_features}: noise is in proportion to it, and sparse rows are far shorter. "
            "Give data_norm=, or put a NormClipper(norm=...) right before.",
        )

    def _norm_diagnosed(self, facts: PublicFacts) -> tuple[str, ...]:
        """Say if ``data_norm="auto"`` stands in for a norm that was declared and lost."""
        if not facts.norm_lost or not isinstance(getattr(self, "data_norm", None), str):
            return ()
        return (
            f"{facts.label} clips rows to data_norm='auto', which is √{facts.n_features}: a step "
            "before declared a norm, which was lost where its columns were joined with columns "
            "that have none, as in a ColumnTransformer. Give data_norm=, or put a "
            "NormClipper(norm=...) right before.",
        )

    def _facts(self, *, declared: tuple[str, ...] = (), **known: Any) -> PublicFacts:
        """Public facts; those that no parameter declares count as read from the data."""
        inferred = []
        declared += ("n_samples",) * (self.unit == GROUP)
        for fact in ("classes", "n_samples"):
            if getattr(self, fact, "") is None and fact not in declared:
                inferred.append(fact)
        return PublicFacts(
            label=type(self).__name__, inferred=tuple(inferred), persons=self._persons(), **known
        )

    def _facts_of(self, X: np.ndarray, n_outputs: int = 1, **more: Any) -> PublicFacts:
        """Public facts about rows that have been checked, but for their number."""
        return self._facts(
            n_features=X.shape[1],
            n_outputs=n_outputs,
            declared_norm=row_norm(X),
            norm_lost=norm_lost(X),
            sparse=isinstance(X, SparseRows),
            **more,
        )

    def _plan(self, facts: PublicFacts) -> FitPlan:
        """Plan from public facts alone; a plan that was made before is found again."""
        key = _plan_key(self, facts)
        plan = None if key is None else _plans.get(key)
        if plan is None:
            plan = self._planned(facts)
            if key is not None:
                while len(_plans) >= _MOST_PLANS:
                    _plans.pop(next(iter(_plans)), None)
                _plans[key] = plan
        # A copy: events hold lists, and what a fit or a caller does with its plan, its report or
        # its config must not reach another fit. Two fits that share a report count as one release.
        plan = copy.deepcopy(plan)
        for caution in plan.cautions:
            warnings.warn(caution, stacklevel=5)
        return plan

    def _check_noise(self, config: Config, budget: Budget) -> None:
        """Refuse noise that dominates any sum over the rows: the budget would buy nothing."""
        sigma, n = getattr(config, "noise_multiplier", 0.0), getattr(config, "n_rows", None)
        if n is None or not isinstance(sigma, float) or sigma <= _MOST_NOISE * n:
            return
        remedy = f"noise would be over {_MOST_NOISE:.0e} times what {n} rows can come to"
        if budget.given is None:
            raise expected("larger", remedy, epsilon=budget.epsilon)
        raise expected("smaller", remedy, noise_multiplier=budget.given)

    def _planned(self, facts: PublicFacts) -> FitPlan:
        from skdp.privacy.report import PrivacyReport

        budget = self._budget()
        config = self._configure(facts, budget)
        self._check_noise(config, budget)
        report = PrivacyReport.of(
            config.event(),
            delta=budget.delta,
            sampling=str(config.sampling) + self._persons_in_words(facts.persons),
            neighboring_relation=budget.neighboring_relation,
            accountant=budget.accountant,
            inferred_public_facts=facts.inferred,
            seeded=self.random_state is not None,
            assumptions=self._assumptions(),
        )
        memory = getattr(config, "memory", None)
        return FitPlan(
            facts=facts,
            config=config,
            privacy=report,
            memory=memory,
            cautions=(*getattr(config, "cautions", ()), *self._norm_cautions(facts)),
            memory_told_by=self._memory_told_by(),
            n_steps=config.n_releases,
        )
