"""Audits through the public fit: wrong estimators are found, right ones are not accused."""

import json
import math
import multiprocessing
import random
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from unittest import mock

import joblib
import numpy as np
import pytest
import torch
from bundles import bundled
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.pipeline import make_pipeline

from skdp import (
    BoundedScaler,
    DPSGDClassifier,
    DPVariationalLogisticRegression,
    OPSPosteriorSampler,
    Persons,
    PrivacyLedger,
    PrivacyWarning,
)
from skdp.audit import AuditReport, audit_estimator, audit_samples
from skdp.engine.modules.network_sum import NetworkClippedSum
from skdp.mechanisms import LaplaceMechanism
from skdp.model_selection import DPRandomizedSearch, split_budget
from skdp.preprocessing import DPStandardScaler
from skdp.privacy import BudgetExceededError, PrivacyReport, epsilon_to_gdp, privacy_of
from skdp.privacy.events import dp_sgd_event
from skdp.privacy.ledger import charge
from skdp.relations import RELATIONS

pytestmark = pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")
EPSILON, DELTA = 4.377178, 1e-5  # μ = 1
TWICE = 9.997256  # μ = 2
SURE = {"confidence": 1 - 1e-6}  # a right estimator is accused once in a million runs of a test


@cache
def stated(sigma, n_steps, relation):
    event = dp_sgd_event(sigma, 1.0, n_steps)
    return PrivacyReport.of(
        event, delta=DELTA, sampling="full batch", neighboring_relation=relation
    )


class NoisySums(BaseEstimator):
    """Releases T noisy sums of rows clipped to C, and states μ = 1; each fault can be put in."""

    def __init__(self, fault="", relation="zero_out", n_steps=4, n_samples=10, random_state=None):
        self.fault = fault
        self.relation = relation
        self.n_steps = n_steps
        self.n_samples = n_samples
        self.random_state = random_state

    def fit(self, X, y=None):
        C = 2.0
        factor = 2.0 if self.relation == "replace_one" else 1.0
        sigma = factor * math.sqrt(self.n_steps)
        shown = np.random.default_rng(0) if self.fault == "seeded folds" else None
        rng = shown or np.random.default_rng()
        shares = {
            "90 % of the noise": 0.9,
            "half of the noise": 0.5,
            "noise of one step": 1 / math.sqrt(self.n_steps),
            "sensitivity of one record": 1 / factor,
        }
        scale = sigma * C * shares.get(self.fault, 1.0)
        clipped = X * (C / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), C))
        if self.fault == "no clipping":
            clipped = X
        noise = rng.normal(size=(self.n_steps, X.shape[1]))
        self.sums_ = clipped.sum(axis=0) + scale * noise
        if self.fault == "one of two releases":
            self.again_ = clipped.sum(axis=0) + scale * rng.normal(size=self.sums_.shape)
        self.privacy_ = stated(sigma, self.n_steps, self.relation)
        return self


def total(fitted):
    """All releases in one number: sufficient."""
    return fitted.sums_[:, -1].sum() + getattr(fitted, "again_", np.zeros((1, 1)))[:, -1].sum()


@pytest.mark.quick(5)
@pytest.mark.parametrize(
    ("fault", "relation", "n_fits", "confidence"),
    [
        ("half of the noise", "zero_out", 1500, 0.999),
        ("noise of one step", "zero_out", 1500, 0.999),
        ("no clipping", "add_or_remove_one", 1500, 0.999),
        ("sensitivity of one record", "replace_one", 1500, 0.999),
        ("seeded folds", "zero_out", 1500, 0.999),
        ("one of two releases", "zero_out", 3000, 0.99),
        pytest.param("90 % of the noise", "zero_out", 40_000, 0.99, marks=pytest.mark.slow),
    ],
)
def test_finds_each_wrong_estimator(fault, relation, n_fits, confidence):
    report = audit_estimator(
        NoisySums(fault, relation), statistic=total, n_fits=n_fits, confidence=confidence
    )
    assert report.violation, report
    assert report.epsilon == pytest.approx(EPSILON, rel=1e-6)
    assert report.neighboring_relation == relation


