"""A plan is a value made of public facts: no data, no release, the same event as the fit's."""

import inspect
import json
import subprocess
import sys
from dataclasses import fields, replace

import numpy as np
import pytest
from sklearn.ensemble import VotingClassifier

from skdp import (
    BudgetExceededError,
    DPRandomizedSearch,
    DPSGDClassifier,
    DPVariationalLinearRegression,
    DPVariationalLogisticRegression,
    PrivacyLedger,
    privacy_of,
)
from skdp.base import FitPlan, MissingFactError, PrivateEstimator, PublicFacts
from skdp.calibration import DPTemperatureScaler

N, D = 60, 2
X = np.random.default_rng(0).uniform(-1, 1, (N, D))
Y = (X[:, 0] > 0).astype(int)


def logistic(**settings):
    return DPVariationalLogisticRegression(**{"classes": [0, 1], "n_samples": N, **settings})


def fitted_report():
    return logistic().fit(X, Y).privacy_


class TestTheValue:
    def test_it_says_what_a_fit_would_do(self):
        plan = logistic(epsilon=2.0).plan(n_features=D)
        assert plan.epsilon == pytest.approx(2.0, rel=1e-6)
        assert (plan.delta, plan.n_steps, plan.expected_batch_size) == (1e-5, 18, N)
        fitted = logistic(epsilon=2.0).fit(X, Y)
        assert plan.noise_multiplier == fitted.noise_multiplier_
        assert plan.privacy == fitted.privacy_

    def test_it_can_be_shown_and_stored(self):
        plan = DPTemperatureScaler(logistic(), n_samples=N).plan(n_features=D)
        text = repr(plan)
        assert "part 'estimator'" in text
        assert "DPTemperatureScaler" in text
        stored = json.loads(json.dumps(plan.to_dict()))
        assert stored["parts"]["estimator"]["n_samples"] == N
        assert stored["epsilon"] == pytest.approx(plan.epsilon)

    def test_it_costs_what_its_parts_cost_together(self):
        scaler = DPTemperatureScaler(logistic(epsilon=0.9), epsilon=0.2, n_samples=N)
        plan = scaler.plan(n_features=D)
        with PrivacyLedger() as ledger:
            scaler.fit(X, Y)
        assert [entry.event for entry in ledger.entries] == list(plan.events)
        assert ledger.total(plan.delta) == pytest.approx(plan.epsilon)
        assert scaler.privacy_.epsilon == plan.epsilon > plan.parts["estimator"].epsilon

    def test_a_search_is_planned_and_keeps_the_number_of_its_trials(self):
        search = DPRandomizedSearch(
            logistic(), {"prior_scale": [1.0, 2.0]}, epsilon=2.0, mean_trials=3, n_samples=N
        )
        plan = search.plan(n_features=D)
        of_parts = search.set_params(n_samples=None).plan(n_features=D)
        assert of_parts.facts.n_samples == N
        assert of_parts.privacy.inferred_public_facts == ()
        with PrivacyLedger() as ledger:
            search.fit(X, Y)
        assert [entry.event for entry in ledger.entries] == [plan.event]
        assert plan.n_steps is None
        assert plan.config.candidates == ()


class TestFacts:
    @pytest.mark.parametrize(
        ("settings", "given", "missing"),
        [
            ({"n_samples": None}, {"n_features": D}, "n_samples"),
            ({}, {}, "n_features"),
            ({"classes": None}, {"n_features": D}, "classes"),
        ],
    )
    def test_a_missing_fact_is_named(self, settings, given, missing):
        with pytest.raises(MissingFactError, match=missing) as error:
            logistic(**settings).plan(**given)
        assert error.value.fact == missing

    def test_what_is_declared_outweighs_what_is_given(self):
        assert logistic(n_samples=N).plan(7, D).facts.n_samples == N

    @pytest.mark.parametrize("wrong", [{"n_samples": 0}, {"n_features": 2.5}, {"classes": [1]}])
    def test_a_wrong_fact_is_named(self, wrong):
        (name,) = wrong
        with pytest.raises(ValueError, match=name):
            logistic().plan(**{"n_features": D, **wrong})

    def test_facts_read_from_the_data_are_in_the_statement_of_the_plan_too(self):
        plan = DPVariationalLogisticRegression().plan(N, D, [0, 1])
        assert plan.privacy.inferred_public_facts == ("classes", "n_samples")

    def test_a_parameter_that_is_wrong_is_refused_by_the_plan(self):
        with pytest.raises(ValueError, match="epsilon"):
            logistic(epsilon=-1.0).plan(n_features=D)


