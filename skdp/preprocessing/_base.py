"""What transformers share: declared bounds, input with missing values, tags."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.base import TransformerMixin
from sklearn.utils import Tags

from skdp._fitting import PrivateEstimator, ProtectedUnit, Records
from skdp._input import check_features
from skdp._plan import PublicFacts
from skdp._types import ArrayLike
from skdp._validate import as_array, expected

_LEAST_WIDTH, _MOST_BOUND = 1e-150, 1e150  # their squares are doubles too


class PrivateTransformer(TransformerMixin, ProtectedUnit, PrivateEstimator):
    """A transformer that learns from private rows; it never reads how many there are."""

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

    def _facts(self, *, n_features: int | None = None, **known: Any) -> PublicFacts:
        """Public facts; bounds for each feature tell how many there are."""
        for bounds in (self.lower, self.upper):
            if n_features is None and np.iterable(bounds):
                n_features = sum(1 for _ in bounds)
        return super()._facts(n_features=n_features, **known)

    def _range(self, facts: PublicFacts) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return the declared bounds of the features, lower and upper."""
        lower, upper = declared_range(facts.features, self.lower, self.upper)
        if (upper / 2 - lower / 2 < _LEAST_WIDTH).any():
            raise expected(f"{_LEAST_WIDTH:g} or more from upper", lower=self.lower)
        for name, bounds in (("lower", lower), ("upper", upper)):
            if (np.abs(bounds) > _MOST_BOUND).any():
                kind = f"between -{_MOST_BOUND:g} and {_MOST_BOUND:g}"
                raise expected(kind, **{name: getattr(self, name)})
        return tuple(lower.tolist()), tuple(upper.tolist())


def declared_bounds(n_features: int, **kw: Any) -> np.ndarray:
    """Check declared bounds, and return one per feature."""
    ((_, value),) = kw.items()
    bounds = as_array(value)
    if bounds.dtype.kind not in "iuf" or bounds.shape not in ((), (n_features,)):
        raise expected(f"one number, or one for each of the {n_features} features", **kw)
    bounds = bounds.astype(np.float64)
    if not np.isfinite(bounds).all():
        remedy = "declare a bound for every feature; clipping does the rest"
        raise expected("finite numbers", remedy, **kw)
    return np.broadcast_to(bounds, n_features).copy()


def declared_range(
    n_features: int, lower: ArrayLike, upper: ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
    """Check two declared bounds for each feature, the one below the other."""
    low, high = declared_bounds(n_features, lower=lower), declared_bounds(n_features, upper=upper)
    if not (low / 2 < high / 2).all():  # halves, as in `transform`
        raise expected("below upper in every feature", "swap or widen them", lower=lower)
    return low, high


def float_tags(tags: Tags, *, allow_nan: bool) -> Tags:
    """Tags of transformers that keep float32, and of those that take NaN."""
    tags.input_tags.allow_nan = allow_nan
    if tags.transformer_tags is not None:
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
    return tags
