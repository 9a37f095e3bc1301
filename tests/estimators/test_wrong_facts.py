"""What fits say of public facts that cannot be right, from what they release."""

import math
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from torch import nn

from skdp import (
    BoundedScaler,
    DPAdditiveClassifier,
    DPAdditivePoissonRegressor,
    DPAdditiveRegressor,
    DPSGDClassifier,
    DPSGDRegressor,
    DPSGLDClassifier,
    DPSGLDRegressor,
    DPVariationalLinearRegression,
    DPVariationalLogisticRegression,
    DPVariationalPoissonRegression,
    FitWarning,
    OPSPosteriorSampler,
    OPSRegressor,
    Persons,
    PrivacyWarning,
)
from skdp.algorithms.gaussian_posterior import GaussianPosterior
from skdp.estimators import _doubts
from skdp.fitting import charge

N = 2000
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (N, 3))
NUMBERS = 100.0 + 12.0 * (1.5 * X[:, 0] + 0.4 * RNG.normal(size=N))
DEAR = 1e4 * (NUMBERS - 80.0)
LABELS = (X[:, 0] + 0.3 * RNG.normal(size=N) > 0).astype(int)
COUNTS = RNG.poisson(np.exp(1.0 + X[:, 1]))
BOUNDS = (60.0, 140.0)
LOST = "no coefficient is distinguishable from 0"
ADD = {"neighboring_relation": "add_or_remove_one"}


def quiet(model, y):
    with warnings.catch_warnings():
        warnings.simplefilter("error", FitWarning)
        return model.fit(X, y)


@pytest.mark.parametrize(
    ("model", "y"),
    [
        (DPVariationalLinearRegression(3.0, target_bounds=BOUNDS, n_samples=N, **ADD), NUMBERS),
        (DPVariationalLogisticRegression(3.0, classes=[0, 1], n_samples=N, **ADD), LABELS),
        (DPVariationalPoissonRegression(3.0, largest_count=30, n_samples=N, **ADD), COUNTS),
    ],
    ids=["linear", "logistic", "poisson"],
)
def test_a_private_number_of_rows_that_was_declared_wrong_is_said(model, y):
    assert quiet(model, y).diagnostics_ == ()
    with pytest.warns(FitWarning, match=r"rows took part.*n_samples=20000 is declared"):
        model.set_params(n_samples=10 * N).fit(X, y)


def test_a_wrong_number_of_persons_is_said_by_the_names_that_were_declared():
    model = DPVariationalLogisticRegression(
        3.0, classes=[0, 1], unit=Persons(10 * N, rows_per_group=1)
    )
    with pytest.warns(FitWarning, match="n_groups times rows_per_group, 20000, is declared"):
        model.fit(X, LABELS, groups=np.arange(N))


def test_delta_is_held_against_the_number_of_persons():
    model = DPVariationalLogisticRegression(
        delta=1e-3, classes=[0, 1], unit=Persons(N, rows_per_group=1)
    )
    with pytest.warns(PrivacyWarning, match=r"for 2000 persons.*publishes a person"):
        model.fit(X, LABELS, groups=np.arange(N))


@pytest.mark.parametrize(
    ("model", "y"),
    [
        (DPVariationalLinearRegression(3.0, target_bounds=BOUNDS, n_samples=2 * N, **ADD), NUMBERS),
        (DPVariationalLogisticRegression(3.0, classes=[0, 1], n_samples=2 * N, **ADD), LABELS),
    ],
    ids=["linear", "logistic"],
)
def test_rows_are_not_taken_for_short_where_there_are_half_as_many_as_declared(model, y):
    # Σ‖x‖² of the rows and their intercepts is that of twice as many rows of features 0 then.
    assert quiet(model, y).diagnostics_ == ()


