"""Reports against scikit-learn's metrics of the binned scores, and on any table at all."""

import json
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn import metrics

from skdp import FitWarning, PrivacyWarning
from skdp.evaluation import (
    BinaryReport,
    MulticlassReport,
    RegressionReport,
    private_regression_report,
    private_report,
)
from skdp.evaluation.binning import ResidualBins, ScoreBins
from skdp.metrics import expected_calibration_error

N = 20_000
QUIET = {"epsilon": 50.0, "n_samples": N}  # noise with probability 1e-21 in a cell


@pytest.fixture(scope="module")
def two():
    rng = np.random.default_rng(0)
    logit = rng.normal(-0.5, 1.5, N)
    p = 1 / (1 + np.exp(-1.5 * logit))
    y = (rng.uniform(size=N) < 1 / (1 + np.exp(-logit))).astype(int)
    return y, p, private_report(y, p, classes=[0, 1], n_bins=40, **QUIET)


def test_the_table_is_that_of_the_rows(two):
    y, p, report = two
    slow = np.zeros((2, 40), dtype=int)
    for label, score in zip(y, p, strict=True):
        slow[label, next(k for k in range(40) if score <= report.edges_[k + 1])] += 1
    np.testing.assert_array_equal(report.counts_, slow)


def test_what_does_not_depend_on_bins_is_exact(two):
    y, p, report = two
    predicted = p > 0.5
    for name in ("accuracy", "balanced_accuracy", "precision", "recall"):
        exact = getattr(metrics, f"{name}_score")(y, predicted)
        assert float(getattr(report, name)) == pytest.approx(exact, abs=1e-12)
        assert float(getattr(report.at(0.5), name)) == pytest.approx(exact)
    for normalize in ("all", "true", "pred"):
        np.testing.assert_allclose(
            report.confusion_matrix(normalize=normalize).value,
            metrics.confusion_matrix(y, predicted, normalize=normalize),
            atol=1e-12,
        )


@pytest.mark.parametrize("threshold", [0.1, 0.33, 0.9])
def test_thresholds_are_edges(two, threshold):
    y, p, report = two
    found = report.at(threshold)
    assert abs(found.threshold - threshold) < 0.05
    predicted = p > found.threshold
    assert float(found.f1) == pytest.approx(metrics.f1_score(y, predicted))
    of_negatives = metrics.recall_score(y, predicted, pos_label=0)
    assert float(found.specificity) == pytest.approx(of_negatives)
    np.testing.assert_allclose(
        report.confusion_matrix(threshold).value,
        metrics.confusion_matrix(y, predicted, normalize="all"),
    )


def test_what_depends_on_bins_is_that_of_binned_scores(two):
    y, p, report = two
    bins = ScoreBins.of(40)
    number = bins.numbers(p)
    assert float(report.auc) == pytest.approx(metrics.roc_auc_score(y, number), abs=1e-12)
    # Draws take back a bias of the order 1/n.
    average = metrics.average_precision_score(y, number)
    assert float(report.average_precision) == pytest.approx(average, abs=2e-3)
    p_true = np.where(y[:, None] == 1, bins.points[number], 1 - bins.points[number])
    assert float(report.log_loss) == pytest.approx(-np.log(p_true).mean(), rel=1e-12)
    assert float(report.brier) == pytest.approx(((1 - p_true) ** 2).mean(), rel=1e-12)
    assert float(report.log_loss) == pytest.approx(metrics.log_loss(y, p), rel=0.01)
    assert float(report.brier) == pytest.approx(metrics.brier_score_loss(y, p), rel=0.01)
    plain = expected_calibration_error(y, p, n_bins=20)
    assert float(report.ece) == pytest.approx(plain, abs=0.005)


def test_curves_are_those_of_binned_scores(two):
    y, p, report = two
    number = ScoreBins.of(40).numbers(p)
    fpr, tpr, _ = metrics.roc_curve(y, number, drop_intermediate=False)
    curve = report.roc_curve()
    np.testing.assert_allclose(curve.fpr.value, fpr, atol=1e-9)
    np.testing.assert_allclose(curve.tpr.value, tpr, atol=1e-9)
    assert (curve.tpr.low <= curve.tpr.value).all()
    pr = report.precision_recall_curve()
    precision, recall, _ = metrics.precision_recall_curve(y, number)
    np.testing.assert_allclose(pr.recall.value, recall[::-1], atol=1e-9)
    np.testing.assert_allclose(pr.precision.value[1:], precision[::-1][1:], atol=1e-9)
    calibration = report.calibration_curve()
    of = np.searchsorted(calibration.edges[1:-1], p)
    share = [y[of == k].mean() for k in range(len(calibration.predicted))]
    np.testing.assert_allclose(calibration.happened.value, share, atol=1e-9)
    assert calibration.share.value.sum() == pytest.approx(1)
    assert len(calibration.predicted) <= 15


