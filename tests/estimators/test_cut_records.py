"""What a fit says of records that it cut to their bounds, from counts that it releases."""

import math
import warnings

import numpy as np
import pytest
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from skdp import (
    BoundedScaler,
    DPVariationalLinearRegression,
    DPVariationalLogisticRegression,
    DPVariationalPoissonRegression,
    FitWarning,
    NormClipper,
)

N = 3000
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (N, 3))
NUMBERS = X[:, 0] + 0.2 * RNG.normal(size=N)
LABELS = (NUMBERS > 0).astype(int)
COUNTS = RNG.poisson(np.exp(1.0 + X[:, 1]))

CLASSIFIERS = [
    DPVariationalLogisticRegression(classes=[0, 1], n_samples=N),
    DPVariationalLogisticRegression(classes=[0, 1], n_samples=N, inference="dpvi", max_iter=40),
    DPVariationalLogisticRegression(classes=[0, 1], n_samples=N, secure=True),
    DPVariationalLogisticRegression(classes=[0, 1, 2], n_samples=N),
    DPVariationalLogisticRegression(math.inf, classes=[0, 1], n_samples=N, max_iter=40),
]
REGRESSIONS = [
    (DPVariationalPoissonRegression(n_samples=N), COUNTS),
    (DPVariationalLinearRegression(n_samples=N, target_bounds=(-2, 2)), NUMBERS),
    (DPVariationalLinearRegression(n_samples=N), NUMBERS),
]
MODELS = [(classifier, LABELS) for classifier in CLASSIFIERS] + REGRESSIONS
each = pytest.mark.parametrize(("model", "y"), MODELS, ids=[str(i) for i in range(len(MODELS))])


def quiet(model, rows, y):
    """Fit without a word about what was cut; that little was found is said by chance as well."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", FitWarning)
        warnings.filterwarnings("ignore", ".*no coefficient is distinguishable from 0")
        return model.fit(rows, y)


@pytest.mark.quick(4)
@each
def test_rows_longer_than_the_norm_are_said(model, y):
    with pytest.warns(FitWarning, match=r"the rows are longer than data_norm=1.73.*BoundedScaler"):
        model.fit(50 * X, y)
    assert len(model.diagnostics_) == 1
    assert quiet(model, X, y).diagnostics_ == ()


@pytest.mark.thorough
def test_what_was_said_comes_back_from_a_worker_process():
    model, y = MODELS[0]
    (fitted,) = Parallel(n_jobs=2)(delayed(model.fit)(50 * X, y) for _ in range(1))
    assert "data_norm" in fitted.diagnostics_[0]


def test_a_norm_that_a_step_before_declares_is_one():
    # Rows of the clipper have the norm 1; without that their count would be close to all of them.
    quiet(make_pipeline(BoundedScaler(-9, 9), NormClipper(0.1), MODELS[0][0]), 9 * X, LABELS)


def test_counts_beyond_the_largest_one_are_said():
    with pytest.warns(FitWarning, match="counts are above largest_count=3"):
        DPVariationalPoissonRegression(largest_count=3, n_samples=N).fit(X, COUNTS)


def test_counts_that_reach_the_largest_one_are_not():
    quiet(DPVariationalPoissonRegression(largest_count=COUNTS.max(), n_samples=N), X, COUNTS)


def test_targets_outside_their_bounds_are_said():
    model = DPVariationalLinearRegression(n_samples=N, target_bounds=(0, 1))
    with pytest.warns(FitWarning, match=r"targets are outside target_bounds=\(0, 1\)"):
        model.fit(X, NUMBERS)


def test_noise_alone_is_not_said():
    # Three standard deviations: one in 740 fits, more than 3 in 60 with a probability of 2e-6.
    model = DPVariationalLogisticRegression(
        0.1, classes=[0, 1], n_samples=100, inference="dpvi", max_iter=1
    )
    fits = [model.fit(X[:100], LABELS[:100]).diagnostics_ for _ in range(60)]
    assert sum("% of the" in repr(said) for said in fits) <= 3


@pytest.mark.parametrize("weight", [0.05, 0.0])
def test_noise_is_no_share_of_rows_that_weigh_little(weight):
    # Only a count of 4 standard deviations of its noise is said: none of 54 by a chance of .998.
    weights = np.full(N, weight)
    for model, y in (MODELS[0], *REGRESSIONS[:2]):
        model = clone(model).set_params(max_sample_weight=1.0)
        said = [model.fit(X / 4, y, sample_weight=weights).diagnostics_ for _ in range(9)]
        assert "% of the" not in repr(said)


def test_one_hot_tables_are_quiet():
    codes = np.eye(4)[RNG.integers(0, 4, (N, 5))].reshape(N, 20)
    for norm in ("auto", math.sqrt(5)):
        quiet(MODELS[0][0].set_params(data_norm=norm), codes, codes[:, 0] > codes[:, 5])
    MODELS[0][0].set_params(data_norm="auto")


def test_without_privacy_the_counts_are_exact():
    half = np.where(np.arange(N) % 2, 1.0, 100.0)[:, None] * X / np.abs(X).max(1, keepdims=True)
    with pytest.warns(FitWarning, match="About 50% of the rows"):
        CLASSIFIERS[-1].fit(half, LABELS)
