"""`audit_mechanism`: one run of noisy sums with a thousand canaries.

The mechanism is given in full: T noisy sums g̃_t = Σ_i s_{t,i} clip_C(v_i) + N(0, σ²C² I), where s
are Poisson coins of rate q. Canary i has all of its length, many times C, in coordinates that no
other record touches, and takes part if a fair coin says so. What the T sums show in its coordinates
is then, if the claim is true, *exactly*

    absent     z_t ~ N(0, σ²C²)                                     independently for t = 1, …, T
    present    z_t ~ (1 − q) N(0, σ²C²) + q N(C, σ²C²)

and independent of all other canaries, because the noise is isotropic and the coins are each
record's own. So the most telling score is known, the log-likelihood ratio

    ℓ_i = Σ_t log(1 − q + q exp((2 C z_t − C²)/(2σ²C²))),

and its two laws are known too. Thresholds are set from these laws and not from the run, where
errors are frequent enough to be counted. A release that leaks more than claimed (a sum that was not
clipped, noise that is too small, a rate that is too large) has fewer false alarms, or fewer misses.

**Why the verdict is valid.** Under the claim the counts at a threshold are binomial with *known*
rates. A departure is reported where a two-sided Clopper–Pearson interval for a rate does not meet
the interval for the known one (which is found from so many simulated canaries that it is
narrow); the error probability is divided by the number of rates looked at. No bound for arbitrary
mechanisms with dependent canaries (Steinke, Nasr & Jagielski 2023) is needed, or claimed:
what is refuted is that the release is the one that was declared.

A record's length is spread over several blocks of coordinates, as over the tensors of a network, so
that clipping each block on its own shows.

References
----------
T. Steinke, M. Nasr, M. Jagielski, *Privacy Auditing with One (1) Training Run*, NeurIPS 2023.
M. Nasr et al., *Tight Auditing of Differentially Private Machine Learning*, USENIX Security 2023.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from dp_accounting.dp_event import DpEvent

from skdp.audit.confidence import frame_of, limits, proved
from skdp.audit.report import AuditReport
from skdp.fitting.types import Opaque, Seed
from skdp.fitting.validate import expected, in_range, integer, positive
from skdp.privacy.accounting import epsilon_of_event
from skdp.privacy.events import GaussianTerm, dp_sgd_event, terms_of
from skdp.relations import ADD_OR_REMOVE_ONE, REPLACE_ONE, ZERO_OUT, Relation, check_relation

_Release = Callable[[np.ndarray], Any]

_SIMULATED = 100_000  # canaries of the claimed law, a side
_RATES = (0.4, 0.2, 0.08, 0.02)  # of errors, at which thresholds are set on either side


def audit_mechanism(
    mechanism: Any,
    *,
    noise_multiplier: float | None = None,
    sampling_rate: float = 1.0,
    n_steps: int = 1,
    clip_norm: float = 1.0,
    delta: float = 1e-5,
    neighboring_relation: str | None = None,
    n_canaries: int = 1000,
    n_blocks: int = 4,
    confidence: float = 0.95,
    random_state: Seed = None,
) -> AuditReport:
    """Compare one run of a mechanism with what it claims to be.

    Parameters
    ----------
    mechanism : callable or mechanism
        Function of values (n_records, dimension) that clips each record, and returns noisy sums
        (n_steps, dimension), or (dimension,) for one step; dimension is ``n_canaries * n_blocks``,
        blocks one after another. It draws the batches itself. Or a mechanism with `release` and
        `event`, as `skdp.mechanisms.GaussianMechanism`: its claim is then its own, and records are
        clipped to its ``record_norm`` here.
    noise_multiplier : float
        Claimed σ > 0: standard deviation of the noise over ``clip_norm``.
    sampling_rate : float, default=1.0
        Claimed q in (0, 1].
    n_steps : int, default=1
        Claimed T ≥ 1.
    clip_norm : float, default=1.0
        C > 0. Use another one than 1: noise that was not multiplied by it shows then only.
    delta : float, default=1e-5
        δ in (0, 1) at which the report states ε.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}, default=None
        An absent canary is a row of zeros, no row, or a row with the opposite sign. None is the
        mechanism's own, or ``"zero_out"``. Under one of persons, as ``"zero_out_group"``, a row of
        values is what all rows of a person add up to.
    n_canaries : int, default=1000
        Number of canaries ≥ 20.
    n_blocks : int, default=4
        Number of coordinates of a canary ≥ 1, each in another block.
    confidence : float, default=0.95
        A true claim is called a violation with probability 1 − ``confidence`` at most.
    random_state : int, Generator or None, default=None
        Seed of the coins and of the simulated laws; the mechanism's noise is its own.

    Returns
    -------
    AuditReport
        ``departure`` says what was found. The counts and ``epsilon_lower_bound`` are those at the
        threshold between the two medians; the bound takes canaries as independent.

    Examples
    --------
    >>> from skdp.audit import audit_mechanism
    >>> from skdp.mechanisms import GaussianMechanism
    >>> mechanism = GaussianMechanism(record_norm=1.0, scale=4.0)
    >>> audit_mechanism(mechanism, confidence=1 - 1e-6, random_state=0).verdict
    'no violation found'
    """
    start = time.perf_counter()
    n_canaries = integer(20, n_canaries=n_canaries)
    n_blocks = integer(1, n_blocks=n_blocks)
    in_range(0.0, 1.0, delta=delta)
    level = 1.0 - in_range(0.0, 1.0, confidence=confidence)
    rng = np.random.default_rng(random_state)
    own = getattr(mechanism, "neighboring_relation", ZERO_OUT)
    relation = check_relation(neighboring_relation or own)
    if hasattr(mechanism, "release"):
        release, noise_multiplier, clip_norm = _of_mechanism(mechanism)
        sampling_rate, n_steps = 1.0, 1
    elif callable(mechanism):
        release = mechanism
    else:
        raise expected("a function, or a mechanism with release and event", mechanism=mechanism)
    sigma = positive(noise_multiplier=noise_multiplier)
    claim = _Claim(sigma, sampling_rate, n_steps, clip_norm, relation)

    present = rng.random(n_canaries) < 0.5
    z = _seen(claim, release, present, n_blocks)
    scores = claim.ratio(z)
    laws = [np.sort(claim.ratio(claim.draws(side, rng))) for side in (True, False)]
    thresholds = _thresholds(*laws)
    # Half of the error probability is for the departure, and half for the bound.
    arms = scores[present], scores[~present]
    departure = _departure(arms, laws, thresholds, level / 2)

    frame = "gdp" if sampling_rate == 1.0 else "dp"
    found = proved(frame_of(frame, delta), *arms, float(thresholds[0]), 1 - level / 2)
    found |= {"epsilon": epsilon_of_event(claim.event(), delta, relation), "delta": delta}
    found |= {"frame": frame, "confidence": confidence, "neighboring_relation": relation}
    audited = getattr(mechanism, "__name__", type(mechanism).__name__)
    seconds = time.perf_counter() - start
    return AuditReport(**found, audited=audited, seconds=seconds, departure=departure)


@dataclass(frozen=True)
class _Claim:
    """What the release claims to be, and its exact law in one canary's direction."""

    noise_multiplier: float
    sampling_rate: float
    n_steps: int
    clip_norm: float
    relation: Relation

    def __post_init__(self) -> None:
        in_range(0.0, 1.0, sampling_rate=self.sampling_rate, closed="right")
        integer(1, n_steps=self.n_steps)
        positive(clip_norm=self.clip_norm)

    @property
    def scale(self) -> float:
        return self.noise_multiplier * self.clip_norm

    def event(self) -> DpEvent:
        return dp_sgd_event(self.noise_multiplier, self.sampling_rate, self.n_steps)

    def ratio(self, z: np.ndarray) -> np.ndarray:
        """Log-likelihood ratio of presence, of outputs (n, n_steps)."""
        ratio = self._mixture(z, self.clip_norm)
        if self.relation.of_rows == REPLACE_ONE:
            ratio = ratio - self._mixture(z, -self.clip_norm)
        return ratio.sum(axis=1)

    def _mixture(self, z: np.ndarray, shift: float) -> np.ndarray:
        """Log-density of (1 − q) N(0, s²) + q N(shift, s²) over that of N(0, s²)."""
        exponent = (2 * shift * z - shift**2) / (2 * self.scale**2)
        if self.sampling_rate == 1.0:
            return exponent
        q = self.sampling_rate
        most = np.minimum(exponent, 700.0)
        return np.log1p(q * np.expm1(most)) + (exponent - most)

    def draws(self, present: bool, rng: np.random.Generator) -> np.ndarray:
        """Simulate outputs of canaries, (n, n_steps)."""
        shape = (_SIMULATED, self.n_steps)
        z = self.scale * rng.standard_normal(shape)
        sign = 1.0 if present else -1.0 if self.relation.of_rows == REPLACE_ONE else 0.0
        return z + sign * self.clip_norm * (rng.random(shape) < self.sampling_rate)


