import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import make_classification
from sklearn.metrics import make_scorer
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB

from skdp.metrics import (
    adaptive_calibration_error,
    expected_calibration_error,
    reliability_table,
    static_calibration_error,
)

METRICS = [expected_calibration_error, static_calibration_error, adaptive_calibration_error]
metrics = pytest.mark.parametrize("metric", METRICS)


def slow_uniform_error(confidence, happened, n_bins):
    """The definition, one bin and one row at a time."""
    n, error = len(confidence), 0.0
    edges = np.linspace(0, 1, n_bins + 1)
    for b in range(n_bins):
        lower = edges[b] if b else -1.0
        rows = [i for i in range(n) if lower < confidence[i] <= edges[b + 1]]
        error += abs(sum(float(happened[i]) - confidence[i] for i in rows)) / n
    return error


def slow_quantile_error(confidence, happened, n_bins):
    """Range k ends at the value up to which the number of rows is nearest to k n / n_bins."""
    n, error, left = len(confidence), 0.0, -math.inf
    for k in range(1, n_bins + 1):
        right = min(
            sorted(set(confidence)),  # of two equally near ones, the lower
            key=lambda v: abs(sum(c <= v for c in confidence) * n_bins - k * n),
        )
        rows = [i for i in range(n) if left < confidence[i] <= right]
        error += abs(sum(float(happened[i]) - confidence[i] for i in rows)) / n
        left = right
    return error


def slow_error(metric, y, p, n_bins):
    if metric is expected_calibration_error:
        top = [max(range(p.shape[1]), key=lambda k: row[k]) for row in p]
        confidence = [row[k] for row, k in zip(p, top, strict=True)]
        right = [k == label for k, label in zip(top, y, strict=True)]
        return slow_uniform_error(confidence, right, n_bins)
    slow = slow_uniform_error if metric is static_calibration_error else slow_quantile_error
    return np.mean([slow(p[:, k].tolist(), y == k, n_bins) for k in range(p.shape[1])])


def random_case(seed, *, n=None, n_classes=None, ties=False):
    """Softmax rows of varying sharpness, with labels that agree with them to a varying degree."""
    rng = np.random.default_rng(seed)
    n = n or int(rng.integers(5, 120))
    n_classes = n_classes or int(rng.integers(2, 6))
    logits = rng.standard_normal((n, n_classes)) * rng.uniform(0.1, 5)
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    if ties:
        p = np.floor(8 * p) / 8
        p[:, 0] += 1 - p.sum(axis=1)
    y = np.array([rng.choice(n_classes, p=row) for row in p])
    y = np.where(rng.random(n) < rng.uniform(0, 1), rng.integers(n_classes, size=n), y)
    return y, p, int(rng.integers(1, 25))


def labels_of(p):
    return list(range(p.shape[1]))


@pytest.mark.quick(3)
@metrics
@pytest.mark.parametrize("ties", [False, True])
def test_equals_the_definition_on_random_cases(metric, ties):
    for seed in range(100):
        y, p, n_bins = random_case(seed, ties=ties)
        got = metric(y, p, n_bins=n_bins, labels=labels_of(p))
        assert got == pytest.approx(slow_error(metric, y, p, n_bins), abs=1e-12)


@pytest.mark.parametrize("metric", [expected_calibration_error, static_calibration_error])
def test_equals_torchmetrics_on_random_cases(metric):
    # torchmetrics closes bins on the left and gives confidence 1 a bin of its own: the same unless
    # a confidence lies on an edge, as none does here.
    torch = pytest.importorskip("torch")
    oracle = pytest.importorskip("torchmetrics.functional.classification")
    for seed in range(100):
        y, p, n_bins = random_case(seed)
        labels, how = labels_of(p), {"n_bins": n_bins, "norm": "l1"}
        if metric is expected_calibration_error:
            rows = torch.tensor(p), torch.tensor(y)
            expected = float(oracle.multiclass_calibration_error(*rows, len(labels), **how))
            within = 1e-6
        else:
            of_class = ((torch.tensor(p[:, k]), torch.tensor(y == k).int()) for k in labels)
            errors = [float(oracle.binary_calibration_error(*rows, **how)) for rows in of_class]
            expected, within = np.mean(errors), 1e-12
        got = metric(y, p, n_bins=n_bins, labels=labels)
        assert got == pytest.approx(expected, abs=within)