@pytest.mark.quick(4)
@pytest.mark.parametrize("unit", ["", "_group"])
@pytest.mark.parametrize("relation", RELATIONS)
def test_accuses_no_right_estimator_and_proves_most_of_its_claim(relation, unit):
    made = PersonSums if unit else NoisySums
    estimator, said = made("", relation + unit), {"neighboring_relation": relation + unit}
    report = audit_estimator(estimator, **said, statistic=total, n_fits=2000, **SURE)
    assert not report.violation
    assert report.tightness > 0.5


def test_the_direction_is_found_without_being_told():
    report = audit_estimator(NoisySums(), n_fits=2000, **SURE)
    assert not report.violation
    assert report.tightness > 0.4


def right(name):
    """skdp's own, where a result tells as much as all releases, or as half of μ²."""
    declared = {"classes": [0, 1], "n_samples": 10}
    budget = {"epsilon": EPSILON, "delta": DELTA}
    if name == "variational":
        # Of the two releases, the step and the count of long rows, the posterior shows the first.
        return DPVariationalLogisticRegression(
            TWICE, DELTA, **declared, inference="dpvi", max_iter=1, clip_norm=0.01,
            fit_intercept=False,
        ), {}  # fmt: skip
    if name == "persons":
        return DPVariationalLogisticRegression(
            **budget, classes=[0, 1], inference="dpvi", max_iter=1, clip_norm=0.01,
            fit_intercept=False, unit=Persons(10, rows_per_group=4),
        ), {"statistic": "trace"}  # fmt: skip
    rows = {"X": np.zeros((9, 64)), "canary": (np.append(np.zeros(63), 1.0), 1)}
    rows |= {"statistic": last_weights, "neighbor": "removed"}
    network = DPSGDClassifier(
        **budget, **declared, hidden_layer_sizes=(), sampling_rate=1.0, clip_norm=1e-5,
        optimizer=torch.optim.SGD, learning_rate=5e5, averaging=0.0, max_iter=2,
    )  # fmt: skip
    if name == "network":
        return network, rows
    network.set_params(learning_rate=1e5)  # the canary has weight 5, all others 1
    if name == "class weights":
        return network.set_params(class_weight={1: 5.0}), rows | {"y": np.zeros(9)}
    return Weighted(network.set_params(max_sample_weight=5.0)), rows


class Weighted(BaseEstimator):
    """Gives rows with a last number above 0 a weight of 5."""

    def __init__(self, estimator):
        self.estimator = estimator

    def fit(self, X, y):
        weights = np.where(X[:, -1] > 0, 5.0, 1.0)
        self.module_ = self.estimator.fit(X, y, sample_weight=weights).module_
        self.privacy_ = self.estimator.privacy_
        return self


def last_weights(fitted):
    # The canary moves the biases as much as the weights of its only feature.
    weights, biases = (p.detach().numpy() for p in fitted.module_.parameters())
    return weights[1, -1] - weights[0, -1] + biases[1] - biases[0]


RIGHT = ["variational", "network", "persons", "class weights", "row weights"]


@pytest.mark.thorough
@pytest.mark.parametrize("name", RIGHT)
def test_estimators_of_skdp_are_not_accused_and_spend_what_they_say(name):
    estimator, options = right(name)
    # Of the bound 4.75 deviations are taken for its confidence; it is above 0 by another 5.
    report = audit_estimator(estimator, n_fits=380, **options, **SURE)
    assert not report.violation
    assert report.frame == "gdp"
    assert report.epsilon_lower_bound > 0


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["class weights", "row weights"])
def test_a_weight_that_the_noise_is_not_for_is_found(name):
    estimator, options = right(name)
    unweighted = property(lambda self: self.clip_norm)
    with mock.patch.object(NetworkClippedSum, "record_bound", unweighted):
        report = audit_estimator(estimator, n_fits=150, **options, **SURE)
    assert report.violation, report
    assert report.epsilon == pytest.approx(EPSILON, rel=1e-3)


