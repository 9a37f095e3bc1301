import itertools
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from bundles import bundled
from scipy.special import expit
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skdp import DPAdditiveClassifier
from skdp.displays import AdditiveDisplay

LEVELS = ["red", "green", "blue"]
OF_TABLE = {
    "bounds": {0: (-1, 1), 1: (-1, 1)}, "categories": {2: LEVELS}, "classes": [False, True],
    "n_bins": 8, "n_samples": 3000,
}  # fmt: skip


def curve(name="age", grid=(0.0, 1.0, 2.0, 4.0), mean=(-0.5, 0.1, 0.4), half=0.2, **changes):
    mean = np.asarray(mean, dtype=float)
    ends = {"low": mean - half, "high": mean + half}
    ends |= {"band_low": mean - 2 * half, "band_high": mean + 2 * half}
    return SimpleNamespace(**({"name": name, "grid": grid, "mean": mean} | ends | changes))


@pytest.fixture
def curves():
    return [curve(), curve("colour", LEVELS), curve("income", [10.0, 20.0, 40.0], [1.0, 3.0])]


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = np.empty((3000, 3), dtype=object)
    X[:, 0], X[:, 1] = rng.uniform(-1, 1, 3000), rng.uniform(-1, 1, 3000)
    X[:, 2] = rng.choice(LEVELS, 3000)
    y = rng.random(3000) < expit(4 * X[:, 1].astype(float) + (X[:, 2] == "red"))
    return X, y


@pytest.fixture(scope="module")
def fitted(table):
    return make_pipeline(FunctionTransformer(), DPAdditiveClassifier(3.0, **OF_TABLE)).fit(*table)


def test_an_outer_bin_wider_than_all_inner_ones_is_cut_short():
    edges = [-1e6, 20e3, 30e3, 40e3, 50e3, 60e3, 70e3]
    wide = curve("income", edges, np.arange(6.0))
    display = AdditiveDisplay([wide, curve()]).plot()
    display.figure_.canvas.draw()
    assert display.axes_[0].get_xlim() == (-20e3, 70e3)
    assert "20k" in [label.get_text() for label in display.axes_[0].get_xticklabels()]
    assert display.axes_[1].get_xlim() == (0.0, 4.0)  # of three bins


def titles(display):
    return [ax.get_title() for ax in display.axes_]


def ticks(ax):
    return [label.get_text() for label in ax.get_yticklabels()]


def heights(fill):
    """Lower and upper ends of a filled step, bin by bin: what is drawn over its middle."""
    vertices = fill.get_paths()[0].vertices
    edges = np.unique(vertices[:, 0])
    middles, ends = (edges[1:] + edges[:-1]) / 2, []
    for middle in middles:
        x, y = vertices.T
        crossing = (np.minimum(x[1:], x[:-1]) < middle) & (middle < np.maximum(x[1:], x[:-1]))
        ends.append(sorted(y[1:][crossing]))
    return np.array(ends).T


def bars(lines):
    return np.array([segment[:, 0] for segment in lines.get_segments()]).T


def test_there_is_a_panel_per_curve_and_a_number_is_a_step_over_its_edges(curves):
    display = AdditiveDisplay(curves).plot()
    assert titles(display) == ["age", "colour", "income"]
    assert len(display.figure_.axes) == 3
    assert len(display.lines_) == len(display.intervals_) == len(display.bands_) == 3
    ax, line = display.axes_[0], display.lines_[0]
    assert line.get_drawstyle() == "steps-post"
    np.testing.assert_array_equal(line.get_xdata(), curves[0].grid)
    np.testing.assert_array_equal(line.get_ydata(), [-0.5, 0.1, 0.4, 0.4])
    np.testing.assert_allclose(heights(display.intervals_[0]), [curves[0].low, curves[0].high])
    band = [curves[0].band_low, curves[0].band_high]
    np.testing.assert_allclose(heights(display.bands_[0]), band)
    assert ax.get_xlim() == (0.0, 4.0)
    rugs = [line for line in ax.lines if line.get_transform() == ax.get_xaxis_transform()]
    np.testing.assert_array_equal(rugs[0].get_xdata(), curves[0].grid)
    assert not rugs[0].get_ydata().any()


