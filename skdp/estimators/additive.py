"""`DPAdditiveClassifier`: private curves, one per feature, with bands.

>>> import numpy as np
>>> from skdp import DPAdditiveClassifier
>>> rng = np.random.default_rng(0)
>>> X = rng.uniform(0, 10, (4000, 2))
>>> y = rng.random(4000) < 1 / (1 + np.exp(-3 * np.sin(X[:, 0])))
>>> classifier = DPAdditiveClassifier(
...     epsilon=1.0, bounds=[(0, 10), (0, 10)], classes=[False, True], n_samples=4000
... ).fit(X, y)
>>> classifier.score(X, y) > 0.75
True
>>> curve = classifier.curve_(0)
>>> bool(curve.mean[5] > 0.5), bool(curve.mean[15] < -0.5)  # sin(1.7) and sin(4.8)
(True, True)
>>> classifier.privacy_.epsilon <= 1.0
True
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, replace
from itertools import chain, pairwise, product
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import expit
from scipy.stats import norm
from sklearn.utils.validation import check_is_fitted

from skdp.algorithms import additive, noise_aware_glm
from skdp.algorithms.additive import Config
from skdp.algorithms.noise_aware.glm import GLMConfig
from skdp.algorithms.parts.prior_scales import HYPERPRIOR_SCALE
from skdp.algorithms.private_edges import AtDeclared, AtEdges, PrivateEdgesConfig, bins_told
from skdp.estimators._bounds import is_robust
from skdp.estimators._documented import documented
from skdp.estimators._linear import NormalClassifier, parts_of
from skdp.fitting.estimator import PrivateEstimator
from skdp.fitting.plan import FitPlan, PublicFacts
from skdp.fitting.reading import Records
from skdp.fitting.tables import check_columns, check_columns_and_labels, check_columns_and_targets
from skdp.fitting.validate import expected, in_range, integer, one_of
from skdp.models.additive import (
    LABELS,
    PAIRS,
    WAVES,
    Additive,
    Category,
    Number,
    Pair,
    Telling,
    beside_trend,
    not_told,
)
from skdp.privacy.budget import Budget
from skdp.rows.columns import AUTO, DeclaredColumns, declared_pairs, places_of
from skdp.rows.lazy_rows import changed
from skdp.rows.records import row_bound

PARTS = ("curve", "deviation")
FEW_BINS = 8  # between private edges, with fewer of which curves are coarser than between bounds
N_DRAWS = 4000  # for the simultaneous band: its level errs by .005 or so


class Curve(NamedTuple):
    """What is known of the effect of one feature.

    Parameters
    ----------
    name : str
        Name of the feature.
    grid : ndarray
        Edges (B + 1,) of the bins of a number, or the L levels of a category.
    mean : ndarray of shape (B,) or (L,)
        Posterior mean of the effect of each bin or level, less the mean over all of them.
    low, high : ndarray of the same shape
        Ends of the interval of each bin, by itself.
    band_low, band_high : ndarray of the same shape
        Ends of the band that holds the whole curve.

    Examples
    --------
    >>> from skdp.estimators.additive import Curve
    >>> Curve._fields
    ('name', 'grid', 'mean', 'low', 'high', 'band_low', 'band_high')
    """

    name: str
    grid: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    band_low: np.ndarray
    band_high: np.ndarray


class Surface(NamedTuple):
    """What is known of the interaction of two features.

    Parameters
    ----------
    names : (str, str)
        Names of the features.
    grids : pair of ndarray
        Of each, the edges (B + 1,) of the bins of a number, or the L levels of a category.
    mean : ndarray of shape (A, B)
        Posterior mean of what bin or level a of the one and b of the other do beyond the sum of
        their curves; the mean over each row and each column is 0.
    low, high : ndarray of the same shape
        Ends of the interval of each cell, by itself.
    band_low, band_high : ndarray of the same shape
        Ends of the band that holds the whole surface.

    Examples
    --------
    >>> from skdp.estimators.additive import Surface
    >>> Surface._fields
    ('names', 'grids', 'mean', 'low', 'high', 'band_low', 'band_high')
    """

    names: tuple[str, str]
    grids: tuple[np.ndarray, np.ndarray]
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    band_low: np.ndarray
    band_high: np.ndarray


class AdditiveModel(DeclaredColumns, PrivateEstimator):
    """Turns the linear model that follows it into one of columns cut into bins or levels."""

    pairs: Any
    intercept_: Any
    prior_scale_: Any
    _posterior: Any
    # Scales of curves, of which on the first effects add up; the hyperprior of a row at its bound.
    curve_scales: ClassVar[tuple[str, ...]]
    _hyperprior_scale: ClassVar[float] = HYPERPRIOR_SCALE
    _STEPS: ClassVar[int]
    # Half of what they take: second moments that are told barely do harm where rows are skewed.
    _moments_share: ClassVar[float] = noise_aware_glm.CURVATURE_SHARE / 2.0
    _keys: list[Any]  # names or positions of the declared columns
    _model: Additive
    _finds_edges: ClassVar[bool] = True
    _declared_by: ClassVar[str] = "Give bounds=, edges= or categories=, by column name."
    edges_share: float

    # --- fit ------------------------------------------------------------------------------------

    def _telling(self, facts: PublicFacts) -> Telling:
        """How much targets tell, in public numbers."""
        raise NotImplementedError

    def _checked(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        """Codes and targets of a fit."""
        columns, y = check_columns_and_targets(self, X, y)
        return self._coded(columns), y

    def _coded(self, columns: dict[Any, np.ndarray]) -> np.ndarray:
        """Codes of the columns of a fit."""
        n = self.n_features_in_
        self._keys = list(self._declared(n))
        return self._codes(
            columns, self._keys, self._declared_model(n), self._private(n)[0], fit=True
        )

    def _declared_model(self, n_columns: int | None, private_bins: int | None = None) -> Additive:
        """The declared columns and pairs; no waves and no products are asked for yet."""
        columns = self._columns(n_columns, private_bins)
        keys = list(self._declared(n_columns))
        return Additive(columns, declared_pairs(self.pairs, keys, columns))

    def _configure(self, facts: PublicFacts, budget: Budget) -> Config | PrivateEdgesConfig:
        share = in_range(0.0, 1.0, closed="neither", edges_share=self.edges_share)
        mu, n_bins = math.inf, integer(2, n_bins=self.n_bins)
        if budget.private:
            mu = budget.mu if budget.given is None else self._STEPS**0.5 / budget.given
        places, bounds = self._private(facts.n_features)
        if places:
            if budget.given is None:
                mu *= math.sqrt(1.0 - share)
            of_edges = mu * math.sqrt(share / (1.0 - share))
            told = bins_told(n_bins, len(places), facts.rows, of_edges)
            if isinstance(self.edges, str) and self.edges == AUTO and told < min(n_bins, FEW_BINS):
                places, mu = (), mu if budget.given is not None else mu / math.sqrt(1.0 - share)
            else:
                n_bins = told
        most = additive.most_features(facts.rows, mu, self._moments_share)
        declared = self._declared_model(facts.n_features, n_bins)
        telling = self._telling(facts)
        model = declared.asked(facts.rows, mu, most, telling)
        facts = replace(facts, n_features=model.size, declared_norm=model.norm)
        config: Any = super()._configure(facts, budget)
        if isinstance(config, GLMConfig) and config.likelihood and config.n_outputs == 1:
            robust = is_robust(self, 1, by_default=facts.persons is not None)
            config = additive.of_one_logit(config, budget, mu, self._STEPS, robust=robust)
        config = additive.of_codes(config, model, mu)
        if not places:
            return config
        return PrivateEdgesConfig.of(
            bounds, n_bins, places=places, fit=config, model=declared, mu=mu, telling=telling
        ).calibrated(budget, share)

    def _prepared(self, plan: FitPlan, records: Records) -> Callable[..., Any]:
        if isinstance(plan.config, PrivateEdgesConfig):
            return plan.config.run
        places, _ = self._private(self.n_features_in_)
        coded = AtDeclared(plan.config.model, places)
        return lambda records, *how: plan.config.run(changed(records, coded), *how)

    def _keep(self, plan: FitPlan, released: Any) -> None:
        plan, released = _at_edges(plan, released)
        super()._keep(plan, released)
        self._model = plan.config.model
        numbers = (column for column in self._model.columns if isinstance(column, Number))
        self.edges_ = {column.name: np.asarray(column.edges) for column in numbers}

    def _diagnosed(self, plan: FitPlan, released: Any) -> tuple[str, ...]:
        return super()._diagnosed(*_at_edges(plan, released))

    def _fitted_parts(self, X: Any) -> Iterator[np.ndarray]:
        # By what was declared in the fit, whatever the parameters are by now.
        codes = self._codes(check_columns(self, X, reset=False), self._keys, self._model)
        for part in parts_of(codes):
            yield np.hstack([self._model.rows(part), np.ones((len(part), 1))])

    @property
    def parameter_names_(self) -> list[str]:
        """Names of the columns of `sample_posterior`: features, and the intercept."""
        check_is_fitted(self)
        return [*self._model.names, "intercept"]

    # --- what it says ---------------------------------------------------------------------------

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
        """Mean (B,) of the effects of bins, levels or cells, and a root (B, m) of the covariance.

        The root times its transpose is the covariance.
        """
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
            of_bins = of_bins + not_told(found, mean, covariance[np.ix_(told, told)], scale)
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


def _at_edges(plan: FitPlan, released: Any) -> tuple[FitPlan, Any]:
    """What was planned and released once edges were, where these are private."""
    if isinstance(released, AtEdges):
        return replace(plan, config=released.config), released.posterior
    return plan, released


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


@dataclass(eq=False, repr=False)
class AdditiveParameters(AdditiveModel):
    """Parameters of all additive models.

    Parameters
    ----------
    bounds : dict, or pair, or sequence of pairs, or None, default=None
        Public lower and upper bound of columns of numbers, by name or by position, a pair for all
        or one per column. Values beyond count as the bound. Every column of X is in ``bounds``,
        ``edges`` or ``categories``; where all three are None, numbers are in [-1, 1].
    edges : {"auto", "private"}, or dict, or sequence, or None, default="auto"
        Public ascending edges of the bins of columns of numbers, instead of bounds. ``"private"``
        in the place of edges takes part of the budget to find them between the bounds of a column,
        or of all columns that have bounds, so that about as many rows are in each bin: see Notes.
        ``"auto"`` does so for ``bounds`` where number of rows and budget tell edges of 8 bins of
        each; else, and with None, bins are of equal width.
    categories : dict, or sequence, or None, default=None
        Public levels of columns of categories, in the type that the column has: text or numbers.
        Others share an effect with missing values.
    pairs : list of pairs, or None, default=None
        Public pairs of declared columns, named as they are declared, that may interact. A pair gets
        as many products of trends, waves and levels as rows and budget let one learn, or none.
    n_bins : int, default=32
        Bins ≥ 2 of equal width between bounds; between private edges, at most so many.
    edges_share : float, default=0.1
        Share in (0, 1) of the squared GDP budget that private edges take. With
        ``noise_multiplier``, they are charged for beside it, in this proportion.
    robust : bool or "auto", default="auto"
        Report the sandwich covariance, for which the scatter of the scores is released too.
        ``"auto"`` is True with ``unit=Persons(...)``, and False else.
    noise_multiplier : float or None, default=None
        Standard deviation > 0 of a gradient's noise over ``clip_norm``, instead of ``epsilon``
        (pass ``epsilon=None``); the report then accounts for what was spent.

    Attributes
    ----------
    edges_ : dict of str to ndarray
        Edges of the bins of each column of numbers, declared or released.
    feature_importance_ : ndarray of shape (n_features_in_ + n_pairs,)
        Root mean square effect of each declared column over its bins or levels, and of each pair
        over its cells.
    feature_importance_interval_ : ndarray of shape (2, n_features_in_ + n_pairs)
        Its percentiles 5 and 95.
    feature_importance_names_ : list of str
        Names of the declared columns and of the pairs, in this order.
    covariance_ : ndarray of shape (n_parameters, n_parameters)
        Posterior covariance, in the order of ``parameter_names_``.
    noise_multiplier_ : float
        Standard deviation of a gradient's noise over the bound on one record.
    prior_scale_ : float or ndarray of shape (n_blocks,)
        Posterior median of the prior scales.
    prior_scale_interval_ : tuple of two float or ndarray
        Percentiles 5 and 95 of their posterior.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, where X had any.
    """

    _: KW_ONLY
    bounds: Any = None
    edges: Any = AUTO
    categories: Any = None
    pairs: Any = None
    n_bins: int = 32
    edges_share: float = 0.1
    robust: bool | str = "auto"
    noise_multiplier: float | None = None


@documented
@dataclass(eq=False, repr=False)
class DPAdditiveClassifier(AdditiveParameters, NormalClassifier):
    """Additive logistic regression: a private curve per feature, with bands.

    The log-odds are an intercept and one curve per column. A number's curve is a linear trend and
    waves over public bins, a category's one effect per level. The scales of trends, waves and
    levels are learned from the same releases, and there are only as many waves as the number of
    rows and the budget let one learn, so that little is lost where curves are straight lines or
    rows are few. The posterior is noise-aware, as in `DPVariationalLogisticRegression`.

    **Privacy.** `fit` is (epsilon, delta)-differentially private under ``neighboring_relation``:
    curves, bands, every prediction and every posterior sample together. The ``unit`` is a row, or a
    person with all of its rows. Bounds, levels and pairs are declared; edges are declared, or part
    of what is released. No row is ever clipped: the norm of a row of bins has a public bound. The
    guarantee covers one fit; it is conditional on the public facts listed in
    ``privacy_.inferred_public_facts``, is *not* one for a seeded fit, and without ``secure`` treats
    floating-point Gaussian noise as exact.

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

    Notes
    -----
    See `skdp.models.additive` for the features, and for the rule by which waves and products are
    asked for. A value that is missing has no effect where rows are few, and else an effect of its
    own; a pair has none then. Intervals hold waves and products that were not asked for with their
    prior; the mean does not. Where the curve is much steeper than elsewhere, intervals allow for a
    jump (`skdp.models.additive.not_told`).

    *Private edges* are quantiles, found by halving as in `DPBins`: bounds may be absurdly wide, and
    2ᵏ bins are k releases per column. There are as many bins as the number of rows and the budget
    tell edges of. A value that many rows share has a bin of its own. The trend and the waves of a
    column are functions of the number of the bin, so that the trend is linear in the rank of a
    value, and effects are centred over bins with about as many rows each.

    Columns may be text in frames. Names are those of the frame; a column of an array is called
    ``x0``, ``x1``, ... by its position.

    References
    ----------
    T. Hastie, R. Tibshirani, *Generalized Additive Models*, 1990. P. H. C. Eilers, B. D. Marx,
    *Flexible Smoothing with B-splines and Penalties*, Statistical Science 1996. H. Nori, R.
    Caruana, Z. Bu, J. H. Shen, J. Kulkarni, *Accuracy, Interpretability, and Differential Privacy
    via Explainable Boosting*, ICML 2021.

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