class Whole(BaseEstimator):
    """A workflow as one estimator, with the statement of all of it."""

    def __init__(self, workflow, public=None):
        self.workflow = workflow
        self.public = public

    def fit(self, X, y):
        self.workflow_ = clone(self.workflow).fit(X, y, **(self.public or {}))
        self.privacy_ = privacy_of(self.workflow_)
        return self


ONE_STEP = {
    "classes": [0, 1], "inference": "dpvi", "max_iter": 1, "clip_norm": 0.01,
    "fit_intercept": False,
}  # fmt: skip


@pytest.mark.thorough
def test_a_pipeline_spends_what_the_whole_states_and_more_than_a_step_does():
    step = "dpvariationallogisticregression"
    model = make_pipeline(
        DPStandardScaler(), DPVariationalLogisticRegression(**ONE_STEP, n_samples=101)
    )
    shares = {"dpstandardscaler": 16.0, step: 1.0}
    model = split_budget(model, EPSILON, DELTA, shares, n_samples=101, n_features=1)

    def seen(fitted):
        """The released moments, equally noisy and moved alike, and a hint from the step after."""
        scaler, classifier = fitted.workflow_
        moments = scaler.mean_ + (scaler.var_ + scaler.mean_**2)
        return moments[0] + 0.01 * np.tanh(classifier.coef_[0, 0])

    # Rows of which the scaler makes -1 and 1: whatever it releases, their gradients cancel.
    rows = {"X": np.repeat([[-1.0], [0.0]], 50, axis=0), "y": np.ones(100, dtype=int)}
    report = audit_estimator(
        Whole(model), **rows, canary=([1.0], 1), neighbor="removed", statistic=seen, n_fits=300
    )
    assert not report.violation
    assert report.epsilon == pytest.approx(EPSILON, rel=1e-6)
    assert report.epsilon_lower_bound > model[-1].epsilon


@pytest.mark.thorough
def test_a_private_search_is_not_accused_and_tells_the_canary():
    model = DPVariationalLogisticRegression(**ONE_STEP, n_samples=10)
    search = DPRandomizedSearch(
        model, {"prior_scale": [1.0]}, epsilon=30.0, mean_trials=2, n_samples=10,
        scoring=lambda fitted, X, y: fitted.coef_[0, -1],
    )  # fmt: skip
    report = audit_estimator(
        Whole(search, {"X_public": np.zeros((1, 2)), "y_public": np.zeros(1)}),
        neighbor="removed",
        statistic=lambda fitted: fitted.workflow_.best_estimator_.coef_[0, -1],
        n_fits=200,
    )
    assert not report.violation
    assert report.frame == "dp"
    assert report.epsilon == pytest.approx(30.0, rel=1e-6)
    assert report.epsilon_lower_bound > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
def test_5000_fits_prove_80_percent(name):
    estimator, options = right(name)
    if name == "variational":  # coefficients are not monotone in the step: Adam corrected for noise
        options = {"statistic": "trace"}
    report = audit_estimator(estimator, n_fits=5000, **options)
    # .94 is expected, and a standard deviation is .035.
    assert report.tightness > 0.8


@pytest.mark.thorough
def test_the_trace_of_several_steps_tells_the_canary():
    estimator = right("variational")[0].set_params(max_iter=4)
    report = audit_estimator(estimator, statistic="trace", n_fits=400, **SURE)
    assert not report.violation
    assert report.epsilon_lower_bound > 0


def test_a_posterior_sample_is_audited_in_the_plain_frame():
    sampler = OPSPosteriorSampler(
        1.0, 0, data_norm=1.0, theta_norm=3.0, fit_intercept=False, classes=[0, 1], n_samples=4
    )
    rows = {"X": np.ones((3, 1)), "y": [0, 0, 0], "canary": ([1.0], 1)}
    report = audit_estimator(sampler, n_fits=60, **rows, **SURE)
    assert (report.frame, report.violation, report.delta) == ("dp", False, 0.0)


