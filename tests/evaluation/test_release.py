"""The release behind a report: what a record moves, what it costs, when, and on which rows."""

import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from skdp import (
    BoundedScaler,
    BudgetExceededError,
    DisjointSplit,
    DPVariationalLinearRegression,
    DPVariationalLogisticRegression,
    FitWarning,
    Persons,
    PrivacyLedger,
    PrivacyWarning,
    privacy_of,
)
from skdp.engine import release_hook
from skdp.evaluation import DPEvaluator, private_regression_report, private_report
from skdp.mechanisms import GeometricMechanism
from skdp.privacy.events import PureDpEvent
from skdp.relations import RELATIONS

SECRET = 424242.4242


def of_two(y, p, **settings):
    scores = np.array([0.1, 0.4, 0.6, 0.95])[p]
    return private_report(y % 2, scores, classes=[0, 1], **settings)


def of_three(y, p, **settings):
    scores = np.array([[0.8, 0.15, 0.05], [0.2, 0.5, 0.3], [0.3, 0.3, 0.4], [0, 0, 1]])[p]
    return private_report(y % 3, scores, classes=[0, 1, 2], **settings)


def of_numbers(y, p, **settings):
    bounds = {"target_bounds": (0.0, 4.0), "residual_bound": 2.0}
    return private_regression_report(y + 0.5, p + 0.0, **bounds, **settings)


def of_covered(y, p, **settings):
    return of_numbers(y, p, y_lower=p - 1.0, y_upper=p + 1.0, **settings)


def of_subgroups(y, p, **settings):
    return of_two(y, p, subgroup=(y + p) % 3, subgroups=[0, 1, 2, 3], **settings)


REPORTS = [of_two, of_three, of_numbers, of_covered, of_subgroups]


@pytest.fixture
def exact(monkeypatch):
    """Exact values of each release, and the mechanism."""
    seen, release = [], GeometricMechanism.release

    def spy(self, values, *arguments, **settings):
        seen.append((self, np.array(values)))
        return release(self, values, *arguments, **settings)

    monkeypatch.setattr(GeometricMechanism, "release", spy)
    return seen


RECORDS = list(itertools.product(range(4), range(4)))
SIX = np.array([0, 3, 1, 2, 2, 0]), np.array([0, 3, 2, 2, 1, 3])


def table(exact, make, y, p, **settings):
    make(np.array(y), np.array(p), n_samples=6, n_bins=4, **settings)
    return exact[-1]


@pytest.mark.parametrize("make", REPORTS)
@pytest.mark.parametrize("relation", RELATIONS)
def test_no_record_moves_the_table_by_more_than_the_sensitivity(exact, make, relation):
    settings = {"neighboring_relation": relation}
    mechanism, whole = table(exact, make, *SIX, **settings)
    moved = []
    for y, p in RECORDS:
        if relation == "replace_one":
            other = np.r_[SIX[0][:5], y], np.r_[SIX[1][:5], p]
        else:  # one more; a null record is in no cell, as one that is not there
            other = np.r_[SIX[0], y], np.r_[SIX[1], p]
        moved.append(np.abs(table(exact, make, *other, **settings)[1] - whole).sum())
    assert max(moved) == mechanism.sensitivity
    assert mechanism.sensitivity == (2 if relation == "replace_one" else 1) * mechanism.record_norm
    assert whole.sum() == 6 * mechanism.record_norm


@pytest.mark.quick(8)
@pytest.mark.parametrize("make", REPORTS)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("most", [1, 2])
def test_no_person_moves_the_table_by_more_than_the_sensitivity(
    exact, make, relation, most, monkeypatch
):
    monkeypatch.setattr("skdp.evaluation._release.initial_seed", lambda _: 7)  # one key for all
    settings = {"neighboring_relation": relation, "unit": Persons(max_rows=most)}
    people, tables = np.array(["a", "b", "b", "c", "a", "a"]), []
    rest = people != "c"
    for rows in [[], *([record] * 3 for record in RECORDS)]:  # c has no rows, or three
        y, p = np.array(rows, dtype=int).reshape(-1, 2).T
        groups = np.r_[people[rest], ["c" if relation != "replace_one" else "d"] * len(rows)]
        y, p = np.r_[SIX[0][rest], y], np.r_[SIX[1][rest], p]
        tables.append(table(exact, make, y, p, groups=groups, **settings))
    mechanism, n_tables = tables[0][0], 2 if make in REPORTS[1:4] else 1
    counts = [values for _, values in tables]
    assert mechanism.record_norm == most * n_tables
    assert counts[0].sum() == 2 * most * n_tables
    among = counts if relation == "replace_one" else counts[:1]
    moved = [np.abs(one - other).sum() for one in among for other in counts]
    assert max(moved) == mechanism.sensitivity


