"""Additive models that find the edges of their bins: what they find, and what it costs."""

import math

import numpy as np
import pandas as pd
import pytest
from refusals import refused
from scipy.special import expit
from sklearn.base import clone

from skdp import (
    DPAdditiveClassifier,
    DPAdditivePoissonRegressor,
    DPAdditiveRegressor,
    Persons,
    PrivacyLedger,
)
from skdp.algorithms.private_edges import edges_of
from skdp.algorithms.quantiles import BinsConfig
from skdp.data import ChunkedRows
from skdp.preprocessing import AdditiveFeatures, DPBins
from skdp.privacy import epsilon_to_gdp, gdp_to_epsilon
from skdp.privacy.events import PosteriorTerm, gaussian_mu, terms_of
from skdp.privacy.posterior_samples import bounded_range_mu
from skdp.relations import RELATIONS, sensitivity_factor
from skdp.testing import fixed_streams

pytestmark = pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")
INF = float("inf")
N = 6000
DECLARED = {
    "bounds": {"income": (0, 1e7), "age": (0, 120)},
    "edges": "private",
    "categories": {"ward": ["a", "b"]},
    "n_samples": N,
}
CLASSES = {"classes": [0, 1]}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "income": np.where(rng.random(N) < 0.3, 0.0, rng.lognormal(10.0, 1.0, N)),
            "age": rng.uniform(18, 90, N),
            "ward": rng.choice(["a", "b"], N),
        }
    )
    effect = np.sin(X["age"] / 12) + 2 * (X["income"] > 0)
    return X, (rng.random(N) < expit(effect - 1)).astype(int)


@pytest.fixture(scope="module")
def fitted(table):
    return DPAdditiveClassifier(3.0, **DECLARED, **CLASSES).fit(*table)


def test_about_as_many_rows_are_in_each_bin(fitted, table):
    X, _ = table
    counts = np.histogram(X["age"], fitted.edges_["age"])[0]
    assert len(counts) == 32
    assert counts.max() < 3 * N / 32
    assert counts.min() > N / 32 / 3


def test_a_value_that_many_rows_share_has_a_bin_of_its_own(fitted, table):
    X, _ = table
    edges, column = fitted.edges_["income"], fitted._model.columns[0]
    assert (edges[0], edges[-1]) == (0.0, 1e7)
    assert 0.0 < edges[1] < 1e-9
    in_the_first = column.codes(X["income"].to_numpy()) == 0
    np.testing.assert_array_equal(in_the_first, X["income"] == 0)
    curve = fitted.curve_("income")
    assert curve.mean[0] < curve.mean[1:].min()


def test_what_is_shown_is_by_the_released_edges(fitted):
    for name, edges in fitted.edges_.items():
        np.testing.assert_array_equal(fitted.curve_(name).grid, edges)
    frame = fitted.to_frame()
    assert frame.loc[frame["feature"] == "age", "to"].tolist() == fitted.edges_["age"][1:].tolist()
    assert "ward" not in fitted.edges_


def test_declared_edges_are_an_attribute_too(table):
    model = DPAdditiveClassifier(
        bounds={"age": (0, 120)}, edges={"income": [0, 1, 1e7]}, n_bins=4,
        categories={"ward": ["a", "b"]}, n_samples=N, **CLASSES,
    ).fit(*table)  # fmt: skip
    assert {name: edges.tolist() for name, edges in model.edges_.items()} == {
        "age": [0, 30, 60, 90, 120],
        "income": [0, 1, 1e7],
    }


