"""Runs of linear models on the public features of codes of bins and levels.

What is released is what the linear model releases. Its sums are taken by code (`CodedRows`); where
they need each record's share, as with persons or ``secure``, rows are made of codes on the way. No
row is longer than ``data_norm``, so none is ever cut. Features are in `skdp.models.additive`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from skdp.algorithms.dp_vi import DPVIConfig
from skdp.algorithms.exact_line import ExactLineConfig
from skdp.algorithms.gaussian_posterior import GaussianPosterior
from skdp.algorithms.gaussian_vi import GaussianVIConfig
from skdp.algorithms.noise_aware.design import Design
from skdp.algorithms.noise_aware.glm import GLMConfig
from skdp.algorithms.noise_aware_glm import (
    DROWNED,
    NoiseAwareConfig,
    default_clip_share,
    default_curvature,
)
from skdp.algorithms.parts.gaussian_runs import FLOAT, GaussianRun
from skdp.engine.loop import Progress
from skdp.fitting.streams import Streams
from skdp.models.additive import Additive
from skdp.rows.lazy_rows import changed
from skdp.rows.records import row_bound

if TYPE_CHECKING:
    from skdp.privacy.budget import Budget

LEAST_SHARE = 0.1  # of the bound that rows put on a gradient, to which one is clipped at least
USUAL_EXCESS = 1.1  # of the clip over the share that the usual row has of the longest


@dataclass(frozen=True, kw_only=True)
class OfCodes(GaussianRun):
    """A run of a linear model on codes; ``model`` has the columns, their bins and features."""

    model: Additive
    by_codes: ClassVar[bool] = False  # whether the sums need no more of rows than codes tell

    @property
    def tables(self) -> tuple[np.ndarray, ...]:
        """Features of each code."""
        return self.model.tables

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Which columns are pairs, whose tables come last."""
        return self.model.pairs_of_places

    @property
    def coded(self) -> bool:
        """Whether rows are kept as codes: not where each record's share of a sum is needed."""
        return self.by_codes and not self.secure and self.persons is None

    @property
    def memory(self) -> int:
        """Bytes of codes, thrice, or of the rows that are made of them, about."""
        n, made = self.n_rows, 0 if self.coded else FLOAT * self.model.size  # pyright: ignore
        of_run = 0 if self.coded else super().memory  # pyright: ignore
        return n * (made + 3 * FLOAT * (len(self.model.columns) + 1)) + of_run

    def run(self, records: Any, streams: Streams, progress: Progress = iter) -> GaussianPosterior:
        """Run the algorithm on codes (n, columns) and targets; see the class that this precedes."""
        return super().run(changed(records, self._rows), streams, progress)  # pyright: ignore

    def _rows(self, records: Any) -> Any:
        rows = self.model.coded if self.coded else self.model.rows
        return records._replace(X=rows(np.asarray(records.X)))


@dataclass(frozen=True, kw_only=True)
class NoiseAwareAdditiveConfig(OfCodes, NoiseAwareConfig):
    """Noise-aware, of two classes and of counts."""

    by_codes: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class GLMAdditiveConfig(OfCodes, GLMConfig):
    """Noise-aware, of numbers and of several classes."""

    by_codes: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class ExactLineAdditiveConfig(OfCodes, ExactLineConfig):
    """Of numbers without privacy."""

    by_codes: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class GaussianVIAdditiveConfig(OfCodes, GaussianVIConfig):
    """Without privacy."""


@dataclass(frozen=True, kw_only=True)
class DPVIAdditiveConfig(OfCodes, DPVIConfig):
    """Without privacy, by steps, where the exact one has too many numbers."""


Config = (
    NoiseAwareAdditiveConfig
    | GLMAdditiveConfig
    | ExactLineAdditiveConfig
    | GaussianVIAdditiveConfig
    | DPVIAdditiveConfig
)
_OF_CODES: dict[type, type] = {
    NoiseAwareConfig: NoiseAwareAdditiveConfig,
    ExactLineConfig: ExactLineAdditiveConfig,
    GaussianVIConfig: GaussianVIAdditiveConfig,
    DPVIConfig: DPVIAdditiveConfig,
}


def of_codes(
    config: GLMConfig | NoiseAwareConfig | ExactLineConfig | GaussianVIConfig | DPVIConfig,
    model: Additive,
    mu: float,
) -> Config:
    """Return the config of the same run on codes: its releases and their noise stay.

    ``mu`` > 0 is the GDP budget of a record that comes or goes.
    """
    plain: dict[str, Any] = {f.name: getattr(config, f.name) for f in fields(config) if f.init}
    plain |= {"model": model, "n_features": model.size}
    order = list(dict.fromkeys(model.blocks))
    blocks = tuple(order.index(block) for block in model.blocks)
    if isinstance(config, GLMConfig):
        design = Design.of_codes(model, config.fit_intercept)
        coded = GLMAdditiveConfig(**plain | {"design": design, "prior_blocks": blocks})
        return replace(coded, clip_norm=coded.default_clip(mu / coded.of_person))
    plain["data_norm"] = model.norm
    if config.prior_scale is not None:  # one row at the norm bound is as another
        R = row_bound(model.norm, config.fit_intercept)
        plain["prior_scale"] *= row_bound(config.data_norm, config.fit_intercept) / R
    elif not isinstance(config, DPVIConfig):
        plain["prior_blocks"] = blocks
    if isinstance(config, NoiseAwareConfig):
        # Most rows are shorter than the longest that there can be.
        R = row_bound(model.norm, config.fit_intercept)
        share = default_clip_share(config.n_rows, model.size + 1, mu)
        share *= USUAL_EXCESS * row_bound(model.usual_norm, config.fit_intercept) / R
        plain["clip_norm"] = (
            min(1.0, max(LEAST_SHARE, share)) * config.likelihood.residual_scale * R
        )
    kind = next(kind for kind in _OF_CODES if isinstance(config, kind))
    return _OF_CODES[kind](**plain)


def of_one_logit(
    config: GLMConfig, budget: Budget, mu: float, n_steps: int, *, robust: bool
) -> NoiseAwareConfig:
    """Return the run of one logit in whose inference rows are points of bins.

    ``mu`` > 0 is the GDP budget of a record that comes or goes, and there are ``n_steps`` ≥ 1
    noisy gradients; ``robust`` is whether the scatter of the scores is released.
    """
    n, D = config.n_rows, config.n_columns
    mu /= config.weight_bound  # the noise is for a row of that weight
    return NoiseAwareConfig(
        likelihood=config.likelihood,
        n_rows=n,
        n_features=config.n_features,
        fit_intercept=config.fit_intercept,
        data_norm=config.data_norm,
        n_steps=n_steps,
        clip_norm=1.0,
        curvature=default_curvature(n, D, mu, config.neighboring_relation),
        exposed=config.exposed,
        robust=robust,
        neighboring_relation=config.neighboring_relation,
        secure=config.secure,
        persons=config.persons,
        weight_bound=config.weight_bound,
    ).calibrated(budget)


def most_features(n_rows: int, mu: float, share: float) -> float:
    """Number of features, beside the intercept's 1, up to which second moments tell enough.

    They take a share of the squared GDP budget.
    """
    return share * (DROWNED * n_rows * mu) ** 2 / 2.0 - 1.0
