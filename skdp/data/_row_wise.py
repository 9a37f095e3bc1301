"""`RowWise`: a transformer of scikit-learn that learns nothing from rows, for rows in chunks."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted

from skdp.fitting.validate import expected
from skdp.privacy.cover import BudgetExceededError, Cover, covered
from skdp.privacy.workflow import privacy_of
from skdp.rows.lazy_rows import RowByRow, on_first_rows


def _fitted(transformer: Any, X: Any) -> tuple[Any, bool]:
    """Fit, and say whether any of it would have been charged."""
    cover = Cover()
    with covered(cover), suppress(BudgetExceededError):
        transformer.fit(X)
    return transformer, bool(cover.refused)


class RowWise(RowByRow, TransformerMixin, BaseEstimator, auto_wrap_output_keys=None):
    """Let a transformer that learns nothing from rows take rows in chunks.

    Encoders with declared categories, polynomial features, and `ColumnTransformer` of these: what
    `privacy_of` knows to read no rows but their columns. It is fitted on the first chunk that has
    rows, and maps each chunk when it is read. On arrays and frames it does what the transformer
    does. Transformers of skdp need it only inside others.

    **Privacy.** Costs none: a transformer that learns anything from rows is refused.

    Parameters
    ----------
    transformer : transformer
        Cloned; not private, and with all that it would learn declared.

    Attributes
    ----------
    transformer_ : transformer
        The fitted clone.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Feature names, where X had any.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.preprocessing import OneHotEncoder
    >>> from skdp.data import ChunkedRows, RowWise
    >>> rows = ChunkedRows(lambda i: np.array([["ab"[i]]]), n_chunks=2)
    >>> encoder = OneHotEncoder(categories=[["a", "b"]], sparse_output=False)
    >>> [X.tolist() for X, _ in RowWise(encoder).fit_transform(rows)]
    [[[1.0, 0.0]], [[0.0, 1.0]]]
    """

    def __init__(self, transformer: Any) -> None:
        self.transformer = transformer

    def fit(self, X, y=None) -> RowWise:
        """Fit the transformer on the first chunk, of which it may look at the columns alone.

        Parameters
        ----------
        X : ChunkedRows or array-like of shape (n_samples, n_features)
            Rows.
        y : None
            Ignored.

        Returns
        -------
        RowWise
            The fitted transformer.

        Raises
        ------
        ValueError
            If the transformer is not known to read no rows.
        """
        fitted, is_private = on_first_rows(X, partial(_fitted, clone(self.transformer)))
        unknown = ["a part of it is private"] if is_private else privacy_of(fitted).unaccounted
        if unknown:
            reads = "; ".join(unknown)
            raise expected(
                "a transformer that learns nothing from rows",
                f"{reads}; private ones take rows in chunks by themselves",
                transformer=self.transformer,
            )
        self.transformer_ = fitted
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(fitted, name):
                setattr(self, name, getattr(fitted, name))
        return self

    def transform(self, X) -> Any:
        """Transform rows; each by itself.

        Parameters
        ----------
        X : ChunkedRows or array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ChunkedRows or array-like
            Rows in chunks, mapped when they are read; or what the transformer gives.
        """
        check_is_fitted(self)
        return self.transformer_.transform(X)

    def get_feature_names_out(self, input_features=None) -> Any:
        """Names of the columns of the output."""
        check_is_fitted(self)
        return self.transformer_.get_feature_names_out(input_features)