def test_one_column_alone_may_have_private_edges(table):
    settings = DECLARED | {"edges": {"income": "private"}} | CLASSES
    model = DPAdditiveClassifier(3.0, **settings).fit(*table)
    np.testing.assert_allclose(model.edges_["age"], np.linspace(0, 120, 33))
    assert model.edges_["income"][1] < 1e-9
    assert terms_of(model.privacy_.event)[-1].count == 5  # 32 bins of one column


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("share", [0.1, 0.3])
def test_the_cost_is_that_of_both_by_hand(relation, share):
    model = DPAdditiveClassifier(
        **DECLARED, **CLASSES, edges_share=share, neighboring_relation=relation
    )
    report = model.plan().privacy
    *sums, quantiles = terms_of(report.event)
    assert isinstance(quantiles, PosteriorTerm)
    fit = sensitivity_factor(relation) * math.sqrt(
        sum(term.count / term.noise_multiplier**2 for term in sums)
    )
    edges = math.sqrt(quantiles.count) * bounded_range_mu(quantiles.eta)
    assert edges**2 / (fit**2 + edges**2) == pytest.approx(share, rel=1e-9)
    by_hand = gdp_to_epsilon(math.hypot(fit, edges), 1e-5)
    assert report.epsilon == pytest.approx(by_hand, rel=1e-9)
    assert 1 - 1e-6 < report.epsilon <= 1.0
    # More than the fit alone is charged, which is what a plan that forgot the edges would say.
    assert gdp_to_epsilon(fit, 1e-5) < 1 - 0.4 * share


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_other_accountants_find_no_more_than_was_asked_for(accountant):
    settings = DECLARED | CLASSES | {"n_bins": 4}
    report = DPAdditiveClassifier(**settings, accountant=accountant).plan().privacy
    assert report.accountant == accountant
    assert 0.99 < report.epsilon <= 1.0


def test_noise_that_is_given_is_that_of_the_fit():
    settings = DECLARED | CLASSES | {"epsilon": None, "noise_multiplier": 30.0}
    with_edges = DPAdditiveClassifier(**settings).plan()
    without = DPAdditiveClassifier(**settings | {"edges": None}).plan()
    assert with_edges.noise_multiplier == 30.0
    mu = gaussian_mu(without.event)
    expected = gdp_to_epsilon(mu / math.sqrt(0.9), 1e-5)
    assert with_edges.epsilon == pytest.approx(expected, rel=1e-9)


def test_a_fit_is_planned_before_data_and_charged_once(table):
    model = DPAdditiveClassifier(**DECLARED, **CLASSES)
    with PrivacyLedger() as ledger:
        model.fit(*table)
    assert [entry.event for entry in ledger.entries] == [model.plan().event]
    assert "levels of quantiles; then" in model.privacy_.sampling


def test_fewer_rows_have_fewer_bins():
    model = DPAdditiveClassifier(**DECLARED, **CLASSES)
    levels = [
        clone(model).set_params(n_samples=n).plan().config.edges.n_releases
        for n in (30, 300, 3000, 30_000, 10**7)
    ]
    assert levels == sorted(levels)
    assert (levels[0], levels[-1]) == (2, 10)


@pytest.mark.parametrize(("epsilon", "alike"), [(3.0, "private"), (0.01, None)])
def test_by_default_edges_are_private_where_facts_tell_enough_of_them(table, epsilon, alike):
    declared = {**DECLARED, "n_samples": N} | CLASSES
    found = []
    for edges in ("auto", alike):
        model = DPAdditiveClassifier(epsilon, **(declared | {"edges": edges}))
        with fixed_streams():
            found.append(model.fit(*table))
    assert found[0].privacy_.event == found[1].privacy_.event
    np.testing.assert_array_equal(found[0].coef_, found[1].coef_)
    for name, edges in found[1].edges_.items():
        np.testing.assert_array_equal(found[0].edges_[name], edges)


def test_without_bounds_that_are_given_the_default_finds_no_edges():
    X = np.random.default_rng(0).uniform(-1, 1, (N, 2))
    model = DPAdditiveClassifier(3.0, n_samples=N, **CLASSES).fit(X, (X[:, 0] > 0).astype(int))
    np.testing.assert_allclose(model.edges_["x0"], np.linspace(-1, 1, 33))


def test_rows_in_chunks_are_told_of_edges_that_need_no_quantiles(table):
    model = DPAdditiveClassifier(3.0, **(DECLARED | {"edges": "auto"}), **CLASSES)
    chunks = ChunkedRows(lambda i: table, 1)
    with PrivacyLedger(10.0, 1e-4) as ledger, pytest.raises(ValueError, match="edges=None"):
        model.fit(chunks)
    assert not ledger.entries


