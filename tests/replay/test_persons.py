"""Linear models and scalers by person: what leaves a fit does not tell one, however many its rows.

Pairs in which all rows of one person change, vanish or become many.
"""

import pickle

import numpy as np
import pytest

from skdp import (
    DPPCA,
    DPStandardScaler,
    DPVariationalLinearRegression,
    DPVariationalLogisticRegression,
    DPVariationalPoissonRegression,
    PrivacyLedger,
)
from skdp._rows import LinearRows
from skdp.privacy.events import terms_of
from skdp.relations import sensitivity_factor
from skdp.testing import (
    fixed_streams,
    neighbouring_persons,
    record_releases,
    replay_releases,
)
from skdp.testing._replay import OF_PERSONS

N, PERSONS = 60, 20
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (N, 3))
GROUPS = RNG.permutation(np.arange(N) % PERSONS)
LABELS = (X[:, 0] > 0).astype(int)
UNIT = {"unit": "group", "n_groups": PERSONS, "rows_per_group": 3}


def logistic(**more):
    return DPVariationalLogisticRegression(**{"classes": [0, 1], **UNIT, **more})


def regression(**more):
    return DPVariationalLinearRegression(**{**UNIT, **more})


def counts(**more):
    return DPVariationalPoissonRegression(**{**UNIT, **more})


def scaler(**more):
    return DPStandardScaler(unit="group", rows_per_group=3, **more)


def pca(**more):
    return DPPCA(2, unit="group", rows_per_group=3, **more)


CASES = {
    "logistic": (logistic, {"max_iter": 5}),
    "second moments": (logistic, {"max_iter": 4, "epsilon": 200.0}),
    "another person": (logistic, {"max_iter": 4, "neighboring_relation": "replace_one"}),
    "added": (logistic, {"max_iter": 3, "neighboring_relation": "add_or_remove_one"}),
    "few rows": (logistic, {"max_iter": 3, "max_rows_per_group": 2, "group_clip": 1.0}),
    "not robust": (logistic, {"max_iter": 3, "robust": False, "epsilon": 200.0}),
    "secure": (logistic, {"max_iter": 3, "epsilon": 200.0, "secure": True}),
    "softmax": (logistic, {"max_iter": 3, "classes": [0, 1, 2], "epsilon": 200.0}),
    "dpvi, Poisson": (logistic, {"inference": "dpvi", "max_iter": 4, "sampling_rate": 0.3}),
    "dpvi, vanilla": (logistic, {"inference": "dpvi", "max_iter": 4, "gradient": "vanilla"}),
    "regression": (regression, {"max_iter": 3}),
    "regression, bounded": (regression, {"max_iter": 3, "target_bounds": (-2, 1), "epsilon": 99.0}),
    "regression, plain": (regression, {"max_iter": 3, "inference": "dpvi"}),
    "counts": (counts, {"max_iter": 3, "epsilon": 200.0}),
    "scaler": (scaler, {}),
    "scaler, another person": (scaler, {"neighboring_relation": "replace_one"}),
    "components": (pca, {}),
}


def public_state(estimator):
    """Everything that a user, a pickle or a repr can see of a fitted estimator."""
    state = {k: v for k, v in vars(estimator).items() if k != "_likelihood"}
    return pickle.dumps(state), repr(estimator), repr(estimator.privacy_)


@pytest.mark.quick(5)
@pytest.mark.parametrize("case", CASES)
def test_with_the_releases_frozen_nothing_depends_on_a_person(case):
    make, settings = CASES[case]
    with fixed_streams():
        with record_releases() as tape:
            first = public_state(make(**settings).fit(X, LABELS, groups=GROUPS))
        values = [abs(value) for value in OF_PERSONS] if make is counts else OF_PERSONS
        for rows, labels, groups in neighbouring_persons(X, LABELS, GROUPS, values=values):
            with replay_releases(tape) as again:
                second = public_state(make(**settings).fit(rows, labels, groups=groups))
            assert [r.call for r in again] == [r.call for r in tape]
            assert second == first


