"""The loop that every iterative algorithm runs: ten lines to hold against Algorithm 1.

Abadi et al. (2016), Algorithm 1, with sums in place of means: dividing by a public constant, and
everything else done with the noisy sum, is the update rule's business and costs no privacy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

from torch import Tensor

from skdp._random import Streams
from skdp._trace import MechanismCall
from skdp.engine.clipping import LinearClippedSum
from skdp.engine.noise import gaussian
from skdp.engine.rows import LinearBatch
from skdp.engine.sampling import Sampling

State = TypeVar("State")


class Rows(Protocol):
    """Rows that a clipped sum can read, a batch at a time."""

    def __len__(self) -> int: ...
    def take(self, selection) -> LinearBatch:
        """Copy the selected rows."""
        ...


@dataclass(frozen=True)
class Plan:
    """What a run will do: public facts only, the same object that the event was built from.

    Parameters
    ----------
    sampling : Sampling
        Which records take part in each step.
    clipped_sum : LinearClippedSum
        The private value of a step.
    noise_multiplier : float
        σ: standard deviation of the noise over the bound on one record; 0 for no noise.
    neighboring_relation : str
        Relation under which the trace states sensitivities.
    """

    sampling: Sampling
    clipped_sum: LinearClippedSum
    noise_multiplier: float
    neighboring_relation: str

    def call(self, shape: tuple[int, ...], step: int) -> MechanismCall:
        """Declare one step."""
        if self.noise_multiplier > 0 and self.noise_multiplier * self.clipped_sum.norm_bound == 0:
            raise ValueError("The noise of this plan underflows to zero; use a larger clip_norm.")
        return MechanismCall(
            kind="gaussian",
            sensitivity=self.clipped_sum.sensitivity(self.neighboring_relation),
            scale=self.noise_multiplier * self.clipped_sum.norm_bound,
            rate=self.sampling.rate,
            shape=shape,
            step=step,
        )


def run(
    plan: Plan,
    data: Rows,
    state: State,
    query: Callable[[State], Tensor],
    update: Callable[[State, Tensor, int], State],
    streams: Streams,
) -> Iterator[State]:
    """Yield the state after each noisy step.

    Parameters
    ----------
    plan : Plan
        Public facts of the run.
    data : Rows
        The private rows.
    state : State
        Data-independent start.
    query : callable
        The parameters θ_t at which the state asks for a gradient.
    update : callable
        Pure (state, noisy sum, step) -> state; sees released values only.
    streams : Streams
        Random streams of the fit.
    """
    coins, noise = streams("sampling"), streams("noise")
    for step, selection in enumerate(plan.sampling.batches(len(data), coins)):
        theta = query(state)
        noisy = gaussian(
            lambda theta=theta, selection=selection: plan.clipped_sum(theta, data.take(selection)),
            plan.call(tuple(theta.shape), step),
            noise,
        )
        state = update(state, noisy, step)
        yield state
