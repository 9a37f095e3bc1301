"""What variational estimators of linear models share: parameters, plan, posterior and draws."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skdp.algorithms import dp_vi, gaussian_vi
from skdp.algorithms.gaussian_posterior import GaussianPosterior
from skdp.algorithms.noise_aware.design import Design
from skdp.algorithms.noise_aware.glm import GLMConfig
from skdp.algorithms.noise_aware.standardised import InUnits, bounded
from skdp.estimators._arviz import GaussianDraws
from skdp.estimators._bounds import (
    PRIVATE,
    DeclaresBounds,
    beyond_bounds,
    blocks_of_labels,
    glm_of,
    in_bounds,
    is_robust,
    norm_kept,
    norm_of,
    unwrapped,
)
from skdp.estimators._doubts import BOUNDS_GIVEN, NOISE_OF_LINES, of_noise, of_posterior
from skdp.estimators._weights import WeightedClasses, WeightedRows
from skdp.fitting.declared import encode_labels, n_classes, sampling_rate
from skdp.fitting.estimator import PrivateEstimator
from skdp.fitting.input import check_features, check_features_and_labels
from skdp.fitting.plan import FitPlan, PublicFacts
from skdp.fitting.reading import ProtectedUnit, Records
from skdp.fitting.scores import AccuracyMixin
from skdp.fitting.validate import (
    expected,
    flag,
    integer,
    integer_or_auto,
    is_true,
    near_auto,
    number_or_auto,
    one_of,
)
from skdp.inspection import SummaryMixin
from skdp.models.likelihoods import BoundedScores, Likelihood, classification_likelihood
from skdp.rows.clipping import clipped_rows, row_bound

if TYPE_CHECKING:
    from skdp.privacy.budget import Budget

NOISE_AWARE, DPVI = "noise_aware", "dpvi"
COVARIANCES = ("auto", "full", "diag")
GRADIENTS = ("aligned", "vanilla")
ENTRIES_AT_ONCE, LEAST_AT_ONCE = 2**17, 2**10  # of a prediction, and rows
MANY_ROWS, MANY_TARGETS = 0.2, 0.01  # shares that were cut, from which on a fit says so
LOUD = 4.0  # standard deviations of noise beyond which a count is more than that
MANY_PARAMETERS = 1000  # beyond which a full covariance is not the default
MOST_PRODUCTS = 2 * 10**10  # n·P² of a pass of Newton's method, beyond which steps are cheaper

Config = dp_vi.DPVIConfig | gaussian_vi.GaussianVIConfig | GLMConfig


class LinearClassifier(AccuracyMixin, PrivateEstimator):
    """Classes by the logits of a linear model: one logit for two of them, else softmax."""

    classes: Any
    _ratio: ClassVar[str] = "odds"

    def _n_outputs(self, classes: Any) -> int | None:
        return n_classes(self, classes)

    def _likelihood_of(self, facts: PublicFacts) -> Likelihood:
        return classification_likelihood(facts.outputs)

    def _read(self, X: Any, y: Any) -> tuple[Records, PublicFacts]:
        X, y = self._checked(X, y)
        self.classes_, codes = encode_labels(y, self.classes, type(self).__name__)
        likelihood = classification_likelihood(len(self.classes_))
        return Records(X, likelihood.targets(codes)), self._facts_of(X, len(self.classes_))

    def _checked(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        """Rows and labels of a fit."""
        return check_features_and_labels(
            self, X, y, declared=self.classes is not None, sparse=self._takes_sparse
        )

    def _labels(self) -> list[Any]:
        return list(self.classes_)

    def predict_proba(self, X) -> np.ndarray:
        """Class probabilities, shape (n, n_classes)."""
        raise NotImplementedError

    def predict_log_proba(self, X) -> np.ndarray:
        """Logarithm of `predict_proba`, shape (n, n_classes)."""
        return np.log(np.maximum(self.predict_proba(X), np.finfo(float).tiny))

    def decision_function(self, X) -> np.ndarray:
        """Log-odds of the predictive (two classes, shape (n,)) or its log-probabilities."""
        log_proba = self.predict_log_proba(X)
        return log_proba[:, 1] - log_proba[:, 0] if len(self.classes_) == 2 else log_proba

    def predict(self, X) -> np.ndarray:
        """Most probable class of each row, shape (n,)."""
        most_probable = self.predict_proba(X).argmax(axis=1)
        return self.classes_[most_probable]


class NormalPosterior(DeclaresBounds, GaussianDraws, ProtectedUnit, WeightedRows):
    """A linear model whose posterior of the coefficients is normal.

    A subclass has these as parameters, or has no choice of them.
    """

    inference: str = NOISE_AWARE
    prior_scale: float | str = "auto"
    prior_blocks: Any = None
    robust: bool | str = "auto"
    covariance: str = "auto"
    gradient: str = "aligned"
    data_norm: float | str = "auto"
    fit_intercept: bool = True
    max_iter: int | str = "auto"
    batch_size: int | str = "auto"
    sampling_rate: float | None = None
    clip_norm: float | str = "auto"
    learning_rate: float | str = "auto"
    secure: bool = False

    # What the noise-aware inference has no use for, with the defaults.
    _OF_DPVI: ClassVar[dict[str, Any]] = {
        "batch_size": "auto", "sampling_rate": None, "learning_rate": "auto", "gradient": "aligned",
    }  # fmt: skip
    # What DPVI has no use for, with the defaults.
    _OF_NOISE_AWARE: ClassVar[dict[str, Any]] = {"prior_blocks": None, "robust": "auto"}

    def _likelihood_of(self, facts: PublicFacts) -> BoundedScores:
        """Likelihood of the model."""
        raise NotImplementedError

    def _configure(self, facts: PublicFacts, budget: Budget) -> Any:
        one_of((NOISE_AWARE, DPVI), inference=self.inference)
        one_of(COVARIANCES, covariance=self.covariance)
        one_of(GRADIENTS, gradient=self.gradient)
        flag(fit_intercept=self.fit_intercept)
        check_secure(self.secure, budget)
        check_sparse(facts, self.secure)
        if self.inference == NOISE_AWARE:
            self._check_unused(
                self._OF_DPVI,
                "the noise-aware inference has no such setting: use inference='dpvi' for it",
            )
        if self._takes_bounds and self.bounds is not None:
            return in_bounds(self, facts, budget, self._of_columns)
        return self._of_columns(facts, budget)

    def _of_columns(self, facts: PublicFacts, budget: Budget) -> Config:
        """Plan a fit to columns as they are."""
        if self.inference == NOISE_AWARE and budget.private:
            norm, intercept = norm_of(self, facts), bool(self.fit_intercept)
            design = Design.alike(facts.features, intercept, norm)
            return glm_of(self, facts, budget, design=design)
        return self._optimum(facts) or self._dpvi(facts, budget)

    def _check_unused(self, settings: dict[str, Any], remedy: str) -> None:
        """Refuse settings of the other inference, which this one would ignore."""
        for name, default in settings.items():
            value = getattr(self, name)
            if type(value) is not type(default) or value != default:
                raise expected(repr(default), remedy, **{name: value})

    def _given_prior_scale(self, bound: float, n_outputs: int) -> float | None:
        """τ; None where it is to be inferred."""
        if n_outputs == 1 and isinstance(self.prior_scale, str) and self.prior_scale == "auto":
            return None
        default = gaussian_vi.default_prior_scale(bound, n_outputs)
        return near_auto(default, prior_scale=self.prior_scale)

    def _prior_blocks(self, facts: PublicFacts) -> tuple[int, ...] | None:
        return blocks_of_labels(self, facts, self._likelihood_of(facts).n_outputs)

    def _check_robust(self, facts: PublicFacts) -> bool:
        likelihood = self._likelihood_of(facts)
        counts = self._takes_bounds and likelihood.largest_target < math.inf
        by_default = counts or facts.persons is not None
        return is_robust(self, likelihood.n_outputs, by_default=by_default)

    def _dpvi(self, facts: PublicFacts, budget: Budget) -> dp_vi.DPVIConfig:
        self._check_unused(
            self._OF_NOISE_AWARE,
            "stochastic steps have no such setting: use inference='noise_aware', and without "
            "privacy leave covariance, clip_norm and max_iter at 'auto'",
        )
        private, likelihood = budget.private, self._likelihood_of(facts)
        n, D = facts.rows, self._n_columns(facts)
        data_norm = norm_of(self, facts)
        R = row_bound(data_norm, self.fit_intercept)
        filled = min(D, dp_vi.FILLED) if facts.sparse else D
        rate = sampling_rate(self, facts, lambda n: dp_vi.default_sampling_rate(n, filled))
        default_clip_norm = dp_vi.default_clip_norm(likelihood.residual_bound * R, private=private)
        prior_scale = near_auto(dp_vi.default_prior_scale(R), prior_scale=self.prior_scale)
        covariance = self.covariance
        if covariance == "auto":
            few = likelihood.n_outputs * D <= MANY_PARAMETERS
            covariance = "full" if self.inference == NOISE_AWARE and few else "diag"
        return dp_vi.DPVIConfig(
            likelihood=likelihood,
            n_rows=n,
            n_features=facts.features,
            fit_intercept=bool(self.fit_intercept),
            data_norm=data_norm,
            n_steps=integer_or_auto(
                dp_vi.default_steps(round(rate * n), D, private=private), max_iter=self.max_iter
            ),
            sampling_rate=rate,
            clip_norm=near_auto(default_clip_norm, clip_norm=self.clip_norm),
            prior_scale=prior_scale,
            initial_scale=dp_vi.default_initial_scale(n, D, R, prior_scale),
            given_learning_rate=number_or_auto(0.0, learning_rate=self.learning_rate) or None,
            covariance=covariance,
            gradient=self.gradient,
            sparse=facts.sparse,
            neighboring_relation=self._relation,
            secure=bool(self.secure),
            persons=facts.persons,
            weight_bound=self._weight_bound(facts),
        ).calibrated(budget)

    def _optimum(self, facts: PublicFacts) -> gaussian_vi.GaussianVIConfig | None:
        """Without privacy, Newton's method where nothing asks for steps and its matrices are small.

        None where the stochastic steps of DPVI have to do.
        """
        likelihood, given = self._likelihood_of(facts), (self.clip_norm, self.max_iter)
        P = likelihood.n_outputs * self._n_columns(facts)
        small = P <= MANY_PARAMETERS and facts.rows * P**2 <= MOST_PRODUCTS
        if self.inference == DPVI or self.covariance == "diag" or facts.sparse or not small:
            return None
        if given != ("auto", "auto"):
            return None
        data_norm = norm_of(self, facts)
        bound = row_bound(data_norm, self.fit_intercept)
        return gaussian_vi.GaussianVIConfig(
            likelihood=likelihood,
            n_rows=facts.rows,
            n_features=facts.features,
            fit_intercept=bool(self.fit_intercept),
            data_norm=data_norm,
            prior_scale=self._given_prior_scale(bound, likelihood.n_outputs),
            prior_blocks=self._prior_blocks(facts),
            robust=self._check_robust(facts),
            neighboring_relation=self._relation,
            persons=facts.persons,
            weight_bound=self._weight_bound(facts),
        )

    def _n_columns(self, facts: PublicFacts) -> int:
        return facts.features + bool(self.fit_intercept)

    def _keep(self, plan: FitPlan, released: Any) -> None:
        self.data_norm_ = norm_kept(self, plan)
        plan, released = unwrapped(self, plan, released)
        config: Config = plan.config
        self._likelihood, self._posterior = plan.config.likelihood, released
        self.coef_ = released.mean[:, : config.n_features].copy()
        self.intercept_ = np.zeros(len(released.mean))
        if config.fit_intercept:
            self.intercept_ = released.mean[:, -1].copy()
        self.n_iter_ = config.n_steps
        self.noise_multiplier_ = config.noise_multiplier
        self.clip_norm_ = config.clip_norm
        found = released.prior_scales
        if config.prior_scale is not None or found is None:
            found = np.full((3, 1), config.prior_scale)
        self.prior_scale_, self.prior_scale_interval_ = told_scales(found)
        self.sampling_rate_ = config.sampling.rate

    def _diagnosed(self, plan: FitPlan, released: Any) -> tuple[str, ...]:
        doubts = beyond_bounds(plan, released)
        scaled = isinstance(released, InUnits)
        if scaled:
            plan, released = replace(plan, config=plan.config.fit), released.standard
        most = plan.config.likelihood.largest_target
        if isinstance(plan.config, GLMConfig):
            doubts += of_posterior(plan, released, float(np.max(self.prior_scale_)))
        elif isinstance(plan.config, dp_vi.DPVIConfig):
            doubts += of_noise(plan.config.noise_share, "fewer features", NOISE_OF_LINES)
        return doubts + cut_records(
            plan,
            released,
            f"counts are above largest_count={most:g} and were cut to it, so that large rates are "
            "underestimated: declare a larger one",
            of_rows=not scaled,
        )

    def _labels(self) -> list[Any]:
        """Names of the outputs where there is more than one."""
        return []

    @property
    def parameter_names_(self) -> list[str]:
        """Names of the columns of `sample_posterior`: the outputs in turn, intercept last."""
        check_is_fitted(self)
        K, D = self._posterior.mean.shape
        return linear_names(self, K, D, self._labels())

    def _fitted_parts(self, X: Any) -> Iterator[np.ndarray]:
        """Rows to predict, some at a time, with the intercept's 1 if the fit had one."""
        return fitted_parts(self, X, self._posterior.mean.shape[1], sparse=self._takes_sparse)

    def _logits(self, X) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean (n, K) and covariance (n, K, K)."""
        check_is_fitted(self)
        return logits_of(self._posterior, self._fitted_parts(X))

    def _logit_draws(self, X, n_samples: int, random_state: Any) -> np.ndarray:
        """(n_samples, n, K)."""
        check_is_fitted(self)
        integer(1, n_samples=n_samples)
        draws = self._posterior.sample_seen(n_samples, check_random_state(random_state))
        K, D = self._posterior.mean.shape
        weights = draws.reshape(n_samples * K, D).T
        logits = np.concatenate([rows @ weights for rows in self._fitted_parts(X)])
        return logits.reshape(-1, n_samples, K).transpose(1, 0, 2)


class NormalClassifier(WeightedClasses, LinearClassifier, NormalPosterior):
    """Classes by a linear model whose posterior is normal."""

    def __sklearn_tags__(self) -> Any:
        """Robust widths are of two classes."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = not is_true(self.robust)
        return tags

    def _codes_of(self, records: Records) -> np.ndarray:
        targets = records.targets
        return targets.argmax(axis=1) if targets.shape[1] > 1 else targets[:, 0].astype(int)

    def predict_proba(self, X) -> np.ndarray:
        """Class probabilities, averaged over the posterior.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Rows, as in `fit`.

        Returns
        -------
        ndarray of shape (n, n_classes)
            Each row sums to 1.
        """
        logits = self._logits(X)
        return self._likelihood.predictive(*logits)

    def sample_predictive(self, X, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Class probabilities under each of several posterior draws; this costs no privacy.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Rows, as in `fit`.
        n_samples : int, default=1
            Number of draws ≥ 1.
        random_state : int, RandomState instance or None, default=None
            Seed of the draws.

        Returns
        -------
        ndarray of shape (n_samples, n, n_classes)
            Their mean over draws approaches `predict_proba`.
        """
        draws = self._logit_draws(X, n_samples, random_state)
        return self._likelihood.probabilities(draws)


@dataclass(eq=False, repr=False)
class VariationalLinearModel(SummaryMixin, NormalPosterior):
    """A linear model of the columns as they are.

    Parameters
    ----------
    inference : {"noise_aware", "dpvi"}, default="noise_aware"
        ``"noise_aware"`` is the posterior given the noisy releases. ``"dpvi"`` is DPVI as
        published: faster on many parameters, works on Poisson batches, and its posterior ignores
        the noise: too narrow where ε is small. Without privacy there is no noise to account for,
        and both are the ordinary variational posterior.
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
    learning_rate : float or "auto", default="auto"
        With ``"dpvi"``: step size > 0 of the noise-corrected Adam rule, in the units of the
        coefficients. ``"auto"`` follows the public ratio of data to noise.
    noise_multiplier : float or None, default=None
        Standard deviation > 0 of a gradient's noise over ``clip_norm``, instead of ``epsilon``
        (pass ``epsilon=None``); the report then accounts for what was spent.

    Attributes
    ----------
    intercept_ : ndarray
        Posterior mean of the intercepts; zero without ``fit_intercept``.
    covariance_ : ndarray of shape (n_parameters, n_parameters)
        Posterior covariance, in the order of ``parameter_names_``.
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
    """

    _takes_sparse: ClassVar[bool] = True
    _takes_bounds: ClassVar[bool] = True
    _declared_by: ClassVar[str] = BOUNDS_GIVEN

    epsilon: float | None = 1.0
    delta: float = 1e-5
    _: KW_ONLY
    inference: str = NOISE_AWARE
    neighboring_relation: str = "zero_out"
    prior_scale: float | str = "auto"
    prior_blocks: Any = None
    robust: bool | str = "auto"
    covariance: str = "auto"
    gradient: str = "aligned"
    bounds: Any = None
    standardize: str | bool = PRIVATE
    data_norm: float | str = "auto"
    fit_intercept: bool = True
    max_iter: int | str = "auto"
    batch_size: int | str = "auto"
    sampling_rate: float | None = None
    clip_norm: float | str = "auto"
    learning_rate: float | str = "auto"
    noise_multiplier: float | None = None
    accountant: str = "auto"
    secure: bool = False
    n_samples: int | None = None
    random_state: Any = None
    verbose: int = 0


def told_scales(found: np.ndarray) -> tuple[Any, tuple[Any, Any]]:
    """Medians and intervals of prior scales from percentiles (3, blocks), numbers if one block."""
    low, median, high = found if found.shape[1] > 1 else found[:, 0]
    return median, (low, high)


def check_sparse(facts: PublicFacts, secure: bool) -> None:
    """Refuse what sparse rows are not taken with."""
    if facts.sparse and (facts.persons is not None or secure):
        raise ValueError(
            "Expected dense rows with persons or secure=True, got a sparse X: use X.toarray()."
        )


def fitted_parts(estimator: Any, X: Any, n_columns: int, *, sparse: bool = False) -> Iterator[Any]:
    """Check rows to predict, clip them as in the fit and append the intercept's 1 if it had one.

    Yields some rows at a time, column by column, which is quickest; sparse ones all at once.
    """
    X = check_features(estimator, X, reset=False, sparse=sparse)
    has_intercept = n_columns > estimator.n_features_in_
    bounds = getattr(estimator, "bounds_", None)
    for rows in parts_of(X) if isinstance(X, np.ndarray) else [X]:
        if bounds is not None:
            cut = bounded(rows, bounds.T, estimator.data_norm_)
            yield np.hstack([cut, np.ones((len(cut), int(has_intercept)))])
            continue
        yield clipped_rows(rows, estimator.data_norm_, fit_intercept=has_intercept, by_column=True)


def parts_of(rows: np.ndarray) -> Iterator[np.ndarray]:
    """Some rows at a time, so that what is computed from them stays in the cache."""
    size = max(LEAST_AT_ONCE, ENTRIES_AT_ONCE // max(rows.shape[1], 1))
    return (rows[start : start + size] for start in range(0, len(rows), size))


def logits_of(
    posterior: GaussianPosterior, parts: Iterable[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Mean (n, K) and covariance (n, K, K) of the logits of rows that come in parts."""
    means, covariances = zip(*map(posterior.logits, parts), strict=True)
    return np.concatenate(means), np.concatenate(covariances)


def linear_names(estimator: Any, K: int, D: int, labels: list[Any]) -> list[str]:
    """Names of the parameters of a linear model: the outputs in turn, intercept last."""
    features = getattr(estimator, "feature_names_in_", None)
    if features is None:
        features = [f"x{i}" for i in range(estimator.n_features_in_)]
    names = [*features, "intercept"][:D]
    return names if K == 1 else [f"{label}: {name}" for label in labels for name in names]


def cut_records(
    plan: FitPlan, released: GaussianPosterior, of_targets: str, *, of_rows: bool = True
) -> tuple[str, ...]:
    """Say which share of the features, or of the targets, was cut, and if rows are far too short.

    Parameters
    ----------
    plan : FitPlan
        Of the fit; its last release is of these counts.
    released : GaussianPosterior
        With the noisy counts.
    of_targets : str
        What is said of targets, after their share.
    of_rows : bool, default=True
        Whether the norm of rows is something that the caller declared.
    """
    outside = released.outside
    if outside is None:
        return ()
    config, declared = plan.config, plan.facts.declared_norm
    n = (released.n_counted or config.n_rows) * config.sampling.rate
    loud, shares = outside >= LOUD * config.count_noise, np.minimum(outside / n, 1.0)
    messages = []
    if (
        of_rows
        and loud[0]
        and shares[0] >= MANY_ROWS
        and not (declared and declared <= config.data_norm)
    ):
        messages.append(
            f"About {shares[0]:.0%} of the rows are longer than data_norm={config.data_norm:.3g} "
            "and were scaled down to it, so that their features no longer mean what they did: "
            "scale them before, e.g. by BoundedScaler with public bounds, or give a larger "
            "data_norm."
        )
    if of_rows and released.short_rows is not None:
        messages.append(
            f"Rows are far shorter than data_norm={config.data_norm:.3g}, of norm "
            f"{released.short_rows:.2g} or so: the noise and the prior follow data_norm, so that "
            "little or nothing was learned. Scale the features to [-1, 1], or declare a smaller "
            "data_norm; or fewer rows took part than n_samples."
        )
    if len(shares) > 1 and loud[1] and shares[1] >= MANY_TARGETS:
        messages.append(f"About {shares[1]:.0%} of the {of_targets}.")
    return tuple(messages)


def check_secure(secure: Any, budget: Budget) -> None:
    """Refuse ``secure`` without noise to make secure."""
    if flag(secure=secure) and not budget.private:
        raise expected("False when epsilon is infinite", "there is no noise then", secure=True)
