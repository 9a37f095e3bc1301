"""Projected Langevin sampling of a posterior, with a certificate that needs no convergence.

k chains from data-independent starts, each of which releases its last state and nothing else:

    θ ← Π_D[θ − h∇U(θ) + √(2h) ξ],  ξ ~ N(0, I),      U(θ) = ρ Σ_i ℓ_i(θ) + ‖θ‖²/(2τ²)

with `algorithms.tempered`'s notation (T = 1, λ = 1/τ²). For h ≤ 2/(2λ + ρnκR²) a step contracts by
c = 1 − hλ, whatever the data, so that after *any* number of steps K the last state is μ-GDP with

    μ_K = (ρΔ/√λ) √[(1 − hλ/2)(1 − c^K)/(1 + c^K)]  <  ρΔτ               (PRIVACY §5)

and k chains cost √k μ_K. Running longer brings the law of the state closer to the posterior; the
guarantee does not wait for that. A chain that shows its path, an average or a diagnostic has none.

Where n is large, a step reads one of l fixed batches, visited in turn, with its gradient times l:

    θ ← Π_D[θ − h(lρ Σ_{i in batch} ∇ℓ_i(θ) + λθ) + √(2h) ξ].

At a step of the same length this moves as far on 1/l of the rows. The last batch's records are seen
once at full strength, (lhρΔ)²/2h, which `cyclic_batch_mu` accounts for; l is chosen so that this
costs a few per cent of μ. The rows are dealt to batches at random, without being looked at; under
add-or-remove-one a partition does not survive, and every step is a full batch. So is it where
persons are the records, whose rows are weighted (`algorithms.tempered`): in the bound on the step,
n is then the most that the rows of all persons can weigh, k₀ times a number of persons that both
neighbours stay within.

References
----------
J. Bok, W. J. Su, J. Altschuler, *Shifted Interpolation for Differential Privacy*, ICML 2024.
M. Welling, Y. W. Teh, *Bayesian Learning via Stochastic Gradient Langevin Dynamics*, ICML 2011.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from skdp.algorithms.tempered import PosteriorRun, TemperedPosterior
from skdp.engine import release_hook
from skdp.engine.linear_sums import LinearClippedSum
from skdp.engine.loop import Progress, last
from skdp.engine.release_hook import grid_width
from skdp.fitting.streams import SecureStream, Streams
from skdp.fitting.validate import expected, in_range, integer, positive
from skdp.privacy.hidden_state import cyclic_batch_mu, full_batch_mu
from skdp.relations import check_relation
from skdp.rows.lazy_rows import rows_of
from skdp.rows.records import LinearBatch, LinearRows, Selection

if TYPE_CHECKING:
    from dp_accounting.dp_event import DpEvent

    from skdp.privacy.budget import Budget

Records = tuple[np.ndarray, np.ndarray]

# Defaults, functions of public facts alone; benchmarks/posterior_sampling.py shows what they do.
STEP = 0.05  # h(λ + ρnκR²) a direction, as far as …
LONGEST = 0.5  # … this; the certificate allows almost 2, the bias grows with it
# Khλ. A direction of curvature m has gone 1 − e^(−1.5m/λ) of the way from the prior's mean to the
# posterior's; what is left is at most 4 % of the way to where the data alone would have it.
RUN_TIME = 1.5
BATCH_COST = 0.05  # l²hλ/2: what the last batch may add to μ²
LEAST_BATCH = 256  # rows; below, a step costs as much for fewer


@dataclass(frozen=True)
class LangevinConfig(PosteriorRun):
    """Public facts of a run: all that the event depends on.

    - ``posterior``, ``likelihood_power``: what to sample from, and ρ in (0, 1].
    - ``n_rows``: n ≥ 1; under add-or-remove-one an upper bound on the rows of both neighbours,
      which restricts the data sets that the guarantee speaks of.
    - ``step_size``: h > 0, at most 2/(2λ + ρnκR²).
    - ``n_epochs``, ``n_batches``: passes ≥ 1 over the rows, of l ≥ 1 steps each; l is 1 under
      add-or-remove-one, and where persons are the records.
    - ``n_persons``: upper bound on the persons of both neighbours, where these are the records: it,
      and not ``n_rows``, restricts the data sets that the guarantee speaks of.
    """

    posterior: TemperedPosterior
    likelihood_power: float
    n_rows: int
    n_chains: int
    step_size: float
    n_epochs: int
    n_batches: int = 1
    n_persons: int | None = None

    sampler: ClassVar[str] = "langevin"
    asks_sums: ClassVar[bool] = True
    shorter: ClassVar[str] = (
        "Fewer rows, a smaller prior_scale, epsilon or n_posterior_samples make it shorter; so "
        "does a smaller max_iter"
    )

    def __post_init__(self) -> None:
        in_range(0.0, 1.0, closed="right", likelihood_power=self.likelihood_power)
        integer(1, n_rows=self.n_rows)
        integer(1, n_chains=self.n_chains)
        integer(1, n_epochs=self.n_epochs)
        integer(1, n_batches=self.n_batches)
        if (self.n_persons is None) != (self.posterior.of_person is None):
            raise expected(
                "given where records are persons, and there alone", n_persons=self.n_persons
            )
        if self.n_persons is not None and self.n_batches > 1:
            raise expected("1 where records are persons", n_batches=self.n_batches)
        _check_contraction(self.posterior, self.step_size, self._data_curvature)

    @property
    def batch_size(self) -> int:
        """Rows of a batch, the last one filled up with null rows."""
        return math.ceil(self.n_rows / self.n_batches)

    @property
    def _data_curvature(self) -> float:
        """Bound on the curvature of a step's data term."""
        rows = _weight(self.posterior, self.n_batches * self.batch_size, self.n_persons)
        return self.likelihood_power * self.posterior.curvature(rows)

    @property
    def mu(self) -> float:
        """μ of all released states together."""
        one = _mu(self.posterior, self.step_size, self.n_epochs, self.n_batches)
        return math.sqrt(self.n_chains) * self.likelihood_power * one

    @property
    def n_releases(self) -> int:
        """Passes, of which a progress bar tells; the states after the last one are released."""
        return self.n_epochs

    @property
    def n_passes(self) -> int:
        """How often rows in chunks are read: for each batch anew."""
        return self.n_epochs * self.n_batches

    @property
    def most_records(self) -> int:
        """Number of rows, or of persons, up to which the certificate holds."""
        return self.n_rows if self.n_persons is None else self.n_persons

    def of(self, n_samples: int) -> Self:
        """The same run with another number of chains."""
        return replace(self, n_chains=n_samples)

    def event(self) -> DpEvent:
        """What the run releases."""
        from dp_accounting.dp_event import NonPrivateDpEvent

        from skdp.privacy.events import gdp_event

        if not math.isfinite(self.mu):
            return NonPrivateDpEvent()
        return gdp_event(self.mu, self.posterior.neighboring_relation)

    @property
    def seconds(self) -> float:
        """About how long the run takes on a core, from public facts."""
        work = self.n_rows * self.posterior.n_parameters * self.n_chains
        return self.n_epochs * (work / 2e9 + self.n_batches * 5e-5)

    @property
    def sampling(self) -> str:
        """How records take part, for the report."""
        steps = "full batch" if self.n_batches == 1 else f"{self.n_batches} fixed batches"
        states = "last state" if self.n_chains == 1 else f"last states of {self.n_chains} chains"
        text = f"{steps}, {self.n_epochs} passes, {states} only"
        if not check_relation(self.posterior.neighboring_relation).n_is_public:
            records = "rows" if self.n_persons is None else "persons"
            text += f"; both neighbours have at most {self.most_records} {records}"
        return text

    def run(self, records: Records, streams: Streams, progress: Progress = iter) -> np.ndarray:
        """Run the chains on private rows and return their last states, (k, K, D).

        Of ``most_records`` records at most, rows (n, n_features) are clipped here; ``starts`` of
        persons stand beside the targets (n, K) where these are the records. Streams "noise" and
        "partition" are used. ``progress`` wraps the passes and must not keep the states.
        """
        call = release_hook.MechanismCall(
            kind="langevin",
            sensitivity=self.mu,  # against unit noise: the last states are as bad as that Gaussian
            scale=1.0,
            rate=1.0,
            shape=(self.n_chains, *self.posterior.shape),
            step=0,
            width=grid_width(math.sqrt(2 * self.step_size)),  # of the last states alone
        )
        return release_hook.release(call, lambda: last(progress(states(self, records, streams))))