def test_a_category_has_a_row_per_level(curves):
    display = AdditiveDisplay(curves).plot()
    ax, line = display.axes_[1], display.lines_[1]
    assert ticks(ax) == LEVELS
    assert ax.yaxis_inverted()  # the first level is on top
    assert (line.get_linestyle(), line.get_marker()) == ("None", "o")
    np.testing.assert_array_equal(line.get_xdata(), curves[1].mean)
    np.testing.assert_array_equal(line.get_ydata(), [0, 1, 2])
    np.testing.assert_allclose(bars(display.intervals_[1]), [curves[1].low, curves[1].high])
    np.testing.assert_allclose(bars(display.bands_[1]), [curves[1].band_low, curves[1].band_high])


def test_many_levels_have_room_and_long_ones_are_shortened():
    n = 60
    levels = [f"a level of which the name is much too long to be read, {i}" for i in range(n)]
    display = AdditiveDisplay([curve("town", levels, np.zeros(n)), curve()]).plot()
    display.figure_.canvas.draw()
    boxes = [label.get_window_extent() for label in display.axes_[0].get_yticklabels()]
    assert all(upper.y0 > lower.y1 for upper, lower in itertools.pairwise(boxes))
    assert boxes[0].width < 210  # half of 420 pixels
    assert ticks(display.axes_[0])[59] == "a level of which…e read, 59"
    # A number beside them keeps its height.
    inches = [ax.get_position().height * display.figure_.get_figheight() for ax in display.axes_]
    assert inches[0] > 10.0
    assert inches[1] < 3.0


def test_levels_that_would_look_the_same_are_shortened_less():
    levels = [f"occupation number {i} of these forty" for i in (12, 22)]
    assert ticks(AdditiveDisplay([curve("work", levels, [0.0, 1.0])]).plot().axes_[0]) == levels


def test_numbers_share_their_range_and_a_line_shows_no_effect(curves):
    display = AdditiveDisplay(curves).plot()
    first, category, second = display.axes_
    assert first.get_ylim() == second.get_ylim()
    assert first.get_ylim()[0] < -0.9
    assert first.get_ylim()[1] > 3.4
    assert category.get_xlim()[1] < 1.0
    assert any(np.array_equal(line.get_ydata(), [0, 0]) for line in first.lines)
    assert any(np.array_equal(line.get_xdata(), [0, 0]) for line in category.lines)


def test_a_probability_has_the_line_where_it_is_asked_for(curves):
    assert AdditiveDisplay(curves, scale="probability").reference is None
    display = AdditiveDisplay(curves, scale="probability", reference=0.3).plot()
    assert any(np.array_equal(line.get_ydata(), [0.3, 0.3]) for line in display.axes_[0].lines)
    assert display.axes_[0].get_ylabel() == display.axes_[1].get_xlabel() == "Probability"


@pytest.mark.parametrize(("n", "most", "shape"), [(4, 3, (2, 2)), (5, 3, (2, 3)), (3, 1, (3, 1))])
def test_columns_are_balanced(n, most, shape):
    display = AdditiveDisplay([curve()] * n).plot(max_columns=most)
    assert display.axes_[0].get_subplotspec().get_gridspec().get_geometry() == shape
    assert display.figure_.get_figwidth() == pytest.approx(4.2 * shape[1])


def test_given_axes_are_used(curves):
    figure, given = plt.subplots(2, 2)
    display = AdditiveDisplay(curves, level=0.9).plot(given, color="black")
    assert list(display.axes_) == list(given.ravel()[:3])
    assert display.figure_ is figure
    assert not figure.legends
    texts = [text.get_text() for text in given[0, 0].get_legend().get_texts()]
    names = ["Posterior mean", "90% interval, each bin or level alone", "90% band, whole curve"]
    assert texts == names
    assert {line.get_color() for line in display.lines_} == {"black"}
    _, ax = plt.subplots()
    assert AdditiveDisplay(curves[:1]).plot(ax).axes_[0] is ax


