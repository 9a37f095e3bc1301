"""`AuditReport`: what an audit claimed, counted and proved."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from skdp.audit.confidence import frame_of, limits
from skdp.fitting.types import Json, Params
from skdp.relations import GROUP, check_relation

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, repr=False)
class AuditReport:
    """Result of an audit: counts of errors, and the ε that they prove.

    A lower bound below the claim does not prove the claim. It says that this canary and this
    statistic found nothing, and `tightness` how much room was left to find something in.

    Attributes
    ----------
    epsilon, delta : float
        The claim.
    epsilon_lower_bound : float
        With probability ``confidence``, no guarantee with a smaller ε holds at ``delta``.
    frame : {"dp", "gdp"}
        Whether the bound is one against every (ε, δ), or against a Gaussian mechanism of that cost.
    confidence : float
        Of the bound.
    misses, n_with, alarms, n_without : int
        Results with the canary that were taken for ones without, of how many; and ones without that
        were taken for ones with, of how many.
    threshold : float
        Scores above it were taken for results with the canary; set beforehand.
    audited, neighboring_relation : str
        What was audited, and how the two data sets differ.
    seconds : float
        Time that it took.
    departure : str
        How the release differs from the mechanism that was claimed, of `audit_mechanism`.
    neighbor : str
        What one of the data sets had in the canary's place, of `audit_estimator`. The verdict holds
        only if that makes the two neighbours.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp.audit import audit_samples
    >>> rng = np.random.default_rng(0)
    >>> report = audit_samples(
    ...     rng.normal(2.0, 1.0, 2000), rng.normal(0.0, 1.0, 2000), epsilon=1.0, delta=1e-5
    ... )
    >>> report.violation
    True
    >>> print(report.verdict)
    violation: epsilon >= 2.9, but 1 was claimed
    """

    epsilon: float
    delta: float
    epsilon_lower_bound: float
    frame: str
    confidence: float
    misses: int
    n_with: int
    alarms: int
    n_without: int
    threshold: float
    audited: str = "samples"
    neighboring_relation: str = "zero_out"
    seconds: float = math.nan
    departure: str = ""
    neighbor: str = ""

    @property
    def unit(self) -> str:
        """What the claim protects: a ``"row"``, or a ``"group"``, all rows of a person."""
        return check_relation(self.neighboring_relation).unit

    @property
    def violation(self) -> bool:
        """Whether the claim was refuted."""
        return bool(self.departure) or self.epsilon_lower_bound > self.epsilon

    @property
    def verdict(self) -> str:
        """The outcome in words."""
        if self.departure:
            return f"violation: {self.departure}"
        if self.violation:
            found = f"epsilon >= {self.epsilon_lower_bound:.3g}"
            return f"violation: {found}, but {self.epsilon:.3g} was claimed"
        return "no violation found"

    @property
    def tightness(self) -> float:
        """Share of the claimed ε that was proved to be spent."""
        return self.epsilon_lower_bound / self.epsilon if self.epsilon > 0 else math.nan

    @property
    def rates(self) -> tuple[float, float]:
        """Observed rates of false alarms and of misses."""
        return self.alarms / self.n_without, self.misses / self.n_with

    def to_dict(self) -> dict[str, Json]:
        """Return the report as plain Python objects, with verdict, tightness and unit."""
        stated = [field.name for field in fields(self)]
        names = [*stated, "violation", "verdict", "tightness", "unit"]
        return {name: getattr(self, name) for name in names}

    def _rows(self) -> list[tuple[str, str]]:
        bound = f"epsilon >= {self.epsilon_lower_bound:.4g}"
        against = "a Gaussian mechanism" if self.frame == "gdp" else "any (epsilon, delta)"
        counts = f"{self.alarms} of {self.n_without} false alarms, {self.misses} of {self.n_with}"
        of_canary = f"; in the canary's place: {self.neighbor}" if self.neighbor else ""
        relation = check_relation(self.neighboring_relation)
        unit = [("unit", relation.in_words)] if relation.unit == GROUP else []
        return [
            *unit,
            ("claimed", f"(epsilon={self.epsilon:.4g}, delta={self.delta:g})"),
            ("proved", f"{bound} as {against}, {100 * self.confidence:g} % confidence"),
            ("tightness", f"{self.tightness:.2f}"),
            ("counts", f"{counts} misses"),
            ("neighbours", f"{self.neighboring_relation}{of_canary}"),
        ]

    def __repr__(self) -> str:
        """Print a line a fact."""
        head = f"AuditReport of {self.audited}: {self.verdict}"
        return "\n".join([head, *(f"  {name:<12}{value}" for name, value in self._rows())])

    def plot(self, ax: Axes | None = None, **kwargs: Any) -> Axes:
        """Draw the curve that the claim puts below all tests, and where this test was.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on; None makes a figure.
        **kwargs
            Arguments of ``Axes.plot`` for the curve.

        Returns
        -------
        matplotlib Axes
            With the claimed curve, the observed rates and the rectangle in which the true ones lie
            with probability ``confidence``. One that is below the curve as a whole is a violation;
            the bound is a little sharper than the picture.
        """
        from skdp.displays._axes import axes, legend

        ax = axes(ax, (4.6, 4.2))
        from matplotlib.patches import Rectangle

        frame = frame_of(self.frame, self.delta)
        alpha = np.linspace(0.0, 1.0, 400)
        if math.isfinite(self.epsilon):
            curve = frame.tradeoff(frame.of_epsilon(self.epsilon), alpha)
            style: Params = {"color": "tab:blue", "label": f"claim, ε = {self.epsilon:.3g}"}
            ax.plot(alpha, curve, **(style | kwargs))
        # Each interval has half of the error probability.
        level = (1 - self.confidence) / 2
        left, right = limits(self.alarms, self.n_without, level)
        low, high = limits(self.misses, self.n_with, level)
        colour = "tab:red" if self.violation else "tab:green"
        box = Rectangle((left, low), right - left, high - low, color=colour, alpha=0.3, linewidth=0)
        ax.add_patch(box)
        ax.plot(*self.rates, "o", color=colour, markersize=4, label=self.verdict)
        ax.plot([0, 1], [1, 0], color="0.7", linewidth=0.8, zorder=0)
        ax.set(xlabel="False alarms", ylabel="Misses", xlim=(0, 1), ylim=(0, 1), aspect="equal")
        legend(ax, loc="upper right")
        return ax