def _of_mechanism(mechanism: Opaque) -> tuple[_Release, float, float]:
    """Return release, noise multiplier and norm of a mechanism that adds noise to a vector."""
    terms = terms_of(mechanism.event())
    if len(terms) != 1 or not isinstance(terms[0], GaussianTerm) or terms[0].sampling_rate < 1:
        raise expected("a Gaussian mechanism", "others need a function", mechanism=mechanism)
    if terms[0].count != 1:
        raise expected("one release", "more steps need a function", mechanism=mechanism)

    def release(values: np.ndarray) -> np.ndarray:
        norms = np.linalg.norm(values, axis=1, keepdims=True)
        clipped = values * (mechanism.record_norm / np.maximum(norms, mechanism.record_norm))
        # Canaries are synthetic records, so an open ledger has nothing to charge.
        return mechanism.release(clipped.sum(axis=0), charged=True)

    return release, terms[0].noise_multiplier, mechanism.record_norm


def _seen(claim: _Claim, release: _Release, present: np.ndarray, n_blocks: int) -> np.ndarray:
    """Run once; return what is seen in each canary's direction, (n_canaries, n_steps)."""
    m = len(present)
    one = np.zeros((m, n_blocks, m))
    one[np.arange(m), :, np.arange(m)] = 10 * claim.clip_norm / math.sqrt(n_blocks)
    values = one.reshape(m, n_blocks * m)
    values[~present] *= -1.0 if claim.relation.of_rows == REPLACE_ONE else 0.0
    if claim.relation.of_rows == ADD_OR_REMOVE_ONE:
        values = values[present]
    sums = np.asarray(release(values), dtype=float)
    if sums.size != claim.n_steps * n_blocks * m:
        raise ValueError(
            f"Expected a release of shape ({claim.n_steps}, {n_blocks * m}), got {sums.shape}."
        )
    if not np.isfinite(sums).all():
        raise ValueError("Expected a release of finite numbers.")
    blocks = sums.reshape(claim.n_steps, n_blocks, m)
    return blocks.sum(axis=1).T / math.sqrt(n_blocks)


