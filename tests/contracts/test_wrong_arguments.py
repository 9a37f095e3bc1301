"""Wrong arguments of a method are refused in the name of the class that was called."""

import re
from inspect import Parameter, isfunction, signature

import numpy as np
import pytest
from contracts.subjects import CLASSES, build
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils._set_output import _SetOutputMixin

from skdp import DPSGDClassifier
from skdp.conformal import DPConformalClassifier, DPConformalRegressor

# What scikit-learn alone defines keeps its name.
OTHERS = {*dir(BaseEstimator), *dir(TransformerMixin), *dir(_SetOutputMixin), "transform"}


def methods(kind):
    for name in dir(kind):
        method = getattr(kind, name)
        ours = isfunction(method) and method.__module__.startswith("skdp.")
        if ours and not name.startswith("_") and name not in OTHERS:
            yield name, signature(method).parameters


@pytest.mark.parametrize("name", CLASSES)
def test_an_unknown_keyword_and_a_missing_or_surplus_argument_name_the_class(name):
    estimator = build(name)
    tried = 0
    for method, parameters in methods(type(estimator)):
        if not hasattr(estimator, method):  # scikit-learn's ``available_if``
            continue
        own = list(parameters.values())[1:]
        needed = [0 for p in own if p.default is Parameter.empty and p.kind < 2]
        kinds = {p.kind for p in own}
        calls = [] if Parameter.VAR_KEYWORD in kinds else [(needed, {"foo": 1})]
        calls += [] if Parameter.VAR_POSITIONAL in kinds else [([0] * 9, {})]
        calls += [((), {})] if needed else []
        for args, kwargs in calls:
            with pytest.raises(TypeError, match=rf"^{type(estimator).__name__}\.{method}\(\) "):
                getattr(estimator, method)(*args, **kwargs)
            tried += 1
    assert tried > 2


@pytest.mark.parametrize("kind", [DPConformalClassifier, DPConformalRegressor])
def test_conformal_classes_too(kind):
    with pytest.raises(TypeError, match=rf"^{kind.__name__}\.fit\(\) missing"):
        kind(DPSGDClassifier()).fit(np.zeros((2, 1)))


def test_a_class_of_the_caller_is_named_by_the_class_that_it_extends():
    class Mine(DPSGDClassifier):
        pass

    with pytest.raises(TypeError, match=re.escape("DPSGDClassifier.fit() got")):
        Mine().fit(np.zeros((2, 1)), np.zeros(2), foo=1)
    assert "fit" not in vars(Mine)


def test_what_a_class_between_overrides_is_what_its_heirs_inherit():
    from skdp.estimators.variational_poisson import NormalCounts

    for kind in NormalCounts.__subclasses__():
        assert kind.fit.__code__ is NormalCounts.fit.__code__