def test_a_function_is_audited_against_the_claim_that_is_given():
    mechanism = LaplaceMechanism(record_norm=1.0, scale=1.0)

    def right_function(X, y):
        return mechanism.release(np.minimum(X, 1.0).sum())

    def wrong_function(X, y):
        return mechanism.release(np.minimum(X, 4.0).sum())

    claim = {"epsilon": 1.0, "delta": 0.0, "n_fits": 400}
    report = audit_estimator(right_function, **claim, **SURE)
    assert not report.violation
    assert report.audited == "right_function"
    assert audit_estimator(wrong_function, **claim).violation
    with pytest.raises(ValueError, match=r"epsilon=None.*PrivacyReport"):
        audit_estimator(right_function)


# --- seeds, ledgers, neighbours -------------------------------------------------------------------


def test_a_seeded_estimator_is_refused():
    seeded = NoisySums(random_state=3)
    with pytest.raises(ValueError, match=r"random_state=3.*same noise"):
        audit_estimator(seeded)
    with pytest.raises(ValueError, match="noisysums__random_state=3"):
        audit_estimator(make_pipeline(BoundedScaler(), seeded))

    def hidden(X, y):
        return DPVariationalLogisticRegression(
            classes=[0, 1], n_samples=10, inference="dpvi", max_iter=1, random_state=0
        ).fit(X, y)

    with pytest.raises(ValueError, match="random_state=0"):
        audit_estimator(hidden, n_fits=20)


@pytest.mark.thorough
@pytest.mark.parametrize("n_jobs", [None, 2])
def test_no_ledger_is_charged_for_made_up_rows(n_jobs):
    with PrivacyLedger(epsilon=1.0, delta=1e-5) as ledger:
        report = audit_estimator(right("variational")[0], n_fits=20, n_jobs=n_jobs)
        assert ledger.entries == ()
    assert report.n_with + report.n_without == 2 * 18
    # And an ordinary fit is charged as ever.
    with PrivacyLedger() as ledger:
        right("variational")[0].fit(np.zeros((10, 2)), [0, 1] * 5)
        assert len(ledger.entries) == 1


class Declared(NoisySums):
    """Charges what it states, as estimators of skdp do."""

    def fit(self, X, y=None):
        event = dp_sgd_event(math.sqrt(self.n_steps), 1.0, self.n_steps)
        charge(event, label="Declared", neighboring_relation=self.relation)
        return super().fit(X, y)


def in_a_function(X, y):
    return Declared().fit(X, y)


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("estimator", "given"),
    [
        (Declared(), {"X": np.zeros((9, 2))}),
        (Declared(), {"X": np.zeros((9, 2)), "n_jobs": 2}),
        (Declared(), {"y": np.zeros(9)}),
        (Declared(), {"canary": ([0.0, 1.0], 1)}),
        (Declared(), {"neighbor": ("null", ([0.0, 0.0], 0))}),
        (in_a_function, {"statistic": total}),
    ],
)
def test_rows_that_are_given_are_charged_unless_they_are_public(estimator, given):
    options = given | {"n_fits": 20}
    with PrivacyLedger() as ledger:
        audit_estimator(estimator, **options, public=True)
        assert ledger.entries == ()
        audit_estimator(estimator, **options)
        assert len(ledger.entries) == 41


def test_a_ceiling_stops_an_audit_of_rows_that_are_given():
    made = []

    class Seen(Declared):
        def fit(self, X, y=None):
            super().fit(X, y)
            made.append(self)
            return self

    with PrivacyLedger(epsilon=0.1, delta=1e-5) as ledger:
        with pytest.raises(BudgetExceededError) as refused:
            audit_estimator(Seen(), X=np.ones((9, 2)), n_fits=20)
        assert (ledger.entries, made) == ((), [])
    assert "public=True" in refused.value.__notes__[0]


