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

the same in all directions (a design effect). Without a release of it ρ is k̄, that of rows that are
all alike.

Related: Alrawajfeh, Jälkö & Honkela, *Noise-Aware Differentially Private Variational Inference*,
2024. All steps have the same noise multiplier, so the event is that of `dp_sgd`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from scipy.special import logsumexp
from torch import Tensor

from skdp.algorithms.dp_vi import COVARIANCES
from skdp.algorithms.gaussian_posterior import GaussianPosterior
from skdp.algorithms.parts.gaussian_families import Cholesky, Diagonal, Family, orthogonal_normals
from skdp.algorithms.parts.gaussian_runs import FLOAT, GaussianRun
from skdp.engine.adam import Moments, NoiseCorrectedAdam
from skdp.engine.linear_sums import packed, unpacked
from skdp.engine.loop import ClippedSum, Progress, ReleasePlan, run
from skdp.engine.modules.network_sum import NetworkBatch, NetworkRecords
from skdp.engine.sampling import Sampling, sampling
from skdp.engine.updates import like
from skdp.fitting.streams import SecureStream, Streams
from skdp.fitting.validate import in_range, integer, one_of, positive
from skdp.models.user_models import Prior, UserModel
from skdp.rows.bounded_sum import CHUNK_ROWS, NUMBERS, OPPOSITE, POSITIVE, BoundedSum
from skdp.rows.chunks import rows_of
from skdp.rows.clipping import clipped_rows
from skdp.rows.coded import ON_BOUND
from skdp.rows.persons import PersonUnit, sizes_between

GRADIENT, OUTER, SQUARES = "gradient", "outer", "squares"
_CHUNK_NUMBERS = 2**21  # of per-record gradients in memory
_MOST_CANCELLED = 1e4  # lengths of a person's gradients over the clip, beyond which it shrinks
_MAX_THETA = 1e6
_SCALE_LEARNING_RATE = 0.05  # of log s
_LEAST_PRECISION = 1e-8
_N_DRAWS = 64  # of what H may be
_SPREADS = (0.8, 1.6, 3.2)  # of the eigenvalues of H, as the standard deviation of a logarithm
_SPREAD_OF_LEVEL = 1.5  # of their level around n/5
_LOGS = np.linspace(-4.0, 4.0, 401)
_N_KEPT = 200  # means along the run

# Edges of the histograms of lengths, in units of the clip.
RATIO = math.sqrt(2.0)
CLIP_EDGES = tuple(RATIO**k for k in range(-6, 9))  # 1/8 to 16
CHECK_EDGES = (1.0, 2.0, 4.0, 8.0)
LOUD = 3.5  # standard deviations of noise beyond which a cell is not empty
HIDES = 2.0  # standard deviations of noise that a curvature has to exceed
UNEVEN = 4.0  # times the mean curvature and the noise, beyond which one stands out
GAP = 3  # cells, beyond which one is lone
HIDDEN, MOST_HIDDEN = 0.02, 0.25  # of the records, that a cell may hide behind its noise

# Defaults, all functions of public facts, for parameters of the order of 1.
STEPS, STEPS_WITHOUT_NOISE = 150, 1000
CURVATURE_SHARE = 0.08  # of the releases
CURVATURE_CLIP = 0.35  # of C, in curvatures: their noise goes with its square
TAIL_RATE = 0.3  # of the learning rate
LENGTH_SHARE = 0.02  # of the releases, on each of the two histograms of lengths
LEAST_STEPS_TO_LEARN = 20  # in fewer, the clip stays what it was
FULL_BATCH_NUMBERS = 2 * 10**6  # n·P up to which every step reads all rows
BATCH_NUMBERS = 10**6  # B·P of a Poisson batch beyond that


def default_sampling_rate(n_rows: int, n_parameters: int) -> float:
    """Full batch while n·P is small, then Poisson batches of about 10⁶ gradient entries."""
    if n_rows * n_parameters <= FULL_BATCH_NUMBERS:
        return 1.0
    return min(1.0, max(1.0, BATCH_NUMBERS / n_parameters) / n_rows)


def default_clip_norm(n_parameters: int, *, private: bool) -> float:
    """2√P: a score with unit information on each parameter has norm √P; without privacy none."""
    return 2.0 * math.sqrt(n_parameters) if private else math.inf


def default_initial_scale(n_rows: int, n_parameters: int) -> float:
    """Posterior scale if the rows tell of P directions evenly, 1/5 each; at most .3."""
    return min(0.3, math.sqrt(5 * n_parameters / n_rows))


def default_learning_rate(
    n_rows: int, n_parameters: int, noise_multiplier: float, q: float
) -> float:
    """.1, and less where the noise dominates the gradient: the walk must be short there."""
    if noise_multiplier == 0.0:
        return 0.05
    signal_to_noise = n_rows * q / (noise_multiplier * math.sqrt(n_parameters))
    return min(max(0.02 * math.sqrt(signal_to_noise), 0.01), 0.1)


