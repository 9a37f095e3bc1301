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


def plans(make, piped, priors, clips):
    """Ways to search over a model, alone and behind a scaler."""
    rates = {"learning_rate": [0.1, 1.0]}
    return {
        "noisy accuracy": (make, {"prior_scale": priors}, {}, {}),
        "noisy log-loss": (make, clips, {"scoring": "neg_log_loss", "shape": math.inf}, {}),
        "public rows": (make, rates, {"scoring": "roc_auc"}, PUBLIC),
        "pipeline": (piped, {f"{STEP}__prior_scale": [1.0, 3.0]}, {"shape": 1.0}, {}),
    }


PLANS = plans(model, piped, loguniform(0.1, 10), {"clip_norm": loguniform(0.1, 1)})


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


BOUNDS = [Persons(rows_per_group=4, clip=1, max_rows=most) for most in (2, 4)]
PLANS_BY_PERSON = plans(by_person, piped_by_person, [0.1, 1.0, 10.0], {"unit": BOUNDS})


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
        frozen(fitted, (X, Y, GROUPS), neighbouring_persons(X, Y, GROUPS))
