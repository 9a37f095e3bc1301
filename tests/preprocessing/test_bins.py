import math
import pickle
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from skdp import DPVariationalLogisticRegression, Persons, PrivacyLedger, privacy_of, split_budget
from skdp.algorithms.quantiles import ends_of_cells, halvings
from skdp.engine import release_hook
from skdp.preprocessing import DPBins
from skdp.privacy.events import PosteriorTerm, terms_of
from skdp.relations import RELATIONS

INF = float("inf")
RNG = np.random.default_rng(0)
X = RNG.lognormal(3.0, 1.0, (20_000, 2))


@pytest.mark.parametrize("n_bins", [2, 3, 5, 8, 16, 1024])
def test_halving_finds_every_edge_once_in_so_many_levels(n_bins):
    levels = halvings(n_bins)
    middles = sorted(m for level in levels for _, m, _ in level)
    assert middles == list(range(1, n_bins))
    assert len(levels) == math.ceil(math.log2(n_bins))
    known = {0, n_bins}
    for level in levels:  # ends are known before the middle is asked for
        assert all({a, b} <= known and a < m < b for a, m, b in level)
        known |= {m for _, m, _ in level}


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (1.0, 0.0)])
def test_a_level_of_a_feature_is_one_release(epsilon, delta, relation):
    bins = DPBins(0, n_bins=16, epsilon=epsilon, delta=delta, neighboring_relation=relation)
    with PrivacyLedger(neighboring_relation=relation) as ledger, release_hook.record() as tape:
        report = bins.fit(X[:50]).privacy_
    assert 0.998 * epsilon <= report.epsilon <= epsilon
    assert terms_of(report.event) == (PosteriorTerm(bins.quantile_epsilon_, 1, 8),)
    assert [entry.event for entry in ledger.entries] == [report.event]
    assert [release.call.shape for release in tape] == [(1,), (2,), (4,), (8,)] * 2
    found = [release.call.sensitivity / release.call.scale for release in tape]
    np.testing.assert_allclose(found, bins.quantile_epsilon_, rtol=1e-14)


@pytest.mark.parametrize("relation", RELATIONS)
def test_ranks_are_off_by_no_more_than_the_levels_above_can(relation):
    n, n_bins = len(X), 8
    bins = DPBins(0, 1e6, n_bins=n_bins, epsilon=1.0, neighboring_relation=relation).fit(X)
    # Of each cell: P(d >= k) <= length/stretch e^(-rate k), the stretch of d <= a; a = n/(4 B).
    t = np.sort(np.arcsinh(X / 1e-6), axis=0)
    rate, length = bins.quantile_epsilon_ / 2, np.arcsinh(1e6 / 1e-6)
    within = n // (4 * n_bins)
    for j in range(2):
        stretch = min((t[within:, j] - t[:-within, j])[within:-within])
        most = within + math.log(length / stretch * 1e8) / rate
        counts = np.histogram(X[:, j], bins.bin_edges_[j])[0]
        assert counts.sum() == n
        ranks = np.cumsum(counts)[:-1] - n * np.arange(1, n_bins) / n_bins
        # A middle errs by no more than the ends of its cell do, and by its own miss.
        assert np.abs(ranks).max() <= 3 * most
    assert 3 * most < 0.25 * n  # the bound says something


def test_without_privacy_edges_are_quantiles():
    bins = DPBins(0, 1e6, n_bins=5, epsilon=INF).fit(X)
    np.testing.assert_allclose(bins.bin_edges_[:, 1:-1].T, np.quantile(X, [0.2, 0.4, 0.6, 0.8], 0))
    assert bins.bin_edges_[:, [0, -1]].tolist() == [[0.0, 1e6]] * 2


@pytest.mark.parametrize("encode", ["onehot", "ordinal"])
def test_encodings_agree_and_missing_values_have_a_bin(encode):
    bins = DPBins(0, 1e6, n_bins=4, epsilon=INF, encode=encode).fit(X)
    rows = np.array([[-5.0, 1e9], [np.nan, 20.0]])
    out = np.asarray(bins.transform(rows))
    codes = np.array([[0, 3], [4, np.searchsorted(bins.bin_edges_[1], 20.0) - 1]])
    if encode == "onehot":
        assert (out.sum(axis=1) == 2).all()
        out = out.reshape(2, 2, 5).argmax(axis=2)
    assert out.tolist() == codes.tolist()
    assert np.linalg.norm(bins.transform(rows), axis=1).max() <= bins.output_norm_


def test_equal_edges_leave_empty_bins_and_no_error():
    zeros = np.zeros((200, 1))
    bins = DPBins(0, 10, n_bins=8, epsilon=50.0).fit(zeros)
    assert (np.diff(bins.bin_edges_) >= 0).all()
    assert np.asarray(bins.transform(zeros)).sum() == 200


@pytest.mark.parametrize("output", [-1e12, 0.0, 2.0**30, 1e12])
def test_no_release_makes_a_fit_fail(output):
    with release_hook.replay([np.full(n, output) for n in (1, 2, 4)] * 2):
        bins = DPBins(-1, 1, n_bins=8).fit(X)
    assert (np.diff(bins.bin_edges_) >= 0).all()
    assert np.isfinite(bins.transform(X)).all()


