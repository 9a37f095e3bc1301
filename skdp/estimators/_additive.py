"""Additive models: a linear model of columns that are cut into bins or levels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skdp.algorithms import additive, noise_aware_glm
from skdp.algorithms.additive import Config
from skdp.algorithms.noise_aware.glm import GLMConfig
from skdp.algorithms.private_edges import AtDeclared, AtEdges, PrivateEdgesConfig, bins_told
from skdp.base import FitPlan, PrivateEstimator, PublicFacts, Records
from skdp.estimators._bounds import is_robust
from skdp.estimators._curves import AdditiveEffects
from skdp.estimators._posteriors import parts_of
from skdp.fitting.tables import check_columns, check_columns_and_targets
from skdp.fitting.validate import in_range, integer
from skdp.models.additive import Additive, Number, Telling
from skdp.rows.columns import AUTO, DeclaredColumns, declared_pairs
from skdp.rows.lazy_rows import changed

if TYPE_CHECKING:
    from skdp.privacy.budget import Budget

FEW_BINS = 8  # between private edges, with fewer of which curves are coarser than between bounds


@dataclass(eq=False, repr=False)
class AdditiveModel(AdditiveEffects, DeclaredColumns, PrivateEstimator):
    """Turns the linear model that follows it into one of columns cut into bins or levels.

    **Privacy.** `fit` is (epsilon, delta)-differentially private under ``neighboring_relation``:
    curves, bands, every prediction and every posterior sample together. The ``unit`` is a row, or a
    person with all of its rows. Bounds, levels and pairs are declared; edges are declared, or part
    of what is released. No row is ever clipped: the norm of a row of bins has a public bound. The
    guarantee covers one fit; it is conditional on the public facts listed in
    ``privacy_.inferred_public_facts``, is *not* one for a seeded fit, and without ``secure`` treats
    floating-point Gaussian noise as exact.

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

    Notes
    -----
    A number's curve is a linear trend and waves over public bins, a category's one effect per
    level. Their scales are learned from the same releases, and there are only as many waves and
    products as the number of rows and the budget let one learn (`skdp.models.additive` has the
    rule), so that little is lost where curves are straight lines or rows are few. Intervals hold
    those that were not asked for with their prior; the mean does not. Where the curve is much
    steeper than elsewhere, intervals allow for a jump (`skdp.models.curves.not_told`). A missing
    value has no effect where rows are few, and else an effect of its own; a pair has none then.

    *Private edges* are quantiles, found by halving as in `DPBins`: bounds may be absurdly wide, and
    2ᵏ bins, as many as rows and budget tell edges of, are k releases per column. A value that many
    rows share has a bin of its own. Trend and waves are functions of the number of the bin, so that
    the trend is linear in the rank of a value, and effects are centred over bins with about as many
    rows each.

    Columns may be text in frames. Columns of an array are called ``x0``, ``x1``, ... by position.

    References
    ----------
    T. Hastie, R. Tibshirani, *Generalized Additive Models*, 1990. P. H. C. Eilers, B. D. Marx,
    *Flexible Smoothing with B-splines and Penalties*, Statistical Science 1996.
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

    _STEPS: ClassVar[int]
    # Half of what they take: second moments that are told barely do harm where rows are skewed.
    _moments_share: ClassVar[float] = noise_aware_glm.CURVATURE_SHARE / 2.0
    _finds_edges: ClassVar[bool] = True
    _declared_by: ClassVar[str] = "Give bounds=, edges= or categories=, by column name."
    edges_share: float

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
            of_fit = mu if budget.given is not None else mu * math.sqrt(1.0 - share)
            of_edges = of_fit * math.sqrt(share / (1.0 - share))
            told = bins_told(n_bins, len(places), facts.rows, of_edges)
            if isinstance(self.edges, str) and self.edges == AUTO and told < min(n_bins, FEW_BINS):
                places = ()
            else:
                n_bins, mu = told, of_fit
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

    def _prepared(self, plan: FitPlan, records: Records, around: Any) -> Callable[..., Any]:
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


def _at_edges(plan: FitPlan, released: Any) -> tuple[FitPlan, Any]:
    """What was planned and released once edges were, where these are private."""
    if isinstance(released, AtEdges):
        return replace(plan, config=released.config), released.posterior
    return plan, released
