"""What statistics share: how values are read, planned, charged and answered.

A statistic is a fit without an estimator to keep: `Query` goes the way of every fit, so that
ledgers, marks of a `DisjointSplit`, persons and seeds are those of `PrivateEstimator`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from dp_accounting.dp_event import DpEvent

from skdp.fitting.estimator import PrivateEstimator
from skdp.fitting.input import without_data
from skdp.fitting.plan import FitPlan, PublicFacts
from skdp.fitting.reading import Records
from skdp.fitting.validate import expected, in_range, moderate_range, one_of
from skdp.mechanisms import GeometricMechanism
from skdp.privacy.budget import Budget
from skdp.privacy.events import PureDpEvent
from skdp.privacy.report import PrivacyReport
from skdp.relations import Relation
from skdp.rows.persons import Persons, PersonUnit, facts_of, persons_of

DATA, POPULATION = OF = ("data", "population")
_EPSILONS = 1e-6, 50.0
_NORM_BITS, _SCALE_BITS = 33, 48  # of what a record moves a release by, and of the noise's scale
_WEIGHTED_BITS = 22  # of weights, and of the values that they multiply: 64 bits hold sums
_SHOWN = 10  # columns that a doubt names
NARROW = 0.05  # width of an interval over that of the bounds, up to which it tells of these
_REMEDY = "Declare bounds that hold nearly all values, and not much more."
_ROUNDING = 4e-15  # for accountants, which round up
AT = (
    "is no farther from its {} bound than the noise: nearly all values are at that bound or beyond "
    f"it, where they are cut, or the bounds are far too wide. {_REMEDY}"
)
ALIKE = (
    "is no larger than the noise: nearly all values are alike, or are beyond one bound, where they "
    f"are cut, or the bounds are far too wide. {_REMEDY}"
)
APART = (
    "is as large as the bounds allow: nearly all values are at one of the bounds or beyond it, "
    f"where they are cut. {_REMEDY}"
)
_WRONG = (
    "Expected values to be numbers of shape (n,) or (n, d), with NaN where one is missing; convert "
    "them first."
)


@dataclass(frozen=True, repr=False, eq=False)
class PrivateStatistic:
    """A released statistic with its interval and its privacy statement.

    ``float(statistic)`` is the value, where it is one number.

    Attributes
    ----------
    name : str
        The function that released it.
    value : float or ndarray
        The estimate, within what is possible.
    low, high, level : float or ndarray, and float
        Ends of the interval, each by itself, and the probability with which it holds, over the
        noise and, of the population's, the sampling.
    interval_of : {"data", "population"}
        Whether the interval is for the rows at hand, or for what they were drawn from.
    privacy_, edges : PrivacyReport, and ndarray or None
        What it cost, and the edges of the bins of a histogram.
    diagnostics_ : tuple of str
        Doubts about the bounds that the released values raise; each was a `FitWarning`.

    Examples
    --------
    >>> from skdp.statistics import dp_count
    >>> count = dp_count([True] * 90 + [False] * 10, epsilon=50.0)
    >>> float(count), count.low, count.high
    (90.0, 90.0, 90.0)
    >>> count
    dp_count: 90. (90 % interval of the data's: 90. to 90.; epsilon=50, zero_out)
    """

    name: str
    value: Any
    low: Any
    high: Any
    level: float
    interval_of: str
    privacy_: PrivacyReport
    edges: np.ndarray | None = None
    diagnostics_: tuple[str, ...] = ()

    def __float__(self) -> float:
        return float(self.value)

    def __repr__(self) -> str:
        value, low, high = (_shown(x) for x in (self.value, self.low, self.high))
        report = self.privacy_
        delta = f", delta={report.delta:g}" if report.delta else ""
        nominal = "" if report.valid else ", NOT a guarantee"
        return (
            f"{self.name}: {value} ({100 * self.level:.4g} % interval of the {self.interval_of}'s: "
            f"{low} to {high}; epsilon={report.epsilon:.4g}{delta}, "
            f"{report.neighboring_relation}{nominal})"
        )


def _shown(x: Any) -> str:
    return np.array2string(np.asarray(x), precision=5, threshold=20, separator=", ")


class Answer(NamedTuple):
    """What a run releases: arrays whose last axis is the columns."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    edges: np.ndarray | None = None


@dataclass(frozen=True, kw_only=True)
class StatisticConfig:
    """Public facts of a run: all that its event depends on."""

    lower: tuple[float, ...]
    upper: tuple[float, ...]
    epsilon: float
    delta: float
    neighboring_relation: Relation
    n: int | None  # values of each column, where their number is public
    most_rows: int  # of a record
    level: float
    of_population: bool
    weight_bound: float | None = None  # W: the largest weight of a row; None where all are 1

    n_releases: ClassVar[int] = 1
    sampling: ClassVar[str] = "full batch, 1 release"
    grid_bits: ClassVar[int] = 31
    divides: ClassVar[bool] = False  # by the number of values
    false: ClassVar[float] = 0.0  # what it counts as
    needs_most_rows: ClassVar[bool] = True  # whether the noise grows with the rows of a person

    @property
    def grid(self) -> int:
        """G: values are rounded to G equal steps of their range; even, a power of two."""
        moved = math.ceil(math.log2(len(self.lower) * self.most_rows))
        spent = math.floor(math.log2(self.epsilon)) - 4  # a sixteenth, or more
        bits = min(self.grid_bits, _WEIGHTED_BITS) if self.weight_bound else self.grid_bits
        return 2 ** min(bits, _NORM_BITS - moved, _SCALE_BITS + spent - moved)

    @property
    def steps(self) -> int:
        """H: weights are rounded to H equal steps of W; 1 where all are 1."""
        return self.grid if self.weight_bound else 1

    def shares_of(self, records: Any) -> np.ndarray:
        """Weights of rows over W, (n,), cut to [0, 1]; (1,) where all are 1."""
        bound = self.weight_bound
        return np.clip(records.weights / bound, 0, 1) if bound else np.ones(1)

    def weights_of(self, records: Any) -> np.ndarray:
        """Integers in [0, H] for them, each by itself, (n, 1) or (1, 1)."""
        return np.rint(self.shares_of(records) * self.steps).astype(np.int64)[:, None]

    @property
    def widths(self) -> np.ndarray:
        """Distances of the bounds, (d,)."""
        return np.array(self.upper) - np.array(self.lower)

    @property
    def factor(self) -> int:
        """How many times what one record adds a sum moves by."""
        return int(self.neighboring_relation.factor)

    def mechanism(self, moved: int, epsilon: float | None = None) -> GeometricMechanism:
        """Noise for integers that neighbours, whoever they are, move so far in the L1 norm."""
        # Under its default relation the bound on a record is the sensitivity.
        return GeometricMechanism(moved, epsilon or self.epsilon)

    def event(self) -> DpEvent:
        """What the run releases."""
        return PureDpEvent(self.epsilon)

    def doubts(self, answer: Answer) -> Iterable[tuple[int, str]]:
        """Columns, and what released values tell against their bounds, after the function's name.

        Where values are 0 and 1, as those of events are, a mean near 0 is one of rare events.
        """
        return ()

    def at_bounds(self, low: np.ndarray, high: np.ndarray) -> Iterable[tuple[int, str]]:
        """Doubts where intervals (d,) of means are narrow and at a bound."""
        shares = (np.array([low, high]) - self.lower) / self.widths
        shares[shares < 1e-9], shares[shares > 1 - 1e-9] = 0.0, 1.0  # in spite of rounding
        for j, (a, b) in enumerate(shares.T.tolist()):
            rare = (self.lower[j], self.upper[j]) == (0.0, 1.0)
            if b - a <= NARROW and ((a <= 0.0 and not rare) or b >= 1.0):
                yield j, AT.format("upper" if b >= 1.0 else "lower")

    def on_grid(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Integers in [0, G] for values (n, d), each by itself, and which of them are there."""
        there = ~np.isnan(values)
        inside = np.clip(np.where(there, values, self.lower), self.lower, self.upper)
        share = (inside - self.lower) / self.widths
        return np.clip(np.rint(share * self.grid), 0, self.grid).astype(np.int64), there


@dataclass(eq=False, repr=False)
class Query(PrivateEstimator):
    """One statistic as a fit; the parameters are those of the functions."""

    name: str
    config: type[StatisticConfig]
    lower: Any = 0.0
    upper: Any = 1.0
    _: KW_ONLY
    epsilon: float
    neighboring_relation: str
    unit: str | Persons
    level: float
    random_state: Any
    delta: float = 0.0
    missing: bool = True
    interval_of: str = DATA
    max_sample_weight: Any = 1.0
    weighted: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    _takes_pure_budget = True
    _takes_weights = True
    _WEIGHTS_REMEDY = "give sample_weight, of which it is the bound"

    @property
    def _NO_FACTS(self) -> tuple[str, ...]:
        """What says what this is, and a bound of weights that are not there."""
        return ("name", "config", "weighted", *["max_sample_weight"] * (not self.weighted))

    def _read(self, X: Any, y: Any) -> tuple[Records, PublicFacts]:
        values = _numbers(X, self.config.false)
        self._is_column = values.ndim == 1
        values = values[:, None] if self._is_column else values
        n = len(values) if self._n_is_public else None
        if n is not None and np.isnan(values).any():
            raise ValueError(
                f"Expected values without NaN: {self.name} takes their number as public under "
                f"{self.neighboring_relation}. Pass missing=True, which releases it too."
            )
        facts = self._facts(n_samples=n, n_features=values.shape[1])
        return Records(values, values[:, :0]), replace(facts, label=self.name)

    @property
    def _n_is_public(self) -> bool:
        told = not self.missing and self.config.divides and not self.weighted
        return told and self._relation.n_is_public

    def _assumptions(self) -> tuple[str, ...]:
        return ("the number of values, which was read from them, is public",) * self._n_is_public

    def _persons(self) -> PersonUnit | None:
        if (persons := persons_of(self.unit, alone="max_rows")) is None:
            return None
        if self.interval_of == POPULATION:
            remedy = "rows of a person are no independent draws"
            raise expected("'data' with unit=Persons(...)", remedy, interval_of=self.interval_of)
        if persons.max_rows is None and self.config.needs_most_rows:
            raise expected("an integer >= 1", "the noise is in proportion to it", max_rows=None)
        return facts_of(replace(persons, rows_per_group=1.0))

    def _person_bound(self, persons: PersonUnit) -> str:
        if self.config.needs_most_rows:
            return "each bounded by itself"
        return "their values have the weight of one"

    def _budget(self) -> Budget:
        in_range(*_EPSILONS, closed="both", epsilon=self.epsilon)
        return super()._budget()

    def _configure(self, facts: PublicFacts, budget: Budget) -> StatisticConfig:
        lower, upper = moderate_range(facts.features, self.lower, self.upper)
        assert budget.epsilon is not None
        return self.config(
            lower=tuple(lower.tolist()),
            upper=tuple(upper.tolist()),
            epsilon=float(budget.epsilon) * (1 - _ROUNDING),
            delta=float(budget.delta),
            neighboring_relation=self._relation,
            n=facts.n_samples,
            most_rows=(facts.persons and facts.persons.most_rows) or 1,
            level=in_range(0.0, 1.0, level=self.level),
            of_population=one_of(OF, interval_of=self.interval_of) == POPULATION,
            weight_bound=float(self.max_sample_weight) if self.weighted else None,
            **self.options,
        )

    def _diagnosed(self, plan: FitPlan, released: Answer) -> tuple[str, ...]:
        found = plan.config.doubts(released)
        one = self._is_column or plan.facts.features == 1
        where = [] if one else [f"column {i}" for i in range(plan.facts.features)]
        told: dict[str, list[str]] = {}
        for column, sentence in found:
            told.setdefault(sentence, []).extend(where[column : column + 1])
        shown = {s: ", ".join(at[:_SHOWN] + ["..."] * (len(at) > _SHOWN)) for s, at in told.items()}
        return tuple(f"{self.name}{' of ' * bool(at)}{at} {s}" for s, at in shown.items())

    def _keep(self, plan: FitPlan, released: Answer) -> None:
        numbers = [x[..., 0] if self._is_column else x for x in released[:3]]
        numbers = [float(x) if np.ndim(x) == 0 else x for x in numbers]
        self.statistic_ = PrivateStatistic(
            self.name,
            *numbers,
            level=plan.config.level,
            interval_of=self.interval_of,
            privacy_=self.privacy_,
            edges=released.edges,
        )


def answer(
    name: str, config: type[StatisticConfig], given: dict[str, Any], **options: Any
) -> PrivateStatistic:
    """Fit a query with all that a function was given, and return what was released."""
    known = {k: v for k, v in given.items() if k in Query.__dataclass_fields__}
    weights = given.get("sample_weight")
    query = Query(name, config, **known, weighted=weights is not None, options=options)
    query._fit(given["values"], None, groups=given["groups"], sample_weight=weights)
    return replace(query.statistic_, diagnostics_=query.diagnostics_)


def _numbers(values: Any, false: float) -> np.ndarray:
    """Values as float64, NaN where they are missing; an error quotes none of them."""
    with without_data(_WRONG):
        if isinstance(values, np.ma.MaskedArray):
            values = np.array(values.tolist(), object).reshape(values.shape)  # None where masked
        array = np.asarray(values)
        if array.dtype.kind in "bO":
            numbers = [_number(x, false) for x in array.ravel().tolist()]
            array = np.reshape(np.array(numbers, dtype=np.float64), array.shape)
        if array.dtype.kind not in "iuf" or array.ndim not in (1, 2) or array.shape[1:] == (0,):
            raise ValueError
        return array.astype(np.float64)


def _number(x: Any, false: float) -> float:
    if x is None or type(x).__name__ in ("NAType", "NaTType"):
        return math.nan
    if isinstance(x, str | bytes):
        raise TypeError
    return false if x is False else float(x)


def sums(columns: np.ndarray) -> list[int]:
    """Exact sums of the columns of integers below 2⁴⁵."""
    parts = range(0, len(columns), 2**18)
    found: Iterable[np.ndarray] = (columns[i : i + 2**18].sum(axis=0) for i in parts)
    return [sum(map(int, of)) for of in np.array([*found, np.zeros(columns.shape[1])], object).T]
