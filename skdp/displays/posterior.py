"""`PosteriorDisplay`: what is known of each parameter, from posterior samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from skdp.displays._axes import GREY, Artist, Axes, ColorType, axes, legend, plain
from skdp.displays._inputs import Chosen, check_names, columns, last_step, level_between, select
from skdp.fitting.types import ArrayLike, Params, Seed
from skdp.fitting.validate import expected, in_range, integer
from skdp.inspection import effects

_MEDIANS = "skdp.PosteriorDisplay.medians"
_N_DEFAULT = 8


class PosteriorDisplay:
    """Marginal densities of parameters, with medians and central intervals.

    Parameters
    ----------
    samples : array-like of shape (n_samples, n_parameters)
        Posterior samples; finite.
    names : list of str of length n_parameters, default=None
        Names of the parameters; None numbers them.
    name : str, default=None
        Name of the posterior in the legend.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        What was drawn on, with a row for each parameter.
    medians_, intervals_, densities_ : matplotlib Line2D, LineCollection and list of artists
        Medians, intervals, and densities, each scaled to the height of its row; none for a
        parameter that does not vary.

    Examples
    --------
    Two posteriors of the same parameters in one picture:

    >>> import numpy as np
    >>> from skdp.displays import PosteriorDisplay
    >>> normals = np.random.default_rng(0).standard_normal((500, 3))
    >>> first = PosteriorDisplay.from_samples(normals, name="ε = 1")
    >>> second = PosteriorDisplay.from_samples(0.3 * normals, name="ε = 10", ax=first.ax_)
    >>> second.ax_.get_xlabel()
    'Parameter value (median and 90% interval)'
    """

    def __init__(
        self, samples: ArrayLike, *, names: Sequence[str] | None = None, name: str | None = None
    ) -> None:
        self.samples = columns(samples, "samples")
        self.names = check_names(names, self.samples.shape[1], "θ")
        self.name = name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        parameters: Chosen | None = None,
        per: float | str | Mapping[str, float] | None = None,
        n_samples: int = 1000,
        random_state: Seed = None,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> PosteriorDisplay:
        """Draw the posterior of a fitted estimator.

        Parameters
        ----------
        estimator : fitted estimator or Pipeline
            Has `sample_posterior` and ``parameter_names_``. Coefficients of a linear model are
            named and stated as by `skdp.inspection.summary`: of a pipeline, per unit of the
            features before its scalers; of several classes, less their mean.
        parameters : str, int, or list of them, default=None
            Names or indices of the parameters. None takes the first eight.
        per : float, dict, "sd" or None, default=None
            Of how many units of a feature the effect is shown, as in `skdp.inspection.summary`; of
            linear models.
        n_samples, random_state : int, default=1000 and None
            Number of posterior samples ≥ 1, and their seed.
        name, ax, **kwargs : optional
            As in `plot`.

        Returns
        -------
        PosteriorDisplay
        """
        last = last_step(estimator, "sample_posterior")
        names = list(last_step(estimator, "parameter_names_").parameter_names_)
        A, names, shown = _stated(estimator, names, per)
        chosen = select(parameters, names, _N_DEFAULT)
        seed = {} if random_state is None else {"random_state": random_state}
        samples = last.sample_posterior(integer(1, n_samples=n_samples), **seed)
        samples = np.hstack([samples[:, : A.shape[1]] @ A.T, samples[:, A.shape[1] :]])
        display = cls(samples[:, chosen], names=[shown[i] for i in chosen], name=name)
        return display.plot(ax, **kwargs)

    @classmethod
    def from_samples(
        cls,
        samples: ArrayLike,
        *,
        names: Sequence[str] | None = None,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> PosteriorDisplay:
        """Draw posterior samples; parameters are those of `PosteriorDisplay` and `plot`."""
        return cls(samples, names=names, name=name).plot(ax, **kwargs)

    def plot(
        self,
        ax: Axes | None = None,
        *,
        name: str | None = None,
        level: float = 0.9,
        color: ColorType | None = None,
    ) -> PosteriorDisplay:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on: those of another display of the same parameters, to compare the two.
            None makes a figure.
        name : str, default=None
            Name in the legend. None takes that of the display.
        level : float, default=0.9
            Probability in (0, 1) of the intervals, as much being left out below as above.
        color : color of matplotlib, default=None
            Colour; None takes the next of the cycle.

        Returns
        -------
        PosteriorDisplay
        """
        in_range(0, 1, level=level)
        n = len(self.names)
        self.ax_ = axes(ax, (6.0, 1.2 + 0.55 * n))
        self.figure_ = self.ax_.figure
        n_before = self._displays_before()
        if n_before == 0:
            self._prepare(level)

        # Densities stand on the line of their parameter, intervals lie below it, one a display.
        rows = np.arange(n) + 0.1 + 0.12 * n_before
        style: Params = {"label": self.name if name is None else name, "gid": _MEDIANS}
        medians = np.median(self.samples, axis=0)
        (self.medians_,) = self.ax_.plot(medians, rows, "o", markersize=5, color=color, **style)
        color = self.medians_.get_color()
        low, high = np.quantile(self.samples, level_between(level), axis=0)
        self.intervals_ = self.ax_.hlines(rows, low, high, color=color, linewidth=2.5)
        self.densities_ = [
            self._draw_density(values, row, color)
            for row, values in enumerate(self.samples.T)
            if np.ptp(values) > 0
        ]
        self.ax_.set_ylim(max(n - 0.4, rows[-1] + 0.2), -1.0)
        legend(self.ax_, loc="best")
        return self

    def _displays_before(self) -> int:
        n_before = sum(line.get_gid() == _MEDIANS for line in self.ax_.lines)
        there = [label.get_text() for label in self.ax_.get_yticklabels()]
        if n_before and there != self.names:
            remedy = "draw on axes of their own"
            raise expected("axes of a display of the same parameters", remedy, ax=self.ax_)
        return n_before

    def _prepare(self, level: float) -> None:
        plain(self.ax_)
        self.ax_.grid(visible=False, axis="y")
        self.ax_.axvline(0.0, color=GREY, linewidth=0.8, linestyle=":")
        self.ax_.set_yticks(range(len(self.names)), self.names)
        self.ax_.tick_params(axis="y", length=0)
        self.ax_.set_xlabel(f"Parameter value (median and {level:.0%} interval)")

    def _draw_density(self, values: np.ndarray, row: int, color: ColorType) -> Artist:
        grid, density = _density(values)
        top = row - 0.65 * density / density.max()
        self.ax_.plot(grid, top, color=color, linewidth=1)
        return self.ax_.fill_between(grid, row, top, color=color, alpha=0.25, linewidth=0)


