"""`DPAdditiveClassifier`: private curves, one per feature, with bands."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit

from skdp.estimators._additive import AdditiveModel
from skdp.estimators._curves import Curve, Surface
from skdp.estimators._documented import documented
from skdp.estimators._linear import NormalClassifier
from skdp.fitting.plan import PublicFacts
from skdp.fitting.tables import check_columns_and_labels
from skdp.models.additive import LABELS, Telling

__all__ = ["Curve", "DPAdditiveClassifier", "Surface"]


@documented
@dataclass(eq=False, repr=False)
class DPAdditiveClassifier(AdditiveModel, NormalClassifier):
    """Additive logistic regression: a private curve per feature, with bands.

    The log-odds are an intercept and one curve per column, in bins or levels. The posterior is
    noise-aware, as in `DPVariationalLogisticRegression`.

    Parameters
    ----------
    robust : bool or "auto", default="auto"
        Report the sandwich covariance, for which the scatter of the scores is released too.
        ``"auto"`` is True with ``unit=Persons(...)`` of two classes, and False else.

    Attributes
    ----------
    coef_ : ndarray
        Posterior mean of the coefficients of trends, waves and levels, (1, n_parameters - 1), or a
        row per class for more than two.
    intercept_ : ndarray
        Posterior mean of the intercepts.
    clip_norm_, data_norm_, sampling_rate_ : float
        The values used; ``data_norm_`` is the largest norm that a row can have.

    See Also
    --------
    DPVariationalLogisticRegression : The linear model.

    References
    ----------
    H. Nori, R. Caruana, Z. Bu, J. H. Shen, J. Kulkarni, *Accuracy, Interpretability, and
    Differential Privacy via Explainable Boosting*, ICML 2021.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from skdp import DPAdditiveClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame({"age": rng.uniform(18, 90, 5000), "ward": rng.choice(["a", "b"], 5000)})
    >>> y = rng.random(5000) < 1 / (1 + np.exp(-((X["age"] - 50) / 15) ** 2 + 2))
    >>> classifier = DPAdditiveClassifier(
    ...     bounds={"age": (15, 95)},
    ...     categories={"ward": ["a", "b"]},
    ...     classes=[False, True],
    ...     n_samples=5000,
    ... ).fit(X, y)
    >>> curve = classifier.curve_("age")
    >>> bool(curve.mean[4] > 0 > curve.mean[14])  # ages 26 and 51
    True
    >>> bool((curve.band_low <= curve.low).all())
    True
    """

    _: KW_ONLY
    classes: Any = None

    curve_scales: ClassVar[tuple[str, ...]] = ("log-odds", "probability")
    # Rows of bins are far from normal: the posterior takes longer to settle.
    _STEPS: ClassVar[int] = 40

    def _telling(self, facts: PublicFacts) -> Telling:
        return LABELS

    def _checked(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        columns, y = check_columns_and_labels(self, X, y, declared=self.classes is not None)
        return self._coded(columns), y

    @property
    def parameter_names_(self) -> list[str]:
        """Names of the columns of `sample_posterior`: the outputs in turn, intercept last."""
        names, K = super().parameter_names_, len(self._posterior.mean)
        return names if K == 1 else [f"{c}: {name}" for c in self._labels() for name in names]

    def _on_scale(self, effects: np.ndarray, scale: str, output: int) -> np.ndarray:
        return expit(self.intercept_[output] + effects) if scale == "probability" else effects
