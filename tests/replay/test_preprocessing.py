"""What leaves the fit of a transformer is the trace and nothing else (record and replay)."""

import pickle
import warnings
from functools import partial

import numpy as np
import pytest
from replay.neighbours import frozen, neighbours

from skdp.engine import release_hook
from skdp.preprocessing import DPPCA, DPQuantileScaler, DPStandardScaler

X = np.random.default_rng(0).uniform(-1, 1, (40, 3))
NO_TARGETS = np.zeros(40)
PLANS = [
    ("standard", DPStandardScaler, {}),
    ("standard", DPStandardScaler, {"epsilon": 500.0, "lower": -0.5, "output_norm": 2.0}),
    ("standard", DPStandardScaler, {"neighboring_relation": "add_or_remove_one"}),
    ("standard", DPStandardScaler, {"neighboring_relation": "replace_one", "epsilon": 50.0}),
    ("quantile", DPQuantileScaler, {}),
    ("quantile", DPQuantileScaler, {"delta": 0.0, "lower": -1.0, "upper": [1, 2, 3]}),
    ("quantile", DPQuantileScaler, {"neighboring_relation": "add_or_remove_one"}),
    ("quantile", DPQuantileScaler, {"neighboring_relation": "replace_one", "epsilon": 50.0}),
    ("pca", DPPCA, {}),
    ("pca", DPPCA, {"neighboring_relation": "add_or_remove_one", "epsilon": 50.0}),
    ("pca", DPPCA, {"neighboring_relation": "replace_one", "data_norm": 0.5}),
]
IDS = [f"{name}{i}" for i, (name, *_) in enumerate(PLANS)]


FINITE = [0.0, 1.0, -1.0, 0.3, -1e300, 1.7e308, 1e154, 5e-324]


def fitted(kind, parameters, rows):
    """Fit; return what can be seen of it, warnings included."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        transformer = kind(**parameters).fit(rows)
    messages = [str(warning.message) for warning in said]
    return pickle.dumps(transformer), repr(transformer), repr(transformer.privacy_), messages


@pytest.mark.parametrize(("name", "kind", "parameters"), PLANS, ids=IDS)
def test_with_the_releases_frozen_nothing_depends_on_the_data(name, kind, parameters):
    values = FINITE if kind is DPPCA else [*FINITE, np.nan]
    others = [rows for rows, _ in neighbours(X, NO_TARGETS, values)]
    frozen(partial(fitted, kind, parameters), (X,), [(rows,) for rows in (*others, 1e3 * X[:1])])


@pytest.mark.parametrize("output", [-1e12, -1.0, 0.0, 1.0, 1e12])
def test_no_release_makes_a_fit_fail(output):
    # Releases are unbounded; an exception would be one more, and one that was not paid for.
    for kind, shape in ((DPStandardScaler, 9), (DPPCA, 6)):
        with release_hook.replay([np.full(shape, output)]):
            rows = kind().fit(X).transform(X)
        assert np.isfinite(rows).all()
    with release_hook.replay([output / 1e11] * 6):
        assert np.isfinite(DPQuantileScaler().fit(X).transform(X)).all()
