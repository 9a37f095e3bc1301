"""Rows of a part: whatever was done to them, they are charged as its own only where they are.

The oracle of the random programs is a number in each row that no other row has.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

from skdp import (
    BoundedScaler,
    DisjointSplit,
    DPSGDClassifier,
    DPVariationalLinearRegression,
    DPVariationalLogisticRegression,
    DPVariationalPoissonRegression,
    Persons,
    PrivacyLedger,
    privacy_of,
)
from skdp.conformal import DPConformalClassifier, DPConformalRegressor
from skdp.evaluation import DPEvaluator, private_regression_report, private_report
from skdp.rows.parts import part_read

N = 60
rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (N, 2))
y = (X[:, 0] > 0).astype(int)
DELTA = 1e-5
ONE = 1.0 + 1e-9


def model(**parameters):
    defaults = {"epsilon": 1.0, "classes": [0, 1], "n_samples": N // 2, "max_iter": 3}
    return DPVariationalLogisticRegression(**(defaults | parameters))


def halves(*arrays, **how):
    split = DisjointSplit(N, test_size=0.5, **how)
    return split, [split.take(part, *arrays) for part in ("train", "test")]


def total(*fits):
    with PrivacyLedger() as ledger:
        fitted = [fit() for fit in fits]
    assert privacy_of(*fitted).epsilon == pytest.approx(ledger.total(DELTA))
    return ledger.total(DELTA)


def of_pairs(*pairs):
    return total(*(lambda rows=rows: model().fit(*rows) for rows in pairs))


# --- random programs ------------------------------------------------------------------------------

# Each takes rows, rows of the other part, and a seed; it returns rows.
ARRAYS = {
    "slice": lambda a, b, r: a[: r.integers(1, len(a) + 1)],
    "subset": lambda a, b, r: a[np.sort(r.permutation(len(a))[: max(1, len(a) // 2)])],
    "shuffle": lambda a, b, r: a[r.permutation(len(a))],
    "bootstrap": lambda a, b, r: a[r.integers(0, len(a), len(a))],
    "mask": lambda a, b, r: a[r.random(len(a)) < 0.7],
    "copy": lambda a, b, r: a.copy(),
    "write": lambda a, b, r: _written(a, b, r),
    "copyto": lambda a, b, r: _copied(a, b),
    "flat": lambda a, b, r: _flat(a, b),
    "where": lambda a, b, r: _where(a, b),
    "join": lambda a, b, r: np.concatenate([a, b]),
    "other": lambda a, b, r: b,
    "plain": lambda a, b, r: np.asarray(a),
    "put": lambda a, b, r: _put(a, b),
    "sort": lambda a, b, r: _sorted(a),
    "reverse": lambda a, b, r: a[::-1],
    "view": lambda a, b, r: a.view(),
    "repeat": lambda a, b, r: np.repeat(a, 2, axis=0),
    "of scikit-learn": lambda a, b, r: train_test_split(a, random_state=0)[0],
    "an axis more": lambda a, b, r: a[None, ...][0],
}
FRAMES = {
    "head": lambda a, b, r: a.head(int(r.integers(1, len(a) + 1))),
    "sample": lambda a, b, r: a.sample(frac=0.6, random_state=int(r.integers(99))),
    "bootstrap": lambda a, b, r: a.sample(frac=1, replace=True, random_state=int(r.integers(99))),
    "loc": lambda a, b, r: a.loc[a.index[: len(a) // 2 + 1]],
    "copy": lambda a, b, r: a.copy(),
    "write": lambda a, b, r: _frame_written(a, b),
    "update": lambda a, b, r: _updated(a, b),
    "concat": lambda a, b, r: pd.concat([a, b]),
    "twice": lambda a, b, r: pd.concat([a, a]),
    "halves": lambda a, b, r: pd.concat([a.iloc[: len(a) // 2], a.iloc[len(a) // 2 :]]),
    "combine": lambda a, b, r: a.combine_first(b),
    "relabel": lambda a, b, r: b.set_axis(np.resize(a.index, len(b)), axis=0),
    "reset": lambda a, b, r: a.reset_index(drop=True),
    "other": lambda a, b, r: b,
    "sort": lambda a, b, r: a.sort_index(ascending=False),
    "attrs": lambda a, b, r: _with_attrs(b, a),
}


def _written(a, b, r):
    k = int(r.integers(1, min(len(a), len(b)) + 1))
    a[:k] = b[:k]
    return a


def _copied(a, b):
    k = min(len(a), len(b))
    np.copyto(a[:k], b[:k])
    return a


def _flat(a, b):
    a.flat[:1] = np.asarray(b).flat[:1]
    return a


def _where(a, b):
    np.add(a, 1000.0, out=a, where=np.arange(a.size).reshape(a.shape) % 3 == 0)
    return a


def _put(a, b):
    np.put(a, [0], np.asarray(b).flat[0])
    return a


def _sorted(a):
    a.sort(axis=0)
    return a[::-1]


def _frame_written(a, b):
    a = a.copy()
    k = min(len(a), len(b), 3)
    a.iloc[:k] = b.iloc[:k].to_numpy()
    return a


def _updated(a, b):
    a = a[~a.index.duplicated()].copy()
    other = b[~b.index.duplicated()].head(len(a))
    a.update(other.set_axis(a.index[: len(other)], axis=0))
    return a


def _with_attrs(b, a):
    b = b.copy()
    b.attrs = a.attrs
    return b


def ids(rows):
    return np.asarray(rows).reshape(len(rows), -1)[:, -1] % 1000.0


def programs(operations):
    return st.lists(st.sampled_from(sorted(operations)), max_size=4)


def is_proved(rows, targets):
    """Whether a fit on rows is charged as one of a part; which one."""
    try:
        mark = part_read(rows, targets)
    except ValueError:  # of two parts, which is said
        return None
    return None if mark is None or mark.why_not else mark.part


@pytest.mark.parametrize(
    ("operations", "container"), [(ARRAYS, np.array), (FRAMES, pd.DataFrame)], ids=["np", "pd"]
)
def test_rows_are_of_a_part_only_where_each_of_them_is(operations, container) -> None:
    few = st.lists(st.sampled_from(sorted(operations)), max_size=1)

    @given(of_both=programs(operations), of_X=few, of_y=few, seed=st.integers(0, 99))
    def check(of_both, of_X, of_y, seed):
        table = container(np.column_stack([X, np.arange(N, dtype=float)]))
        split, ((a, t), (b, u)) = halves(table, table)
        rows, targets = a, t
        for name in of_both + of_X:
            rows = operations[name](rows, b, np.random.default_rng(seed))
        for name in of_both + of_y:
            targets = operations[name](targets, u, np.random.default_rng(seed))
        part = is_proved(rows, targets)
        if part is not None:
            own = set(split.indices(part).astype(float))
            assert set(ids(rows)) <= own
            assert len(set(ids(rows))) == len(rows)
            np.testing.assert_array_equal(ids(rows), ids(targets))
        elif not of_both + of_X + of_y:
            raise AssertionError("rows as they were handed out are of the part")

    check()


HONEST = {
    np.array: ("slice", "subset", "shuffle", "mask", "copy", "reverse", "of scikit-learn"),
    pd.DataFrame: ("head", "sample", "loc", "copy", "halves", "sort"),
}


@pytest.mark.parametrize(("operations", "container"), [(ARRAYS, np.array), (FRAMES, pd.DataFrame)])
def test_what_selects_rows_of_a_part_stays_of_it_and_nothing_else(operations, container) -> None:
    for name, operation in operations.items():
        table = container(np.column_stack([X, np.arange(N, dtype=float)]))
        _, ((a, t), (b, u)) = halves(table, table)
        rows, targets = (operation(*of, np.random.default_rng(1)) for of in ((a, b), (t, u)))
        expected = {"other": "test"}.get(name, "train" if name in HONEST[container] else None)
        assert is_proved(rows, targets) == expected, name


# --- writes in place, targets alone, repeats ------------------------------------------------------


def test_rows_of_another_part_written_over_those_of_one_cost_the_sum() -> None:
    _, (train, test) = halves(X, y)
    assert of_pairs(train, test) < ONE
    (rows, labels), same = halves(X, y)[1][0], of_pairs(train, train)
    rows[:], labels[:] = test
    assert of_pairs((rows, labels), test) == pytest.approx(same)


def test_targets_alone_earn_nothing() -> None:
    _, (train, test) = halves(X, y)
    assert of_pairs((np.asarray(train[0]), train[1]), test) > 1.2
    assert of_pairs((train[0], np.asarray(train[1])), test) > 1.2
    fitted = model().fit(np.asarray(train[0]), train[1])
    assert "counted with all rows and not as part 'train'" in fitted.privacy_.sampling


@pytest.mark.parametrize("container", [np.asarray, lambda a: pd.DataFrame(a).squeeze()])
def test_a_row_that_is_there_many_times_is_no_part(container) -> None:
    _, ((rows, labels), test) = halves(container(X), container(y))
    picked = [3] * 20
    if container is np.asarray:
        one = rows[picked], labels[picked]
    else:
        one = rows.iloc[picked], labels.iloc[picked]
    assert of_pairs(one, test) > 1.2


def test_equal_values_at_different_places_are_rows_of_their_own() -> None:
    _, (train, test) = halves(np.zeros((N, 2)), np.arange(N) % 2)
    assert of_pairs(train, test) < ONE
    some = [0, 4, 9]
    assert part_read(train[0][some], train[1][some]).why_not == ""
    assert part_read(train[0][[0, 0]], train[1][[0, 0]]).why_not


def test_rows_and_targets_in_different_orders_are_no_part() -> None:
    _, ((rows, labels), _) = halves(X, y)
    assert part_read(rows[::-1], labels[::-1]).why_not == ""
    assert part_read(rows[::-1], labels).why_not
    assert part_read(rows[1:], labels[:-1]).why_not


def test_rows_that_are_twice_in_a_table_cannot_be_split() -> None:
    _, ((rows, labels), _) = halves(X, y)
    twice = np.tile(np.arange(15), 2)
    second = DisjointSplit(30, test_size=0.5)
    assert part_read(*second.take("train", rows[twice], labels[twice])) is None
    assert part_read(*second.take("train", rows, labels)).within is not None


def test_parts_of_a_part_are_proved_at_both_levels() -> None:
    _, ((rows, labels), _) = halves(X, y)
    second = DisjointSplit(30, test_size=0.5)
    mark = part_read(*second.take("train", rows, labels))
    assert (mark.why_not, mark.within.why_not) == ("", "")
    changed = rows.copy()
    changed[0] = 9.0  # before the second split: the table that it splits is another one
    mark = part_read(*second.take("train", changed, labels))
    assert mark.why_not == ""
    assert mark.within is None or mark.within.why_not
    # One order of X and another of the targets: a row of the first split is in both parts.
    mark = part_read(*second.take("train", rows[::-1], labels))
    assert mark.within.why_not


def test_columns_are_compared_too() -> None:
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(y=y, sex=["f", "m"] * (N // 2), zero=0)
    _, (train, test) = halves(frame)
    assert part_read(train[["zero"]], train["y"]).why_not == ""
    train["zero"] = train["zero"].astype(float)  # of the same bits
    assert part_read(train[["zero"]], train["y"]).why_not
    assert part_read(train[["b"]], train["y"]).why_not == ""
    assert part_read(train[["a", "sex"]], train["y"]).why_not == ""
    train["a"] = test["a"].to_numpy()
    assert part_read(train[["b"]], train["y"]).why_not == ""
    assert part_read(train[["a"]], train["y"]).why_not
    train["sex"] = train["sex"].astype("category")
    assert part_read(train[["sex"]], train["y"]).why_not
    rows, _ = halves(np.column_stack([X, y]))[1]
    assert part_read(rows[:, :2], rows[:, 2]).why_not == ""
    assert part_read(rows[:, [1]], rows[5:, 2]).why_not


def test_what_can_be_written_to_inside_a_cell_is_of_no_part() -> None:
    _, (train, _) = halves(pd.DataFrame({"a": [[i] for i in range(N)], "b": range(N)}))
    assert part_read(train[["a"]], None).why_not
    assert part_read(train[["b"]], None).why_not == ""


@pytest.mark.parametrize(
    "made", [sparse.csr_array, sparse.lil_array, sparse.coo_matrix, pl.DataFrame]
)
def test_other_containers_are_known_by_themselves(made) -> None:
    _, (train, _) = halves(made(X), y)
    assert part_read(*train).why_not == ""
    assert part_read(train[0][:5], train[1][:5]).why_not
    if hasattr(train[0], "data"):
        train[0].data[0] = 9.0
        assert part_read(*train).why_not


# --- what else belongs to a row -------------------------------------------------------------------


def test_weights_of_other_rows_are_no_part() -> None:
    weights = rng.uniform(0.5, 1, N)
    split, ((rows, labels, own), (_, _, other)) = halves(X, y, weights)
    fits = [
        model(max_sample_weight=1.0).fit(rows, labels, sample_weight=given)
        for given in (own, np.asarray(other), np.asarray(own))
    ]
    assert [f"of part 'train' of {split.id}" in fit.privacy_.sampling for fit in fits] == [
        True,
        False,
        False,
    ]
    network = DPSGDClassifier(
        1.0, hidden_layer_sizes=(), max_iter=3, classes=[0, 1], n_samples=30, max_sample_weight=1.0
    )
    assert (
        "not as part" in network.fit(rows, labels, sample_weight=np.asarray(own)).privacy_.sampling
    )


def test_exposures_of_other_rows_are_no_part() -> None:
    _, ((rows, counts, own), _) = halves(X, y, np.ones(N))
    fit = DPVariationalPoissonRegression(
        largest_count=3, n_samples=30, epsilon=1.0, delta=DELTA
    ).fit
    assert "not as part" not in fit(rows, counts, exposure=own).privacy_.sampling
    assert "not as part" in fit(rows, counts, exposure=np.asarray(own)).privacy_.sampling


PATIENTS, VISITS = np.arange(N) // 4, np.arange(N)


@pytest.mark.parametrize("labels", [lambda g: g, lambda g: g.astype(str), lambda g: g.tolist()])
def test_persons_are_disjoint_where_the_split_was_made_by_their_labels(labels) -> None:
    def fit(of_split, of_fit):
        _, parts = halves(X, y, of_fit, groups=of_split)
        persons = {"unit": Persons(15, rows_per_group=2)}
        fits = [
            model(**persons).fit(rows, targets, groups=labels(np.asarray(groups)))
            for rows, targets, groups in parts
        ]
        return privacy_of(*fits)

    assert fit(PATIENTS, PATIENTS).epsilon < ONE
    told = fit(VISITS, PATIENTS)
    assert told.epsilon > 1.2
    assert "the labels of these persons" in told.sampling


def test_labels_that_are_written_to_later_do_not_move_rows() -> None:
    groups = PATIENTS.copy()
    split = DisjointSplit(N, groups=groups)
    before = split.train.tolist()
    groups[:] = 0
    assert split.train.tolist() == before


# --- pipelines ------------------------------------------------------------------------------------


def test_steps_of_this_library_hand_the_part_on() -> None:
    _, (train, test) = halves(X, y)
    steps = lambda: make_pipeline(BoundedScaler(lower=-1, upper=1), model())  # noqa: E731
    assert total(*(lambda rows=rows: steps().fit(*rows) for rows in (train, test))) < ONE


def test_steps_of_other_libraries_are_fitted_by_the_split() -> None:
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(sex=["f", "m"] * (N // 2))
    split, (train, test) = halves(frame, y)

    def steps():
        encoder = OneHotEncoder(categories=[["f", "m"]], sparse_output=False)
        columns = ColumnTransformer([("sex", encoder, ["sex"])], remainder="passthrough")
        return make_pipeline(columns, FunctionTransformer(np.abs), model())

    assert total(*(lambda rows=rows: steps().fit(*rows) for rows in (train, test))) > 1.2
    fits = (lambda part=part: split.fit_part(steps(), part, frame, y) for part in split.parts)
    assert total(*fits) < ONE
    # Trust ends with the call, and is of one part alone.
    assert "not as part" in privacy_of(steps().fit(*test)).sampling
    assert total(*(lambda rows=rows: steps().fit(*rows) for rows in (train, test))) > 1.2


def test_a_split_that_fits_compares_targets_weights_and_persons() -> None:
    split = DisjointSplit(N, groups=PATIENTS)
    persons = {"unit": Persons(8, rows_per_group=4)}
    steps = lambda: make_pipeline(FunctionTransformer(np.abs), model(**persons))  # noqa: E731

    class Other(DPVariationalLogisticRegression):
        def fit(self, X, y):
            return super().fit(np.abs(X), np.asarray(y))

    sums = []
    for groups in (PATIENTS, VISITS):
        fits = [
            split.fit_part(steps(), part, X, y, dpvariationallogisticregression__groups=groups)
            for part in split.parts
        ]
        sums.append(privacy_of(*fits).epsilon)
    assert sums[0] < ONE < 1.2 < sums[1]
    other = split.fit_part(Other(1.0, classes=[0, 1], n_samples=30), "train", X, y)
    assert "of part" not in other.privacy_.sampling


def test_conformal_models_with_foreign_steps_and_reports_on_predictions() -> None:
    steps = make_pipeline(FunctionTransformer(np.abs), model(n_samples=None))
    conformal = DPConformalClassifier(steps, epsilon=1.0, n_samples=N).fit(X, y)
    assert conformal.privacy_.epsilon < ONE
    _, (train, test) = halves(X, y)
    fitted = model().fit(*train)
    report = private_report(
        test[1], fitted.predict_proba(test[0]), epsilon=1.0, classes=[0, 1], n_samples=30
    )
    assert privacy_of(fitted, report).epsilon < ONE
    report = DPEvaluator(fitted, epsilon=1.0, n_samples=30).report(*test)
    assert privacy_of(fitted, report).epsilon < ONE
    plain = np.asarray(fitted.predict_proba(test[0]))
    report = private_report(test[1], plain, epsilon=1.0, classes=[0, 1], n_samples=30)
    assert privacy_of(fitted, report).epsilon > 1.2


def test_subgroups_of_other_rows_are_no_part() -> None:
    side = np.where(X[:, 1] > 0, "right", "left")
    split, (train, test) = halves(X, y)
    fitted = model().fit(*train)
    evaluator = DPEvaluator(fitted, epsilon=1.0, n_samples=30)
    own, others = (split.take(part, side) for part in ("test", "train"))
    proba = fitted.predict_proba(test[0])
    how = {"epsilon": 1.0, "classes": [0, 1], "n_samples": 30}
    for release in (
        lambda of: evaluator.report(*test, subgroup=of, subgroups=["left", "right"]),
        lambda of: private_report(test[1], proba, subgroup=of, subgroups=["left", "right"], **how),
    ):
        assert privacy_of(fitted, release(own)).epsilon < ONE
        for of in (np.asarray(own), np.asarray(others), own[::-1]):
            report = release(of)
            assert privacy_of(fitted, report).epsilon > 1.2
            assert "what else was given with each row" in report.privacy_.sampling
        with pytest.raises(ValueError, match="of one part of one split"):
            release(others)


def test_intervals_of_other_rows_are_no_part() -> None:
    target = X[:, 0] + X[:, 1]
    split, (train, test) = halves(X, target)
    how = {"target_bounds": (-2, 2), "n_samples": 30}
    fitted = DPVariationalLinearRegression(1.0, **how).fit(*train)
    mean, deviation = fitted.predict(test[0], return_std=True)

    def total_with(low, high):
        report = private_regression_report(
            test[1], mean, residual_bound=2, y_lower=low, y_upper=high, **how
        )
        return privacy_of(fitted, report).epsilon

    assert total_with(None, None) < ONE  # each of the two predictions is of the part
    assert total_with(mean, mean) < ONE < 1.2 < total_with(mean, mean + deviation)
    assert total_with(mean, np.asarray(mean)) > 1.2
    predicted, deviation = fitted.predict(X, return_std=True)
    low, high = split.take("test", predicted - deviation, predicted + deviation)
    assert total_with(low, high) < ONE < 1.2 < total_with(low[::-1], high)
    with pytest.raises(ValueError, match="of one part of one split"):
        total_with(train[1], train[1])


def test_what_is_predicted_is_of_the_part_of_all_that_it_is_made_of() -> None:
    exposure = np.full(N, 2.0)
    _, (train, test) = halves(X, y, exposure)
    counts = DPVariationalPoissonRegression(1.0, n_samples=30).fit(*train)
    rows, targets, own = test
    for made in (counts.predict(rows), *counts.predict(rows, return_std=True)):
        assert is_proved(made, targets) == "test"
    assert is_proved(counts.predict(rows, exposure=own), targets) == "test"
    assert is_proved(counts.predict(rows, exposure=2.0 * np.ones(30)), targets) is None
    assert is_proved(counts.predict(rows, exposure=train[2]), targets) is None
    frozen = FrozenEstimator(model().fit(*train[:2]))
    sets = DPConformalClassifier(frozen, epsilon=1.0, n_samples=30).fit(*test[:2])
    assert is_proved(sets.predict_set(rows), targets) == "test"
    assert is_proved(sets.predict_proba(rows), targets) == "test"
    line = FrozenEstimator(DPVariationalLinearRegression(target_bounds=(0, 1)).fit(*train[:2]))
    intervals = DPConformalRegressor(line, residual_bound=1, n_samples=30).fit(*test[:2])
    assert is_proved(intervals.predict_interval(rows)[:, 0], targets) == "test"


def test_columns_of_two_levels_are_compared_by_both() -> None:
    names = pd.MultiIndex.from_tuples([("a", "b"), ("a", "c"), ("b", "y")])
    _, (train, _) = halves(pd.DataFrame(np.column_stack([X, y]), columns=names))
    rows = train[0] if isinstance(train, list) else train
    assert is_proved(rows[[("a", "b"), ("a", "c")]], rows[("b", "y")]) == "train"
    assert is_proved(rows["a"], rows[("b", "y")]) is None  # "b" names two columns here


@pytest.mark.parametrize(
    "labels",
    [pd.IntervalIndex.from_arrays(np.arange(N), np.arange(N) + 2), [[i] for i in range(N)]],
    ids=["intervals that overlap", "lists"],
)
def test_labels_that_cannot_be_looked_up_are_no_crash(labels) -> None:
    frame = pd.DataFrame({"a": X[:, 0], "y": y}, index=pd.Index(labels))
    rows = DisjointSplit(N).take("train", frame)
    assert is_proved(rows[["a"]], rows["y"]) == "train"
    some = rows.iloc[::2]
    assert is_proved(some[["a"]], some["y"]) is None


def test_tables_of_arrow_are_rows_and_what_has_none_is_refused() -> None:
    arrow = pytest.importorskip("pyarrow")
    table, targets = arrow.table({"a": X[:, 0], "b": X[:, 1]}), arrow.array(y)
    split = DisjointSplit(N, test_size=0.5)
    train, test = (split.take(part, table, targets) for part in ("train", "test"))
    assert of_pairs(train, test) < ONE < 1.2 < of_pairs(train, train)
    fits = [split.fit_part(model(), part, table, targets) for part in ("train", "test")]
    assert privacy_of(*fits).epsilon < ONE
    np.testing.assert_array_equal(split.take("train", range(N)), split.train)
    for nothing in (None, (row for row in X), {"a": X}, set(range(N)), 1.0):
        with pytest.raises(ValueError, match=f"to take rows of, got {type(nothing).__name__}"):
            split.take("train", nothing)
        with pytest.raises(ValueError, match=f"to take rows of, got {type(nothing).__name__}"):
            split.fit_part(model(), "train", nothing, y)
