"""A fit's plan as a value: what is public about the data, what will be released, what it costs.

`PublicFacts` cannot hold a row, so a plan that is made of them has not seen one (law 1 of
docs/design.md). The config inside a plan is the very object that runs (law 2).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from skdp.fitting.streams import Streams
from skdp.rows.persons import Persons, PersonUnit

if TYPE_CHECKING:
    from dp_accounting.dp_event import DpEvent

    from skdp.privacy.report import PrivacyReport


class MissingFactError(ValueError):
    """A plan needs a public fact that was neither declared nor given.

    Parameters
    ----------
    fact : str
        Its name.
    label : str
        Class of the estimator.

    Examples
    --------
    >>> from skdp import DPVariationalLinearRegression
    >>> DPVariationalLinearRegression(n_samples=100).plan()
    Traceback (most recent call last):
      ...
    skdp.fitting.plan.MissingFactError: The plan of DPVariationalLinearRegression depends on ...
    """

    def __init__(self, fact: str, label: str) -> None:
        super().__init__(
            f"The plan of {label} depends on {fact}, which is not known: give {fact}=... to plan."
        )
        self.fact = fact


@dataclass(frozen=True)
class PublicFacts:
    """What a plan may know of the data.

    Attributes
    ----------
    label : str
        Class of the estimator, for messages.
    n_samples : int or None
        Number of rows, declared or public by the neighbouring relation.
    n_features : int or None
        Number of features.
    n_outputs : int or None
        Number of classes or of targets.
    declared_norm : float or None
        Bound on the norm of a row that an earlier step declares.
    norm_lost : bool
        Whether an earlier step declared one that was lost on the way.
    exposed : bool
        Whether the fit was given exposures.
    sparse : bool
        Whether the rows are a sparse matrix: what holds them, not what is in them.
    inferred : tuple of str
        Facts that were read from the data and are taken to be public.
    persons : PersonUnit or None
        About persons, where these are the records.
    standardised : bool
        Whether these are facts of columns that are standardised inside the fit.
    one_epoch : bool
        Whether these are facts of a call that trains for one epoch alone.

    Examples
    --------
    >>> from skdp.base import PublicFacts
    >>> PublicFacts("DPClassifier", n_features=4).features
    4
    """

    label: str
    n_samples: int | None = None
    n_features: int | None = None
    n_outputs: int | None = None
    declared_norm: float | None = None
    norm_lost: bool = False
    exposed: bool = False
    sparse: bool = False
    inferred: tuple[str, ...] = ()
    persons: PersonUnit | None = None
    standardised: bool = False
    one_epoch: bool = False

    @property
    def rows(self) -> int:
        """Number of rows; an error that names the fact if it is unknown."""
        return self._known("n_samples", self.n_samples)

    @property
    def features(self) -> int:
        """Number of features; an error that names the fact if it is unknown."""
        return self._known("n_features", self.n_features)

    @property
    def outputs(self) -> int:
        """Number of classes or targets; an error that names the fact if it is unknown."""
        return self._known("classes", self.n_outputs)

    def _known(self, fact: str, value: int | None) -> int:
        if value is None:
            raise MissingFactError(fact, self.label)
        return value

    @property
    def auto_norm(self) -> float:
        """``data_norm="auto"``: the norm that an earlier step declared, else √n_features."""
        return self.features**0.5 if self.declared_norm is None else self.declared_norm


class Config(Protocol):
    """Public facts of a run: all that its event depends on, and the run itself.

    Examples
    --------
    >>> from skdp import DPStandardScaler
    >>> DPStandardScaler().plan(n_features=2).config.n_releases
    1
    """

    @property
    def n_releases(self) -> int:
        """Number of noisy releases, for a progress bar."""
        ...

    @property
    def sampling(self) -> Any:
        """How records take part; its text stands in the report."""
        ...

    def event(self) -> DpEvent:
        """What the run releases."""
        ...

    def run(self, rows: Any, streams: Streams, progress: Callable[[Iterable], Iterable]) -> Any:
        """Run on private rows."""
        ...


@dataclass(frozen=True, repr=False)
class FitPlan:
    """What a fit will do and what it costs, made from public facts before any data exist.

    Attributes
    ----------
    facts : PublicFacts
        What was known.
    config : Config
        Settings of the algorithm, defaults filled in: the object that runs.
    privacy : PrivacyReport
        Statement about what the estimator itself is charged.
    parts : mapping of str to FitPlan
        Plans of private estimators inside it that are charged by themselves.
    memory : int or None
        Bytes that a fit takes beyond its input, about; None where a module has to be tried first.
    cautions : tuple of str
        What a fit with this plan warns of.
    doubts : tuple of str
        What it says in its ``diagnostics_``, whatever it releases.
    memory_told_by : str
        Method of the estimator that finds out what memory a fit takes, where it is not known.
    n_steps : int or None
        Number of noisy releases; None where that is a secret.

    Examples
    --------
    >>> from skdp import DPStandardScaler
    >>> plan = DPStandardScaler(epsilon=0.1).plan(n_features=2)
    >>> round(plan.epsilon, 6), plan.privacy.sampling
    (0.1, 'full batch, 1 release')
    """

    facts: PublicFacts
    config: Any
    privacy: PrivacyReport
    parts: Mapping[str, FitPlan] = field(default_factory=dict)
    memory: int | None = None
    cautions: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    memory_told_by: str = ""
    n_steps: int | None = None

    @property
    def events(self) -> tuple[DpEvent, ...]:
        """What ledgers will be charged, in order: the parts, then the estimator itself."""
        of_parts = tuple(event for part in self.parts.values() for event in part.events)
        return (*of_parts, self.privacy.event)

    @property
    def event(self) -> DpEvent:
        """All of it as one event."""
        from dp_accounting.dp_event import ComposedDpEvent

        return ComposedDpEvent(list(self.events)) if self.parts else self.privacy.event

    @property
    def total(self) -> PrivacyReport:
        """Statement about the fit as a whole, parts included."""
        from skdp.privacy.report import PrivacyReport

        reports = [part.total for part in self.parts.values()]
        return PrivacyReport.compose([*reports, self.privacy])

    @property
    def epsilon(self) -> float:
        """ε of all that the fit will be charged, parts included."""
        return self.total.epsilon

    @property
    def delta(self) -> float:
        """δ of the fit as a whole."""
        return self.total.delta

    @property
    def noise_multiplier(self) -> float | None:
        """Standard deviation of the noise over the bound on one record, where it is one number."""
        return getattr(self.config, "noise_multiplier", None)

    @property
    def expected_batch_size(self) -> float | None:
        """Expected number of rows in a step; None where the number of rows is unknown."""
        rate = getattr(getattr(self.config, "sampling", None), "rate", 1.0)
        return None if self.facts.n_samples is None else rate * self.facts.n_samples

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain Python objects."""
        return {
            "estimator": self.facts.label,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "n_steps": self.n_steps,
            "noise_multiplier": self.noise_multiplier,
            "expected_batch_size": self.expected_batch_size,
            "memory": self.memory,
            "sampling": self.privacy.sampling,
            "n_samples": self.facts.n_samples,
            "n_features": self.facts.n_features,
            "privacy": self.total.to_dict(),
            "parts": {name: part.to_dict() for name, part in self.parts.items()},
        }

    def __repr__(self) -> str:
        total = self.total
        memory = f"unknown before a trial: see {self.memory_told_by}" * bool(self.memory_told_by)
        if self.memory is not None:
            memory = f"about {self.memory / 2**20:.3g} MiB beyond the input"
        shown = {
            "sampling": self.privacy.sampling,
            "noise multiplier": self.noise_multiplier,
            "expected batch size": self.expected_batch_size,
            "memory": memory,
        }
        parts = {f"part {name!r}": repr(part) for name, part in self.parts.items()}
        shown |= {name: text.replace("\n", "\n  ") for name, text in parts.items()}
        price = f"(epsilon={total.epsilon:.4g}, delta={total.delta:g})"
        lines = [f"  {name:<20}  {value}" for name, value in shown.items() if value]
        return "\n".join([f"FitPlan of {self.facts.label}: {price}", *lines])