@pytest.mark.parametrize("K", [3, 6])
def test_several_classes(K):
    rng = np.random.default_rng(K)
    logits = 2 * rng.normal(size=(N, K))
    P = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    flat = np.exp(0.6 * logits) / np.exp(0.6 * logits).sum(axis=1, keepdims=True)
    y = (rng.uniform(size=(N, 1)) > flat.cumsum(axis=1)).sum(axis=1)
    names = np.array(list("abcdef"))[:K]
    report = private_report(names[y], P, classes=names, n_bins=60, **QUIET)
    top = P.argmax(axis=1)
    assert float(report.accuracy) == pytest.approx(metrics.accuracy_score(y, top))
    balanced = metrics.balanced_accuracy_score(y, top)
    assert float(report.balanced_accuracy) == pytest.approx(balanced, abs=1e-3)
    for name, metric in (("recall", metrics.recall_score), ("precision", metrics.precision_score)):
        found = getattr(report, name).value
        np.testing.assert_allclose(found, metric(y, top, average=None), atol=1e-9)
    assert float(report.log_loss) == pytest.approx(metrics.log_loss(y, P), rel=0.02)
    squares = ((P - np.eye(K)[y]) ** 2).sum(axis=1).mean()
    assert float(report.brier) == pytest.approx(squares, rel=0.02)
    plain = expected_calibration_error(names[y], P, n_bins=60, labels=names)
    assert float(report.ece) == pytest.approx(plain, abs=0.01)
    curve = report.calibration_curve()
    of = np.searchsorted(curve.edges[1:-1], P.max(axis=1))
    right = [np.mean((top == y)[of == k]) for k in np.unique(of)]
    np.testing.assert_allclose(curve.happened.value[np.unique(of)], right, atol=1e-9)


def test_regression():
    rng = np.random.default_rng(0)
    predicted = rng.uniform(0, 10, N)
    y = predicted + 0.2 + 1.3 * rng.normal(size=N)
    report = private_regression_report(
        y, predicted, target_bounds=(-6, 16), residual_bound=8, n_bins=100,
        y_lower=predicted - 2, y_upper=predicted + 2, **QUIET,
    )  # fmt: skip
    assert float(report.mse) == pytest.approx(metrics.mean_squared_error(y, predicted), rel=0.01)
    assert float(report.mae) == pytest.approx(metrics.mean_absolute_error(y, predicted), rel=0.01)
    assert float(report.bias) == pytest.approx((y - predicted).mean(), abs=0.01)
    assert float(report.r2) == pytest.approx(metrics.r2_score(y, predicted), abs=0.005)
    assert float(report.coverage) == pytest.approx(np.mean(np.abs(y - predicted) <= 2))
    assert report.rmse.low <= report.rmse.value <= report.rmse.high


@pytest.mark.parametrize(("bound", "said"), [(500, "too wide"), (1, "too narrow"), (5, "")])
def test_a_bound_that_fits_no_residuals_is_named(bound, said):
    rng = np.random.default_rng(0)
    predicted, residuals = rng.uniform(0, 10, 1000), rng.uniform(-1.5, 1.5, 1000)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        private_regression_report(
            predicted + residuals, predicted, target_bounds=(-6, 16), residual_bound=bound,
            y_lower=predicted - 1, y_upper=predicted + 1, n_samples=1000,
        )  # fmt: skip
    assert [f"is {said}: more than" in str(w.message) for w in caught] == [True] * bool(said)


def test_scores_that_stand_out_of_their_bins_are_named_and_spread_ones_are_not(two):
    y = np.arange(2000) % 2
    tied = {"a constant": np.full(2000, 0.5), "a tree": np.where(np.arange(2000) % 5 < 2, 0.3, 0.9)}
    for scores in tied.values():
        with pytest.warns(FitWarning, match="bins that stand out"):
            report = private_report(y, scores, classes=[0, 1], n_samples=2000)
        assert report.caution in repr(report)
        assert report.caution == report.to_dict()["caution"]
        assert "ece may be off" in report._repr_html_()
    sure = np.random.default_rng(0).beta(0.3, 0.3, 2000)
    for scores in (sure, sure**4, np.random.default_rng(0).uniform(size=2000)):
        assert not private_report(y, scores, classes=[0, 1], n_samples=2000).caution
    # What it is off by: the place of the scores in their bin, and they are known here.
    y, p = np.arange(N) % 2, np.full(N, 0.5)
    with pytest.warns(FitWarning):
        report = private_report(y, p, classes=[0, 1], n_bins=20, **QUIET)
    off = float(report.caution.partition(" by ")[2].split(",")[0])
    assert abs(report.ece.value - 0.0) <= off
    assert off == pytest.approx(0.5 - report.bins_.mean[9], rel=0.05)


