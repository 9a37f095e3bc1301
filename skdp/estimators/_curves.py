"""What an additive model says: curves and surfaces with bands, importances, a scorecard."""

from __future__ import annotations

from itertools import chain, pairwise, product
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.stats import norm
from sklearn.utils.validation import check_is_fitted

from skdp.algorithms.parts.prior_scales import HYPERPRIOR_SCALE
from skdp.fitting.validate import expected, in_range, integer, one_of
from skdp.models.additive import (
    PAIRS,
    WAVES,
    Additive,
    Category,
    Number,
    Pair,
    beside_trend,
)
from skdp.models.curves import not_told
from skdp.rows.columns import places_of
from skdp.rows.records import row_bound

PARTS = ("curve", "deviation")
N_DRAWS = 4000  # for the simultaneous band: its level errs by .005 or so


class Curve(NamedTuple):
    """What is known of the effect of one feature ``name``, less its mean over all bins or levels.

    ``grid`` holds the edges (B + 1,) of the bins of a number, or the L levels of a category. Of
    each bin or level, (B,) or (L,), ``mean`` is the posterior mean, ``low`` and ``high`` are the
    ends of its own interval, ``band_low`` and ``band_high`` those of the band that holds the whole
    curve.
    """

    name: str
    grid: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    band_low: np.ndarray
    band_high: np.ndarray


class Surface(NamedTuple):
    """What is known of the interaction of two features, beyond the sum of their curves.

    ``grids`` are those of `Curve`, for each of the ``names``. ``mean``, ``low``, ``high``,
    ``band_low`` and ``band_high``, of shape (A, B), are as there, for each cell; means over each
    row and each column are 0.
    """

    names: tuple[str, str]
    grids: tuple[np.ndarray, np.ndarray]
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    band_low: np.ndarray
    band_high: np.ndarray


