"""The discrete Gaussian on integer sums, and how far it is from what a Gaussian mechanism releases.

A query with values in ℤᵈ, of which one record moves the value by at most Δ in Euclidean norm, is
released with independent noise of probability ∝ exp(−k²/2s²) on the integers, s ≥ σΔ. Two facts:

1. *Rényi.* Between integer shifts its divergences are at most those of the continuous Gaussian,
   αΔ²/2s² (Canonne, Kamath & Steinke, NeurIPS 2020, Proposition 5; coordinates add). So the Rényi
   accountant may read it as a Gaussian mechanism.
2. *Distance.* The Gaussian mechanism, rounded to integers, is post-processing of the Gaussian
   mechanism; on an integer query it is the query plus a rounded normal. In total variation that is
   within τ = 1/(8s²) of the discrete Gaussian, per coordinate: with f the density of N(0, s²),

       p_k − f(k) = ∫ ½(½ − |t|)² f''(k + t) dt  over |t| ≤ ½,      p_k the rounded law,

   (the midpoint rule) so Σ|p_k − f(k)| ≤ ⅛∫|f''| = ½ max|f'| = φ(1)/2s² < .121/s². That bounds
   |Σ f(k) − 1| too, by which f(k) is normalised, and half the sum of both is τ.

   Of d coordinates and T releases, whatever the later ones ask, the laws are within η = dTτ. If the
   Gaussians are (ε, δ)-DP then P(S) ≤ P'(S) + η ≤ e^ε Q'(S) + δ + η ≤ e^ε (Q(S) + η) + δ + η: the
   discrete ones are (ε, δ + (1 + e^ε)η)-DP, with any accountant.

In Poisson batches fact 2 holds as it stands: given who takes part in which release, the laws are
within η, and so are their mixtures. Fact 1 does not: a divergence of mixtures of discrete Gaussians
is not known to be at most that of mixtures of Gaussians at every order, so that of sampled ones the
Rényi accountant pays the distance too.

>>> from skdp.privacy import epsilon_of_event
>>> from skdp.privacy.events import DiscreteGaussianDpEvent
>>> round(epsilon_of_event(DiscreteGaussianDpEvent(1.0, 2**29, 100), delta=1e-5), 6)
4.377178
>>> round(epsilon_of_event(DiscreteGaussianDpEvent(1.0, 1, 1), delta=1e-5), 3)  # Rényi alone
4.729
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import attrs
from dp_accounting.dp_event import (
    ComposedDpEvent,
    DpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)

from skdp.fitting.validate import positive
from skdp.privacy.terms import GaussianTerm, Term


@attrs.frozen
class DiscreteGaussianDpEvent(DpEvent):
    """A sum of integer vectors with discrete Gaussian noise.

    One record's vector has norm at most Δ = ``lattice_scale / noise_multiplier``; the noise has the
    parameter ``lattice_scale``, in each of ``dimension`` coordinates.
    """

    noise_multiplier: float
    lattice_scale: float
    dimension: int


@dataclass(frozen=True)
class DiscreteGaussianTerm(Term):
    """``count`` times such a release, which accountants read as Gaussian mechanisms nearby."""

    noise_multiplier: float
    lattice_scale: float
    dimension: int
    count: int
    sampling_rate: float = 1.0

    @property
    def distance(self) -> float:
        """Bound on the total variation to as many rounded Gaussian mechanisms."""
        return self.count * self.dimension * rounding_distance(self.lattice_scale)

    def as_gaussian(self) -> tuple[Term, float]:
        """Return the Gaussian mechanisms, and how far they are."""
        return GaussianTerm(self.noise_multiplier, self.sampling_rate, self.count), self.distance


def rounding_distance(scale: float) -> float:
    """Bound τ = 1/(8s²) on the total variation between discrete and rounded Gaussian noise."""
    return 0.125 / positive(scale=scale) / scale


def discrete_gaussian_event(
    noise_multipliers: Sequence[float],
    lattice_scales: Sequence[float],
    dimensions: Sequence[int],
    sampling_rate: float = 1.0,
) -> DpEvent:
    """Event of several releases in turn, fixed in advance, on Poisson samples of the records."""
    steps: Iterable[DpEvent] = map(
        DiscreteGaussianDpEvent, noise_multipliers, lattice_scales, dimensions
    )
    if sampling_rate < 1.0:
        steps = (PoissonSampledDpEvent(sampling_rate, step) for step in steps)
    return ComposedDpEvent([SelfComposedDpEvent(e, len(list(run))) for e, run in groupby(steps)])
