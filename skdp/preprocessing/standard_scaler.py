"""`DPStandardScaler`: means and standard deviations by one private release.

>>> import numpy as np
>>> from skdp.preprocessing import DPStandardScaler
>>> rng = np.random.default_rng(0)
>>> ages = rng.normal(40.0, 10.0, (20_000, 1))
>>> scaler = DPStandardScaler(lower=0, upper=120, epsilon=0.5).fit(ages)
>>> bool(abs(scaler.mean_[0] - 40) < 1), bool(9 < scaler.scale_[0] < 11)
(True, True)
>>> round(scaler.privacy_.epsilon, 6)
0.5
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from skdp import _fitting
from skdp._fitting import CallbackSupportMixin, with_callbacks
from skdp._input import BoundedRows, check_features
from skdp.preprocessing._releases import (
    NoisySum,
    clipped_to_norm,
    declared_range,
    float_tags,
    norm_or_auto,
    summed,
    told,
)

_APART = 2.0 / math.sqrt(1.5)  # of two rows, over the bound on one; see the Notes
_COUNT = 0.5  # weight of a value's presence in a row's share
_LEAST_COUNT = 4.0  # in standard deviations of its noise
_LEAST_VARIANCE = 1e-12  # of values in [-1, 1]: what rounding leaves of a constant


class DPStandardScaler(OneToOneFeatureMixin, CallbackSupportMixin, TransformerMixin, BaseEstimator):
    """Standardise features by private means and variances, within declared bounds.

    Values are clipped to the declared bounds, shifted by the private mean and divided by the
    private standard deviation; then each row is clipped to a declared norm. Missing values (NaN)
    count nowhere in `fit`, and become 0 in `transform`: the private mean.

    **Privacy.** `fit` is (epsilon, delta)-differentially private under ``neighboring_relation``:
    all of its attributes together. The unit is a row. The number of rows is never read. The
    guarantee covers one fit; each further fit on the same rows is a further release. It is *not*
    one for a seeded fit, and treats floating-point Gaussian noise as exact. `transform` works on
    each row by itself with released numbers, so imputing missing values costs nothing; what it
    returns are rows, as private as those that went in.

    Parameters
    ----------
    lower, upper : float or array-like of shape (n_features,), default=-1.0 and 1.0
        Declared bounds of the features, public, finite, lower < upper. A number holds for every
        feature. The noise is in proportion to their distance.
    epsilon : float or None, default=0.1
        ε > 0. ``float("inf")`` is the ordinary scaler, without privacy. None with
        ``noise_multiplier``.
    delta : float, default=1e-5
        δ in (0, 1); should be well below 1/n.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}, default="zero_out"
        Who is a neighbour.
    output_norm : float or "auto", default="auto"
        Euclidean norm > 0 to which transformed rows are clipped. ``"auto"`` is √n_features, about
        the norm of an ordinary row.
    noise_multiplier : float or None, default=None
        Standard deviation > 0 of the noise over the bound on one row's share (under replace_one,
        over half of what replacing a row moves), instead of ``epsilon`` (pass ``epsilon=None``);
        the report then accounts for what was spent.
    random_state : int, RandomState instance or None, default=None
        None keys the noise from the operating system. A seed makes the fit repeatable and its
        guarantee void: the report says ``valid=False``.

    Attributes
    ----------
    mean_, var_, scale_ : ndarray of shape (n_features,)
        Private means, variances and standard deviations of the values within the bounds. Where the
        private count of values is below 4 standard deviations of its noise, they are the middle of
        the bounds and half their distance (and its square).
    lower_, upper_ : ndarray of shape (n_features,)
        The bounds, one a feature.
    output_norm_ : float
        No row of the output exceeds this norm.
    noise_multiplier_ : float
        Standard deviation of the noise over the bound on one row's share; under replace_one, over
        half of what replacing a row moves.
    privacy_ : PrivacyReport
        The privacy statement of this fit.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Feature names, where X had any.

    See Also
    --------
    BoundedScaler : Scales by the declared bounds, at no privacy cost.
    DPQuantileScaler : For features without known bounds.

    Notes
    -----
    *Release.* Let z in [-1, 1] be a value clipped and scaled by its bounds, m = 1 where it is not
    missing and 0 (with z = 0) where it is. A row's share of the sum is, for each feature,

        v = (m z, m (z² - ½), m/2),     ‖v‖² = m (z² + z⁴ - z² + ¼ + ¼) = m (z⁴ + ½) ≤ 3/2,

    so a row of d features has a share of norm at most C = √(3d/2), whatever it holds; the bound is
    attained at |z| = 1. *Sensitivity.* A null record has a share of 0, as has a row that is all
    missing, so zeroing a record out, adding it or removing it moves the sum by at most C. Replacing
    it moves the sum by at most 2√d < 2C: values z, w move a feature's share by

        (z - w)² + (z² - w²)² = (z - w)² (1 + (z + w)²) ≤ 4,

    because |z - w| + |z + w| ≤ 2, and a value and a missing one by ‖v‖² ≤ 3/2. The rounding of the
    sum is covered too (PRIVACY §8). Noise of one standard deviation s on all 3d numbers, s =
    noise_multiplier · C, or under replace_one noise_multiplier · √d (about), makes the release
    Gaussian; all else follows from it.

    *Estimates.* With S = Σ m z, Q = Σ m (z² - ½), N = Σ m as released, the mean is S/N and the
    variance Q/N + ½ - (S/N)². To first order the noise gives this variance a standard error of

        e = (s/N) √(1 + 4 mean² + 4 (2 mean² - q + ½)²),     q = Q/N + ½;

    it is cut to lie between e and 1, all of these released or public. A constant feature so gets a
    scale of √e and a mean that is off by about s/N, less than that scale: its noise is not blown
    up.

    *How much data.* On [-1, 1], the mean is off by about noise_multiplier · √(3d/2)/n: with 10
    features and the default ε = 0.1 by 0.12 at n = 1000, and 0.012 at n = 10 000.

    References
    ----------
    B. Balle, Y.-X. Wang, *Improving the Gaussian Mechanism for Differential Privacy*, ICML 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp.preprocessing import DPStandardScaler
    >>> X = np.array([[1.0, 10.0], [3.0, np.nan], [5.0, 30.0]])
    >>> scaler = DPStandardScaler(lower=0, upper=[10, 50], epsilon=float("inf")).fit(X)
    >>> scaler.mean_
    array([ 3., 20.])
    >>> scaler.privacy_.valid
    False
    """

    n_features_in_: int

    def __init__(
        self,
        lower: Any = -1.0,
        upper: Any = 1.0,
        *,
        epsilon: float | None = 0.1,
        delta: float = 1e-5,
        neighboring_relation: str = "zero_out",
        output_norm: float | str = "auto",
        noise_multiplier: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.lower = lower
        self.upper = upper
        self.epsilon = epsilon
        self.delta = delta
        self.neighboring_relation = neighboring_relation
        self.output_norm = output_norm
        self.noise_multiplier = noise_multiplier
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        return float_tags(super().__sklearn_tags__(), allow_nan=True)

    @with_callbacks
    def fit(self, X, y=None) -> DPStandardScaler:
        """Release the moments, privately.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Numbers; NaN is missing.
        y : None
            Ignored.

        Returns
        -------
        DPStandardScaler
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
            _fitting.check_budget(self)
            X = check_features(self, X, ensure_all_finite="allow-nan")
            _fitting.check_n_rows(X)
            n_features = X.shape[1]
            self.lower_, self.upper_ = declared_range(self, n_features)
            self.output_norm_ = norm_or_auto(n_features**0.5, output_norm=self.output_norm)
            plan = NoisySum.planned(self, _record_norm(n_features), apart=_APART)
            self.noise_multiplier_ = plan.noise_multiplier

            self.privacy_ = _fitting.spend(self, plan.event(), "full batch, 1 release")
            stream = _fitting.streams(self, X)("noise")
            with told(self):
                moments = plan.release(_moments(X, self.lower_, self.upper_), stream)
            self._store(*_mean_and_variance(moments.reshape(3, -1), plan.scale))
        return self

    def _store(self, mean: np.ndarray, variance: np.ndarray) -> None:
        """Take the moments back from [-1, 1] to the declared bounds."""
        half = self.upper_ / 2 - self.lower_ / 2
        self.mean_ = np.clip(self.lower_ + half * (1.0 + mean), self.lower_, self.upper_)
        self.scale_ = half * np.sqrt(variance)
        self.var_ = self.scale_**2

    def transform(self, X) -> BoundedRows:
        """Standardise, impute and clip; each row by itself.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Numbers; NaN becomes 0.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Rows of norm at most ``output_norm_``.
        """
        check_is_fitted(self)
        X = check_features(self, X, reset=False, ensure_all_finite="allow-nan")
        rows = (np.clip(X, self.lower_, self.upper_) - self.mean_) / self.scale_
        rows = clipped_to_norm(np.where(np.isnan(rows), 0.0, rows), self.output_norm_)
        return BoundedRows(rows.astype(X.dtype, copy=False), self.output_norm_)


