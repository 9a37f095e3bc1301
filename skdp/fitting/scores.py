"""Scores of given rows, whose targets and weights are checked first."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import column_or_1d

from skdp.fitting.input import check_labels, check_targets, without_data
from skdp.fitting.types import ArrayLike, Given
from skdp.fitting.validate import expected, is_dask
from skdp.rows.chunk_tasks import Chunk, n_rows_of
from skdp.rows.chunks import on_rows, targets_of
from skdp.rows.lazy_rows import in_chunks

# --- scores -------------------------------------------------------------------------------------


def _targets_beside(estimator: Any, X: Any, y: Any) -> Any:
    """Return targets that were given, or those that X holds: of chunks, or of a dataset."""
    of_dataset = getattr(estimator, "_targets_of_dataset", None)
    y = targets_of(X, y)
    return of_dataset(X) if y is None and of_dataset is not None else y


class AccuracyMixin(ClassifierMixin):
    """A classifier whose score is accuracy, of rows and labels that are checked first.

    Examples
    --------
    >>> from skdp import DPVariationalLogisticRegression
    >>> X, y = [[-1.0], [1.0]] * 500, [0, 1] * 500
    >>> model = DPVariationalLogisticRegression(classes=[0, 1], n_samples=1000).fit(X, y)
    >>> model.score(X, y) > 0.9
    True
    """

    classes_: np.ndarray

    def score(self, X, y=None, sample_weight=None) -> float:
        """Accuracy of `predict` on given rows.

        Parameters
        ----------
        X : array-like of shape (n, n_features) or ChunkedRows
            Rows.
        y : array-like of shape (n,)
            Class labels, which rows in chunks bring with them. One that the classifier does not
            know counts as wrong.
        sample_weight : array-like of shape (n,) or None, default=None
            Weights of the rows.

        Returns
        -------
        float
            Without noise: that of private rows is itself private.

        Raises
        ------
        ValueError
            If the input is invalid.
        """
        if is_dask(X):
            return mean_of_blocks(self.score, X, y, sample_weight)
        predicted: Any = self.predict(X)  # type: ignore[attr-defined]
        y = _targets_beside(self, X, y)
        if predicted.ndim == 2:  # labels that do not exclude each other: all have to be right
            y = check_targets(predicted, y)
            if y.shape != predicted.shape:
                raise ValueError(f"Expected y to hold {predicted.shape[1]} labels per row.")
            hits = (y == predicted).all(axis=1)
        else:
            hits = check_labels(predicted, y, self.classes_) == predicted
        weights = _weights(sample_weight, len(hits))
        return float(np.average(hits, weights=weights))


class R2Mixin(RegressorMixin):
    """A regressor whose score is R², of rows and targets that are checked first.

    Examples
    --------
    >>> from skdp import DPVariationalLinearRegression
    >>> X, y = [[-1.0], [1.0]] * 500, [-1.0, 1.0] * 500
    >>> DPVariationalLinearRegression(n_samples=1000).fit(X, y).score(X, y) > 0.5
    True
    """

    def __sklearn_tags__(self) -> Any:
        """On the few rows of scikit-learn's checks, noise dominates."""
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags

    def score(self, X, y=None, sample_weight=None) -> float:
        """Coefficient of determination R² of `predict` on given rows.

        Parameters
        ----------
        X : array-like of shape (n, n_features) or ChunkedRows
            Rows.
        y : array-like of shape (n,) or (n, n_targets)
            Targets, which rows in chunks bring with them; R² is averaged over several.
        sample_weight : array-like of shape (n,) or None, default=None
            Weights of the rows.

        Returns
        -------
        float
            At most 1. Without noise: that of private rows is itself private.

        Raises
        ------
        ValueError
            If the input is invalid.
        """
        predict: Any = self.predict  # type: ignore[attr-defined]
        if is_dask(X):
            return r2_of_blocks(predict, X, y, sample_weight)
        return r2_of(predict(X), _targets_beside(self, X, y), sample_weight)


def r2_of(predicted: np.ndarray, y: ArrayLike, sample_weight: Given) -> float:
    """R² of predictions, of targets and weights that are checked first."""
    y = check_targets(predicted, y)
    if y.size != predicted.size:
        n_targets = predicted.size // len(predicted)
        raise ValueError(f"Expected y to hold {n_targets} targets per row, as in the fit.")
    weights = _weights(sample_weight, len(y))
    unit = min(_unit(y), _unit(predicted))  # R² does not depend on it
    with without_data():
        return float(r2_score(y * unit, predicted * unit, sample_weight=weights))


def mean_of_blocks(score: Callable[..., float], X: Any, y: Any, sample_weight: Any = None) -> float:
    """Mean of a score over rows on Dask, which are scored where they are."""
    n, total = np.sum(_of_blocks(partial(_scored, score), X, y, sample_weight), axis=0)
    return float(total / n)


def _scored(score: Callable[..., float], chunk: Chunk) -> tuple[int, float]:
    n = n_rows_of(chunk.X)
    return n, n * (score(chunk.X) if chunk.y is None else score(chunk.X, chunk.y))


def r2_of_blocks(predict: Callable[..., Any], X: Any, y: Any, sample_weight: Any) -> float:
    """R² of predictions for rows on Dask, which are predicted where they are."""
    blocks = _of_blocks(partial(_moments, predict), X, y, sample_weight)
    n, means, around, errors = map(np.array, zip(*blocks, strict=True))
    mean, missed = np.average(means, axis=0, weights=n), errors.sum(axis=0)
    around = around.sum(axis=0) + n @ (means - mean) ** 2
    varies = around > 0.0
    r2 = np.where(varies, 1.0 - missed / np.where(varies, around, 1.0), missed == 0.0)
    return float(np.mean(r2))


def _moments(predict: Callable[..., Any], chunk: Chunk) -> tuple[int, Any, Any, Any]:
    """Number of rows; means of targets, squares around them, and squares of what is missed."""
    predicted = predict(chunk.X)
    y = check_targets(predicted, chunk.y)
    y, predicted = y.reshape(len(y), -1), predicted.reshape(len(y), -1)
    if y.shape != predicted.shape:
        raise ValueError("Expected y to hold the targets of each row, as in the fit.")
    mean = y.mean(axis=0)
    return len(y), mean, ((y - mean) ** 2).sum(axis=0), ((y - predicted) ** 2).sum(axis=0)


def _of_blocks(function: Callable[[Chunk], Any], X: Any, y: Any, sample_weight: Any) -> list[Any]:
    if sample_weight is not None:
        raise expected("None for rows on Dask", sample_weight="given")
    with in_chunks(X, y) as (rows, _, _):
        found = list(on_rows(rows, function, range(rows.n_chunks)))
    if not found:
        raise ValueError("Expected at least one row, but there are none.")
    return found


def _weights(sample_weight: Given, n_rows: int) -> np.ndarray | None:
    if sample_weight is None:
        return None
    wrong = (
        f"Expected sample_weight to hold {n_rows} finite numbers, one per row, with a finite sum "
        "> 0."
    )
    with without_data(wrong):
        weights = np.asarray(column_or_1d(sample_weight), dtype=np.float64)
        if len(weights) != n_rows or not 0 < weights.sum() < np.inf:
            raise ValueError(wrong)
        return weights * _unit(weights)


def _unit(values: np.ndarray) -> float:
    """A power of two that brings numbers whose squares a double cannot hold to 1; else 1."""
    largest = float(np.abs(values).max(initial=0.0))
    return 2.0 ** -int(np.frexp(largest)[1]) if 1e100 < largest < np.inf else 1.0