def test_values_computed_by_hand():
    p = [[0.6, 0.4], [0.6, 0.4], [0.6, 0.4], [0.1, 0.9]]
    y = [0, 0, 1, 1]
    # Bins (0.5, 0.75] with three rows, accuracy 2/3; (0.75, 1] with one row, accuracy 1.
    expected = 3 / 4 * abs(2 / 3 - 0.6) + 1 / 4 * abs(1 - 0.9)
    assert expected_calibration_error(y, p, n_bins=4) == pytest.approx(expected)
    # Both classes see the same two groups of rows.
    assert static_calibration_error(y, p, n_bins=4) == pytest.approx(expected)
    # Half of the mass lies inside the tie, which is not cut: three rows and one again.
    assert adaptive_calibration_error(y, p, n_bins=2) == pytest.approx(expected)


@metrics
def test_zero_where_every_row_is_certain_and_right_and_one_where_wrong(metric):
    assert metric([0, 1, 2], np.eye(3)) == 0
    assert metric([0, 1, 1], [[0, 1], [1, 0], [1, 0]]) == 1


def test_a_confidence_on_an_edge_belongs_to_the_lower_bin():
    table = reliability_table([0, 0, 1, 1], [0.0, 0.5, 0.5, 1.0], n_bins=2, class_label=1)
    np.testing.assert_array_equal(table.counts, [3, 1])
    np.testing.assert_allclose(table.accuracy, [1 / 3, 1])
    np.testing.assert_allclose(table.confidence, [1 / 3, 1])


@metrics
def test_order_of_rows_and_of_classes_does_not_matter(metric):
    for seed in range(20):
        y, p, n_bins = random_case(seed)
        value = metric(y, p, n_bins=n_bins, labels=labels_of(p))
        rng = np.random.default_rng(seed)
        rows, columns = rng.permutation(len(y)), rng.permutation(p.shape[1])
        assert metric(y[rows], p[rows], n_bins=n_bins, labels=labels_of(p)) == pytest.approx(value)
        permuted = metric(y, p[:, columns], n_bins=n_bins, labels=columns)
        assert permuted == pytest.approx(value)


@metrics
def test_a_whole_weight_repeats_a_row_and_the_scale_of_weights_does_not_matter(metric):
    for seed in range(20):
        y, p, n_bins = random_case(seed, ties=seed % 2 == 0)
        weights = np.random.default_rng(seed).integers(0, 4, len(y))
        weights[0] = 1
        kw = {"n_bins": n_bins, "labels": labels_of(p)}
        repeated = metric(np.repeat(y, weights), np.repeat(p, weights, axis=0), **kw)
        for scale in (1, 0.1, 1 / 3):
            weighted = metric(y, p, sample_weight=scale * weights, **kw)
            assert weighted == pytest.approx(repeated, abs=1e-12)


def test_a_row_of_weight_zero_is_as_good_as_absent():
    y, p, _ = random_case(2, n=40, n_classes=2)
    extreme = np.argsort(p[:, 1])[[0, -1]]
    weights = np.ones(40)
    weights[extreme] = 0
    kw = {"strategy": "quantile", "n_bins": 4, "class_label": 1, "labels": [0, 1]}
    weighted = reliability_table(y, p, sample_weight=weights, **kw)
    absent = reliability_table(np.delete(y, extreme), np.delete(p, extreme, axis=0), **kw)
    for field in ("bin_edges", "counts", "confidence", "accuracy"):
        np.testing.assert_array_equal(getattr(weighted, field), getattr(absent, field))


@given(st.integers(0, 10**6))
def test_lies_between_the_gap_of_the_means_and_one(seed):
    y, p, n_bins = random_case(seed)
    for class_label in [None, 0]:
        table = reliability_table(y, p, n_bins=n_bins, labels=labels_of(p), class_label=class_label)
        gap = abs(table.mean_accuracy - table.mean_confidence)
        assert gap - 1e-12 <= table.calibration_error <= 1


@metrics
def test_calibrated_data_stay_below_a_derived_bound_and_overconfident_data_above_theirs(metric):
    n, n_bins = 20_000, 15
    rng = np.random.default_rng(0)
    p = rng.dirichlet([0.5, 0.5, 0.5], n)
    y = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    # E|acc - conf| of a bin of m rows is at most 1/(2√m), so the mean error at most √(bins/n)/2;
    # one row moves it by 1/n (each class's error, too), so McDiarmid bounds the excess.
    deviation = math.sqrt(math.log(1e6) / (2 * n))
    bound = math.sqrt(n_bins / n) / 2 + deviation
    assert bound < 0.04
    assert metric(y, p, n_bins=n_bins) <= bound

    # Half way to the corner of the top label: too confident by a known amount. The error is at
    # least the signed sum over any set of bins, here those above 1/2.
    sharp = (p + np.eye(3)[p.argmax(axis=1)]) / 2
    strategy = "quantile" if metric is adaptive_calibration_error else "uniform"
    excess = []
    for k in [None] if metric is expected_calibration_error else [0, 1, 2]:
        how = {"n_bins": n_bins, "strategy": strategy, "class_label": k}
        edges = reliability_table(y, sharp, **how).bin_edges
        confidence = sharp.max(axis=1) if k is None else sharp[:, k]
        calibrated = p.max(axis=1) if k is None else p[:, k]
        above = confidence > edges[edges >= 0.5].min()
        excess.append(np.sum((confidence - calibrated)[above]) / n)
    assert metric(y, sharp, n_bins=n_bins) >= np.mean(excess) - deviation > 0
    assert metric(y, sharp, n_bins=n_bins) > bound


