"""Releases that are part of a larger one: what is in no plan is refused before it touches a row."""

import threading

import joblib
import numpy as np
import pytest
from dp_accounting.dp_event import GaussianDpEvent
from reference.private_sum import PrivateSum
from sklearn.pipeline import FeatureUnion, make_pipeline

from skdp import DPPCA, DPVariationalLogisticRegression
from skdp.engine import release_hook
from skdp.mechanisms import GaussianMechanism
from skdp.model_selection import DPRandomizedSearch
from skdp.model_selection._base import restate
from skdp.model_selection._candidates import covers_part
from skdp.privacy import BudgetExceededError, PrivacyLedger, PrivacyReport
from skdp.privacy.cover import Cover, covered
from skdp.privacy.ledger import charge

X = np.random.default_rng(0).uniform(-1, 1, (60, 2))


def gaussian(sigma):
    return GaussianDpEvent(sigma)


def spend(sigma, owner="an estimator", relation="zero_out"):
    charge(gaussian(sigma), label="part", neighboring_relation=relation, owner=owner)


def report(sigma):
    return PrivacyReport.of(gaussian(sigma), delta=1e-5, sampling="any")


def unplanned(estimator, X):
    GaussianMechanism(1.0, 100.0).release(np.asarray(X)[:, 0].sum())


def unplanned_and_caught(estimator, X):
    try:
        unplanned(estimator, X)
    except BudgetExceededError:
        estimator.caught_ = True


def taught(estimator, X):
    """Refer to what states another, more expensive fit."""
    estimator.teacher_ = report(0.3)


def search(before):
    return DPRandomizedSearch(
        PrivateSum(before=before), {"before": [before]}, epsilon=3.0, mean_trials=3, n_samples=60
    ).set_params(scoring=lambda estimator, X, y: estimator.total_)


PUBLIC = {"X_public": X[:3], "y_public": np.zeros(3)}


# --- the plan -----------------------------------------------------------------------------------


def test_what_is_planned_happens_once_and_is_not_charged():
    cover, owner = Cover([gaussian(2.0), gaussian(3.0)]), object()
    with PrivacyLedger() as ledger, covered(cover):
        spend(3.0, owner)
        with pytest.raises(BudgetExceededError, match="not in the plan"):
            spend(3.0)
    assert ledger.entries == ()
    assert cover.owners == [owner]
    assert cover.refused


@pytest.mark.parametrize("planned", [[], [gaussian(2.0)]])
def test_what_is_not_planned_is_refused_and_remembered_when_caught(planned):
    cover = Cover(planned)
    with covered(cover), pytest.raises(BudgetExceededError):
        spend(1.0)
    assert cover.refused
    assert cover.owners == []


def test_the_least_plan_that_will_do_is_used_up():
    cover = Cover([gaussian(1.0), gaussian(2.0)], covers_part)
    with covered(cover):
        spend(2.5)  # of the two, the plan of 2.0 is enough
        spend(1.0)
    assert not cover.refused


def test_outside_the_block_all_is_charged_as_ever():
    with covered(Cover([gaussian(2.0)])):
        pass
    with PrivacyLedger() as ledger:
        spend(2.0)
    assert len(ledger.entries) == 1


# --- fits that are planned, and trials ------------------------------------------------------------


def test_nothing_is_released_by_a_plan_or_where_an_input_is_only_checked():
    with PrivacyLedger() as ledger, release_hook.record() as tape:
        assert PrivateSum(before=unplanned).plan().event == PrivateSum().fit(X).privacy_.event
        with pytest.raises(BudgetExceededError, match="not in the plan"):
            search(unplanned).fit(X)
        with pytest.raises(BudgetExceededError, match="private release"):
            search(unplanned_and_caught).fit(X)
    assert len(ledger.entries) == 1  # the fit
    assert len(tape) == 1


def later(before):
    """Run it in a trial and not where the input is checked."""

    def in_a_trial(estimator, X):
        if estimator.epsilon != 1.0:
            before(estimator, X)

    return in_a_trial


def test_a_trial_that_releases_more_than_planned_voids_the_search_even_if_it_catches_the_error():
    what = search(later(unplanned_and_caught))
    with (
        PrivacyLedger() as ledger,
        pytest.raises(RuntimeError, match="had not planned, or more of one"),
    ):
        what.fit(X, **PUBLIC)
    assert [entry.label for entry in ledger.entries] == ["DPRandomizedSearch"]
    assert not hasattr(what, "best_estimator_")


def test_the_winner_states_the_price_of_the_search_and_no_other_fit_a_lower_one():
    fitted = search(taught).fit(X, **PUBLIC)
    assert fitted.best_estimator_.privacy_ is fitted.privacy_
    dear = report(0.3)
    assert dear.epsilon > fitted.privacy_.epsilon
    assert fitted.best_estimator_.teacher_ == dear


def test_a_price_is_restated_upwards_alone():
    part, searched = PrivateSum(), report(1.0)
    part.privacy_, part.teacher_ = report(2.0), report(0.3)
    restate([part], searched)
    assert part.privacy_ is searched
    assert part.teacher_ == report(0.3)


def in_a_thread(estimator, X):
    thread = threading.Thread(target=lambda: DPPCA(1, epsilon=5.0).fit(X))
    thread.start()
    thread.join()


def test_a_release_in_another_thread_of_the_process_is_not_missed():
    cover = Cover([gaussian(1.0)])
    with covered(cover):
        in_a_thread(None, X)
    assert cover.refused
    with PrivacyLedger() as ledger, pytest.raises(BudgetExceededError, match="another thread"):
        search(in_a_thread).fit(X)
    assert [entry.label for entry in ledger.entries] == ["DPPCA"]
    with PrivacyLedger() as ledger, pytest.raises(RuntimeError, match="had not planned"):
        search(later(in_a_thread)).fit(X, **PUBLIC)
    assert {entry.label for entry in ledger.entries} == {"DPRandomizedSearch", "DPPCA"}


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_parts_of_a_trial_stay_in_its_thread_whatever_joblib_was_asked_for(backend):
    union = FeatureUnion([("a", DPPCA(1)), ("b", DPPCA(2))])
    model = DPVariationalLogisticRegression(classes=[0, 1], n_samples=60, max_iter=2)
    what = DPRandomizedSearch(
        make_pipeline(union, model),
        {"dpvariationallogisticregression__prior_scale": [1.0, 2.0]},
        epsilon=2.0,
        mean_trials=2,
        n_samples=60,
        n_jobs=1,
    )
    y = (X[:, 0] > 0).astype(int)
    with joblib.parallel_config(backend, n_jobs=2), PrivacyLedger() as ledger:
        what.fit(X, y)
    assert [entry.label for entry in ledger.entries] == ["DPRandomizedSearch"]
    for _, part in what.best_estimator_[0].transformer_list:
        assert part.privacy_ is what.privacy_


@pytest.mark.parametrize("release", [{"relation": "replace_one"}, {"owner": None}])
def test_a_planned_place_is_for_its_relation_and_for_what_states_a_price(release):
    cover = Cover([gaussian(1.0)])
    with covered(cover), pytest.raises(BudgetExceededError):
        spend(1.0, **release)
    assert cover.refused