def _thresholds(present: np.ndarray, absent: np.ndarray) -> np.ndarray:
    """Thresholds where one of the two claimed laws has mass, the one with fewest errors first."""
    alarms = np.quantile(absent, [1 - rate for rate in _RATES])
    rates = [*_RATES, *(1 - rate for rate in _RATES)]
    found = np.unique(np.concatenate([alarms, np.quantile(present, rates)]))
    found = found[found >= np.median(absent)]
    errors = _share(present, found) + 1 - _share(absent, found)
    first = int(np.argmin(errors))
    return np.concatenate([found[first : first + 1], np.delete(found, first)])


def _share(ordered: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    return np.searchsorted(ordered, thresholds, side="right") / len(ordered)


def _rates(errors: np.ndarray, law: np.ndarray, level: float) -> np.ndarray:
    """Interval of a rate of errors as observed and as claimed, and the two rates."""
    # Of the error probability a hundredth goes to the simulation of the claimed law.
    observed = limits(int(errors.sum()), len(errors), 0.99 * level)
    claimed = limits(int(law.sum()), len(law), 0.01 * level)
    return np.array([*observed, *claimed, errors.mean(), law.mean()])


def _gap(rates: np.ndarray) -> float:
    """How far the observed interval is below the claimed one; negative if above."""
    low, high, least, most = rates[:4]
    return least - high if high < least else min(0.0, most - low)


def _departure(arms: Any, laws: Any, thresholds: np.ndarray, level: float) -> str:
    """Say how the release leaks more than claimed; nothing if it is not shown to.

    That is by fewer errors of either kind. More noise than claimed has fewer misses at some
    thresholds too, but more false alarms: then the two errors must be fewer together, at a
    threshold below the median of the present canaries.
    """
    (present, absent), (present_law, absent_law) = arms, laws
    each = level / (2 * len(thresholds))
    between = thresholds <= np.median(present_law)
    alarms = [_rates(absent > t, absent_law > t, each) for t in thresholds]
    misses = [_rates(~(present > t), present_law <= t, each) for t in thresholds]
    found = [*(("false alarms", rate) for rate in alarms), *(("misses", rate) for rate in misses)]
    if any(_gap(rate) < 0 for rate in alarms):
        pairs = zip(alarms, misses, between, strict=True)
        found = [("false alarms and misses", a + m) for a, m, inside in pairs if inside]
    errors, worst = max(found, key=lambda rate: _gap(rate[1]), default=("", np.zeros(6)))
    if _gap(worst) <= 0:
        return ""
    return f"{worst[4]:.3g} {errors}, where the claim has {worst[5]:.3g}"
