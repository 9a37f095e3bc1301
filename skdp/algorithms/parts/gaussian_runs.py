"""What the configs of Gaussian mechanisms share: noise for a budget, and runs on linear rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, ClassVar, Protocol, Self, TypeVar

import numpy as np

from skdp.engine.grid import lattice_bits
from skdp.engine.linear_sums import OutsideSum
from skdp.engine.loop import Progress, ReleasePlan, last, run
from skdp.engine.sampling import FullBatch, Sampling
from skdp.fitting.streams import Streams
from skdp.fitting.validate import in_range, integer
from skdp.models.likelihoods import BoundedScores
from skdp.relations import ZERO_OUT, check_relation
from skdp.rows.bounded_sum import BoundedSum
from skdp.rows.lazy_rows import rows_of
from skdp.rows.persons import PersonUnit
from skdp.rows.records import LinearRows, Rows, row_bound

if TYPE_CHECKING:
    from dp_accounting.dp_event import DpEvent

    from skdp.algorithms.noise_aware.glm import GLMConfig
    from skdp.privacy.budget import Budget

S = TypeVar("S")
FLOAT = 8  # bytes
COUNT_SHARE = 0.02  # of the squared GDP budget, on counts of records that were cut


@dataclass(frozen=True, kw_only=True)
class GaussianRun:
    """A run whose noise multipliers are one factor times public units.

    - ``noise_multiplier``: the factor ≥ 0; 0 is no privacy, or not `calibrated` yet.
    - ``secure``: integer sums and discrete Gaussian noise.
    - ``persons``: public facts about persons, where these are the records; None where rows are.
    - ``weight_bound``: W > 0, largest weight of a row.
    """

    noise_multiplier: float = 0.0
    neighboring_relation: str = ZERO_OUT
    secure: bool = False
    persons: PersonUnit | None = None
    weight_bound: float = 1.0
    asks_sums: ClassVar[bool] = False  # of `rows_of`, and nothing else: takes rows in chunks

    def __post_init__(self) -> None:
        in_range(0.0, math.inf, noise_multiplier=self.noise_multiplier, closed="left")
        check_relation(self.neighboring_relation)
        in_range(1e-10, 1e10, weight_bound=self.weight_bound)

    @property
    def sampling(self) -> Sampling:
        """Which records take part in each step: all, unless a run says otherwise."""
        return FullBatch(len(self.units))

    @property
    def of_person(self) -> float:
        """Bound on a record's scores over that of a row: c where records are persons, else 1."""
        return 1.0 if self.persons is None else self.persons.clip

    @property
    def of_rows(self) -> float:
        """Bound on a record's squares and counts over that of a row: k̄ of persons, else 1."""
        return 1.0 if self.persons is None else self.persons.rows_per_group

    @property
    def units(self) -> tuple[float, ...]:
        """Noise multiplier of each release over the factor; a run has these or `sampling`."""
        return (1.0,) * self.sampling.n_steps

    @property
    def n_releases(self) -> int:
        """Number of noisy releases."""
        return self.sampling.n_steps

    @property
    def count_noise(self) -> float:
        """Standard deviation of the noise in the counts that a run ends with, where it does."""
        return release_plan_of(self).noise_scale(self.n_releases - 1)

    @property
    def sums(self) -> BoundedSum | Sequence[BoundedSum]:
        """The private value of all releases, or of each."""
        raise NotImplementedError

    def release_plan(self) -> ReleasePlan:
        """What the engine executes: built from the very fields of `event`."""
        return ReleasePlan(
            self.sampling,
            self.sums,
            self.noise_multipliers,
            self.neighboring_relation,
            self.secure,
            self.persons,
        )

    @property
    def noise_multipliers(self) -> tuple[float, ...]:
        """Noise over the bound on one record, of each release in turn."""
        return tuple(self.noise_multiplier * unit for unit in self.units)

    @property
    def dimensions(self) -> list[int]:
        """Number of coordinates of each release in turn."""
        raise NotImplementedError

    def event(self) -> DpEvent:
        """What the run releases."""
        from skdp.privacy.discrete import discrete_gaussian_event
        from skdp.privacy.events import dp_sgd_event

        sigmas = self.noise_multipliers
        if self.secure:
            scales = [2.0 ** lattice_bits(sigma) for sigma in sigmas]
            return discrete_gaussian_event(sigmas, scales, self.dimensions)
        if len(set(sigmas)) == 1:
            return dp_sgd_event(sigmas[0], self.sampling.rate, len(sigmas))
        return dp_sgd_event(sigmas, self.sampling.rate)

    def calibrated(self, budget: Budget) -> Self:
        """Return the same run with the least noise that affords a budget.

        Discrete Gaussian noise needs a little more of it than Gaussian noise does.
        """
        factor = budget.factor(self.units, self.sampling.rate)
        config = replace(self, noise_multiplier=factor)
        if not self.secure:
            return config

        def event(sigma: float) -> DpEvent:
            return replace(config, noise_multiplier=sigma).event()

        return replace(config, noise_multiplier=budget.least(event, factor))


