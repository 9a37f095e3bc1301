"""From checked rows to the cells of tables, and from released tables to reports."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np

from skdp.evaluation._release import CellsOf, TableRelease
from skdp.evaluation.binning import SHARE_EDGES, SHARES, ResidualBins, ScoreBins
from skdp.evaluation.regression_report import RegressionReport
from skdp.evaluation.report import BinaryReport, MulticlassReport
from skdp.fitting.declared import encode_labels, target_bounds
from skdp.fitting.types import Given, Label
from skdp.fitting.validate import as_array, expected, positive
from skdp.fitting.warnings import FitWarning
from skdp.metrics._predictions import numbers

_SUBGROUPS = "declare the values of the labels as subgroups=[...]: which there are is private too"


def scored(
    label: str, probabilities: np.ndarray, y_true: Any, classes: Any
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Check labels; return all classes, and each row's probabilities and the number of its own."""
    found, codes = encode_labels(_labels(y_true, len(probabilities)), classes, label)
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
    release: TableRelease,
    classes: Any,
    records: Any,
    subgroup: Any,
    given: Any,
    groups: Any,
    inferred: tuple[str, ...] = (),
) -> BinaryReport | MulticlassReport:
    release.n_tables = 1 if len(classes) == 2 else 2
    names, records = _with_subgroups(records, *subgroup)
    n_bins, kind, shapes = release.bins(len(records[0])), BinaryReport, {"counts_": (2, -1)}
    bins = ScoreBins.of(n_bins)  # of the positive class of two, else of the most probable one
    if len(classes) > 2:
        bins, kind = ScoreBins.of(max(n_bins // 2, 3), 1 / len(classes)), MulticlassReport
        shapes = {"counts_": (len(classes), -1), "by_confidence_": (-1, len(bins.points))}
    kind = partial(kind, bins_=bins, classes_=classes)
    cells_of = partial(cells_of_scores, classes, bins)
    return _report(release, kind, shapes, cells_of, records, names, given, groups, inferred)


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


def regression_report(
    release: TableRelease, bounds: Any, records: Any, subgroup: Any, given: Any, groups: Any
) -> RegressionReport:
    release.n_tables, held = 2, len(records) == 3
    names, records = _with_subgroups(records, *subgroup)
    n_bins, ((low, high), bound) = release.bins(len(records[0])), bounds
    bins, edges = ResidualBins.of(n_bins, bound), np.linspace(low, high, n_bins + 1)
    shapes = {"counts_": (2, -1) if held else (n_bins,), "of_targets_": (n_bins,)}
    kind = partial(RegressionReport, bins_=bins, target_edges_=edges)
    cells_of = partial(_target_cells, bins, edges)
    return _report(release, kind, shapes, cells_of, records, names, given, groups, ())


def _target_cells(
    bins: ResidualBins, edges: np.ndarray, y: np.ndarray, residuals: np.ndarray, *held: np.ndarray
) -> list[tuple[np.ndarray, int]]:
    """Cell of each row in the tables of residuals and of targets, and their numbers of cells."""
    n_bins = len(edges) - 1
    cells = bins.numbers(residuals) + (n_bins * held[0] if held else 0)
    of_targets = np.searchsorted(edges[1:-1], y, side="left")
    return [(cells, n_bins * (1 + len(held))), (of_targets, n_bins)]


def cells_of_scores(
    classes: np.ndarray, bins: ScoreBins, probabilities: np.ndarray, codes: np.ndarray
) -> list[tuple[np.ndarray, int]]:
    """Cell of each row in each table, and the number of cells: one table of two classes, or two.

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


def _by_subgroup(
    cells_of: CellsOf, n_subgroups: int, *arrays: np.ndarray
) -> list[tuple[np.ndarray, int]]:
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
    *given: Any,
) -> Any:
    """Report on all rows, the sum of the subgroups' tables, with one on each subgroup."""
    if names:
        cells_of = partial(_by_subgroup, cells_of, len(names))
    tables = release.run(records, cells_of, len(names) or 1, *given)
    kind = partial(kind, privacy_=tables.privacy, level=release.level, alike=tables.alike)

    def of(tables_of: Any, variance: float, n: int | None, **more: Any) -> Any:
        arrays = zip(shapes.items(), tables_of, strict=True)
        more |= {name: counts.reshape(shape) for (name, shape), counts in arrays}
        return kind(noise_variance_=variance, n_=n, **more)

    # How many rows a subgroup has is private.
    by_subgroup = {
        name: of([counts[k] for counts in tables.counts], tables.variance, None)
        for k, name in enumerate(names)
    }
    whole = [counts.sum(axis=0) for counts in tables.counts]
    variance = tables.variance * len(tables.counts[0])
    report = of(whole, variance, tables.n, subgroups_=by_subgroup)
    if report.caution:
        warnings.warn(f"{release.label}: {report.caution}", FitWarning, stacklevel=4)
    return report


def _labels(y_true: Any, n_rows: int) -> np.ndarray:
    labels = as_array(y_true)
    if labels.shape == (n_rows, 1):
        labels = labels[:, 0]
    if labels.shape != (n_rows,):
        raise ValueError("Expected y_true to hold one class label per row of the predictions.")
    return labels


def finite(values: Any, name: str, n_rows: int | None = None) -> np.ndarray:
    array = numbers(values, name)
    array = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    if array.ndim != 1 or n_rows not in (None, len(array)):
        raise ValueError(f"Expected {name} to hold one number per row.")
    if not np.isfinite(array).all():
        raise ValueError(f"Expected {name} to be finite; drop rows without a number.")
    return array


def _with_subgroups(records: Any, labels: Given, declared: Any) -> tuple[list, tuple[Any, ...]]:
    """Names of all subgroups, and the records with the number of each row's, if there are any."""
    if labels is None:
        if declared is not None:
            raise expected(
                "None without subgroup", "give the label of each row", subgroups=declared
            )
        return [], records
    if declared is None:
        raise expected("the distinct labels of subgroups", _SUBGROUPS, subgroups=None)
    values = as_array(labels)
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
    names = [name.item() if isinstance(name, np.generic) else name for name in names]
    return names, (*records, codes)
