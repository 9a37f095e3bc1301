"""What estimators around a model share: whether it is frozen, and its own plan."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import replace
from typing import Any

from sklearn.base import MetaEstimatorMixin
from sklearn.frozen import FrozenEstimator

from skdp.fitting.estimator import PrivateEstimator
from skdp.fitting.plan import FitPlan, PublicFacts
from skdp.fitting.reading import ProtectedUnit


class AroundModel(MetaEstimatorMixin, ProtectedUnit, PrivateEstimator):
    """Base of what fits a model, or keeps a frozen one, before its own release."""

    estimator: Any

    @property
    def _is_frozen(self) -> bool:
        return isinstance(self.estimator, FrozenEstimator)

    @property
    def _inner(self) -> Any:
        """The model itself, frozen or not."""
        return self.estimator.estimator if self._is_frozen else self.estimator

    @property
    def _declared(self) -> Any:
        """Classes that the model declares or, frozen, has."""
        return getattr(self._inner, "classes_" if self._is_frozen else "classes", None)

    def _n_outputs(self, classes: Sized | None) -> int | None:
        declared = getattr(self._inner, "classes", None) if classes is None else classes
        return None if declared is None else len(declared)

    def _with_model(self, facts: PublicFacts, model: Any, n: int | None) -> FitPlan:
        """Plan of both, where the model is private and fitted here on n records."""
        plan = super()._planned(facts)
        if self._is_frozen or not isinstance(self._inner, PrivateEstimator):
            return plan
        classes = None if facts.n_outputs is None else range(facts.n_outputs)
        # Where n is private the model declares its own, as its fit will ask for.
        n = n if self._relation.n_is_public else None
        return replace(plan, parts={"estimator": model().plan(n, facts.n_features, classes)})