_PLAIN = frozenset([int, float, str, bool, type(None)])

_MOST_PLANS, _MOST_REMEMBERED = 256, 1000  # plans that are kept, and columns or labels of one

PLANS: dict[tuple, bytes] = {}  # pickled, of which copies are made more quickly


def _frozen(value: Any) -> tuple:
    """Return a parameter and all in it, types included; TypeError where an object could change."""
    kind = type(value)
    if kind in _PLAIN:
        return kind, value
    values = vars(value) if kind is Persons else value
    if kind not in (dict, list, tuple, range, Persons) or len(values) > _MOST_REMEMBERED:
        raise TypeError
    values = [*values, *values.values()] if isinstance(values, dict) else values
    return kind, *map(_frozen, values)


def _plan_key(estimator: Any, facts: PublicFacts) -> tuple | None:
    """Everything that a plan depends on, types included; None where an object could change.

    Classes of other packages have attributes and code of their own, which may change. Plans of very
    many columns or classes are large, and not kept either.
    """
    if not type(estimator).__module__.startswith("skdp."):
        return None
    if max(facts.n_features or 0, facts.n_outputs or 0) > _MOST_REMEMBERED:
        return None
    try:
        parameters = _frozen(estimator.get_params(deep=False))
    except (TypeError, RecursionError):
        return None
    # Bounds by name are those of columns that a fit has seen.
    names = tuple(getattr(estimator, "feature_names_in_", ()))
    seen = hasattr(estimator, "n_features_in_"), names
    return type(estimator), facts, seen, parameters


def remembered(estimator: Any, facts: PublicFacts, make: Callable[[], FitPlan]) -> FitPlan:
    """Return a plan that was made before, or make it; a copy, which is the caller's own.

    What a fit or a caller does with its plan, its report or its config must not reach another fit.
    Two fits that share a report count as one release.
    """
    key = _plan_key(estimator, facts)
    if key is None:
        return make()
    plan = PLANS.get(key)
    if plan is None:
        plan = pickle.dumps(make(), pickle.HIGHEST_PROTOCOL)
        while len(PLANS) >= _MOST_PLANS:
            PLANS.pop(next(iter(PLANS)), None)
        PLANS[key] = plan
    return pickle.loads(plan)
