"""`DPQuantileScaler`: features without known bounds, scaled by two private quantiles each.

>>> import numpy as np
>>> from skdp.preprocessing import DPQuantileScaler
>>> rng = np.random.default_rng(0)
>>> incomes = rng.lognormal(10.0, 1.0, (5000, 1))
>>> scaler = DPQuantileScaler(epsilon=0.5).fit(incomes)
>>> below = (incomes < scaler.lower_).mean(), (incomes > scaler.upper_).mean()
>>> bool(0.02 < below[0] < 0.08), bool(0.02 < below[1] < 0.08)
(True, True)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from skdp import _fitting
from skdp._fitting import CallbackSupportMixin, with_callbacks
from skdp._input import BoundedRows, check_features
from skdp._random import SecureStream
from skdp._validate import expected, in_range, is_real
from skdp.mechanisms import QuantileMechanism
from skdp.mechanisms.quantile import GRID
from skdp.preprocessing._releases import (
    MOST_EPSILON,
    affordable,
    declared_range,
    float_tags,
    told,
)
from skdp.privacy import epsilon_of_event
from skdp.privacy.calibration import calibrate
from skdp.privacy.events import PosteriorSamplesDpEvent, SelfComposedDpEvent, dp_sgd_event


class DPQuantileScaler(OneToOneFeatureMixin, CallbackSupportMixin, TransformerMixin, BaseEstimator):
    """Map two private quantiles of each feature to -1 and 1, and clip what lies beyond.

    For features whose range nobody knows. The declared bounds may be absurdly wide: their width
    costs its logarithm. Missing values (NaN) count nowhere in `fit`, and become 0 in `transform`:
    the middle between the quantiles.

    **Privacy.** `fit` is (epsilon, delta)-differentially private under ``neighboring_relation``:
    all of its attributes together. The unit is a row. The number of rows is never read. The
    guarantee covers one fit; each further fit on the same rows is a further release. It is *not*
    one for a seeded fit. `transform` works on each row by itself with released numbers, so imputing
    missing values costs nothing; what it returns are rows, as private as those that went in.

    Parameters
    ----------
    lower, upper : float or array-like of shape (n_features,), default=-1e9 and 1e9
        Declared bounds of the features, public, finite, lower < upper. A number holds for every
        feature. Wide is cheap, but say 0 where values cannot be negative: of a feature with many
        zeros the lower quantile is then found far more easily.
    epsilon : float or None, default=0.5
        ε > 0 of all quantiles together. ``float("inf")`` takes ordinary percentiles, without
        privacy. None with ``quantile_epsilon``.
    delta : float, default=1e-5
        δ in [0, 1); should be well below 1/n. 0 is pure differential privacy, which gives each
        of the 2 n_features quantiles its share of ε and no more.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}, default="zero_out"
        Who is a neighbour.
    quantile_range : (float, float), default=(5, 95)
        Percentiles, 0 ≤ low < high ≤ 100. Quantiles further inside are found with fewer rows.
    unit : float, default=1e-6
        Magnitude > 0, public, below which values are told apart by their difference, and above
        which by their ratio.
    quantile_epsilon : float or None, default=None
        ε > 0 of one quantile, instead of ``epsilon`` (pass ``epsilon=None``); the report then
        accounts for what was spent.
    random_state : int, RandomState instance or None, default=None
        None keys the noise from the operating system. A seed makes the fit repeatable and its
        guarantee void: the report says ``valid=False``.

    Attributes
    ----------
    lower_, upper_ : ndarray of shape (n_features,)
        The private quantiles, which are mapped to -1 and 1.
    output_norm_ : float
        √n_features: no row of the output exceeds this norm.
    quantile_epsilon_ : float
        ε of one quantile; infinite without privacy.
    privacy_ : PrivacyReport
        The privacy statement of this fit.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Feature names, where X had any.

    See Also
    --------
    BoundedScaler : Scales by declared bounds, at no privacy cost.
    skdp.mechanisms.QuantileMechanism : One quantile.

    Notes
    -----
    *Release.* Each feature has two quantiles drawn by `QuantileMechanism`, on the axis
    t = asinh(x/unit), which is monotone: it takes quantiles to quantiles. On it ±1e9 lie at ±35.2,
    so that 2³⁰ grid points are 7e-8 apart: of x beyond ``unit`` in proportion, so values of 1e-3
    and of 1e8 are resolved alike. The mechanism's error grows with the logarithm of the axis over
    the stretch where the data lies, and on a linear axis this logarithm is 21 for values about 1;
    here it is about 4. A smaller unit lengthens the axis by the logarithm only.

    *Sensitivity.* A missing value is a null record of its feature. A row that comes, goes, is
    zeroed out or replaced, with whatever is missing in it, changes at most one value of each
    feature; where one data set has the value and the other has none, this is the add/remove case
    of `QuantileMechanism`, whose range 2 max(q, 1 - q) is at most the 2 of replace-one.

    *Account.* Each quantile is an exponential mechanism: between neighbours its log-density moves
    by a function whose range is at most ``quantile_epsilon_`` (shown there), which is what
    `PosteriorSamplesDpEvent` states. A range η is η-DP and η²/8-zCDP, for any mechanism that has
    it (Cesar & Rogers 2021; PRIVACY §4). Either bound composes over 2 n_features mechanisms however
    they differ, and the less of the two is taken.

    *Degenerate answers.* Of two quantiles in the wrong order the lesser is the lower; where they
    fall together, on a feature with one value or almost, they are moved apart by one point of the
    grid each: that value maps to 0 or close to it, all others to -1 or 1. Without a value, as with
    too few rows, the quantiles are of no use, and nobody is told.

    *How much data.* A quantile at rank q n of positive values is safe from the empty stretch below
    them if quantile_epsilon · q n is well above 10: with 10 features and the default ε = 0.5, which
    gives each quantile 0.058, if n is well above 3500.

    References
    ----------
    A. Smith, *Privacy-preserving Statistical Estimation with Optimal Convergence Rates*, STOC 2011.
    M. Cesar, R. Rogers, *Bounding, Concentrating, and Truncating: Unifying Privacy Loss Composition
    for Data Analytics*, ALT 2021.

    Examples
    --------
    >>> from skdp.preprocessing import DPQuantileScaler
    >>> X = [[float(x)] for x in range(101)]
    >>> scaler = DPQuantileScaler(epsilon=float("inf"), quantile_range=(10, 90)).fit(X)
    >>> scaler.lower_, scaler.upper_
    (array([10.]), array([90.]))
    >>> scaler.transform([[50.0], [1e6], [float("nan")]])
    array([[0.],
           [1.],
           [0.]])
    """

    n_features_in_: int

    def __init__(
        self,
        lower: Any = -1e9,
        upper: Any = 1e9,
        *,
        epsilon: float | None = 0.5,
        delta: float = 1e-5,
        neighboring_relation: str = "zero_out",
        quantile_range: tuple[float, float] = (5, 95),
        unit: float = 1e-6,
        quantile_epsilon: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.lower = lower
        self.upper = upper
        self.epsilon = epsilon
        self.delta = delta
        self.neighboring_relation = neighboring_relation
        self.quantile_range = quantile_range
        self.unit = unit
        self.quantile_epsilon = quantile_epsilon
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        return float_tags(super().__sklearn_tags__(), allow_nan=True)

    @with_callbacks
    def fit(self, X, y=None) -> DPQuantileScaler:
        """Release the quantiles, privately.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Numbers; NaN is missing.
        y : None
            Ignored.

        Returns
        -------
        DPQuantileScaler
            The fitted transformer.

        Raises
        ------
        ValueError
            If a parameter or the input is invalid; nothing has been spent then.
        BudgetExceededError
            If an open `PrivacyLedger` refuses the fit; no row has been used then.
        """
        _fitting.start_callbacks(self)
        with _fitting.all_or_nothing(self):
            _fitting.check_budget(self, "quantile_epsilon", pure=True)
            X = check_features(self, X, ensure_all_finite="allow-nan")
            plan = self._plan(X.shape[1])

            self.privacy_ = _fitting.spend(self, plan.event(), plan.sampling)
            stream = _fitting.streams(self, X)("noise")
            with told(self):
                quantiles = plan.release(X, stream)
            self.lower_, self.upper_ = plan.apart(*quantiles)
            self.quantile_epsilon_ = plan.epsilon
            self.output_norm_ = X.shape[1] ** 0.5
        return self

    def _plan(self, n_features: int) -> _Quantiles:
        """Check the parameters, and plan the releases from public facts alone."""
        pair = self.quantile_range
        is_pair = isinstance(pair, tuple | list | np.ndarray) and len(pair) == 2
        if not is_pair or not all(map(is_real, pair)) or not 0 <= pair[0] < pair[1] <= 100:
            kind = "two percentiles (low, high), 0 <= low < high <= 100"
            raise expected(kind, quantile_range=pair)
        lower, upper = declared_range(self, n_features)
        plan = _Quantiles(
            lower=lower,
            upper=upper,
            shares=(float(pair[0]) / 100, float(pair[1]) / 100),
            unit=in_range(1e-100, 1e100, unit=self.unit),
            epsilon=self._range(2 * n_features),
            neighboring_relation=self.neighboring_relation,
        )
        if not (plan.axis(lower) < plan.axis(upper)).all():
            raise expected("farther below upper than rounding can tell", lower=self.lower)
        return plan

    def _range(self, count: int) -> float:
        """Range of the log-density of one quantile: the given one, or what the budget affords."""
        if self.epsilon is None:
            return in_range(1e-9, MOST_EPSILON, quantile_epsilon=self.quantile_epsilon)
        epsilon = affordable(float(self.epsilon))
        return _affordable_range(epsilon, float(self.delta), count, self.neighboring_relation)

    def transform(self, X) -> BoundedRows:
        """Scale, impute and clip; each row by itself.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Numbers; NaN becomes 0.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Values in [-1, 1].
        """
        check_is_fitted(self)
        X = check_features(self, X, reset=False, ensure_all_finite="allow-nan")
        half = self.upper_ / 2 - self.lower_ / 2
        middle = self.upper_ / 2 + self.lower_ / 2
        with np.errstate(over="ignore"):  # infinity is clipped, and a warning would tell of it
            rows = (X - middle) / half
        rows = np.clip(np.where(np.isnan(rows), 0.0, rows), -1.0, 1.0)
        return BoundedRows(rows.astype(X.dtype, copy=False), self.output_norm_)


@dataclass(frozen=True)
class _Quantiles:
    """Plan of the releases: public facts alone."""

    lower: np.ndarray
    upper: np.ndarray
    shares: tuple[float, float]
    unit: float
    epsilon: float
    neighboring_relation: str

    @property
    def sampling(self) -> str:
        """How the report says it."""
        return f"full batch, {2 * len(self.lower)} quantiles"

    def event(self) -> Any:
        """Return what the releases cost."""
        if math.isinf(self.epsilon):
            return dp_sgd_event(0.0, sampling_rate=1.0, n_steps=1)
        return _event(self.epsilon, 2 * len(self.lower))

    def mechanisms(self) -> list[QuantileMechanism]:
        """Two for each feature, on the axis t; none without privacy."""
        if math.isinf(self.epsilon):
            return []
        ranges = zip(self.axis(self.lower), self.axis(self.upper), strict=True)
        return [
            QuantileMechanism(share, low, high, self.epsilon, self.neighboring_relation)
            for low, high in ranges
            for share in self.shares
        ]

    def release(self, X: np.ndarray, stream: SecureStream) -> np.ndarray:
        """Draw the quantiles, (2, n_features)."""
        clipped = np.clip(X.astype(np.float64), self.lower, self.upper)
        if math.isinf(self.epsilon):
            missing = np.isnan(clipped).all(axis=0)
            found = np.nanquantile(np.where(missing, 0.0, clipped), self.shares, axis=0)
            return np.where(missing, [self.lower, self.upper], found)
        t = self.axis(clipped)
        drawn = [
            m.release(t[:, k // 2], stream, charged=True) for k, m in enumerate(self.mechanisms())
        ]
        answers = self.unit * np.sinh(np.reshape(drawn, (-1, 2)).T)
        return np.clip(answers, self.lower, self.upper)

    def apart(self, one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Put two quantiles in order, and at least two points of the grid apart."""
        low, high = np.minimum(one, other), np.maximum(one, other)
        middle, half = low / 2 + high / 2, high / 2 - low / 2
        point = (self.axis(self.upper) - self.axis(self.lower)) / GRID
        # dx = unit cosh(t) dt; and far from 0, no less than doubles can tell apart.
        least = np.maximum(np.hypot(self.unit, middle) * point, 4 * np.spacing(np.abs(middle)))
        near = half < least
        return np.where(near, middle - least, low), np.where(near, middle + least, high)

    def axis(self, x: np.ndarray) -> np.ndarray:
        """Map values to the axis t."""
        return np.arcsinh(x / self.unit)


def _event(eta: float, count: int) -> Any:
    return SelfComposedDpEvent(PosteriorSamplesDpEvent(eta), count)


@lru_cache(maxsize=256)
def _affordable_range(epsilon: float, delta: float, count: int, relation: str) -> float:
    """Largest range η, to a relative 1e-3, at which so many mechanisms afford a budget."""
    if math.isinf(epsilon):
        return epsilon
    eta = epsilon / count
    if eta < 1e-9:
        raise expected(f"at least {count * 1e-9:g}", f"for {count} quantiles", epsilon=epsilon)
    if delta > 0.0:
        parameter = calibrate(
            lambda parameter: _event(1 / parameter, count),
            epsilon=epsilon,
            delta=delta,
            guess=1 / eta,
            neighboring_relation=relation,
        )
        eta = max(eta, 1 / parameter)
    # The promise. Rounding may miss it, by no more than these nudges.
    for nudge in (0.0, 1e-15, 1e-14, 1e-12, 1e-9, 1e-6):
        if epsilon_of_event(_event(eta * (1 - nudge), count), delta, relation) <= epsilon:
            return eta * (1 - nudge)
    raise expected(f"affordable at delta={delta:g}", "ask for a larger one", epsilon=epsilon)
