"""From two samples of results to a report: score, set a threshold, count, bound.

The first share of the results chooses how to look: a direction, where a result is a vector, its
sign, and a threshold. The others are counted, once, each as an alarm or as none. So whatever the
choice was, and whatever the results are, the counts are binomial and the bound of
`audit.confidence` holds. An auditor who instead takes the best of many thresholds on the results
that are counted can "prove" ε > 3 of two samples from one and the same law.

Related: Annamalai & De Cristofaro, NeurIPS 2024, cited in full in `audit.estimator`.
"""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import numpy as np

from skdp.audit.confidence import Frame, frame_of, proved, upper_limit
from skdp.audit.report import AuditReport
from skdp.fitting.types import ArrayLike
from skdp.fitting.validate import in_range, positive
from skdp.relations import check_relation

_CANDIDATES = 199
_NEARLY = 0.8
_RIDGE = 1e-3  # of the pooled covariance, in units of its standard deviations
_OUTLYING = 10.0  # median deviations, beyond which a result is an outlier to the direction
_FAR = 1e100  # and beyond which nothing is told apart, so that no sum overflows


def audit_samples(
    with_canary: ArrayLike,
    without_canary: ArrayLike,
    *,
    epsilon: float,
    delta: float,
    frame: str = "dp",
    confidence: float = 0.95,
    selection: float = 0.1,
    audited: str = "samples",
    neighboring_relation: str = "zero_out",
) -> AuditReport:
    """Bound ε from below by results of a mechanism on two neighbouring data sets.

    For results that were made elsewhere: another library, another language, an experiment.

    Parameters
    ----------
    with_canary, without_canary : array-like of shape (n,) or (n, n_outputs)
        Independent results on each of the two data sets, in the order in which they were made or
        any other that does not depend on them. An infinite number, or one that is not a number,
        is a result like any other; an output that never is finite is not looked at.
    epsilon, delta : float
        Claimed ε ≥ 0, infinite for no claim, and δ in [0, 1).
    frame : {"dp", "gdp"}, default="dp"
        ``"dp"`` holds against any (ε, δ). ``"gdp"`` is many times tighter, and evidence against a
        mechanism that claims to be Gaussian (on the full batch) alone.
    confidence : float, default=0.95
        Probability in (0, 1) with which the bound holds, at least.
    selection : float, default=0.1
        Share in (0, 1) of the results, the first ones, that choose direction and threshold. They
        are not counted.
    audited : str, default="samples"
        Name in the report.
    neighboring_relation : str, default="zero_out"
        How the data sets differ, in one row or, as ``"zero_out_group"``, in all rows of a person;
        for the report.

    Returns
    -------
    AuditReport
        Counts, bound and verdict.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp.audit import audit_samples
    >>> rng = np.random.default_rng(1)
    >>> draws = rng.normal(size=(2, 5000)) + [[1.0], [0.0]]  # ε = 4.377 at δ = 1e-5
    >>> report = audit_samples(*draws, epsilon=4.3772, delta=1e-5, frame="gdp")
    >>> report
    AuditReport of samples: no violation found
      claimed     (epsilon=4.377, delta=1e-05)
      proved      epsilon >= 4 as a Gaussian mechanism, 95 % confidence
      tightness   0.91
      counts      1358 of 4500 false alarms, 1464 of 4500 misses
      neighbours  zero_out
    """
    start = time.perf_counter()
    epsilon = in_range(0.0, math.inf, epsilon=epsilon, closed="both")
    family = frame_of(frame, delta)
    in_range(0.0, 1.0, confidence=confidence)
    arms = _arm(with_canary, "with_canary"), _arm(without_canary, "without_canary")
    if arms[0].shape[1] != arms[1].shape[1]:
        raise ValueError("Expected results of one shape in with_canary and without_canary.")
    share = in_range(0.0, 1.0, selection=positive(selection=selection))
    shares = [min(len(arm) - 1, max(1, round(share * len(arm)))) for arm in arms]
    first = [arm[:n] for arm, n in zip(arms, shares, strict=True)]
    rule = choose(first[0], first[1], family, 1 - confidence)
    present, absent = (rule.scores(arm[n:]) for arm, n in zip(arms, shares, strict=True))
    found = proved(family, present, absent, rule.threshold, confidence)
    found |= {"epsilon": epsilon, "delta": float(delta), "confidence": float(confidence)}
    found |= {"neighboring_relation": check_relation(neighboring_relation), "frame": frame}
    return AuditReport(**found, audited=audited, seconds=time.perf_counter() - start)


def _arm(values: ArrayLike, name: str) -> np.ndarray:
    values = np.asarray(values, dtype=float)
    if values.ndim not in (1, 2) or len(values) < 2 or values.size == 0:
        raise ValueError(
            f"Expected {name} of shape (n,) or (n, n_outputs) with n >= 2, got {values.shape}."
        )
    return values.reshape(len(values), -1)


