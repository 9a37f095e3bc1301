"""Additive models whose bins lie between private quantiles: these are released before the fit.

`BinsConfig` releases the edges, by halving; the model is made of them, which costs nothing, and the
run of the linear model on its codes follows. The event is declared before: how often the linear
model releases, and with which noise multipliers, does not depend on the edges, and the sensitivity
is that of the model as it is made. The number of features is at most that of the model with as many
bins as were asked for.

Each level of quantiles is a mechanism of bounded range, which is at worst Gaussian
(`skdp.privacy.posterior_samples.bounded_range_mu`), and takes its part of the squared GDP budget.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from dp_accounting.dp_event import ComposedDpEvent, DpEvent
from scipy.special import log_ndtr

from skdp.algorithms.additive import Config, of_codes
from skdp.algorithms.gaussian_posterior import GaussianPosterior
from skdp.algorithms.parts.progress import parts_of_progress
from skdp.algorithms.quantiles import APART, MOST_EPSILON, BinsConfig, halvings
from skdp.engine.loop import Progress
from skdp.fitting.streams import Streams
from skdp.fitting.validate import expected
from skdp.mechanisms.quantile import GRID
from skdp.models.additive import Additive, Number, Telling
from skdp.privacy.budget import Budget
from skdp.relations import sensitivity_factor

UNIT = 1e-6  # magnitude below which values are told apart by their difference
MOST_BOUND = 1e150  # its square is a double too
# Rows in a bin over 1/ε of a level, at least: with fewer, edges are noise. Like the default share
# of the budget, chosen on the tables magic, abalone, credit and adult of benchmarks/additive.py.
ROWS = 2.0


class AtEdges(NamedTuple):
    """What a run released: the posterior, and the config that was made of the edges."""

    config: Config
    posterior: GaussianPosterior


@dataclass(frozen=True)
class AtDeclared:
    """Takes records with numbers of the columns at places to codes of the bins of a model."""

    model: Additive
    places: tuple[int, ...]

    def __call__(self, records: Any) -> Any:
        """Code the records."""
        codes = records.X.copy()
        for place in self.places:
            column: Any = self.model.columns[place]
            codes[:, place] = column.codes(codes[:, place])
        return records._replace(X=codes.astype(np.int32))


@dataclass(frozen=True, kw_only=True)
class PrivateEdgesConfig:
    """Public facts of a run.

    - ``edges``: the run that releases edges of some columns; ``places``: which columns these are.
    - ``fit``: the run that follows, as if there were as many bins as are asked for.
    - ``model``: all columns, before waves are asked for.
    - ``mu``: GDP budget of the fit, of a record that comes or goes.
    - ``telling``: how much scores tell.
    """

    edges: BinsConfig
    places: tuple[int, ...]
    fit: Config
    model: Additive
    mu: float
    telling: Telling
    instead_of_all_rows: ClassVar[str] = "declared edges, or edges=None"

    @classmethod
    def of(cls, bounds: Sequence[Any], n_bins: int, **run: Any) -> PrivateEdgesConfig:
        """Return the run whose edges are quantiles within bounds of each column."""
        found = np.asarray(bounds, dtype=np.float64)
        if np.abs(found).max() > MOST_BOUND or (np.diff(np.arcsinh(found / UNIT)) <= 0.0).any():
            what = f"at most {MOST_BOUND:g} in size, and farther apart than rounding can tell"
            raise expected(what, bounds=bounds)
        edges = BinsConfig(
            lower=tuple(found[:, 0].tolist()),
            upper=tuple(found[:, 1].tolist()),
            shares=tuple(k / n_bins for k in range(1, n_bins)),
            unit=UNIT,
            neighboring_relation=run["fit"].neighboring_relation,
        )
        return cls(edges=edges, **run)

    @property
    def n_releases(self) -> int:
        """Number of noisy releases."""
        return self.edges.n_releases + self.fit.n_releases

    @property
    def noise_multiplier(self) -> float:
        """That of the fit."""
        return self.fit.noise_multiplier

    @property
    def memory(self) -> int | None:
        """Bytes that the fit takes, about."""
        return getattr(self.fit, "memory", None)

    @property
    def sampling(self) -> str:
        """How the report says it."""
        return f"{self.edges.sampling}; then {self.fit.sampling}"

    def event(self) -> DpEvent:
        """What the run releases."""
        return ComposedDpEvent([self.edges.event(), self.fit.event()])

    def calibrated(self, budget: Budget, share: float) -> PrivateEdgesConfig:
        """Return the same run where edges take a share of the squared GDP budget, beside the fit.

        A fit that was calibrated to all of the budget is left the rest; noise that was given stays.
        """
        if not budget.private:
            return self
        fit: Any = self.fit
        sigma = fit.noise_multiplier / (1.0 if budget.epsilon is None else math.sqrt(1.0 - share))
        units = sensitivity_factor(budget.neighboring_relation) / (sigma * np.array(fit.units))
        mu = float(np.linalg.norm(units)) * math.sqrt(share / (1.0 - share))
        eta = range_of_level(mu, self.edges.n_releases)
        if eta < self.edges.least:
            raise expected("larger", "private edges are dominated by noise", edges_share=share)

        def of(factor: float) -> PrivateEdgesConfig:
            edges = replace(self.edges, epsilon=eta / factor)
            return replace(self, edges=edges, fit=replace(fit, noise_multiplier=sigma * factor))

        return of(budget.least(lambda factor: of(factor).event(), 1.0))

    def run(self, records: Any, streams: Streams, progress: Progress = iter) -> AtEdges:
        """Release edges and run the fit on codes of the bins between them.

        Records are numbers of the columns at ``places`` and codes of the others, (n, columns), with
        their targets. Streams are "edges", and those of the fit.
        """
        part = parts_of_progress(progress)
        found = self.edges.run(
            records._replace(X=records.X[:, self.places]),
            lambda _: streams("edges"),
            part(self.edges.n_releases),
        )
        columns = list(self.model.columns)
        for place, edges in zip(self.places, edges_of(self.edges, found), strict=True):
            columns[place] = Number(columns[place].name, edges)
        model = self.model.of_columns(columns)
        # No larger than what was planned, whose size is in the event where noise is discrete.
        model = model.asked(self.fit.n_rows, self.mu, self.fit.model.size, self.telling)
        config = of_codes(self.fit, model, self.mu)
        records = AtDeclared(model, self.places)(records)
        return AtEdges(config, config.run(records, streams, part(None)))


def bins_told(n_bins: int, n_columns: int, n_rows: int, mu: float) -> int:
    """Number of bins whose edges so many rows and a GDP budget tell: halvings, n_bins at most."""
    n_levels = len(halvings(n_bins))
    while n_levels > 1:
        eta = range_of_level(mu, n_columns * n_levels)
        if eta * n_rows >= ROWS * 2**n_levels:
            break
        n_levels -= 1
    return min(n_bins, 2**n_levels)


def range_of_level(mu: float, n_levels: int) -> float:
    """Range η of each of so many levels of quantiles that are μ-GDP together."""
    half = mu / math.sqrt(n_levels) / 2.0
    return min(2.0 * float(log_ndtr(half) - log_ndtr(-half)), MOST_EPSILON)


def edges_of(config: BinsConfig, found: np.ndarray) -> list[tuple[float, ...]]:
    """Ascending edges of each column from its released quantiles (n_bins - 1, columns).

    Where several are of one value, this gets a bin of its own, between edges right below and above.
    """
    edges = []
    for low, high, quantiles in zip(config.lower, config.upper, found.T, strict=True):
        ends = config.axis(np.array([low, high]))
        near = APART * (ends[1] - ends[0]) / GRID
        x = np.sort([low, *quantiles, high])
        t = config.axis(x)
        starts = np.flatnonzero(np.diff(t, prepend=-np.inf) > near)
        stops = np.append(starts[1:], len(t)) - 1
        of_one = x[starts[starts == stops]]
        of_many = np.append(t[starts] - near, t[stops] + near)[np.tile(starts < stops, 2)]
        inner = np.clip(np.append(of_one, config.unit * np.sinh(of_many)), low, high)
        apart = np.unique([low, *inner, high])
        if len(apart) == 2:  # rounding has put all on the bounds, and one bin has no trend
            apart = np.array([low, (low + high) / 2, high])
        edges.append(tuple(apart.tolist()))
    return edges