def test_more_rows_declared_than_there_are_is_said_where_their_number_is_public():
    model = DPVariationalLogisticRegression(3.0, classes=[0, 1], n_samples=int(2.8 * N))
    with pytest.warns(FitWarning, match=r"n_samples=5600 is 2\.8 times the number of rows, 2000"):
        model.fit(X, LABELS)
    with pytest.warns(FitWarning, match=r"n_samples=1111 is 0\.56 times the number of rows, 2000"):
        model.set_params(n_samples=int(N / 1.8)).fit(X, LABELS)
    quiet(model.set_params(n_samples=int(N / 1.4)), LABELS)
    # Each of two folds has half of the rows that were declared.
    quiet(model.set_params(n_samples=N // 2 * 2 + 1), LABELS)


def said_by_some_fit(model, y):
    # One fit is silent with a chance of about _doubts.CHANCE, all six once in a million runs.
    return " ".join(sentence for _ in range(6) for sentence in model.fit(X, y).diagnostics_)


@pytest.mark.parametrize("model", [
    DPVariationalPoissonRegression(largest_count=1e6, n_samples=N),
    DPAdditivePoissonRegressor(n_samples=N), DPAdditiveClassifier(classes=[0, 1], n_samples=N),
], ids=lambda m: type(m).__name__)  # fmt: skip
def test_a_posterior_that_found_nothing_says_so(model):
    y = COUNTS if hasattr(model, "largest_count") else LABELS
    assert LOST in said_by_some_fit(model, RNG.permutation(y))


@pytest.mark.parametrize("diagonal", [True, False])
def test_chance_alone_is_taken_for_a_finding_as_often_as_stated(diagonal):
    # Under normal noise of deviation 1 and a prior N(0, 1) each mean is half a draw of N(0, 2) that
    # is all noise: mean ~ N(0, ¼), variance ½, and the statistic is half a χ² where tr(I − S) is
    # half the dimension. Its share beyond the quantile is at most that of a whole χ².
    d, n = 40, 400
    spread = np.full(d, 0.5**0.5) if diagonal else 0.5 * np.eye(d)
    means = 0.5 * np.random.default_rng(1).normal(size=(n, 1, d))
    found = sum(_doubts.found_any(GaussianPosterior(m, spread), d, 1.0) for m in means)
    assert found < n * _doubts.CHANCE + 4 * math.sqrt(n * _doubts.CHANCE)
    assert _doubts.found_any(GaussianPosterior(means[0] + 1.0, spread), d, 1.0)


def test_large_coefficients_whose_size_is_uncertain_are_found():
    rng = np.random.default_rng(2)
    rows = rng.uniform(-1, 1, (4000, 30))
    rows *= 2 / np.maximum(2, np.linalg.norm(rows, axis=1))[:, None]
    labels = (rows @ rng.normal(size=30) > 0).astype(int)
    model = DPVariationalLogisticRegression(0.5, classes=[0, 1], n_samples=4000, data_norm=2)
    model.fit(rows, labels)
    assert model.score(rows, labels) > 0.8
    assert LOST not in " ".join(model.diagnostics_)


def test_twice_the_private_number_of_rows_is_said():
    model = DPVariationalLogisticRegression(3.0, classes=[0, 1], n_samples=int(N / 1.8), **ADD)
    with pytest.warns(FitWarning, match=r"rows took part.*n_samples=1111 is declared"):
        model.fit(X, LABELS)
    quiet(model.set_params(n_samples=int(N / 1.3)), LABELS)


NETWORKS = [
    kind(3.0, n_samples=N, hidden_layer_sizes=(10,)) for kind in (DPSGDRegressor, DPSGLDRegressor)
]


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("model", "other"),
    [
        (OPSRegressor(3.0, n_samples=N), OPSRegressor(10.0, 0, n_samples=N)),  # exact: quicker
        *zip(NETWORKS, NETWORKS, strict=True),
    ],
    ids=["ops", "sgd", "sgld"],
)
def test_targets_out_of_reach_are_said(model, other):
    with pytest.warns(FitWarning, match=r"[Dd]eclare target_bounds"):
        model.fit(X, DEAR)
    with pytest.warns(FitWarning, match="at the bounds of the targets"):
        other.set_params(target_bounds=(180, 220)).fit(X, NUMBERS)
    assert quiet(other.set_params(target_bounds=BOUNDS), NUMBERS).diagnostics_ == ()


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    "model",
    [
        OPSRegressor(target_bounds=(-4e4, 4e4), n_samples=N),
        DPSGDRegressor(target_bounds=(-4e4, 4e4), n_samples=N),
        DPSGLDRegressor(target_bounds=(-4e4, 4e4), n_samples=N),
    ],
    ids=["ops", "sgd", "sgld"],
)
def test_bounds_that_are_far_too_wide_are_said(model):
    assert re.search(f"{LOST}|than the noise of the fit", said_by_some_fit(model, NUMBERS))


def test_blocks_of_a_chain_tell_a_finding_from_wandering():
    rng = np.random.default_rng(5)
    rows = _doubts.synthetic_rows(5)
    walk = np.zeros((60, 5))
    for i in range(1, 60):
        walk[i] = 0.9 * walk[i - 1] + rng.normal(size=5)
    wandered = (walk[10:] @ rows.T)[..., None]
    assert _doubts.between_rows(wandered) < _doubts.WANDERED
    assert _doubts.of_outputs(0.01 * wandered, bounded=True, chain=0.01 * wandered)
    found = wandered + 10.0 * (rows @ np.ones(5))[None, :, None]
    assert _doubts.between_rows(found) > 2 * _doubts.WANDERED
    assert not _doubts.of_outputs(0.01 * wandered, bounded=True, chain=0.01 * found)


def test_samples_of_labels_that_features_say_nothing_of():
    # A large ε as well: what is found then is what the rows happen to be.
    for epsilon in (0.1, 10.0):
        model = OPSPosteriorSampler(epsilon, classes=[0, 1], n_samples=N)
        assert LOST in said_by_some_fit(model, RNG.integers(0, 2, N))


