"""Parameters out of range or of no sense, also together: named, and nothing is spent."""

import math
from functools import partial

import numpy as np
import pytest
from bundles import bundled
from contracts.subjects import CLASSIFIERS, ESTIMATORS, WITHOUT_TARGETS
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch.optim.lr_scheduler import LambdaLR, StepLR

from skdp import (
    DPSGDClassifier,
    DPStandardScaler,
    DPVariationalLogisticRegression,
    PrivacyLedger,
    PrivacyLedgerCallback,
    PrivacyReport,
    privacy_of,
    split_budget,
)
from skdp.privacy import (
    calibrate_noise_multiplier,
    delta,
    delta_of_event,
    epsilon,
    epsilon_of_event,
    epsilon_to_gdp,
    gdp_to_epsilon,
    posterior_samples_epsilon,
)
from skdp.privacy.events import dp_sgd_event, event_from_dict
from skdp.testing import private_estimators

NAN, INF = float("nan"), float("inf")
X = np.random.default_rng(0).uniform(-1, 1, (24, 3))
CLASSES = np.arange(24) % 2
# Values that no estimator takes for a parameter of this name, but those of `TAKEN`.
COIN = np.random.default_rng(0)
BAD = {
    "epsilon": (0, -1, NAN, -INF, "1", None, True, [1.0], 1j, 1e10, 1e300),
    "delta": (0, 1, -1e-5, 2, NAN, INF, "1e-5", None, True, [1e-5]),
    "neighboring_relation": ("replace", None, 1, ["zero_out"]),
    "random_state": (-1, 2**32, 1.5, "seed", [0.5]),
    "accountant": ("best", None, 1),
    "n_samples": (0, -1, 1.5, NAN, "many"),
    "classes": ([1], [], "ab", 3, [[0, 1]], [0, 0], [None, 1]),
    "clip_norm": (0, -1, NAN, INF, "large", None, True),
    "data_norm": (0, -1, NAN, INF, "large", None, True),
    "max_iter": (0, -1, 1.5, NAN, INF, "many", None, True),
    "batch_size": (0, -1, 1.5, NAN, "all", None, True),
    "sampling_rate": (0, -0.5, 1.5, NAN, INF, "auto"),
    "learning_rate": (0, -1, NAN, INF, "fast", None),
    "prior_scale": (0, -1, NAN, INF, "wide", None, True),
    "target_bounds": ((1, 0), (0,), 3, "ab", (0, INF), (NAN, 1), (0, 0)),
    "inference": ("vi", None, 1),
    "covariance": ("mean-field", None, 1),
    "gradient": ("sgd", None, 1),
    "largest_count": (0, -1, NAN, INF, "many", None, True),
    "hidden_layer_sizes": (10, (0,), (1.5,), (10, -1), "ab", None, [None]),
    "activation": ("swish", None, 1),
    "module": ("mlp", 3, lambda d, k: None),
    "epochs": (0, -1, NAN, INF, "ten", True),
    "clipping": ("adaptive", None, 1),
    "physical_batch_size": (0, -1, 1.5, "auto", True),
    "device": ("tpu", "cuda:99", 1.5),
    "optimizer": ("sgdm", None, 1),
    "learning_rate_schedule": (
        *("step", None, 1, lambda done: -1, lambda d: NAN, lambda d: NAN if d == 0.75 else 1),
        *(lambda done: 0, StepLR, partial(LambdaLR, lr_lambda=lambda step: 0)),
    ),
    "class_weight": ("balanced", 3, {0: -1.0}, {0: NAN}, {0: INF}, {0: 0.0, 1: 0.0}, {7: 1.0}),
    "max_sample_weight": (0, -1, NAN, INF, "large", None, True, 2.0),
    "loss": ("hinge", None, 1),
    "averaging": (-0.1, 1.5, NAN, "half", None, True),
    "decay_exponent": (-0.1, 1.5, NAN, "slow", None, True),
    "decay_offset": (0, -1, NAN, INF, "late", None, True),
    "burn_in": (-1, 1.5, 100, 10**9, NAN, "half", None, True),
    "thinning": (0, -1, 1.5, 51, 10**9, NAN, "all", None, True),
    "prenoise_scale": (-1, NAN, INF, "some", None, True),
    "n_posterior_samples": (0, -1, 1.5, NAN, "many", None, True),
    "sampler": ("mcmc", None, 1),
    "theta_norm": (0, -1, NAN, -INF, "wide", None, True),
    "step_size": (0, -1, NAN, INF, 1e3, "long", None, True),
    "noise_scale": (0, -1, NAN, INF, "small", None, True),
    "residual_bound": (0, -1, NAN, INF, "small", None, True),
    "lower": (NAN, INF, "0", None, [1, 2], 1j, {}, 1e10, [[0, 0, 0]]),
    "upper": (NAN, INF, "0", None, [1, 2], 1j, {}, -1e10),
    "output_norm": (0, -1, NAN, INF, "large", None, True, [1.0], 1e101, 1e-101),
    "norm": (0, -1, NAN, INF, "large", None, True, [1.0], 1e101, 1e-101),
    "quantile_range": (
        *((95, 5), (5,), 5, "5", None, (NAN, 95), (-1, 50)),
        *((5, 5), (5, 101), (1, 2, 3), "ab", (0, "9")),
    ),
    "unit": (0, -1, NAN, INF, "1", None, True),
    "n_components": (0, -1, 1.5, 4, "all", None, True, NAN, 10**400, 0.0, 1.0, -0.5),
    "target": ("loss", None, 1),
    "estimator": (None, "logistic", 3, DPStandardScaler()),
}
DECREASING = [
    *(lambda t: 1.0 + t, lambda t: 5.0 - t, lambda t: NAN, lambda: 1.0, lambda t: "1"),
    *(lambda t: INF, lambda t: 2.0 - t / 1e3 - COIN.random() / 1e6),
]
MORE = {
    "DPSGLDClassifier": {"learning_rate": DECREASING},
    "DPSGLDRegressor": {"learning_rate": DECREASING},
    "DPPCA": {"data_norm": (1e101, 1e-101, [1.0])},
}
# What a class takes: a pure statement, a flat prior, no bound on a row.
TAKEN = {
    ("OPSPosteriorSampler", "delta"): (0,),
    ("OPSRegressor", "delta"): (0,),
    ("DPQuantileScaler", "delta"): (0,),
    ("DPBins", "delta"): (0,),
    ("DPConformalClassifier", "delta"): (0,),
    ("DPConformalRegressor", "delta"): (0,),
    ("DPSGLDClassifier", "prior_scale"): (INF,),
    ("DPSGLDRegressor", "prior_scale"): (INF,),
    ("DPVariationalModel", "data_norm"): (None,),
}
INSTEAD = {
    **dict.fromkeys(("DPSGLDClassifier", "DPSGLDRegressor"), "temperature"),
    **dict.fromkeys(("OPSPosteriorSampler", "OPSRegressor"), "likelihood_power"),
    **dict.fromkeys(("DPQuantileScaler", "DPBins"), "quantile_epsilon"),
}
DEFAULTS = private_estimators(cheap=False)
PREDICTORS = [n for n in ESTIMATORS if n not in (*WITHOUT_TARGETS, "DPTemperatureScaler")]


