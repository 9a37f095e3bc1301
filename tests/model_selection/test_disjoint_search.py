"""`DPDisjointSearch`: what it costs, that parts are disjoint, who wins, refusals."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from scipy.stats import loguniform
from sklearn.pipeline import make_pipeline

from skdp import (
    BudgetExceededError,
    DisjointSplit,
    DPDisjointSearch,
    DPRandomizedSearch,
    DPSGDClassifier,
    DPVariationalLinearRegression,
    DPVariationalLogisticRegression,
    Persons,
    PrivacyLedger,
    privacy_of,
    split_budget,
)
from skdp.engine.release_hook import record
from skdp.preprocessing import DPStandardScaler
from skdp.privacy.events import terms_of
from skdp.privacy.parts import PartDpEvent, paid_together

pytestmark = pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")

N, DELTA = 1500, 1e-5
rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (N, 3))
y = (X[:, 0] > 0).astype(int)
GRID = {"prior_scale": [1e-3, 3.0], "max_iter": [3, 5]}
STEP = "dpvariationallogisticregression"


def model(**parameters):
    return DPVariationalLogisticRegression(
        **({"classes": [0, 1], "n_samples": N, "max_iter": 5} | parameters)
    )


def network(**parameters):
    return DPSGDClassifier(
        hidden_layer_sizes=(), max_iter=20, classes=[0, 1], n_samples=N, **parameters
    )


def search(estimator=None, grid=GRID, **parameters):
    estimator = model() if estimator is None else estimator
    return DPDisjointSearch(estimator, grid, **({"tuning_share": 0.3} | parameters))


class Fits(DPVariationalLogisticRegression):
    """Keeps what it was fitted on."""

    seen: list = []  # noqa: RUF012

    def fit(self, X, y=None, groups=None):
        self.seen.append(np.asarray(X)[:, 0])
        return super().fit(X, y, groups)


# --- what it costs --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("estimator", "grid", "parameters"),
    [
        (model, {"prior_scale": [0.1, 1.0, 3.0]}, {}),
        (model, {"prior_scale": loguniform(0.1, 10)}, {"n_iter": 3}),
        (lambda: model(inference="dpvi"), {"learning_rate": [0.1, 0.3]}, {}),
        (network, {"learning_rate": [0.01, 0.3]}, {}),
        (
            lambda: make_pipeline(DPStandardScaler(-1, 1), model()),
            {f"{STEP}__prior_scale": [1.0, 3.0]},
            {},
        ),
    ],
)
def test_ledger_statement_and_plan_are_one_epsilon(estimator, grid, parameters) -> None:
    whole = search(estimator(), grid, epsilon=2.0, **parameters)
    planned = whole.plan(n_features=3)
    with PrivacyLedger() as ledger, record() as tape:
        whole.fit(X, y)
    assert [entry.label for entry in ledger.entries] == ["DPDisjointSearch"]
    assert ledger.total(DELTA) == whole.privacy_.epsilon == privacy_of(whole).epsilon
    assert terms_of(planned.event) == terms_of(whole.privacy_.event)
    assert planned.epsilon == pytest.approx(whole.privacy_.epsilon) == pytest.approx(2.0, rel=2e-3)
    assert whole.privacy_.epsilon <= 2.0
    # All that was released is in the event, and each part costs about all of the budget.
    assert len(tape) == sum(term.count for term in terms_of(whole.privacy_.event))
    for paid in paid_together(whole.privacy_.event):
        alone = type(whole.privacy_).of(paid, delta=DELTA, sampling="")
        assert 1.9 < alone.epsilon <= 2.0
    assert privacy_of(whole.best_estimator_).epsilon == whole.privacy_.epsilon
    assert whole.privacy_.valid
    assert "accounted: the best of" in whole.privacy_.tuning


def test_the_final_fit_has_the_whole_budget_and_the_others_share_it() -> None:
    plan = search(epsilon=1.0).plan(n_features=3).config
    of_all = split_budget(model(), 1.0, DELTA)
    assert all(one.estimator.epsilon == pytest.approx(of_all.epsilon) for one in plan.final)
    assert all(one.estimator.n_samples == 900 for one in plan.final)
    assert all(one.estimator.n_samples == 450 for one in plan.tuned)
    assert all(one.estimator.epsilon == pytest.approx(plan.tuning_epsilon) for one in plan.tuned)
    assert 0.45 < plan.tuning_epsilon < 0.55  # of four: about a half


@pytest.mark.parametrize("relation", ["zero_out", "replace_one", "add_or_remove_one"])
def test_each_row_is_read_once(relation: str) -> None:
    Fits.seen.clear()
    estimator = Fits(classes=[0, 1], n_samples=N, neighboring_relation=relation)
    scored = []

    def scoring(estimator, X, y):
        scored.append(np.asarray(X)[:, 0])
        return (estimator.predict(X) == y).astype(float)

    whole = search(
        estimator, {"prior_scale": [1.0, 3.0]}, scoring=scoring, neighboring_relation=relation
    )
    whole.fit(X, y)
    one, other, final = (set(rows) for rows in Fits.seen)
    assert one == other
    assert set(scored[0]) == set(scored[1])
    parts = [one, set(scored[0]), final]
    assert sum(map(len, parts)) == len(set().union(*parts)) == N
    expected = np.array([0.3, 0.1, 0.6]) * N
    slack = 0 if relation != "add_or_remove_one" else 100
    assert all(abs(len(p) - e) <= slack for p, e in zip(parts, expected, strict=True))


def test_persons_are_on_one_side() -> None:
    Fits.seen.clear()
    groups = np.arange(N) // 5
    estimator = Fits(classes=[0, 1], unit=Persons(300, rows_per_group=5), max_iter=5)
    whole = search(estimator, {"prior_scale": [1.0, 3.0]}, unit=Persons(300))
    with PrivacyLedger(neighboring_relation="zero_out_group") as ledger:
        whole.fit(X, y, groups=groups)
    assert ledger.total(DELTA) == whole.privacy_.epsilon <= 1.0
    person = dict(zip(X[:, 0], groups, strict=True))
    tune, _, final = ({person[x] for x in rows} for rows in Fits.seen)
    assert not tune & final
    assert whole.best_estimator_.unit.n_groups == 180


@pytest.mark.parametrize("container", [np.asarray, pd.DataFrame])
def test_a_part_of_a_split_stays_a_part(container) -> None:
    split = DisjointSplit(N, test_size=0.5)
    with PrivacyLedger() as ledger:
        first = search(model(n_samples=750)).fit(*split.take("train", container(X), y))
        second = model(n_samples=750).fit(*split.take("test", container(X), y))
    assert isinstance(first.privacy_.event, PartDpEvent)
    inner = DisjointSplit(750, test_size=0.2)
    third = model(n_samples=600)
    third.fit(*inner.take("train", *split.take("train", container(X), pd.Series(y))))
    fourth = model(n_samples=150)
    fourth.fit(*inner.take("test", *split.take("train", container(X), pd.Series(y))))
    assert privacy_of(second, third, fourth).epsilon <= 1.0 + 1e-9
    assert ledger.total(DELTA) == privacy_of(first, second).epsilon <= 1.0 + 1e-9


# --- who wins -------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_the_better_candidate_wins_as_often_as_the_law_says() -> None:
    """Of two candidates with fixed scores, which noise alone decides."""

    def scoring(estimator, X, y):
        return np.full(len(X), 0.5 + 0.02 * (estimator.prior_scale > 1))

    grid = {"prior_scale": [1.0, 2.0]}
    wins = [
        search(model(max_iter=2), grid, scoring=scoring).fit(X, y).best_params_["prior_scale"] == 2
        for _ in range(150)
    ]
    gap = 0.02 * 150  # of the sums, at ε = 1
    right = 1 - 0.5 * math.exp(-gap)
    assert abs(np.mean(wins) - right) < 4 * (right * (1 - right) / 150) ** 0.5 + 0.01


def test_what_is_worth_finding_is_found() -> None:
    found = search(epsilon=4.0).fit(X, y)
    assert found.best_params_["prior_scale"] == 3.0
    assert found.candidates_ == [
        {"max_iter": i, "prior_scale": s} for i in (3, 5) for s in (1e-3, 3.0)
    ]
    assert found.score(X, y) > 0.85
    assert found.predict(X[:4]).shape == (4,)
    assert found.predict_proba(X[:4]).shape == (4, 2)
    assert list(found.classes_) == [0, 1]
    assert found.n_features_in_ == 3
    for name in ("cv_results_", "best_score_", "best_index_"):
        with pytest.raises(AttributeError, match="on purpose"):
            getattr(found, name)


def test_regressions_and_no_privacy() -> None:
    line = DPVariationalLinearRegression(target_bounds=(-2, 2), n_samples=N, max_iter=5)
    found = search(line, {"prior_scale": [1e-4, 1.0]}, epsilon=3.0).fit(X, 2 * X[:, 0])
    assert found.best_params_ == {"prior_scale": 1.0}
    exact = search(epsilon=math.inf).fit(X, y)
    assert exact.best_params_["prior_scale"] == 3.0
    assert not exact.privacy_.valid
    assert exact.tuning_epsilon_ == math.inf


def test_a_seed_repeats_the_search() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one, other = (search(random_state=3).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(one.best_estimator_.coef_, other.best_estimator_.coef_)
    assert not one.privacy_.valid


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"tuning_share": 0.0}, "tuning_share"),
        ({"tuning_share": 1.0}, "tuning_share"),
        ({"scoring_share": 0.9}, "scoring_share"),
        ({"n_iter": 0}, "n_iter=0"),
        ({"grid": {"prior_scale": loguniform(0.1, 1)}}, "n_iter=None"),
        ({"grid": {"epsilon": [1.0, 2.0]}}, "epsilon"),
        ({"grid": {"other": [1.0]}}, "other"),
        ({"estimator": model(random_state=0)}, "random_state=0"),
        ({"estimator": model(neighboring_relation="replace_one")}, "neighboring_relation"),
        (
            {"estimator": network(sampling_rate=0.2), "grid": {"max_iter": [10, 20]}},
            "max_iter change what is",
        ),
        ({"scoring": "roc_auc"}, "scoring='roc_auc'"),
        ({"epsilon": 0.0}, "epsilon=0"),
        ({"n_samples": 100}, "n_samples=100"),
        ({"random_state": -1}, "random_state=-1"),
    ],
)
def test_refusals_cost_nothing(wrong, match: str) -> None:
    with PrivacyLedger() as ledger, pytest.raises(ValueError, match=match):
        search(**wrong).fit(X, y)
    assert not ledger.entries


def test_the_search_is_refused_as_a_whole() -> None:
    with PrivacyLedger(0.9, DELTA) as ledger, pytest.raises(BudgetExceededError):
        search(epsilon=1.0).fit(X, y)
    assert not ledger.entries
    with pytest.raises(ValueError, match="n_samples"):
        search(model(n_samples=None)).fit(X[:2], y[:2])


# --- refusals on public facts, before the charge --------------------------------------------------


@pytest.mark.parametrize("kind", [DPDisjointSearch, DPRandomizedSearch])
@pytest.mark.parametrize(
    ("estimator", "words"),
    [
        (
            lambda: network().set_params(
                module=torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Softmax(1)),
                sampling_rate=1.0,
            ),
            "last Softmax",
        ),
        (lambda: model(secure=True), "dense rows"),
    ],
    ids=["a module", "sparse rows"],
)
def test_what_no_candidate_takes_is_refused_before_the_charge(kind, estimator, words):
    rows = sparse.csr_array(X) if words == "dense rows" else X
    with PrivacyLedger() as ledger, pytest.raises(ValueError, match=words):
        kind(estimator(), {"clip_norm": [0.5, 1.0]}, epsilon=3.0).fit(rows, y)
    assert ledger.entries == ()


def test_secure_candidates_are_searched():
    found = search(model(secure=True), {"prior_scale": [0.3, 3.0]}).fit(X, y)
    assert found.best_params_["prior_scale"] in (0.3, 3.0)
    assert found.privacy_.epsilon == pytest.approx(1.0, rel=2e-3)