def test_a_run_of_few_steps_and_one_of_a_module_are_not_asked():
    quiet(DPSGDRegressor(3.0, max_iter=2, n_samples=N, target_bounds=BOUNDS, module=_line), NUMBERS)


def _line(n_features, n_outputs):
    return nn.Linear(n_features, n_outputs)


@pytest.mark.parametrize("kind", [DPSGDClassifier, DPSGLDClassifier])
def test_networks_that_are_mostly_noise_say_so(kind):
    model = kind(0.001, 1e-6, classes=[0, 1], n_samples=N, hidden_layer_sizes=(10,))
    with pytest.warns(FitWarning, match="so that the weights are mostly noise"):
        model.fit(X, LABELS)


@pytest.mark.parametrize("kind", [DPVariationalLogisticRegression, DPVariationalPoissonRegression])
def test_stochastic_fits_that_are_mostly_noise_say_so(kind):
    facts = {"classes": [0, 1]} if kind is DPVariationalLogisticRegression else {}
    model = kind(0.001, 1e-6, n_samples=N, inference="dpvi", **facts)
    with pytest.warns(FitWarning, match="so that the weights are mostly noise"):
        model.fit(X, LABELS)
    assert quiet(model.set_params(epsilon=3.0), LABELS).diagnostics_ == ()


@pytest.mark.parametrize("kind", [DPSGDClassifier, DPSGLDClassifier])
def test_networks_whose_odds_hardly_differ_say_so(kind):
    """Of few steps, and of one label in ten wherever the row is."""
    model = kind(3.0, classes=[0, 1], n_samples=N, hidden_layer_sizes=(10,))
    rare = np.arange(N) % 10 == 0
    for one, y in ((clone(model).set_params(max_iter=1), LABELS), (model, rare.astype(int))):
        with pytest.warns(FitWarning, match="odds hardly differ"):
            one.fit(X, y)
    assert quiet(clone(model), LABELS).diagnostics_ == ()
    apart = np.array([[-1.0, 1.0], [1.0, -1.0]])
    assert _doubts.of_odds(0.49 * apart[None])
    assert not _doubts.of_odds(0.51 * apart[None])


UNDECLARED = "takes the numbers in X as they are.* nothing says where those of this table lie"
NETWORK = {"hidden_layer_sizes": (5,), "max_iter": 5, "n_samples": N}


@pytest.mark.parametrize(
    ("model", "y", "declared"),
    [
        (DPVariationalLogisticRegression(classes=[0, 1], n_samples=N), LABELS, "bounds"),
        (DPVariationalLinearRegression(target_bounds=BOUNDS, n_samples=N), NUMBERS, "bounds"),
        (DPVariationalPoissonRegression(n_samples=N), COUNTS, "bounds"),
        (DPAdditiveClassifier(classes=[0, 1], n_samples=N), LABELS, "bounds"),
        (DPAdditiveRegressor(target_bounds=BOUNDS, n_samples=N), NUMBERS, "edges"),
        (OPSPosteriorSampler(classes=[0, 1], n_samples=N), LABELS, "data_norm"),
        (DPSGDClassifier(classes=[0, 1], **NETWORK), LABELS, ""),
        (DPSGLDRegressor(target_bounds=BOUNDS, **NETWORK), NUMBERS, ""),
    ],
    ids=lambda x: type(x).__name__ if hasattr(x, "fit") else "",
)
def test_a_table_whose_columns_nothing_is_declared_of_is_said_once(model, y, declared, monkeypatch):
    monkeypatch.setattr(charge, "SAID", set())
    frame = pd.DataFrame(1e6 * X, columns=list("abc"))

    def said(model, X):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(X, y)
        return [w for w in caught if re.search(UNDECLARED, str(w.message))]

    assert said(model, 1e6 * X) == []  # an array
    told = {"bounds": [(-1e6, 1e6)] * 3, "data_norm": 1e6, "edges": [[-1e6, 0.0, 1e6]] * 3}
    if declared:
        assert said(clone(model).set_params(**{declared: told[declared]}), frame) == []
    scaled = BoundedScaler(-1e6, 1e6).set_output(transform="pandas")
    assert said(make_pipeline(scaled, clone(model)), frame) == []
    (warning,) = said(model, frame)
    assert warning.category is FitWarning
    assert ("Put BoundedScaler" in str(warning.message)) == (declared not in ("bounds", "edges"))
    assert said(model, frame) == []


def test_a_table_of_categories_and_a_module_of_ones_own_are_taken_as_they_are(monkeypatch):
    monkeypatch.setattr(charge, "SAID", set())
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*" + UNDECLARED)
        model = DPVariationalLogisticRegression(classes=[0, 1], n_samples=N)
        model.fit(pd.DataFrame(X > 0, columns=list("abc")), LABELS)
        model = DPSGDClassifier(classes=[0, 1], module=_line, max_iter=5, n_samples=N)
        model.fit(pd.DataFrame(X, columns=list("abc")), LABELS)