def _weight(posterior: TemperedPosterior, n_rows: int, n_persons: int | None) -> float:
    """Most that all rows weigh together."""
    return n_rows if n_persons is None else n_persons * posterior.record_weight


def _check_contraction(posterior: TemperedPosterior, h: float, data_curvature: float) -> None:
    """Refuse a step that is not sure to contract by 1 − hλ."""
    # A hair below the limit, so that no rounding can lift a step over it.
    longest = 2 / (2 * posterior.prior_precision + data_curvature) * (1 - 1e-12)
    if not positive(step_size=h) <= longest:
        raise expected(
            f"at most {longest:.4g}",
            "a longer step need not contract, and the certificate would not hold; use 'auto'",
            step_size=h,
        )


def _mu(posterior: TemperedPosterior, h: float, n_epochs: int, n_batches: int) -> float:
    """μ of one chain at ρ = 1: the price is proportional to ρ."""
    contraction = math.nextafter(1 - h * posterior.prior_precision, 1.0)
    noise, shift = math.sqrt(2 * h), h * posterior.sensitivity
    if n_batches == 1:
        return full_batch_mu(
            contraction=contraction, n_steps=n_epochs, noise_scale=noise, sensitivity=shift
        )
    return cyclic_batch_mu(
        contraction=contraction,
        n_batches=n_batches,
        n_epochs=n_epochs,
        batch_size=1,  # sums, not means
        noise_scale=noise,
        sensitivity=n_batches * shift,
        neighboring_relation=posterior.neighboring_relation,
    )


