"""Runs on columns that are scaled inside: by their bounds alone, or by released moments.

The event is declared before: how often the linear model releases, and with which noise, does not
depend on what was released of the columns, and its sensitivities hold for any public map of rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from skdp.algorithms.gaussian_posterior import GaussianPosterior, in_units
from skdp.algorithms.noise_aware.columns import Columns, ColumnsConfig
from skdp.algorithms.noise_aware.glm import GLMConfig
from skdp.algorithms.parts.progress import parts_of_progress
from skdp.engine.loop import Progress
from skdp.fitting.streams import Streams
from skdp.rows.lazy_rows import changed
from skdp.rows.records import clipped_rows

if TYPE_CHECKING:
    from dp_accounting.dp_event import DpEvent

    from skdp.privacy.budget import Budget


class InUnits(NamedTuple):
    """What a run released: the posterior of the columns as given, and as the model saw them.

    ``columns`` is what was released of them; None where they were scaled by their bounds alone.
    """

    posterior: GaussianPosterior
    standard: GaussianPosterior
    columns: Columns | None


@dataclass(frozen=True)
class Standardise:
    """The map of rows to z = (x - centre)/scale, after values and norms are cut to their bounds."""

    lower: np.ndarray
    upper: np.ndarray
    data_norm: float | None
    centre: np.ndarray
    scale: np.ndarray

    def __call__(self, records: Any) -> Any:
        """Map the rows of records."""
        X = bounded(records.X, (self.lower, self.upper), self.data_norm)
        return records._replace(X=(X - self.centre) / self.scale)


@dataclass(frozen=True, kw_only=True)
class StandardisedConfig:
    """Public facts of a run on standardised columns.

    With ``released`` their moments are released; without, they are scaled to [-1, 1] by their
    bounds.
    """

    columns: ColumnsConfig
    fit: Any
    released: bool = True

    @property
    def n_releases(self) -> int:
        """Number of noisy releases."""
        return self.released * self.columns.n_releases + self.fit.n_releases

    @property
    def noise_multiplier(self) -> float:
        """That of the fit."""
        return self.fit.noise_multiplier

    @property
    def asks_sums(self) -> bool:
        """Whether the fit takes rows in chunks, as the columns do."""
        return bool(getattr(self.fit, "asks_sums", False))

    @property
    def memory(self) -> int | None:
        """Bytes that the fit takes, about."""
        return getattr(self.fit, "memory", None)

    @property
    def n_rows(self) -> int:
        """Public number of rows."""
        return self.fit.n_rows

    @property
    def sampling(self) -> str:
        """How the report says it."""
        if not self.released:
            return str(self.fit.sampling)
        return f"columns standardised by {self.columns.n_releases} sums over all rows; then " + str(
            self.fit.sampling
        )

    def event(self) -> DpEvent:
        """What the run releases."""
        if not self.released:
            return self.fit.event()
        from dp_accounting.dp_event import ComposedDpEvent

        return ComposedDpEvent([self.columns.event(), self.fit.event()])

    def calibrated(self, budget: Budget) -> StandardisedConfig:
        """Return the same run where columns take their share of the squared GDP budget.

        A fit that was calibrated to all of the budget is left the rest; noise that was given stays.
        """
        if not self.released or not budget.private:
            return self
        sigma, share = self.fit.noise_multiplier, self.columns.share
        of_fit = math.sqrt(sum(1.0 / (sigma * unit) ** 2 for unit in self.fit.units))
        sigma /= 1.0 if budget.given is not None else math.sqrt(1.0 - share)
        of_columns = math.sqrt(sum(1.0 / unit**2 for unit in self.columns.units))
        own = of_columns / (of_fit * math.sqrt(share))

        def of(factor: float) -> StandardisedConfig:
            columns = replace(self.columns, noise_multiplier=own * factor)
            fit = replace(self.fit, noise_multiplier=sigma * factor)
            return replace(self, columns=columns, fit=fit)

        if budget.given is not None:
            return of(1.0)
        return of(budget.least(lambda factor: of(factor).event(), 1.0))

    def run(self, records: Any, streams: Streams, progress: Progress = iter) -> InUnits:
        """Release what is to be known of the columns, and run the fit on standardised rows."""
        config, part = self.columns, parts_of_progress(progress)
        middle, half = config.middle_and_half
        columns = None
        centre, scale = middle, half
        if self.released:
            own = Streams.of(streams.secret("columns"))
            columns = config.run(records, own, part(config.n_releases))
            centre, scale = middle + half * columns.centre, half * columns.scale
        bounds = np.array(config.lower), np.array(config.upper)
        z = changed(records, Standardise(*bounds, config.data_norm, centre, scale))
        rest = part(None)
        if columns is not None and isinstance(self.fit, GLMConfig):
            standard = self.fit.on(z, columns, streams, rest)
        else:
            standard = self.fit.run(z, streams, rest)
        return InUnits(
            in_units(standard, centre, scale, has_intercept=config.centred), standard, columns
        )


def bounded(X: np.ndarray, bounds: Any, data_norm: float | None) -> np.ndarray:
    """Rows that are scaled down to a norm, if there is one, and whose values are cut to bounds."""
    if data_norm is not None and data_norm < math.inf:
        X = clipped_rows(X, data_norm, fit_intercept=False)
    return np.clip(X, *bounds)
