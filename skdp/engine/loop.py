"""The loop that every iterative algorithm runs: ten lines to hold against Algorithm 1.

Abadi et al. (2016), Algorithm 1, with sums in place of means: dividing by a public constant, and
everything else done with the noisy sum, is the update rule's business and costs no privacy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from skdp.engine.grid import grid_sum, lattice_bits
from skdp.engine.noise import discrete_gaussian, gaussian
from skdp.engine.precision import strictly
from skdp.engine.release_hook import MechanismCall, grid_width
from skdp.engine.sampling import Sampling
from skdp.fitting.streams import SecureStream, Streams
from skdp.relations import ZERO_OUT, sensitivity_factor
from skdp.rows.bounded_sum import BoundedSum
from skdp.rows.chunks import ChunkSums
from skdp.rows.persons import PersonUnit
from skdp.rows.records import Rows

State = TypeVar("State")
Progress = Callable[[Iterable[State]], Iterable[State]]


@dataclass(frozen=True)
class ReleasePlan:
    """What a run will do: public facts only, the same object that the event was built from.

    The clipped sum is the private value of each step, or one per step. σ is the deviation of the
    noise over the bound on one record (see `noise_scale`), 0 for none, or one per step. The trace
    states sensitivities under the relation. ``secure`` rounds each record to a grid, sums integers
    and adds discrete Gaussian noise, so that nothing is left to the rounding of sums and noise;
    every sum must have its terms one by one. With ``persons`` each sum is taken ``of_persons``.
    """

    sampling: Sampling
    clipped_sum: BoundedSum | Sequence[BoundedSum]
    noise_multiplier: float | Sequence[float]
    neighboring_relation: str
    secure: bool = False
    persons: PersonUnit | None = None
    _steps: dict[tuple, tuple] = field(default_factory=dict, init=False, repr=False, compare=False)

    def step(self, shape: tuple[int, ...], step: int) -> tuple[Any, MechanismCall]:
        """Return the private value of a step, and its declaration at a shape of parameters."""
        if (shape, step) not in self._steps:
            clipped_sum, scale = self.clipped_sum_of(step), self.noise_scale(step)
            self._steps[shape, step] = (
                clipped_sum,
                MechanismCall(
                    kind="discrete_gaussian" if self.secure else "gaussian",
                    sensitivity=clipped_sum.sensitivity(self.neighboring_relation),
                    scale=scale,
                    rate=self.sampling.rate,
                    shape=clipped_sum.shape(shape),
                    step=step,
                    width=grid_width(scale),
                ),
            )
        return self._steps[shape, step]

    def clipped_sum_of(self, step: int) -> Any:
        """Return the private value of one step; in grid units with ``secure``."""
        clipped_sum: Any = self.clipped_sum
        if isinstance(clipped_sum, Sequence):
            clipped_sum = clipped_sum[step]
        if self.persons is not None:
            clipped_sum = clipped_sum.of_persons(self.persons)
        if self.secure:
            relation = self.neighboring_relation if self.sampling.rate == 1.0 else ZERO_OUT
            return grid_sum(clipped_sum, self._sigma(step), relation)
        return clipped_sum

    def _sigma(self, step: int) -> float:
        sigma = self.noise_multiplier
        return sigma[step] if isinstance(sigma, Sequence) else sigma

    def noise_scale(self, step: int) -> float:
        """Scale of the noise of one step: σ times what the accountant reads as one record's bound.

        On full batches neighbours differ by the sensitivity and by nothing else, so under
        replace_one half of it will do. In random batches a record is there or is not, by itself.
        """
        sigma, clipped_sum = self._sigma(step), self.clipped_sum_of(step)
        if self.secure:
            return clipped_sum.noise_scale
        if sigma == 0.0:  # then there may be no clipping, and 0·inf is no scale
            return 0.0
        if self.sampling.rate < 1.0:
            return sigma * clipped_sum.norm_bound
        relation = self.neighboring_relation
        return sigma * clipped_sum.sensitivity(relation) / sensitivity_factor(relation)

    def release(self, value: Callable[[], Any], call: MechanismCall, stream: SecureStream) -> Any:
        """Release the value of a step with the noise that its call declares."""
        if self.secure:
            return discrete_gaussian(value, call, lattice_bits(self._sigma(call.step)), stream)
        return gaussian(value, call, stream)


def run(
    plan: ReleasePlan,
    data: Rows,
    state: State,
    query: Callable[[State], Any],
    update: Callable[[State, Any, int], State],
    streams: Streams,
) -> Iterator[State]:
    """Yield the state after each noisy step over private rows, from a data-independent start.

    ``query`` gives the parameters θ_t at which a state asks for a sum; ``update``, a pure function
    of state, noisy sum and step, sees released values only. With streams of a run that is resumed,
    it begins where that was.
    """
    for step, (selection, noise) in enumerate(_draws(plan.sampling, data, streams), streams.first):
        theta = query(state)
        clipped_sum, call = plan.step(tuple(theta.shape), step)
        value = partial(data.sum, partial(strictly, clipped_sum, theta), selection)
        noisy = plan.release(streams.compared(step, value), call, noise)
        state = update(state, noisy, step)
        yield state


def _draws(scheme: Sampling, data: Rows, streams: Streams) -> Iterator[tuple[Any, SecureStream]]:
    """Selected rows of each step that is left, and the stream of its noise."""
    if not streams.by_step:
        coins, noise = streams("sampling"), streams("noise")
        for selection in _selections(scheme, data, coins):
            yield selection, noise
        return
    for step in range(streams.first, scheme.n_steps):
        of_step, one = streams.of_step(step), replace(scheme, n_steps=1)
        for selection in _selections(one, data, of_step("sampling")):
            yield selection, of_step("noise")


def _selections(scheme: Sampling, data: Rows, coins: SecureStream) -> Iterator[Any]:
    """Selected rows of each step: their numbers, or what makes them where the rows are."""
    return scheme.draws(coins) if isinstance(data, ChunkSums) else scheme.batches(len(data), coins)


def last(states: Iterable[State]) -> State:
    """Go through a run and return its last state."""
    return deque(states, maxlen=1).pop()