@given(st.integers(0, 15), st.integers(0, 15), st.booleans())
def test_the_scale_of_the_noise_is_the_sensitivity_over_epsilon(k, j, several):
    y, p = np.array([RECORDS[k], RECORDS[j]] * 3).T
    with release_hook.record() as tape:
        (of_three if several else of_two)(y, p, epsilon=0.5, n_samples=6)
    (release,) = tape
    assert (release.call.kind, release.call.scale) == ("geometric", 4.0 if several else 2.0)


@pytest.mark.quick(4)
@pytest.mark.parametrize("make", REPORTS)
def test_with_the_release_fixed_reports_do_not_depend_on_the_rows(make):
    settings = {"n_samples": 6, "neighboring_relation": "add_or_remove_one"}
    with release_hook.record() as tape:
        whole = make(*SIX, **settings)
    outputs = [release.output for release in tape]
    for y, p in RECORDS:
        with release_hook.replay(outputs):
            other = make(np.r_[SIX[0], y], np.r_[SIX[1], p], **settings)
        assert repr(other) == repr(whole)
        assert other.to_dict() == whole.to_dict()


@pytest.mark.parametrize("make", REPORTS)
@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_a_report_costs_its_epsilon_once_and_at_delta_0(make, epsilon):
    with PrivacyLedger() as ledger:
        report = make(*SIX, epsilon=epsilon, n_samples=6)
        report.estimates()
        repr(report)
    (entry,) = ledger.entries
    assert entry.event == PureDpEvent(epsilon)
    assert report.privacy_.event == entry.event
    assert report.privacy_.epsilon == pytest.approx(epsilon, rel=1e-12)
    assert (report.privacy_.delta, report.privacy_.valid) == (0.0, True)
    assert report.privacy_.inferred_public_facts == ()
    assert make(*SIX, epsilon=epsilon, delta=1e-5, n_samples=6).privacy_.delta == 1e-5


def test_what_nobody_declared_is_named():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        report = private_report([0, 1, 1, 0], [0.1, 0.7, 0.8, 0.4])
    assert set(report.privacy_.inferred_public_facts) == {"classes", "n_samples"}


@pytest.mark.parametrize("make", REPORTS)
def test_a_refused_report_has_released_nothing(make, exact):
    with PrivacyLedger(epsilon=0.5, delta=1e-5) as ledger, pytest.raises(BudgetExceededError):
        make(*SIX, epsilon=1.0, n_samples=6)
    assert not ledger.entries
    assert not exact


