"""Runs of linear models on the public features of codes of bins and levels.

What is released is what the linear model releases; rows are made of codes on the way, and no row
is longer than ``data_norm``, so that none is ever cut. See `skdp.models.additive` for the features.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from skdp._random import Streams
from skdp._rows import row_bound
from skdp.algorithms.dp_vi import DPVIConfig
from skdp.algorithms.gaussian_posterior import GaussianPosterior
from skdp.algorithms.gaussian_vi import GaussianVIConfig
from skdp.algorithms.noise_aware_glm import (
    CURVATURE_SHARE,
    DROWNED,
    NoiseAwareConfig,
    default_clip_share,
)
from skdp.engine.loop import Progress
from skdp.models.additive import Additive

LEAST_SHARE = 0.1  # of the bound that rows put on a gradient, to which one is clipped at least
USUAL_EXCESS = 1.1  # of the clip over the share that the usual row has of the longest


@dataclass(frozen=True)
class NoiseAwareAdditiveConfig(NoiseAwareConfig):
    """Public facts of a run.

    Parameters
    ----------
    model : Additive
        The columns, their bins and their features.
    """

    model: Additive = field(kw_only=True)

    def run(self, records: Any, streams: Streams, progress: Progress = iter) -> GaussianPosterior:
        """Run the algorithm on codes (n, columns) and targets; see the base class."""
        return super().run(_rows(self.model, records), streams, progress)


@dataclass(frozen=True)
class GaussianVIAdditiveConfig(GaussianVIConfig):
    """Public facts of a run without privacy.

    Parameters
    ----------
    model : Additive
        As in `NoiseAwareAdditiveConfig`.
    """

    model: Additive = field(kw_only=True)

    def run(self, records: Any, streams: Streams, progress: Progress = iter) -> GaussianPosterior:
        """Run the algorithm on codes (n, columns) and targets; see the base class."""
        return super().run(_rows(self.model, records), streams, progress)


@dataclass(frozen=True)
class DPVIAdditiveConfig(DPVIConfig):
    """Public facts of a run by steps: without privacy, where the exact one has too many numbers.

    Parameters
    ----------
    model : Additive
        As in `NoiseAwareAdditiveConfig`.
    """

    model: Additive = field(kw_only=True)

    def run(self, records: Any, streams: Streams, progress: Progress = iter) -> GaussianPosterior:
        """Run the algorithm on codes (n, columns) and targets; see the base class."""
        return super().run(_rows(self.model, records), streams, progress)


Config = NoiseAwareAdditiveConfig | GaussianVIAdditiveConfig | DPVIAdditiveConfig


def of_codes(
    config: NoiseAwareConfig | GaussianVIConfig | DPVIConfig, model: Additive, mu: float
) -> Config:
    """Return the config of the same run on codes.

    Parameters
    ----------
    config : NoiseAwareConfig, GaussianVIConfig or DPVIConfig
        Of a linear model of the features.
    model : Additive
        The features.
    mu : float
        GDP budget > 0 of a record that comes or goes.
    """
    plain: dict[str, Any] = {f.name: getattr(config, f.name) for f in fields(config) if f.init}
    if isinstance(config, DPVIConfig):
        return DPVIAdditiveConfig(**plain, model=model)
    if config.likelihood.n_outputs == 1:
        order = list(dict.fromkeys(model.blocks))
        plain["prior_blocks"] = tuple(order.index(block) for block in model.blocks)
    if isinstance(config, GaussianVIConfig):
        return GaussianVIAdditiveConfig(**plain, model=model)
    # Most rows are shorter than the longest that there can be.
    R = row_bound(model.norm, config.fit_intercept)
    usual = row_bound(model.usual_norm, config.fit_intercept) / R
    share = default_clip_share(config.n_rows, model.size + 1, mu)
    share = min(1.0, max(LEAST_SHARE, share * usual * USUAL_EXCESS))
    plain["clip_norm"] = share * config.likelihood.residual_scale * R
    return NoiseAwareAdditiveConfig(**plain, model=model)


def most_features(n_rows: int, mu: float) -> float:
    """Number of features up to which second moments are released in full, the intercept's 1 too."""
    return CURVATURE_SHARE * (DROWNED * n_rows * mu) ** 2 / 2.0 - 1.0


def _rows(model: Additive, records: Any) -> Any:
    """Features instead of codes; each row is a function of its own codes alone."""
    return records._replace(X=model.rows(np.asarray(records.X)))
