"""`NormClipper`: rows beyond a declared Euclidean norm, scaled down to it, and marked with it."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from skdp.fitting.input import check_features
from skdp.fitting.validate import number_or_auto
from skdp.preprocessing._base import float_tags
from skdp.rows.lazy_rows import RowByRow, is_lazy, learned
from skdp.rows.records import clipped_rows
from skdp.rows.sparse import SparseRows


class NormClipper(OneToOneFeatureMixin, RowByRow, TransformerMixin, BaseEstimator):
    """Scale rows down to a declared Euclidean norm where they exceed it.

    **Privacy.** No cost: `fit` reads the number of features and nothing else of X, and each row
    is transformed by itself. The norm is a public fact, and must not be computed from the data.

    Parameters
    ----------
    norm : float or "auto", default="auto"
        Euclidean norm > 0. ``"auto"`` is √n_features, the largest norm of a row of features in
        [-1, 1], and the default ``data_norm`` of the estimators.

    Attributes
    ----------
    output_norm_ : float
        The norm: no row of the output exceeds it.
    n_features_in_, feature_names_in_
        Number of features, and their names, where X had any.

    See Also
    --------
    BoundedScaler : Scales features by declared bounds first.

    Notes
    -----
    The rows returned know their norm, as an array and as a frame of pandas or polars: with
    ``data_norm="auto"`` the next step of a pipeline clips to ``output_norm_`` and not to
    √n_features. Joined with other such rows by a ColumnTransformer or a FeatureUnion, the whole has
    the root of the sum of squares; where columns without a norm are among them, the fit warns, and
    where frames of polars are joined, the join does. Slices, arithmetic and other transformers give
    rows without a norm. Rows within the norm come out bit for bit; 1e300 is a value like any other.

    Examples
    --------
    >>> from skdp.preprocessing import NormClipper
    >>> NormClipper().fit_transform([[2.0, 0.0], [1e300, 1e300], [0.5, -0.5]])
    array([[ 1.41421356,  0.        ],
           [ 1.        ,  1.        ],
           [ 0.5       , -0.5       ]])
    """

    def __init__(self, norm: float | str = "auto") -> None:
        self.norm = norm

    def __sklearn_tags__(self) -> Any:
        tags = float_tags(super().__sklearn_tags__(), allow_nan=False)
        tags.input_tags.sparse = True
        return tags

    def fit(self, X, y=None) -> NormClipper:
        """Check the declared norm, by the columns of X alone."""
        if is_lazy(X):
            return learned(self, X)
        norm = number_or_auto(0.0, norm=self.norm)
        X = check_features(self, X, sparse=True)
        self.output_norm_ = norm or X.shape[1] ** 0.5
        return self

    def transform(self, X) -> Any:
        """Scale down the rows, dense or sparse, that exceed the norm."""
        check_is_fitted(self)
        X = check_features(self, X, reset=False, sparse=True)
        rows = clipped_rows(X, self.output_norm_, fit_intercept=False)
        return rows.matrix if isinstance(rows, SparseRows) else rows.astype(X.dtype, copy=False)

    def _affine(self) -> tuple[np.ndarray, np.ndarray, str]:
        d: int = vars(self)["n_features_in_"]
        return np.eye(d), np.zeros(d), "NormClipper: for rows within its norm."