def default_prior_scale(row_bound: float, n_parameters: int, n_chains: int) -> float:
    """τ = 7 ∛k/(R√p): log-odds of ±7 for a row at the norm bound, shared by all directions.

    k samples share a budget, and with ρ ∝ 1/τ a wider prior makes up for the flatter likelihood.
    """
    return 7 * n_chains ** (1 / 3) / (row_bound * math.sqrt(n_parameters))


def configure(
    posterior: TemperedPosterior,
    budget: Budget,
    *,
    n_rows: int,
    n_chains: int,
    n_persons: int | None = None,
    step_size: float | None = None,
    n_epochs: int | None = None,
    batch_size: int | None = None,
) -> LangevinConfig:
    """Fill in what is not given, and find the largest power ρ ≤ 1 that a budget affords.

    The budget is of all chains together; or ρ is given instead. Defaults depend on public facts.
    """
    λ = posterior.prior_precision
    if step_size is not None:
        _check_contraction(posterior, step_size, data_curvature=0.0)

    def design(ρ: float) -> tuple[float, int, int]:
        h = step_size
        if h is None:
            # p directions share the curvature, of which no single one has the bound.
            h = min(LONGEST, STEP * math.prod(posterior.shape))
            h /= λ + ρ * posterior.curvature(_weight(posterior, n_rows, n_persons))
        if batch_size is not None:
            l = math.ceil(n_rows / batch_size)  # noqa: E741 (the paper's letter)
        elif not check_relation(posterior.neighboring_relation).n_is_public:
            l = 1  # noqa: E741
        else:
            # Beyond a few /ρ batches their gradients' own noise would count beside the chain's.
            most = min(math.sqrt(2 * BATCH_COST / max(h * λ, 1e-300)), 3 / ρ, n_rows / LEAST_BATCH)
            l = max(1, int(most))  # noqa: E741
        epochs = math.ceil(RUN_TIME / (l * h * λ)) if n_epochs is None else n_epochs
        return h, epochs, l

    mu = budget.mu * check_relation(posterior.neighboring_relation).factor

    def affordable(ρ: float) -> bool:
        return math.sqrt(n_chains) * ρ * _mu(posterior, *design(ρ)) <= mu

    power = budget.given or 1.0
    if not affordable(power):
        low = 0.0
        while power - low > 1e-9 * power:
            middle = (low + power) / 2
            low, power = (middle, power) if affordable(middle) else (low, middle)
        power = low
    h, epochs, l = design(power)  # noqa: E741
    return LangevinConfig(posterior, power, n_rows, n_chains, h, epochs, l, n_persons)