def test_threads_of_a_function_are_charged():
    def threaded(X, y):
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(in_a_function, X, y).result()

    with PrivacyLedger() as ledger:
        audit_estimator(threaded, statistic=total, n_fits=20, public=True)
        assert len(ledger.entries) == 41


class Rows(NoisySums):
    """Keeps what it was fitted on."""

    def fit(self, X, y=None):
        seen.append((X, y))
        return super().fit(X, y)


seen: list = []


@pytest.mark.parametrize(
    ("relation", "n_other"), [("zero_out", 9), ("add_or_remove_one", 9), ("replace_one", 10)]
)
def test_the_two_data_sets_are_neighbours_in_the_sense_of_the_claim(relation, n_other):
    seen.clear()
    audit_estimator(Rows("", relation), n_fits=20)
    (X, y), (other, labels) = seen[-2:]
    assert X.shape == (10, 2)
    assert other.shape == (n_other, 2)
    np.testing.assert_array_equal(X[:9], other[:9])
    np.testing.assert_array_equal(y[:9], labels[:9])
    np.testing.assert_array_equal(X[9], [0, 1000])
    if relation == "replace_one":
        np.testing.assert_array_equal(other[9], [0, -1000])
    assert len(seen) == 2 * 20 + 1  # one fit to read the claim


def test_without_a_declared_number_of_rows_a_neighbour_must_be_given():
    with pytest.raises(ValueError, match=r"neighbor=None.*declared n_samples"):
        audit_estimator(NoisySums(n_samples=None))
    audit_estimator(NoisySums(n_samples=None), n_fits=20, neighbor=("null", (np.zeros(2), 0)))
    audit_estimator(NoisySums(n_samples=None), n_fits=20, neighbor="removed")


def test_what_is_no_neighbour_is_refused():
    record = np.array([0.0, -1000.0]), 1
    for given in (record, ("null", record)):
        with pytest.raises(ValueError, match=r"neighbor=.*'removed'.*is no neighbour"):
            audit_estimator(NoisySums("", "add_or_remove_one"), neighbor=given, n_fits=20)
    with pytest.raises(ValueError, match=r"neighbor='removed'.*replace_one"):
        audit_estimator(NoisySums("", "replace_one"), neighbor="removed", n_fits=20)
    # Whether a record is null cannot be seen from outside: the caller says so, or is told.
    with pytest.warns(PrivacyWarning, match="conditional on the record"):
        report = audit_estimator(NoisySums(), neighbor=record, n_fits=20)
    assert "zero_out; in the canary's place: a record taken as null" in repr(report)


@pytest.mark.filterwarnings("error::skdp.PrivacyWarning")
@pytest.mark.parametrize(
    ("relation", "neighbor", "said"),
    [
        ("zero_out", None, "removed"),
        ("zero_out", ("null", ([0.0, 0.0], 0)), "a record taken as null"),
        ("add_or_remove_one", "removed", "removed"),
        ("replace_one", None, "another record"),
        ("replace_one", ([0.0, 0.0], 0), "another record"),
    ],
)
def test_the_report_says_what_was_in_the_place_of_the_canary(relation, neighbor, said):
    report = audit_estimator(NoisySums("", relation), neighbor=neighbor, n_fits=20)
    assert report.neighbor == said


# --- persons --------------------------------------------------------------------------------------


class PersonSums(NoisySums):
    """Releases noisy sums of what persons add up to, clipped to C; each fault can be put in."""

    def __init__(self, fault="", relation="zero_out_group", n_steps=4, n_samples=None):
        super().__init__(fault, relation, n_steps, n_samples)

    def fit(self, X, y=None, groups=None):
        if self.fault == "clipped by row":
            rows = X * (2.0 / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 2.0))
            persons = np.array([rows[groups == label].sum(0) for label in np.unique(groups)])
            fault = "no clipping"
        else:
            persons = np.array([X[groups == label].sum(0) for label in np.unique(groups)])
            fault = self.fault
        factor = 2.0 if self.relation.startswith("replace_one") else 1.0
        sigma = factor * math.sqrt(self.n_steps)
        of_persons = NoisySums(fault, self.relation.removesuffix("_group"), self.n_steps)
        self.sums_ = of_persons.fit(persons).sums_
        self.privacy_ = stated(sigma, self.n_steps, self.relation)
        seen.append((X, y, groups))
        return self