def values_of(name, parameter):
    bad = (*BAD[parameter], *MORE.get(name, {}).get(parameter, ()), 10**400, [10**400] * 3)
    taken = TAKEN.get((name, parameter), ())
    return [value for value in bad if not any(value is each for each in taken)]


def assert_named(estimator, parameter, value):
    """Refused, for nothing, in a message that names the parameter and the type."""
    what = f"{type(estimator).__name__}({parameter}={value!r})"
    y = CLASSES if type(estimator).__name__ in CLASSIFIERS else CLASSES * 1.0
    refusal = None
    with PrivacyLedger() as ledger:
        try:
            estimator.fit(X, y)
        except (ValueError, TypeError) as error:
            refusal = str(error)
    assert refusal is not None, f"{what} is taken"
    assert parameter in refusal, f"{what}: {refusal}"
    assert ledger.entries == (), what
    return refusal


@bundled("name", ESTIMATORS)
def test_a_bad_parameter_is_named_before_anything_is_spent(name):
    known = DEFAULTS[name].get_params(deep=False)
    for parameter in BAD.keys() & known.keys():
        for value in values_of(name, parameter):
            estimator = type(DEFAULTS[name])(**{**known, parameter: value})
            said = assert_named(estimator, parameter, value)
            if name in PREDICTORS:
                assert f"Expected {parameter}=" in said
                assert type(value).__name__ in said