@dataclass(frozen=True)
class LinearRun(GaussianRun):
    """Public facts of a run for a linear model, as in `GaussianRun`.

    - ``likelihood``: of the linear model, with K outputs.
    - ``fit_intercept``: whether rows get a 1 appended; θ is (K, D), D = n_features + fit_intercept.
    - ``data_norm``: norm > 0 to which the features of each row are clipped.
    """

    likelihood: BoundedScores
    n_rows: int
    n_features: int
    fit_intercept: bool
    data_norm: float
    asks_sums: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        integer(1, n_rows=self.n_rows)
        integer(1, n_features=self.n_features)
        in_range(1e-100, 1e100, data_norm=self.data_norm)  # its square is a double too

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (K, D) of θ."""
        return self.likelihood.n_outputs, self.n_features + bool(self.fit_intercept)

    @property
    def row_bound(self) -> float:
        """Norm bound of a row with its intercept."""
        return row_bound(self.data_norm, self.fit_intercept)

    @property
    def counts(self) -> OutsideSum:
        """Records that are cut to their bounds: the last release."""
        return OutsideSum(targets=self.likelihood.largest_target < math.inf)

    def rows(self, records: tuple[np.ndarray, ...]) -> Rows:
        """Private rows (n, n_features) and targets (n, K), which are clipped and cut."""
        bounds = self.likelihood.bounds_of(records[1])
        build = partial(LinearRows.of, self, alone=self.secure, target_bounds=bounds)
        return rows_of(records, build, kept=False)


class Once(FullBatch):
    """Every record in the only release."""

    def __str__(self) -> str:
        return "full batch, 1 release"


ONCE = Once(1)


@dataclass(frozen=True, kw_only=True)
class OneSum(GaussianRun):
    """A run that releases one noisy sum over all rows, at no parameters."""

    n_features: int

    @property
    def sampling(self) -> FullBatch:
        """Every record takes part in the only release."""
        return ONCE

    def released(
        self, rows: Rows, streams: Streams, progress: Progress
    ) -> tuple[np.ndarray, float]:
        """Release the sum over private rows; return it and the scale of its noise."""
        plan, origin = release_plan_of(self), np.zeros((1, self.n_features))
        clipped_sum, call = plan.step(tuple(origin.shape), 0)
        value, noise = (
            partial(rows.sum, partial(clipped_sum, origin), slice(None)),
            streams("noise"),
        )
        (released,) = progress(plan.release(value, call, noise) for _ in range(1))
        return np.asarray(released), call.scale


SHORT = 0.1  # root mean square norm of rows over its bound, below which a fit says so
UNSURE = 1 / 25  # of the squared bound: more noise in the mean square tells nothing


def far_below(
    trace: float,
    noise: float,
    config: LinearRun | GLMConfig,
    found: tuple[float, float] | None = None,
) -> float | None:
    """Root mean square norm of the features, if that is clearly far below their bound.

    ``trace`` is a noisy Σ‖x‖² of rows with their intercept, over the squared bound of these, and
    ``noise`` its standard deviation; ``found`` is a noisy number of rows and that of its noise.
    Where the number is private, it may be far from the one that was declared.
    """
    n = float(config.n_rows)
    if found is not None and not check_relation(config.neighboring_relation).n_is_public:
        n = found[0]
        if n <= 0.0:
            return None
    unit = config.row_bound**2 / n
    square, deviation = trace * unit - bool(config.fit_intercept), noise * unit
    bound = config.data_norm**2
    if deviation > UNSURE * bound or square > SHORT**2 * bound + deviation:
        return None
    return math.sqrt(max(square, deviation))


def rows_told(found: float, noise: float) -> int:
    """Return the number of rows that a noisy sum of weights tells, at least that of its noise."""
    return max(1, round(found), round(noise))


class Inference(Protocol[S]):
    """Pure functions of what has been released."""

    def init(self) -> S:
        """Start."""
        ...

    def query(self, state: S) -> np.ndarray:
        """Parameters at which the next sum is asked for."""
        ...

    def update(self, state: S, noisy: np.ndarray, step: int) -> S:
        """Take in one release."""
        ...


def run_and_count(
    plan: ReleasePlan, rows: Rows, inference: Inference[S], streams: Streams, progress: Progress
) -> tuple[S, np.ndarray]:
    """Run all releases, of which the last one is of counts that the inference has no part in.

    Returns the last state and the noisy counts; ``progress`` wraps the iteration over states.
    """
    final, none = plan.sampling.n_steps - 1, np.empty(0)

    def query(both: tuple[S, np.ndarray]) -> np.ndarray:
        return inference.query(both[0])

    def update(both: tuple[S, np.ndarray], noisy: np.ndarray, step: int) -> tuple[S, np.ndarray]:
        if step == final:
            return both[0], noisy
        return inference.update(both[0], noisy, step), none

    return last(progress(run(plan, rows, (inference.init(), none), query, update, streams)))


@lru_cache(maxsize=64)
def release_plan_of(config: GaussianRun) -> ReleasePlan:
    """Return what the engine executes for a config; the same object for equal ones."""
    return config.release_plan()