def safe_gradients(model: UserModel, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Gradients of records, (n, n_parameters): zero where the function fails."""
    try:
        return model.gradients(theta.clone(), x, y).to(torch.float64)
    except Exception as error:
        if isinstance(error, MemoryError | torch.OutOfMemoryError):
            raise
        if len(x) == 1:
            # The function works on synthetic records, so a value makes it fail; raising would
            # tell everyone that the record is there.
            return torch.zeros((1, len(theta)), dtype=torch.float64)
        one_by_one = [
            safe_gradients(model, theta, x[i : i + 1], y[i : i + 1]) for i in range(len(x))
        ]
        return torch.cat(one_by_one)


@dataclass(frozen=True)
class _ModelSum(BoundedSum):
    """Sum over records of a function of g/C, at a query (θ, C) of n_parameters + 1 numbers.

    Parameters
    ----------
    model : UserModel
        Whose gradients g are summed.
    """

    model: UserModel

    @property
    def record_bound(self) -> float:
        """Bound on the norm of one record's term, whatever C is."""
        return 1.0

    def of_persons(self, unit: PersonUnit) -> BoundedSum:
        """The same of persons, whose gradients are sums: C is what those are clipped to."""
        return self

    def __call__(self, theta: Tensor, batch: NetworkBatch) -> Tensor:
        """Return the sum for θ and C, (n_parameters + 1,)."""
        theta, clip_norm = theta[:-1], float(theta[-1])
        total = torch.zeros(self._shape(len(theta)), dtype=torch.float64)
        for gradients in self._records(theta, clip_norm, batch):
            norms = torch.linalg.vector_norm(gradients, dim=1)
            finite = torch.isfinite(norms)
            # Records without a finite gradient contribute nothing; 0·inf = NaN would tell.
            if not finite.all():
                gradients, norms = gradients[finite], norms[finite]
            total += self._sum(gradients, norms)
        return total

    def _records(self, theta: Tensor, clip_norm: float, batch: NetworkBatch) -> Iterator[Tensor]:
        """Yield gradients g/C of records (m, n_parameters), some at a time."""
        if batch.starts is None:
            for gradients, _ in self._rows(theta, clip_norm, batch, 0, len(batch)):
                yield gradients
            return
        for starts in _runs(batch.starts, len(theta)):
            sums = torch.zeros((len(starts) - 1, len(theta)), dtype=torch.float64)
            lengths = torch.zeros(len(sums), dtype=torch.float64)
            whose = torch.from_numpy(np.repeat(np.arange(len(sums)), np.diff(starts)))
            for gradients, first in self._rows(theta, clip_norm, batch, starts[0], starts[-1]):
                # A row without a finite gradient contributes nothing to its person.
                norms = torch.linalg.vector_norm(gradients, dim=1)
                finite = torch.isfinite(norms)
                persons = whose[first - starts[0] :][: len(gradients)]
                sums.index_add_(0, persons[finite], gradients[finite])
                lengths.index_add_(0, persons[finite], norms[finite])
            if self.record_bound < math.inf:
                # The last bits of a row's gradient depend on where the row stands, so on other
                # persons. Where rows cancel those bits are what is left, and they must be little
                # beside the clip.
                sums /= (lengths / _MOST_CANCELLED).clamp(min=1.0)[:, None]
            yield sums

    def _rows(
        self, theta: Tensor, clip_norm: float, batch: NetworkBatch, start: int, stop: int
    ) -> Iterator[tuple[Tensor, int]]:
        """Yield gradients g/C of rows (m, n_parameters) and the number of the first of them."""
        size = _chunk_rows(len(theta))
        for first in range(start, stop, size):
            x, y, _ = batch.piece(first, min(first + size, stop))
            yield safe_gradients(self.model, theta, x, y) / clip_norm, first

    def _shape(self, n_parameters: int) -> tuple[int, ...]:
        raise NotImplementedError

    def _sum(self, gradients: Tensor, norms: Tensor) -> Tensor:
        raise NotImplementedError


def _chunk_rows(n_parameters: int) -> int:
    """Number of rows whose gradients are in memory at once."""
    return max(1, min(CHUNK_ROWS, _CHUNK_NUMBERS // n_parameters))


def _runs(starts: np.ndarray, n_parameters: int) -> Iterator[np.ndarray]:
    """Yield where rows begin of as many persons as fit in memory, or of one with more rows."""
    for first, beyond in sizes_between(starts, _chunk_rows(n_parameters)):
        # Persons of a batch have rows: there are no more of them than of rows.
        yield starts[first : beyond + 1]


@dataclass(frozen=True)
class ModelClippedSum(_ModelSum):
    """Sum over records of ĝ, of ĝĝᵀ (packed), or of ĝ∘ĝ, for ĝ = g/C clipped to a norm.

    Parameters
    ----------
    model : UserModel
        Whose gradients g are summed.
    kind : {"gradient", "outer", "squares"}
        The three sums: one record's share has norm ≤ b, = ‖ĝ‖² ≤ b², ≤ ‖ĝ‖² ≤ b².
    bound : float
        b > 0: norm to which g/C is clipped; infinite for none.
    """

    kind: str = GRADIENT
    bound: float = 1.0

    def __post_init__(self) -> None:
        one_of((GRADIENT, OUTER, SQUARES), kind=self.kind)
        positive(bound=self.bound, allow_inf=True)

    @property
    def record_bound(self) -> float:
        """Bound on the norm of one record's term: b or b²."""
        return self.bound ** (1 if self.kind == GRADIENT else 2)

    @property
    def apart(self) -> float:
        """√2 for ĝĝᵀ and ĝ∘ĝ, whose inner products are (ĝ·ĥ)² and Σ ĝ²ĥ², both ≥ 0."""
        return OPPOSITE if self.kind == GRADIENT else POSITIVE

    def shape(self, theta_shape: tuple[int, ...]) -> tuple[int, ...]:
        """One number per parameter, or one per pair of parameters."""
        n = theta_shape[0] - 1
        return (n * (n + 1) // 2,) if self.kind == OUTER else (n,)

    def __call__(self, theta: Tensor, batch: NetworkBatch) -> Tensor:
        """Return the sum for θ and C, (n_parameters + 1,)."""
        total = super().__call__(theta, batch)
        return torch.from_numpy(packed(total.numpy())) if self.kind == OUTER else total

    def _shape(self, n_parameters: int) -> tuple[int, ...]:
        return (n_parameters, n_parameters) if self.kind == OUTER else (n_parameters,)

    def _sum(self, gradients: Tensor, norms: Tensor) -> Tensor:
        if self.bound < math.inf:
            gradients = gradients * (self.bound / norms.clamp(min=self.bound))[:, None]
        if self.kind == OUTER:
            return gradients.mT @ gradients
        return gradients.sum(0) if self.kind == GRADIENT else gradients.square().sum(0)

    def of_persons(self, unit: PersonUnit) -> BoundedSum:
        """The same of persons' sums of gradients; of curvatures, the sum over their rows."""
        if self.kind == GRADIENT:
            return self
        return PersonCurvatureSum(self.model, self.kind, self.bound, unit=unit)


@dataclass(frozen=True)
class PersonCurvatureSum(ModelClippedSum):
    """Sum over rows of ĝĝᵀ (packed) or ĝ∘ĝ, of which each person's share is scaled to a trace.

    The query holds the clip c·C of a person, and ĝ = g/C of a row is clipped to a norm b.

    Parameters
    ----------
    model, kind, bound
        As in `ModelClippedSum`; not ``"gradient"``.
    unit : PersonUnit
        Of c, and k̄: a person's share has a trace of at most k̄b², which its norm does not exceed.
    """

    unit: PersonUnit = field(kw_only=True)

    @property
    def record_bound(self) -> float:
        """Bound on the norm of one person's term."""
        return self.unit.rows_per_group * self.bound**2

    def __call__(self, theta: Tensor, batch: NetworkBatch) -> Tensor:
        """Return the sum for θ and c·C, (n_parameters + 1,)."""
        if batch.starts is None:
            raise ValueError("Expected a batch that says whose its rows are.")
        theta, clip_norm = theta[:-1], float(theta[-1]) / self.unit.clip
        total = torch.zeros(self._shape(len(theta)), dtype=torch.float64)
        for starts in _runs(batch.starts, len(theta)):
            total += self._of_persons(theta, clip_norm, batch, starts)
        return torch.from_numpy(packed(total.numpy())) if self.kind == OUTER else total

    def _of_persons(
        self, theta: Tensor, clip_norm: float, batch: NetworkBatch, starts: np.ndarray
    ) -> Tensor:
        """Sum over persons, or over one whose rows come in pieces."""
        total = torch.zeros(self._shape(len(theta)), dtype=torch.float64)
        trace = torch.zeros(len(starts) - 1, dtype=torch.float64)
        sizes = torch.from_numpy(np.diff(starts))
        for gradients, _ in self._rows(theta, clip_norm, batch, starts[0], starts[-1]):
            norms = torch.linalg.vector_norm(gradients, dim=1)
            gone = ~torch.isfinite(norms)
            norms[gone], gradients[gone] = 0.0, 0.0
            if self.bound < math.inf:
                gradients = gradients * (self.bound / norms.clamp(min=self.bound))[:, None]
                norms = norms.clamp(max=self.bound)
            if len(trace) == 1:
                trace += norms.square().sum()
            else:
                whose = torch.arange(len(trace)).repeat_interleave(sizes)
                trace.index_add_(0, whose, norms.square())
                gradients = gradients * self._factors(trace).sqrt()[whose, None]
            total += self._sum(gradients, norms)
        return total * self._factors(trace) if len(trace) == 1 else total

    def _factors(self, trace: Tensor) -> Tensor:
        if self.bound == math.inf:
            return torch.ones_like(trace)
        most = self.record_bound
        return torch.where(trace > most * (1 + ON_BOUND), most / trace.clamp(min=most), 1.0)


@dataclass(frozen=True)
class SquaredLengths(_ModelSum):
    """Sum over records of ‖ĝ‖², for ĝ = g/C clipped to norm 1.

    Parameters
    ----------
    model : UserModel
        Whose gradients g are measured.
    bound : float
        1, or infinite for no clip.
    """

    bound: float = 1.0
    apart = NUMBERS

    @property
    def record_bound(self) -> float:
        """Bound on one record's term."""
        return self.bound

    def shape(self, theta_shape: tuple[int, ...]) -> tuple[int, ...]:
        """One number."""
        return (1,)

    def _shape(self, n_parameters: int) -> tuple[int, ...]:
        return (1,)

    def _sum(self, gradients: Tensor, norms: Tensor) -> Tensor:
        return norms.clamp(max=self.bound).square().sum()[None]


@dataclass(frozen=True)
class LengthCounts(_ModelSum):
    """Number of records by the length of g/C: cell k counts lengths in (edges[k], edges[k + 1]].

    The last cell is open. A record is in one cell, or in none if its gradient is no longer than the
    first edge or not finite; a null record has gradient 0.

    Parameters
    ----------
    model : UserModel
        Whose gradients g are counted.
    edges : tuple of float
        Increasing, > 0.
    """

    edges: tuple[float, ...]
    apart = POSITIVE  # one-hot rows

    def shape(self, theta_shape: tuple[int, ...]) -> tuple[int, ...]:
        """One count for each cell."""
        return (len(self.edges),)

    def _shape(self, n_parameters: int) -> tuple[int, ...]:
        return (len(self.edges),)

    def _sum(self, gradients: Tensor, norms: Tensor) -> Tensor:
        edges = torch.tensor(self.edges, dtype=torch.float64)
        cell = torch.bucketize(norms, edges)  # 0: in none
        return torch.bincount(cell, minlength=len(edges) + 1)[1:].to(torch.float64)


@dataclass(frozen=True)
class ModelConfig(GaussianRun):
    """Public facts of a run; built without a row in sight, and all that the event depends on.

    Parameters
    ----------
    model : UserModel
        The log-likelihood.
    prior : Prior
        The prior.
    n_rows : int
        Public number of rows, n ≥ 1; of persons, as declared.
    initial_mean : ndarray of shape (n_parameters,)
        m of the start.
    initial_scale : float
        The start is N(initial_mean, s_0² I), s_0 > 0.
    n_steps : int
        T ≥ 1: number of noisy sums of gradients.
    n_curvature_steps : int
        Number ≥ 0 of noisy sums of outer products among them; 0 for a posterior that does not know
        of the noise.
    sampling_rate : float
        q in (0, 1]; 1 is the full batch.
    clip_norm : float
        C > 0: norm to which each record's gradient is clipped at first; infinite without noise.
        Gradients of persons are clipped to c·C.
    given_learning_rate : float or None
        Step size of m, in the units of θ, or None for the default.
    covariance : {"diag", "full"}
        Whether L is diagonal or lower triangular.
    data_norm : float or None
        Norm > 0 to which rows are clipped; None leaves them as they are.
    n_clip_steps : int
        Number ≥ 0 of noisy histograms of lengths from which C is learned; 0 leaves it as it is.
    n_check_steps : int
        Number ≥ 0 of noisy histograms of lengths in the last steps.
    n_person_steps : int
        Number ≥ 0 of noisy sums of squared lengths of persons' gradients, after the walk.
    noise_multiplier, neighboring_relation, persons
        As in `GaussianRun`.
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
        integer(0, n_curvature_steps=self.n_curvature_steps)
        integer(0, n_clip_steps=self.n_clip_steps)
        integer(0, n_check_steps=self.n_check_steps)
        integer(0, n_person_steps=self.n_person_steps)
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
        return FLOAT * (2 * _CHUNK_NUMBERS + 3 * self.n_parameters**2)

    def release_plan(self) -> ReleasePlan:
        """What the engine executes: built from the very fields of `event`."""
        bound = 1.0 if math.isfinite(self.clip_norm) else math.inf
        sums: list[ClippedSum] = [ModelClippedSum(self.model, GRADIENT, bound)] * self.n_releases
        kind = OUTER if self.covariance == "full" else SQUARES
        for step in self.curvature_steps:
            sums[step] = ModelClippedSum(self.model, kind, CURVATURE_CLIP * bound)
        for step in self.clip_steps:
            sums[step] = LengthCounts(self.model, CLIP_EDGES)
        for step in range(self.n_walk, self.n_walk + self.n_person_steps):
            sums[step] = SquaredLengths(self.model, bound)
        for step in self.check_steps:
            sums[step] = LengthCounts(self.model, CHECK_EDGES)
        return ReleasePlan(
            self.sampling,
            sums,
            self.noise_multiplier,
            self.neighboring_relation,
            persons=self.persons,
        )

    def run(
        self, records: tuple[np.ndarray, ...], streams: Streams, progress: Progress = iter
    ) -> ModelPosterior:
        """Run the algorithm on private rows and return the posterior.

        Parameters
        ----------
        records : tuple of ndarray
            Rows (n, n_features), clipped here, and targets (n,) as the log-likelihood takes them;
            ignored where it takes none. ``starts`` says where those of a person begin, if persons
            are the records.
        streams : Streams
            Streams of the fit: "sampling", "noise", "eta" and "inference" are used.
        progress : callable, default=iter
            Wraps the iteration over releases.
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
            return algorithm.infer(state, streams("inference"))
        return algorithm.plain(state)

    def _rows(self, records: tuple[np.ndarray, ...]) -> NetworkRecords:
        X, targets, *_ = records
        X, starts = bounded(X, self.data_norm), getattr(records, "starts", None)
        return NetworkRecords(X, targets, torch.empty(0).double(), starts)


def bounded(X: np.ndarray, data_norm: float | None) -> np.ndarray:
    """Rows, clipped to a norm if there is one."""
    return X if data_norm is None else clipped_rows(X, data_norm, fit_intercept=False)


class Path(NamedTuple):
    """Means m along a run.

    Parameters
    ----------
    steps : ndarray of shape (n_kept,)
        Number of releases before each.
    means : ndarray of shape (n_kept, n_parameters)
        At most about 200, evenly spaced.
    burn_in : int
        Steps before the tail that the posterior is made of.
    """

    steps: np.ndarray
    means: np.ndarray
    burn_in: int


class Clipping(NamedTuple):
    """What the last releases say of the clip.

    Parameters
    ----------
    clip_norm : float
        C at the end.
    share : float
        Noisy share of records whose gradient at the posterior mean is longer than C; NaN where none
        were counted.
    noise : float
        Standard deviation of its noise.
    advised : float
        Clip beyond which no gradients were seen; infinite if there were in the open cell.
    """

    clip_norm: float
    share: float = math.nan
    noise: float = math.nan
    advised: float = math.nan


@dataclass(frozen=True, kw_only=True)
class ModelPosterior(GaussianPosterior):
    """The posterior of a run, with what the releases tell of the run itself.

    Parameters
    ----------
    path : Path
        Means along the run.
    clipping : Clipping
        What was released of the clip.
    n_hidden : int
        Number of directions of θ whose noisy curvature is within its noise, where another's stands
        out; 0 where curvatures are about even.
    """

    path: Path
    clipping: Clipping
    n_hidden: int = 0


class ModelState(NamedTuple):
    """State of the run: all of it is a function of released values."""

    step: int
    mean: np.ndarray  # m
    spread: Any  # L, as its family stores it
    eta: np.ndarray  # η of the next query
    moments: Moments  # Adam's, of ∇_m
    sums: Tail  # over the tail of the run
    curvature: np.ndarray  # sum of the released C²J̃/q
    clip: float  # C, of a person c·C
    lengths: np.ndarray  # sum of the released counts of the current histogram, over q
    scatter: np.ndarray  # sum of the released squared lengths of persons' gradients, over q
    path: tuple[tuple[int, np.ndarray], ...] = ()


class Tail(NamedTuple):
    """Sums over the steps of the tail."""

    mean: np.ndarray
    spread: np.ndarray
    theta: np.ndarray
    gradient: np.ndarray
    count: int


class ModelUpdate:
    """The update rule: pure functions of a state and a released sum."""

    def __init__(self, config: ModelConfig, etas: Iterator[np.ndarray]) -> None:
        self._config, self._etas = config, etas
        self._adam = NoiseCorrectedAdam()
        clip = config.clip_norm if math.isfinite(config.clip_norm) else 1.0
        self._start_clip = clip * config.of_person

    def _family(self, clip_norm: float) -> Family:
        config = self._config
        variance = config.noise_scale(clip_norm) ** 2
        if config.covariance == "full":
            return Cholesky(0.0, variance, _MAX_THETA, config.sampling_rate)
        return Diagonal(0.0, variance, _SCALE_LEARNING_RATE, _MAX_THETA)

    def init(self) -> ModelState:
        """Start at the initial mean."""
        config = self._config
        mean = np.array(config.initial_mean, dtype=np.float64)
        clip = self._start_clip
        family = self._family(clip)
        spread = family.init(config.initial_scale, len(mean))
        zero = np.zeros_like(mean)
        tail = Tail(zero, np.zeros_like(family.numbers(spread)), zero, zero, 0)
        n = len(mean)
        curvature = np.zeros((n, n) if config.covariance == "full" else n)
        moments, none = self._adam.init(mean), np.zeros(())
        eta = next(self._etas)
        return ModelState(0, mean, spread, eta, moments, tail, curvature, clip, none, none)

    def restored(self, start: ModelState, saved: Any) -> ModelState:
        """Return the state that a checkpoint holds, having drawn what the run had drawn."""
        state = like(start, saved)
        for _ in range(state.moments.count):
            next(self._etas)
        return state

    def query(self, state: ModelState) -> Tensor:
        """(θ_t, C): θ_t is m + Lη_t for a gradient, m where the noise is inferred or counted."""
        return torch.from_numpy(np.append(self._point(state), state.clip))

    def _point(self, state: ModelState) -> np.ndarray:
        config = self._config
        if state.step >= config.n_walk:
            theta = state.sums.mean / state.sums.count
        elif state.step in config.clip_steps or not config.draws(state.step):
            theta = state.mean
        else:
            theta = state.mean + self._family(state.clip).times(state.spread, state.eta)
        return np.clip(theta, -_MAX_THETA, _MAX_THETA)

    def update(self, state: ModelState, noisy: Tensor, step: int) -> ModelState:
        """One ascent step on the ELBO from a released g̃_t, or note another release."""
        config = self._config
        released = noisy.numpy() / config.sampling_rate
        if step in config.clip_steps or step in config.check_steps:
            return self._counted(state, released, step)
        if step >= config.n_walk:
            return state._replace(step=step + 1, scatter=state.scatter + released)
        if step in config.curvature_steps:
            if config.covariance == "full":
                released = unpacked(released, config.n_parameters)
            of_row = (state.clip / config.of_person) ** 2
            state = state._replace(curvature=state.curvature + of_row * released)
        else:
            state = self._ascended(state, state.clip * released, step)
        return self._kept(state, step)._replace(step=step + 1)

    def _ascended(self, state: ModelState, released: np.ndarray, step: int) -> ModelState:
        config, family, theta = self._config, self._family(state.clip), self._point(state)
        total = released + _finite(config.prior.gradient(torch.from_numpy(theta)))
        variance = config.noise_scale(state.clip) ** 2
        direction, moments = self._adam.direction(state.moments, total, variance)
        # A larger clip has more noise: its walk must be shorter.
        decay = self.decay(step) * min(1.0, self._start_clip / state.clip)
        mean = state.mean + decay * config.learning_rate * direction
        spread = state.spread
        if config.draws(step):
            spread = family.update(spread, total, state.eta, decay)
        tail = state.sums
        if step >= self.tail_start:
            tail = Tail(
                tail.mean + mean,
                tail.spread + family.numbers(spread),
                tail.theta + theta,
                tail.gradient + released,
                tail.count + 1,
            )
        eta = next(self._etas)
        return state._replace(mean=mean, spread=spread, eta=eta, moments=moments, sums=tail)

    def _counted(self, state: ModelState, released: np.ndarray, step: int) -> ModelState:
        """Note a histogram of lengths; after the last of the clip's, choose it and start afresh."""
        config = self._config
        state = state._replace(step=step + 1, lengths=state.lengths + released)
        if step != config.clip_steps.stop - 1:
            return state
        counts, noise = self._mean_counts(state, config.n_clip_steps)
        clip = state.clip * learned_clip(counts, noise, config.n_records)
        more = config.noise_scale(clip) ** 2 - config.noise_scale(state.clip) ** 2
        moments = self._adam.with_noise(state.moments, more)
        return state._replace(clip=clip, moments=moments, lengths=np.zeros(()))

    def _mean_counts(self, state: ModelState, n: int) -> tuple[np.ndarray, float]:
        """Counts averaged over n releases, and the standard deviation of their noise."""
        config = self._config
        step = (config.check_steps if state.step > config.n_walk else config.clip_steps).start
        scale = config.release_plan().noise_scale(step) / config.sampling_rate
        return state.lengths / n, scale / math.sqrt(n)

    def _kept(self, state: ModelState, step: int) -> ModelState:
        every = math.ceil(self._config.n_walk / _N_KEPT)
        if (step + 1) % every and step + 1 != self._config.n_walk:
            return state
        return state._replace(path=(*state.path, (step + 1, state.mean)))

    @property
    def tail_start(self) -> int:
        """First step of the tail; not empty, however short the run."""
        return max(0, (self._config.n_walk - 1) // 2)

    def decay(self, step: int) -> float:
        """Decay to 2 % without noise; with it steps are constant, and the average settles.

        They are short in the tail that a posterior is linearised in.
        """
        config = self._config
        if config.noise_multiplier > 0.0:
            return TAIL_RATE if config.n_curvature_steps and step >= self.tail_start else 1.0
        return 1.0 - 0.98 * step / config.n_releases

    def plain(self, state: ModelState) -> ModelPosterior:
        """Average the tail: under composition accounting it is free, and takes noise out."""
        tail = state.sums
        spread = self._family(state.clip).posterior_spread(tail.spread / tail.count)
        return self._posterior(state, tail.mean / tail.count, spread)

    def _posterior(
        self, state: ModelState, mean: np.ndarray, spread: np.ndarray, n_hidden: int = 0
    ) -> ModelPosterior:
        config = self._config
        path = Path(
            np.array([step for step, _ in state.path]),
            np.array([kept for _, kept in state.path]),
            self.tail_start,
        )
        clip = state.clip / config.of_person
        clipping = Clipping(clip if math.isfinite(config.clip_norm) else math.inf)
        if config.n_check_steps:
            counts, noise = self._mean_counts(state, config.n_check_steps)
            clipping = clipping_of(counts, noise, config.n_records, clip)
        return ModelPosterior(
            mean=mean, spread=spread, path=path, clipping=clipping, n_hidden=n_hidden
        )

    def infer(self, state: ModelState, stream: SecureStream) -> ModelPosterior:
        """The posterior given the releases, pooled over what H may be."""
        config, tail, J = self._config, state.sums, self._noisy_curvature(state)
        assert config.prior.covariance is not None
        prior = config.prior.covariance.numpy()
        if J.is_diagonal:
            prior = np.diag(np.diag(prior))
        P0 = np.linalg.inv(prior)
        theta, gradient = tail.theta / tail.count, tail.gradient / tail.count
        variance = config.noise_scale(state.clip) ** 2 / tail.count  # of ḡ
        # A Poisson batch adds its own variance, (1 − q)/q of that of the data, to each gradient.
        excess = 1.0 + (1.0 / config.sampling_rate - 1.0) / tail.count
        excess *= self._design_effect(state, J)
        of_prior = P0 @ (config.prior.start.numpy() - theta)
        means, covariances = [], []
        C = state.clip / config.of_person
        usual = max(config.n_rows * min(1.0, C**2 / len(theta)) / 5, _LEAST_PRECISION)
        for drawn in curvature_draws(J.values, J.noise, usual, J.noise_of_mean, stream):
            share = drawn / (excess * drawn + variance)  # M in its own basis
            covariance = np.linalg.inv((J.vectors * (share * drawn)) @ J.vectors.T + P0)
            of_data = J.vectors @ (share * (J.vectors.T @ gradient))
            means.append(covariance @ (of_data + of_prior))
            covariances.append(covariance)
        centre, within = np.mean(means, axis=0), np.mean(covariances, axis=0)
        covariance = within + np.cov(np.array(means).T, bias=True).reshape(within.shape)
        covariance = (covariance + covariance.T) / 2
        spread = np.sqrt(np.diag(covariance)) if J.is_diagonal else covariance
        return self._posterior(state, theta + centre, spread, J.n_hidden)

    def _design_effect(self, state: ModelState, J: NoisyCurvature) -> float:
        """ρ ≥ 1: variance of the sum of gradients over that of rows each by itself."""
        config, persons = self._config, self._config.persons
        if persons is None or config.n_person_steps == 0:
            return 1.0 if persons is None else persons.rows_per_group
        of_persons = state.clip**2 * state.scatter.item() / config.n_person_steps
        P = len(J.values)
        return max(1.0, of_persons / (P * max(float(J.values.mean()), J.noise_of_mean)))

    def _noisy_curvature(self, state: ModelState) -> NoisyCurvature:
        config, k = self._config, self._config.n_curvature_steps
        J = state.curvature / k
        scale = config.release_plan().noise_scale(min(config.curvature_steps))
        scale *= (state.clip / config.of_person) ** 2 / (config.sampling_rate * math.sqrt(k))
        of_mean, is_diagonal = scale / math.sqrt(len(J)), J.ndim == 1
        if is_diagonal:
            return NoisyCurvature(J, np.eye(len(J)), scale, of_mean, is_diagonal)
        return NoisyCurvature(
            *np.linalg.eigh(J), scale * math.sqrt((len(J) + 1) / 2), of_mean, is_diagonal
        )


class NoisyCurvature(NamedTuple):
    """Released eigenvalues and eigenvectors of H, and the standard deviations of their noise."""

    values: np.ndarray
    vectors: np.ndarray
    noise: float
    noise_of_mean: float
    is_diagonal: bool

    @property
    def n_hidden(self) -> int:
        """Number of eigenvalues within their noise, where the largest stands out; else 0."""
        if self.values.max() < UNEVEN * max(self.values.mean(), self.noise):
            return 0
        return int((self.values < HIDES * self.noise).sum())


def learned_clip(counts: np.ndarray, noise: float, n_rows: int) -> float:
    """Choose a clip, in units of the old one, from noisy counts of lengths by `CLIP_EDGES`.

    It is the edge after the last cell that is not empty for sure. Of a lone one far above the
    others twice as much is asked, as one of many cells may have much noise. Clipped fits have
    longer gradients than others; so a clip that is not raised gets one edge more. A cell that could
    hide many records behind the noise may not be empty: then the clip is up to twice that, and
    where most could hide it stays as it was.
    """
    hidden = LOUD * noise / n_rows
    if hidden > MOST_HIDDEN:
        return 1.0
    top = int(counts.argmax())
    for cell in np.flatnonzero(counts > LOUD * noise):
        if top < cell <= top + GAP or counts[cell] > 2 * LOUD * noise:
            top = max(top, int(cell))
    if counts[top] <= LOUD * noise:  # all lengths are below the first edge
        top = -1
    edge = CLIP_EDGES[0] * RATIO ** (top + 1)
    return edge * (1.0 if edge > 1.01 else RATIO) * min(max(hidden / HIDDEN, 1.0), 2.0)


def clipping_of(counts: np.ndarray, noise: float, n_rows: int, clip_norm: float) -> Clipping:
    """Read the share of clipped records, and the clip to give, off counts by `CHECK_EDGES`."""
    sure = np.flatnonzero(counts > LOUD * noise)
    advised = math.nan
    if len(sure):
        edges = (*CHECK_EDGES, math.inf)
        advised = clip_norm * edges[int(sure[-1]) + 1]
    share = float(counts.sum()) / n_rows
    return Clipping(clip_norm, share, noise * math.sqrt(len(counts)) / n_rows, advised)


def curvature_draws(
    values: np.ndarray, scale: float, usual: float, of_mean: float, stream: SecureStream
) -> np.ndarray:
    """Draw what the eigenvalues of H may be, given noisy ones: (n_draws, P).

    They are taken to be log-normal, with normal noise of a scale: a noisy eigenvalue below zero
    says that there is little curvature, not that it is absent. Their level is log-normal around
    its usual value, and their mean tells of it with noise of scale ``of_mean``. How far they are
    spread is one of `_SPREADS`, each as likely as it makes the noisy ones: where some are far above
    the mean, the hidden ones are far below it.
    """
    u = stream.generator.random((_N_DRAWS, len(values) + 2))
    mean = np.array([values.mean()])
    levels = _lognormal_given(mean, of_mean, usual, _SPREAD_OF_LEVEL, u[:, :1])[:, 0]
    typical = float(np.median(levels))
    evidence = [_log_evidence(values, scale, _median(typical, s), s) for s in _SPREADS]
    weights = np.cumsum(np.exp(np.array(evidence) - max(evidence)))
    spreads = np.array(_SPREADS)[np.searchsorted(weights / weights[-1], u[:, 1])]
    draws = [
        _lognormal_given(values, scale, _median(level, spread), spread, row[None, 2:])[0]
        for level, spread, row in zip(levels, spreads, u, strict=True)
    ]
    return np.array(draws)


def _median(level: float, spread: float) -> float:
    """Median of log-normal numbers of a spread with the mean that the first of `_SPREADS` has."""
    return level * math.exp((_SPREADS[0] ** 2 - spread**2) / 2)


def _lognormal_given(
    noisy: np.ndarray, scale: float, median: float, spread: float, u: np.ndarray
) -> np.ndarray:
    """Quantiles u (n, P) of log-normal numbers, given each with normal noise (P,)."""
    grid, log_weights = _on_grid(noisy, scale, median, spread)
    cumulated = np.cumsum(np.exp(log_weights - log_weights.max(axis=1, keepdims=True)), axis=1)
    cumulated /= cumulated[:, -1:]
    return np.stack([np.interp(u[:, i], c, grid) for i, c in enumerate(cumulated)], axis=1)


def _log_evidence(noisy: np.ndarray, scale: float, median: float, spread: float) -> float:
    """Log-density of log-normal numbers with normal noise, up to a constant."""
    return float(np.sum(logsumexp(_on_grid(noisy, scale, median, spread)[1], axis=1)))


def _on_grid(
    noisy: np.ndarray, scale: float, median: float, spread: float
) -> tuple[np.ndarray, np.ndarray]:
    grid = median * np.exp(spread * _LOGS)
    far = (noisy[:, None] - grid) / max(scale, 1e-3 * float(np.abs(noisy).max()))
    return grid, -0.5 * _LOGS**2 - 0.5 * far**2


def _finite(numbers: Tensor) -> np.ndarray:
    return numbers.detach().nan_to_num(0.0, 0.0, 0.0).double().numpy()
