"""What leaves an additive model is the trace and nothing else (record and replay)."""

import pickle

import numpy as np
import pytest
from replay.neighbours import VALUES, frozen, neighbours

from skdp import (
    DPAdditiveClassifier,
    DPAdditivePoissonRegressor,
    DPAdditiveRegressor,
)
from skdp.testing import fixed_streams

pytestmark = pytest.mark.filterwarnings("ignore::skdp.FitWarning")
N = 40
BASE = np.random.default_rng(0)
X = BASE.uniform(-1, 1, (N, 3))
Y = (X[:, 0] > 0).astype(int)
CLASSES = {"classes": [0, 1], "epsilon": 200.0, "n_bins": 6}
PLANS = [
    (DPAdditiveClassifier, {**CLASSES, "epsilon": 1.0}),
    (DPAdditiveClassifier, CLASSES),
    (DPAdditiveClassifier, {**CLASSES, "neighboring_relation": "replace_one"}),
    (DPAdditiveClassifier, {**CLASSES, "neighboring_relation": "add_or_remove_one"}),
    (DPAdditiveClassifier, {**CLASSES, "robust": True}),
    (DPAdditiveClassifier, {**CLASSES, "secure": True}),
    (DPAdditiveClassifier, {**CLASSES, "classes": [0, 1, 2]}),
    (DPAdditiveRegressor, {"target_bounds": (0, 1), "epsilon": 200.0, "n_bins": 6}),
    (DPAdditivePoissonRegressor, {"largest_count": 3, "epsilon": 200.0, "n_bins": 6}),
]


def public_state(estimator):
    """Return everything that a user, a pickle or a repr can see of a fitted estimator."""
    state = {k: v for k, v in vars(estimator).items() if k != "_likelihood"}
    return pickle.dumps(state), repr(estimator), repr(estimator.privacy_)


@pytest.mark.quick(1)
@pytest.mark.parametrize(("model", "plan"), PLANS)
def test_with_the_releases_frozen_nothing_depends_on_the_data(model, plan):
    with fixed_streams():
        frozen(
            lambda *rows: public_state(model(n_samples=N, **plan).fit(*rows)),
            (X, Y),
            neighbours(X, Y, [*VALUES, np.nan]),
        )