def _stated(estimator: Any, names: list[str], per: Any) -> tuple[np.ndarray, list[str], list[str]]:
    """Say what parameters make of those of a model; names to choose by, and names that are shown.

    Those of models that are not linear, or of pipelines whose steps name no columns, stay.
    """
    last = estimator[-1] if isinstance(estimator, Pipeline) else estimator
    if per is None and not hasattr(type(last), "summary"):
        return np.zeros((0, 0)), names, names
    try:
        plain, of_units = effects(estimator), effects(estimator, per)
    except AttributeError:
        if per is not None:
            remedy = "a step before the model has no get_feature_names_out"
            raise expected("None", remedy, per=per) from None
        return np.zeros((0, 0)), names, names
    rest = names[plain.A.shape[1] :]
    return of_units.A, [*plain.names, *rest], [*of_units.names, *rest]


def _density(values: np.ndarray, n_grid: int = 512) -> tuple[np.ndarray, np.ndarray]:
    """Smooth a histogram by a Gaussian of Silverman's width: one pass, however many samples."""
    spread = np.std(values)
    between = np.subtract(*np.quantile(values, [0.75, 0.25])) / 1.34
    width = 0.9 * (min(spread, between) or spread) * len(values) ** -0.2
    ends = values.min() - 3 * width, values.max() + 3 * width
    counts, edges = np.histogram(values, bins=n_grid, range=ends)
    grid = (edges[1:] + edges[:-1]) / 2
    offsets = (grid - grid[n_grid // 2]) / width
    return grid, np.convolve(counts, np.exp(-(offsets**2) / 2), mode="same")
