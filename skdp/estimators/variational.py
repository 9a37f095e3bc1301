"""`DPVariationalLogisticRegression`: Bayesian logistic regression, differentially private."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

from skdp.estimators._documented import documented
from skdp.estimators._linear import NormalClassifier, VariationalLinearModel


@documented
@dataclass(eq=False, repr=False)
class DPVariationalLogisticRegression(NormalClassifier, VariationalLinearModel):
    """Bayesian logistic regression by differentially private variational inference.

    Approximates the posterior of the coefficients under a Gaussian prior N(0, prior_scale² I) by a
    Gaussian. By default that posterior is *noise-aware*: it is the posterior given what was
    released, and on data that the model and the prior describe its intervals cover the truth at
    close to the nominal rate. As ε falls it widens and returns to the prior; as ε grows it becomes
    the ordinary posterior. Two classes take one logit, more take softmax.

    Parameters
    ----------
    prior_scale : float or "auto", default="auto"
        Standard deviation > 0 of a normal prior of every coefficient. ``"auto"`` infers the scales
        of a prior with heavy tails from the same releases: of at most 400 columns effects of a
        deviation have a half-Cauchy scale of 1.5/√n_features, see the module
        `skdp.algorithms.noise_aware.prior`. With R = √(data_norm² + 1), or data_norm without
        intercept, it is 5/R with ``"dpvi"``, and 6/R of more classes and columns.
    prior_blocks : array-like of shape (n_features,) or None, default=None
        A label per feature: features with the same label share a prior scale, which is inferred.
        For two classes, with ``prior_scale="auto"`` and the noise-aware inference. None is one
        block.
    robust : bool or "auto", default="auto"
        Release also how much the records' scores scatter (8 % of the squared GDP budget), and
        report the sandwich covariance: intervals then are of the parameter at which the expected
        score is 0, whether or not the model is true. The score is (y − σ(θ·x))x, weighted so that
        its norm is at most ``clip_norm_`` whatever y is. For two classes and the noise-aware
        inference. ``"auto"`` is False: intervals of persons then take the rows of each to be nearly
        alike.
    clip_norm : float or "auto", default="auto"
        Bound > 0 on the norm of each record's part of a gradient. ``"auto"`` follows the public
        ratio of the DP noise to that of the data; with ``"dpvi"`` it is half the bound that the
        clipped rows imply: R/2 for two classes, √2 R/2 for more.

    Attributes
    ----------
    coef_ : ndarray
        Posterior mean of the coefficients, (1, n_features) for two classes, else (n_classes,
        n_features).

    See Also
    --------
    skdp.preprocessing.BoundedScaler : Scales features by declared bounds, at no privacy cost.

    Notes
    -----
    A noise-aware fit releases the rows' second moments, ``max_iter`` noisy gradients where the run
    has got to, the slope of the gradient where it ends, and the number of rows that were longer
    than ``data_norm``, all under one (epsilon, delta). The posterior is in
    `skdp.algorithms.noise_aware.glm`; that of K classes is along K - 1 contrasts of them, and
    coefficients of the classes add up to 0. Without ``bounds`` nothing is released of each column:
    predictions take columns to spread alike, as the norm of rows says, and intervals do not, so
    that a coefficient of a column whose spread the noise hides has a wide one. Means over
    `sample_predictive` are those of predictions, and `sample_posterior` has the intervals. With
    ``robust=True`` a draw of the scatter of the scores is in the place of what the model says.

    References
    ----------
    J. Jälkö, L. Prediger, A. Honkela, S. Kaski, *DPVIm: Differentially Private Variational
    Inference Improved*, TMLR 2023.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.pipeline import make_pipeline
    >>> from skdp import BoundedScaler, DPVariationalLogisticRegression
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = X[:, :4]  # radius, texture, perimeter, area
    >>> classifier = make_pipeline(
    ...     BoundedScaler(lower=[5, 5, 40, 100], upper=[30, 40, 200, 2500]),
    ...     DPVariationalLogisticRegression(epsilon=1.0, delta=1e-5, classes=[0, 1], n_samples=569),
    ... )
    >>> classifier.fit(X, y).score(X, y) > 0.8
    True
    >>> classifier[-1].privacy_.valid
    True
    """

    _: KW_ONLY
    classes: Any = None
