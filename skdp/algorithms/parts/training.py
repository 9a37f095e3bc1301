"""Training a network by noisy sums: what every such algorithm's run has in common.

An algorithm is a value: a frozen configuration of public facts, from which the event and the plan
of a run are built, and an update rule, a pure function of released sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from dp_accounting.dp_event import DpEvent
from torch import Tensor

from skdp.algorithms.parts.network_models import Clip, LinearModel, Model, PrivateRows
from skdp.engine.grid import lattice_bits
from skdp.engine.loop import Progress, ReleasePlan, run
from skdp.engine.modules.flat_module import PHYSICAL_BATCH_SIZE
from skdp.engine.sampling import Sampling, sampling
from skdp.fitting.run_streams import encoded
from skdp.fitting.streams import Streams
from skdp.fitting.validate import in_range, integer, one_of
from skdp.privacy.discrete import discrete_gaussian_event
from skdp.privacy.events import dp_sgd_event
from skdp.relations import check_relation
from skdp.rows.bounded_sum import BoundedSum
from skdp.rows.lazy_rows import rows_of
from skdp.rows.persons import PersonUnit
from skdp.rows.records import Rows

CLIPPING = ("flat", "automatic")
_LOOKS = 20  # at a run, by who watches it; shorter runs are not asked how far they got
_LOUD = 4.0  # standard deviations of the square of noise beyond which it is more than that
_FLOAT, _VECTORS = 4, 16  # bytes; parameters, sums, noise and moments that a step holds at once


class Posterior(Protocol):
    """Parameters that a run leaves, as flat vectors: all of it functions of released values."""

    @property
    def point(self) -> np.ndarray:
        """One vector, (P,): the fitted network."""
        ...

    @property
    def members(self) -> np.ndarray:
        """Vectors whose predictions are averaged, (K, P)."""
        ...

    def sample(self, n_samples: int, rng: np.random.RandomState) -> np.ndarray:
        """Draws, (n_samples, P)."""
        ...


class Update:
    """An update rule: pure functions of a state (``theta``, ``n_steps``) and a released sum."""

    def init(self, theta: Tensor, kept: Any = None) -> Any:
        """Start at given parameters, with what an earlier run kept."""
        raise NotImplementedError

    def keep(self, state: Any) -> Any:
        """Return what a run that goes on from this one is to have, besides parameters."""
        return None

    def saved(self, state: Any) -> Any:
        """Return a state for a checkpoint."""
        return state

    def restored(self, saved: Any, theta: Tensor) -> Any:
        """Return the state that a checkpoint holds, with parameters like given ones."""
        raise NotImplementedError

    def query(self, state: Any) -> Tensor:
        """Return the parameters at which the state asks for a gradient."""
        return state.theta

    def update(self, state: Any, noisy: Tensor, step: int) -> Any:
        """Return the next state."""
        raise NotImplementedError

    def posterior(self, state: Any, vector: Callable[[Tensor], np.ndarray]) -> Posterior:
        """Return what the run leaves, its parameters put into order by ``vector``."""
        raise NotImplementedError


class Trained(NamedTuple):
    """What leaves a run: functions of released values."""

    posterior: Posterior
    n_steps: int
    push: float  # norm of the mean sum of the later half of the run over B·C, its noise taken out
    kept: Any = None  # for a run that goes on from this one


Watch = Callable[[int, Posterior], None]


def perceptron_size(sizes: Sequence[int]) -> int:
    """Number of weights and biases between layers of these sizes."""
    return sum((before + 1) * after for before, after in pairwise(sizes))


@dataclass(frozen=True, kw_only=True)
class NetworkRun:
    """Public facts of a training; built without a row in sight, and all its event depends on.

    - ``n_rows``: N, public number of rows, which with the rate gives the divisor B = qN of a sum.
      Of persons, how many there are times how many rows each has, both as declared.
    - ``n_steps``, ``sampling_rate``: T ≥ 1 noisy sums; q in (0, 1], 1 for the full batch.
    - ``clip_norm``: C > 0, norm to which rows' gradients are clipped; infinite for no privacy.
    - ``clipping``: "flat" or "automatic"; see `NetworkBoundedSum`.
    - ``physical_batch_size``: records worked on at once.
    - ``layer_sizes``: features, neurons and outputs of our own perceptron; None for a module.
    - ``persons``: public facts about persons, where these are the records: the sum of a person's
      clipped gradients is clipped to c·C, and it is persons who are sampled.
    - ``weight_bound``: largest weight > 0 of a row, by which its clipped gradient is multiplied.
    - ``secure``: integer sums and discrete Gaussian noise, of our own perceptron.
    """

    n_rows: int
    n_steps: int
    sampling_rate: float
    clip_norm: float
    clipping: str = "flat"
    physical_batch_size: int | None = None
    neighboring_relation: str = "zero_out"
    layer_sizes: tuple[int, ...] | None = None
    persons: PersonUnit | None = None
    weight_bound: float = 1.0
    secure: bool = False
    asks_sums: ClassVar[bool] = True

    def __post_init__(self) -> None:
        in_range(1e-10, 1e10, weight_bound=self.weight_bound)
        integer(1, n_rows=self.n_rows)
        integer(1, n_steps=self.n_steps)
        in_range(0.0, 1.0, sampling_rate=self.sampling_rate, closed="right")
        if self.clip_norm != math.inf:
            in_range(1e-10, 1e10, clip_norm=self.clip_norm)
        one_of(CLIPPING, clipping=self.clipping)
        if self.physical_batch_size is not None:
            integer(1, "or None", physical_batch_size=self.physical_batch_size)
        check_relation(self.neighboring_relation)

    @property
    def n_releases(self) -> int:
        """Number of noisy sums."""
        return self.n_steps

    @property
    def sampling(self) -> Sampling:
        """Which records take part in each step."""
        return sampling(self.sampling_rate, self.n_steps)

    @property
    def batch_size(self) -> float:
        """Expected batch size B = qN, the public divisor of a sum."""
        return self.sampling_rate * self.n_rows

    @property
    def of_record(self) -> float:
        """Bound on a record's share of a sum over C: its weight's, times c for a person."""
        return self.weight_bound * (1.0 if self.persons is None else self.persons.clip)

    @property
    def largest_sum(self) -> float:
        """Norm of an expected batch's sum if all gradients were one, as long as they may be."""
        rows = 1.0 if self.persons is None else self.persons.rows_per_group
        return self.batch_size * (self.clip_norm * self.of_record / rows)

    @property
    def noise_multipliers(self) -> Sequence[float]:
        """σ_t of each noisy sum."""
        raise NotImplementedError

    @property
    def noise_share(self) -> float:
        """Norm of the noise of all sums over that of the sums if all gradients were one.

        √(P Σ_t (σ_t C c)²) over T `largest_sum`, with c = `of_record`; 0 where P is not known.
        """
        if self.layer_sizes is None or self.clip_norm == math.inf:
            return 0.0
        squares = sum(sigma**2 for sigma in self.noise_multipliers)
        noise = math.sqrt(perceptron_size(self.layer_sizes) * squares)
        return noise * self.clip_norm * self.of_record / (self.n_steps * self.largest_sum)

    @property
    def memory(self) -> int | None:
        """Bytes of parameters, and of what layers keep of records that are worked on at once."""
        if self.layer_sizes is None:
            return None
        before, after = np.array(self.layer_sizes[:-1]), np.array(self.layer_sizes[1:])
        at_once = min(self.physical_batch_size or PHYSICAL_BATCH_SIZE, math.ceil(self.batch_size))
        n_parameters = perceptron_size(self.layer_sizes)
        return _FLOAT * (_VECTORS * n_parameters + at_once * int((before + 2 * after).sum()))

    def event_of(self, noise_multipliers: Sequence[float]) -> DpEvent:
        """Event of noisy sums, one per noise multiplier."""
        if not self.secure:
            return dp_sgd_event(noise_multipliers, self.sampling_rate)
        assert self.layer_sizes is not None
        dimensions = [perceptron_size(self.layer_sizes)] * len(noise_multipliers)
        scales = [2.0 ** lattice_bits(sigma) for sigma in noise_multipliers]
        return discrete_gaussian_event(noise_multipliers, scales, dimensions, self.sampling_rate)

    @property
    def algorithm(self) -> Update:
        """The update rule."""
        raise NotImplementedError

    @property
    def clip(self) -> Clip:
        """How gradients are clipped."""
        return Clip(self.clip_norm, self.clipping, self.physical_batch_size, self.weight_bound)

    def clipped_sum(self, model: Model) -> BoundedSum:
        """Return the private value of a step."""
        return model.clipped_sum(self.clip)

    def release_plan(self, model: Model) -> ReleasePlan:
        """What the engine executes: built from the very fields of the event."""
        return ReleasePlan(
            self.sampling,
            self.clipped_sum(model),
            self.noise_multipliers,
            self.neighboring_relation,
            secure=self.secure,
            persons=self.persons,
        )

    def start(self, model: Model) -> Posterior:
        """Return what a run of no steps would leave."""
        algorithm = self.algorithm
        return algorithm.posterior(algorithm.init(model.start), model.vector)

    def rehearse(self, model: Model) -> None:
        """Go through the motions on synthetic sums: what fails must fail before the charge."""
        algorithm, theta = self.algorithm, model.start
        state = algorithm.init(theta)
        for step in range(min(3, self.n_steps)):
            state = algorithm.update(state, torch.ones_like(theta), step)
        encoded(algorithm.saved(state), [])

    def run(
        self,
        records: tuple[np.ndarray, ...],
        streams: Streams,
        progress: Progress = iter,
        *,
        model: Model,
        watch: Watch | None = None,
        kept: Any = None,
    ) -> Trained:
        """Train a model on private rows (n, ...) and their targets (n, ...).

        ``starts`` says where those of a person begin, if persons are the records. Streams
        "sampling", "noise" and "dropout" are used; ``progress`` wraps the iteration over states.
        ``watch`` sees the number of steps and what the run would leave now, some 20 times and at
        the end, and must not look at private rows. ``kept`` is what an earlier run left to go on
        from.
        """
        algorithm, every = self.algorithm, max(1, self.n_steps // _LOOKS)
        state = algorithm.init(model.start, kept)
        plan = self.release_plan(model)
        rows = rows_of(records, partial(_wrapped, model))
        late = LateSums(self, plan)
        if streams.saved is not None:
            saved, of_late = streams.saved
            state = algorithm.restored(saved, model.start)
            late.restore(of_late, model.start)

        def query(state: Any) -> Any:
            if streams.by_step:  # a step that is made again has the same masks
                _draw_masks(streams.of_step(state.n_steps))
            theta = algorithm.query(state)
            return theta.numpy() if isinstance(model, LinearModel) else theta

        def update(state: Any, noisy: Any, step: int) -> Any:
            # Sums of integers are arrays; noise is in double precision.
            noisy = torch.as_tensor(noisy).to(state.theta.dtype)
            late.note(noisy, step)
            return algorithm.update(state, noisy, step)

        steps = run(plan, rows, state, query, update, streams)
        with _masks(streams):
            for state in progress(steps):
                if watch and (state.n_steps % every == 0 or state.n_steps == self.n_steps):
                    watch(state.n_steps, algorithm.posterior(state, model.vector))
                streams.keep(state.n_steps, lambda s=state: (algorithm.saved(s), late.saved()))
        posterior = algorithm.posterior(state, model.vector)
        return Trained(posterior, state.n_steps, late.push, algorithm.keep(state))


class LateSums:
    """Mean of the released sums of the later half of a run: how far it is from where it goes."""

    def __init__(self, run: NetworkRun, plan: ReleasePlan) -> None:
        self._run, self._plan = run, plan
        self._total: Tensor | None = None
        self._n, self._variance = 0, 0.0

    def note(self, noisy: Tensor, step: int) -> None:
        """Take in a sum of the later half."""
        if 2 * step >= self._run.n_steps >= _LOOKS:
            self._total = noisy.clone() if self._total is None else self._total.add_(noisy)
            self._variance += self._plan.noise_scale(step) ** 2
            self._n += 1

    def saved(self) -> Any:
        """Return what there is for a checkpoint: functions of released values."""
        return self._total, self._n, self._variance

    def restore(self, saved: Any, like: Tensor) -> None:
        """Go on from what a checkpoint holds."""
        total, self._n, self._variance = saved
        self._total = None if total is None else torch.from_numpy(total).to(like.device)

    @property
    def push(self) -> float:
        """Norm of the mean over the largest possible, less its noise; 0 where that hides it."""
        if self._total is None or math.isinf(self._run.clip_norm):
            return 0.0
        P, variance = self._total.numel(), self._variance
        of_noise = (P + _LOUD * math.sqrt(2.0 * P)) * variance
        square = float(self._total.double().square().sum())
        if square <= of_noise:
            return 0.0
        return math.sqrt(square - P * variance) / (self._n * self._run.largest_sum)


def _wrapped(model: Model, records: tuple[np.ndarray, ...]) -> Rows:
    beside = (getattr(records, name, None) for name in ("starts", "weights"))
    return model.records(PrivateRows(*records[:2], *beside))


def _draw_masks(streams: Streams) -> None:
    torch.manual_seed(int(streams("dropout").generator.integers(2**63)))


@contextmanager
def _masks(streams: Streams) -> Iterator[None]:
    """Draw what a network draws under a key of the fit's own; torch's generator is put back.

    Masks of dropout, and noise on gradients before they are clipped: the promise rests on neither.
    """
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        _draw_masks(streams)
        yield