def noise_of(name):
    return INSTEAD.get(name, "noise_multiplier")


@bundled(
    "name", [n for n in ESTIMATORS if {"delta", noise_of(n)} <= DEFAULTS[n].get_params().keys()]
)
def test_a_bad_noise_is_named_and_no_alternative_to_epsilon(name):
    parameter = noise_of(name)
    for value in (0, -1, NAN, INF, "1", True, 10**400):
        changes = {"epsilon": None, parameter: value}
        assert_named(clone(DEFAULTS[name]).set_params(**changes), parameter, value)
    both = clone(DEFAULTS[name]).set_params(epsilon=1.0, **{parameter: 2.0})
    with pytest.raises(ValueError, match=rf"epsilon=1\.0.*None when {parameter}"):
        both.fit(X, CLASSES)
    if "batch_size" in both.get_params():
        with pytest.raises(ValueError, match="batch_size=10"):
            clone(DEFAULTS[name]).set_params(batch_size=10, sampling_rate=0.1).fit(X, CLASSES)


@bundled("name", [n for n in ESTIMATORS if "n_samples" in DEFAULTS[n].get_params()])
def test_add_or_remove_needs_a_declared_number_of_rows(name):
    estimator = clone(DEFAULTS[name])
    relations = [key for key in estimator.get_params() if key.endswith("neighboring_relation")]
    estimator.set_params(**dict.fromkeys(relations, "add_or_remove_one"))
    with pytest.raises(ValueError, match="n_samples=None"):
        estimator.fit(X, CLASSES)


PIPELINE = make_pipeline(DPStandardScaler(0, 1), DPVariationalLogisticRegression())
PLANS = [({"epsilon": bad}, "epsilon") for bad in (0, -1, NAN, "1", None, True, [1.0], 1j)] + [
    ({"delta": bad}, "delta") for bad in (0, 1, -1, NAN, INF, "1e-5", None, True)
]
PLANS += [({"n_samples": bad}, "n_samples") for bad in (0, -1, 1.5, NAN, "many", True)]
PLANS += [({"n_features": bad}, "n_features") for bad in (0, -1, 1.5, NAN, "many", True)]
PLANS += [
    ({"weights": [1.0, 2.0]}, "weights"),
    ({"weights": {"dpstandardscaler": 1}}, "weights"),
    ({"weights": {"dpstandardscaler": 1, "dpvariationallogisticregression": 0}}, "weight"),
    ({"weights": {"dpstandardscaler": 1, "dpvariationallogisticregression": NAN}}, "weight"),
    ({"weights": {"dpstandardscaler": 1, "nobody": 1}}, "weights"),
    ({"pipeline": make_pipeline(StandardScaler())}, "pipeline"),
    ({"pipeline": StandardScaler()}, "pipeline"),
]


@bundled(("change", "name"), PLANS)
def test_a_bad_budget_to_split_is_named(change, name):
    plan = {"pipeline": PIPELINE, "epsilon": 1.0, "delta": 1e-5, **change}
    with pytest.raises(ValueError, match=name):
        split_budget(**plan)


@bundled("kind", [PrivacyLedger, PrivacyLedgerCallback])
@bundled(
    ("parameters", "name"),
    [
        *[({"epsilon": bad, "delta": 1e-5}, "epsilon") for bad in (0, -1, NAN, INF, "1", True)],
        *[({"epsilon": 1.0, "delta": bad}, "delta") for bad in (None, 0, 1, NAN, "1", True)],
        ({"epsilon": 1.0}, "delta"),
        *[({"neighboring_relation": bad}, "neighboring_relation") for bad in ("all", None, 1)],
    ],
)
def test_a_ceiling_that_is_none_is_refused(kind, parameters, name):
    with pytest.raises(ValueError, match=name):
        kind(**parameters)


@pytest.mark.parametrize("bad", [None, 3, "model", X, object, DPStandardScaler, StandardScaler()])
def test_what_has_no_privacy_is_not_given_a_statement(bad):
    with pytest.raises((ValueError, TypeError)):
        privacy_of(bad)


@pytest.mark.parametrize("delta", [0, 1, -1, NAN, INF, "1e-5", True])
def test_a_workflow_is_stated_at_a_delta(delta):
    fitted = DPStandardScaler().fit(X)
    with pytest.raises(ValueError, match="delta"):
        privacy_of(fitted, delta=delta)


