"""Private recalibration of classifiers."""

from __future__ import annotations

import copy
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils import Tags, get_tags
from sklearn.utils.validation import check_is_fitted

from skdp.algorithms import temperature_scaling as scaling
from skdp.calibration import _around
from skdp.fitting import charge
from skdp.fitting.charge import all_or_nothing, charged
from skdp.fitting.declared import encode_labels
from skdp.fitting.estimator import PrivateEstimator
from skdp.fitting.input import check_features_and_labels
from skdp.fitting.plan import FitPlan, PublicFacts
from skdp.fitting.reading import Records, by_person, check_groups, check_in_chunks, looked_at
from skdp.fitting.scores import AccuracyMixin
from skdp.fitting.types import ArrayLike, Estimator, Opaque, Seed
from skdp.fitting.validate import expected, integer_or_auto, one_of
from skdp.privacy.budget import Budget
from skdp.privacy.cover import BudgetExceededError
from skdp.privacy.report import PrivacyReport
from skdp.relations import other_relation
from skdp.rows.chunks import ArrayInChunks

_IN_A_PIPELINE = (
    "steps without `privacy_` may have learned from private rows; calibrate the last step inside "
    "of the pipeline instead: make_pipeline(..., DPTemperatureScaler(classifier))"
)


@dataclass(eq=False, repr=False)
class DPTemperatureScaler(AccuracyMixin, _around.AroundModel):
    """Makes the probabilities of a private classifier calibrated, privately.

    Clipping and noise leave classifiers overconfident or underconfident. One number corrects most
    of it: log-probabilities are divided by a temperature, fitted by noisy gradient
    descent. Predicted classes stay as they are.

    **Privacy.** The temperature is (epsilon, delta)-differentially private under
    ``neighboring_relation``, given the classifier; ``privacy_`` states the composition of both, as
    for rows that both have seen: a tenth of ε for the temperature costs the classifier about a
    hundredth of its noise variance. Of rows that the classifier has *not* seen the larger of
    ``temperature_privacy_`` and its own ``privacy_`` holds (for a split that was made without
    looking at the data). Conditional on the public facts in the report, void for a seeded fit, and
    floating-point arithmetic is treated as exact.

    Parameters
    ----------
    estimator : classifier
        With `predict_proba`, and ``privacy_`` when fitted. It is cloned and fitted on the same
        rows; ``FrozenEstimator(classifier)`` keeps a classifier that has been fitted.
    epsilon : float or None, default=0.1
        ε > 0 of the temperature alone. ``float("inf")`` for no privacy; None with
        ``noise_multiplier``.
    delta : float, default=1e-5
        δ in (0, 1) at which ``privacy_`` is stated, if that of the classifier is not larger.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}, default="zero_out"
        Who is a neighbour; that of the classifier.
    unit : optional
        As of `DPSGDClassifier`.
    target : {"accuracy", "log_loss"}, default="accuracy"
        Make the mean confidence equal to the accuracy (Luo et al. 2020), or the log-loss small
        (Zhang et al. 2022). The second needs each row's pull to be clipped, which leaves the
        classifier too sure, and has more noise: it is for many rows.
    max_iter : int or "auto", default="auto"
        Number of noisy steps on all rows; ``"auto"`` is 30, and 200 without privacy.
    noise_multiplier : float or None, default=None
        Instead of ``epsilon``.
    accountant : {"auto", "gdp", "pld", "rdp"}, default="auto"
        See `skdp.privacy.epsilon`.
    n_samples : int or None, default=None
        Public number of rows. None reads it from X and says so in the report. Where it is public,
        below half and above three times that of X are refused.
    random_state : int, RandomState instance or None, default=None
        None keys the noise from the operating system. A seed makes the fit repeatable and its
        guarantee void.

    Attributes
    ----------
    estimator_ : classifier
        The fitted classifier.
    temperature_ : float
        T in [1/20, 20]; above 1 the classifier was too sure of itself.
    privacy_, temperature_privacy_ : PrivacyReport
        Statement of classifier and temperature together, and of the temperature alone.
    noise_multiplier_, n_iter_ : float and int
        The value used, and the number of noisy steps taken.
    classes_, n_features_in_, feature_names_in_
        Class labels, number of features, and their names, where X had any.

    Notes
    -----
    With ``unit=Persons(...)`` the slopes of a person's rows add up, and their sum is clipped to
    ``clip`` times the bound on one. The classifier must protect persons too.

    References
    ----------
    H. Zhang, X. Li, P. Sen, S. Roukos, T. Hashimoto, *A Closer Look at the Calibration of
    Differentially Private Learners*, 2022 (arXiv:2210.08248). R. Luo et al., *Privacy Preserving
    Recalibration under Domain Shift*, 2020 (arXiv:2008.09643).

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.pipeline import make_pipeline
    >>> from skdp import BoundedScaler, DPSGDClassifier
    >>> from skdp.calibration import DPTemperatureScaler
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = DPTemperatureScaler(DPSGDClassifier(2.0, classes=[0, 1], n_samples=569))
    >>> model = make_pipeline(BoundedScaler(lower=0, upper=5000), model.set_params(n_samples=569))
    >>> model.fit(X, y).predict_proba(X).shape
    (569, 2)
    """

    estimator: Estimator
    _: KW_ONLY
    epsilon: float | None = 0.1
    delta: float = 1e-5
    neighboring_relation: str = "zero_out"
    target: str = "accuracy"
    max_iter: int | str = "auto"
    noise_multiplier: float | None = None
    accountant: str = "auto"
    n_samples: int | None = None
    random_state: Seed = None

    def fit(self, X, y, groups=None) -> DPTemperatureScaler:
        """Fit the classifier, unless it is frozen, and then the temperature.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, or records of any shape that the classifier's ``module`` takes.
        y : array-like of shape (n_samples,)
            Class labels.
        groups : array-like of shape (n_samples,) or None, default=None
            With ``unit=Persons(...)``: the person whose row it is, as any label. The classifier is
            fitted with them too.

        Returns
        -------
        DPTemperatureScaler

        Raises
        ------
        ValueError
            If a parameter or the input is invalid, or the classifier does not state its privacy.
        BudgetExceededError
            If an open `PrivacyLedger` refuses one of the two.
        """
        with all_or_nothing(self):
            check_groups(self, groups)
            records, facts = looked_at(self, X, y)
            chosen = records._replace(X=np.arange(len(records.X)))
            if facts.persons is not None:
                chosen = by_person(self, chosen, groups, facts.persons)
            plan = self._plan(facts)
            if isinstance(records.X, ArrayInChunks):
                check_in_chunks(self, plan, records.X)
            # A copy, because a frozen classifier is shared: training it on would change what is
            # predicted here, and not what is stated.
            estimator: Any = clone(self.estimator)
            whose = {} if groups is None else {"groups": groups}
            before = estimator.fit(X, y, **whose)
            fitted = self.estimator_ = copy.deepcopy(before)
            self._check_statement(fitted)
            self.classes_, codes = encode_labels(chosen.targets, fitted.classes_, facts.label)
            self.temperature_privacy_ = self._charge(plan, (X, y), groups)
            # Not of the copy: `privacy_of` knows releases apart.
            self.privacy_ = before.privacy_ + self.temperature_privacy_
            proba = fitted.predict_proba(X) if len(records.X) else np.empty((0, facts.outputs))
            log_p = np.log(np.maximum(proba, np.finfo(float).tiny))[chosen.X]
            rows = Records(scaling.bounded(log_p), codes, chosen.starts)
            streams = charge.streams(self, *Records(codes, log_p, chosen.starts).arrays)
            self.temperature_ = plan.config.run(rows, streams)
            self.noise_multiplier_ = plan.config.noise_multiplier
            self.n_iter_ = plan.config.n_steps
        return self

    def _charge(self, plan: FitPlan, rows: tuple[Any, ...], groups: Any) -> PrivacyReport:
        try:
            return charged(self, plan, rows, groups=groups)
        except BudgetExceededError as refusal:
            if self._is_frozen:
                raise
            raise BudgetExceededError(
                f"{refusal} This concerns the temperature: the classifier was fitted before and "
                "stays charged. Fit it first and pass FrozenEstimator(classifier)."
            ) from None

    def _read(self, X: Any, y: ArrayLike) -> tuple[Records, PublicFacts]:
        """Check all that can be checked before the classifier spends anything."""
        inner, declared = self._inner, self._declared
        if isinstance(inner, Pipeline) or not hasattr(inner, "predict_proba"):
            remedy = _IN_A_PIPELINE if isinstance(inner, Pipeline) else ""
            raise expected("a classifier with predict_proba", remedy, estimator=self.estimator)
        # Rows are checked, and left to the classifier as they are: names of columns and all.
        how = {"dtype": "numeric", "allow_nd": getattr(inner, "module", None) is not None}
        how["declared"] = declared is not None
        checked, labels = check_features_and_labels(self, X, y, **how)
        found, _ = encode_labels(labels, declared, type(inner).__name__)
        if self._is_frozen:
            self._check_statement(inner)
            # A row of zeros: what is wrong with columns and names shows before the charge.
            synthetic = X[:1] * 0 if hasattr(X, "columns") else np.zeros_like(checked[:1])
            inner.predict_proba(synthetic)
        return Records(checked, labels), self._facts_of(checked, len(found))

    def _planned(self, facts: PublicFacts) -> FitPlan:
        inner = self._inner
        relation = getattr(inner, "neighboring_relation", None)
        if isinstance(inner, PrivateEstimator):
            relation = inner._relation
        if self._is_frozen and isinstance(getattr(inner, "privacy_", None), PrivacyReport):
            relation = inner.privacy_.neighboring_relation
        if relation not in (None, self._relation):
            raise other_relation(f"{relation!r} as in the classifier", self._relation)
        return self._with_model(facts, lambda: inner, facts.n_samples)

    def _configure(self, facts: PublicFacts, budget: Budget) -> scaling.TemperatureConfig:
        steps = scaling.N_STEPS if budget.private else scaling.N_STEPS_WITHOUT_NOISE
        return scaling.TemperatureConfig(
            target=one_of(scaling.TARGETS, target=self.target),
            n_rows=facts.rows,
            n_steps=integer_or_auto(steps, max_iter=self.max_iter),
            neighboring_relation=self._relation,
            persons=facts.persons,
        ).calibrated(budget)

    def _check_statement(self, fitted: Opaque) -> None:
        if not isinstance(getattr(fitted, "privacy_", None), PrivacyReport):
            what = "a classifier that states its privacy in privacy_"
            remedy = "nothing is known of what others have learned from private rows"
            raise expected(what, remedy, estimator=self.estimator)

    def predict_log_proba(self, X) -> np.ndarray:
        """Logarithm of `predict_proba`, shape (n, n_classes)."""
        check_is_fitted(self)
        log_p = np.log(np.maximum(self.estimator_.predict_proba(X), np.finfo(float).tiny))
        return scaling.scaled(log_p, self.temperature_)

    def predict_proba(self, X) -> np.ndarray:
        """Class probabilities of each row, shape (n, n_classes)."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X) -> np.ndarray:
        """Most probable class of each row, shape (n,): that of the classifier."""
        check_is_fitted(self)
        return self.estimator_.predict(X)

    def __sklearn_tags__(self) -> Tags:
        """Take input as the classifier does, and one label per row."""
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.input_tags = replace(inner.input_tags, sparse=False)
        if inner.classifier_tags is not None:
            tags.classifier_tags = replace(inner.classifier_tags, multi_label=False)
        return tags
