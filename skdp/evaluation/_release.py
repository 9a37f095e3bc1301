"""`TableRelease`: from checked rows to tables of counts, released once, and to reports on them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from skdp.evaluation.binning import SHARE_EDGES, SHARES, ResidualBins, ScoreBins, n_bins_for
from skdp.evaluation.regression_report import RegressionReport
from skdp.evaluation.report import BinaryReport, MulticlassReport
from skdp.fitting.charge import charged, initial_seed, streams
from skdp.fitting.declared import check_budget, encode_labels, target_bounds
from skdp.fitting.estimator import PREDICTED_BY_ROW
from skdp.fitting.plan import FitPlan, PublicFacts
from skdp.fitting.reading import public_n_rows
from skdp.fitting.types import Given, Label, Params, Seed
from skdp.fitting.validate import as_array, expected, in_range, integer_or_auto, positive
from skdp.fitting.warnings import FitWarning
from skdp.mechanisms import GeometricMechanism
from skdp.metrics._predictions import numbers
from skdp.privacy.report import PrivacyReport
from skdp.relations import ROW, Relation, check_relation
from skdp.rows.lazy_rows import rows_of
from skdp.rows.persons import Persons, facts_of, kind_of, persons_of, rows_of_persons

_MOST_BINS = 1000
_SUBGROUPS = "declare the values of the labels as subgroups=[...]: which there are is private too"
Cells = list[tuple[np.ndarray, int]]  # of each table the cell of each row, and how many there are
CellsOf = Callable[..., Cells]


class Beside(NamedTuple):
    """What is given beside the records of a report."""

    marked: tuple[Any, ...]  # rows as they came, whose marks tell the part of a split
    subgroup: Given
    subgroups: Any
    groups: Given
    inferred: tuple[str, ...] = ()


@dataclass(eq=False, repr=False)
class TableRelease(BaseEstimator):
    """The parameters of `private_report` and its siblings, and what is done with them."""

    label: str
    epsilon: float
    delta: float
    neighboring_relation: str
    unit: str | Persons
    n_samples: int | None
    n_bins: int | str
    level: float
    random_state: Seed
    n_tables: int = 1

    @classmethod
    def of(cls, label: str, given: Mapping[str, Any]) -> TableRelease:
        """Take the parameters from all arguments of a function, or attributes of an object."""
        return cls(label, *(given[field.name] for field in fields(cls)[1:-1]))

    @property
    def _relation(self) -> Relation:
        return check_relation(self.neighboring_relation).of_unit(kind_of(self.unit))

    @property
    def _most_rows(self) -> int:
        """Rows of one record that take part, at most."""
        persons = persons_of(self.unit, alone="max_rows")
        return 1 if persons is None else facts_of(persons).most_rows or 1

    def mechanism(self) -> GeometricMechanism:
        """Check the parameters, and say what noise is added."""
        check_budget(self, pure=True)
        in_range(0.0, 1.0, level=self.level)
        norm = self.n_tables * self._most_rows
        return GeometricMechanism(norm, self.epsilon, self._relation)

    def bins(self, n_rows: int) -> int:
        """Number of bins: a function of public facts."""
        mechanism, is_public = self.mechanism(), self._relation.n_is_public
        if is_public and not n_rows:
            raise ValueError("Expected at least one row to report on.")
        n = public_n_rows(self.n_samples, n_rows, is_public=is_public)
        auto = n_bins_for(n, float(mechanism.scale) * self._most_rows)
        n_bins = integer_or_auto(auto, 2, n_bins=self.n_bins)
        if n_bins % 2 or n_bins > _MOST_BINS:
            raise expected(f"even and at most {_MOST_BINS}: one edge is ½ or 0", n_bins=self.n_bins)
        return n_bins

    def run(
        self, records: Any, cells_of: CellsOf, n_subgroups: int, beside: Beside
    ) -> tuple[list[np.ndarray], PrivacyReport, Params]:
        """Charge, count, and release tables (n_subgroups, n_cells), with what reports say of all.

        ``cells_of`` takes the records and numbers cells subgroup after subgroup.
        """
        mechanism, relation, n = self.mechanism(), self._relation, len(records[0])
        most, groups = self._most_rows, beside.groups
        if groups is None and self.unit != ROW:
            raise expected("one label per row with unit=Persons(...)", groups=None)
        if groups is not None and self.unit == ROW:
            raise expected("None with unit='row'", "or give unit=Persons(...)", groups="given")
        if groups is not None:
            # Which rows of a person are kept is decided by a key that need not be secret.
            key = initial_seed(self).to_bytes(4, "little")
            rows, _ = rows_of_persons(groups, n, most, key)
            records = tuple(array[rows] for array in records)
        inferred = (*beside.inferred, *["n_samples"] * (self.n_samples is None))
        tables = f"{self.n_tables} table{'s' * (self.n_tables > 1)} of counts"
        of_person = f", at most {most} row{'s' * (most > 1)} of a person" * (self.unit != ROW)
        sampling = f"one release of {tables} with geometric noise{of_person}"
        of: Params = {"neighboring_relation": relation, "seeded": self.random_state is not None}
        of |= {"inferred_public_facts": inferred, "assumptions": (PREDICTED_BY_ROW,)}
        report = PrivacyReport.of(mechanism.event(), delta=self.delta, sampling=sampling, **of)
        plan = FitPlan(PublicFacts(self.label, inferred=inferred), mechanism, report, n_steps=1)
        report = charged(self, plan, beside.marked, groups=groups)
        counts = rows_of(records, _Records).sum(partial(_counts, cells_of), slice(None))
        of_seed = records if isinstance(records[0], np.ndarray) else (records[0].fingerprints,)
        released = mechanism.release(counts, streams(self, *of_seed)("noise"), charged=True)
        none = (np.empty((0, *array.shape[1:]), array.dtype) for array in records)
        ends = np.cumsum([size for _, size in cells_of(*none)])
        found = [part.reshape(n_subgroups, -1) for part in np.split(released, ends[:-1])]
        facts = {"level": self.level, "alike": most, "n_": n if relation.n_is_public else None}
        return found, report, facts | {"noise_variance_": mechanism.standard_deviation**2}


@dataclass
class _Records:
    arrays: tuple[np.ndarray, ...]

    def __len__(self) -> int:
        return len(self.arrays[0])

    def sum(self, term: Callable[[Any], Any], selection: Any) -> Any:
        return term(self.arrays)


def _counts(cells_of: CellsOf, arrays: tuple[np.ndarray, ...]) -> np.ndarray:
    """Count the rows in each cell, one table after the other."""
    return np.concatenate([np.bincount(cells, minlength=m) for cells, m in cells_of(*arrays)])


# --- classes --------------------------------------------------------------------------------------


def scored(
    label: str, probabilities: np.ndarray, y_true: Any, classes: Any
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Check labels; return all classes, and each row's probabilities and the number of its own."""
    labels = _column(as_array(y_true))
    if labels.shape != (len(probabilities),):
        raise ValueError("Expected y_true to hold one class label per row of the predictions.")
    found, codes = encode_labels(labels, classes, label)
    if classes is not None and not np.array_equal(as_array(classes), found):
        raise expected(
            f"each label once, sorted as the columns of probabilities: {list(found)}",
            "of two classes the second is the positive one",
            classes=classes,
        )
    if len(found) != probabilities.shape[1]:
        raise expected(
            f"{probabilities.shape[1]} labels, one for each column of probabilities",
            "declare all classes, sorted as the columns are",
            classes=classes,
        )
    return found, (probabilities / probabilities.sum(axis=1, keepdims=True), codes)