@pytest.mark.thorough
def test_two_displays_share_axes(curves):
    first = AdditiveDisplay(curves).plot(label="ε = 1")
    second = AdditiveDisplay(curves).plot(first.axes_, label="ε = 2")
    (legend,) = first.figure_.legends
    texts = [text.get_text() for text in legend.get_texts()]
    assert texts[:2] == ["ε = 1", "ε = 2"]
    assert len(texts) == len(set(texts)) == 4
    assert second.lines_[1].get_color() != first.lines_[1].get_color()
    assert (second.lines_[1].get_ydata() > first.lines_[1].get_ydata()).all()


@pytest.mark.thorough
@bundled(
    "others",
    [
        [curve("weight"), curve("colour", LEVELS)],
        [curve(), curve("colour", ["red", "green", "black"])],
        [curve(), curve("colour")],
        [curve("age", LEVELS), curve("colour", LEVELS)],
    ],
)
def test_axes_of_other_features_are_refused_before_anything_is_drawn(curves, others):
    first = AdditiveDisplay(curves).plot()
    n_lines = len(first.axes_[0].lines)
    with pytest.raises(ValueError, match=r"axes of a display of the same features"):
        AdditiveDisplay(others).plot(first.axes_)
    assert len(first.axes_[0].lines) == n_lines


def test_from_estimator_draws_the_largest_effects_first(fitted):
    display = AdditiveDisplay.from_estimator(fitted, level=0.5)
    order = np.argsort(-fitted[-1].feature_importance_)
    assert titles(display) == [f"x{i}" for i in order]
    assert titles(display)[0] == "x1"
    expected = fitted[-1].curve_(1, level=0.5)
    np.testing.assert_array_equal(display.lines_[0].get_ydata()[:-1], expected.mean)
    band = [expected.band_low, expected.band_high]
    np.testing.assert_allclose(heights(display.bands_[0]), band)
    assert titles(AdditiveDisplay.from_estimator(fitted[-1])) == titles(display)


def test_from_estimator_draws_six_features_at_most():
    X = np.random.default_rng(0).uniform(-1, 1, (300, 8))
    model = DPAdditiveClassifier(1.0, bounds=[(-1, 1)] * 8, n_bins=4, classes=[False, True])
    assert len(AdditiveDisplay.from_estimator(model.fit(X, X[:, 0] > 0)).lines_) == 6


@pytest.mark.thorough
@bundled(
    ("features", "names"),
    [(["x2", "x0"], ["x2", "x0"]), ([0, 1], ["x0", "x1"]), ("x2", ["x2"]), (1, ["x1"])],
)
def test_from_estimator_draws_the_features_chosen(fitted, features, names):
    assert titles(AdditiveDisplay.from_estimator(fitted, features=features)) == names


def test_from_estimator_on_other_scales(fitted):
    display = AdditiveDisplay.from_estimator(fitted, features=[1, 2], scale="probability")
    assert display.reference == pytest.approx(expit(fitted[-1].intercept_[0]))
    values = fitted[-1].curve_(1, scale="probability").mean
    np.testing.assert_array_equal(display.lines_[0].get_ydata()[:-1], values)
    deviations = AdditiveDisplay.from_estimator(fitted, part="deviation")
    assert sorted(titles(deviations)) == ["x0", "x1"]  # a category has no trend
    assert deviations.axes_[0].get_ylabel() == "Deviation from the trend"