class SaysPersons(NoisySums):
    """States a guarantee for persons, which no parameter announces."""

    def fit(self, X, y=None):
        super().fit(X, y)
        self.privacy_ = stated(2.0, self.n_steps, "zero_out_group")
        return self


GROUP_RELATIONS = [f"{relation}_group" for relation in RELATIONS]


@pytest.mark.parametrize("relation", GROUP_RELATIONS)
def test_the_neighbours_of_an_audit_of_persons_differ_in_all_rows_of_one(relation):
    seen.clear()
    report = audit_estimator(
        PersonSums("", relation), neighboring_relation=relation, statistic=total, n_fits=20
    )
    (X, y, groups), (other, labels, others) = seen[-2:]
    assert X.shape == (59, 2)
    np.testing.assert_array_equal(groups, [*range(9), *[9] * 50])
    np.testing.assert_array_equal(X[9:], np.tile([0, 1000], (50, 1)))
    np.testing.assert_array_equal(y[9:], np.ones(50))
    if relation == "replace_one_group":
        np.testing.assert_array_equal(others, groups)
        np.testing.assert_array_equal(other[9:], np.tile([0, -1000], (50, 1)))
    else:
        np.testing.assert_array_equal(others, np.arange(9))
        np.testing.assert_array_equal(other, X[:9])
        np.testing.assert_array_equal(labels, y[:9])
    assert (report.unit, report.neighboring_relation) == ("group", relation)
    assert "unit        group: a person with all rows" in repr(report)
    assert report.to_dict()["unit"] == "group"
    assert len(seen) == 2 * 20 + 1


@pytest.mark.parametrize("relation", GROUP_RELATIONS)
def test_an_estimator_that_bounds_rows_and_claims_persons_is_found(relation):
    wrong = PersonSums("clipped by row", relation)
    report = audit_estimator(
        wrong, neighboring_relation=relation, statistic=total, n_fits=200, confidence=0.999
    )
    assert report.violation


def test_groups_and_a_person_of_ones_own():
    seen.clear()
    rows = {"X": np.eye(3), "y": [0, 1, 0], "groups": ["b", "a", "b"]}
    person = [[0.0, 1.0, 0.0], [2.0, 0.0, 0.0]], [1, 0]
    options = {"n_fits": 20, "statistic": total}
    audit_estimator(PersonSums(), **rows, canary=person, **options)
    (X, y, groups), (other, _, others) = seen[-2:]
    np.testing.assert_array_equal(groups, [0, 1, 0, 2, 2])
    np.testing.assert_array_equal(y, [0, 1, 0, 1, 0])
    np.testing.assert_array_equal(X[3:], person[0])
    assert (other.shape, others.tolist()) == ((3, 3), [0, 1, 0])
    # A row is a person with one row; a replaced one may have another number of them.
    relation = {"neighboring_relation": "replace_one"}
    estimator = PersonSums("", "replace_one_group")
    audit_estimator(
        estimator, **rows, **relation, canary=person, neighbor=([1.0, 0.0, 0.0], 1), **options
    )
    assert seen[-1][2].tolist() == [0, 1, 0, 2]


OF_PERSONS = DPVariationalLogisticRegression(
    2.0, classes=[0, 1], inference="dpvi", max_iter=1, unit=Persons(10)
)


def noisy_persons(X, y, groups):
    """A function, of which nobody knows a unit."""
    return np.random.default_rng().normal(len(np.unique(groups)) * 3)


