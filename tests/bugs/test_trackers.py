"""Reports of the field's trackers, tried here; each test names the one that it is after."""

import math

import numpy as np
import pytest

from skdp import BudgetExceededError, DPSGDClassifier, PrivacyLedger
from skdp.engine import release_hook
from skdp.mechanisms import GeometricMechanism
from skdp.privacy import epsilon
from skdp.privacy.noise_calibration import calibrate_noise_multiplier
from skdp.statistics import dp_mean, dp_quantile, dp_sum

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