class _View(NamedTuple):
    """What is seen of a result: its numbers in robust units, and which of them are not finite.

    Everything it returns is finite, whatever the result.
    """

    columns: np.ndarray  # that were finite at least once
    centres: np.ndarray
    units: np.ndarray
    odd: np.ndarray  # of all indicators, those that varied

    @classmethod
    def of(cls, values: np.ndarray) -> _View:
        columns = np.flatnonzero(np.isfinite(values).any(axis=0))
        kinds = _kinds(values)
        odd = np.flatnonzero((kinds != kinds[0]).any(axis=0))
        if len(columns) + len(odd) == 0:
            raise ValueError(
                "Expected with_canary or without_canary to hold finite results; the first ones, "
                "which choose how to look, hold none, so that there is nothing to look at."
            )
        robust = [_centre_and_unit(values[:, column]) for column in columns]
        centres, units = np.array(robust).reshape(-1, 2).T
        return cls(columns, centres, units, odd)

    @property
    def plain(self) -> bool:
        """Whether the result is one number and nothing else."""
        return len(self.columns) == 1 and len(self.odd) == 0

    def __call__(self, values: np.ndarray) -> np.ndarray:
        seen = values[:, self.columns]
        with np.errstate(over="ignore"):  # halves, because a difference may be too large
            standard = (seen / 2 - self.centres / 2) / self.units
        standard = np.where(np.isfinite(seen), np.clip(standard, -_FAR, _FAR), 0.0)
        return np.hstack([standard, _kinds(values)[:, self.odd]])


def _kinds(values: np.ndarray) -> np.ndarray:
    """Indicators of what is not finite, (n, 3 n_outputs)."""
    return np.hstack([kind(values) for kind in (np.isnan, np.isposinf, np.isneginf)]).astype(float)


def _centre_and_unit(values: np.ndarray) -> tuple[float, float]:
    """Median, and median deviation of those that deviate, halved; no sum that could overflow."""
    centre = _middle(values[np.isfinite(values)])
    deviations = np.abs(values[np.isfinite(values)] / 2 - centre / 2)
    deviations = deviations[deviations > 0]
    return centre, _middle(deviations) if len(deviations) else 1.0


def _middle(values: np.ndarray) -> float:
    return float(np.sort(values)[(len(values) - 1) // 2])


class Rule(NamedTuple):
    """How to tell the two laws apart: alarm where a score is above the threshold."""

    view: _View
    weights: np.ndarray
    threshold: float

    def scores(self, values: np.ndarray) -> np.ndarray:
        """Score each result. What has no score is no alarm, with the canary or without."""
        if self.view.plain:
            scores = self.weights[0] * values[:, self.view.columns[0]]
        else:
            scores = self.view(values) @ self.weights
        return np.where(np.isnan(scores), -np.inf, scores)


def choose(present: np.ndarray, absent: np.ndarray, frame: Frame, level: float) -> Rule:
    """Choose direction and threshold by results that will not be counted."""
    view = _View.of(np.vstack([present, absent]))
    if view.plain:
        directions = [np.ones(1), -np.ones(1)]
    else:
        directions = [_direction(view(present), view(absent))]
    rules = [Rule(view, weights, 0.0) for weights in directions]
    found = [_threshold(r.scores(present), r.scores(absent), frame, level) for r in rules]
    best = int(np.argmax([strength for strength, _ in found]))
    return rules[best]._replace(threshold=found[best][1])


def _direction(present: np.ndarray, absent: np.ndarray) -> np.ndarray:
    """Fisher's discriminant of what is seen, with a ridge for results that depend on each other.

    A few results far off must not hide all others, so they count as less far.
    """
    present, absent = (np.clip(arm, -_OUTLYING, _OUTLYING) for arm in (present, absent))
    means = present.mean(axis=0), absent.mean(axis=0)
    pooled = np.vstack([present - means[0], absent - means[1]])
    # A result that does not vary within an arm tells all, if it differs between them.
    tiny = 1e-9 * np.abs(np.vstack(means)).max(axis=0) + 1e-12
    scale = np.maximum(pooled.std(axis=0), tiny)
    correlations = np.atleast_2d(np.cov((pooled / scale).T))
    gap = (means[0] - means[1]) / scale
    weights = np.linalg.solve(correlations + _RIDGE * np.eye(len(gap)), gap) / scale
    return weights / (np.abs(weights).max() or 1.0)


def _threshold(
    present: np.ndarray, absent: np.ndarray, frame: Frame, level: float
) -> tuple[float, float]:
    """Give the best bound that a threshold has on these results, and the threshold."""
    values = np.unique(np.concatenate([present, absent]))
    values = values[np.isfinite(values)]
    middles = values[1:] / 2 + values[:-1] / 2 if len(values) > 1 else values
    if len(middles) > _CANDIDATES:
        middles = middles[np.linspace(0, len(middles) - 1, _CANDIDATES).round().astype(int)]
    if len(middles) == 0:
        middles = np.zeros(1)
    misses = np.searchsorted(np.sort(present), middles, side="right")
    alarms = len(absent) - np.searchsorted(np.sort(absent), middles, side="right")
    alpha = upper_limit(alarms, len(absent), level / 2)
    beta = upper_limit(misses, len(present), level / 2)
    strengths = frame.strength(alpha, beta)
    # The very best threshold is mostly luck. Of all that do nearly as well, the middle one; or,
    # where equal rates of both errors are best for normal results, the one with the most equal.
    best = float(strengths.max())
    good = np.flatnonzero(strengths >= (_NEARLY * best if best > 0 else best))
    chosen = good[len(good) // 2]
    if frame.balanced:
        chosen = good[np.argmin(np.abs(alpha[good] - beta[good]))]
    return best, float(middles[chosen])
