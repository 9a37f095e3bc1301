"""Training a network by noisy sums: what every such algorithm's run has in common.

An algorithm is a value: a frozen configuration of public facts, from which the event and the plan
of a run are built, and an update rule, a pure function of released sums. A run rehearses the rule
on made-up sums before anything is charged, then lets the engine drive it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from dp_accounting.dp_event import DpEvent
from torch import Tensor

from skdp._random import SecureStream, Streams
from skdp.algorithms.network_models import Model
from skdp.engine.loop import Plan, run
from skdp.engine.sampling import Sampling


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


class State(Protocol):
    """State of a run: all of it is a function of released values."""

    @property
    def n_steps(self) -> int:
        """Number of noisy sums so far."""
        ...


class Update(Protocol):
    """An update rule: pure functions of a state and a released sum."""

    def init(self, theta: Tensor) -> Any:
        """Start at given parameters."""
        ...

    def query(self, state: Any) -> Tensor:
        """Return the parameters at which the state asks for a gradient."""
        ...

    def update(self, state: Any, noisy: Tensor, step: int) -> Any:
        """Return the next state."""
        ...

    def posterior(self, state: Any, vector: Callable[[Tensor], np.ndarray]) -> Posterior:
        """Return what the run leaves, its parameters put into order by ``vector``."""
        ...


class Config(Protocol):
    """Public facts of a run."""

    @property
    def n_steps(self) -> int:
        """Number of noisy sums."""
        ...

    @property
    def sampling(self) -> Sampling:
        """Which records take part in each step."""
        ...

    def event(self) -> DpEvent:
        """What the run releases."""
        ...

    def plan(self, model: Model) -> Plan:
        """What the engine executes: built from the very fields of `event`."""
        ...

    def algorithm(self) -> Update:
        """The update rule."""
        ...


class Trained(NamedTuple):
    """What leaves a run: functions of released values."""

    posterior: Posterior
    n_steps: int
    interrupted: bool


def rehearse(config: Config, model: Model) -> None:
    """Go through the motions of a run on made-up sums: what fails must fail before the charge."""
    theta = model.start
    config.plan(model).step(tuple(theta.shape), 0)
    algorithm = config.algorithm()
    state = algorithm.init(theta)
    for step in range(min(3, config.n_steps)):
        state = algorithm.update(state, torch.ones_like(theta), step)


def train(
    config: Config,
    model: Model,
    X: np.ndarray,
    targets: np.ndarray,
    streams: Streams,
    progress: Callable[[Iterable[State]], Iterable[State]] = iter,
    watch: Callable[[int, Posterior], None] | None = None,
    watch_every: int = 1,
) -> Trained:
    """Run an algorithm on private rows.

    Parameters
    ----------
    config : Config
        Public facts, whose event has been charged.
    model : Model
        The network.
    X, targets : ndarray of shape (n, ...)
        The private rows.
    streams : Streams
        Random streams of this fit.
    progress : callable, default=iter
        Wraps the iteration over steps, e.g. in a progress bar.
    watch : callable or None
        Sees the number of steps and what the run would leave now; must not look at private rows.
    watch_every : int, default=1
        Steps between two looks; the last step is always seen.

    Returns
    -------
    Trained
        Of the steps so far, if the run was interrupted from the keyboard.
    """
    algorithm = config.algorithm()
    state = algorithm.init(model.start)
    steps = run(
        config.plan(model),
        model.records(X, targets),
        state,
        algorithm.query,
        algorithm.update,
        streams,
    )
    interrupted = False
    with _masks(streams("dropout")):
        try:
            for state in progress(steps):
                if watch and (state.n_steps % watch_every == 0 or state.n_steps == config.n_steps):
                    watch(state.n_steps, algorithm.posterior(state, model.vector))
        except KeyboardInterrupt:
            interrupted = True
    return Trained(algorithm.posterior(state, model.vector), state.n_steps, interrupted)


@contextmanager
def _masks(stream: SecureStream) -> Iterator[None]:
    """Draw what a network draws under a key of the fit's own; torch's generator is put back.

    Masks of dropout, and noise on a record's gradient before it is clipped: the promise rests on
    neither.
    """
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(int(stream.generator.integers(2**63)))
        yield