def class_report(
    release: TableRelease, classes: Any, records: Any, beside: Beside
) -> BinaryReport | MulticlassReport:
    """Report on probabilities and codes of true classes."""
    K, release.n_tables = len(classes), 1 if len(classes) == 2 else 2
    names, records = _with_subgroups(records, beside)
    n_bins = release.bins(len(records[0]))
    bins, kind = ScoreBins.of(n_bins), BinaryReport  # of the positive class
    if K > 2:  # of the most probable one
        bins, kind = ScoreBins.of(max(n_bins // 2, 3), 1 / K), MulticlassReport
    shapes = {"counts_": (K, -1)} | ({"by_confidence_": (-1, len(bins.points))} if K > 2 else {})
    kind = partial(kind, bins_=bins, classes_=classes)
    cells_of = partial(cells_of_scores, classes, bins)
    return _report(release, kind, shapes, cells_of, records, names, beside)


def cells_of_scores(
    classes: np.ndarray, bins: ScoreBins, probabilities: np.ndarray, codes: np.ndarray
) -> Cells:
    """Cells in one table of two classes, or in two tables of more.

    Bins are of the positive class of two, else of the most probable one; codes of the true class.
    """
    B, K = len(bins.points), len(classes)
    if K == 2:
        return [(codes * B + bins.numbers(probabilities[:, 1]), 2 * B)]
    top = probabilities.argmax(axis=1)
    p, of_true = probabilities.max(axis=1), probabilities[np.arange(len(codes)), codes]
    most = np.maximum(np.minimum(p, 1 - p), np.finfo(float).tiny)
    wrong = 1 + np.searchsorted(SHARE_EDGES[1:-1], of_true / most, side="left")
    kind = np.where(top == codes, 0, wrong)
    return [(codes * K + top, K * K), (kind * B + bins.numbers(p), (1 + len(SHARES)) * B)]


# --- numbers --------------------------------------------------------------------------------------


def bounds(of_targets: Any, residual_bound: Any) -> tuple[tuple[float, float], float]:
    """Check the declared bounds of targets and residuals."""
    if of_targets is None:
        raise expected("two finite numbers (low, high), low < high", target_bounds=of_targets)
    bound = positive("a public bound on |y - prediction|", residual_bound=residual_bound)
    return target_bounds(of_targets), bound


def missed(y_true: Any, y_pred: Any) -> tuple[np.ndarray, ...]:
    """Return targets and residuals, checked."""
    y = finite(y_true, "y_true")
    with np.errstate(over="ignore"):  # a warning would tell of a row
        return y, y - finite(y_pred, "y_pred", len(y))


def finite(values: Any, name: str, n_rows: int | None = None) -> np.ndarray:
    """Check for one finite number per row."""
    array = _column(numbers(values, name))
    if array.ndim != 1 or n_rows not in (None, len(array)):
        raise ValueError(f"Expected {name} to hold one number per row.")
    if not np.isfinite(array).all():
        raise ValueError(f"Expected {name} to be finite; drop rows without a number.")
    return array


def regression_report(
    release: TableRelease, bounds: Any, records: Any, beside: Beside
) -> RegressionReport:
    """Report on targets, residuals, and whether intervals held the targets, if there were any."""
    release.n_tables, held = 2, len(records) == 3
    names, records = _with_subgroups(records, beside)
    n_bins, ((low, high), bound) = release.bins(len(records[0])), bounds
    bins, edges = ResidualBins.of(n_bins, bound), np.linspace(low, high, n_bins + 1)
    shapes = {"counts_": (2, -1) if held else (n_bins,), "of_targets_": (n_bins,)}
    kind = partial(RegressionReport, bins_=bins, target_edges_=edges)
    cells_of = partial(_target_cells, bins, edges)
    return _report(release, kind, shapes, cells_of, records, names, beside)


def _target_cells(
    bins: ResidualBins, edges: np.ndarray, y: np.ndarray, residuals: np.ndarray, *held: np.ndarray
) -> Cells:
    n_bins = len(edges) - 1
    cells = bins.numbers(residuals) + (n_bins * held[0] if held else 0)
    of_targets = np.searchsorted(edges[1:-1], y, side="left")
    return [(cells, n_bins * (1 + len(held))), (of_targets, n_bins)]


# --- both -----------------------------------------------------------------------------------------


def _column(array: np.ndarray) -> np.ndarray:
    """Numbers of shape (n, 1) as (n,), others as they are."""
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array


def _with_subgroups(records: Any, beside: Beside) -> tuple[list[Label], tuple[Any, ...]]:
    """Names of all subgroups, and the records with the number of each row's, if there are any."""
    declared = beside.subgroups
    if beside.subgroup is None:
        if declared is not None:
            remedy = "give the label of each row"
            raise expected("None without subgroup", remedy, subgroups=declared)
        return [], records
    if declared is None:
        raise expected("the distinct labels of subgroups", _SUBGROUPS, subgroups=None)
    values = as_array(beside.subgroup)
    if values.shape != (len(records[0]),):
        raise ValueError("Expected subgroup to hold one label per row.")
    try:
        names, codes = encode_labels(values, declared, "subgroup")
    except ValueError as error:
        if "every label in y" not in str(error):
            raise expected("a list of at least 2 distinct labels", subgroups=declared) from None
        raise ValueError(
            "Expected every label in subgroup to be one of the declared subgroups, but there are "
            "others; declare them, or a label for the rest."
        ) from None
    return names.tolist(), (*records, codes)


def _by_subgroup(cells_of: CellsOf, n_subgroups: int, *arrays: np.ndarray) -> Cells:
    """Cells of each subgroup after those of the one before; its number is the last array."""
    *scores, of = arrays
    return [(of * size + cells, n_subgroups * size) for cells, size in cells_of(*scores)]


def _report(
    release: TableRelease,
    kind: Any,
    shapes: dict[str, tuple[int, ...]],
    cells_of: CellsOf,
    records: tuple[Any, ...],
    names: list[Label],
    beside: Beside,
) -> Any:
    """Report on all rows, the sum of the subgroups' tables, with one on each subgroup."""
    if names:
        cells_of = partial(_by_subgroup, cells_of, len(names))
    tables, privacy, facts = release.run(records, cells_of, len(names) or 1, beside)

    def of(counts: list[np.ndarray], **more: Any) -> Any:
        shaped = zip(shapes.items(), counts, strict=True)
        arrays = {name: table.reshape(shape) for (name, shape), table in shaped}
        return kind(privacy_=privacy, **arrays, **facts | more)

    # How many rows a subgroup has is private.
    parts = {name: of([table[k] for table in tables], n_=None) for k, name in enumerate(names)}
    variance = facts["noise_variance_"] * len(tables[0])
    whole = [table.sum(axis=0) for table in tables]
    report = of(whole, noise_variance_=variance, subgroups_=parts)
    if report.caution:
        warnings.warn(f"{release.label}: {report.caution}", FitWarning, stacklevel=4)
    return report