class AdditiveEffects:
    """Curves, surfaces and importances of a fitted additive model; they cost no privacy."""

    prior_scale_: Any
    _posterior: Any
    # Scales of curves, of which on the first effects add up; the hyperprior of a row at its bound.
    curve_scales: ClassVar[tuple[str, ...]]
    _hyperprior_scale: ClassVar[float] = HYPERPRIOR_SCALE
    _keys: list[Any]  # names or positions of the declared columns
    _model: Additive

    def curve_(
        self,
        feature: Any,
        *,
        level: float = 0.9,
        part: str = "curve",
        scale: str | None = None,
        output: int = 0,
    ) -> Curve | Surface:
        """What is known of the effect of a feature or a pair; this costs no privacy.

        Parameters
        ----------
        feature : str, int, or pair of them
            Name or position among the declared columns; or a pair, as in ``pairs``.
        level : float, default=0.9
            Of the intervals and of the band, in (0, 1).
        part : {"curve", "deviation"}, default="curve"
            ``"deviation"`` is what a number's curve has beside its trend. Of a pair it is all.
        scale : str or None, default=None
            Of a classifier ``"log-odds"``, or ``"probability"``, which is that of the second class
            where all other effects are 0; of a regressor ``"target"``, in the unit of y; of a model
            of counts ``"log-mean"``, or ``"rate-ratio"``. None is the first, on which effects add
            up.
        output : int, default=0
            Number of the class, where there are more than two.

        Returns
        -------
        Curve or Surface
            Effects less their mean over all bins or levels; of a pair, what is beyond the sum of
            both curves. Waves and products that the budget did not pay for are in the intervals
            with their prior.

        Raises
        ------
        ValueError
            If there is no such feature, or no such pair.
        """
        check_is_fitted(self)
        one_of(PARTS, part=part)
        scale = one_of(self.curve_scales, scale=self.curve_scales[0] if scale is None else scale)
        in_range(0.0, 1.0, closed="neither", level=level)
        place = self._place(feature)
        mean, root = self._effects(place, part, output)
        deviation = np.linalg.norm(root, axis=1)
        half = norm.ppf(0.5 + level / 2) * deviation
        band = _critical(root, level) * deviation
        ends = [mean, mean - half, mean + half, mean - band, mean + band]
        ends = [self._on_scale(end, scale, output) for end in ends]
        found = self._model.parts[place]
        if not isinstance(found, Pair):
            return Curve(found.name, _grid(found), *ends)
        (a, b), shape = found.columns, found.shape
        ends = [end.reshape(shape) for end in ends]
        return Surface((a.name, b.name), (_grid(a), _grid(b)), *ends)

    def _on_scale(self, effects: np.ndarray, scale: str, output: int) -> np.ndarray:
        """Effects on a scale of `curve_scales`."""
        return effects

    def _place(self, feature: Any) -> int:
        columns, pairs = self._model.columns, [pair.places for pair in self._model.pairs]
        if isinstance(feature, tuple | list):
            a, b = places_of(feature, self._keys, columns) or (0, 0)
            for places in ((a, b), (b, a)):
                if places in pairs:
                    return len(columns) + pairs.index(places)
            raise expected("a pair of pairs=, or the name of a column", feature=feature)
        names = self.feature_importance_names_
        place = names.index(feature) if feature in names else feature
        if not isinstance(place, int | np.integer) or not 0 <= place < len(names):
            raise expected("the name or the position of a declared column", feature=feature)
        return int(place)

    def _effects(self, place: int, part: str, output: int) -> tuple[np.ndarray, np.ndarray]:
        """Mean (B,) of the effects of bins or cells, and a root (B, m) of the covariance."""
        found, features = self._model.parts[place], self._model.places[place]
        K, D = self._posterior.mean.shape
        if not 0 <= integer(0, output=output) < K:
            raise expected(f"a number below {K}", output=output)
        block = slice(output * D + features.start, output * D + features.stop)
        theta = self._posterior.mean[output, features]
        covariance = self._posterior.covariance[block, block]
        scale = self._usual_scale(place)
        if isinstance(found, Pair):
            table = found.table[found.known]  # its means over rows and columns are 0
            others = scale * found.products(~found.asked)[found.known]
            return table @ theta, np.hstack([table @ _root(covariance), others])
        table = found.table[:-1]
        table = table - table.mean(axis=0)
        mean, of_bins = table @ theta, table @ covariance @ table.T
        if isinstance(found, Number):
            told = [kind == WAVES for kind in found.kinds]
            of_bins = of_bins + not_told(
                found.waves, found.n_waves, mean, covariance[np.ix_(told, told)], scale
            )
        root = _root(of_bins)
        if part == "deviation":
            beside = beside_trend(found)
            mean, root = beside @ mean, beside @ root
        return mean, root

    def _usual_scale(self, place: int) -> float:
        """Prior scale of waves or products of a part, or the usual one where there are none."""
        blocks, names = list(dict.fromkeys(self._model.blocks)), self._model.blocks
        if isinstance(self._model.parts[place], Pair):
            own = [name for name in blocks if name == PAIRS]
        else:
            own = [name for name in names[self._model.places[place]] if name.startswith(WAVES)]
        scales = np.atleast_1d(self.prior_scale_)
        if own and len(scales) == len(blocks):
            return float(scales[blocks.index(own[0])])
        if len(scales) < len(blocks):
            return float(scales[0])
        return self._hyperprior_scale / row_bound(self._model.norm, True)

    @property
    def feature_importance_(self) -> np.ndarray:
        """Root mean square effect over bins, levels or cells, in the order of the names.

        The posterior median; `feature_importance_interval_` is its 90 % interval.
        """
        return np.median(self._importances(), axis=0)

    @property
    def feature_importance_interval_(self) -> np.ndarray:
        """Percentiles 5 and 95 of the posterior of `feature_importance_`, a row each."""
        return np.percentile(self._importances(), (5.0, 95.0), axis=0)

    @property
    def feature_importance_names_(self) -> list[str]:
        """Names of the declared columns, and then of the pairs."""
        check_is_fitted(self)
        return [part.name for part in self._model.parts]

    def _importances(self) -> np.ndarray:
        """Draws (n, columns and pairs), the largest over the outputs."""
        check_is_fitted(self)
        K = len(self._posterior.mean)
        found = np.empty((N_DRAWS // 4, K, len(self._model.parts)))
        for place in range(found.shape[2]):
            for output in range(K):
                mean, root = self._effects(place, "curve", output)
                draws = mean + _normals(len(found), root) @ root.T
                found[:, output, place] = np.sqrt(np.mean(draws**2, axis=1))
        return found.max(axis=1)

    def to_frame(self, *, level: float = 0.9, output: int = 0) -> Any:
        """A scorecard: the effect of each bin and level with its interval; needs pandas.

        Parameters
        ----------
        level : float, default=0.9
            Of the intervals, in (0, 1).
        output : int, default=0
            Number of the class, where there are more than two.

        Returns
        -------
        pandas.DataFrame
            Columns ``feature``, ``from``, ``to`` or ``level``, ``effect``, ``low`` and ``high``.
            With ``pairs``, which add a line per cell, the second feature is in ``feature_2``,
            ``from_2``, ``to_2`` or ``level_2``.
        """
        import pandas as pd

        keys = [f"{key}{of}" for of in ("", "_2") for key in ("feature", "from", "to", "level")]
        rows = []
        for place, part in enumerate(self._model.parts):
            curve = self.curve_(place, level=level, output=output)
            of_each = [_cells(c) for c in (part.columns if isinstance(part, Pair) else (part,))]
            ends = (np.ravel(end) for end in (curve.mean, curve.low, curve.high))
            for cells, *values in zip(product(*of_each), *ends, strict=True):
                row = dict(zip(keys, chain(*cells), strict=False))
                rows.append(row | dict(zip(("effect", "low", "high"), values, strict=True)))
        return pd.DataFrame(rows)


def _grid(column: Number | Category) -> np.ndarray:
    return np.asarray(column.levels if isinstance(column, Category) else column.edges)


def _cells(column: Number | Category) -> list[tuple[Any, ...]]:
    """Name, both ends and level of each bin or level of a column."""
    if isinstance(column, Category):
        return [(column.name, None, None, level) for level in column.levels]
    return [(column.name, *ends, None) for ends in pairwise(column.edges)]


def _root(covariance: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0.0))


def _normals(n: int, root: np.ndarray) -> np.ndarray:
    """Normal numbers (n, m), always the same."""
    return np.random.default_rng(0).standard_normal((n, root.shape[1]))


def _critical(root: np.ndarray, level: float) -> float:
    """By how many deviations a whole curve is within the band, at a level."""
    unit = root / np.maximum(np.linalg.norm(root, axis=1, keepdims=True), 1e-150)
    normals, largest = _normals(N_DRAWS, root), np.zeros(N_DRAWS)
    for some in np.array_split(unit, 1 + len(unit) // 1000):
        largest = np.maximum(largest, np.abs(normals @ some.T).max(axis=1))
    return float(np.quantile(largest, level))