def test_equal_mass_bins_hold_equal_mass_and_uniform_bins_equal_width():
    y, p, _ = random_case(1, n=120, n_classes=2)
    table = reliability_table(y, p, n_bins=8, strategy="quantile", class_label=1)
    np.testing.assert_array_equal(table.counts, np.full(8, 15.0))
    assert table.bin_edges[0] == p[:, 1].min()
    assert table.bin_edges[-1] == p[:, 1].max()
    uniform = reliability_table(y, p, n_bins=8)
    np.testing.assert_array_equal(uniform.bin_edges, np.linspace(0, 1, 9))


def test_table_averages_are_those_of_the_rows():
    y, p, _ = random_case(3, n=90, n_classes=3)
    weights = np.random.default_rng(0).random(90)
    for strategy in ("uniform", "quantile"):
        table = reliability_table(y, p, strategy=strategy, sample_weight=weights)
        assert table.counts.sum() == pytest.approx(weights.sum())
        right = p.argmax(axis=1) == y
        assert table.mean_accuracy == pytest.approx(np.average(right, weights=weights))
        assert table.mean_confidence == pytest.approx(np.average(p.max(axis=1), weights=weights))
        empty = table.counts == 0
        assert np.isnan(table.accuracy[empty]).all()
        assert np.isnan(table.confidence[empty]).all()


def test_a_tie_is_left_whole_and_does_not_swallow_its_neighbours():
    p = np.r_[np.full(5, 0.4), np.ones(95)]  # a saturated class
    table = reliability_table([0, 1] * 50, p, strategy="quantile", class_label=1)
    np.testing.assert_array_equal(table.counts[table.counts > 0], [5, 95])
    mirrored = reliability_table([0, 1] * 50, 1 - p, strategy="quantile", class_label=1)
    np.testing.assert_array_equal(mirrored.counts[mirrored.counts > 0], [95, 5])


def test_more_bins_than_rows_leave_each_row_by_itself():
    got = adaptive_calibration_error([0, 1, 1], [0.2, 0.7, 0.9], n_bins=50)
    assert got == pytest.approx((0.2 + 0.3 + 0.1) / 3)


@metrics
def test_one_column_and_two_say_the_same(metric):
    y, p, n_bins = random_case(5, n_classes=2)
    value = metric(y, p, n_bins=n_bins)
    assert metric(y, p[:, 1], n_bins=n_bins) == pytest.approx(value)
    assert metric(y, p[:, 1:], n_bins=n_bins) == pytest.approx(value)
    assert metric(y, p[:, 0], n_bins=n_bins, pos_label=0) == pytest.approx(value)
    names = np.array(["healthy", "sick"])[y]
    assert metric(names, p[:, 1], n_bins=n_bins) == pytest.approx(value)
    assert metric(names, p[:, 0], n_bins=n_bins, pos_label="healthy") == pytest.approx(value)


def kinds_of_input(y, p):
    names = ["x", "y", "z"]
    text = [names[k] for k in y]
    return {
        "lists": (y.tolist(), p.tolist()),
        "pandas": (pd.Series(y, index=y[::-1]), pd.DataFrame(p)),
        "text": (text, p),
        "pandas text": (pd.Series(text), pd.DataFrame(p, columns=names)),
        "categories": (pd.Series(text, dtype="category"), p),
        "nullable": (pd.Series(y, dtype="Int64"), pd.DataFrame(p, dtype="Float64")),
        "floats": (y.astype(float), p),
        "column": (y[:, None], p),
        "Fortran": (y, np.asfortranarray(p)),
        "big-endian": (y.astype(">i4"), p.astype(">f8")),
        "read-only": (y, np.frombuffer(p.tobytes()).reshape(p.shape)),
        "object": (y.astype(object), p.astype(object)),
    }


