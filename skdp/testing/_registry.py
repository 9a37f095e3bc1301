"""Every public estimator, transformer and meta-estimator in each of its ways: a row is a way."""

from __future__ import annotations

from inspect import signature
from typing import Any

import torch
from sklearn.base import BaseEstimator

from skdp import estimators
from skdp import preprocessing as steps
from skdp.calibration import DPTemperatureScaler
from skdp.conformal import DPConformalClassifier, DPConformalRegressor
from skdp.model_selection import DPDisjointSearch, DPRandomizedSearch


def _log_likelihood(theta: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return -0.5 * ((x / 10 - theta) ** 2).sum(1)


def _single(n_features: int, n_outputs: int) -> torch.nn.Module:
    return torch.nn.Linear(n_features, n_outputs)


def _double(n_features: int, n_outputs: int) -> torch.nn.Module:
    return torch.nn.Linear(n_features, n_outputs, dtype=torch.float64)


_NOISE = {"epsilon": None, "noise_multiplier": 9.0}
_STEPS = {**_NOISE, "max_iter": 2}
_NETWORK = {"hidden_layer_sizes": (), "sampling_rate": 1.0}
_CHAIN = {
    **_NETWORK, "epsilon": None, "max_iter": 2,
    "temperature": 1.0, "learning_rate": 1e-3, "burn_in": 0, "thinning": 1,
}  # fmt: skip
_POISSON = {"sampling_rate": 0.5}
_DPVI = {"inference": "dpvi"}
_SECURE = {"secure": True}
_IN_BOUNDS = {"bounds": (-1.0, 1.0)}
_TARGETS = {"target_bounds": (-200, 200)}
_PAIRS = {**_NOISE, "n_bins": 3, "pairs": [(0, 1)], "noise_multiplier": 0.05}  # it has products
_EDGES = {"edges": "private", "n_bins": 4}
_LINEAR = {"": {}, "secure": _SECURE, "robust": {"robust": True}}
_NETWORKS = {
    "": {},
    "float32": {"module": _single},
    "float64": {"module": _double},
    "Poisson": _POISSON,
    "hidden": {"hidden_layer_sizes": (2,)},
    "secure": _SECURE | _POISSON | {"hidden_layer_sizes": (2,)},
}
_MODEL = {"max_iter": 2, "log_likelihood": _log_likelihood, "n_parameters": 1}
_CONFORMAL = {"epsilon": 30.0, "alpha": 0.5, "calibration_share": 0.5}


def _inside(**cheap: Any) -> dict[str, Any]:
    return {"estimator": estimators.DPVariationalLogisticRegression(**_DPVI, **cheap)}


_Ways = dict[str, dict[str, Any]]

_LOGISTIC: _Ways = _LINEAR | {
    "in bounds": _IN_BOUNDS,
    "in bounds, secure": _SECURE | _IN_BOUNDS,
    "dpvi": _DPVI,
    "dpvi, Poisson": _DPVI | _POISSON,
    "dpvi, secure": _DPVI | _SECURE,
    "dpvi, vanilla": _DPVI | {"gradient": "vanilla"},
    "dpvi, full": _DPVI | {"covariance": "full"},
    "replace_one": {"neighboring_relation": "replace_one"},
    "add_or_remove_one": _DPVI | {"neighboring_relation": "add_or_remove_one"},
}
_LINE: _Ways = _LINEAR | {"in bounds": _IN_BOUNDS | _TARGETS, "target_bounds": _TARGETS}
_COUNTS: _Ways = _LINEAR | {"in bounds": _IN_BOUNDS, "dpvi, Poisson": _DPVI | _POISSON}
_CURVES: dict[str, _Ways] = {
    "classes": _LINEAR | {"few bins": {"n_bins": 3}, "pairs": _PAIRS, "private edges": _EDGES},
    "numbers": _LINEAR
    | {"bounded": _TARGETS | {"n_bins": 3}, "pairs": _TARGETS | _PAIRS, "private edges": _EDGES},
    "counts": _LINEAR | {"private edges": _EDGES | _SECURE},
}

# Of each class, what else makes it cheap, and its ways; of others, the defaults.
_OWN: dict[type[BaseEstimator], tuple[dict, _Ways]] = {
    estimators.DPVariationalLogisticRegression: ({}, _LOGISTIC),
    estimators.DPVariationalLinearRegression: ({}, _LINE),
    estimators.DPAdditiveClassifier: ({"n_bins": 8}, _CURVES["classes"]),
    estimators.DPAdditiveRegressor: ({"n_bins": 8}, _CURVES["numbers"]),
    estimators.DPAdditivePoissonRegressor: ({"n_bins": 8}, _CURVES["counts"]),
    estimators.DPVariationalPoissonRegression: ({}, _COUNTS),
    estimators.DPVariationalModel: (
        {},
        {"": _MODEL, "full": _MODEL | {"covariance": "full"}, "Poisson": _MODEL | _POISSON},
    ),
    estimators.DPSGDClassifier: (_NETWORK, _NETWORKS),
    estimators.DPSGDRegressor: (_NETWORK, _NETWORKS),
    estimators.DPSGLDClassifier: (_CHAIN, _NETWORKS),
    estimators.DPSGLDRegressor: (_CHAIN, _NETWORKS),
    estimators.OPSPosteriorSampler: (
        {"theta_norm": 2.0, "max_iter": 5},
        {
            "": {},
            "exact": {"delta": 0, "max_iter": "auto"},
            "two draws": {"delta": 0, "max_iter": "auto", "n_posterior_samples": 2},
        },
    ),
    estimators.OPSRegressor: (
        {"theta_norm": 2.0, "max_iter": 5},
        {"": {}, "exact": _TARGETS | {"delta": 0, "max_iter": "auto"}},
    ),
    steps.DPPCA: ({}, {"": {"n_components": 1}}),
    steps.DPStandardScaler: ({}, {"": {"lower": -100.0, "upper": 100.0}}),
    steps.DPQuantileScaler: ({}, {"": {}, "pure": {"delta": 0.0}}),
    steps.DPBins: (
        {},
        {"": {"n_bins": 4}, "ordinal": {"encode": "ordinal", "n_bins": 3, "delta": 0.0}},
    ),
    steps.AdditiveFeatures: (
        {},
        {"": {}, "splines": {"encode": "splines"}, "onehot": {"encode": "onehot", "n_bins": 3}},
    ),
    steps.BoundedScaler: ({}, {"": {"lower": -5.0, "upper": 5.0}}),
    steps.GaborTransformer: ({"n_directions": 2}, {"": {}}),
    steps.NormClipper: ({}, {"": {}, "norm": {"norm": 3.0}}),
    steps.ScatteringTransformer: ({"n_directions": 2}, {"": {}, "groups": {"n_groups": 1}}),
}


def _steps_of(kind: type[BaseEstimator]) -> dict[str, Any]:
    """Few steps and much noise, where a class has them."""
    known = signature(kind).parameters
    noisy = "noise_multiplier" in known
    return {name: value for name, value in _STEPS.items() if noisy and name in known}


def _rows(cheap: bool) -> dict[type[BaseEstimator], tuple[dict, _Ways]]:
    quick = _STEPS if cheap else {}
    inside, line = (
        _inside(**quick),
        {"estimator": estimators.DPVariationalLinearRegression(**quick)},
    )
    searched = _inside(max_iter=3, learning_rate=0.3)
    search = searched | {"param_distributions": {"prior_scale": [1.0, 3.0]}, "epsilon": 30.0}
    kinds = [getattr(room, name) for room in (estimators, steps) for name in room.__all__]
    found = {kind: _OWN.get(kind, ({}, {"": {}})) for kind in kinds}
    return {kind: (_steps_of(kind) | more, ways) for kind, (more, ways) in found.items()} | {
        DPTemperatureScaler: (_STEPS, {"": inside, "log-loss": inside | {"target": "log_loss"}}),
        DPConformalClassifier: (
            _CONFORMAL,
            {"": inside, "adaptive": inside | {"conformity": "aps"}},
        ),
        DPConformalRegressor: (
            _CONFORMAL,
            {"": line | {"residual_bound": 1000.0}, "scaled": line | {"residual": "scaled"}},
        ),
        DPRandomizedSearch: ({"mean_trials": 1.5}, {"": search}),
        DPDisjointSearch: ({"tuning_share": 0.25, "scoring_share": 0.25}, {"": search}),
    }


def private_estimators(*, cheap: bool = True) -> dict[str, BaseEstimator]:
    """Every public estimator, transformer and meta-estimator of skdp, in each of its ways.

    What is to hold for all of them is tested over this one list.

    Parameters
    ----------
    cheap : bool, default=True
        Settings of a few steps and much noise, which fit within milliseconds and learn nothing;
        False leaves the number of steps and the budget at their defaults.

    Returns
    -------
    dict of str to estimator
        New, unfitted objects, by the name of the class and of the way. No public fact is declared.

    Examples
    --------
    >>> from skdp.testing import private_estimators
    >>> private_estimators()["DPSGDClassifier, Poisson"].sampling_rate
    0.5
    """
    return {
        f"{kind.__name__}, {way}" if way else kind.__name__: kind(
            **{**(settings if cheap else {}), **ways[way]}
        )
        for kind, (settings, ways) in _rows(cheap).items()
        for way in ways
    }
