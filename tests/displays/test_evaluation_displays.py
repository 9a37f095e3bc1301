"""Displays of private reports: what is drawn is what the report gave."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from bundles import bundled

from skdp.displays import (
    ConfusionMatrixDisplay,
    PrecisionRecallDisplay,
    ReliabilityDisplay,
    RocCurveDisplay,
)
from skdp.evaluation import Estimate, private_regression_report, private_report
from skdp.metrics import reliability_table

CURVES = [RocCurveDisplay, PrecisionRecallDisplay]


def binary(n, epsilon):
    rng = np.random.default_rng(0)
    p = rng.beta(1, 2, n)
    y = np.where(rng.random(n) < p, "yes", "no")
    return private_report(y, p, classes=["no", "yes"], n_samples=n, epsilon=epsilon)


def of_classes(n_classes):
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(n_classes), 2000)
    y = (p.cumsum(axis=1) > rng.random((2000, 1))).argmax(axis=1)
    return private_report(y, p, classes=range(n_classes), n_samples=2000)


@pytest.fixture(scope="module")
def report():
    return binary(4000, 1.0)


@pytest.fixture(scope="module")
def three():
    return of_classes(3)


def texts(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def band(display):
    return display.band_.get_paths()[0]


def drawn(display, point):
    """Whether a point is an end of the band, or of the line of a bin that stands alone."""
    paths = [path for found in display.ax_.collections for path in found.get_paths()]
    return any(np.isclose(path.vertices, point).all(axis=1).any() for path in paths)


@pytest.mark.parametrize("of", ["two classes", "three"])
def test_calibration_is_that_of_the_report_with_its_band(report, three, of):
    report = report if of == "two classes" else three
    display = ReliabilityDisplay.from_report(report, name="model")
    curve = report.calibration_curve()
    known = (curve.share.value > 0) & ~((curve.happened.low <= 0) & (curve.happened.high >= 1))
    assert known.sum() >= 5
    np.testing.assert_array_equal(display.line_.get_xdata(), curve.predicted[known])
    np.testing.assert_array_equal(display.line_.get_ydata(), curve.happened.value[known])
    for ends in (curve.happened.low, curve.happened.high):
        for point in zip(curve.predicted[known], ends[known], strict=True):
            assert drawn(display, point)
    below = display.axes_[1]
    np.testing.assert_array_equal(display.histogram_.get_data().values, curve.share.value)
    bars = [bar[:, 1] for bar in below.collections[0].get_segments()]
    np.testing.assert_allclose(bars, np.c_[curve.share.low, curve.share.high])
    error = report.ece
    assert texts(display.ax_)[1].startswith(f"model (ECE {error.value:.3f} [{error.low:.3f}")
    assert texts(display.ax_)[2] == "90% intervals"
    assert below.get_ylabel() == "Share of rows"
    label = "Share of class yes" if of == "two classes" else "Accuracy"
    assert display.ax_.get_ylabel() == label


def test_a_bin_of_which_nothing_is_known_has_no_point_and_leaves_a_gap_in_the_band():
    report = binary(60, 0.1)
    curve = report.calibration_curve()
    unknown = (curve.happened.low <= 0) & (curve.happened.high >= 1)
    assert unknown.any()
    display = ReliabilityDisplay.from_report(report)
    assert not np.isin(display.line_.get_xdata(), curve.predicted[unknown]).any()
    for path in display.band_.get_paths():
        x, y = path.vertices.T
        places = curve.predicted[unknown]
        assert not ((places >= x.min()) & (places <= x.max())).any()
        assert not {0.0, 1.0} <= set(y)
    for x, low in zip(curve.predicted[~unknown], curve.happened.low[~unknown], strict=True):
        assert drawn(display, (x, low))


def test_roc_curve_is_that_of_the_report(report):
    display = RocCurveDisplay.from_report(report)
    curve = report.roc_curve()
    np.testing.assert_array_equal(display.line_.get_xdata(), curve.fpr.value)
    np.testing.assert_array_equal(display.line_.get_ydata(), curve.tpr.value)
    auc = report.auc
    expected = f"AUC {auc.value:.3f} [{auc.low:.3f}, {auc.high:.3f}]"
    assert texts(display.ax_) == ["chance", expected, "90% intervals"]
    assert display.figure_ is display.ax_.figure


def test_precision_and_recall_are_those_of_the_report(report):
    display = PrecisionRecallDisplay.from_report(report, name="model")
    curve = report.precision_recall_curve()
    known = (curve.precision.low > 0) | (curve.precision.high < 1)
    assert not known[0]  # no row is positive there
    np.testing.assert_array_equal(display.line_.get_xdata(), curve.recall.value[known])
    np.testing.assert_array_equal(display.line_.get_ydata(), curve.precision.value[known])
    assert texts(display.ax_)[1].startswith("model (AP ")
    assert set(display.ax_.lines[0].get_ydata()) == {curve.precision.value[-1]}


@pytest.mark.parametrize("kind", CURVES)
@pytest.mark.parametrize(("n", "epsilon"), [(4000, 1.0), (200, 0.5)])
def test_the_band_is_the_union_of_the_boxes_of_thresholds(kind, n, epsilon):
    report = binary(n, epsilon)
    display = kind.from_report(report)
    if kind is RocCurveDisplay:
        (x, y, _) = report.roc_curve()
    else:
        (y, x, _) = report.precision_recall_curve()
    vertices = band(display).vertices
    for k, at in enumerate(x.value):  # every box is within, at its own place
        of_place = vertices[np.isclose(vertices[:, 0], at), 1]
        assert of_place.min() <= y.low[k] + 1e-9
        assert of_place.max() >= y.high[k] - 1e-9
    for place, end in vertices[:: max(len(vertices) // 50, 1)]:  # nothing else is
        near = [
            k for k in range(len(x.value) - 1)
            if min(x.low[k], x.low[k + 1]) <= place <= max(x.high[k], x.high[k + 1])
        ]  # fmt: skip
        near += [k + 1 for k in near]
        assert min(y.low[near]) - 1e-9 <= end <= max(y.high[near]) + 1e-9


@pytest.mark.parametrize("kind", [*CURVES, ReliabilityDisplay])
def test_less_budget_makes_wider_bands(kind):
    def height(epsilon):
        paths = kind.from_report(binary(2000, epsilon)).band_.get_paths()
        areas = [abs(np.trapezoid(*path.vertices.T[::-1])) for path in paths]
        return sum(areas) / sum(np.ptp(path.vertices[:, 0]) for path in paths)

    assert height(0.1) > 1.5 * height(3.0)


@pytest.mark.parametrize("kind", CURVES)
def test_two_reports_share_axes(kind, report):
    first = kind.from_report(report, name="first")
    second = kind.from_report(binary(500, 1.0), name="second", ax=first.ax_, color="black")
    assert first.ax_ is second.ax_
    shown = [t.split(" (")[0] for t in texts(first.ax_)]
    assert shown == ["chance", "first", "90% intervals", "second"]
    assert second.line_.get_color() == "black"
    assert second.plot(name="again") is second


def test_confusion_matrix_has_percents_with_intervals(report):
    display = ConfusionMatrixDisplay.from_report(report, normalize="true", threshold=0.3)
    shares = report.confusion_matrix(0.3, normalize="true")
    np.testing.assert_array_equal(display.im_.get_array(), shares.value)
    for i, j in np.ndindex(2, 2):
        value, interval = display.text_[i, j].get_text().split("%\n")
        assert float(value) == pytest.approx(100 * shares.value[i, j], abs=0.51)
        ends = 100 * shares.low[i, j], 100 * shares.high[i, j]
        assert tuple(map(float, interval.split("–"))) == pytest.approx(ends, abs=0.51)
    assert [t.get_text() for t in display.ax_.get_xticklabels()] == ["no", "yes"]
    assert display.ax_.get_xlabel() == "Predicted class (90% intervals)"


@pytest.mark.thorough
def test_many_classes_have_the_widest_interval_alone():
    report = of_classes(8)
    display = ConfusionMatrixDisplay.from_report(report, name="network")
    shares = report.confusion_matrix()
    assert "\n" not in display.text_[0, 0].get_text()
    widest = 100 * np.maximum(shares.high - shares.value, shares.value - shares.low).max()
    said = f"Predicted class (90% intervals within ±{widest:.2g} points)"
    assert display.ax_.get_xlabel() == said
    assert display.ax_.get_title() == "network"
    assert "\n" in display.plot(intervals=True).text_[0, 0].get_text()


def test_long_names_of_classes_do_not_overlap(three):
    for letters, rotation in ((1, 0), (30, 90)):
        names = [c * letters for c in "abc"]
        ax = ConfusionMatrixDisplay.from_report(three, display_labels=names).ax_
        assert {label.get_rotation() for label in ax.get_xticklabels()} == {rotation}


def test_given_axes_are_used(report, three):
    figure, places = plt.subplots(2, 2, layout="constrained")
    kinds = [*CURVES, ConfusionMatrixDisplay, ReliabilityDisplay]
    for kind, ax in zip(kinds, places.flat, strict=True):
        assert kind.from_report(report, ax=ax).ax_ is ax
    assert ConfusionMatrixDisplay.from_report(three, display_labels="abc").figure_ is not figure


BOUNDS = {"target_bounds": (0, 2), "residual_bound": 1, "n_samples": 50}
REGRESSION = private_regression_report([1.0] * 50, [1.1] * 50, **BOUNDS)
TABLE = reliability_table([0, 1], [0.2, 0.8])
POINT, LINE = Estimate(0.5, 0.4, 0.6), Estimate(*np.full((3, 4), 0.5))


@bundled(
    ("make", "message"),
    [
        (lambda r, m: RocCurveDisplay.from_report(m), "MulticlassReport.*two classes.*roc_curve"),
        (lambda r, m: PrecisionRecallDisplay.from_report(REGRESSION), "RegressionReport.*two cl"),
        (lambda r, m: ReliabilityDisplay.from_report(REGRESSION), "RegressionReport.*calibration"),
        (lambda r, m: ConfusionMatrixDisplay.from_report([0.125]), r"report \(list\)"),
        (lambda r, m: ConfusionMatrixDisplay.from_report(m, threshold=0.2), "threshold=0.2"),
        (lambda r, m: ConfusionMatrixDisplay.from_report(r, threshold=2), "threshold=2"),
        (lambda r, m: ConfusionMatrixDisplay.from_report(r, normalize="row"), "normalize='row'"),
        (lambda r, m: ConfusionMatrixDisplay.from_report(r, intervals=1), "intervals=1"),
        (lambda r, m: ConfusionMatrixDisplay.from_report(r, display_labels="abc"), "one name"),
        (lambda r, m: ConfusionMatrixDisplay(Estimate(*np.ones((3, 2, 3)))), "row and a column"),
        (lambda r, m: RocCurveDisplay.from_report(r, ax="left"), "ax='left'"),
        (lambda r, m: RocCurveDisplay(LINE, POINT), "tpr with value, low and high"),
        (lambda r, m: RocCurveDisplay(LINE, Estimate(*np.ones((3, 5)))), "as many on either axis"),
        (lambda r, m: RocCurveDisplay(LINE, LINE, auc=0.8), r"auc \(float\).*no value"),
        (lambda r, m: ReliabilityDisplay(TABLE, accuracy_interval=LINE), "accuracy_interval of sh"),
    ],
)
def test_bad_input_is_named(report, three, make, message):
    with pytest.raises(ValueError, match=message) as raised:
        make(report, three)
    assert "0.125" not in str(raised.value)
