"""Private conformal prediction: sets and intervals that cover, whatever the model."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils import Tags, get_tags
from sklearn.utils.validation import check_is_fitted

from skdp.conformal._base import Rows, _DPConformal
from skdp.fitting.declared import encode_labels
from skdp.fitting.input import check_features_and_labels, check_features_and_targets
from skdp.fitting.scores import AccuracyMixin, R2Mixin
from skdp.fitting.tables import check_columns_and_labels, check_columns_and_targets
from skdp.fitting.types import ArrayLike
from skdp.fitting.validate import expected, in_range, one_of
from skdp.model_selection._base import available
from skdp.rows.parts import handed_on

_STANDARD_DEVIATIONS = 100.0  # bound on a scaled residual


@dataclass(eq=False, repr=False)
class DPConformalClassifier(AccuracyMixin, _DPConformal):
    """Prediction sets that hold the right class at a chosen rate, privately.

    A set holds the classes whose score is at most a threshold, which is one private quantile of the
    scores of calibration rows that the classifier has not seen. Coverage needs no assumption about
    the classifier, which may be wrong: a bad one has large sets.

    **Privacy.** The threshold is epsilon-differentially private, with δ = 0, under
    ``neighboring_relation``, given the classifier. A classifier that is fitted here reads other
    rows, so ``privacy_`` states the larger of the two; for a frozen one it does where both were
    fitted on parts of one `DisjointSplit`, and else states the composition. Conditional on the
    public facts in the report, void for a seeded fit.

    **Coverage.** For rows that are exchangeable with those that calibrate, the set holds the right
    class with probability 1 - alpha or more, over the rows and the noise. It is marginal: over all
    rows, and not within a class or a subgroup. It is void for rows on which the classifier was
    fitted.

    Parameters
    ----------
    estimator : classifier
        With `predict_proba`. It is cloned and fitted on a part of the rows;
        ``FrozenEstimator(classifier)`` keeps one that was fitted, on other rows.
    alpha : float, default=0.1
        Share of sets, in [1e-6, 0.5], that may miss the right class.
    epsilon : float, default=1.0
        ε > 0 of the threshold. ``float("inf")`` for no privacy.
    delta : float, default=0.0
        δ in [0, 1) at which ``privacy_`` is stated, if that of the classifier is not larger.
    calibration_share : float, default=0.25
        Share of the rows in (0, 1) that calibrate, where the classifier is fitted here.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}, default="zero_out"
        Who is a neighbour; that of the classifier.
    unit : "row" or Persons, default="row"
        What is protected: a row, or a person with all of its rows, which `fit` is told by
        ``groups``; that of the classifier. Of each person one random row calibrates: coverage is
        that of a random row of a new person. Of `skdp.Persons` it takes ``n_groups`` alone.
    n_samples : int or None, default=None
        Public number of rows; a classifier that is fitted here is told its part of it. None reads
        it from X and says so in the report. Where it is private, coverage holds if there are at
        least so many.
    random_state : int, RandomState instance or None, default=None
        None keys the noise and the split from the operating system. A seed makes the threshold
        repeatable and its guarantee void.
    conformity : {"lac", "aps"}, default="lac"
        1 less the probability of the class (Sadinle et al. 2019), which has the smallest sets; or
        the probability of all classes that are as likely or more (Romano et al. 2020, without
        randomisation), whose sets are larger where the classifier hesitates.

    Attributes
    ----------
    estimator_ : classifier
        The fitted classifier.
    threshold_ : float
        Score up to which a class is in the set; infinite where nothing is left out.
    privacy_, threshold_privacy_ : PrivacyReport
        Statement of classifier and threshold together, not valid for a classifier that says nothing
        of what it has learned; and of the threshold, given the classifier.
    diagnostics_ : tuple of str
        Doubts about the sets; each was a `FitWarning`.
    classes_ : ndarray of shape (n_classes,)
        Class labels: columns of the sets.
    n_features_in_, feature_names_in_
        Number of features, and their names, where X had any.

    See Also
    --------
    skdp.model_selection.DisjointSplit : Parts of the rows for a fit and its calibration.

    Notes
    -----
    The rank of the quantile is raised to pay for the noise (docs/derivations.md): to 0.911 m in
    place of 0.9 m where mε = 1000, of m calibration rows. Where it would exceed m nothing is drawn,
    sets hold every class, and a `FitWarning` says so. A class without calibration rows is in sets
    by its score, as others are.

    References
    ----------
    A. Angelopoulos, S. Bates, T. Zrnic, M. I. Jordan, *Private Prediction Sets*, Harvard Data
    Science Review 4(2), 2022. M. Sadinle, J. Lei, L. Wasserman, *Least Ambiguous Set-Valued
    Classifiers*, JASA 114, 2019. Y. Romano, M. Sesia, E. Candès, *Classification with Valid and
    Adaptive Coverage*, NeurIPS 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.frozen import FrozenEstimator
    >>> from skdp import DisjointSplit, DPVariationalLogisticRegression
    >>> from skdp.conformal import DPConformalClassifier
    >>> X, noise = np.random.default_rng(0).uniform(-1, 1, (2, 4000, 1))
    >>> y = (X + noise > 0).astype(int)[:, 0]
    >>> split = DisjointSplit(4000, parts={"train": 0.5, "calibrate": 0.5})
    >>> model = DPVariationalLogisticRegression(epsilon=1.0, classes=[0, 1], n_samples=2000)
    >>> model = model.fit(*split.take("train", X, y))
    >>> sets = DPConformalClassifier(FrozenEstimator(model), epsilon=1.0, n_samples=2000)
    >>> sets = sets.fit(*split.take("calibrate", X, y))
    >>> round(sets.privacy_.epsilon, 3)  # of both
    1.0
    >>> bool(0.87 < sets.predict_set(X)[np.arange(4000), y].mean() < 0.95)
    True
    """

    conformity: str = "lac"

    def __sklearn_tags__(self) -> Tags:
        """Tell as many classes as the model does."""
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator).classifier_tags
        tags.classifier_tags.multi_class = inner is None or inner.multi_class
        return tags

    def _read_rows(self, X: Any, y: Any, columns: bool) -> tuple[Any, np.ndarray, Any]:
        one_of(_CONFORMITY, conformity=self.conformity)
        inner, name = self._inner, type(self._inner).__name__
        if not hasattr(inner, "predict_proba"):
            raise expected("a classifier with predict_proba", estimator=self.estimator)
        declared = self._declared
        read: Any = check_columns_and_labels if columns else check_features_and_labels
        more = {} if columns else {"dtype": "numeric"}
        checked, labels = read(self, X, y, declared=declared is not None, **more)
        return checked, labels, encode_labels(labels, declared, name)[0]

    def _true_scores(self, rows: Rows) -> np.ndarray:
        classes = self.classes_ = np.asarray(self.estimator_.classes_)
        codes = np.minimum(np.searchsorted(classes, rows.y), len(classes) - 1)
        scores = self._scores(rows.X)[np.arange(len(codes)), codes]
        # The part of the rows on which the model was fitted may have missed a class.
        return np.where(classes[codes] == rows.y, scores, math.inf)

    def _scores(self, X: ArrayLike) -> np.ndarray:
        """Scores of all classes, (n, n_classes); a class that has none is only in sets of all."""
        return _CONFORMITY[self.conformity](np.asarray(self.estimator_.predict_proba(X), float))

    def predict_set(self, X) -> np.ndarray:
        """Say which classes are in the set of each row, bool (n, n_classes); it may be empty."""
        check_is_fitted(self)
        scores = self._scores(X)
        sets = np.where(np.isfinite(scores), scores, math.inf) <= self.threshold_
        return handed_on(X, sets)

    @available("predict_proba", "estimator_")
    def predict_proba(self, X) -> np.ndarray:
        """Class probabilities of the classifier, shape (n, n_classes)."""
        check_is_fitted(self)
        return self.estimator_.predict_proba(X)


@dataclass(eq=False, repr=False)
class DPConformalRegressor(R2Mixin, _DPConformal):
    """Prediction intervals that hold the target at a chosen rate, privately.

    An interval is the prediction plus and minus a threshold, or a multiple of the predicted
    standard deviation: one private quantile of the residuals of calibration rows that the regressor
    has not seen. Coverage needs no assumption about the regressor, which may be wrong.

    **Privacy** and **coverage** are as those of `DPConformalClassifier`: the interval holds the
    target of an exchangeable row with probability 1 - alpha or more, on average over all rows.

    Parameters
    ----------
    estimator : regressor
        Of one target. It is cloned and fitted on a part of the rows;
        ``FrozenEstimator(regressor)`` keeps one that was fitted, on other rows.
    alpha, epsilon, delta, calibration_share, neighboring_relation, unit : optional
        As of `DPConformalClassifier`.
    n_samples, random_state : optional
        As of `DPConformalClassifier`.
    residual : {"absolute", "scaled"}, default="absolute"
        Whether intervals have one width, or are multiples of the standard deviation that
        ``predict(X, return_std=True)`` of the regressor gives.
    residual_bound : float or None, default=None
        Largest finite threshold > 0. It must not be computed from the rows; ten times too large
        costs little, and where too small, intervals are infinite. None is the width of the
        regressor's ``target_bounds``, or 100 standard deviations.

    Attributes
    ----------
    threshold_ : float
        Half the width of intervals, in standard deviations for scaled ones.
    estimator_, privacy_, threshold_privacy_, diagnostics_, n_features_in_, feature_names_in_
        As of `DPConformalClassifier`.

    Notes
    -----
    Thresholds are drawn from points in proportion, over four decades below ``residual_bound``. The
    rank is that of `DPConformalClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp import DPVariationalLinearRegression
    >>> from skdp.conformal import DPConformalRegressor
    >>> X = np.random.default_rng(0).uniform(-1, 1, (8000, 1))
    >>> y = np.abs(X[:, 0])  # no line
    >>> model = DPVariationalLinearRegression(target_bounds=(-0.5, 1.5), n_samples=8000)
    >>> intervals = DPConformalRegressor(model, n_samples=8000).fit(X, y)
    >>> low, high = intervals.predict_interval(X).T
    >>> bool(0.88 < np.mean((low <= y) & (y <= high)) < 0.95)
    True
    """

    residual: str = "absolute"
    residual_bound: float | None = None

    _remedy = "Give a larger residual_bound."

    def _read_rows(self, X: Any, y: Any, columns: bool) -> tuple[Any, np.ndarray, Any]:
        last = self._inner.steps[-1][1] if isinstance(self._inner, Pipeline) else self._inner
        scaled = one_of(("absolute", "scaled"), residual=self.residual) == "scaled"
        if scaled and "return_std" not in inspect.signature(last.predict).parameters:
            remedy = "the model does not predict a standard deviation"
            raise expected("'absolute' for this model", remedy, residual=self.residual)
        if columns:
            checked, targets = check_columns_and_targets(self, X, y)
        else:
            checked, targets = check_features_and_targets(self, X, y, multi_output=False)
        return checked, targets, None

    def _n_outputs(self, classes: Sized | None) -> int | None:
        return 1

    def _largest(self) -> float:
        bound = self.residual_bound
        if bound is None and self.residual == "scaled":
            return _STANDARD_DEVIATIONS
        known = {n.rpartition("__")[2]: v for n, v in self._inner.get_params(deep=True).items()}
        if bound is None and (ends := known.get("target_bounds")) is not None:
            bound = float(ends[1]) - float(ends[0])
        remedy = "a public bound on the residuals that matter, or target_bounds of the regressor"
        return in_range(1e-100, 1e100, remedy, closed="both", residual_bound=bound)

    def _predicted(self, X: ArrayLike) -> tuple[np.ndarray, np.ndarray | float]:
        """Prediction of each row, and the unit of its residual."""
        if self.residual == "scaled":
            return self.estimator_.predict(X, return_std=True)
        return self.estimator_.predict(X), 1.0

    def __sklearn_tags__(self) -> Tags:
        """Predict as well as the model does."""
        tags = super().__sklearn_tags__()
        tags.regressor_tags = get_tags(self.estimator).regressor_tags
        return tags

    def _true_scores(self, rows: Rows) -> np.ndarray:
        mean, unit = self._predicted(rows.X)
        return np.abs(rows.y - mean) / unit

    def predict_interval(self, X) -> np.ndarray:
        """Return lower and upper ends (n, 2), infinite where nothing is left out."""
        check_is_fitted(self)
        mean, unit = self._predicted(X)
        # What rounding takes from an end must not leave out a residual at the threshold.
        half = np.broadcast_to(unit * self.threshold_ * (1 + 1e-12), mean.shape)
        return handed_on(X, np.column_stack([mean - half, mean + half]))


# --- scores ---------------------------------------------------------------------------------------


def _adaptive(proba: np.ndarray) -> np.ndarray:
    """Probability of each class and of all that are as likely or more."""
    order = np.argsort(-proba, axis=1, kind="stable")
    scores = np.empty_like(proba)
    np.put_along_axis(scores, order, np.take_along_axis(proba, order, 1).cumsum(axis=1), 1)
    return scores


_CONFORMITY = {"lac": lambda proba: 1.0 - proba, "aps": _adaptive}
