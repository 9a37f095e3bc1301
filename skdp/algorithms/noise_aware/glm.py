"""The posterior of linear predictors on standardised columns, given private releases.

With z the standardised columns and a 1 (`skdp.algorithms.noise_aware.columns`), s(θ) the score of a
row (`skdp.algorithms.noise_aware.families`), m the largest that it can be whatever the target is,
and w = min(1, C/(‖z‖ m), R²/‖z‖²), a run releases

    G̃   = Σ min(1, R²/‖z‖²) z zᵀ + noise   once                        bound R²
    g̃_t = Σ w s(θ_t) z + noise              T times                     bound C
    H̃   = -Σ w s'(θ_T) z zᵀ + noise         once, at the last θ_t       `families`

Rows are not changed: w scales scores, by nothing that depends on y, so that the expected score is 0
at the truth whatever C is, if the model holds; on other rows the root moves, by up to some standard
errors where tails are heavy. H is the derivative of the expected score; of K classes it is released
along K - 1 contrasts. Magnitudes of counts, and of exposures, are counted before; a robust run
releases Σ w² s² z zᵀ at the last θ_t too.

Where the run goes is in `skdp.algorithms.noise_aware.steps`, the posterior in
`skdp.algorithms.noise_aware.posterior`: both are functions of what was released.

*Without standardised columns* (`GLMConfig.run`) rows are clipped to a norm and divided by their
usual spread, or are functions of codes (`skdp.algorithms.additive`). Of numbers without bounds
magnitudes are counted first, whose scale is the unit of the run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from skdp.algorithms.gaussian_posterior import GaussianPosterior, in_units
from skdp.algorithms.noise_aware.columns import Columns
from skdp.algorithms.noise_aware.counts import Counts
from skdp.algorithms.noise_aware.design import Design
from skdp.algorithms.noise_aware.families import Cut, Logit, Softmax
from skdp.algorithms.noise_aware.matrices import MANY
from skdp.algorithms.noise_aware.numbers import Line
from skdp.algorithms.noise_aware.steps import Update
from skdp.algorithms.parts.gaussian_runs import COUNT_SHARE, FLOAT, GaussianRun, run_and_count
from skdp.engine.linear_sums import GramSum, OutsideSum, ScoreGramSum, of_weights
from skdp.engine.loop import Progress
from skdp.engine.magnitude_sums import MagnitudeSum
from skdp.fitting.streams import Streams
from skdp.rows.lazy_rows import changed, rows_of
from skdp.rows.records import LinearRows, row_bound

# Shares of the squared GDP budget that is left to this run. The study of these constants is
# benchmarks/real_tables.py, which says the tables that they were chosen on.
SHARES = {
    "offset": COUNT_SHARE, "magnitude": 0.1, "gram": 0.2, "slope": 0.08, "scatter": 0.08,
    "count": COUNT_SHARE,
}  # fmt: skip
STEPS = 15
WIDEST = 2.0  # C over the usual norm: beyond, what estimates of most tables move is small
CHAINS, FEW_CHAINS = 16, 2  # draws, fewer of more than `MANY` columns


@dataclass(frozen=True, kw_only=True)
class GLMConfig(GaussianRun):
    """Public facts of a run on standardised rows.

    - ``family``: what scores are of.
    - ``clip_norm``, ``n_steps``: C > 0, T ≥ 1.
    - ``prior_scale``: deviation of a normal prior of each standardised effect; None learns τ.
    - ``prior_blocks``: block of each column; those of one share a τ.
    - ``covariance``: "full" or "diag", of what is returned.
    - ``residual_clip``: c of numbers in all steps, in their units; None follows residuals' scale.
    - ``exposed``: whether logits have offsets, whose magnitudes are released first.
    - ``robust``: whether the scatter of the scores is released, of one output alone.
    - ``design``: units and norms of rows.
    """

    family: Logit | Softmax | Counts | Line
    n_rows: int
    n_features: int
    fit_intercept: bool
    clip_norm: float
    n_steps: int
    design: Design
    prior_scale: float | None = None
    prior_blocks: tuple[int, ...] | None = None
    covariance: str = "full"
    residual_clip: float | None = None
    exposed: bool = False
    robust: bool = False
    asks_sums: ClassVar[bool] = True
    noise_aware: ClassVar[bool] = True
    private: ClassVar[bool] = True

    @property
    def kinds(self) -> tuple[str, ...]:
        """What each release is of, in turn."""
        family = self.family
        by_magnitude = isinstance(family, Counts) or (family.extra and not family.bounded)
        before = ("offset",) * self.exposed + ("magnitude",) * by_magnitude + ("gram",)
        return *before, *["score"] * self.n_steps, "slope", *["scatter"] * self.robust, "count"

    @property
    def likelihood(self) -> Any:
        """Of classes and counts."""
        return None if isinstance(self.family, Line) else self.family.likelihood

    @property
    def n_columns(self) -> int:
        """D."""
        return self.n_features + self.fit_intercept

    @property
    def n_outputs(self) -> int:
        """K."""
        return 1 if self.likelihood is None else self.likelihood.n_outputs

    @property
    def n_told(self) -> int:
        """Number of contrasts of outputs of which scores tell."""
        return max(1, self.n_outputs - 1)

    @property
    def n_chains(self) -> int:
        """Number of draws: fewer of large matrices, which take long."""
        return max(FEW_CHAINS, round(CHAINS / max(1.0, self.n_columns / MANY) ** 2))

    def unit_of(self, offset: tuple[float, float]) -> np.ndarray:
        """Mean offset, (D,), which the intercept takes up: exposures may be in any unit."""
        unit = np.zeros(self.n_columns)
        if self.fit_intercept:
            unit[-1] = offset[0]
        return unit

    @property
    def cut(self) -> Cut:
        """Bounds on what a row adds."""
        return Cut(self.clip_norm, max(self.design.longest, self.clip_norm))

    @property
    def wider(self) -> float:
        """f: C over the usual norm."""
        return self.clip_norm / self.usual_norm

    def default_clip(self, mu: float) -> float:
        """C for a GDP budget: where noise and what is left out are about as large.

        Both in standard errors, at f times the usual norm: noise of scores is ∝ f, of numbers,
        whose c grows with C, ∝ f^1.5; where rows far out count less estimates of tables move by
        family.bias √n/f. Not below that at which usual rows count 1, and of rows that are clipped
        no more than a score can be.
        """
        usual, family, design = self.usual_norm, self.family, self.design
        least = float(family.largest(np.zeros((1, self.n_outputs)))[0]) * usual
        spread = usual / math.sqrt(self.n_columns)  # of a column: 1, but of features of codes
        noise = usual / (mu * spread * math.sqrt(self._left * self.n_rows / 4.0))
        f = (family.bias * math.sqrt(self.n_rows) / noise) ** (1.0 / (2.0 + family.extra / 2.0))
        most = WIDEST * usual if design.standardised else design.longest * family.most
        return max(least, min(f * usual, most))

    @property
    def usual_norm(self) -> float:
        """Norm of a usual row."""
        return math.hypot(self.design.usual, self.fit_intercept)

    @property
    def data_norm(self) -> float:
        """Norm to which rows are clipped."""
        return self.design.data_norm

    @property
    def row_bound(self) -> float:
        """Norm bound of a row with its intercept."""
        return row_bound(self.data_norm, self.fit_intercept)

    @property
    def _left(self) -> float:
        """Share of the squared GDP budget of all scores."""
        return 1.0 - sum(SHARES.get(kind, 0.0) for kind in self.kinds)

    @property
    def units(self) -> tuple[float, ...]:
        """Noise multipliers over that of a score."""
        of_score = self._left / self.n_steps
        return tuple(math.sqrt(of_score / SHARES.get(kind, of_score)) for kind in self.kinds)

    @property
    def asked_at(self) -> list[tuple[int, int]]:
        """Shape of what each release is asked for at: θ, and what stands beside it."""
        K, D, c = self.n_outputs, self.n_columns, int(self.family.widest > 0.0)
        beside = {"offset": 0, "magnitude": 0, "gram": 0, "slope": c + (K - 1)}
        return [(K, D + beside.get(kind, c)) for kind in self.kinds]

    @property
    def dimensions(self) -> list[int]:
        """Number of coordinates of each release in turn."""
        both = zip(self.sums, self.asked_at, strict=True)
        return [math.prod(one.shape(shape)) for one, shape in both]

    @property
    def counts(self) -> OutsideSum:
        """Records that are cut to their bounds."""
        return OutsideSum(targets=self.family.bounded)

    @property
    def memory(self) -> int:
        """Bytes of the standardised rows, about."""
        return FLOAT * self.n_rows * (self.n_columns + 3)

    @property
    def sums(self) -> list[Any]:
        """The private value of each release."""
        score = of_weights(self.family.scores(self.cut), self.weight_bound)
        of: dict[str, Any] = {
            "offset": of_weights(MagnitudeSum(of_offset=True), self.weight_bound),
            "magnitude": of_weights(MagnitudeSum(), self.weight_bound),
            "gram": of_weights(GramSum(self.cut.row_norm**2), self.weight_bound),
            "score": score,
            "slope": of_weights(self.family.slope(self.cut), self.weight_bound),
            "scatter": ScoreGramSum(score),
            "count": of_weights(self.counts, self.weight_bound),
        }
        return [of[kind] for kind in self.kinds]

    def on(
        self, records: Any, columns: Columns, streams: Streams, progress: Progress = iter
    ) -> GaussianPosterior:
        """Run on private rows that are standardised as was released of the columns."""
        most = 1.0 if self.family.bounded else math.inf
        bounds: Any = (-most, most)
        if self.likelihood is not None:
            bounds = self.likelihood.bounds_of(records[1])
        config = self.divided
        build = partial(LinearRows.of, config, alone=self.secure, target_bounds=bounds)
        rows = rows_of(records, build, kept=False)
        weighted = getattr(records, "weights", None) is not None
        update = Update(self, columns, streams("inference").generator, weighted)
        state, outside = run_and_count(update.plan, rows, update, streams, progress)
        return replace(update.posterior(state), outside=outside, n_counted=round(update.n))

    @property
    def divided(self) -> GLMConfig:
        """Of rows that have been divided by their unit."""
        design = self.design
        return replace(self, design=replace(design, data_norm=design.data_norm / design.unit))

    def run(self, records: Any, streams: Streams, progress: Progress = iter) -> GaussianPosterior:
        """Run on private rows of whose columns nothing was released before."""
        d, unit = self.n_features, self.design.unit
        none, known = np.zeros(d), np.full(d, 1e-12)
        columns = Columns(
            none, known + unit, known + 1.0, known, (0.0, 0.0), 0.0, 1.0, numbers=(True,) * d
        )
        q = self.on(changed(records, Divided(unit)), columns, streams, progress)
        scales = None if q.prior_scales is None else q.prior_scales / unit
        short = None if q.short_rows is None else q.short_rows * unit
        q = in_units(q, none, columns.scale, has_intercept=self.fit_intercept)
        return replace(q, prior_scales=scales, short_rows=short)


@dataclass(frozen=True)
class Divided:
    """The map of rows to x/unit."""

    unit: float

    def __call__(self, records: Any) -> Any:
        """Map the rows of records."""
        return records if self.unit == 1.0 else records._replace(X=records.X / self.unit)
