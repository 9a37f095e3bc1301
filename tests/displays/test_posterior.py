import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from bundles import bundled
from scipy import stats
from sklearn.base import BaseEstimator
from sklearn.compose import make_column_transformer
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from skdp import BoundedScaler, DPSGLDClassifier, DPVariationalLogisticRegression
from skdp.displays import PosteriorDisplay
from skdp.displays.posterior import _density
from skdp.inspection import summary


@pytest.fixture
def samples():
    return np.random.default_rng(0).normal([1.0, -2.0, 0.0], [0.1, 0.5, 2.0], (2000, 3))


@pytest.fixture
def fitted(two_blobs):
    model = DPVariationalLogisticRegression(classes=[0, 1], n_samples=120)
    return make_pipeline(BoundedScaler(-1, 1), model).fit(*two_blobs)


def ticks(ax):
    return [label.get_text() for label in ax.get_yticklabels()]


def test_medians_and_intervals_are_those_of_the_samples(samples):
    display = PosteriorDisplay.from_samples(samples, names=["a", "b", "c"], level=0.5)
    np.testing.assert_array_equal(display.medians_.get_xdata(), np.median(samples, axis=0))
    drawn = np.array([segment[:, 0] for segment in display.intervals_.get_segments()])
    np.testing.assert_allclose(drawn.T, np.quantile(samples, [0.25, 0.75], axis=0))
    assert ticks(display.ax_) == ["a", "b", "c"]
    assert display.ax_.get_xlabel() == "Parameter value (median and 50% interval)"
    assert display.ax_.get_legend() is None
    assert display.figure_ is display.ax_.figure
    assert len(display.densities_) == 3


def test_the_density_is_that_of_the_law():
    values = np.random.default_rng(0).standard_normal(100_000)
    grid, density = _density(values)
    # Silverman's width widens a normal law by √(1 + 0.81 n^-0.4), here by less than 1 %.
    law = stats.norm.pdf(grid)
    np.testing.assert_allclose(density / density.max(), law / law.max(), atol=0.03)
    # The smoothed histogram is centred where the samples are, within a grid step.
    assert abs(np.average(grid, weights=density) - values.mean()) < grid[1] - grid[0]


def test_two_posteriors_share_given_axes(samples):
    figure, ax = plt.subplots()
    first = PosteriorDisplay(samples, name="ε = 1").plot(ax)
    assert (first.ax_, first.figure_) == (ax, figure)
    assert ticks(ax) == ["θ0", "θ1", "θ2"]
    second = PosteriorDisplay.from_samples(samples / 2, name="ε = 2", ax=first.ax_, color="black")
    assert second.ax_ is first.ax_
    assert [t.get_text() for t in first.ax_.get_legend().get_texts()] == ["ε = 1", "ε = 2"]
    assert second.medians_.get_color() == "black"
    assert (second.medians_.get_ydata() > first.medians_.get_ydata()).all()
    with pytest.raises(ValueError, match="axes of a display of the same parameters"):
        PosteriorDisplay.from_samples(samples[:, :2], ax=first.ax_)


def test_a_parameter_that_does_not_vary_is_a_point():
    display = PosteriorDisplay.from_samples([[1.0, 2.0], [1.0, 3.0], [1.0, 5.0]])
    assert len(display.densities_) == 1
    assert PosteriorDisplay.from_samples([[1.0, 2.0]]).densities_ == []
    # Nearly constant: the quartiles agree, the values do not.
    assert len(PosteriorDisplay.from_samples([0.0] * 99 + [1.0]).densities_) == 1


@pytest.mark.parametrize("parameters", [["x2", "intercept"], [2, -1]])
def test_from_estimator_draws_the_parameters_chosen(fitted, parameters):
    how = {"n_samples": 50, "random_state": 0}
    display = PosteriorDisplay.from_estimator(fitted, parameters=parameters, **how)
    assert ticks(display.ax_) == ["x2", "intercept"]
    samples = fitted[-1].sample_posterior(50, random_state=0)
    np.testing.assert_array_equal(display.samples, samples[:, [2, 3]])


