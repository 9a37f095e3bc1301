"""Scores of trials: any scorer on public rows, or a noisy sum of bounded scores of private rows.

With row scores s_i in [0, 1], a trial on private rows releases Σ (s_i - 1/2) + N(0, scale²). The
share of a record, a row or a person with the mean over its rows, is at most 1/2, and that of a null
record 0. Shares are multiples of 2^-24, computed as integers: one record moves the sum by its share
and nothing else. 64 bits hold the sum of 2^40 shares; it is cut to ±2^29, so that a double holds it
exactly, and a cut moves nothing further apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import is_classifier, is_regressor

from skdp.fitting.types import ArrayLike, Estimator, Given, Opaque, Params
from skdp.fitting.validate import expected
from skdp.model_selection.budgets import private_parts

RECORD_NORM = 0.5
WORST = -math.inf

# The log-loss is cut at that of a probability of 1/16 (two classes; n_classes^-4): the higher the
# cut, the more noise; the lower, the less it tells an overconfident model from a wrong one.
_LOG_LOSS_CUT = 4.0
UNIT = 2.0**-24
_MOST = 2**53  # up to here a double holds each integer

RowScore = Callable[..., np.ndarray]
Scoring = str | RowScore | None
Whose = tuple[np.ndarray | slice, np.ndarray]


class PrivateRows(NamedTuple):
    """What a search is given to fit and to score on; ``persons`` is of `rows_of_persons`."""

    X: ArrayLike
    y: Given
    groups: Given = None
    persons: Whose | None = None

    @property
    def whose(self) -> Params:
        """What a fit is told of persons."""
        return {} if self.groups is None else {"groups": self.groups}


def shape_of(X: ArrayLike) -> tuple[int, ...]:
    """Shape of what a user may give as rows."""
    shape = getattr(X, "shape", None)
    return np.asarray(X).shape if shape is None else tuple(shape)


def accuracy(estimator: Opaque, X: ArrayLike, y: Given) -> np.ndarray:
    """1 where the prediction is right, else 0."""
    return (np.asarray(estimator.predict(X)) == np.asarray(y).ravel()).astype(float)


def neg_log_loss(estimator: Opaque, X: ArrayLike, y: Given) -> np.ndarray:
    """1 - loss/cut of each row, the loss cut at four times that of a blind guess."""
    proba = np.asarray(estimator.predict_proba(X))
    n_classes = proba.shape[1]
    codes = np.searchsorted(estimator.classes_, np.asarray(y).ravel())
    of_label = proba[np.arange(len(proba)), np.minimum(codes, n_classes - 1)]
    cut = _LOG_LOSS_CUT * math.log(n_classes)
    return 1.0 + np.log(np.clip(of_label, math.exp(-cut), 1.0)) / cut


@dataclass(frozen=True)
class NegSquaredError:
    """1 - ((y - prediction)/(high - low))² of each row, targets and errors cut to their range."""

    low: float
    high: float

    def __call__(self, estimator: Opaque, X: ArrayLike, y: Given) -> np.ndarray:
        """Return the mean over targets of each row."""
        y = np.clip(np.asarray(y, dtype=float), self.low, self.high)
        error = (y - np.asarray(estimator.predict(X)).reshape(y.shape)) / (self.high - self.low)
        squares = np.clip(error**2, 0.0, 1.0)
        return 1.0 - squares.reshape(len(y), -1).mean(axis=1)


def row_score(estimator: Estimator, scoring: Scoring) -> RowScore:
    """Return what scores each row in [0, 1], for a search without public rows."""
    if not isinstance(scoring, str) and callable(scoring):
        return scoring
    names = []
    if is_classifier(estimator):
        names = ["accuracy"] + ["neg_log_loss"] * hasattr(estimator, "predict_proba")
    elif is_regressor(estimator):
        names = ["neg_mean_squared_error"]
    if names and scoring in (None, names[0]):
        return accuracy if names[0] == "accuracy" else _squared_error(estimator)
    if scoring == "neg_log_loss" and scoring in names:
        return neg_log_loss
    known = ", ".join(map(repr, names)) or "nothing by name"
    raise expected(
        f"{known}, or a function (estimator, X, y) -> scores of the rows in [0, 1]",
        "other scores have no bound on one row's part; give X_public and y_public for any scorer",
        scoring=scoring,
    )


def _squared_error(estimator: Estimator) -> NegSquaredError:
    for part in private_parts(estimator).values():
        bounds = getattr(part, "target_bounds", None)
        if bounds is not None:
            return NegSquaredError(float(bounds[0]), float(bounds[1]))
    raise ValueError(
        "Expected target_bounds to be declared in the estimator: without a public range of the "
        "targets a squared error has no bound on one row's part. Declare it, give X_public and "
        "y_public, or a function (estimator, X, y) -> scores of the rows in [0, 1]."
    )


@dataclass(frozen=True)
class MeanRowScore:
    """Mean of row scores as a scorer: what a private search hands out as ``scorer_``."""

    row_score: RowScore

    def __call__(self, estimator: Any, X: ArrayLike, y: Given) -> float:
        """Score a fitted estimator on given rows, without noise."""
        return float(np.mean(np.clip(self.row_score(estimator, X, y), 0.0, 1.0)))

    def of_trial(self, fitted: Opaque, rows: PrivateRows) -> float:
        """Sum of scores of records less ½, exactly."""
        n_rows, scores = shape_of(rows.X)[0], np.empty(0)
        if n_rows:
            scores = np.asarray(self.row_score(fitted, rows.X, rows.y), dtype=float)
        if scores.shape != (n_rows,):
            raise ValueError("Expected scoring to return one number for each row.")
        return centred_sum(scores, rows.persons)


def centred_sum(scores: np.ndarray, persons: Whose | None = None) -> float:
    """Σ (s_i - ½), of persons Σ mean (s_i - ½), exactly; a score that is no number is the worst."""
    worst_first = np.where(np.isnan(scores), 0.0, scores)
    shares = np.rint((np.clip(worst_first, 0.0, 1.0) - 0.5) / UNIT).astype(np.int64)
    if persons is not None:
        order, starts = persons
        sums = np.add.reduceat(shares[order], starts[:-1])
        shares = np.rint(sums / np.diff(starts)).astype(np.int64)
    return exact_double(int(shares.sum()))


def exact_double(total: int) -> float:
    """Return so many units of the lattice, cut to what a double holds exactly."""
    return min(max(total, -_MOST), _MOST) * UNIT


@dataclass(frozen=True)
class PublicScore:
    """Any scorer, on rows that are public: post-processing of the fitted model."""

    scorer: Any
    X: ArrayLike
    y: ArrayLike

    def of_trial(self, fitted: Opaque, rows: PrivateRows) -> float:
        """Score one trial; the private rows are not looked at."""
        score = float(np.mean(self.scorer(fitted, self.X, self.y)))
        return score if math.isfinite(score) else WORST
