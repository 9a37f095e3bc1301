"""A private search in which a record is a person with all of its rows."""

import math
import pickle
from contextlib import contextmanager
from dataclasses import replace

import joblib
import numpy as np
import pandas as pd
import pytest
from bundles import bundled
from dp_accounting.dp_event import GaussianDpEvent, RepeatAndSelectDpEvent
from hypothesis import given
from hypothesis import strategies as st
from sklearn import config_context
from sklearn.compose import make_column_transformer
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdp import BoundedScaler, DPStandardScaler, DPVariationalLogisticRegression, Persons
from skdp.calibration import DPTemperatureScaler
from skdp.model_selection import DPRandomizedSearch, _scores, split_budget
from skdp.privacy import PrivacyLedger, epsilon_of_event, privacy_of
from skdp.privacy.events import terms_of
from skdp.relations import sensitivity_factor
from skdp.rows.persons import rows_of_persons
from skdp.testing import fixed_streams, record_releases

N, PERSONS = 240, 60
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (N, 2))
Y = (X[:, 0] > 0).astype(int)
GROUPS = RNG.permutation(np.concatenate([np.arange(PERSONS), RNG.integers(0, 30, N - PERSONS)]))
UNIT = {"unit": Persons(rows_per_group=4)}
PRIOR = {"prior_scale": [1.0, 3.0]}
STEP = "dpvariationallogisticregression"
ROUTED = {f"{STEP}__prior_scale": [1.0, 3.0]}


def logistic(**settings):
    settings = {"inference": "dpvi", "max_iter": 2, "classes": [0, 1], **UNIT, **settings}
    return DPVariationalLogisticRegression(**settings)


def scaler(**settings):
    return DPStandardScaler(-1, 1, **{**UNIT, **settings})


def routed(*steps):
    return make_pipeline(*(step.set_fit_request(groups=True) for step in steps))


def search(estimator=None, distributions=None, **settings):
    estimator = logistic() if estimator is None else estimator
    settings = {"epsilon": 3.0, "mean_trials": 3, "unit": Persons(PERSONS), **settings}
    return DPRandomizedSearch(estimator, distributions or PRIOR, **settings)


@contextmanager
def nothing_spent():
    with PrivacyLedger(unit="group") as ledger, record_releases() as tape:
        yield
    assert (ledger.entries, tape) == ((), [])


# --- what it costs and says -----------------------------------------------------------------------


@bundled("relation", ["zero_out", "add_or_remove_one", "replace_one"])
def test_the_price_is_that_of_the_releases_that_were_made(relation):
    what = search(
        logistic(neighboring_relation=relation), neighboring_relation=relation, score_share=0.3
    )
    ledger = PrivacyLedger(neighboring_relation=relation, unit="group")
    with ledger, record_releases() as tape:
        fitted = what.fit(X, Y, GROUPS)
    factor = sensitivity_factor(relation)
    scores = [r.call for r in tape if r.call.sensitivity == 0.5 * factor]
    of_score = (0.5 * factor / scores[0].scale) ** 2
    of_all = sum((r.call.sensitivity / r.call.scale) ** 2 for r in tape) / len(scores)
    (base,) = terms_of(fitted.privacy_.event.event)
    of_base = (factor / base.noise_multiplier) ** 2
    assert of_score == pytest.approx(0.3 * of_base, rel=1e-5)
    assert 1 - 1e-5 < of_all / of_base <= 1
    by_hand = RepeatAndSelectDpEvent(GaussianDpEvent(factor / math.sqrt(of_base)), 3, 0.0)
    assert epsilon_of_event(by_hand, 1e-5, relation) == fitted.privacy_.epsilon
    assert 0.9999 * 3.0 < fitted.privacy_.epsilon <= 3.0
    assert ledger.entries[0].event == fitted.privacy_.event
    assert len(ledger.entries) == 1
    assert fitted.privacy_.valid
    assert fitted.privacy_.neighboring_relation == f"{relation}_group"


def test_reports_say_person():
    fitted = search(logistic(unit=Persons(7, rows_per_group=4))).fit(X, Y, groups=GROUPS)
    assert fitted.privacy_.unit == privacy_of(fitted).unit == "group"
    assert "sum over persons" in fitted.privacy_.sampling
    assert fitted.privacy_.inferred_public_facts == ()
    best = fitted.best_estimator_
    assert best.privacy_ is fitted.privacy_
    assert best.unit == Persons(
        PERSONS, rows_per_group=4
    )  # the search's goes first, as with n_samples
    plan = search().plan(n_samples=17, n_features=2)
    assert (plan.event, plan.privacy.unit) == (fitted.privacy_.event, "group")
    again = pickle.loads(pickle.dumps(fitted))
    assert again.best_estimator_.privacy_ is again.privacy_


@pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")
def test_with_a_seed_other_persons_have_other_noise():
    def half(estimator, X, y):  # a share of 0 for every person: what is released is noise
        return np.full(len(X), 0.5)

    seeded = search(mean_trials=1, scoring=half, random_state=0)
    scores = [seeded.fit(X, Y, groups).best_score_ for groups in (GROUPS, GROUPS, GROUPS[::-1])]
    assert scores[0] == scores[1] != scores[2]

    unit = Persons(PERSONS, rows_per_group=4)
    noisy = DPTemperatureScaler(
        logistic(random_state=0, unit=unit), unit=replace(unit, clip=1e9), random_state=0
    )
    noisy.set_params(estimator=FrozenEstimator(noisy.estimator.fit(X, Y, GROUPS)))
    noise = []
    for groups in (np.sort(GROUPS), np.sort(GROUPS), np.sort(GROUPS[::-1] // 2)):
        with record_releases() as tape:
            noisy.fit(X, Y, groups)
        noise.append(float(tape[0].output[0]))
    assert noise[0] == noise[1]
    assert abs(noise[2] / noise[0] - 1) > 1e-3


def test_the_number_of_persons_may_be_declared_by_the_steps():
    fitted = search(logistic(unit=Persons(PERSONS)), unit=Persons()).fit(X, Y, GROUPS)
    assert fitted.privacy_.valid
    with nothing_spent(), pytest.raises(ValueError, match="n_groups=None"):
        search(unit=Persons()).fit(X, Y, GROUPS)


def test_a_number_of_rows_is_handed_to_the_steps():
    fitted = search(logistic(unit=Persons()), n_samples=3 * PERSONS).fit(X, Y, GROUPS)
    assert fitted.best_estimator_.n_samples == 3 * PERSONS
    assert "counts and squares to 3 times" in fitted.privacy_.sampling


@pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")
@pytest.mark.parametrize("times", [1, 3])
def test_the_score_is_the_mean_over_persons_of_the_mean_of_their_rows(times):
    fitted = search(epsilon=math.inf, mean_trials=1, unit=Persons(times * PERSONS)).fit(
        X, Y, GROUPS
    )
    right = pd.Series(fitted.predict(X) == Y).groupby(GROUPS).mean().mean()
    assert fitted.best_score_ == pytest.approx(0.5 + (right - 0.5) / times, abs=1e-6)
    assert abs(right - fitted.score(X, Y)) > 1e-3  # rows weigh alike there


def test_a_wrapper_passes_groups_on_without_routing():
    fitted = search(
        DPTemperatureScaler(logistic(), max_iter=2, **UNIT), {"estimator__prior_scale": [1.0, 2.0]}
    ).fit(X, Y, GROUPS)
    best = fitted.best_estimator_
    assert best.privacy_ is best.estimator_.privacy_ is fitted.privacy_
    assert best.unit == best.estimator_.unit == Persons(PERSONS, rows_per_group=4)


@pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")
def test_public_rows_are_scored_for_nothing():
    with record_releases() as tape:
        fitted = search(random_state=0).fit(X, Y, GROUPS, X_public=X[:9], y_public=Y[:9])
    assert fitted.best_score_ in np.arange(10) / 9
    assert not any(r.call.sensitivity == 0.5 for r in tape)


def test_persons_of_one_row_are_rows():
    settings = {"robust": False, "inference": "noise_aware"}
    of_rows = logistic(**settings, unit="row")
    of_persons = logistic(**settings, unit=Persons(rows_per_group=1))
    with fixed_streams():
        with record_releases() as tape:
            first = search(of_rows, unit="row", n_samples=N).fit(X, Y)
        with record_releases() as again:
            second = search(of_persons, unit=Persons(N)).fit(X, Y, np.arange(N))
    assert [r.call for r in again] == [r.call for r in tape]
    for one, other in zip(tape, again, strict=True):
        # Draws of slopes differ by more than the rounding of the sums that they follow.
        np.testing.assert_allclose(
            np.asarray(one.output), np.asarray(other.output), atol=0.05, rtol=0.02
        )
    assert second.best_score_ == pytest.approx(first.best_score_, rel=0.02)
    assert second.best_params_ == first.best_params_
    assert second.privacy_.epsilon == first.privacy_.epsilon
    np.testing.assert_allclose(second.predict_proba(X), first.predict_proba(X), atol=0.02)


# --- scores ---------------------------------------------------------------------------------------

NUMBERS = st.floats(width=64) | st.sampled_from([math.nan, math.inf, -math.inf, 1e300, 5e-324])
ROWS = st.lists(st.tuples(st.integers(0, 6), NUMBERS), max_size=40)


def total(rows):
    """Sum of shares of (person, score) rows."""
    labels = np.array([person for person, _ in rows], dtype=int)
    scores = np.array([score for _, score in rows], dtype=float)
    return _scores.centred_sum(scores, rows_of_persons(labels, len(rows)))


@given(ROWS, st.lists(NUMBERS, min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_all_rows_of_a_person_move_the_sum_by_their_own_share_and_half_at_most(rows, own, random):
    others = [row for row in rows if row[0] != 3]
    mine = [row for row in rows if row[0] == 3]
    changed = others + [(3, score) for score in own]
    random.shuffle(changed)
    share, other_share = total(mine), total([(3, score) for score in own])
    assert abs(share) <= 0.5
    assert abs(other_share) <= 0.5
    # Exactly, wherever the rows stand and whoever else is there.
    assert total(rows) - total(others) == share
    assert total(changed) - total(others) == other_share
    assert abs(total(changed) - total(rows)) <= 1.0


def test_thousands_of_rows_of_a_person_move_the_sum_by_half_at_most():
    rng = np.random.default_rng(1)
    for k in [1, 2, 3, 7, 1000, 2**20 + 1]:
        for scores in (
            np.full(k, math.nan),
            np.full(k, 1e300),
            rng.random(k),
            rng.random(k) * 1e-8,
        ):
            whose = rows_of_persons(np.zeros(k, dtype=int), k)
            found = _scores.centred_sum(scores, whose)
            mean = np.clip(np.nan_to_num(scores), 0, 1).mean() - 0.5
            assert abs(found) <= 0.5
            assert found == pytest.approx(mean, abs=2.0**-24)
    for _ in range(3000):
        k = int(rng.integers(1, 60))
        scores = rng.choice([0.0, 1.0, 0.5, math.nan, -math.inf, 1e300, rng.random()], size=k)
        assert abs(_scores.centred_sum(scores, rows_of_persons(np.zeros(k), k))) <= 0.5


def test_nobody_and_no_rows_score_nothing():
    assert total([]) == _scores.centred_sum(np.empty(0)) == 0.0


def test_sums_beyond_a_double_are_cut_and_never_rounded():
    for whole in (2**53 + 1, 2**62, 2**53 - 1, 7):
        for share in (-(2**23), -1, 0, 1, 2**23):
            moved = _scores.exact_double(whole + share) - _scores.exact_double(whole)
            assert abs(moved) <= abs(share) * 2.0**-24
            opposite = _scores.exact_double(-whole - share) - _scores.exact_double(-whole)
            assert opposite == -moved


# --- pipelines ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_jobs", "rows"), [(None, X), (2, pd.DataFrame(X, columns=["a", "b"]))])
def test_a_pipeline_passes_groups_on_by_routing(n_jobs, rows):
    with config_context(enable_metadata_routing=True), joblib.parallel_config("threading"):
        first = scaler().set_fit_request(groups=True)
        if n_jobs:  # of a frame, by columns
            first = make_column_transformer((first, ["a", "b"]))
        model = make_pipeline(first, logistic().set_fit_request(groups=True))
        with PrivacyLedger(unit="group") as ledger:
            fitted = search(model, ROUTED, n_jobs=n_jobs).fit(
                rows, Y, groups=pd.Series(GROUPS).astype(str)
            )
    assert fitted.privacy_.epsilon <= 3.0
    assert privacy_of(fitted).valid
    first, last = fitted.best_estimator_
    for step in (first.transformers_[0][1] if n_jobs else first, last):
        assert step.privacy_ is fitted.privacy_
        assert step.unit.n_groups == PERSONS
    assert len(ledger.entries) == 1


def test_a_search_is_routed_to_inside_a_pipeline():
    with config_context(enable_metadata_routing=True):
        inner = search().set_fit_request(groups=True)
        fitted = make_pipeline(BoundedScaler(lower=-1, upper=1), inner).fit(X, Y, groups=GROUPS)
    assert privacy_of(fitted).unit == "group"
    assert privacy_of(fitted).valid


def test_a_pipeline_that_would_lose_groups_is_refused_before_anything_is_spent():
    lost = search(make_pipeline(scaler(), logistic()), ROUTED)
    words = ("enable_metadata_routing=True", "set_fit_request", STEP)
    with nothing_spent(), pytest.raises(ValueError, match="metadata routing") as error:
        lost.fit(X, Y, groups=GROUPS)
    assert all(word in str(error.value) for word in words)
    with config_context(enable_metadata_routing=True), nothing_spent():
        for request in (None, False, "patients"):
            step = logistic().set_fit_request(groups=request)
            part = make_pipeline(scaler().set_fit_request(groups=True), step)
            with pytest.raises(ValueError, match=f"groups=True.* on '{STEP}'"):
                search(part, ROUTED).fit(X, Y, groups=GROUPS)
        requested = routed(scaler(), logistic())
    with nothing_spent(), pytest.raises(ValueError, match="enable_metadata_routing=True"):
        search(requested, ROUTED).fit(X, Y, groups=GROUPS)


class GroupCounter(StandardScaler):
    """A step that could take groups, and does not say whether it wants them."""

    def fit(self, X, y=None, groups=None):
        return super().fit(X, y)


def test_a_step_that_leaves_open_whether_it_takes_groups_is_refused_before_the_charge():
    with config_context(enable_metadata_routing=True):
        model = make_pipeline(GroupCounter(), logistic().set_fit_request(groups=True))
        with nothing_spent(), pytest.raises(ValueError, match="GroupCounter"):
            search(model, ROUTED).fit(X, Y, groups=GROUPS)


@pytest.mark.thorough
def test_a_budget_is_split_around_a_search():
    model = make_pipeline(scaler(), search())
    split = split_budget(model, 2.0, 1e-6)
    assert 0 < split[0].epsilon < 2.0
    assert 0 < split[1].epsilon < 2.0
    with config_context(enable_metadata_routing=True):
        for step in split:
            step.set_fit_request(groups=True)
        fitted = split.fit(X, Y, groups=GROUPS)
    assert privacy_of(fitted, delta=1e-6).epsilon <= 2.0
    with pytest.raises(ValueError, match="'dpstandardscaler'"):
        split_budget(make_pipeline(DPStandardScaler(-1, 1), search()), 2.0, 1e-6)


# --- what is refused ------------------------------------------------------------------------------

BAD_GROUPS = {
    "none": (None, "set_fit_request"),
    "too few": (GROUPS[1:], "one hashable label per row"),
    "missing": ([None, *["ann"] * (N - 1)], "some are missing"),
    "NaN": (np.where(GROUPS == 3, np.nan, GROUPS), "some are missing"),
    "text": ("ann", "one hashable label per row"),
    "not hashable": ([["ann"]] * N, "one hashable label per row"),
    "two columns": (np.full((N, 2), "ann"), "one hashable label per row"),
}


@pytest.mark.parametrize("case", BAD_GROUPS)
def test_bad_groups_are_refused_before_anything_is_spent_and_no_label_is_quoted(case):
    groups, match = BAD_GROUPS[case]
    with nothing_spent(), pytest.raises(ValueError, match=match) as error:
        search().fit(X, Y, groups)
    assert "ann" not in str(error.value)


def test_groups_are_refused_where_rows_are_protected():
    of_rows = search(logistic(unit="row"), unit="row", n_samples=N)
    with nothing_spent(), pytest.raises(ValueError, match="unit='row'") as error:
        of_rows.fit(X, Y, groups=np.full(N, "ann"))
    assert "ann" not in str(error.value)


def test_mixed_units_name_the_steps():
    rows = {"unit": "row"}
    with config_context(enable_metadata_routing=True), nothing_spent():
        mixed = routed(scaler(**rows), logistic())
        with pytest.raises(ValueError, match=r"'row' in \['dpstandardscaler'\]"):
            search(mixed, ROUTED).fit(X, Y, groups=GROUPS)
        of_rows = routed(scaler(**rows), logistic(**rows))
        with pytest.raises(ValueError, match="'row' as in the steps 'dpstandardscaler', 'dpv"):
            search(of_rows, ROUTED).fit(X, Y, groups=GROUPS)
        with pytest.raises(ValueError, match=r"Persons.* as in the estimator"):
            search(unit="row", n_samples=N).fit(X, Y)
        with pytest.raises(ValueError, match=r"Persons.* as in the estimator"):
            search(unit="row", n_samples=N).plan()


@bundled("one", ["row", 1, Persons(7, rows_per_group=4), Persons(rows_per_group=2)])
def test_facts_about_persons_are_not_searched_for(one):
    with nothing_spent(), pytest.raises(ValueError, match="param_distributions"):
        search(distributions={"unit": [UNIT["unit"], one]}).fit(X, Y, GROUPS)


def test_bounds_on_persons_are_searched_for():
    units = [Persons(rows_per_group=4, clip=c, max_rows=k) for c in (1.0, 2.0) for k in (2, None)]
    fitted = search(distributions={"unit": units}).fit(X, Y, GROUPS)
    assert fitted.privacy_.valid
    assert fitted.best_estimator_.unit == replace(fitted.best_params_["unit"], n_groups=PERSONS)