EVENT = dp_sgd_event(1.0, 1.0, 1)
BAD_DELTA = (1, -1e-9, 2, NAN, INF, "1", None, True, 1j, [0.1])
BAD_SIGMA = (-1, NAN, INF, "1", True, 1j, [NAN], [1.0, "2"], {1.0})
CALLS = [
    *[(epsilon, {"noise_multiplier": 1.0, "delta": bad}) for bad in (0, *BAD_DELTA)],
    *[(epsilon, {"noise_multiplier": bad, "delta": 0.1}) for bad in BAD_SIGMA],
    *[(epsilon, {"noise_multiplier": 1.0, "delta": 0.1, "n_steps": -1})],
    *[(epsilon, {"noise_multiplier": 1.0, "delta": 0.1, "n_steps": 10**400})],
    *[(epsilon, {"noise_multiplier": [1.0], "delta": 0.1, "n_steps": 2})],
    *[
        (epsilon, {"noise_multiplier": 1.0, "delta": 0.1, "sampling_rate": bad})
        for bad in (-0.1, 1.1, NAN, "1", None, True)
    ],
    *[(delta, {"noise_multiplier": 1.0, "epsilon": bad}) for bad in (-1, NAN, "1", None, True)],
    *[(epsilon_of_event, {"event": EVENT, "delta": bad}) for bad in BAD_DELTA],
    *[(epsilon_of_event, {"event": bad, "delta": 0.1}) for bad in (None, 1.0, "e", {}, [EVENT])],
    *[(delta_of_event, {"event": EVENT, "epsilon": bad}) for bad in (-1, NAN, "1", None)],
    *[(epsilon_to_gdp, {"epsilon": bad, "delta": 0.1}) for bad in (0, -1, NAN, "1", None, True)],
    *[(gdp_to_epsilon, {"mu": bad, "delta": 0.1}) for bad in (-1, NAN, "1", None, True)],
    *[(gdp_to_epsilon, {"mu": 1.0, "delta": bad}) for bad in (0, *BAD_DELTA)],
    *[
        (posterior_samples_epsilon, {"eta": 1.0, "n_samples": bad, "delta": 0.1})
        for bad in (0, -1, 1.5, NAN, "1", None, True, 10**400)
    ],
    *[(calibrate_noise_multiplier, {"epsilon": 1.0, "delta": bad}) for bad in (0, *BAD_DELTA)],
    *[
        (calibrate_noise_multiplier, {"epsilon": 1.0, "delta": 0.1, "n_steps": bad})
        for bad in (0, -1, 1.5, NAN, "1", None, True, 10**400)
    ],
    *[(event_from_dict, {"values": bad}) for bad in ({}, {"type": "os"}, {"type": "DpEvents"})],
    *[(event_from_dict, {"values": {"type": "GaussianDpEvent", **bad}}) for bad in ({}, {"x": 1})],
]


@pytest.mark.parametrize(("call", "arguments"), CALLS, ids=range(len(CALLS)))
def test_a_number_that_is_none_never_gives_an_epsilon(call, arguments):
    with pytest.raises((ValueError, TypeError)):
        call(**arguments)


@pytest.mark.parametrize("reports", [[], [None], None, 3])
def test_nothing_cannot_be_composed(reports):
    with pytest.raises((ValueError, TypeError, IndexError, AttributeError)):
        PrivacyReport.compose(reports)


def test_the_scale_of_a_plan_is_a_number_or_the_fit_is_free():
    # Each is in range, and their product is not.
    with PrivacyLedger() as ledger, pytest.raises(ValueError, match=r"clip_norm|noise"):
        DPSGDClassifier(None, noise_multiplier=1e29, clip_norm=1e299, max_iter=1).fit(X, CLASSES)
    assert ledger.entries == ()


def test_there_are_more_than_forty(figure):
    bad = sum(
        len(values_of(name, parameter))
        for name in ESTIMATORS
        for parameter in BAD.keys() & DEFAULTS[name].get_params(deep=False).keys()
    )
    figure(f"{bad + len(PLANS) + len(CALLS)} bad parameters and arguments")
    assert bad + len(PLANS) + len(CALLS) > 40
    assert math.isinf(epsilon(noise_multiplier=0.0, delta=0.1))  # no noise is no error: no privacy
