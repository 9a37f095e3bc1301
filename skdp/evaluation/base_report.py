"""`EvaluationReport`: what was released, what it cost, and how it is printed."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from skdp.evaluation.estimates import LEVEL, Estimate, NoisyTable
from skdp.privacy.report import PrivacyReport


@dataclass(frozen=True, eq=False, repr=False)
class EvaluationReport:
    """What was released, and what it cost; base of the reports.

    Attributes
    ----------
    privacy_ : PrivacyReport
        The privacy statement of the release.
    counts_ : ndarray of int
        The released table: noisy counts, possibly negative.
    noise_variance_ : float
        Variance of the noise on each count.
    n_ : int or None
        Public number of rows; None where it is private.
    level, alike : float and int
        Nominal coverage of the intervals; rows that may be of one person.
    subgroups_, bins_ : dict, and ScoreBins or ResidualBins
        A report of each declared subgroup; and the public bins.

    Examples
    --------
    >>> from skdp.evaluation import private_report
    >>> report = private_report([0, 1] * 50, [0.1, 0.8] * 50, classes=[0, 1], n_samples=100)
    >>> round(report.privacy_.epsilon, 9)
    1.0
    """

    privacy_: PrivacyReport
    counts_: np.ndarray
    noise_variance_: float
    n_: int | None
    level: float = LEVEL
    alike: int = 1
    subgroups_: dict[Any, Any] = field(default_factory=dict)
    bins_: Any = field(kw_only=True)
    _shown: ClassVar[tuple[str, ...]] = ()

    def _table(self, counts: np.ndarray) -> NoisyTable:
        return NoisyTable.of(counts.ravel(), self.noise_variance_, self.n_, self.alike, self.level)

    @cached_property
    def _cells(self) -> NoisyTable:
        """Counts by the bins of scores or residuals."""
        return self._table(self.counts_)

    @property
    def edges_(self) -> np.ndarray:
        """Public edges of the bins."""
        return self.bins_.edges

    @property
    def caution(self) -> str:
        """What the released table has against its own bins; empty for nothing."""
        return ""

    def estimates(self) -> dict[str, Estimate]:
        """Return the summary numbers by name: those that the report prints."""
        return {name: getattr(self, name) for name in self._shown}

    def to_dict(self) -> dict[str, Any]:
        """Return estimates, released counts and the privacy statement as plain objects."""
        return {
            "estimates": {name: e.to_dict() for name, e in self.estimates().items()},
            "caution": self.caution,
            "counts": self.counts_.tolist(),
            "noise_variance": self.noise_variance_,
            "n": self.n_,
            "privacy": self.privacy_.to_dict(),
            "subgroups": {str(k): r.to_dict()["estimates"] for k, r in self.subgroups_.items()},
        }

    def _title(self) -> str:
        rows = "a private number of" if self.n_ is None else f"{self.n_}"
        epsilon = f"epsilon={self.privacy_.epsilon:.4g}"
        nominal = "" if self.privacy_.valid else ", nominal: NOT a guarantee"
        return f"{type(self).__name__} of {rows} rows ({epsilon}{nominal})"

    def _printed(self) -> tuple[list[str], dict[str, list[str]], list[str]]:
        """Names of columns, cells of each row, and notes."""
        reports = {"all": self} | {str(k): report for k, report in self.subgroups_.items()}
        columns = [report.estimates() for report in reports.values()]
        rows = {row.replace("_", " "): [_text(c[row]) for c in columns] for row in columns[0]}
        note = f"intervals of {self.level:.0%}, for sampling and privacy noise together"
        return [*reports], rows, [note, *[f"CAUTION: {self.caution}"] * bool(self.caution)]

    def __repr__(self) -> str:
        names, rows, notes = self._printed()
        lines = [self._title()]
        if self.subgroups_:
            lines.append("  " + " " * 18 + "".join(f"  {name:<24.24}" for name in names))
        for row, cells in rows.items():
            lines.append(f"  {row:<18}{''.join(f'  {cell:<24}' for cell in cells)}".rstrip())
        return "\n".join([*lines, *(f"  {note}" for note in notes)])

    def _repr_html_(self) -> str:
        names, rows, notes = self._printed()
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        body = "".join(
            f"<tr><th style='text-align:left'>{row}</th>"
            f"{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
            for row, cells in rows.items()
        )
        above = "<br>".join([f"<b>{html.escape(self._title())}</b>", *map(html.escape, notes)])
        return f"<table><caption>{above}</caption><tr><th></th>{head}</tr>{body}</table>"


def _text(e: Estimate) -> str:
    # Digits by the width of the interval: two of its own.
    digits = int(np.clip(2 - np.ceil(np.log10(max(e.high - e.low, 1e-9))), 0, 6))
    return f"{e.value:.{digits}f} [{e.low:.{digits}f}, {e.high:.{digits}f}]"
