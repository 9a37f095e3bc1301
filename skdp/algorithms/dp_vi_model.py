"""Differentially private variational inference for any log-likelihood.

As `dp_vi` with aligned gradients: q = N(m, LLᵀ), and a step asks for the clipped sum of per-record
gradients at one draw θ_t = m + Lη_t. The prior may be any density: its gradient at the same draw is
added after the noise, exactly and unclipped,

    g̃_t = Σ_{i in batch} clip_C(∇_θ log p(x_i|θ_t)) + N(0, σ²C² I)       released
    a_t = g̃_t/q + ∇ log p(θ_t),    ∇_m = a_t,    ∇_L = tril[a_tη_tᵀ + L^{-ᵀ}].

**Clip.** Sums are released in units of the clip, Σ clip_1(g_i/C) and its like, with the current C
beside θ in the query: one record moves them by the same whatever C is, so a C that follows earlier
releases costs no privacy. It is learned once: in a few steps the run releases, at the mean, how
many records have gradients of which length: a histogram with each record in at most one cell. In
the last steps it releases the same of lengths above the final C, at the mean of the tail. At the
maximum of the likelihood the gradients g_i sum to 0, and the clipped ones to

    −b,    b = Σ_i (1 − C/‖g_i‖)₊ g_i,    ‖b‖ ≤ Σ_k n_k (2^(k+1) − 1) C,

with n_k records of lengths in (2^k C, 2^(k+1) C]: to first order θ̂ is off by H⁻¹b. That is 0 where
long gradients cancel, as those of a slope do; those of a scale all point one way, and are longest
where residuals are. With a fixed share of long gradients b grows as n, so the bias stays while
posterior deviations shrink as n^(-1/2), at any ε.

**Noise-aware posterior.** After the first third of the run gradients are released at the mean
itself, η_t = 0, because the posterior below is a linearisation there and needs no q; at draws of a
q that is wider than the posterior, scores of a log scale have another mean. In some steps of the
second half the run releases instead, at the mean m,

    J̃ = Σ_{i in batch} ĝ_i ĝ_iᵀ + noise of scale σc²,    ĝ_i = clip_c(∇ log p(x_i|m)),   c = .35 C,

the empirical Fisher information: it is the curvature H of the log-likelihood where the model is
right, and the variance of the sum of gradients in any case. With K gradients of mean ḡ at points of
mean θ̄, linearised, the statistic s̄ = ḡ + Hθ̄ obeys

    s̄ | θ ~ N(Hθ, H + (ν²/K) I),        ν = σC/q,

so with the prior's curvature P₀ the posterior given the releases is N(mean, Λ⁻¹),

    M = H(H + (ν²/K) I)⁻¹,    Λ = MH + P₀,    mean = θ̄ + Λ⁻¹(Mḡ + ∇ log p(θ̄)).

It goes to the prior where the noise dominates, and to Laplace's approximation without noise.

**Persons.** Where persons are the records, g_i is the sum of a person's gradients, and its clip
c·C. The curvature alone is a sum over rows, of which a person's share is scaled to a trace of at
most k̄c²: rows of a person that are alike make H no larger than others do, but their scores vary
together, so that s̄ has a larger variance than H. By how much is released: the sum over persons of
‖clip_C(g_p)‖² over the trace of J̃, where it exceeds 1, is a factor ρ on the variance of s̄,

    s̄ | θ ~ N(Hθ, ρH + (ν²/K) I),    M = H(ρH + (ν²/K) I)⁻¹,    Λ = MH + P₀,

the same in all directions (a design effect). Without its release ρ is k̄, that of rows all alike.

Related: Alrawajfeh, Jälkö & Honkela, *Noise-Aware Differentially Private Variational Inference*,
2024. All steps have the same noise multiplier, so the event is that of `dp_sgd`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np
import torch

from skdp.algorithms.dp_vi import COVARIANCES
from skdp.algorithms.gaussian_posterior import GaussianPosterior
from skdp.algorithms.parts.gaussian_families import orthogonal_normals
from skdp.algorithms.parts.gaussian_runs import FLOAT, GaussianRun
from skdp.algorithms.user_model.defaults import default_learning_rate
from skdp.algorithms.user_model.lengths import CHECK_EDGES, CLIP_EDGES, LOUD
from skdp.algorithms.user_model.sums import (
    CHUNK_NUMBERS,
    GRADIENT,
    OUTER,
    SQUARES,
    LengthCounts,
    ModelClippedSum,
    SquaredLengths,
)
from skdp.algorithms.user_model.update import ModelUpdate
from skdp.engine.loop import Progress, run
from skdp.engine.modules.network_records import NetworkRecords
from skdp.engine.sampling import Sampling, sampling
from skdp.fitting.streams import Streams
from skdp.fitting.validate import in_range, integer, one_of, positive
from skdp.models.user_models import UserModel
from skdp.models.user_priors import Prior
from skdp.rows.bounded_sum import BoundedSum
from skdp.rows.lazy_rows import rows_of
from skdp.rows.records import clipped_rows

CURVATURE_CLIP = 0.35  # of C, in curvatures: their noise goes with its square


@dataclass(frozen=True)
class ModelConfig(GaussianRun):
    """Public facts of a run: all that the event depends on; noise and persons as in `GaussianRun`.

    - ``model``, ``prior``: the log-likelihood and the prior.
    - ``n_rows``: public number of rows, n ≥ 1; of persons, as declared.
    - ``initial_mean``, ``initial_scale``: the start is N(initial_mean, s_0² I), s_0 > 0.
    - ``n_steps``: T ≥ 1 noisy sums of gradients.
    - ``n_curvature_steps``: number ≥ 0 of noisy sums of outer products, beside these; with 0 the
      posterior does not account for the noise.
    - ``sampling_rate``: q in (0, 1]; 1 is the full batch.
    - ``clip_norm``: C > 0 at first, to which a record's gradient is clipped, c·C for a person;
      infinite without noise.
    - ``given_learning_rate``: step size of m, in the units of θ, or None for the default.
    - ``data_norm``: norm > 0 to which rows are clipped; None leaves them as they are.
    - ``n_clip_steps``, ``n_check_steps``: numbers ≥ 0 of noisy histograms of lengths from which C
      is learned, and of others, in the last steps, that check it.
    - ``n_person_steps``: number ≥ 0 of noisy sums of squared lengths of persons' gradients, after
      the walk.
    """

    model: UserModel
    prior: Prior
    n_rows: int
    initial_mean: np.ndarray
    initial_scale: float
    n_steps: int
    n_curvature_steps: int
    sampling_rate: float
    clip_norm: float
    given_learning_rate: float | None = None
    covariance: str = "full"
    data_norm: float | None = None
    n_clip_steps: int = 0
    n_check_steps: int = 0
    n_person_steps: int = 0
    asks_sums: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        integer(1, n_rows=self.n_rows)
        positive(initial_scale=self.initial_scale)
        integer(1, n_steps=self.n_steps)
        for name in ("n_curvature_steps", "n_clip_steps", "n_check_steps", "n_person_steps"):
            integer(0, **{name: getattr(self, name)})
        in_range(0.0, 1.0, sampling_rate=self.sampling_rate, closed="right")
        positive(clip_norm=self.clip_norm, allow_inf=self.noise_multiplier == 0.0)
        positive(learning_rate=self.learning_rate)
        one_of(COVARIANCES, covariance=self.covariance)
        if self.data_norm is not None:
            in_range(1e-100, 1e100, data_norm=self.data_norm)  # its square is a double too

    @property
    def n_parameters(self) -> int:
        """Length of θ."""
        return self.model.n_parameters

    @property
    def n_walk(self) -> int:
        """Releases before the check: sums of gradients and curvatures, and what the clip costs."""
        return self.n_steps + self.n_curvature_steps + self.n_clip_steps

    @property
    def n_releases(self) -> int:
        """Noisy sums of all kinds."""
        return self.n_walk + self.n_person_steps + self.n_check_steps

    @property
    def n_records(self) -> int:
        """Public number of records: of rows, or of persons."""
        return self.n_rows if self.persons is None else self.persons.n_groups or self.n_rows

    @property
    def check_steps(self) -> range:
        """Which releases check the clip: the last ones."""
        return range(self.n_releases - self.n_check_steps, self.n_releases)

    @property
    def curvature_steps(self) -> frozenset[int]:
        """Which releases are sums of outer products: spread over the second half of the walk."""
        n, k = self.n_walk, self.n_curvature_steps
        return frozenset(n - 1 - (j * n) // (2 * k) for j in range(k))

    @property
    def clip_steps(self) -> range:
        """Which releases the clip is learned from: together, before the tail."""
        start = 2 * self.n_walk // 5
        return range(start, start + self.n_clip_steps)

    def draws(self, step: int) -> bool:
        """Whether a step asks at a draw of q; with a noise-aware posterior the first third does."""
        return not self.n_curvature_steps or step < self.n_walk // 3

    @property
    def sampling(self) -> Sampling:
        """Which records take part in each step."""
        return sampling(self.sampling_rate, self.n_releases)

    def noise_scale(self, clip_norm: float) -> float:
        """ν: standard deviation of the noise in the gradient estimate C g̃/q; c·C of persons."""
        if self.noise_multiplier == 0.0:
            return 0.0
        return self.noise_multiplier * clip_norm / self.sampling_rate

    @property
    def learning_rate(self) -> float:
        """Step size; the default follows the public ratio of data to noise."""
        if self.given_learning_rate is not None:
            return self.given_learning_rate
        return default_learning_rate(
            self.n_rows,
            self.n_parameters,
            self.noise_multiplier * self.of_person,
            self.sampling_rate,
        )

    @property
    def memory(self) -> int:
        """Bytes of the gradients held at a time and of θ's matrices, about."""
        return FLOAT * (2 * CHUNK_NUMBERS + 3 * self.n_parameters**2)

    @property
    def sums(self) -> list[BoundedSum]:
        """The private value of each release."""
        bound = 1.0 if math.isfinite(self.clip_norm) else math.inf
        sums: list[BoundedSum] = [ModelClippedSum(self.model, GRADIENT, bound)] * self.n_releases
        kind = OUTER if self.covariance == "full" else SQUARES
        for step in self.curvature_steps:
            sums[step] = ModelClippedSum(self.model, kind, CURVATURE_CLIP * bound)
        for step in self.clip_steps:
            sums[step] = LengthCounts(self.model, CLIP_EDGES)
        for step in range(self.n_walk, self.n_walk + self.n_person_steps):
            sums[step] = SquaredLengths(self.model, bound)
        for step in self.check_steps:
            sums[step] = LengthCounts(self.model, CHECK_EDGES)
        return sums

    def run(
        self, records: tuple[np.ndarray, ...], streams: Streams, progress: Progress = iter
    ) -> ModelPosterior:
        """Run the algorithm on private rows (n, n_features), clipped here, and targets (n,).

        Targets are ignored where the log-likelihood takes none. ``starts`` says where the rows of a
        person begin, if persons are the records. Streams "sampling", "noise", "eta" and "inference"
        are used; ``progress`` wraps the iteration over releases.
        """
        rows = rows_of(records, self._rows)
        etas = orthogonal_normals(self.n_parameters, self.n_releases + 1, streams("eta"))
        algorithm = ModelUpdate(self, etas)
        state = algorithm.init()
        if streams.saved is not None:
            state = algorithm.restored(state, streams.saved)
        plan = self.release_plan()
        steps = run(plan, rows, state, algorithm.query, algorithm.update, streams)
        for state in progress(steps):
            streams.keep(state.step, partial(tuple, state))
        if self.n_curvature_steps:
            fitted = algorithm.infer(state, streams("inference"))
        else:
            fitted = algorithm.plain(state)
        numbers, means = zip(*state.path, strict=True)
        path = Path(np.array(numbers), np.array(means), algorithm.tail_start)
        clip = state.clip / self.of_person
        clipping = Clipping(clip if math.isfinite(self.clip_norm) else math.inf)
        if self.n_check_steps:
            counts, noise = algorithm.mean_counts(state, self.n_check_steps)
            clipping = clipping_of(counts, noise, self.n_records, clip)
        return ModelPosterior(**fitted._asdict(), path=path, clipping=clipping)

    def _rows(self, records: tuple[np.ndarray, ...]) -> NetworkRecords:
        X, targets, *_ = records
        X, starts = bounded(X, self.data_norm), getattr(records, "starts", None)
        return NetworkRecords(X, targets, torch.empty(0).double(), starts)


