"""Fitted objects written with skops and read back, with `skdp.trusted_types` alone as trusted."""

import warnings
from importlib import import_module

import numpy as np
import pytest
import torch
from bundles import bundled
from contracts.subjects import CLASSES, with_facts
from sklearn.pipeline import make_pipeline
from torch import nn

import skdp
from skdp import BoundedScaler, DPAdditiveClassifier, DPSGDClassifier
from skdp import DPVariationalLogisticRegression as Logistic
from skdp.models.perceptron import packed, unpacked
from skdp.testing._subjects import good_data

sio = pytest.importorskip("skops.io")

WAYS = [
    *CLASSES,
    "DPVariationalLogisticRegression, secure",
    "DPVariationalLogisticRegression, dpvi",
    "DPVariationalLinearRegression, robust",
    "DPAdditiveClassifier, pairs",
    "DPSGDClassifier, Poisson",
    "DPSGDClassifier, hidden",
    "OPSPosteriorSampler, exact",
    "DPQuantileScaler, pure",
]
# Its parameter is a function of the caller's, whom only the caller can trust.
OWN_FUNCTIONS = {"DPVariationalModel": ["skdp.testing._registry._log_likelihood"]}


def answers(fitted, X):
    for method in ("predict_proba", "predict", "transform"):
        if hasattr(fitted, method):
            return np.asarray(getattr(fitted, method)(X))
    return fitted.sample_posterior(3, random_state=0)


def read_back(fitted, more=()):
    return sio.loads(sio.dumps(fitted), trusted=[*skdp.trusted_types, *more])


def fit(estimator, *data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", skdp.FitWarning)
        return estimator.fit(*data)


@pytest.mark.thorough
@bundled("name", WAYS)
def test_what_is_read_back_predicts_and_states_the_same(name):
    estimator = with_facts(name)
    X, y = good_data(estimator)
    fitted = fit(estimator, X, y)
    again = read_back(fitted, OWN_FUNCTIONS.get(name, ()))
    assert type(again) is type(fitted)
    np.testing.assert_array_equal(answers(again, X), answers(fitted, X))
    if hasattr(fitted, "privacy_"):
        assert again.privacy_ == fitted.privacy_
        assert again.privacy_.date == fitted.privacy_.date


def test_a_pipeline_of_names_and_levels():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"age": rng.uniform(0, 1, 99), "ward": rng.choice(["a", "b"], 99)})
    y = rng.choice(["no", "yes"], 99)
    curves = DPAdditiveClassifier(
        bounds={"age": (0, 1)}, categories={"ward": ["a", "b"]}, classes=["no", "yes"], n_samples=99
    )
    three = make_pipeline(BoundedScaler(0, 1), Logistic(classes=range(3), n_samples=99))
    for fitted, rows in (
        (fit(curves, X, y), X),
        (fit(three, X[["age"]], rng.integers(0, 3, 99)), X[["age"]]),
    ):
        np.testing.assert_array_equal(answers(read_back(fitted), rows), answers(fitted, rows))
        assert skdp.privacy_of(read_back(fitted)) == skdp.privacy_of(fitted)


def test_training_goes_on_from_what_was_read_back():
    X, y = np.random.default_rng(0).normal(size=(40, 2)), np.arange(40) % 2
    network = DPSGDClassifier(classes=[0, 1], n_samples=40, hidden_layer_sizes=(3,), max_iter=2)
    fitted = fit(network.set_params(warm_start=True), X, y)
    again = fit(read_back(fitted), X, y)
    assert again.n_iter_ == 4
    assert again.privacy_.epsilon > fitted.privacy_.epsilon


def test_each_name_is_of_a_class_or_a_function_and_stands_once():
    assert len({*skdp.trusted_types}) == len(skdp.trusted_types)
    for name in skdp.trusted_types:
        module, _, kind = name.rpartition(".")
        assert callable(getattr(import_module(module), kind))


def test_a_type_of_the_callers_is_still_asked_for():
    class Own(BoundedScaler):
        pass

    with pytest.raises(Exception, match="Own"):
        read_back(Own().fit([[0.0]]))


# --- networks as arrays ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU, nn.GELU, nn.Sigmoid, nn.Identity])
def test_a_perceptron_comes_back_from_its_arrays(activation, dtype):
    module = nn.Sequential(nn.Linear(3, 4), activation(), nn.Linear(4, 2), activation())
    module.append(nn.Linear(2, 2)).to(dtype)
    again = unpacked(packed(module.eval()))
    assert isinstance(packed(module), dict)
    assert repr(again) == repr(module)
    assert again.training is False
    for one, other in zip(module.parameters(), again.parameters(), strict=True):
        assert one.dtype == other.dtype
        assert other.requires_grad
        assert bool((one == other).all())


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Linear(2, 2), nn.GELU(approximate="tanh"), nn.Linear(2, 1)),
        nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)),
        nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1)),
        nn.Sequential(nn.Linear(2, 1, bias=False)),
        nn.Linear(2, 1),
        nn.Sequential(nn.Linear(2, 1).bfloat16()),
    ],
    ids=["another GELU", "no activation", "two kinds", "no bias", "no Sequential", "bfloat16"],
)
def test_what_would_come_back_as_another_stays_a_module(module):
    assert packed(module) is module


def test_random_numbers_of_torch_are_left_alone():
    plain, before = packed(nn.Sequential(nn.Linear(2, 1))), torch.get_rng_state()
    unpacked(plain)
    assert torch.equal(torch.get_rng_state(), before)
