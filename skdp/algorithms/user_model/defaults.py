"""Defaults, all functions of public facts, for parameters of the order of 1."""

from __future__ import annotations

import math

STEPS, STEPS_WITHOUT_NOISE = 150, 1000
CURVATURE_SHARE = 0.08  # of the releases
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
