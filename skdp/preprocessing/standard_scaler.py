"""`DPStandardScaler`: means and standard deviations by one private release."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from sklearn.base import OneToOneFeatureMixin
from sklearn.utils.validation import check_is_fitted

from skdp.algorithms.moments import Moments, MomentsConfig
from skdp.fitting.input import check_rows
from skdp.fitting.plan import FitPlan, PublicFacts
from skdp.fitting.validate import number_or_auto
from skdp.preprocessing._base import PrivateScaler
from skdp.privacy.budget import Budget
from skdp.rows.records import clipped_rows


@dataclass(eq=False, repr=False)
class DPStandardScaler(OneToOneFeatureMixin, PrivateScaler):
    """Standardise features by private means and variances, within declared bounds.

    Values are clipped to the declared bounds, shifted by the private mean and divided by the
    private standard deviation; then each row is clipped to a declared norm. Missing values (NaN)
    count nowhere in `fit`, and become 0 in `transform`: the private mean.

    **Privacy.** `fit` is (epsilon, delta)-differentially private under ``neighboring_relation``:
    all of its attributes together. The ``unit`` is a row, or a person with all of its rows. The
    number of rows is never read. The guarantee covers one fit; each further fit on the same rows is
    a further release. It is *not* one for a seeded fit, and treats floating-point Gaussian noise as
    exact. `transform` works on each row by itself with released numbers and returns rows, as
    private as those that went in.

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
    unit : "row" or Persons, default="row"
        The privacy unit: a row, or a person with all of its rows, given to `fit` as ``groups``;
        see `skdp.Persons`. A person's share is at most ``rows_per_group`` times that of a row.
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
        The bounds, one per feature.
    output_norm_ : float
        No row of the output exceeds this norm.
    noise_multiplier_ : float
        Standard deviation of the noise over the bound on one row's share; under replace_one, over
        half of what replacing a row moves.
    privacy_ : PrivacyReport
        The privacy statement of this fit.
    diagnostics_ : tuple of str
        Doubts about the fit that released values raise; each was a `FitWarning`.
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
    scale of √e and a mean that is off by about s/N, less than that scale.

    *How much data.* On [-1, 1] the mean is off by about noise_multiplier · √(3d/2)/n: with 10
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

    lower: Any = -1.0
    upper: Any = 1.0
    _: KW_ONLY
    epsilon: float | None = 0.1
    output_norm: float | str = "auto"
    noise_multiplier: float | None = None

    def _configure(self, facts: PublicFacts, budget: Budget) -> MomentsConfig:
        self._output_norm(facts.features)
        lower, upper = self._range(facts)
        return MomentsConfig(
            n_features=facts.features,
            lower=lower,
            upper=upper,
            neighboring_relation=self._relation,
            persons=facts.persons,
        ).calibrated(budget)

    def _output_norm(self, n_features: int) -> float:
        return number_or_auto(n_features**0.5, output_norm=self.output_norm)

    def _keep(self, plan: FitPlan, released: Moments) -> None:
        config: MomentsConfig = plan.config
        self.lower_, self.upper_ = np.array(config.lower), np.array(config.upper)
        self.output_norm_ = self._output_norm(config.n_features)
        self.noise_multiplier_ = config.noise_multiplier
        self.mean_, self.scale_ = released
        self.var_ = self.scale_**2

    def transform(self, X) -> np.ndarray:
        """Standardise, impute (NaN becomes 0) and clip to ``output_norm_``; each row by itself."""
        check_is_fitted(self)
        X = self._checked(X, reset=False)
        rows = (np.clip(X, self.lower_, self.upper_) - self.mean_) / self.scale_
        rows = np.where(np.isnan(rows), 0.0, rows)
        rows = clipped_rows(rows, self.output_norm_, fit_intercept=False)
        return rows.astype(X.dtype, copy=False)

    def inverse_transform(self, X) -> np.ndarray:
        """Undo scale and shift; what bounds and ``output_norm`` cut stays cut."""
        check_is_fitted(self)
        with np.errstate(over="ignore"):  # a warning would tell of a value
            return check_rows(X, self.n_features_in_) * self.scale_ + self.mean_

    def _affine(self) -> tuple[np.ndarray, np.ndarray, str]:
        note = "DPStandardScaler: for values within its bounds, of rows within output_norm."
        return np.diag(1.0 / self.scale_), -self.mean_ / self.scale_, note
