"""Differentially private temperature scaling: one number that lets a classifier say what it knows.

Probabilities p become softmax(log p/T). With u = −log T, from T = 1 and on all rows at once, noisy
steps follow either of two sums over records, which `dp_sgd` with one parameter takes:

    accuracy    1[most probable class is right] − max_k p_k(u)
    log_loss    −d/du of the log-loss, clipped to C

The first is bounded by 1 as it is: it makes mean confidence equal to accuracy (Luo et al. 2020),
and clipping takes nothing from it. The second is temperature scaling proper (Zhang et al. 2022, on
held-out rows); rows that are badly wrong pull at it harder than C allows, so it comes out too sure.

Where persons are the records, what a person's rows add up to is clipped to c times these bounds:
both sums have mean zero where they end.

Privacy: a composition of Gaussian mechanisms, one per step (PRIVACY §2), on top of what the
classifier cost.

References
----------
H. Zhang, X. Li, P. Sen, S. Roukos, T. Hashimoto, *A Closer Look at the Calibration of
Differentially Private Learners*, 2022 (arXiv:2210.08248).
R. Luo et al., *Privacy Preserving Recalibration under Domain Shift*, 2020 (arXiv:2008.09643).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from dp_accounting.dp_event import DpEvent
from torch import Tensor, nn

from skdp.algorithms.dp_sgd import DPSGDConfig
from skdp.algorithms.parts.gaussian_runs import GaussianRun
from skdp.algorithms.parts.network_models import NetworkModel
from skdp.engine.sampling import FullBatch
from skdp.fitting.streams import Streams
from skdp.models.tasks import CrossEntropy

N_STEPS, N_STEPS_WITHOUT_NOISE = 30, 200
MOST = 20.0  # T stays between 1/20 and 20
_LEAST_LOG = -30.0  # of a probability: one that is exactly 0 must not make T infinite
_MOST_NOISE = 0.05  # of a step in u: where the noise is large, steps are short and T stays near 1


class Temperature(nn.Module):
    """Multiplies log-probabilities by e^u, and returns u as a last column."""

    def __init__(self) -> None:
        super().__init__()
        self.u = nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def forward(self, log_p: Tensor) -> Tensor:
        """Return logits and u, (n, n_classes + 1)."""
        return torch.cat([log_p * self.u.exp(), self.u.expand(len(log_p), 1)], dim=1)


def confidence_gap(outputs: Tensor, targets: Tensor) -> Tensor:
    """Loss of each record whose slope in u is its confidence minus 1 if it is right."""
    confidence, predicted = outputs[:, :-1].softmax(dim=1).max(dim=1)
    gap = confidence - (predicted == targets).to(confidence)
    return gap.detach() * outputs[:, -1]


def log_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Log-loss of each record."""
    return CrossEntropy()(outputs[:, :-1], targets)


class Target(NamedTuple):
    """What the temperature is fitted to."""

    loss: Callable[[Tensor, Tensor], Tensor]
    clip_norm: float
    longest_step: float


TARGETS = {"accuracy": Target(confidence_gap, 1.0, 4.0), "log_loss": Target(log_loss, 3.0, 1.0)}


@dataclass(frozen=True)
class TemperatureConfig(GaussianRun):
    """Public facts of a run on all rows; never ``secure``."""

    target: str
    n_rows: int
    n_steps: int

    @property
    def sampling(self) -> FullBatch:
        """Every record takes part in every step."""
        return FullBatch(self.n_steps)

    @property
    def descent(self) -> DPSGDConfig:
        """The same run as one of DP-SGD."""
        _, clip_norm, rate = TARGETS[self.target]
        if self.noise_multiplier > 0.0:
            noise = self.noise_multiplier * clip_norm * self.of_person
            rate = min(rate, _MOST_NOISE * self.n_rows / noise)
        return DPSGDConfig(
            n_rows=self.n_rows,
            n_steps=self.n_steps,
            sampling_rate=1.0,
            clip_norm=clip_norm if self.noise_multiplier > 0.0 else math.inf,
            noise_multiplier=self.noise_multiplier,
            learning_rate=rate,
            optimizer=torch.optim.SGD,
            averaging=0.5,
            neighboring_relation=self.neighboring_relation,
            persons=self.persons,
        )

    def event(self) -> DpEvent:
        """What the run releases."""
        return self.descent.event()

    def run(self, records: tuple[np.ndarray, ...], streams: Streams) -> float:
        """Return T, from private rows.

        They are logarithms of predicted probabilities (n, n_classes), `bounded`, and class numbers
        (n,), with ``starts`` of persons where these are the records.
        """
        model = NetworkModel(Temperature(), TARGETS[self.target].loss, "vmap")
        trained = self.descent.run(records, streams, model=model)
        u = float(np.clip(trained.posterior.point[0], -math.log(MOST), math.log(MOST)))
        return math.exp(-u)


def scaled(log_p: np.ndarray, temperature: float) -> np.ndarray:
    """Return log softmax(log p/T), (n, n_classes)."""
    logits = bounded(log_p) / temperature
    return logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)


def bounded(log_p: np.ndarray) -> np.ndarray:
    """Return finite logarithms; each row by itself."""
    return np.clip(np.nan_to_num(log_p, nan=_LEAST_LOG), _LEAST_LOG, 0.0)