def _record_norm(n_features: int) -> float:
    """C: bound on the norm of one row's share; each of the d terms z⁴ + ½ is at most 3/2."""
    return math.sqrt(1.5 * n_features)


def _moments(X: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Sum over rows of (m z, m (z² - ½), m/2), (3 n_features,)."""
    half, middle = upper / 2 - lower / 2, upper / 2 + lower / 2

    def chunk_sum(rows: np.ndarray) -> np.ndarray:
        # Clipped twice: before, so that nothing overflows; after, so that rounding exceeds nothing.
        z = np.clip((np.clip(rows, lower, upper) - middle) / half, -1.0, 1.0)
        present = np.logical_not(np.isnan(z))
        z = np.where(present, z, 0.0)
        shares = [z, present * (z * z - 0.5), _COUNT * present]
        return np.concatenate([share.sum(axis=0) for share in shares])

    return summed(X, chunk_sum)


def _mean_and_variance(moments: np.ndarray, s: float) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances on [-1, 1] from noisy sums (3, d); see the Notes of the class."""
    S, Q, N = moments[0], moments[1], moments[2] / _COUNT
    enough = max(0.5, _LEAST_COUNT * s / _COUNT) < N
    n = np.where(enough, N, 1.0)
    mean = np.clip(S / n, -1.0, 1.0)
    q = np.clip(Q / n + 0.5, 0.0, 1.0)
    e = s / n * np.sqrt(1 + 4 * mean**2 + 4 * (2 * mean**2 - q + 0.5) ** 2)
    variance = np.clip(q - mean**2, np.clip(e, _LEAST_VARIANCE, 1.0), 1.0)
    return np.where(enough, mean, 0.0), np.where(enough, variance, 1.0)
