"""What transformers share: declared bounds, input with missing values, tags."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import TransformerMixin
from sklearn.utils import Tags

from skdp.fitting.estimator import PrivateEstimator
from skdp.fitting.input import check_features
from skdp.fitting.plan import PublicFacts
from skdp.fitting.reading import ProtectedUnit, Records
from skdp.fitting.validate import moderate_range
from skdp.rows.lazy_rows import RowByRow
from skdp.rows.persons import PersonUnit


@dataclass(eq=False, repr=False)
class PrivateTransformer(RowByRow, TransformerMixin, ProtectedUnit, PrivateEstimator):
    """A transformer that learns from private rows; it never reads how many there are."""

    _: KW_ONLY
    epsilon: float | None = 0.5
    delta: float = 1e-5
    neighboring_relation: str = "zero_out"
    random_state: Any = None
    _takes_missing: ClassVar[bool] = False

    def __sklearn_tags__(self) -> Tags:
        return float_tags(super().__sklearn_tags__(), allow_nan=self._takes_missing)

    def _read(self, X: Any, y: Any) -> tuple[Records, PublicFacts]:
        X = self._checked(X)
        return Records(X, X[:, :0]), self._facts_of(X)

    def _checked(self, X: Any, *, reset: bool = True) -> np.ndarray:
        finite = "allow-nan" if self._takes_missing else True
        return check_features(self, X, reset=reset, ensure_all_finite=finite)


class PrivateScaler(PrivateTransformer):
    """A private transformer of features within declared bounds, where NaN is missing."""

    _takes_missing = True
    lower: Any
    upper: Any

    def _n_columns_declared(self) -> int | None:
        bounds = next(filter(np.iterable, (self.lower, self.upper)), None)
        return None if bounds is None else len(list(bounds))

    def _range(self, facts: PublicFacts) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return the declared bounds of the features, lower and upper."""
        lower, upper = moderate_range(facts.features, self.lower, self.upper)
        return tuple(lower.tolist()), tuple(upper.tolist())


@dataclass(eq=False, repr=False)
class QuantileScaler(PrivateScaler):
    """A private transformer by quantiles, where nothing is summed."""

    lower: Any = -1e9
    upper: Any = 1e9
    _: KW_ONLY
    resolution: float = 1e-6
    quantile_epsilon: float | None = None
    _instead_of_epsilon: ClassVar[str] = "quantile_epsilon"
    _takes_pure_budget: ClassVar[bool] = True
    _max_rows: ClassVar[float] = math.inf

    def _person_bound(self, persons: PersonUnit) -> str:
        return "its values of a feature share the weight of one"


def float_tags(tags: Tags, *, allow_nan: bool) -> Tags:
    """Tags of transformers that keep float32, and of those that take NaN."""
    tags.input_tags.allow_nan = allow_nan
    if tags.transformer_tags is not None:
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
    return tags
