import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from bundles import bundled
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skdp import BoundedScaler
from skdp.displays import PrivacyUtilityDisplay, UtilityCurve

inf, nan = float("inf"), float("nan")


class Noisy(ClassifierMixin, BaseEstimator):
    """Always says 1; scores grow with ε and with clip, and differ between splits."""

    def __init__(self, epsilon=1.0, clip=1.0):
        self.epsilon = epsilon
        self.clip = clip

    def fit(self, X, y):
        self.classes_ = np.array([0, 1])
        return self

    def predict(self, X):
        return np.ones(len(X), dtype=int)

    def score(self, X, y, sample_weight=None):
        return self.clip * (1 - np.exp(-self.epsilon)) + 0.01 * np.mean(X)


def search(grid, data, **options):
    pipeline = make_pipeline(BoundedScaler(-1, 1), Noisy())
    grid = {f"noisy__{name}": values for name, values in grid.items()}
    return GridSearchCV(pipeline, grid, cv=3, **options).fit(*data).cv_results_


def texts(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_mean_and_spread_are_those_of_the_scores():
    scores = np.array([[0.5, 0.7, 0.9], [0.6, 0.6, 0.9]])
    display = PrivacyUtilityDisplay.from_arrays([2.0, 1.0], scores, metric="Accuracy")
    np.testing.assert_array_equal(display.lines_[0].get_xdata(), [1, 2])
    np.testing.assert_allclose(display.lines_[0].get_ydata(), [0.7, 0.7])
    vertices = display.bands_[0].get_paths()[0].vertices
    sd = scores[::-1].std(axis=1, ddof=1)
    for epsilon, deviation in zip([1, 2], sd, strict=True):
        drawn = vertices[vertices[:, 0] == epsilon, 1]
        assert (drawn.min(), drawn.max()) == pytest.approx((0.7 - deviation, 0.7 + deviation))
    display.plot(spread="range")
    vertices = display.bands_[0].get_paths()[0].vertices
    assert (vertices[:, 1].min(), vertices[:, 1].max()) == (0.5, 0.9)
    assert display.plot(spread="none").bands_ == []


def test_axes_labels_and_scale():
    figure, ax = plt.subplots()
    display = PrivacyUtilityDisplay.from_arrays([0.5, 1, 10], [0.1, 0.2, 0.3], metric="F1", ax=ax)
    assert display.ax_ is ax
    assert display.figure_ is figure
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_xscale()) == ("Privacy loss ε", "F1", "log")
    figure.canvas.draw()
    shown = {label.get_text() for label in ax.get_xticklabels()}
    assert {"0.5", "1", "2", "5", "10"} <= shown
    assert ax.get_legend() is None
    assert display.bands_ == []
    linear = PrivacyUtilityDisplay.from_arrays([0.5, 1], [0.1, 0.2], log_x=False)
    assert linear.ax_.get_xscale() == "linear"


def test_infinite_epsilon_is_a_level_and_so_is_the_baseline():
    display = PrivacyUtilityDisplay.from_arrays(
        [inf, 1.0, 2.0], [[0.8, 0.9], [0.5, 0.6], [0.6, 0.7]], name="vi", baseline=0.5
    )
    np.testing.assert_array_equal(display.lines_[0].get_xdata(), [1, 2])
    levels = [line.get_ydata()[0] for line in display.baselines_]
    assert levels == pytest.approx([0.85, 0.5])
    assert texts(display.ax_) == ["vi", "vi, ε = ∞", "baseline"]
    alone = PrivacyUtilityDisplay.from_arrays([inf], [0.9])
    assert [line.get_ydata()[0] for line in alone.baselines_] == [0.9]


def test_several_displays_share_axes():
    first = PrivacyUtilityDisplay.from_arrays([1, 2], [0.5, 0.6], name="a", baseline=0.9)
    how = {"name": "b", "baseline": 0.9, "ax": first.ax_}
    second = PrivacyUtilityDisplay.from_arrays([1, 2], [0.4, 0.5], **how)
    assert second.ax_ is first.ax_
    assert texts(first.ax_) == ["a", "baseline", "b"]
    assert first.lines_[0].get_color() != second.lines_[0].get_color()


def test_a_failed_fit_leaves_a_gap():
    display = PrivacyUtilityDisplay.from_arrays([1, 2, 3], [[0.5, 0.6], [nan, 0.6], [0.7, 0.8]])
    np.testing.assert_array_equal(np.isnan(display.lines_[0].get_ydata()), [False, True, False])