def bounded(X: np.ndarray, data_norm: float | None) -> np.ndarray:
    """Rows, clipped to a norm if there is one."""
    return X if data_norm is None else clipped_rows(X, data_norm, fit_intercept=False)


class Path(NamedTuple):
    """At most about 200 means m (n_kept, n_parameters) along a run, evenly spaced.

    With the number of releases before each, and the steps before the tail of the posterior.
    """

    steps: np.ndarray
    means: np.ndarray
    burn_in: int


class Clipping(NamedTuple):
    """What the last releases say of the clip C at the end.

    The noisy share of records whose gradient at the posterior mean is longer, NaN where none were
    counted, and the standard deviation of its noise; and the clip beyond which no gradients were
    seen, which is infinite if there were any in the open cell.
    """

    clip_norm: float
    share: float = math.nan
    noise: float = math.nan
    advised: float = math.nan


def clipping_of(counts: np.ndarray, noise: float, n_rows: int, clip_norm: float) -> Clipping:
    """Read the share of clipped records, and the clip to give, off counts by `CHECK_EDGES`."""
    sure = np.flatnonzero(counts > LOUD * noise)
    advised = math.nan
    if len(sure):
        edges = (*CHECK_EDGES, math.inf)
        advised = clip_norm * edges[int(sure[-1]) + 1]
    share = float(counts.sum()) / n_rows
    return Clipping(clip_norm, share, noise * math.sqrt(len(counts)) / n_rows, advised)


@dataclass(frozen=True, kw_only=True)
class ModelPosterior(GaussianPosterior):
    """The posterior of a run, with what the releases tell of the run itself.

    ``n_hidden`` is the number of directions of θ whose noisy curvature is within its noise, where
    another's stands out; 0 where curvatures are about even.
    """

    path: Path
    clipping: Clipping
    n_hidden: int = 0