def states(config: LangevinConfig, records: Records, streams: Streams) -> Iterator[np.ndarray]:
    """Yield the chains' states (k, K, D) after each pass: private ones, but for the last."""
    posterior, k, h = config.posterior, config.n_chains, config.step_size
    shape = (k, *posterior.shape)
    noise = streams("noise")
    sums = _sums(config, records, streams("partition"))
    # Nothing is left to clip: rows of norm R and residuals of norm residual_bound bound a gradient.
    gradient = LinearClippedSum(_chainwise(posterior, k), clip_norm=math.inf)
    θ = _projected(posterior, posterior.prior_scale * noise.normal(shape))
    for _ in range(config.n_epochs):
        for of_batch in sums:
            stacked = θ.reshape(-1, shape[-1])
            ascent = of_batch(partial(gradient, stacked)).reshape(shape)
            drift = config.n_batches * config.likelihood_power * ascent
            drift -= posterior.prior_precision * θ
            θ = θ + h * drift + math.sqrt(2 * h) * noise.normal(shape)
            θ = _projected(posterior, θ)
        yield θ


def _sums(
    config: LangevinConfig, records: Records, stream: SecureStream
) -> list[Callable[[Callable[[LinearBatch], np.ndarray]], np.ndarray]]:
    """What sums a term over each batch, of which copies are kept where rows are in memory."""
    rows = rows_of(records, partial(_rows, config), kept=False)
    selections = _selections(config, len(rows), stream)
    if not isinstance(rows, LinearRows):
        return [partial(rows.sum, selection=selection) for selection in selections]
    return [partial(_at, rows.take(selection)) for selection in selections]


def _at(batch: LinearBatch, term: Callable[[LinearBatch], np.ndarray]) -> np.ndarray:
    return term(batch)


def _rows(config: LangevinConfig, records: Records, *, kept: bool = True) -> LinearRows:
    starts = getattr(records, "starts", None)
    if starts is not None:  # a column of weights beside the targets, for `_chainwise`
        X, targets, *_ = records
        weights = config.posterior.row_weights(starts)
        records = X, np.column_stack([targets, weights])
    return LinearRows.of(config.posterior, records, kept=kept)


def _selections(config: LangevinConfig, n_rows: int, stream: SecureStream) -> list[Selection]:
    if config.n_batches == 1:
        return [slice(None)]
    # Positions are dealt at random up to n_rows: those beyond the rows at hand are null rows.
    dealt = stream.generator.permutation(config.n_batches * config.batch_size)
    return [part[part < n_rows] for part in dealt.reshape(config.n_batches, config.batch_size)]


def _chainwise(
    posterior: TemperedPosterior, k: int
) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Residuals of k chains at once: logits (m, k·K) against targets (m, K), and weights (m, 1)."""
    K = posterior.shape[0]

    def residual(logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        per_chain = logits.reshape(len(logits), k, K)
        r = posterior.likelihood.residual(per_chain, targets[:, None, :K]).reshape(logits.shape)
        return r if posterior.of_person is None else r * targets[:, K:]

    return residual


def _projected(posterior: TemperedPosterior, θ: np.ndarray) -> np.ndarray:
    """Scale each chain's θ down to the norm that the domain ends at; this expands nothing."""
    norms = np.sqrt(np.einsum("kij,kij->k", θ, θ))
    return θ * np.minimum(1.0, posterior.theta_norm / np.maximum(norms, 1e-300))[:, None, None]
