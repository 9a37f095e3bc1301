"""What leaves a private search is the winner's releases and nothing else (record and replay)."""

import math
import pickle
from unittest import mock

import numpy as np
import pytest
import sklearn
from replay.neighbours import frozen, neighbours
from scipy.stats import loguniform
from sklearn.pipeline import make_pipeline

from skdp import DPVariationalLogisticRegression, Persons
from skdp.engine import release_hook
from skdp.fitting.streams import Streams
from skdp.model_selection import DPRandomizedSearch
from skdp.preprocessing import DPStandardScaler
from skdp.testing import fixed_streams, neighbouring_persons

N = 40
BASE = np.random.default_rng(0)
X = BASE.uniform(-1, 1, (N, 2))
Y = (X[:, 0] > 0).astype(int)
PUBLIC = {"X_public": X[:7] / 2, "y_public": Y[:7]}
STEP = "dpvariationallogisticregression"


def model(**parameters):
    return DPVariationalLogisticRegression(
        classes=[0, 1], n_samples=N, inference="dpvi", max_iter=2, **parameters
    )


def piped():
    return make_pipeline(DPStandardScaler(-1, 1), model())


PLANS = {
    "noisy accuracy": (model, {"prior_scale": loguniform(0.1, 10)}, {}, {}),
    "noisy log-loss": (
        model,
        {"clip_norm": loguniform(0.1, 1)},
        {"scoring": "neg_log_loss", "shape": math.inf},
        {},
    ),
    "public rows": (model, {"learning_rate": [0.1, 1.0]}, {"scoring": "roc_auc"}, PUBLIC),
    "pipeline": (piped, {f"{STEP}__prior_scale": [1.0, 3.0]}, {"shape": 1.0}, {}),
}


def public_state(search):
    """Everything that a user, a pickle or a repr can see of a fitted search."""
    values = {k: v for k, v in vars(search).items() if k != "param_distributions"}
    return pickle.dumps(values), repr(search.privacy_), search.best_params_, search.best_score_


@pytest.mark.quick(1)
@pytest.mark.parametrize("plan", PLANS)
def test_with_the_releases_frozen_nothing_depends_on_the_data(plan):
    make, distributions, parameters, public = PLANS[plan]

    def search():
        return DPRandomizedSearch(
            make(), distributions, epsilon=3.0, mean_trials=4, n_samples=N, **parameters
        )

    with (
        fixed_streams(b"replay"),
        mock.patch("skdp.model_selection._trials.Streams", side_effect=lambda *_: Streams(b"s")),
    ):
        frozen(
            lambda *rows: public_state(search().fit(*rows, **public)),
            (X, Y),
            neighbours(X, Y, [0.0, -1e300, 5e-324]),
        )


PERSONS = 10
GROUPS = np.random.default_rng(1).permutation(np.arange(N) % PERSONS)
UNIT = {"unit": Persons(rows_per_group=4)}


def by_person(**parameters):
    return DPVariationalLogisticRegression(
        classes=[0, 1], inference="dpvi", max_iter=2, **UNIT, **parameters
    ).set_fit_request(groups=True)


def piped_by_person():
    return make_pipeline(DPStandardScaler(-1, 1, **UNIT).set_fit_request(groups=True), by_person())


PLANS_BY_PERSON = {
    "noisy accuracy": (by_person, {"prior_scale": [0.1, 1.0, 10.0]}, {}, {}),
    "noisy log-loss": (
        by_person,
        {"unit": [Persons(rows_per_group=4, clip=1, max_rows=most) for most in (2, 4)]},
        {"scoring": "neg_log_loss", "shape": math.inf},
        {},
    ),
    "public rows": (by_person, {"learning_rate": [0.1, 1.0]}, {"scoring": "roc_auc"}, PUBLIC),
    "pipeline": (piped_by_person, {f"{STEP}__prior_scale": [1.0, 3.0]}, {"shape": 1.0}, {}),
}


@pytest.mark.quick(1)
@pytest.mark.parametrize("plan", PLANS_BY_PERSON)
def test_with_the_releases_frozen_nothing_depends_on_a_person(plan):
    make, distributions, parameters, public = PLANS_BY_PERSON[plan]

    def fitted(rows, labels, groups):
        search = DPRandomizedSearch(
            make(), distributions, epsilon=3.0, mean_trials=4, unit=Persons(PERSONS), **parameters,
        )  # fmt: skip
        return public_state(search.fit(rows, labels, groups=groups, **public))

    with sklearn.config_context(enable_metadata_routing=True), fixed_streams(b"replay"):
        with release_hook.record() as tape:
            first = fitted(X, Y, GROUPS)
        for other in neighbouring_persons(X, Y, GROUPS):
            with release_hook.replay([release.output for release in tape]) as again:
                second = fitted(*other)
            assert [r.call for r in again] == [r.call for r in tape]
            assert second == first


def test_the_training_rows_are_not_in_the_pickle():
    marker = np.float64(0.123456789123)
    X2 = X.copy()
    X2[5] = marker
    search = DPRandomizedSearch(model(), {"prior_scale": [1.0]}, mean_trials=3).fit(X2, Y)
    assert marker.tobytes() not in pickle.dumps(search)