@bundled(
    ("options", "message"),
    [
        ({"features": "x9"}, "feature='x9' .str. to be the name or the position"),
        ({"features": []}, "features=.*not empty; or None"),
        ({"features": 1.5}, "features=1.5 .float. to be a list of names"),
        ({"level": 1}, "level=1"),
        ({"scale": "odds"}, "scale='odds' .* 'log-odds'"),
        ({"part": "trend"}, "part='trend' .* 'deviation'"),
        ({"output": 1}, "output=1"),
        ({"max_columns": 0}, "max_columns=0"),
        ({"ax": 3}, "ax=3 .int. to be matplotlib Axes or None"),
    ],
)
def test_bad_options_are_named(fitted, options, message):
    with pytest.raises(ValueError, match=message):
        AdditiveDisplay.from_estimator(fitted, **options)


def test_too_few_axes_are_refused(curves):
    figure, given = plt.subplots(1, 2)
    with pytest.raises(ValueError, match=r"ax=.* to be at least 3 axes.*; give more of them"):
        AdditiveDisplay(curves).plot(given)
    assert not any(ax.lines for ax in figure.axes)


@bundled(
    ("curves", "options", "message"),
    [
        ([], {}, "curves=.*a list of curves, not empty"),
        (curve(), {}, "curves=.*a list of curves"),
        ([3], {}, "curves=3 .int. to be .*has no name; curve_ of a fitted"),
        ([curve(grid=[1.0, 2.0])], {}, "a grid of 4 edges or 3 levels"),
        ([curve(grid=3)], {}, "a grid of 4 edges or 3 levels"),
        ([curve(grid=[0.0, 2.0, 1.0, 3.0])], {}, "ascending edges, not 'age'"),
        ([curve(low=[0.0])], {}, "of one length"),
        ([curve(low=[0.0, np.nan, 0.0])], {}, "finite, and 'age' is not"),
        ([curve(low=["a", "b", "c"])], {}, "curves: low"),
        ([curve()], {"scale": "odds"}, "scale='odds'"),
        ([curve()], {"part": 1}, "part=1"),
        ([curve()], {"level": 90}, "level=90"),
        ([curve()], {"reference": "0"}, "reference='0'"),
    ],
)
def test_bad_curves_are_named(curves, options, message):
    with pytest.raises(ValueError, match=message):
        AdditiveDisplay(curves, **options)


def test_a_deviation_needs_a_number():
    X = np.array([["red"], ["green"]] * 100, dtype=object)
    model = DPAdditiveClassifier(1.0, categories=[["red", "green"]], classes=[0, 1])
    model.fit(X, [0, 1] * 100)
    with pytest.raises(ValueError, match=r"part='deviation' .*'curve' where no feature is a num"):
        AdditiveDisplay.from_estimator(model, part="deviation")


def test_an_estimator_without_curves_is_named(two_blobs):
    with pytest.raises(ValueError, match=r"estimator=.* have curve_"):
        AdditiveDisplay.from_estimator(GaussianNB().fit(*two_blobs))


# --- pairs ----------------------------------------------------------------------------------------


def surface(names=("age", "income"), grids=((0.0, 1.0, 4.0), (10.0, 20.0, 40.0, 80.0)), half=0.2):
    mean = np.array([[-0.5, 0.1, 0.4], [0.5, -0.1, -0.4]])
    return SimpleNamespace(names=names, grids=grids, mean=mean, low=mean - half, high=mean + half)


def test_a_pair_is_a_heat_map_of_one_scale_of_colours_for_all():
    smaller = surface(("age", "colour"), ((0.0, 1.0, 4.0), LEVELS))
    smaller.mean = smaller.mean / 4
    display = AdditiveDisplay([curve(), surface(), smaller]).plot()
    assert titles(display) == ["age", "age × income", "age × colour"]
    assert len(display.lines_) == 1
    for mesh, drawn in zip(display.surfaces_, (surface(), smaller), strict=True):
        np.testing.assert_array_equal(mesh.get_array(), drawn.mean.T)
        assert (mesh.norm.vmin, mesh.norm.vmax) == (-0.5, 0.5)
    first, second = display.axes_[1:]
    assert (first.get_xlim(), first.get_ylim()) == ((0.0, 4.0), (10.0, 80.0))
    assert (first.get_xlabel(), first.get_ylabel()) == ("age", "income")
    assert ticks(second) == LEVELS
    assert second.yaxis_inverted()


