"""Every estimator that releases something, in each of its ways to: settings on top of `kinds`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hardening.kinds import CLASSIFIERS, ESTIMATORS, make
from sklearn.base import clone

N, D = 24, 3
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (N, D))
CLASSES = np.arange(N) % 2


def single(n_features, n_outputs):
    return torch.nn.Linear(n_features, n_outputs)


def double(n_features, n_outputs):
    return torch.nn.Linear(n_features, n_outputs, dtype=torch.float64)


POISSON = {"sampling_rate": 0.5}
WAYS: dict[str, dict[str, dict[str, Any]]] = {
    "DPVariationalLogisticRegression": {
        "secure": {"secure": True},
        "dpvi": {"inference": "dpvi"},
        "dpvi, Poisson": {"inference": "dpvi", **POISSON},
        "dpvi, secure": {"inference": "dpvi", "secure": True},
        "dpvi, vanilla": {"inference": "dpvi", "gradient": "vanilla"},
        "dpvi, full": {"inference": "dpvi", "covariance": "full"},
        "replace_one": {"neighboring_relation": "replace_one"},
    },
    "DPVariationalLinearRegression": {"secure": {"secure": True}},
    "DPVariationalPoissonRegression": {
        "secure": {"secure": True},
        "dpvi, Poisson": {"inference": "dpvi", **POISSON},
    },
    "DPVariationalModel": {"full": {"covariance": "full"}, "Poisson": POISSON},
    **{
        name: {
            "float32": {"module": single},
            "float64": {"module": double},
            "Poisson": POISSON,
            "hidden": {"hidden_layer_sizes": (2,)},
        }
        for name in ("DPSGDClassifier", "DPSGDRegressor", "DPSGLDClassifier", "DPSGLDRegressor")
    },
    "OPSPosteriorSampler": {
        "proximal": {"sampler": "proximal"},
        "langevin": {"sampler": "langevin", "delta": 1e-5, "max_iter": 5},
        "two draws": {"n_posterior_samples": 2},
    },
    "OPSRegressor": {"exact": {"delta": 0, "target_bounds": (-1, 1), "max_iter": "auto"}},
    "DPTemperatureScaler": {"log-loss": {"target": "log_loss"}},
}
VARIANTS = {
    f"{name}, {way}" if way else name: (name, settings)
    for name, (_, _, n_entries) in ESTIMATORS.items()
    if n_entries
    for way, settings in {"": {}, **WAYS.get(name, {})}.items()
}


def build(variant: str, **changes: Any) -> Any:
    """Return the estimator; its public facts are declared where it takes them."""
    name, settings = VARIANTS[variant]
    estimator = make(name)
    declared = {
        "classes": [0, 1],
        "n_samples": N,
        "estimator__classes": [0, 1],
        "estimator__n_samples": N,
    }
    known = estimator.get_params()
    declared = {key: value for key, value in declared.items() if key in known}
    # A copy: what is inside of some belongs to the registry.
    return clone(estimator).set_params(**{**declared, **settings, **changes})


def targets_of(variant: str) -> np.ndarray:
    """Two classes, or numbers in [0, 1]."""
    return CLASSES.copy() if VARIANTS[variant][0] in CLASSIFIERS else CLASSES / 2
