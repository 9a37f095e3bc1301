"""Reports of the field's trackers, tried here; each test names the one that it is after."""

import math

import numpy as np
import pytest
import torch

from skdp import BudgetExceededError, DPSGDClassifier, PrivacyLedger
from skdp import DPVariationalLogisticRegression as Logistic
from skdp import DPVariationalPoissonRegression as Poisson
from skdp.engine import release_hook
from skdp.mechanisms import GeometricMechanism
from skdp.privacy import epsilon
from skdp.privacy.gdp import gdp_delta
from skdp.privacy.noise_calibration import calibrate_noise_multiplier
from skdp.statistics import dp_histogram, dp_mean, dp_quantile, dp_sum, dp_var

pytestmark = pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning", "error::RuntimeWarning")
X = np.random.default_rng(0).uniform(-1, 1, (60, 3))
RUN = {"hidden_layer_sizes": (4,), "n_samples": 60}


def test_sums_of_large_integers_do_not_wrap():
    """google/differential-privacy#40: at the lower bound, as an int overflows."""
    found = dp_mean(np.full(600, 2**62), lower=0, upper=2**62, epsilon=50.0).value
    assert found == pytest.approx(2**62, rel=1e-3)


def test_noise_at_the_ends_of_integers_does_not_wrap():
    """opendp/smartnoise-core#358: noise is buffered in 64 bits."""
    found = GeometricMechanism(1, 1.0).release(np.array([2**52, -(2**52)]))
    assert np.abs(found - [2**52, -(2**52)]).max() < 100


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1e308, -1e308, math.nan])
def test_no_value_makes_a_statistic_fail_or_warn(value):
    """opendp/smartnoise-sdk#574, google/differential-privacy#405, IBM's library, #87."""
    x = np.append(np.linspace(0, 1, 500), value)
    for statistic in (dp_quantile, dp_sum, dp_mean):
        more = {} if statistic is dp_quantile else {"missing": True}
        for bounds in ({"lower": 0, "upper": 1}, {"lower": 1e-5, "upper": 1e140}):
            assert np.isfinite(statistic(x, **bounds, epsilon=20.0, **more).value)
    assert dp_mean(x, lower=0, upper=1, epsilon=20.0, missing=True).value == pytest.approx(0.5, 0.1)


@pytest.mark.parametrize("accountant", ["auto", "pld", "rdp"])
def test_little_loss_is_not_none(accountant):
    """tensorflow/privacy#166: orders near 1 give ε = 0."""
    spent = {"noise_multiplier": 1.0, "sampling_rate": 0.00105, "n_steps": 1, "delta": 1e-7}
    assert epsilon(**spent, accountant=accountant) > 1e-3


