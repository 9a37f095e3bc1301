"""`DPQuantileScaler`: features without known bounds, scaled by two private quantiles each."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np
from sklearn.base import OneToOneFeatureMixin
from sklearn.utils.validation import check_is_fitted

from skdp.algorithms.quantiles import QuantilesConfig
from skdp.fitting.plan import FitPlan, PublicFacts
from skdp.fitting.validate import expected, in_range, is_real
from skdp.preprocessing._base import QuantileScaler
from skdp.preprocessing.bounded_scaler import affine, middle_and_half
from skdp.privacy.budget import Budget


@dataclass(eq=False, repr=False)
class DPQuantileScaler(OneToOneFeatureMixin, QuantileScaler):
    """Map two private quantiles of each feature to -1 and 1, and clip what lies beyond.

    For features of unknown range. Bounds may be absurdly wide: their width costs its logarithm.
    Missing values (NaN) count nowhere in `fit`, and become 0 in `transform`: the middle between the
    quantiles.

    **Privacy.** `fit` is (epsilon, delta)-differentially private under ``neighboring_relation``:
    all of its attributes together. The ``unit`` is a row, or a person with all of its rows. The
    number of rows is never read. The guarantee covers one fit; each further fit on the same rows is
    a further release. It is *not* one for a seeded fit. `transform` works on each row by itself
    with released numbers, so imputing missing values costs nothing; what it returns are rows, as
    private as those that went in.

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
    unit : "row" or Persons, default="row"
        As of `DPStandardScaler`. A person's values share the weight of one.
    quantile_range : (float, float), default=(5, 95)
        Percentiles, 0 ≤ low < high ≤ 100. Quantiles further inside are found with fewer rows.
    resolution : float, default=1e-6
        Magnitude > 0, public, below which values are told apart by their difference, and above
        which by their ratio.
    quantile_epsilon : float or None, default=None
        ε > 0 of one quantile, instead of ``epsilon`` (pass ``epsilon=None``); the report then
        accounts for what was spent.
    random_state : int, RandomState instance or None, default=None
        As of `DPStandardScaler`.

    Attributes
    ----------
    lower_, upper_ : ndarray of shape (n_features,)
        The private quantiles, which are mapped to -1 and 1.
    output_norm_ : float
        √n_features: no row of the output exceeds this norm.
    quantile_epsilon_ : float
        ε of one quantile; infinite without privacy.
    privacy_, diagnostics_, n_features_in_, feature_names_in_
        As of `DPStandardScaler`.

    See Also
    --------
    BoundedScaler : Scales by declared bounds, at no privacy cost.
    skdp.mechanisms.QuantileMechanism : One quantile.

    Notes
    -----
    *Release.* Each feature has two quantiles drawn by `QuantileMechanism`, on the axis t =
    asinh(x/u), u the ``resolution``, which is monotone: it takes quantiles to quantiles. On it ±1e9
    lie at ±35.2, so that 2³⁰ grid points are 7e-8 apart: values of 1e-3 and of 1e8 are resolved
    alike. The mechanism's error grows with the logarithm of the axis over the stretch where the
    data lies: 21 for values about 1 on a linear axis, and about 4 here. A smaller u lengthens the
    axis by the logarithm only.

    *Sensitivity.* A missing value is a null record of its feature. A row that comes, goes, is
    zeroed out or replaced, with whatever is missing in it, changes at most one value of each
    feature; where one data set has the value and the other has none, this is the add/remove case
    of `QuantileMechanism`, whose range 2 max(q, 1 - q) is at most the 2 of replace-one.

    *Persons.* The k values that a person has of a feature have the weight 1/k each, or very nearly:
    together they move a quantile no further than one does (`QuantileMechanism` has the proof), a
    ``clip`` is of no use, and quantiles are those of a row drawn from a random person. Without
    privacy they are those of rows.

    *Account.* Between neighbours a quantile's log-density moves by a function whose range is at
    most ``quantile_epsilon_`` (shown there), which is what `PosteriorSamplesDpEvent` states. A
    range η is η-DP and η²/8-zCDP (Cesar & Rogers 2021; PRIVACY §4); either bound composes over
    2 n_features mechanisms however they differ, and the less of the two is taken.

    *Degenerate answers.* Of two quantiles in the wrong order the lesser is the lower; where they
    fall together, on a feature with one value or almost, they are moved apart by one point of the
    grid each. Without a value, or with too few, the quantiles are useless, and no warning says so.

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

    _: KW_ONLY
    quantile_range: tuple[float, float] = (5, 95)

    _no_unit: ClassVar[str] = "what was unit in skdp 0.1.0 is resolution"

    def _configure(self, facts: PublicFacts, budget: Budget) -> QuantilesConfig:
        pair = self.quantile_range
        is_pair = isinstance(pair, tuple | list | np.ndarray) and len(pair) == 2
        if not is_pair or not all(map(is_real, pair)) or not 0 <= pair[0] < pair[1] <= 100:
            kind = "two percentiles (low, high), 0 <= low < high <= 100"
            raise expected(kind, quantile_range=pair)
        lower, upper = self._range(facts)
        return QuantilesConfig(
            lower=lower,
            upper=upper,
            shares=(float(pair[0]) / 100, float(pair[1]) / 100),
            unit=in_range(1e-100, 1e100, resolution=self.resolution),
            neighboring_relation=self._relation,
        ).calibrated(budget)

    def _keep(self, plan: FitPlan, released: np.ndarray) -> None:
        self.lower_, self.upper_ = plan.config.apart(*released)
        self.quantile_epsilon_ = plan.config.epsilon
        self.output_norm_ = len(self.lower_) ** 0.5

    def transform(self, X) -> np.ndarray:
        """Scale, impute (NaN becomes 0) and clip to [-1, 1]; each row by itself."""
        check_is_fitted(self)
        X = self._checked(X, reset=False)
        middle, half = middle_and_half(self.lower_, self.upper_)
        with np.errstate(over="ignore"):  # infinity is clipped, and a warning would tell of it
            rows = (X - middle) / half
        rows = np.clip(np.where(np.isnan(rows), 0.0, rows), -1.0, 1.0)
        return rows.astype(X.dtype, copy=False)

    def _affine(self) -> tuple[np.ndarray, np.ndarray, str]:
        return affine(*middle_and_half(self.lower_, self.upper_), "the two quantiles")