def test_top_scores_that_are_tied_are_named():
    y, P = np.arange(3000) % 3, np.tile([0.4, 0.35, 0.25], (3000, 1))
    with pytest.warns(FitWarning, match="100% of all rows are in 1 of"):
        private_report(y, P, classes=[0, 1, 2], n_samples=3000)


def test_subgroups_add_up_and_are_their_own(two):
    y, p, _ = two
    of = np.where(p > 0.4, "high", "low")
    how = {"classes": [0, 1], "subgroups": ["high", "low", "none"], "n_bins": 20}
    report = private_report(y, p, subgroup=of, **how, **QUIET)
    assert list(report.subgroups_) == ["high", "low", "none"]
    parts = [part.counts_ for part in report.subgroups_.values()]
    np.testing.assert_array_equal(sum(parts), report.counts_)
    assert report.noise_variance_ == pytest.approx(3 * report.subgroups_["low"].noise_variance_)
    low = of == "low"
    found = report.subgroups_["low"]
    assert float(found.accuracy) == pytest.approx(np.mean((p > 0.5)[low] == y[low]))
    assert found.n_ is None  # how many there are is private
    assert "high" in repr(report)
    assert "<th>high</th>" in report._repr_html_()


def of_counts(kind, counts, variance, n):
    if kind is BinaryReport:
        more = {"classes_": np.arange(2), "bins_": ScoreBins.of(6)}
        return BinaryReport(None, counts[:12].reshape(2, 6), variance, n, **more)
    if kind is MulticlassReport:
        more = {"classes_": np.arange(3), "bins_": ScoreBins.of(3, 1 / 3)}
        more["by_confidence_"] = counts[9:30].reshape(7, 3)
        return MulticlassReport(None, counts[:9].reshape(3, 3), variance, n, **more)
    more = {"bins_": ResidualBins.of(6, 2.0), "target_edges_": np.linspace(-3, 3, 7)}
    more["of_targets_"] = counts[12:18]
    return RegressionReport(None, counts[:12].reshape(2, 6), variance, n, **more)


SPANS = {"log_loss": (0, np.inf), "brier": (0, 2), "rmse": (0, 2), "mae": (0, 2), "bias": (-2, 2)}


@pytest.mark.parametrize("kind", [BinaryReport, MulticlassReport, RegressionReport])
@given(
    arrays(np.int64, 30, elements=st.integers(-50, 200)),
    st.sampled_from([0.0, 1e-12, 1.0, 400.0]),
    st.sampled_from([None, 1, 50, 3000]),
)
def test_whatever_the_table_values_are_in_their_intervals_and_these_in_range(
    kind, counts, variance, n
):
    report = of_counts(kind, counts, variance, n)
    found = dict(report.estimates())
    if kind is not RegressionReport:
        found["calibration"] = report.calibration_curve().happened
        found["confusion"] = report.confusion_matrix()
    if kind is BinaryReport:
        roc, pr = report.roc_curve(), report.precision_recall_curve()
        found |= {"fpr": roc.fpr, "tpr": roc.tpr, "precision": pr.precision, "pr": pr.recall}
    for name, e in found.items():
        least, most = SPANS.get(name, (-1 if name == "r2" else 0, 1))
        assert np.all(np.isfinite([e.value, e.low, e.high])), name
        assert np.all((least <= e.low) & (e.low <= e.value + 1e-12)), name
        assert np.all((e.value <= e.high + 1e-12) & (e.high <= most)), name


def test_a_table_of_few_rows_says_so(two):
    (y, p, _), how = two, {"epsilon": 0.1, "classes": [0, 1], "n_samples": 30}
    with pytest.warns(PrivacyWarning, match="nominal"):
        reports = [private_report(y[:30], p[:30], random_state=k, **how) for k in range(5)]
    assert all("NOT a guarantee" in repr(report) for report in reports)
    for name in ("auc", "recall", "average_precision"):
        found = [getattr(report, name) for report in reports]
        assert np.median([e.high - e.low for e in found]) > 0.8


def test_reports_are_readable(two):
    _, _, report = two
    values = json.loads(json.dumps(report.to_dict()))
    assert values["estimates"]["accuracy"]["low"] == report.accuracy.low
    assert values["counts"] == report.counts_.tolist()
    lines = repr(report).splitlines()
    assert lines[0] == f"BinaryReport of {N} rows (epsilon=50)"
    assert [line.split("  ")[1].strip() for line in lines[1:3]] == ["accuracy", "balanced accuracy"]
    assert report._repr_html_().count("<tr>") == 10


@pytest.mark.parametrize(("name", "value"), [("threshold", 1.5), ("normalize", "rows")])
def test_bad_parameters_are_named(two, name, value):
    with pytest.raises(ValueError, match=name):
        two[2].confusion_matrix(**{name: value})
