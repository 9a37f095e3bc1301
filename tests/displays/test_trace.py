import matplotlib.pyplot as plt
import numpy as np
import pytest
from bundles import bundled
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline

from skdp import BoundedScaler, DPVariationalModel
from skdp.displays import TraceDisplay


class Chain:
    """Fitted attributes of an estimator that keeps the iterates of its chain."""

    def __init__(self, n_parameters=6, classes=("no", "perhaps", "yes")):
        rng = np.random.default_rng(0)
        self.posterior_steps_ = np.arange(100, 200, 10)
        self.posterior_samples_ = rng.standard_normal((10, n_parameters))
        self.burn_in_, self.n_iter_ = 100, 200
        self.classes_ = np.array(classes)
        self._weights = rng.standard_normal((10, 3, 3))

    def fit(self, X, y=None):
        return self

    def path_predictive(self, X):
        odds = np.exp(np.einsum("nd,kdc->knc", np.asarray(X), self._weights))
        return odds / odds.sum(axis=2, keepdims=True)


def texts(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_lines_are_the_samples_at_their_steps():
    trace = np.random.default_rng(0).standard_normal((30, 2))
    steps = np.arange(10, 310, 10)
    display = TraceDisplay.from_samples(trace, steps=steps, burn_in=55, names=["a", "b"])
    for line, values in zip(display.lines_, trace.T, strict=True):
        np.testing.assert_array_equal(line.get_xdata(), steps)
        np.testing.assert_array_equal(line.get_ydata(), values)
    assert texts(display.ax_) == ["a", "b", "burn-in"]
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("Step", "Parameter value")
    left, right = display.burn_in_.get_extents().intervalx
    inverse = display.ax_.transData.inverted()
    assert inverse.transform([(left, 0), (right, 0)])[:, 0] == pytest.approx([0, 55])


def test_without_burn_in_nothing_is_shaded_and_one_series_will_do():
    figure, ax = plt.subplots()
    display = TraceDisplay([1.0, 2.0, 1.5], quantity="Loss").plot(ax, color="black")
    assert display.burn_in_ is None
    assert display.ax_ is ax
    assert display.figure_ is figure
    assert display.lines_[0].get_color() == "black"
    np.testing.assert_array_equal(display.lines_[0].get_xdata(), [0, 1, 2])
    assert ax.get_ylabel() == "Loss"


def test_from_estimator_draws_the_kept_iterates_of_the_parameters_chosen():
    chain = Chain()
    display = TraceDisplay.from_estimator(chain)
    assert len(display.lines_) == 4
    np.testing.assert_array_equal(display.lines_[2].get_ydata(), chain.posterior_samples_[:, 2])
    np.testing.assert_array_equal(display.lines_[2].get_xdata(), chain.posterior_steps_)
    assert display.burn_in == 100
    assert texts(display.ax_) == ["θ0", "θ1", "θ2", "θ3", "burn-in"]
    chain.parameter_names_ = list("abcdef")
    display = TraceDisplay.from_estimator(chain, parameters=["f", 1])
    assert display.names == ["f", "b"]
    np.testing.assert_array_equal(display.trace, chain.posterior_samples_[:, [5, 1]])


def test_from_estimator_draws_means_where_there_are_no_samples():
    chain = Chain()
    chain.posterior_means_ = chain.posterior_samples_ + 1.0
    del chain.posterior_samples_
    display = TraceDisplay.from_estimator(chain, parameters=[2])
    np.testing.assert_array_equal(display.lines_[0].get_ydata(), chain.posterior_means_[:, 2])
    assert display.ax_.get_ylabel() == "Posterior mean"


def test_takes_a_model_of_the_user():
    model = DPVariationalModel(lambda theta, x: -0.5 * (x[:, 0] - theta[0]) ** 2, 1, max_iter=30)
    display = TraceDisplay.from_estimator(model.set_params(n_samples=50).fit(np.ones((50, 1))))
    assert (display.names, display.burn_in) == (["theta0"], model.burn_in_)
    np.testing.assert_array_equal(display.lines_[0].get_xdata(), model.posterior_steps_)


@pytest.mark.parametrize(("class_label", "column"), [(None, 2), ("no", 0), (np.str_("perhaps"), 1)])
def test_from_estimator_draws_predictions_along_the_chain(class_label, column):
    chain, X = Chain(), np.random.default_rng(1).uniform(-1, 1, (5, 3))
    display = TraceDisplay.from_estimator(chain, X=X, class_label=class_label)
    np.testing.assert_array_equal(display.trace, chain.path_predictive(X)[:, :, column])
    label = chain.classes_[column]
    assert display.ax_.get_ylabel() == f"Probability of class {label}"
    assert texts(display.ax_) == [*(f"row {i}" for i in range(5)), "burn-in"]


def test_the_steps_of_a_pipeline_see_the_rows_first():
    X, chain = np.random.default_rng(1).uniform(-1, 1, (5, 3)), Chain()
    pipeline = make_pipeline(BoundedScaler(-2, 2).fit(X), chain)
    display = TraceDisplay.from_estimator(pipeline, X=X)
    np.testing.assert_array_equal(display.trace, chain.path_predictive(X / 2)[:, :, 2])


def test_many_rows_are_drawn_without_names():
    X = np.random.default_rng(1).uniform(-1, 1, (40, 3))
    display = TraceDisplay.from_estimator(Chain(), X=X)
    assert len(display.lines_) == 40
    assert texts(display.ax_) == ["burn-in"]


@bundled(
    ("options", "message"),
    [
        ({"trace": [1.0, np.inf]}, "trace to be finite"),
        ({"trace": ["a", "b"]}, "trace .list. to be an array of real numbers"),
        ({"steps": [1]}, "steps to be 2 increasing"),
        ({"steps": [2, 1]}, "steps to be 2 increasing"),
        ({"steps": [1, 1]}, "steps to be 2 increasing"),
        ({"steps": "ab"}, "steps .str."),
        ({"burn_in": -1}, "burn_in=-1"),
        ({"burn_in": np.nan}, "burn_in=nan"),
        ({"burn_in": None}, "burn_in=None"),
        ({"names": ["a", "b"]}, "names="),
        ({"ax": 1}, "ax=1"),
    ],
)
def test_bad_input_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        TraceDisplay.from_samples(**({"trace": [1.0, 2.0]} | options))


@pytest.mark.parametrize(
    ("estimator", "options", "message"),
    [
        (GaussianNB(), {}, "estimator=.* have posterior_steps_"),
        (Chain(), {"parameters": 6}, "parameters=6"),
        (Chain(), {"X": np.zeros((2, 3)), "parameters": 0}, "parameters=0 .int. to be None wh"),
        (Chain(), {"X": np.zeros((2, 3)), "class_label": "maybe"}, "class_label='maybe'"),
    ],
)
def test_bad_requests_to_an_estimator_are_named(estimator, options, message):
    with pytest.raises(ValueError, match=message):
        TraceDisplay.from_estimator(estimator, **options)
