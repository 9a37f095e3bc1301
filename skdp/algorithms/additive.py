"""Runs of linear models on the public features of codes of bins and levels.

What is released is what the linear model releases. Its sums are taken by code (`CodedRows`); where
they need each record's share, as with persons or ``secure``, rows are made of codes on the way. No
row is longer than ``data_norm``, so that none is ever cut. See `skdp.models.additive` for the
features.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from skdp.algorithms.dp_vi import DPVIConfig
from skdp.algorithms.gaussian_posterior import GaussianPosterior
from skdp.algorithms.gaussian_vi import GaussianVIConfig
from skdp.algorithms.noise_aware_glm import (
    CURVATURE_SHARE,
    DROWNED,
    NoiseAwareConfig,
    default_clip_share,
)
from skdp.algorithms.noise_aware_linear import NoiseAwareRegressionConfig
from skdp.algorithms.parts.gaussian_runs import FLOAT, GaussianRun
from skdp.engine.loop import Progress
from skdp.fitting.streams import Streams
from skdp.models.additive import Additive
from skdp.rows.chunks import changed
from skdp.rows.clipping import row_bound

LEAST_SHARE = 0.1  # of the bound that rows put on a gradient, to which one is clipped at least
USUAL_EXCESS = 1.1  # of the clip over the share that the usual row has of the longest


@dataclass(frozen=True, kw_only=True)
class OfCodes(GaussianRun):
    """A run of a linear model on codes of bins and levels.

    Parameters
    ----------
    model : Additive
        The columns, their bins and their features.
    """

    model: Additive
    by_codes: ClassVar[bool] = False  # whether the sums need no more of rows than codes tell

    @property
    def tables(self) -> tuple[np.ndarray, ...]:
        """Features of each bin of each column, and of each code of each pair."""
        return tuple(part.table for part in self.model.parts)

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Which columns are pairs, whose tables come last."""
        return tuple(pair.places for pair in self.model.pairs)

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


@dataclass(frozen=True)
class NoiseAwareAdditiveConfig(OfCodes, NoiseAwareConfig):
    """Noise-aware, for classes and counts."""

    by_codes: ClassVar[bool] = True


@dataclass(frozen=True)
class NoiseAwareAdditiveRegressionConfig(OfCodes, NoiseAwareRegressionConfig):
    """Noise-aware, for numbers."""

    by_codes: ClassVar[bool] = True


@dataclass(frozen=True)
class GaussianVIAdditiveConfig(OfCodes, GaussianVIConfig):
    """Without privacy."""


@dataclass(frozen=True)
class DPVIAdditiveConfig(OfCodes, DPVIConfig):
    """Without privacy, by steps, where the exact one has too many numbers."""


Config = (
    NoiseAwareAdditiveConfig
    | NoiseAwareAdditiveRegressionConfig
    | GaussianVIAdditiveConfig
    | DPVIAdditiveConfig
)


def of_codes(
    config: NoiseAwareConfig | NoiseAwareRegressionConfig | GaussianVIConfig | DPVIConfig,
    model: Additive,
    mu: float,
) -> Config:
    """Return the config of the same run on codes.

    Parameters
    ----------
    config : NoiseAwareConfig, NoiseAwareRegressionConfig, GaussianVIConfig or DPVIConfig
        Of a linear model of these features or others: releases and their noise stay.
    model : Additive
        The features.
    mu : float
        GDP budget > 0 of a record that comes or goes.
    """
    plain: dict[str, Any] = {f.name: getattr(config, f.name) for f in fields(config) if f.init}
    plain |= {"model": model, "n_features": model.size, "data_norm": model.norm}
    R = row_bound(model.norm, config.fit_intercept)
    if config.prior_scale is not None:  # one row at the norm bound is as another
        plain["prior_scale"] *= row_bound(config.data_norm, config.fit_intercept) / R
    if isinstance(config, DPVIConfig):
        return DPVIAdditiveConfig(**plain)
    if isinstance(config, NoiseAwareRegressionConfig) or config.likelihood.n_outputs == 1:
        order = list(dict.fromkeys(model.blocks))
        plain["prior_blocks"] = tuple(order.index(block) for block in model.blocks)
    if isinstance(config, NoiseAwareRegressionConfig):
        return NoiseAwareAdditiveRegressionConfig(**plain)
    if isinstance(config, GaussianVIConfig):
        return GaussianVIAdditiveConfig(**plain)
    # Most rows are shorter than the longest that there can be.
    usual = row_bound(model.usual_norm, config.fit_intercept) / R
    share = default_clip_share(config.n_rows, model.size + 1, mu)
    share = min(1.0, max(LEAST_SHARE, share * usual * USUAL_EXCESS))
    plain["clip_norm"] = share * config.likelihood.residual_scale * R
    return NoiseAwareAdditiveConfig(**plain)


def most_features(n_rows: int, mu: float, share: float = CURVATURE_SHARE) -> float:
    """Number of features up to which second moments tell enough, the intercept's 1 too.

    They take a share of the squared GDP budget.
    """
    return share * (DROWNED * n_rows * mu) ** 2 / 2.0 - 1.0