def test_the_fit_is_that_of_bins_made_before_by_hand(table):
    """The same streams: `DPBins`, and then declared edges."""
    X, y = table[0][["age"]], table[1]
    both = DPAdditiveClassifier(
        None, noise_multiplier=20.0, bounds={"age": (0, 120)}, edges="private", n_bins=8,
        n_samples=N, **CLASSES,
    )  # fmt: skip
    eta = both.plan().config.edges.epsilon
    with fixed_streams():
        both.fit(X, y)
    bins = DPBins(0, 120, n_bins=8, epsilon=None, quantile_epsilon=eta)
    with fixed_streams():
        edges = bins.fit(X).bin_edges_[0]
    counts = [np.histogram(X["age"], e)[0] for e in (edges, both.edges_["age"])]
    assert np.abs(counts[0] - counts[1]).max() < 0.2 * N / 8  # by other streams
    declared = clone(both).set_params(bounds=None, edges={"age": both.edges_["age"]})
    with fixed_streams():
        declared.fit(X, y)
    np.testing.assert_array_equal(declared.coef_, both.coef_)
    np.testing.assert_array_equal(declared.covariance_, both.covariance_)
    assert declared.privacy_.epsilon < both.privacy_.epsilon


def test_without_privacy_edges_are_quantiles(table):
    X, y = table
    model = DPAdditiveClassifier(INF, **DECLARED | {"n_bins": 4}, **CLASSES).fit(X, y)
    quartiles = np.quantile(X["age"], [0.25, 0.5, 0.75])
    np.testing.assert_allclose(model.edges_["age"], [0, *quartiles, 120])
    assert model.privacy_.epsilon == INF


@pytest.mark.thorough
def test_numbers_counts_and_several_classes(table):
    X, _ = table
    sine = np.sin(X["age"].to_numpy() / 12)
    for model, y in (
        (DPAdditiveRegressor(3.0, **DECLARED, target_bounds=(-5, 5)), sine),
        (DPAdditivePoissonRegressor(3.0, **DECLARED, largest_count=15), np.exp(sine + 0.5)),
        (DPAdditiveClassifier(10.0, **DECLARED, classes=[0, 1, 2]), np.digitize(sine, [-0.5, 0.5])),
    ):
        assert model.fit(X, y).score(X, y) > 0.6
        assert model.privacy_.epsilon <= model.epsilon