class TestNoRowWithinReach:
    def test_facts_are_numbers_and_names(self):
        annotations = {field.name: field.type for field in fields(PublicFacts)}
        assert not [name for name, kind in annotations.items() if "ndarray" in str(kind)]

    def test_no_hook_of_planning_takes_an_array(self):
        for kind in PrivateEstimator.__subclasses__():
            for name in ("plan", "_plan", "_planned", "_configure"):
                parameters = inspect.signature(getattr(kind, name)).parameters
                assert not {"X", "y", "rows", "records"} & parameters.keys()

    @pytest.mark.thorough
    def test_it_works_in_a_process_that_has_no_data(self):
        code = (
            "from skdp import DPVariationalLogisticRegression as L\n"
            "p = L(n_samples=569, classes=[0, 1]).plan(n_features=30)\n"
            "print(repr(p.event))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        rows = np.zeros((569, 30))
        with PrivacyLedger() as ledger:
            DPVariationalLogisticRegression(n_samples=569, classes=[0, 1]).fit(
                rows, np.arange(569) % 2
            )
        assert repr(ledger.entries[0].event) == done.stdout.strip()


class TestFoundAgain:
    def test_equal_facts_and_parameters_have_equal_plans_and_each_its_own(self):
        one, other = logistic().plan(n_features=D), logistic().plan(n_features=D)
        assert one == other
        assert one is not other

    @pytest.mark.parametrize("of", ["a plan", "a report"])
    def test_what_a_caller_does_with_an_event_reaches_no_other_fit(self, of):
        event = logistic().plan(n_features=D).event if of == "a plan" else fitted_report().event
        event.events.clear()
        with PrivacyLedger(epsilon=0.5, delta=1e-5), pytest.raises(BudgetExceededError):
            logistic().fit(X, Y)
        report = fitted_report()
        assert report.epsilon_at(1e-5) == pytest.approx(report.epsilon) == pytest.approx(1.0)

    def test_a_class_of_another_package_is_planned_afresh(self):
        class Own(DPVariationalLinearRegression):
            def _configure(self, facts, budget):
                return super()._configure(facts, budget)

        def stronger(self, facts, budget):
            return replace(super(Own, self)._configure(facts, budget), noise_multiplier=99.0)

        plans = [Own(n_samples=N).plan(n_features=D)]
        Own._configure = stronger
        plans.append(Own(n_samples=N).plan(n_features=D))
        assert plans[1].noise_multiplier == 99.0 != plans[0].noise_multiplier

    @pytest.mark.parametrize(
        "other",
        [
            {"epsilon": 1.1}, {"delta": 1e-6}, {"n_samples": N + 1}, {"fit_intercept": False},
            {"neighboring_relation": "replace_one"}, {"random_state": 1}, {"max_iter": 5},
        ],
    )  # fmt: skip
    def test_whatever_differs_is_planned_afresh(self, other):
        assert logistic(**other).plan(n_features=D) != logistic().plan(n_features=D)

    def test_an_equal_number_of_another_type_is_still_refused(self):
        logistic(max_iter=1).plan(n_features=D)
        for same in (True, 1.0):
            with pytest.raises(ValueError, match="max_iter"):
                logistic(max_iter=same).plan(n_features=D)

    def test_two_fits_of_one_plan_are_two_releases(self):
        one, other = logistic().fit(X, Y), logistic().fit(X, Y)
        assert one.privacy_ == other.privacy_
        voting = VotingClassifier([("one", logistic()), ("other", logistic())]).fit(X, Y)
        assert privacy_of(voting).epsilon == (one.privacy_ + other.privacy_).epsilon > 1.3

    def test_other_widths_other_plans(self):
        assert logistic().plan(n_features=D) != logistic().plan(n_features=D + 1)

    def test_a_module_is_no_key(self):
        def make(n_features, n_outputs):
            raise NotImplementedError

        classifier = DPSGDClassifier(module=make, classes=[0, 1], n_samples=N)
        assert "try_module" in repr(classifier.plan(n_features=D))
        assert classifier.plan(n_features=D) is not classifier.plan(n_features=D)

    def test_another_class_with_the_same_parameters_has_its_own(self):
        class Other(DPVariationalLinearRegression):
            pass

        plans = [
            kind(n_samples=N).plan(n_features=D) for kind in (DPVariationalLinearRegression, Other)
        ]
        assert [plan.facts.label for plan in plans] == ["DPVariationalLinearRegression", "Other"]


def test_a_plan_is_no_promise_for_other_data():
    """The plan of a fit is made of the facts about its rows, whatever was planned before."""
    assert isinstance(logistic(n_samples=None).plan(10 * N, D), FitPlan)
    with PrivacyLedger() as ledger:
        fitted = logistic(n_samples=None).fit(X, Y)
    assert ledger.entries[0].event == logistic(n_samples=None).plan(N, D).event
    assert fitted.privacy_.event == ledger.entries[0].event
