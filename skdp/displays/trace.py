"""`TraceDisplay`: a chain, step by step, with its burn-in shaded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from skdp.displays._axes import GREY, Axes, axes, legend, plain
from skdp.displays._inputs import Chosen, check_names, columns, last_step, select, transformed
from skdp.fitting.types import ArrayLike, Label, Params
from skdp.fitting.validate import expected, in_range
from skdp.metrics._predictions import index_of

_N_DEFAULT = 4
_MOST_NAMED = 10


class TraceDisplay:
    """Parameters, or predictions, along a chain.

    Parameters
    ----------
    trace : array-like of shape (n_kept,) or (n_kept, n_series)
        Values at the kept steps; finite.
    steps : array-like of shape (n_kept,), default=None
        Their numbers, increasing; None counts from 0.
    burn_in : int, default=0
        Steps before this one are shaded.
    names : list of str of length n_series, default=None
        Names of the series; None numbers them.
    quantity : str, default="Parameter value"
        What the vertical axis shows.

    Attributes
    ----------
    ax_, figure_, burn_in_ : matplotlib Axes, Figure, and artist or None
        What was drawn on, and the shade.
    lines_ : list of matplotlib Line2D
        One line per series.

    Examples
    --------
    >>> from skdp.displays import TraceDisplay
    >>> display = TraceDisplay([0.1, 0.4, 0.3], steps=[10, 20, 30], burn_in=10).plot()
    >>> display.lines_[0].get_xdata()
    array([10., 20., 30.])
    """

    def __init__(
        self,
        trace: ArrayLike,
        *,
        steps: ArrayLike | None = None,
        burn_in: float = 0,
        names: Sequence[str] | None = None,
        quantity: str = "Parameter value",
    ) -> None:
        self.trace = columns(trace, "trace")
        self.steps = _check_steps(steps, len(self.trace))
        self.burn_in = in_range(0, float("inf"), closed="left", burn_in=burn_in)
        self.names = check_names(names, self.trace.shape[1], "θ")
        self.quantity = quantity

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        parameters: Chosen | None = None,
        X: ArrayLike | None = None,
        class_label: Label | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> TraceDisplay:
        """Draw the chain that a fitted estimator kept.

        Parameters
        ----------
        estimator : fitted estimator or Pipeline
            Has ``posterior_samples_`` of shape (n_kept, n_parameters), or ``posterior_means_`` in
            their place, ``posterior_steps_`` of shape (n_kept,) and ``burn_in_``; and
            `path_predictive` where X is given.
        parameters : str, int, or list of them, default=None
            Names or indices of the parameters. None takes the first four.
        X : array-like of shape (n, n_features), default=None
            A few rows: the trace is then that of their predicted probability. Parameters of a
            network have no meaning of their own; predictions do.
        class_label : int, float, bool or str, default=None
            The class whose probability is drawn. None takes the last of ``classes_``.
        ax, **kwargs : optional
            As in `plot`.

        Returns
        -------
        TraceDisplay
        """
        if X is not None and parameters is not None:
            raise expected("None where X is given", "draw them apart", parameters=parameters)
        last = last_step(estimator, "posterior_steps_")
        options: Params = {"steps": last.posterior_steps_, "burn_in": last.burn_in_}
        if X is not None:
            return cls._of_predictions(estimator, X, class_label, options).plot(ax, **kwargs)
        if hasattr(last, "posterior_means_"):
            kept, options["quantity"] = np.asarray(last.posterior_means_), "Posterior mean"
        else:
            kept = np.asarray(last.posterior_samples_)
        names = check_names(getattr(last, "parameter_names_", None), kept.shape[1], "θ")
        chosen = select(parameters, names, _N_DEFAULT)
        display = cls(kept[:, chosen], names=[names[i] for i in chosen], **options)
        return display.plot(ax, **kwargs)

    @classmethod
    def from_samples(
        cls,
        trace: ArrayLike,
        *,
        steps: ArrayLike | None = None,
        burn_in: float = 0,
        names: Sequence[str] | None = None,
        quantity: str = "Parameter value",
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> TraceDisplay:
        """Draw a chain; parameters are those of `TraceDisplay` and `plot`."""
        display = cls(trace, steps=steps, burn_in=burn_in, names=names, quantity=quantity)
        return display.plot(ax, **kwargs)

    def plot(self, ax: Axes | None = None, **kwargs: Any) -> TraceDisplay:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on; None makes a figure.
        **kwargs
            Arguments of ``Axes.plot`` for every line.

        Returns
        -------
        TraceDisplay
        """
        self.ax_ = axes(ax, (7.5, 3.6))
        self.figure_ = self.ax_.figure
        plain(self.ax_)
        few = self.trace.shape[1] <= _MOST_NAMED
        style: Params = {"linewidth": 1.2 if few else 0.7, "alpha": 0.9 if few else 0.5}
        style["label"] = self.names if few else None
        if len(self.steps) <= 50:
            style |= {"marker": ".", "markersize": 5}
        self.lines_ = list(self.ax_.plot(self.steps, self.trace, **style | kwargs))
        self.burn_in_ = None
        if self.burn_in > 0:
            self.ax_.margins(x=0.01)
            shade: Params = {"color": GREY, "alpha": 0.15, "linewidth": 0, "label": "burn-in"}
            self.burn_in_ = self.ax_.axvspan(min(0.0, self.steps[0]), self.burn_in, **shade)
        self.ax_.set(xlabel="Step", ylabel=self.quantity)
        legend(self.ax_, loc="center left", bbox_to_anchor=(1.0, 0.5))
        return self

    @classmethod
    def _of_predictions(
        cls, estimator: Any, X: ArrayLike, class_label: Label | None, options: Params
    ) -> TraceDisplay:
        last = last_step(estimator, "path_predictive")
        classes = np.asarray(last.classes_).tolist()
        label = classes[-1] if class_label is None else class_label
        column = index_of(classes, class_label=label)
        trace = np.asarray(last.path_predictive(transformed(estimator, X)))[:, :, column]
        names = [f"row {i}" for i in range(trace.shape[1])]
        return cls(trace, names=names, quantity=f"Probability of class {label}", **options)


def _check_steps(steps: ArrayLike | None, n_kept: int) -> np.ndarray:
    if steps is None:
        return np.arange(n_kept, dtype=np.float64)
    array = columns(steps, "steps")
    if array.shape != (n_kept, 1) or not (np.diff(array[:, 0]) > 0).all():
        raise ValueError(f"Expected steps to be {n_kept} increasing numbers, one per row of trace.")
    return array[:, 0]
