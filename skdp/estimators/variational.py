"""`DPVariationalLogisticRegression`: Bayesian logistic regression by private variational inference.

>>> import numpy as np
>>> from skdp import DPVariationalLogisticRegression
>>> rng = np.random.default_rng(0)
>>> X = rng.uniform(-1, 1, (1000, 2))
>>> y = rng.random(1000) < 1 / (1 + np.exp(-4 * X[:, 0]))
>>> classifier = DPVariationalLogisticRegression(
...     epsilon=1.0, delta=1e-5, classes=[False, True], n_samples=1000
... ).fit(X, y)
>>> classifier.score(X, y) > 0.75
True
>>> classifier.sample_posterior(100).shape
(100, 3)
>>> print(f"{classifier.privacy_.epsilon:.3f}")
1.000
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

from skdp.estimators._linear import NormalClassifier, VariationalLinearModel


@dataclass(eq=False, repr=False)
class DPVariationalLogisticRegression(NormalClassifier, VariationalLinearModel):
    """Bayesian logistic regression by differentially private variational inference.

    Approximates the posterior of the coefficients under a Gaussian prior N(0, prior_scale² I) by a
    Gaussian. By default that posterior is *noise-aware*: it is the posterior given what was
    released, and on data that the model and the prior describe its intervals cover the truth at
    close to the nominal rate. As ε falls it widens and returns to the prior; as ε grows it becomes
    the ordinary posterior. Two classes take one logit, more take softmax.

    **Privacy.** `fit` is (epsilon, delta)-differentially private under ``neighboring_relation``:
    the coefficients, the posterior, every prediction and every posterior sample together. The
    ``unit`` is a row, or a person with all of its rows. The guarantee covers one fit; each further
    fit on the same rows, a grid search for instance, is a further release. It is conditional on the
    public facts listed in ``privacy_.inferred_public_facts``, is *not* one for a seeded fit, and
    without ``secure`` treats floating-point Gaussian noise as exact.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        ε > 0. ``float("inf")`` is the ordinary, non-private fit. None with ``noise_multiplier``.
    delta : float, default=1e-5
        δ in (0, 1); should be well below 1/n.
    inference : {"noise_aware", "dpvi"}, default="noise_aware"
        ``"noise_aware"`` is the posterior given the noisy releases. ``"dpvi"`` is DPVI as
        published: faster on many parameters, works on Poisson batches, and its posterior ignores
        the noise: too narrow where ε is small. Without privacy there is no noise to account for,
        and both are the ordinary variational posterior.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}, default="zero_out"
        Who is a neighbour. Under ``"add_or_remove_one"`` the number of rows is private and
        ``n_samples`` must be given.
    unit : "row" or Persons, default="row"
        The privacy unit: a row, or a person with all of its rows, given to `fit` as ``groups``;
        see `skdp.Persons`.
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
        inference.
        ``"auto"`` is False, and True with ``unit=Persons(...)`` of two classes and more than 400
        columns. Else intervals of persons take the rows of each to be nearly alike.
    covariance : {"auto", "full", "diag"}, default="auto"
        Of the posterior. ``"diag"`` is mean-field. ``"auto"`` is full when noise-aware, and
        diagonal with ``"dpvi"`` or where a fit without privacy has more than 1000 parameters.
    gradient : {"aligned", "vanilla"}, default="aligned"
        With ``"dpvi"``: ``"vanilla"`` clips and releases the gradients of mean and scale together,
        as first published; ``"aligned"`` derives the second from the first.
    bounds : (float, float), array-like of shape (n_features, 2), dict, Series or None, default=None
        Public bounds of the columns, lower < upper: a pair for all, one for each, or pairs by
        column name. Values are cut to them, in `fit` and in prediction. Rows may then be in any
        units: coefficients, draws and summary are in those of X. A column within (0, 1) is taken
        for an indicator of a category. None takes columns as they are, in [-1, 1] or so. A count of
        the rows that were cut is released, and a large one is a `FitWarning`.
    standardize : {"private", False}, default="private"
        With ``bounds``: ``"private"`` releases where the values of each column lie and how far they
        spread (6 to 56 % of the squared GDP budget, the less the more rows and ε there are), and
        the model is of columns of mean 0 and deviation 1: its prior scale is of these, and bounds
        that are far too wide cost little. Without an
        intercept columns are divided by their root mean square alone. False scales columns by
        their bounds to [-1, 1], as does a fit without privacy.
    data_norm : float or "auto", default="auto"
        Euclidean norm > 0 to which the features of each row are clipped, in `fit` and in
        prediction. A public bound, never checked against the data. ``"auto"`` is √n_features, right
        for features in [-1, 1] as `BoundedScaler` gives, or in a pipeline the norm that the step
        before declares, as `NormClipper` does.
    fit_intercept : bool, default=True
        Append a 1 to each row.
    max_iter : int or "auto", default="auto"
        Number of noisy gradients. ``"auto"`` is 15, or 20 of several classes and with exposures;
        with ``"dpvi"`` 150, or 72 where rows x columns exceed 1e6. Without privacy it is Newton's
        method, in at most 200 passes over the rows, and a number takes so many stochastic steps
        instead.
    batch_size : int or "auto", default="auto"
        With ``"dpvi"``: expected number of rows in a Poisson batch. ``"auto"`` reads all rows in
        each step while rows x columns is at most 1e8.
    sampling_rate : float or None, default=None
        With ``"dpvi"``: Poisson sampling rate in (0, 1], instead of ``batch_size``.
    clip_norm : float or "auto", default="auto"
        Bound > 0 on the norm of each record's part of a gradient. ``"auto"`` follows the public
        ratio of the DP noise to that of the data; with ``"dpvi"`` it is half the bound that the
        clipped rows imply: R/2 for two classes, √2 R/2 for more.
    learning_rate : float or "auto", default="auto"
        With ``"dpvi"``: step size > 0 of the noise-corrected Adam rule, in the units of the
        coefficients. ``"auto"`` follows the public ratio of data to noise.
    noise_multiplier : float or None, default=None
        Standard deviation > 0 of a gradient's noise over ``clip_norm``, instead of ``epsilon``
        (pass ``epsilon=None``); the report then accounts for what was spent.
    accountant : {"auto", "gdp", "pld", "rdp"}, default="auto"
        See `skdp.privacy.epsilon`.
    classes : array-like of shape (n_classes,) or None, default=None
        The class labels, as a declared public fact. None reads them from y and says so in the
        report.
    class_weight : dict or None, default=None
        Public weights ≥ 0 of classes, 1 for those that are not named; each row's clipped terms are
        multiplied by that of its class. The noise is for the largest, so it gives balance at
        the cost of noise. ``"balanced"`` is refused: the shares of classes are private.
    max_sample_weight : float, default=1.0
        Public bound > 0 of ``sample_weight``; the noise is for rows of this weight.
    secure : bool, default=False
        Round each record's share to a grid, sum integers exactly and add exact discrete Gaussian
        noise: the guarantee then no longer treats floating-point sums and noise as exact. Full
        batches only; slower, and as accurate. See docs/privacy.md, section 8.
    n_samples : int or None, default=None
        Public number of rows, from which rates and step sizes are computed. None reads it from X
        and says so in the report. Where it is public, below half and above three times that of X
        are refused.
    random_state : int, RandomState instance or None, default=None
        None keys the noise from the operating system. A seed makes the fit repeatable and its
        guarantee void: the report says ``valid=False``.
    verbose : int, default=0
        Above 0, a progress bar over the steps (needs tqdm). Callbacks of scikit-learn, where the
        version has them, work too: they get the steps and no data.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    coef_ : ndarray
        Posterior mean of the coefficients, (1, n_features) for two classes, else (n_classes,
        n_features).
    intercept_ : ndarray
        Posterior mean of the intercepts; zero without ``fit_intercept``.
    covariance_ : ndarray of shape (n_parameters, n_parameters)
        Posterior covariance, in the order of ``parameter_names_``.
    parameter_names_ : list of str
        Names of the columns of `sample_posterior`.
    n_iter_ : int
        Number of noisy gradients, or of passes at most.
    noise_multiplier_ : float
        Standard deviation of a gradient's noise over the bound on one record.
    clip_norm_, data_norm_, sampling_rate_ : float
        The values used; ``data_norm_`` is infinite where bounds are declared and no norm is.
    bounds_ : ndarray of shape (n_features, 2)
        Bounds of the columns, where they were declared.
    column_scale_ : ndarray of shape (n_features,)
        Deviation of each column, as it was released, or half the width of its bounds.
    prior_scale_ : float or ndarray of shape (n_blocks,)
        The prior scale, or its posterior median where it was inferred, of each block in the order
        in which labels first occur.
    prior_scale_interval_ : tuple of two float or ndarray
        Percentiles 5 and 95 of its posterior; twice the value where it was given.
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
    skdp.preprocessing.BoundedScaler : Scales features by declared bounds, at no privacy cost.

    Notes
    -----
    A noise-aware fit releases the rows' second moments, ``max_iter`` noisy gradients where the run
    has got to, the slope of the gradient where it ends, and the number of rows that were longer
    than ``data_norm``, all under one (epsilon, delta). The posterior is in
    `skdp.algorithms.noise_aware.glm`; that of K classes is along K - 1 contrasts of them, and
    coefficients of the classes add up to 0. Without ``bounds`` nothing is released of each
    column: predictions take columns to spread alike, as the norm of rows says, and intervals do
    not, so that a coefficient of a column whose spread the noise hides has a wide one. Means over
    `sample_predictive` are those of predictions, and `sample_posterior` has the intervals. With
    ``robust=True`` a draw of the scatter of the scores is in the place of what the model says of
    it. More than 400 columns have another inference (`skdp.algorithms.noise_aware_glm`), whose
    intervals are too narrow where columns spread unequally.

    References
    ----------
    J. Jälkö, A. Honkela, O. Dikmen, *Differentially Private Variational Inference for
    Non-conjugate Models*, UAI 2017. J. Jälkö, L. Prediger, A. Honkela, S. Kaski, *DPVIm:
    Differentially Private Variational Inference Improved*, TMLR 2023. T. Kulkarni, J. Jälkö, A.
    Koskela, S. Kaski, A. Honkela, *Differentially Private Bayesian Inference for Generalized Linear
    Models*, ICML 2021.

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