@pytest.mark.parametrize("case", CASES)
def test_the_event_in_the_ledger_is_the_trace_and_of_persons(case):
    make, settings = CASES[case]
    relation = settings.get("neighboring_relation", "zero_out")
    ledger = PrivacyLedger(neighboring_relation=relation, unit="group")
    with ledger, record_releases() as tape:
        estimator = make(**settings).fit(X, LABELS, groups=GROUPS)
    (entry,) = ledger.entries
    assert entry.event == estimator.privacy_.event
    assert estimator.privacy_.neighboring_relation == f"{relation}_group"
    assert estimator.privacy_.unit == "group"
    stated = [term for term in terms_of(entry.event) for _ in range(term.count)]
    found = sorted(r.call.scale / r.call.sensitivity * sensitivity_factor(relation) for r in tape)
    expected = sorted(term.noise_multiplier for term in stated)
    assert len(found) == len(expected)
    # The discrete noise needs a little more; replaced persons may move less than twice the bound.
    assert all(f >= e * (1 - 1e-9) for f, e in zip(found, expected, strict=True))
    if relation != "replace_one" and not settings.get("secure"):
        np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("case", [case for case in CASES if CASES[case][0] in (logistic, counts)])
def test_every_release_of_a_run_is_bounded_by_person(case):
    make, settings = CASES[case]
    config = make(**{**settings, "secure": False}).plan(n_features=3).config
    plan, theta = config.release_plan(), np.zeros(config.shape)
    rows = LinearRows(
        np.full((900, 3), 0.9),
        np.zeros((900, config.shape[0])),
        data_norm=config.data_norm,
        fit_intercept=config.fit_intercept,
        neighboring_relation=config.neighboring_relation,
        starts=np.array([0, 900]),
    ).take(slice(None))
    if settings.get("gradient") == "vanilla":
        theta = np.stack([theta, theta])
    for step in range(plan.sampling.n_steps):
        released = plan.clipped_sum_of(step)
        moved = np.linalg.norm(released(theta, rows))
        assert moved <= released.norm_bound <= plan.step(tuple(theta.shape), step)[1].sensitivity


ROW_EACH = {
    "logistic": (DPVariationalLogisticRegression, {"classes": [0, 1], "max_iter": 5}),
    "second moments": (
        DPVariationalLogisticRegression,
        {"classes": [0, 1], "max_iter": 4, "epsilon": 200.0},
    ),
    "robust": (
        DPVariationalLogisticRegression,
        {"classes": [0, 1], "max_iter": 4, "epsilon": 99.0, "robust": True},
    ),
    "dpvi": (
        DPVariationalLogisticRegression,
        {"classes": [0, 1], "max_iter": 4, "inference": "dpvi", "sampling_rate": 0.5},
    ),
    "regression": (DPVariationalLinearRegression, {"max_iter": 3, "target_bounds": (-1, 2)}),
    "counts": (DPVariationalPoissonRegression, {"max_iter": 3, "epsilon": 200.0}),
    "scaler": (DPStandardScaler, {}),
    "components": (DPPCA, {"n_components": 2}),
}


@pytest.mark.parametrize("case", ROW_EACH)
def test_persons_of_one_row_are_rows(case):
    kind, settings = ROW_EACH[case]
    settings = {"robust": False, **settings} if "max_iter" in settings else settings
    of_rows, of_persons = dict(settings), {**settings, "unit": "group", "rows_per_group": 1}
    if "n_samples" in kind().get_params():
        of_rows["n_samples"], of_persons["n_groups"] = N, N
    if settings.get("inference") == "dpvi":
        del of_rows["robust"], of_persons["robust"]
    with fixed_streams():
        with record_releases() as tape:
            first = kind(**of_rows).fit(X, LABELS)
        with record_releases() as again:
            second = kind(**of_persons).fit(X, LABELS, groups=np.arange(N))
    assert [r.call for r in again] == [r.call for r in tape]
    for one, other in zip(tape, again, strict=True):
        np.testing.assert_array_equal(np.asarray(one.output), np.asarray(other.output))
    for name, value in vars(first).items():
        if isinstance(value, np.ndarray | float):
            np.testing.assert_array_equal(value, getattr(second, name), err_msg=name)