@metrics
def test_every_kind_of_input_gives_the_same(metric):
    y, p, _ = random_case(7, n=60, n_classes=3)
    value = metric(y, p)
    for kind, (labels, probabilities) in kinds_of_input(y, p).items():
        assert metric(labels, probabilities) == pytest.approx(value), kind
    single = metric(y, p.astype(np.float32))
    assert single == pytest.approx(value, abs=1e-6)


@metrics
def test_rounding_of_probabilities_is_forgiven(metric):
    y, p, _ = random_case(7, n=60, n_classes=3)
    metric(y, np.round(p, 4))
    assert metric([0, 1], [-1e-7, 1 + 1e-7]) == 0


@metrics
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("text", [False, True])
def test_scores_a_grid_search(metric, n_classes, text):
    X, y = make_classification(
        300, n_informative=4, n_classes=n_classes, n_clusters_per_class=1, random_state=0
    )
    y = np.array(["no", "perhaps", "yes"])[y] if text else y
    scorer = make_scorer(metric, response_method="predict_proba", greater_is_better=False, n_bins=5)
    search = GridSearchCV(GaussianNB(), {"var_smoothing": [1e-9, 1.0]}, scoring=scorer, cv=3)
    search.fit(X, y)
    best = search.best_estimator_
    assert scorer(best, X, y) == pytest.approx(-metric(y, best.predict_proba(X), n_bins=5))
    assert (search.cv_results_["mean_test_score"] < 0).all()


def test_a_fold_without_one_class_can_be_scored_with_declared_labels():
    model = GaussianNB(var_smoothing=0.1).fit([[0.0], [1.0], [2.0]], [0, 1, 2])
    options = {"response_method": "predict_proba", "greater_is_better": False}
    with pytest.raises(ValueError, match="labels="):
        make_scorer(expected_calibration_error, **options)(model, [[0.0], [1.0]], [0, 1])
    declared = make_scorer(expected_calibration_error, labels=[0, 1, 2], **options)
    assert declared(model, [[0.0], [1.0]], [0, 1]) < 0
    binary = GaussianNB(var_smoothing=0.1).fit([[0.0], [1.0]], [0, 1])
    assert make_scorer(expected_calibration_error, labels=[0, 1], **options)(binary, [[0]], [0]) < 0
    negative = make_scorer(expected_calibration_error, pos_label=0, **options)
    positive = make_scorer(expected_calibration_error, **options)
    X, y = [[0.0], [0.2], [1.0]], [0, 1, 1]
    assert negative(binary, X, y) == pytest.approx(positive(binary, X, y))


Y, P = [0, 1, 1, 0], [0.1, 0.9, 0.7, 0.6]
P3 = [[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]]
nan, inf = math.nan, math.inf