def test_persons_are_audited_where_the_relation_the_groups_or_the_estimator_say_so():
    claim = {"epsilon": 4.0, "delta": 1e-5, "n_fits": 20}
    report = audit_estimator(noisy_persons, **claim, neighboring_relation="add_or_remove_one_group")
    assert report.neighboring_relation == "add_or_remove_one_group"
    report = audit_estimator(noisy_persons, **claim, X=np.eye(2), groups=[7, 7])
    assert (report.neighboring_relation, report.neighbor) == ("zero_out_group", "removed")
    report = audit_estimator(OF_PERSONS, n_fits=20, **SURE)
    assert (report.unit, report.neighbor, report.violation) == ("group", "removed", False)
    with pytest.raises(ValueError, match=r"unit='row' .* to be Persons"):
        audit_estimator(right("variational")[0], groups=np.arange(9))
    with pytest.raises(ValueError, match=r"groups=None .* to be given"):
        audit_estimator(SaysPersons())
    for wrong in ([1] * 8, [None] * 9, np.zeros((9, 1))):
        with pytest.raises(ValueError, match="one hashable label per row"):
            audit_estimator(PersonSums(), groups=wrong)


def test_groups_that_are_given_are_charged():
    with PrivacyLedger(unit="group") as ledger:
        audit_estimator(OF_PERSONS, n_fits=20)
        assert ledger.entries == ()
        audit_estimator(OF_PERSONS, groups=np.arange(9) // 2, n_fits=20)
        assert len(ledger.entries) == 41


class Vote(ClassifierMixin, NoisySums):
    """A classifier, of labels of any kind."""

    def fit(self, X, y=None):
        self.classes_ = np.unique(y)
        return super().fit(X, y)


@pytest.mark.parametrize("kind", [str, object])
def test_labels_may_be_strings(kind):
    y = np.array(["no", "yes", "no"], dtype=kind)
    seen = []

    def keep(fitted):
        seen.append(fitted.classes_)
        return total(fitted)

    audit_estimator(Vote(), X=np.zeros((3, 2)), y=y, statistic=keep, n_fits=20)
    assert {tuple(classes) for classes in seen} == {("no", "yes")}


def global_noise(kind, X, y):
    if kind == "numpy":
        drawn = np.random.standard_normal()  # noqa: NPY002
    elif kind == "random":
        drawn = random.gauss(0, 1)
    else:
        drawn = torch.randn((), dtype=torch.float64).item()
    return np.array([drawn, X.sum() + drawn])


generator = np.random.default_rng()


def noise_of_the_module(X, y):
    return X.sum() + generator.normal()


def with_a_generator(X, y, rng):
    return X.sum() + rng.normal()


CLAIM = {"epsilon": 1.0, "delta": 1e-5, "n_jobs": 2}


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", ["numpy", "random", "torch"])
def test_workers_do_not_repeat_the_noise_of_global_generators(kind):
    results = []

    def keep(*arms, **claim):
        results.extend(arms)
        return audit_samples(*arms, **claim)

    with (
        mock.patch("skdp.audit.estimator.audit_samples", keep),
        joblib.parallel_backend("multiprocessing"),
    ):
        audit_estimator(partial(global_noise, kind), **CLAIM, n_fits=80)
    assert len(np.unique(np.vstack(results)[:, 0])) == 160


@pytest.mark.quick(1)
@pytest.mark.parametrize("n_fits", [20, 160])
@pytest.mark.parametrize("backend", ["loky", "multiprocessing"])
def test_a_generator_that_each_worker_has_a_copy_of_is_refused(n_fits, backend):
    rng = np.random.default_rng()

    def noisy(X, y):
        return with_a_generator(X, y, rng)

    # Only loky takes local functions.
    brought = noisy if backend == "loky" else partial(with_a_generator, rng=rng)
    with (
        joblib.parallel_backend(backend),
        pytest.raises(ValueError, match="repeat each other's fits"),
    ):
        audit_estimator(brought, **CLAIM, n_fits=n_fits)


@pytest.mark.thorough
def test_a_generator_of_a_module_is_refused_where_workers_are_forked():
    if multiprocessing.get_start_method() != "fork":
        pytest.skip("no forks here")
    with (
        joblib.parallel_backend("multiprocessing"),
        pytest.raises(ValueError, match="repeat each other's fits"),
    ):
        audit_estimator(noise_of_the_module, **CLAIM, n_fits=160)


def test_results_of_few_values_are_audited_without_an_error():
    def deterministic(X, y):
        return X.sum()

    def response(X, y):
        return float((X.sum() > 0) == (random.random() < 0.95))

    for function in (deterministic, response):
        for n_fits in (20, 160):
            report = audit_estimator(function, **CLAIM, n_fits=n_fits)
            assert isinstance(report, AuditReport)


@bundled(
    ("wrong", "text"),
    [
        ({"n_fits": 5}, "n_fits=5"),
        ({"frame": "pdp"}, "frame='pdp'"),
        ({"confidence": 0.0}, "confidence=0.0"),
        ({"selection": 1.0}, "selection=1.0"),
        ({"statistic": "coef"}, "statistic='coef'"),
        ({"canary": 3}, "record=3"),
        ({"canary": ([1.0, 2.0, 3.0], 1)}, "record="),
        ({"neighbor": "gone"}, "neighbor='gone'"),
        ({"neighbor": ("zero", ([0.0, 0.0], 0))}, "neighbor='zero'"),
        ({"neighbor": ("null", 3)}, "record=3"),
        ({"neighbor": 3}, "record=3"),
        ({"public": 1}, "public=1"),
        ({"X": np.zeros(3)}, "Expected X of shape"),
        ({"y": [1]}, "Expected y of shape"),
        ({"neighboring_relation": "replace_one"}, "as in privacy_"),
        ({"statistic": "trace"}, "recorded no releases"),
        ({"statistic": lambda fitted: np.zeros(1 + (fitted.sums_.sum() > 0))}, "of one length"),
    ],
)
def test_what_is_wrong_with_a_call_is_named(wrong, text):
    with pytest.raises(ValueError, match=text):
        audit_estimator(NoisySums(), **({"n_fits": 20} | wrong))


def test_an_estimator_without_noise_is_told_apart():
    report = audit_estimator(
        lambda X, y: X.sum(), epsilon=1.0, delta=1e-5, n_fits=100, neighboring_relation="zero_out"
    )
    assert report.rates == (0.0, 0.0)
    assert report.violation


# --- the report -----------------------------------------------------------------------------------


@pytest.fixture
def report():
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(2, 500)) + np.array([[1.0], [0.0]])
    return audit_samples(*draws, epsilon=1.0, delta=1e-5, frame="gdp", audited="something")


def test_report_says_what_was_claimed_and_proved(report):
    text = repr(report)
    assert text.startswith("AuditReport of something: violation: epsilon >= ")
    assert "but 1 was claimed" in text
    assert "95 % confidence" in text
    assert report.tightness == report.epsilon_lower_bound / 1.0
    values = json.loads(json.dumps(report.to_dict()))
    assert values["violation"] is True
    assert AuditReport(**{k: v for k, v in values.items() if k in vars(report)}) == report


def test_plot_draws_the_claim_and_the_counts(report):
    plt = pytest.importorskip("matplotlib.pyplot")
    ax = report.plot()
    (curve, point, _), (box,) = ax.lines, ax.patches
    alpha, beta = curve.get_data()
    mu = epsilon_to_gdp(1.0, 1e-5)
    from scipy.stats import norm

    np.testing.assert_allclose(beta, norm.cdf(norm.ppf(1 - alpha) - mu))
    np.testing.assert_allclose(np.ravel(point.get_data()), report.rates)
    assert box.get_x() < report.rates[0] < box.get_x() + box.get_width()
    assert report.plot(ax) is ax
    plt.close("all")