GOOD = {"classes": [0, 1], "n_samples": 4}
Y, P = [0, 1, 1, 0], [0.1, 0.7, 0.8, 0.4]
BAD = {
    "undeclared label": ([0, 1, SECRET, 0], P, GOOD),
    "text among numbers": ([0, 1, "s" + str(SECRET), 0], P, GOOD),
    "missing label": ([0, 1, None, 0], P, GOOD),
    "labels of another length": ([0, 1], P, GOOD),
    "score above 1": (Y, [0.1, SECRET, 0.8, 0.4], GOOD),
    "negative score": (Y, [0.1, -SECRET, 0.8, 0.4], GOOD),
    "missing score": (Y, [0.1, np.nan, 0.8, 0.4], GOOD),
    "rows that do not sum to 1": (Y, [[0.3, 0.3]] * 4, GOOD),
    "columns that are no classes": (Y, [[0.3, 0.3, 0.4]] * 4, GOOD),
    "text for scores": (Y, ["a", str(SECRET), "b", "c"], GOOD),
    "one class": (Y, P, GOOD | {"classes": [1]}),
    "epsilon 0": (Y, P, GOOD | {"epsilon": 0.0}),
    "infinite epsilon": (Y, P, GOOD | {"epsilon": float("inf")}),
    "delta 1": (Y, P, GOOD | {"delta": 1.0}),
    "unknown relation": (Y, P, GOOD | {"neighboring_relation": "swap"}),
    "unknown unit": (Y, P, GOOD | {"unit": "person"}),
    "groups of rows": (Y, P, GOOD | {"groups": [1, 2, 3, 4]}),
    "no groups": (Y, P, GOOD | {"unit": Persons()}),
    "missing group": (Y, P, GOOD | {"unit": Persons(), "groups": ["a", None, "b", "c"]}),
    "a bound on rows of nobody": (Y, P, GOOD | {"unit": Persons(rows_per_group=2)}),
    "private n": (Y, P, {"classes": [0, 1], "neighboring_relation": "add_or_remove_one"}),
    "another n": (Y, P, GOOD | {"n_samples": 4000}),
    "odd bins": (Y, P, GOOD | {"n_bins": 5}),
    "many bins": (Y, P, GOOD | {"n_bins": 5000}),
    "level 1": (Y, P, GOOD | {"level": 1.0}),
    "subgroup not declared": (Y, P, GOOD | {"subgroup": [1, 1, 2, 2]}),
    "undeclared subgroup": (Y, P, GOOD | {"subgroup": [1, 1, 2, SECRET], "subgroups": [1, 2]}),
    "subgroups without labels": (Y, P, GOOD | {"subgroups": [1, 2]}),
    "one subgroup": (Y, P, GOOD | {"subgroup": [1, 1, 1, 1], "subgroups": [1]}),
    "no seed": (Y, P, GOOD | {"random_state": "x"}),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_before_the_charge_and_quotes_no_data(case):
    y, p, settings = BAD[case]
    recorded = release_hook.record()
    refused = pytest.raises(ValueError, match=r"Expected|needs")
    with PrivacyLedger() as ledger, recorded as tape, refused as raised:
        private_report(y, p, **settings)
    assert not ledger.entries
    assert not tape
    assert "424242" not in str(raised.value)


BOUNDS = {"target_bounds": (0, 1), "residual_bound": 1.0, "n_samples": 4}


@pytest.mark.parametrize(
    ("y", "predicted", "settings"),
    [
        ([0, 1, np.inf, 0], P, BOUNDS),
        (Y, [0.1, np.nan, 0, 0], BOUNDS),
        (Y, P[:3], BOUNDS),
        (Y, P, BOUNDS | {"target_bounds": (1, 0)}),
        (Y, P, BOUNDS | {"target_bounds": None}),
        (Y, P, BOUNDS | {"residual_bound": 0}),
        (Y, P, BOUNDS | {"y_lower": P}),
        (Y, P, BOUNDS | {"y_lower": P, "y_upper": [SECRET, np.nan, 1, 1]}),
    ],
)
def test_bad_numbers_are_refused_before_the_charge(y, predicted, settings):
    with PrivacyLedger() as ledger, pytest.raises(ValueError, match="Expected") as raised:
        private_regression_report(y, predicted, **settings)
    assert not ledger.entries
    assert "424242" not in str(raised.value)


def test_a_seed_repeats_the_report_and_voids_it():
    def seeded(y, p):
        with pytest.warns(PrivacyWarning, match="nominal"):
            return of_two(y, p, n_samples=6, random_state=0)

    one, again, other = seeded(*SIX), seeded(*SIX), seeded(SIX[0][::-1], SIX[1])
    np.testing.assert_array_equal(one.counts_, again.counts_)
    assert not one.privacy_.valid
    # Other rows have other noise: the difference of two reports is not that of the tables.
    assert not np.array_equal(one.counts_, other.counts_)


# --- the evaluator --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (2000, 2)) / np.sqrt(2)
    return X, (X[:, 0] + 0.2 * rng.normal(size=2000) > 0).astype(int)


def model(n):
    return DPVariationalLogisticRegression(1.0, classes=[0, 1], n_samples=n, data_norm=1.0)


def test_a_fit_and_a_report_on_disjoint_parts_cost_the_larger_epsilon(rows):
    split = DisjointSplit(2000, test_size=0.5)
    with PrivacyLedger() as ledger:
        fitted = model(1000).fit(*split.take("train", *rows))
        report = DPEvaluator(fitted, epsilon=0.7, n_samples=1000).report(*split.take("test", *rows))
    assert report.n_ == 1000
    assert ledger.total(delta=1e-5) == pytest.approx(1.0, rel=1e-6)
    assert privacy_of(fitted, report).epsilon == pytest.approx(1.0, rel=1e-6)
    assert float(report.accuracy) > 0.8


def test_a_report_on_training_rows_says_so_and_adds_up(rows):
    split = DisjointSplit(2000, test_size=0.5)
    with PrivacyLedger() as ledger:
        fitted = model(1000).fit(*split.take("train", *rows))
        with pytest.warns(FitWarning, match="training rows"):
            DPEvaluator(fitted, n_samples=1000).report(*split.take("train", *rows))
        part = DisjointSplit(1000, test_size=0.5).take("test", *split.take("train", *rows))
        with pytest.warns(FitWarning, match="training rows"):  # a part of them is enough
            DPEvaluator(fitted, n_samples=500).report(*part)
    assert ledger.total(delta=1e-5) > 1.5
    with PrivacyLedger() as ledger:  # rows that have lost their mark add up too
        fitted = model(1000).fit(*split.take("train", *rows))
        X, y = split.take("test", *rows)
        DPEvaluator(fitted, n_samples=1000).report(np.array(X) + 0, np.array(y) + 0)
    assert ledger.total(delta=1e-5) > 1.5


def test_parts_of_two_splits_are_refused(rows):
    fitted = model(2000).fit(*rows)
    X, y = (DisjointSplit(2000).take("test", array) for array in rows)
    with PrivacyLedger() as ledger, pytest.raises(ValueError, match="one part of one split"):
        DPEvaluator(fitted, n_samples=500).report(X, y)
    assert not ledger.entries


def test_an_estimator_without_a_statement_or_predictions_is_named(rows):
    X, y = rows
    with pytest.warns(PrivacyWarning, match="no valid privacy statement"):
        DPEvaluator(LogisticRegression().fit(X, y), n_samples=2000).report(X, y)
    with PrivacyLedger() as ledger, pytest.raises(ValueError, match="a fitted estimator"):
        DPEvaluator(model(2000)).report(X, y)
    with pytest.raises(ValueError, match="a fitted estimator"):
        DPEvaluator("model").report(X, y)
    with pytest.raises(ValueError, match="to be a classifier or regressor"):
        DPEvaluator(BoundedScaler(lower=-1, upper=1).fit(X)).report(X, y)
    assert not ledger.entries


def test_classes_in_another_order_than_the_columns_are_refused():
    # Of two classes the second is the positive one: sorted, or as declared, would be a guess.
    y, X = np.array(["no", "yes"] * 20), np.zeros((40, 1))
    other = LogisticRegression().fit(X, y)
    other.classes_ = np.array(["yes", "no"])
    with PrivacyLedger() as ledger:
        for classes in (["yes", "no"], ["no", "yes", "yes"]):
            with pytest.raises(ValueError, match="sorted as the columns"):
                private_report(y, np.full(40, 0.3), classes=classes, n_samples=40)
        with (
            pytest.warns(PrivacyWarning, match="no valid"),
            pytest.raises(ValueError, match="sorted as the columns"),
        ):
            DPEvaluator(other, n_samples=40).report(X, y)
    assert not ledger.entries


def test_a_pipeline_undeclared_labels_and_a_missing_value_whose_remedy_is_named_once(rows):
    X, y = rows
    pipeline = make_pipeline(BoundedScaler(lower=-1, upper=1), model(2000)).fit(X, y)
    report = DPEvaluator(pipeline, epsilon=2.0, n_samples=2000).report(X, y)
    assert float(report.auc) > 0.8
    with PrivacyLedger() as ledger, pytest.raises(ValueError, match="declared classes"):
        DPEvaluator(pipeline, n_samples=2000).report(X, np.where(y == 1, 7, y))
    assert not ledger.entries
    with pytest.raises(ValueError, match=r"contains NaN\. Fill it") as refused:
        DPEvaluator(pipeline, n_samples=2000).report(np.where(X[0, 0] == X, np.nan, X), y)
    assert str(refused.value).count("Fill it") == 1


def test_a_regressor_needs_its_bounds(rows):
    X, _ = rows
    y = X[:, 0]
    public = {"target_bounds": (-1, 1), "n_samples": 2000, "data_norm": 1.0}
    fitted = DPVariationalLinearRegression(1.0, **public).fit(X, y)
    bounds = {"target_bounds": (-1, 1), "residual_bound": 1.0}
    report = DPEvaluator(fitted, n_samples=2000, **bounds).report(X, y)
    assert float(report.rmse) < 0.5
    assert np.isnan(report.coverage.value)
    with PrivacyLedger() as ledger:
        for name in bounds:
            with pytest.raises(ValueError, match=name):
                DPEvaluator(fitted, n_samples=2000, **(bounds | {name: None})).report(X, y)
    assert not ledger.entries


def test_residuals_that_no_double_holds_are_cut_without_a_warning():
    y = np.array([1e308, *np.linspace(0, 1, 49)])
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        report = private_regression_report(y, -y, target_bounds=(0, 1), residual_bound=3.0)
    assert abs(report.counts_.sum() - 50) < 40