BAD = {
    "no y": ({"y_true": None}, "y_true .NoneType. to hold one class label"),
    "no probabilities": ({"y_prob": None}, "y_prob .NoneType. to be an array of real numbers"),
    "no rows": ({"y_true": [], "y_prob": []}, "y_prob of shape"),
    "one number": ({"y_true": 0, "y_prob": 0.5}, "y_prob of shape"),
    "three dimensions": ({"y_prob": np.full((4, 2, 2), 0.5)}, "y_prob of shape"),
    "ragged": ({"y_prob": [[0.1, 0.9], [1.0], [0.5, 0.5], [0, 1]]}, "y_prob .list."),
    "text": ({"y_prob": ["0.123456", "0.5", "0.5", "1"]}, "y_prob .list. to be an array of real"),
    "objects": ({"y_prob": [0.1, None, 0.7, 0.6]}, "y_prob .list. to be an array of real"),
    "complex": ({"y_prob": [0.1j, 1, 1, 0]}, "y_prob .list. to be an array of real"),
    "dates": ({"y_prob": np.zeros(4, "M8[s]")}, "y_prob .ndarray. to be an array of real"),
    "masked": ({"y_prob": np.ma.array(P, mask=[1, 0, 0, 0])}, "y_prob without masked"),
    "masked y": ({"y_true": np.ma.array(Y, mask=[1, 0, 0, 0])}, "y_true without masked"),
    "NaN": ({"y_prob": [nan, 0.9, 0.7, 0.6]}, "y_prob to be finite"),
    "infinite": ({"y_prob": [inf, 0.9, 0.7, 0.6]}, "y_prob to be finite"),
    "scores": ({"y_prob": [-3.123456, 0.9, 0.7, 0.6]}, r"y_prob to lie in \[0, 1\]"),
    "above one": ({"y_prob": [1.123456, 0.9, 0.7, 0.6]}, r"y_prob to lie in \[0, 1\]"),
    "huge": ({"y_prob": [1e308, 0.9, 0.7, 0.6]}, r"y_prob to lie in \[0, 1\]"),
    "sums": ({"y_prob": [[0.123456, 0.5]] * 4}, "every row of y_prob to sum to 1"),
    "lengths": ({"y_true": [0, 1]}, "as many rows as each other, got 2 and 4"),
    "one-hot y": ({"y_true": np.eye(2)[Y]}, "y_true .ndarray. to hold one class label per row"),
    "one class": ({"y_true": [0, 0, 0, 0]}, "two classes or more.*labels="),
    "missing y": ({"y_true": [0, 1, nan, 0]}, "y_true to hold labels of one kind, none missing"),
    "missing text": ({"y_true": ["a", "b", None, "a"]}, "y_true to hold labels of one kind"),
    "nullable y": ({"y_true": pd.Series([0, 1, None, 0], dtype="Int64")}, "labels of one kind"),
    "numbers and text": ({"y_true": [0, "secret", 1, 0]}, "y_true to hold labels of one kind"),
    "lists in y": ({"y_true": [[0], [1, 2], [0], [1]]}, "y_true"),
    "real y": ({"y_true": [0.123456, 1.5, 0.2, 0.3]}, "y_true to hold class labels, got fractions"),
    "three labels, one column": ({"y_true": [0, 1, 2, 0]}, "each of the 3 classes"),
    "two labels, three columns": ({"y_true": [0, 1, 0], "y_prob": P3}, "2 classes, got 3.*labels="),
    "unknown label": ({"y_true": [0, 1, 123456, 0], "labels": [0, 1]}, "to be one of labels"),
    "NaN label": ({"y_true": [0, 1, nan, 0], "labels": [0, 1]}, "to be one of labels"),
    "one declared": ({"labels": [0]}, "labels=.*two or more distinct"),
    "repeated": ({"labels": [0, 0]}, "labels=.*two or more distinct"),
    "labels a number": ({"labels": 2}, "labels=2 .int. to be two or more distinct"),
    "labels lists": ({"labels": [[0], [1, 2]]}, "labels="),
    "labels square": ({"labels": [[0, 1], [1, 0]]}, "labels="),
    "whose probability": ({"labels": [1, 0]}, "labels=.*increasing order.*pos_label="),
    "declared mix": ({"labels": [0, "a"]}, "labels=.*increasing order"),
    "pos_label": ({"pos_label": 7}, "pos_label=7 .int. to be one of the classes"),
    "pos_label array": ({"pos_label": np.zeros(2)}, "pos_label="),
    "pos_label of many": ({"y_true": [0, 1, 2], "y_prob": P3, "pos_label": "a"}, "pos_label='a'"),
    "no bins": ({"n_bins": 0}, "n_bins=0 .int. to be an integer >= 1"),
    "half a bin": ({"n_bins": 2.5}, "n_bins=2.5 .float."),
    "bins NaN": ({"n_bins": nan}, "n_bins=nan"),
    "bins text": ({"n_bins": "15"}, "n_bins='15' .str."),
    "bins true": ({"n_bins": True}, "n_bins=True .bool."),
    "bins none": ({"n_bins": None}, "n_bins=None"),
    "weights short": ({"sample_weight": [1, 1]}, r"sample_weight of shape \(4,\).*got \(2,\)"),
    "weights square": ({"sample_weight": np.ones((4, 1))}, "sample_weight of shape"),
    "weights zero": ({"sample_weight": np.zeros(4)}, "sample_weight to be finite"),
    "weights negative": ({"sample_weight": [1, 1, -0.123456, 1]}, "sample_weight to be finite"),
    "weights NaN": ({"sample_weight": [1, 1, nan, 1]}, "sample_weight to be finite"),
    "weights infinite": ({"sample_weight": [1, 1, inf, 1]}, "sample_weight to be finite"),
    "weights overflow": ({"sample_weight": np.full(4, 1e308)}, "sample_weight to be finite"),
    "weights text": ({"sample_weight": ["1"] * 4}, "sample_weight .list. to be an array of real"),
}


@metrics
@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named_and_no_value_quoted(metric, case):
    changes, message = BAD[case]
    with pytest.raises(ValueError, match=message) as error:
        metric(**({"y_true": Y, "y_prob": P} | changes))
    assert "123456" not in str(error.value)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "kmeans"}, "strategy='kmeans' .str. to be one of 'uniform', 'quantile'"),
        ({"strategy": None}, "strategy=None"),
        ({"class_label": 5}, "class_label=5 .int. to be one of the classes"),
        ({"n_bins": 0}, "n_bins=0"),
    ],
)
def test_bad_options_of_the_table_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        reliability_table(Y, P, **options)