def test_levels_are_rows_whichever_comes_first():
    grids = (LEVELS[:2], (10.0, 20.0, 40.0, 80.0))
    display = AdditiveDisplay([surface(("colour", "age"), grids)]).plot()
    assert display.axes_[0].get_xlabel() == "age"
    np.testing.assert_array_equal(display.surfaces_[0].get_array(), surface().mean)
    both = AdditiveDisplay([surface(("size", "colour"), (["s", "l"], LEVELS))]).plot().axes_[0]
    assert [label.get_text() for label in both.get_xticklabels()] == ["s", "l"]


def test_cells_whose_interval_holds_no_effect_are_hatched():
    display = AdditiveDisplay([surface(half=0.3)], level=0.9).plot()
    ax = display.axes_[0]
    (patch,) = ax.patches
    assert patch.get_hatch()
    for (x, y), held in {(0.5, 30.0): True, (2.0, 30.0): True, (0.5, 15.0): False}.items():
        inside = any(p.contains_point((x, y)) for p in _cells(patch.get_path()))
        assert inside == held
    (said,) = display.figure_.legends[0].get_texts()
    assert said.get_text() == "90% interval of a cell of a pair holds 0"
    assert not AdditiveDisplay([surface(half=0.01)]).plot().axes_[0].patches
    effects = vars(surface(half=0.3))
    ratios = {end: np.exp(effects[end]) for end in ("mean", "low", "high")}
    ratios = SimpleNamespace(**effects | ratios)
    display = AdditiveDisplay([ratios], scale="rate-ratio").plot()
    assert len(_cells(display.axes_[0].patches[0].get_path())) == 2
    assert display.surfaces_[0].norm.vcenter == 1.0


def _cells(path):
    """The cells of a compound path."""
    return [type(path)(vertices) for vertices in path.vertices.reshape(-1, 5, 2)]


def test_a_heat_map_is_drawn_on_axes_of_its_own():
    display = AdditiveDisplay([surface()]).plot()
    for again in (AdditiveDisplay([surface()]), AdditiveDisplay([curve("age × income")])):
        with pytest.raises(ValueError, match="axes of their own"):
            again.plot(display.axes_)
    ax = plt.subplots()[1]
    assert AdditiveDisplay([surface()]).plot(ax).axes_[0] is ax


@pytest.mark.parametrize(
    "changes",
    [
        {"mean": np.zeros((2, 2))},
        {"mean": np.full((2, 3), np.nan)},
        {"grids": ((0.0, 1.0), (10.0, 20.0, 40.0, 80.0, 90.0))},
        {"grids": ((0.0, 4.0, 1.0), (10.0, 20.0, 40.0, 80.0))},
        {"low": None},
    ],
)
def test_bad_surfaces_are_refused(changes):
    wrong = SimpleNamespace(**vars(surface()) | changes)
    if wrong.low is None:
        del wrong.low
    with pytest.raises(ValueError, match="curves"):
        AdditiveDisplay([wrong])


@pytest.mark.thorough
def test_an_estimator_with_pairs_shows_them_after_its_curves(table):
    model = DPAdditiveClassifier(3.0, pairs=[(0, 1), (1, 2)], **OF_TABLE).fit(*table)
    display = AdditiveDisplay.from_estimator(model)
    assert set(titles(display)[3:]) == {"x0 × x1", "x1 × x2"}
    assert len(display.surfaces_) == 2
    chosen = AdditiveDisplay.from_estimator(model, features=[(1, 0), "x2"])
    assert titles(chosen) == ["x0 × x1", "x2"]
    assert titles(AdditiveDisplay.from_estimator(model, part="deviation")) == ["x1", "x0"]
    p = AdditiveDisplay.from_estimator(model, features=[(1, 0)], scale="probability")
    assert p.surfaces_[0].norm.vcenter == pytest.approx(p.reference)
