import subprocess
import sys

import matplotlib.pyplot as plt
import numpy as np
import pytest
from bundles import bundled
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline

from skdp import BoundedScaler, DPVariationalLogisticRegression
from skdp.displays import ReliabilityDisplay
from skdp.metrics import expected_calibration_error, reliability_table


@pytest.fixture
def predictions():
    rng = np.random.default_rng(0)
    p = rng.dirichlet([1, 1, 1], 200)
    return rng.integers(0, 3, 200), p


def texts(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_curve_histogram_and_means_are_those_of_the_table(predictions):
    y, p = predictions
    display = ReliabilityDisplay.from_predictions(y, p, n_bins=10)
    table = reliability_table(y, p, n_bins=10)
    filled = table.counts > 0
    np.testing.assert_array_equal(display.line_.get_xdata(), table.confidence[filled])
    np.testing.assert_array_equal(display.line_.get_ydata(), table.accuracy[filled])
    np.testing.assert_array_equal(display.histogram_.get_data().values, table.counts)
    np.testing.assert_array_equal(display.histogram_.get_data().edges, table.bin_edges)
    drawn = [line.get_xdata()[0] for line in display.axes_[1].lines if len(line.get_xdata()) == 2]
    assert drawn == [table.mean_accuracy, table.mean_confidence]


def test_labels_legend_and_attributes(predictions):
    y, p = predictions
    display = ReliabilityDisplay.from_predictions(y, p, name="net")
    error = expected_calibration_error(y, p)
    assert texts(display.ax_) == ["perfectly calibrated", f"net (ECE {error:.3f})"]
    assert texts(display.axes_[1]) == ["mean accuracy", "mean confidence"]
    assert display.ax_.get_ylabel() == "Accuracy"
    assert display.axes_[1].get_xlabel() == "Confidence"
    assert display.axes_[1].get_ylabel() == "Rows"
    assert display.axes_[0] is display.ax_
    assert display.figure_ is display.ax_.figure
    assert display.band_ is None
    assert display.plot() is display


def test_one_class_says_which(predictions):
    y, p = predictions
    display = ReliabilityDisplay.from_predictions(y, p, class_label=2)
    table = reliability_table(y, p, class_label=2)
    np.testing.assert_array_equal(display.line_.get_ydata(), table.accuracy[table.counts > 0])
    assert display.axes_[1].get_xlabel() == "Predicted probability of class 2"
    assert display.ax_.get_ylabel() == "Share of class 2"
    assert texts(display.ax_)[1] == f"calibration error {table.calibration_error:.3f}"


def test_bins_of_equal_mass_keep_a_histogram_of_equal_width(predictions):
    y, p = predictions
    display = ReliabilityDisplay.from_predictions(y, p, n_bins=5, strategy="quantile")
    table = reliability_table(y, p, n_bins=5, strategy="quantile")
    np.testing.assert_array_equal(display.line_.get_xdata(), table.confidence)
    np.testing.assert_array_equal(display.histogram_.get_data().edges, np.linspace(0, 1, 6))


def test_weights_are_told_from_counts(predictions):
    y, p = predictions
    weights = np.random.default_rng(0).random(200)
    display = ReliabilityDisplay.from_predictions(y, p, sample_weight=weights)
    assert display.axes_[1].get_ylabel() == "Weight of rows"
    assert display.histogram_.get_data().values.sum() == pytest.approx(weights.sum())


@pytest.mark.thorough
def test_the_band_holds_the_accuracies_of_the_samples(predictions):
    y, p = predictions
    rng = np.random.default_rng(1)
    samples = np.stack([rng.dirichlet([1, 1, 1], 200) for _ in range(11)])
    display = ReliabilityDisplay.from_predictions(y, p, y_prob_samples=samples, n_bins=4, level=0.8)
    accuracies = np.array([reliability_table(y, s, n_bins=4).accuracy for s in samples])
    np.testing.assert_array_equal(display.accuracy_samples, accuracies)
    filled = reliability_table(y, p, n_bins=4).counts > 0
    low, high = np.nanquantile(accuracies[:, filled], [0.1, 0.9], axis=0)
    vertices = display.band_.get_paths()[0].vertices
    for bound in (*low, *high):
        assert np.isclose(vertices[:, 1], bound).any()
    assert "80% of posterior samples" in texts(display.ax_)
    with_self = ReliabilityDisplay.from_predictions(y, p, y_prob_samples=p[None], n_bins=4)
    np.testing.assert_array_equal(with_self.accuracy_samples[0], with_self.table.accuracy)


def test_samples_of_one_probability_a_row_follow_pos_label():
    y, p = np.array(["no", "yes", "no", "yes"]), np.array([0.7, 0.2, 0.6, 0.4])
    display = ReliabilityDisplay.from_predictions(y, p, pos_label="no", y_prob_samples=[p, p])
    np.testing.assert_array_equal(display.accuracy_samples, [display.table.accuracy] * 2)


def test_samples_without_rows_in_a_bin_leave_no_band_there():
    y, p = [0, 1, 1], [0.1, 0.6, 0.9]
    display = ReliabilityDisplay.from_predictions(y, p, y_prob_samples=[[0.1, 0.95, 0.9]], n_bins=5)
    assert np.isnan(display.accuracy_samples).any()
    assert display.band_ is not None


def test_several_displays_share_axes_and_histogram(predictions):
    y, p = predictions
    first = ReliabilityDisplay.from_predictions(y, p, name="first")
    second = ReliabilityDisplay.from_predictions(y, p[::-1], name="second", ax=first.ax_)
    third = ReliabilityDisplay.from_predictions(y, p, name="third", ax=first.axes_, color="black")
    assert first.axes_ == second.axes_ == third.axes_
    assert len(first.figure_.axes) == 2
    shown = [t.split(" (")[0] for t in texts(first.ax_)]
    assert shown == ["perfectly calibrated", "first", "second", "third"]
    assert texts(first.axes_[1]) == ["mean accuracy", "mean confidence"]
    assert len({d.line_.get_color() for d in (first, second, third)} - {"black"}) == 2


def test_given_axes_are_used_and_give_room_to_the_histogram(predictions):
    y, p = predictions
    figure, (left, right) = plt.subplots(1, 2, layout="constrained")
    display = ReliabilityDisplay.from_predictions(y, p, ax=left)
    assert display.ax_ is left
    assert display.figure_ is figure
    assert figure.axes == [left, right, display.axes_[1]]
    plain = ReliabilityDisplay.from_predictions(y, p, ax=right, histogram=False)
    assert plain.axes_ == (right,)
    assert plain.histogram_ is None
    assert right.get_xlabel() == "Confidence"
    figure.canvas.draw()
    above, below = left.get_position(), display.axes_[1].get_position()
    assert below.y1 <= above.y0
    assert (below.x0, below.x1) == pytest.approx((above.x0, above.x1))


def test_axes_placed_by_hand_stay_inside_their_box(predictions):
    figure = plt.figure()
    ax = figure.add_axes((0.2, 0.2, 0.5, 0.5))
    display = ReliabilityDisplay.from_predictions(*predictions, ax=ax)
    above, below = ax.get_position(), display.axes_[1].get_position()
    assert (above.x0, above.x1, above.y1) == pytest.approx((0.2, 0.7, 0.7))
    assert (below.x0, below.x1, below.y0) == pytest.approx((0.2, 0.7, 0.2))


def test_from_estimator_equals_from_predictions(two_blobs):
    X, y = two_blobs
    model = GaussianNB().fit(X, y)
    display = ReliabilityDisplay.from_estimator(model, X, y, n_bins=7)
    table = reliability_table(y, model.predict_proba(X), n_bins=7)
    np.testing.assert_array_equal(display.table.accuracy, table.accuracy)
    assert display.name == "GaussianNB"


@pytest.mark.parametrize("in_pipeline", [False, True])
def test_from_estimator_draws_the_band_of_posterior_samples(two_blobs, in_pipeline):
    X, y = two_blobs
    model = DPVariationalLogisticRegression(classes=[0, 1], n_samples=len(X))
    model = make_pipeline(BoundedScaler(-2, 2), model) if in_pipeline else model
    model.fit(X, y)
    how = {"n_posterior_samples": 20, "random_state": 0, "n_bins": 5}
    display = ReliabilityDisplay.from_estimator(model, X, y, **how)
    last, rows = (model[-1], model[:-1].transform(X)) if in_pipeline else (model, X)
    samples = last.sample_predictive(rows, 20, random_state=0)
    expected = [reliability_table(y, s, n_bins=5).accuracy for s in samples]
    np.testing.assert_array_equal(display.accuracy_samples, expected)
    assert display.name == "DPVariationalLogisticRegression"


def test_from_estimator_knows_classes_that_the_rows_lack():
    model = GaussianNB(var_smoothing=0.1).fit([[0.0], [1.0], [2.0]], [0, 1, 2])
    display = ReliabilityDisplay.from_estimator(model, [[0.0], [1.0]], [0, 1])
    assert display.table.counts.sum() == 2


@bundled(
    ("options", "message"),
    [
        ({"y_prob_samples": np.ones((3, 4))}, "y_prob_samples of shape"),
        ({"y_prob_samples": np.full((2, 200, 3), 0.9)}, "row of y_prob_samples to sum to 1"),
        ({"y_prob_samples": np.full((2, 200, 3), np.nan)}, "y_prob_samples to be finite"),
        ({"y_prob_samples": "all"}, "y_prob_samples .str."),
        ({"y_prob_samples": np.zeros((0, 200, 3))}, "y_prob_samples of shape"),
        ({"level": 1.0}, "level=1.0"),
        ({"level": "all"}, "level='all'"),
        ({"n_bins": 0}, "n_bins=0"),
        ({"strategy": "equal"}, "strategy='equal'"),
        ({"class_label": "x"}, "class_label='x'"),
        ({"ax": "left"}, "ax='left' .str. to be matplotlib Axes or None"),
        ({"ax": [1, 2, 3]}, "ax=.*a pair"),
        ({"ax": [1, 2]}, "ax=1 .int."),
    ],
)
def test_bad_input_is_named(predictions, options, message):
    with pytest.raises(ValueError, match=message):
        ReliabilityDisplay.from_predictions(*predictions, **options)


def test_bad_arrays_and_estimators_are_named(predictions, two_blobs):
    table, (X, y), of = reliability_table(*predictions), two_blobs, ReliabilityDisplay
    model = GaussianNB().fit(X, y)
    for make, message in [
        (lambda: of(None), "table=None"),
        (lambda: of(table, histogram_table=3), "histogram_table=3"),
        (lambda: of(table, accuracy_samples=[[0.5]]), "accuracy_samples of shape"),
        (lambda: of.from_estimator(BoundedScaler().fit(X), X, y), "have predict_proba"),
        (lambda: of.from_estimator(model, X, y, n_posterior_samples=3), "have sample_predictive"),
        (lambda: of.from_estimator(model, X, y, n_posterior_samples=-1), "n_posterior_samples=-1"),
    ]:
        with pytest.raises(ValueError, match=message):
            make()


@pytest.mark.thorough
def test_matplotlib_is_imported_by_plot_alone():
    code = """
import sys, skdp.displays as d
d.PosteriorDisplay([[1.0], [2.0]]), d.TraceDisplay([1.0, 2.0])
assert "matplotlib" not in sys.modules
sys.modules["matplotlib"] = None
try:
    d.TraceDisplay([1.0, 2.0]).plot()
except ImportError as error:
    assert "skdp[plot]" in str(error)
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", code], check=True)
