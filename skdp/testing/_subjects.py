"""Estimators under test, data for them, and what a good fit leaves."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from dp_accounting.dp_event import ComposedDpEvent
from sklearn.base import clone, is_classifier, is_regressor

from skdp.fitting.warnings import FitWarning, PrivacyWarning
from skdp.privacy import PrivacyLedger, privacy_of
from skdp.privacy.events import terms_of
from skdp.relations import GROUP, ZERO_OUT
from skdp.testing._inputs import D, N
from skdp.testing._persons import GROUPS, protects_persons, with_persons
from skdp.testing._replay import Release, record_releases

METHODS = ("predict", "predict_proba", "decision_function", "transform")


def good_data(estimator: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """Return 24 rows of 3 features in [-1, 1]; labels 0 and 1, numbers in [0, 1], or no targets."""
    X = np.random.default_rng(0).uniform(-1, 1, (N, D))
    if is_classifier(estimator):
        return X, np.arange(N) % 2
    return X, np.arange(N) % 2 / 2 if is_regressor(estimator) else None


def declared(estimator: Any) -> Any:
    """Return a clone for which the public facts of `good_data` are declared where it takes them."""
    facts = {"classes": [0, 1], "n_samples": N}
    estimator = clone(estimator)
    known = estimator.get_params()
    missing = {name: name.rpartition("__")[2] for name, value in known.items() if value is None}
    return estimator.set_params(**{n: facts[fact] for n, fact in missing.items() if fact in facts})


def relation_of(estimator: Any) -> str:
    """Return the neighbouring relation of an estimator, or of the first part that has one."""
    named = (v for k, v in estimator.get_params().items() if k.endswith("neighboring_relation"))
    relation = next(named, ZERO_OUT)
    return f"{relation}_{GROUP}" if protects_persons(estimator) else relation


def fitted(estimator: Any) -> tuple[Any, PrivacyLedger, list[Release]]:
    """Fit a clone to `good_data`; return it, its ledger and its releases."""
    persons = protects_persons(estimator)
    estimator = declared(with_persons(estimator) if persons else estimator)
    ledger = PrivacyLedger(neighboring_relation=relation_of(estimator))
    with quiet(), ledger, record_releases() as tape:
        estimator.fit(*good_data(estimator), **groups_of(GROUPS if persons else None))
    return estimator, ledger, tape


def groups_of(groups: Any) -> dict[str, Any]:
    """The argument of `fit` that names persons, where there are any."""
    return {} if groups is None else {"groups": groups}


@contextmanager
def quiet() -> Iterator[None]:
    """Leave out what skdp warns of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        warnings.simplefilter("ignore", FitWarning)
        yield


def assert_stated(estimator: Any, ledger: PrivacyLedger) -> None:
    """Assert that an estimator states what its ledger was charged."""
    charged = ComposedDpEvent([entry.event for entry in ledger.entries])
    same = terms_of(charged) == terms_of(privacy_of(estimator).event)
    assert same, "the ledger and the report differ"