@pytest.mark.parametrize("param", ["epsilon", "noisy__epsilon"])
@pytest.mark.parametrize("frame", [False, True])
def test_from_cv_results_reads_every_split(two_blobs, param, frame):
    results = search({"epsilon": [1.0, 0.1, inf]}, two_blobs)
    results = pd.DataFrame(results) if frame else results
    display = PrivacyUtilityDisplay.from_cv_results(results, param=param)
    splits = np.array([results[f"split{i}_test_score"] for i in range(3)]).T
    (curve,) = display.curves
    np.testing.assert_array_equal(curve.epsilons, [0.1, 1.0])
    np.testing.assert_array_equal(curve.scores, splits[[1, 0]])
    np.testing.assert_array_equal(curve.scores_without_privacy, splits[2])
    means = np.asarray(results["mean_test_score"])[[1, 0]]
    np.testing.assert_allclose(display.lines_[0].get_ydata(), means)
    assert display.ax_.get_ylabel() == "Test score"


def test_groups_are_curves(two_blobs):
    results = search({"epsilon": [0.1, 1.0], "clip": [1.0, 2.0]}, two_blobs)
    display = PrivacyUtilityDisplay.from_cv_results(results, group_by="clip", name="vi")
    assert [curve.name for curve in display.curves] == ["vi, clip=1.0", "vi, clip=2.0"]
    assert len(display.lines_) == len(display.bands_) == 2
    means = results["mean_test_score"][np.array(results["param_noisy__clip"], float) == 2.0]
    np.testing.assert_allclose(display.curves[1].scores.mean(axis=1), means)


def test_several_metrics_are_told_apart(two_blobs):
    how = {"scoring": ["accuracy", "f1"], "refit": "accuracy"}
    results = search({"epsilon": [0.1, 1.0]}, two_blobs, **how)
    display = PrivacyUtilityDisplay.from_cv_results(results, metric="test_f1")
    np.testing.assert_array_equal(display.curves[0].scores[:, 0], results["split0_test_f1"])
    assert display.ax_.get_ylabel() == "Test f1"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"param": "delta"}, "param='delta' .str. to be the name .* it has noisy__"),
        ({"group_by": "delta"}, "group_by='delta'"),
        ({"metric": "score"}, "metric='score' .str. to be a score of every split; there are test_"),
        ({}, "group_by=None .NoneType. to be a parameter that tells apart"),
        ({"group_by": "epsilon", "param": "clip", "spread": "sem"}, "spread='sem'"),
    ],
)
def test_what_the_results_lack_is_named(two_blobs, options, message):
    results = search({"epsilon": [0.1, 1.0], "clip": [1.0, 2.0]}, two_blobs)
    with pytest.raises(ValueError, match=message):
        PrivacyUtilityDisplay.from_cv_results(results, **options)


@bundled(
    ("options", "message"),
    [
        ({"epsilons": [0.0, 1.0]}, "epsilons to be a list of numbers > 0"),
        ({"epsilons": [nan, 1.0]}, "epsilons to be a list of numbers > 0"),
        ({"epsilons": [None, 1.0]}, "epsilons .list. to be an array of real numbers"),
        ({"epsilons": [1.0, 1.0]}, "epsilons to be distinct"),
        ({"epsilons": []}, "epsilons"),
        ({"scores": [0.5]}, "scores of shape"),
        ({"scores": [0.5, inf]}, "scores to be finite"),
        ({"scores": ["a", "b"]}, "scores .list."),
        ({"baseline": "best"}, "baseline='best'"),
        ({"baseline": nan}, "baseline=nan"),
        ({"spread": None}, "spread=None"),
        ({"ax": 0}, "ax=0"),
    ],
)
def test_bad_arrays_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        PrivacyUtilityDisplay.from_arrays(**({"epsilons": [1, 2], "scores": [0.5, 0.6]} | options))


def test_the_constructor_takes_curves():
    curve = UtilityCurve(np.array([1.0, 2.0]), np.array([[0.5], [0.6]]), "vi")
    assert PrivacyUtilityDisplay([curve]).plot().lines_[0].get_label() == "vi"
    with pytest.raises(ValueError, match="curves="):
        PrivacyUtilityDisplay([1.0, 2.0])