@pytest.mark.thorough
def test_persons_share_the_weight_of_one(table):
    X, y = table
    declared = {name: value for name, value in DECLARED.items() if name != "n_samples"}
    model = DPAdditiveClassifier(
        3.0, **declared, **CLASSES, unit=Persons(N // 5, rows_per_group=5)
    ).fit(X, y, groups=np.arange(N) // 5)
    assert model.privacy_.unit == "group"
    assert 2.99 < model.privacy_.epsilon <= 3.0
    # One person's rows, however many, do not move edges far.
    X = X.copy()
    X.loc[: N // 2, "age"] = 119.0
    groups = np.where(np.arange(N) <= N // 2, 0, np.arange(N))
    one = Persons(N // 2, rows_per_group=2)
    alone = clone(model).set_params(edges={"age": "private"}, unit=one)
    assert np.median(alone.fit(X, y, groups=groups).edges_["age"]) < 60


def test_missing_numbers_count_nowhere(table):
    X, y = table
    X = X.assign(age=np.where(np.arange(N) % 2, np.nan, X["age"]))
    model = DPAdditiveClassifier(3.0, **DECLARED, **CLASSES).fit(X, y)
    counts = np.histogram(X["age"].dropna(), model.edges_["age"])[0]
    assert counts.max() < 4 * N / 2 / len(counts)
    model.set_params(bounds={"income": (0, 1), "age": (0, 1)})
    assert np.isfinite(model.predict_proba(X.assign(income=np.nan))).all()


@pytest.mark.parametrize("share", [0.0, 1e-3, 0.5, 1.0])
def test_edges_ascend_whatever_is_released(share):
    """Quantiles all of one value, at an end or between, and out of order."""
    config = BinsConfig(lower=(-5.0, 0.0), upper=(100.0, 1e9), shares=(0.25, 0.5, 0.75), unit=1e-6)
    low, high = np.array(config.lower), np.array(config.upper)
    at = low + share * (high - low)
    for found in (np.tile(at, (3, 1)), np.array([high, at, low]), np.array([at, high, high])):
        for edges, *ends in zip(edges_of(config, found), low, high, strict=True):
            assert [edges[0], edges[-1]] == ends
            assert 3 <= len(edges) <= 5
            assert (np.diff(edges) > 0).all()


def test_nearly_equal_quantiles_are_one_value():
    config = BinsConfig(lower=(0.0,), upper=(120.0,), shares=(0.25, 0.5, 0.75), unit=1e-6)
    (edges,) = edges_of(config, np.array([[40.0], [40.0 * (1 + 1e-9)], [70.0]]))
    assert len(edges) == 5
    assert edges[1] < 40 < edges[2] < 40.0001
    assert edges[3] == 70.0


@pytest.mark.parametrize("point", [0.0, 1e-3, 40.0, 120.0])
def test_edges_of_one_value_make_a_fit_of_few_bins(table, monkeypatch, point):
    def same(config, records, streams, progress):
        return np.full((len(config.shares), len(config.lower)), point)

    monkeypatch.setattr(BinsConfig, "run", same)
    model = DPAdditiveClassifier(100.0, **DECLARED, **CLASSES).fit(*table)
    assert 2 <= len(model.edges_["age"]) - 1 <= 3
    assert np.isfinite(model.predict_proba(table[0])).all()
    assert np.isfinite(model.curve_("age").band_high).all()
    assert model._model.size < model.plan().config.fit.model.size
    assert model.data_norm_ == model._model.norm


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"edges": "quantile"}, "edges.*'private'"),
        ({"edges": {"income": "quantile"}}, "edges"),
        ({"edges": {"height": "private"}}, "edges.*bounds"),
        ({"edges": ["private"]}, "edges.*bounds"),
        ({"bounds": None}, "edges.*bounds"),
        ({"bounds": {"income": (0, 1e200), "age": (0, 120)}}, "bounds"),
        ({"bounds": {"income": (1e9, 1e9 + 1e-6), "age": (0, 120)}, "n_bins": 2}, "bounds"),
        ({"edges_share": 0.0}, "edges_share"),
        ({"edges_share": 1.0}, "edges_share"),
        ({"edges_share": "auto"}, "edges_share"),
        ({"edges_share": 1e-18}, "edges_share"),
    ],
)
def test_bad_declarations_are_named_before_any_charge(table, changes, match):
    with refused(match):
        DPAdditiveClassifier(**DECLARED | CLASSES | changes).fit(*table)


def test_features_that_read_no_rows_have_no_private_edges(table):
    with pytest.raises(ValueError, match="edges"):
        AdditiveFeatures(bounds=[(0, 1)], edges="private").fit(np.zeros((5, 1)))


def test_numbers_without_bounds_are_between_minus_one_and_one():
    rng = np.random.default_rng(0)
    X = 2 * rng.beta(1, 6, (N, 2)) - 1
    model = DPAdditiveClassifier(3.0, edges="private", n_samples=N, **CLASSES)
    model.fit(X, (X[:, 0] > -0.8).astype(int))
    assert list(model.edges_) == ["x0", "x1"]
    assert np.median(model.edges_["x0"]) < -0.5


@pytest.mark.thorough
def test_bands_hold_where_nearly_all_rows_are_near_an_end():
    """Bins of equal width hold next to no rows in the upper half, and a classifier knows it."""
    rng = np.random.default_rng(0)
    n, truths = 50_000, (lambda x: 1.5 * x, lambda x: np.sin(4 * x))
    X = 2 * rng.beta(1, 6, (n, 2)) - 1
    y = (rng.random(n) < expit(sum(f(x) for f, x in zip(truths, X.T, strict=True)))).astype(int)
    held = {}
    for edges in ("private", None):
        model = DPAdditiveClassifier(3.0, edges=edges, n_samples=n, **CLASSES).fit(X, y)
        hits = []
        for j, f in enumerate(truths):
            curve, column = model.curve_(j), model._model.columns[j]
            x = np.linspace(-1, 1, 10**5)
            weights = (1 - (x + 1) / 2) ** 5  # the density
            codes = column.codes(x)
            truth = np.bincount(codes, weights * f(x)) / np.bincount(codes, weights)
            truth -= truth.mean()
            hits += list((curve.low <= truth) & (truth <= curve.high))
        held[edges] = np.mean(hits)
    assert min(held.values()) > 0.8


def test_epsilon_is_that_of_the_budget_by_hand():
    # 0.9 of the squared budget are the fit's.
    plan = DPAdditiveClassifier(2.0, **DECLARED, **CLASSES).plan()
    *sums, _ = terms_of(plan.event)
    square = sum(term.count / term.noise_multiplier**2 for term in sums)
    assert math.sqrt(square / 0.9) == pytest.approx(epsilon_to_gdp(2.0, 1e-5), rel=1e-6)
