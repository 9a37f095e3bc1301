"""`BoundedScaler`: features to [-1, 1] by bounds that the caller declares, whatever rows say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from skdp.fitting.input import check_features
from skdp.fitting.validate import declared_range, expected, flag
from skdp.rows.lazy_rows import RowByRow, is_lazy, learned
from skdp.rows.sparse import SparseRows


@dataclass(eq=False, repr=False)
class BoundedScaler(OneToOneFeatureMixin, RowByRow, TransformerMixin, BaseEstimator):
    """Map declared bounds to [-1, 1] and clip what lies beyond.

    **Privacy.** No cost: `fit` reads the number of features and nothing else of X. The bounds
    are public facts, and must not be computed from the data.

    Parameters
    ----------
    lower, upper : float, array-like of shape (n_features,) or mapping, default=-1.0 and 1.0
        Declared bounds of the features, finite, lower < upper. A number holds for every feature. A
        dict or a Series of pandas holds them by column name, one for each column of a frame.
    center : bool, default=True
        Whether the middle of the bounds becomes 0. Without, features are divided by the larger of
        the absolute bounds and 0 stays 0, as a sparse X needs.

    Attributes
    ----------
    lower_, upper_ : ndarray of shape (n_features,)
        The bounds, one per feature.
    output_norm_ : float
        √n_features: no row of the output exceeds it.
    n_features_in_, feature_names_in_
        Number of features, and their names, where X had any.

    Notes
    -----
    Rows of the output have norm at most √n_features: the default ``data_norm`` of the estimators.
    They know it, so that a join with columns of another declared norm has one too.

    Examples
    --------
    >>> from skdp import BoundedScaler
    >>> BoundedScaler(lower=[0, 50], upper=[120, 250]).fit_transform([[60, 150], [200, 50]])
    array([[ 0.,  0.],
           [ 1., -1.]])
    """

    lower: Any = -1.0
    upper: Any = 1.0
    center: bool = True  # also of what 0.1.0 stored

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = not self.center
        return tags

    @property
    def output_norm_(self) -> float:
        """Norm of a row of features in [-1, 1]."""
        return len(self.lower_) ** 0.5

    def fit(self, X, y=None) -> BoundedScaler:
        """Check the declared bounds against the number of features."""
        if is_lazy(X):
            return learned(self, X)
        X = self._checked(X)
        names = getattr(self, "feature_names_in_", None)
        lower, upper = by_name(names, lower=self.lower), by_name(names, upper=self.upper)
        self.lower_, self.upper_ = declared_range(X.shape[1], lower, upper)
        return self

    def transform(self, X) -> Any:
        """Scale to [-1, 1] and clip; NaN stays NaN, and X may be sparse with ``center=False``."""
        check_is_fitted(self)
        X = self._checked(X, reset=False)
        middle, half = self._middle_and_half()
        if isinstance(X, SparseRows):
            scaled = X.matrix.multiply(1.0 / half).tocsr()
            np.clip(scaled.data, -1.0, 1.0, out=scaled.data)
            return scaled
        with np.errstate(all="ignore"):  # a warning would reveal that an extreme row is there
            return np.clip((X - middle) / half, -1.0, 1.0).astype(X.dtype, copy=False)

    def _checked(self, X: Any, *, reset: bool = True) -> Any:
        sparse = not flag(center=self.center)
        return check_features(self, X, ensure_all_finite="allow-nan", sparse=sparse, reset=reset)

    def _middle_and_half(self) -> tuple[np.ndarray, np.ndarray]:
        if self.center:
            return middle_and_half(self.lower_, self.upper_)
        return np.zeros(len(self.lower_)), np.maximum(np.abs(self.lower_), np.abs(self.upper_))

    def _affine(self) -> tuple[np.ndarray, np.ndarray, str]:
        return affine(*self._middle_and_half(), "lower and upper")


def middle_and_half(lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Middle and half width of ranges; halved first, because a difference could overflow."""
    return upper / 2 + lower / 2, upper / 2 - lower / 2


def by_name(names: np.ndarray | None, **bounds: Any) -> Any:
    """Bounds in the order of the columns; what is no mapping is returned as it is."""
    ((parameter, given),) = bounds.items()
    if not hasattr(given, "items"):
        return given
    of_columns = dict(given.items())
    known = set() if names is None else set(names)
    missing, unknown = known - set(of_columns), set(of_columns) - known
    if names is None or missing or unknown:
        remedy = "X must be a frame whose columns have these names"
        for kind, some in (("missing", missing), ("not in X", unknown)):
            if some and known:
                remedy += f"; {kind}: {', '.join(sorted(map(str, some)))}"
        asked = "a bound for each column of X by its name, and no others"
        raise expected(asked, remedy, **{parameter: given})
    return [of_columns[name] for name in names]


def affine(middle: np.ndarray, half: np.ndarray, what: str) -> tuple[np.ndarray, np.ndarray, str]:
    """Return A and b of x ↦ (x - middle)/half, and for which values it is."""
    return np.diag(1.0 / half), -middle / half, f"Features: for values between {what}."