@pytest.mark.parametrize("target", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("rate", [1.0, 0.01])
def test_the_noise_that_is_found_affords_the_target(target, rate):
    """meta-pytorch/opacus#346: a bisection that ends on the side of too little."""
    run = {"sampling_rate": rate, "n_steps": 50, "delta": 1e-5}
    sigma = calibrate_noise_multiplier(epsilon=target, **run)
    assert 0.99 * target < epsilon(noise_multiplier=sigma, **run) <= target


@pytest.mark.parametrize(("rate", "epochs", "steps"), [(0.3, 1, 4), (0.3, 1.5, 5), (1.0, 2, 2)])
def test_steps_of_epochs_are_rounded_up_and_paid(rate, epochs, steps):
    """meta-pytorch/opacus#19: what is accounted is less than what is run."""
    how = {"sampling_rate": rate, "epochs": epochs, "noise_multiplier": 2.0, **RUN}
    model = DPSGDClassifier(None, classes=[0, 1], **how)
    with release_hook.record() as tape:
        model.fit(X, np.arange(60) % 2)
    assert len(tape) == model.n_iter_ == steps
    spent = epsilon(noise_multiplier=2.0, sampling_rate=rate, n_steps=steps, delta=1e-5)
    assert model.privacy_.epsilon == pytest.approx(spent, rel=1e-3)


def test_what_a_budget_does_not_afford_is_not_run():
    """opendp/smartnoise-sdk#424: it was tested after the step that went beyond."""
    model = DPSGDClassifier(1.0, classes=[0, 1], **RUN)
    with PrivacyLedger(epsilon=1.2, delta=1e-4) as ledger, release_hook.record() as tape:
        n_releases = len(tape) if model.fit(X, np.arange(60) % 2) else 0
        with pytest.raises(BudgetExceededError):
            model.fit(X, np.arange(60) % 2)
    assert len(tape) == n_releases > 0
    assert len(ledger.entries) == 1


@pytest.mark.parametrize("classes", [["a", "much longer"], [b"a", b"bc"], [3, 70_000], [0.5, 1.5]])
def test_predicted_labels_are_whole_and_of_the_type_of_the_classes(classes):
    """scikit-learn/scikit-learn#2674, google-research/tabfm#28: cut short, or objects."""
    classes = np.array(classes)
    model = DPSGDClassifier(math.inf, classes=classes, **RUN)
    found = model.fit(X, classes[(X[:, 0] > 0).astype(int)]).predict(X)
    assert found.dtype == classes.dtype
    assert set(found) == set(classes)


def test_a_batch_without_some_of_the_classes_teaches_the_one_it_has():
    """NVIDIA/cuml#8316: labels of a later batch were numbered anew."""
    model = DPSGDClassifier(math.inf, **RUN)
    model.partial_fit(X, np.arange(60) % 3, classes=[0, 1, 2])
    before = model.predict_proba(X)
    after = model.partial_fit(X, np.full(60, 2)).predict_proba(X)
    assert (after[:, 2] > before[:, 2]).all()


def test_a_quantile_among_many_duplicates_is_found():
    """IBM's library, #107: all probabilities underflow, and their sum is 0."""
    x = np.append(np.full(80_000, 65_000), np.arange(20_000) * 25)
    found = [dp_quantile(x, lower=0, upper=500_000, epsilon=e).value for e in (0.3, 0.5, 1.0)]
    np.testing.assert_allclose(found, 65_000, atol=1.0)


def test_two_quantiles_of_one_seed_are_the_same_again():
    """IBM's library, #79: the seed does not reach the calls for each of them."""
    how = {"lower": -1, "upper": 1, "epsilon": 1.0}
    found = [dp_quantile(X[:, 0], [0.3, 0.6], **how, random_state=seed).value for seed in (0, 0, 1)]
    assert ((found[0] == found[1]) & (found[0] != found[2])).all()


def test_a_budget_that_is_no_limit_leaves_no_noise():
    """IBM's library, #97: accuracy at ε = 10⁷ is that at .001."""
    y, facts = (X[:, 0] > 0).astype(int), {"classes": [0, 1], "n_samples": 60}
    assert Logistic(1e7, **facts).fit(X, y).score(X, y) > 0.9
    assert np.mean([Logistic(1e-3, **facts).fit(X, y).score(X, y) for _ in range(9)]) < 0.9


def test_a_mean_that_is_rounded_moves_no_variance():
    """opendp/opendp#2923: deviations from a mean of 2⁵⁰ + 1/4, which one record rounds away."""
    x = np.append(2.0**50 + 0.5, np.full(1023, 2.0**50 + 0.25))
    assert dp_var(x, lower=2.0**50, upper=2.0**50 + 1, epsilon=50.0).value < 0.01


def test_a_variance_is_never_negative():
    """opendp/smartnoise-sdk#547: its square root is NaN where the noise is large."""
    assert min(dp_var(X[:, 0], lower=-9, upper=9, epsilon=0.01).value for _ in range(50)) >= 0.0


def test_values_at_the_edges_of_bins_and_just_below_are_in_theirs():
    """opendp/smartnoise-sdk#541: negative ones go to the neighbouring bin."""
    edges = np.array([-2.0, -1.0, -0.5, 0.0, 0.5, 2.0])
    for x in (edges[:-1], np.nextafter(edges[1:], -9.0)):
        found = dp_histogram(np.repeat(x, 100), edges, epsilon=50.0).value
        np.testing.assert_allclose(found, 100, atol=5)


def test_counts_of_columns_in_large_units_have_coefficients():
    """scikit-learn/scikit-learn#27016: steps overflow, and all coefficients stay 0."""
    rows = np.random.default_rng(1).uniform(0, [3e3, 1e6], (2000, 2))
    y = np.random.default_rng(2).poisson(np.exp(rows[:, 0] / 1e3 - 0.5))
    model = Poisson(50.0, n_samples=2000, largest_count=30, bounds=[(0, 3e3), (0, 1e6)])
    np.testing.assert_allclose(model.fit(rows, y).coef_ * [1e3, 1e6], [1, 0], atol=0.15)


@pytest.mark.parametrize(("sigma", "rate", "steps"), [(1.0, 0.2, 500), (0.1, 0.2, 10)])
def test_a_large_loss_is_a_number(sigma, rate, steps):
    """microsoft/prv_accountant#42, meta-pytorch/opacus#601: approximations break, with a riddle."""
    run = {"noise_multiplier": sigma, "n_steps": steps, "delta": 1e-5}
    assert 5.0 < epsilon(sampling_rate=rate, **run) < epsilon(**run) < math.inf


def test_a_tail_beyond_all_doubles_is_0_and_not_nan():
    """google/differential-privacy#430: e^ε overflows from ε = 709 on."""
    assert [gdp_delta(mu, 1e3) for mu in (1.0, 20.0, 60.0)] == [0.0, pytest.approx(0.0), 1.0]


def test_a_layer_of_frozen_weights_trains_its_bias():
    """meta-pytorch/opacus#436, #542: sizes differ where one of both is frozen."""
    layer = torch.nn.Linear(3, 2)
    layer.weight.requires_grad_(False)
    fitted = DPSGDClassifier(9.0, classes=[0, 1], module=layer, n_samples=60).fit(X, np.ones(60))
    assert torch.equal(fitted.module_.weight, layer.weight)
    assert torch.diff(fitted.module_.bias - layer.bias) > 0