def test_names_and_frames():
    frame = pd.DataFrame(X[:50], columns=["age", "pay"])
    bins = DPBins(0, n_bins=2).set_output(transform="pandas").fit(frame)
    out = bins.transform(frame)
    assert list(out) == [
        "age: bin 1", "age: bin 2", "age: missing", "pay: bin 1", "pay: bin 2", "pay: missing",
    ]  # fmt: skip
    ordinal = DPBins(0, n_bins=2, encode="ordinal").fit(frame)
    assert ordinal.get_feature_names_out().tolist() == ["age", "pay"]


def test_a_pipeline_shares_a_budget_and_knows_the_norm():
    y = (X[:, 0] > np.median(X[:, 0])).astype(int)
    classifier = DPVariationalLogisticRegression(classes=[0, 1], n_samples=len(X))
    pipeline = make_pipeline(DPBins(0, 1e6, n_bins=8), classifier)
    pipeline = split_budget(pipeline, 1.0, 1e-5, n_features=2)
    with PrivacyLedger() as ledger:
        pipeline.fit(X, y)
    assert 0.998 <= privacy_of(pipeline).epsilon <= 1.0
    assert ledger.total(1e-5) == pytest.approx(privacy_of(pipeline).epsilon)
    assert pipeline[-1].data_norm_ == math.sqrt(2)
    assert pipeline.score(X, y) > 0.9


def test_persons_share_the_weight_of_one():
    groups = np.arange(2000) // 4
    alike = np.repeat(X[:500], 4, axis=0)
    alike[::4] = np.nan
    one = DPBins(0, 1e6, n_bins=4, unit=Persons(), epsilon=300.0).fit(alike, groups=groups)
    other = DPBins(0, 1e6, n_bins=4, epsilon=300.0).fit(X[:500])
    np.testing.assert_allclose(one.bin_edges_, other.bin_edges_, rtol=0.1)
    (term,) = terms_of(one.privacy_.event)
    assert term.count == 4
    assert one.privacy_.unit == "group"


@pytest.mark.parametrize(
    ("name", "values"),
    {
        "n_bins": (1, 0, 1025, 2.5, "8", None),
        "encode": ("one-hot", None, 1),
        "resolution": (0, -1, None),
        "epsilon": (0, 1e-9),
    }.items(),
)
def test_bad_parameters_are_named_and_nothing_is_spent(name, values):
    for value in values:
        with PrivacyLedger() as ledger, pytest.raises(ValueError, match=f"Expected {name}="):
            DPBins(**{name: value}).fit(X[:50])
        assert ledger.entries == ()


def test_a_fit_is_not_changed_by_its_parameters_afterwards():
    bins = DPBins(0, n_bins=4).fit(X)
    before = np.asarray(bins.transform(X[:9]))
    bins.set_params(encode="ordinal", n_bins=7)
    np.testing.assert_array_equal(bins.transform(X[:9]), before)
    again = pickle.loads(pickle.dumps(clone(bins).set_params(encode="onehot").fit(X)))
    assert again.bin_edges_.shape == (2, 8)


@given(st.lists(st.integers(0, 12), min_size=2, max_size=9))
def test_no_value_is_in_two_cells(steps):
    """Edges on and between points of the grid, equal ones and near ones among them."""
    x = np.cumsum(steps) * 0.5
    ends = ends_of_cells(dict(enumerate(x.tolist())), 1.0)
    assert list(ends) == list(range(len(x) - 1))
    cells = [(low, high) for low, high in ends.values() if low < high]
    for (_, high), (low, _) in pairwise(cells):
        assert high <= low
    for k, (low, high) in ends.items():
        assert x[k] <= low <= high <= x[-1]
        assert high <= x[k + 1] + 2


def test_a_value_that_is_found_twice_is_in_no_cell():
    alone = ends_of_cells({0: 0.0, 4: 50.0, 8: 100.0}, 1.0)
    assert alone == {0: (0.0, 52.0), 4: (52.0, 100.0)}
    twice = ends_of_cells({0: 0.0, 2: 50.5, 4: 50.0 + 1, 8: 100.0}, 1.0)
    assert twice == {0: (0.0, 48.5), 2: (51.0, 51.0), 4: (53.0, 100.0)}
    at_an_end = ends_of_cells({0: 0.0, 4: 0.0, 8: 100.0}, 1.0)
    assert at_an_end == {0: (0.0, 0.0), 4: (2.0, 100.0)}


@pytest.mark.parametrize("where", [0, 1, 2])
def test_the_rows_beside_a_value_that_many_share_are_told_apart(where):
    """Half of all rows at the lower bound, in the middle of the others, or above nearly all."""
    rng = np.random.default_rng(0)
    value = (0.0, 50.0, 90.0)[where]
    x = np.where(rng.random(20_000) < 0.5, value, rng.uniform(0, 100, 20_000))[:, None]
    edges = DPBins(0, 100, n_bins=16, epsilon=1.0).fit(x).bin_edges_[0]
    others = x[x != value]
    inner = edges[1:-1][np.abs(edges[1:-1] - value) > 1e-3]
    assert len(inner) >= 6
    largest = np.histogram(others, np.hstack([0, inner, 100]))[0].max()
    assert largest < 0.3 * len(others)
