"""Calibration errors: how far predicted probabilities are from what happens, in one number.

Of all rows to which a calibrated classifier gives 0.8, it is right in eight of ten. An error sorts
rows into bins of confidence and averages the distance between mean confidence and accuracy.

In a search, smaller is better, and the scorer must know it:

>>> from sklearn.metrics import make_scorer
>>> from skdp.metrics import expected_calibration_error
>>> scorer = make_scorer(
...     expected_calibration_error, response_method="predict_proba", greater_is_better=False
... )

All three errors are biased upwards: of a calibrated classifier the mean error is not 0 but up to
√(bins/rows)/2. Compare errors at the same number of rows and bins.

References
----------
C. Guo, G. Pleiss, Y. Sun, K. Weinberger, *On Calibration of Modern Neural Networks*, ICML 2017.
J. Nixon, M. Dusenberry, L. Zhang, G. Jerfel, D. Tran, *Measuring Calibration in Deep Learning*,
CVPR Workshops 2019.
"""

from __future__ import annotations

import numpy as np

from skdp.fitting.types import ArrayLike, Label
from skdp.metrics._predictions import Predictions, check_predictions
from skdp.metrics.reliability import class_outcomes, outcomes, tabulate


def expected_calibration_error(
    y_true: ArrayLike,
    y_prob: ArrayLike,
    *,
    n_bins: int = 15,
    sample_weight: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    pos_label: Label | None = None,
) -> float:
    """Expected calibration error (ECE) of the most probable class, over bins of equal width.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True class labels.
    y_prob : array-like of shape (n_samples,) or (n_samples, n_classes)
        Probabilities of the positive class, or of all classes: rows that sum to 1 within 0.001,
        with columns in the order of ``labels``, which is that of `predict_proba`.
    n_bins : int, default=15
        Number of bins ≥ 1 in [0, 1]; 15 is that of Guo et al. (2017).
    sample_weight : array-like of shape (n_samples,), default=None
        Weights ≥ 0 of the rows.
    labels : array-like of shape (n_classes,), default=None
        All classes, in the order of the columns of ``y_prob``. None takes those of ``y_true``,
        sorted. Needed where ``y_true`` may lack a class, as in a fold.
    pos_label : int, float, bool or str, default=None
        The class that a one-dimensional ``y_prob`` speaks of. None takes the greater of the two.

    Returns
    -------
    float
        Error in [0, 1]; 0 is best.

    Raises
    ------
    ValueError
        If a probability is missing, outside [0, 1] or of a row that does not sum to 1; a label is
        missing or no class; lengths differ; or a parameter is invalid.

    See Also
    --------
    static_calibration_error : The same for every class, not only the most probable one.
    adaptive_calibration_error : Every class, bins of equal mass.
    reliability_table : The bins behind the number.

    Notes
    -----
    ECE = Σ_b (n_b/n) |acc(b) - conf(b)|. A bin (lower, upper] holds its upper edge; the first holds
    0 too. With two classes the confidence is max(p, 1 - p), so that bins below 1/2 are empty. Of
    several most probable classes the first counts, as in `predict`.

    Examples
    --------
    >>> from skdp.metrics import expected_calibration_error
    >>> y_prob = [0.9, 0.9, 0.9, 0.9]  # is right in 3 of 4
    >>> print(f"{expected_calibration_error([1, 1, 1, 0], y_prob):.2f}")
    0.15
    """
    predictions = check_predictions(y_true, y_prob, sample_weight, labels, pos_label)
    return tabulate(outcomes(predictions), n_bins, "uniform").calibration_error


def static_calibration_error(
    y_true: ArrayLike,
    y_prob: ArrayLike,
    *,
    n_bins: int = 15,
    sample_weight: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    pos_label: Label | None = None,
) -> float:
    """Static calibration error (SCE): every class, over bins of equal width.

    A classifier may be calibrated where it decides, and wrong about the other classes; the expected
    calibration error does not see those.

    Parameters
    ----------
    y_true, y_prob, n_bins, sample_weight, labels, pos_label : optional
        As in `expected_calibration_error`.

    Returns
    -------
    float
        Error in [0, 1]; 0 is best.

    Notes
    -----
    SCE = (1/K) Σ_k Σ_b (n_bk/n) |acc(b, k) - conf(b, k)| (Nixon et al. 2019), with
    acc(b, k) the share of class k among the rows of bin b. Bins are (lower, upper], the first holds
    0 too. With two classes the two terms are equal, but for confidences on an edge.

    Examples
    --------
    >>> from skdp.metrics import static_calibration_error
    >>> print(f"{static_calibration_error([0, 1, 1, 0], [0.1, 0.9, 0.7, 0.6]):.3f}")
    0.275
    """
    predictions = check_predictions(y_true, y_prob, sample_weight, labels, pos_label)
    return _mean_over_classes(predictions, n_bins, "uniform")


def adaptive_calibration_error(
    y_true: ArrayLike,
    y_prob: ArrayLike,
    *,
    n_bins: int = 15,
    sample_weight: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    pos_label: Label | None = None,
) -> float:
    """Adaptive calibration error (ACE): every class, over bins of equal mass.

    Where most probabilities are near 0 or 1, bins of equal width put nearly all rows into two of
    them; bins of equal mass follow the predictions.

    Parameters
    ----------
    n_bins : int, default=15
        Number of bins ≥ 1, each with about n_samples / n_bins rows.
    y_true, y_prob, sample_weight, labels, pos_label : optional
        As in `expected_calibration_error`.

    Returns
    -------
    float
        Error in [0, 1]; 0 is best.

    Notes
    -----
    ACE = (1/K) Σ_k Σ_r (n_rk/n) |acc(r, k) - conf(r, k)| (Nixon et al. 2019, who weight by 1/R, the
    same where the R ranges are equal). Range r ends at the probability up to which the mass is
    nearest to r/R. Rows of equal probability share a range, whatever their order.

    Examples
    --------
    >>> from skdp.metrics import adaptive_calibration_error
    >>> print(f"{adaptive_calibration_error([0, 1, 1, 0], [0.1, 0.9, 0.7, 0.6], n_bins=2):.3f}")
    0.275
    """
    predictions = check_predictions(y_true, y_prob, sample_weight, labels, pos_label)
    return _mean_over_classes(predictions, n_bins, "quantile")


def _mean_over_classes(predictions: Predictions, n_bins: int, strategy: str) -> float:
    errors = [
        tabulate(class_outcomes(predictions, k), n_bins, strategy).calibration_error
        for k in range(len(predictions.classes))
    ]
    return float(np.mean(errors))