def table(labels):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"age": rng.uniform(0, 100, 300), "dose": rng.uniform(0, 10, 300)})
    X["sex"] = rng.choice(["f", "m"], 300)
    y = np.array(labels)[(X["age"] * len(labels) // 101).astype(int)]
    kinds = OneHotEncoder(categories=[["f", "m"]], sparse_output=False)
    numbers = BoundedScaler([0, 0], [100, 10])
    columns = make_column_transformer((numbers, ["age", "dose"]), (kinds, ["sex"]))
    model = DPVariationalLogisticRegression(epsilon=20.0, classes=labels, n_samples=300)
    return make_pipeline(columns, model).fit(X, y)


@pytest.mark.parametrize("labels", [["no", "yes"], ["a", "b", "c"]])
@pytest.mark.parametrize("per", [None, 10, {"age": 10, "sex_m": 2}])
def test_names_and_units_behind_a_column_transformer_are_those_of_the_summary(labels, per):
    fitted = table(labels)
    told = summary(fitted, per=per)
    how = {"per": per, "n_samples": 4000, "random_state": 0}
    display = PosteriorDisplay.from_estimator(fitted, parameters=range(len(told.name)), **how)
    assert ticks(display.ax_) == list(told.name)
    # Means of 4000 draws are off by 5 in 63 standard deviations with probability 1e-6.
    np.testing.assert_array_less(abs(display.samples.mean(axis=0) - told.mean), told.sd * 5 / 63)
    of_age = "age" if len(labels) == 2 else "a: age"
    display = PosteriorDisplay.from_estimator(fitted, parameters=of_age, per=per)
    assert ticks(display.ax_) == [next(name for name in told.name if name.startswith(of_age))]


def test_steps_without_names_leave_the_names_of_the_model(two_blobs):
    class Same(BaseEstimator):
        def fit(self, X, y=None):
            return self

        def transform(self, X):
            return X

    model = DPVariationalLogisticRegression(classes=[0, 1], n_samples=120)
    fitted = make_pipeline(Same(), model).fit(*two_blobs)
    assert ticks(PosteriorDisplay.from_estimator(fitted).ax_) == ["x0", "x1", "x2", "intercept"]
    with pytest.raises(ValueError, match=r"per=10 .*get_feature_names_out"):
        PosteriorDisplay.from_estimator(fitted, per=10)


def test_per_is_of_linear_models(two_blobs):
    fitted = DPSGLDClassifier(classes=[0, 1], n_samples=120, max_iter=20).fit(*two_blobs)
    with pytest.raises(ValueError, match="a linear model"):
        PosteriorDisplay.from_estimator(fitted, per=10)
    assert PosteriorDisplay.from_estimator(fitted, n_samples=2).samples.shape == (2, 8)


@pytest.mark.thorough
def test_from_estimator_takes_the_first_few(fitted):
    assert ticks(PosteriorDisplay.from_estimator(fitted).ax_) == ["x0", "x1", "x2", "intercept"]
    assert ticks(PosteriorDisplay.from_estimator(fitted[-1], parameters="x1").ax_) == ["x1"]
    X = np.random.default_rng(0).uniform(-1, 1, (60, 20))
    wide = DPVariationalLogisticRegression().fit(X, X[:, 0] > 0)
    assert PosteriorDisplay.from_estimator(wide, n_samples=5).samples.shape == (5, 8)


@bundled(
    ("options", "message"),
    [
        ({"parameters": "x9"}, "parameters='x9' .str. to be a name in parameter_names_ or an ind"),
        ({"parameters": [0, 4]}, "parameters=4 .int. to be .* below 4"),
        ({"parameters": [True]}, "parameters=True"),
        ({"parameters": 1.5}, "parameters=1.5"),
        ({"parameters": []}, "parameters=.*not empty"),
        ({"n_samples": 0}, "n_samples=0"),
        ({"level": 0}, "level=0"),
        ({"ax": 3}, "ax=3"),
    ],
)
def test_bad_options_are_named(fitted, options, message):
    with pytest.raises(ValueError, match=message):
        PosteriorDisplay.from_estimator(fitted, **options)


@pytest.mark.parametrize(
    ("samples", "names", "message"),
    [
        ([[1.0, np.nan]], None, "samples to be finite"),
        ([["a", "b"]], None, "samples .list. to be an array of real numbers"),
        (np.zeros((2, 2, 2)), None, "samples of shape"),
        ([], None, "samples of shape"),
        ([[1.0, 2.0]], ["a"], "names=.*one name for each of the 2 columns"),
        ([[1.0, 2.0]], "ab", "names='ab'"),
        ([[1.0, 2.0]], 2, "names=2"),
    ],
)
def test_bad_samples_are_named(samples, names, message):
    with pytest.raises(ValueError, match=message):
        PosteriorDisplay(samples, names=names)


def test_an_estimator_without_posterior_is_named(two_blobs):
    with pytest.raises(ValueError, match=r"estimator=.* have sample_posterior"):
        PosteriorDisplay.from_estimator(GaussianNB().fit(*two_blobs))
