"""`DisjointSplit`: parts, marks, who may believe them, and what they cost."""

from __future__ import annotations

import copy
import json
import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skdp import (
    BoundedScaler,
    DisjointSplit,
    DPRandomizedSearch,
    DPSGDClassifier,
    DPStandardScaler,
    DPVariationalLogisticRegression,
    Persons,
    PrivacyLedger,
    privacy_of,
)
from skdp.calibration import DPTemperatureScaler
from skdp.privacy import PrivacyReport
from skdp.privacy.parts import PartDpEvent
from skdp.rows.parts import part_read

N = 400
rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (N, 3))
y = (X[:, 0] + 0.3 * rng.normal(size=N) > 0).astype(int)
GROUPS = rng.integers(0, 90, N)
DELTA = 1e-5


def model(n_samples: int = N // 2, **parameters) -> DPVariationalLogisticRegression:
    return DPVariationalLogisticRegression(
        **({"epsilon": 1.0, "classes": [0, 1], "n_samples": n_samples} | parameters)
    )


def pipeline(**parameters):
    scaler = DPStandardScaler(epsilon=0.5, lower=-1, upper=1)
    return make_pipeline(BoundedScaler(lower=-1, upper=1), scaler, model(**parameters))


def mark_of(rows):
    """Part that rows are proved to be of."""
    mark = part_read(rows, None)
    return None if mark is None or mark.why_not else mark


def as_frame(array):
    return pd.DataFrame(array) if array.ndim == 2 else pd.Series(array)


# --- parts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 10, 401])
@pytest.mark.parametrize("parts", [None, {"train": 0.5, "calibrate": 0.3, "test": 0.2}])
@pytest.mark.parametrize("relation", ["zero_out", "replace_one", "add_or_remove_one"])
def test_every_row_is_of_one_part(n: int, parts, relation: str) -> None:
    split = DisjointSplit(n, parts=parts, neighboring_relation=relation)
    found = np.concatenate([split.indices(part) for part in split.parts])
    assert sorted(found) == list(range(n))
    if relation != "add_or_remove_one":
        assert all(len(split.indices(part)) == split.n_samples_of(part) for part in split.parts)


def test_sizes_and_chances() -> None:
    counts = np.zeros(40)
    for seed in range(2000):
        split = DisjointSplit(40, test_size=0.25, random_state=seed)
        assert len(split.test) == 10
        counts[split.test] += 1
    assert abs(counts / 2000 - 0.25).max() < 5 * (0.25 * 0.75 / 2000) ** 0.5
    coins = DisjointSplit(100_000, test_size=0.25, neighboring_relation="add_or_remove_one")
    assert abs(len(coins.test) - 25_000) < 5 * (100_000 * 0.1875) ** 0.5


def test_a_row_more_moves_no_other_under_coins() -> None:
    split = DisjointSplit(N, neighboring_relation="add_or_remove_one")
    parts = [split.take("train", np.arange(n)) for n in (N, N + 1)]
    assert set(parts[1]) - {N} == set(parts[0])


def test_persons_are_whole_and_move_no_other() -> None:
    split = DisjointSplit(N, groups=GROUPS)
    assert not set(GROUPS[split.train]) & set(GROUPS[split.test])
    token = split.token
    without = GROUPS[0] != GROUPS
    again = DisjointSplit.from_token(token, groups=GROUPS[without])
    ids = again.take("test", GROUPS[without])
    assert set(ids) == set(GROUPS[split.test]) - {GROUPS[0]}


@pytest.mark.parametrize("kind", [np.int32, float, object, list, str])
def test_a_token_gives_the_same_parts_of_labels_of_other_types(kind) -> None:
    split = DisjointSplit(N, groups=GROUPS)
    groups = GROUPS.tolist() if kind is list else GROUPS.astype(kind)
    again = DisjointSplit.from_token(split.token, groups=groups)
    assert (again.test == split.test).all()
    assert again.id == split.id


def test_a_token_is_the_split() -> None:
    for relation in ("zero_out", "add_or_remove_one"):
        split = DisjointSplit(N, neighboring_relation=relation)
        again = DisjointSplit.from_token(split.token)
        assert (again.train == split.train).all()
        assert again.id == split.id
        assert mark_of(again.take("train", y)) == mark_of(split.take("train", y))
    assert DisjointSplit(N).id != DisjointSplit(N).id
    assert DisjointSplit(N, random_state=1).id == DisjointSplit(N, random_state=1).id
    key = json.loads(split.token)["key"]
    assert key not in repr(split)
    assert split.id not in key


def test_known_parts() -> None:
    """A token of today has the same parts in later versions."""
    assert DisjointSplit(12, random_state=0).test.tolist() == KNOWN
    groups = DisjointSplit.from_token(
        '{"version": 1, "n_samples": 6, "parts": {"train": 0.5, "test": 0.5}, '
        '"unit": "group", "by_coins": true, "key": "00ff"}',
        groups=["ann", "bo", "cy", "ann", "di", "ed"],
    )
    assert groups.test.tolist() == KNOWN_PERSONS


KNOWN = [0, 4, 5]
KNOWN_PERSONS = [0, 2, 3, 4]


# --- marks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("container", [np.asarray, as_frame])
def test_what_selects_rows_keeps_the_mark(container) -> None:
    split = DisjointSplit(N)
    rows, labels = split.take("train", container(X), container(y))
    for taken in (rows, labels):
        mark = mark_of(taken)
        assert (mark.split, mark.part) == (split.id, "train")
        for same in (taken[:20], taken.copy(), copy.copy(taken), copy.deepcopy(taken)):
            assert mark_of(same) == mark
        again = pickle.loads(pickle.dumps(taken))
        assert mark_of(again) is None
        np.testing.assert_array_equal(np.asarray(again), np.asarray(taken))
    np.testing.assert_array_equal(np.asarray(rows), X[split.train])
    assert mark_of(container(X)) is None


@pytest.mark.parametrize("container", [np.asarray, as_frame])
def test_joins_lose_the_mark(container) -> None:
    split = DisjointSplit(N)
    join = np.concatenate if container is np.asarray else pd.concat
    train, test = (split.take(part, container(X)) for part in ("train", "test"))
    assert mark_of(join([train, test])) is None
    assert mark_of(join([train, container(X)[:5]])) is None
    assert mark_of(join([train, train])) is None  # more rows than the part has


@pytest.mark.parametrize("column", [None, 0])
def test_a_frame_filled_with_rows_of_another_part_loses_the_mark(column) -> None:
    frame = as_frame(X) if column is None else as_frame(X)[column]
    train, test = (DisjointSplit(N, random_state=0).take(part, frame) for part in ("train", "test"))
    some = train.iloc[:100]
    assert mark_of(some) == mark_of(train)
    for filled in (some.combine_first(test), some.reindex(range(N)).combine_first(test)):
        assert mark_of(filled) is None
    assert mark_of(some.reset_index(drop=True)) is None  # other labels


@pytest.mark.parametrize(
    "made",
    [
        lambda rows: rows + 1,
        lambda rows: np.where(rows > 0, rows, 0),
        lambda rows: np.vstack([rows, rows]),
        lambda rows: np.sort(rows, axis=0),
        lambda rows: np.asarray(rows),
    ],
)
def test_other_arrays_have_none(made) -> None:
    assert mark_of(made(DisjointSplit(N).take("train", X))) is None


def test_what_comes_from_a_file_claims_nothing(tmp_path) -> None:
    pytest.importorskip("pyarrow")
    taken = DisjointSplit(N).take("test", as_frame(X).rename(columns=str))
    taken.to_parquet(tmp_path / "rows.parquet")
    assert mark_of(pd.read_parquet(tmp_path / "rows.parquet")) is None


@pytest.mark.parametrize("dumped", [pickle.dumps, lambda rows: repr(rows.attrs).encode()])
def test_no_value_is_in_what_says_of_which_part_rows_are(dumped) -> None:
    secret = pd.DataFrame({"who": [f"person {i}" for i in range(N)]})
    taken = DisjointSplit(N).take("test", secret)
    taken["who"] = "nobody"
    assert b"person" not in dumped(taken)


def test_a_mark_is_not_written_into_the_table_of_the_caller() -> None:
    rows = as_frame(X)
    DisjointSplit(N).take("test", rows)
    assert not rows.attrs


def test_a_split_does_not_change() -> None:
    split = DisjointSplit(N, test_size=0.5)
    split.parts["test"] = 0.9
    assert split.parts["test"] == 0.5
    for name in ("parts", "n_samples"):
        with pytest.raises(AttributeError):
            setattr(split, name, None)
    assert not set(split.train) & set(split.test)


def test_containers() -> None:
    split = DisjointSplit(N)
    assert split.take("test", X.tolist()).shape == (100, 3)
    assert split.take("test", sparse.csr_array(X)).shape == (100, 3)
    assert mark_of(split.take("test", sparse.csr_array(X))) is not None
    frame = split.take("test", pl.DataFrame(X))
    assert mark_of(frame) is not None
    assert mark_of(frame.head(5)) is None
    assert isinstance(frame, pl.DataFrame)
    assert frame.shape == (100, 3)
    assert len(split.take("test", X, y, GROUPS)) == 3


# --- what it costs --------------------------------------------------------------------------------


def total(*fits) -> float:
    """ε of fits by a ledger, which agrees with that of their statements."""
    with PrivacyLedger() as ledger:
        fitted = [fit() for fit in fits]
    found = ledger.total(DELTA)
    assert privacy_of(*fitted).epsilon == found
    return found


@pytest.mark.quick(2)
@pytest.mark.parametrize("container", [np.asarray, as_frame])
@pytest.mark.parametrize("estimator", [model, pipeline])
def test_two_parts_cost_the_larger(container, estimator) -> None:
    split = DisjointSplit(N)

    def fit(part: str, **parameters):
        rows = split.take(part, container(X), container(y))
        return lambda: estimator(n_samples=split.n_samples_of(part), **parameters).fit(*rows)

    alone = total(fit("train"))
    assert total(fit("train"), fit("test", epsilon=0.7)) == alone
    assert total(fit("train"), fit("train")) > 1.2 * alone
    whole = lambda: estimator(n_samples=N).fit(container(X), container(y))  # noqa: E731
    assert total(fit("train"), whole) == total(whole, whole) > 1.2 * alone


def test_folds_and_stratified_splits_add_up() -> None:
    split = DisjointSplit(N)
    search = GridSearchCV(model(n_samples=200), {"epsilon": [0.5, 1.0]}, cv=2)
    with PrivacyLedger() as ledger, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search.fit(*split.take("train", X, y))
        of_search = ledger.total(DELTA)
        model(n_samples=100).fit(*split.take("test", X, y))
    assert len(ledger.entries) == 6
    assert ledger.total(DELTA) == of_search > 1.5
    # By hand, by labels or not: nobody sees that these rows are disjoint.
    halves = np.argsort(y, kind="stable")[::2], np.argsort(y, kind="stable")[1::2]
    with PrivacyLedger() as ledger:
        for rows in halves:
            model().fit(X[rows], y[rows])
    assert ledger.total(DELTA) > 1.2


def test_a_scaler_of_all_rows_is_paid_by_every_part() -> None:
    split, fits = DisjointSplit(N), []
    scaler = DPStandardScaler(epsilon=0.5, lower=-1, upper=1).fit(X)
    for part in ("train", "test"):
        rows, labels = split.take(part, scaler.transform(X), y)
        fits.append(model(n_samples=split.n_samples_of(part)).fit(rows, labels))
    assert privacy_of(scaler, *fits).epsilon == privacy_of(scaler, fits[0]).epsilon > 1.05


def test_networks_calibration_and_search_see_the_part() -> None:
    split = DisjointSplit(N)
    train, test = split.take("train", X, y), split.take("test", X, y)
    network = DPSGDClassifier(
        1.0, hidden_layer_sizes=(), max_iter=5, classes=[0, 1], n_samples=300, sampling_rate=1.0
    ).fit(*train)
    calibrated = DPTemperatureScaler(FrozenEstimator(network), epsilon=0.5, n_samples=100)
    calibrated.fit(*test)
    assert calibrated.privacy_.epsilon == pytest.approx(network.privacy_.epsilon)
    search = DPRandomizedSearch(
        model(n_samples=300), {"prior_scale": [0.5, 1.0]}, epsilon=3.0, mean_trials=2, n_samples=300
    ).fit(*train)
    assert isinstance(search.privacy_.event, PartDpEvent)
    assert search.best_estimator_.privacy_ == search.privacy_
    assert privacy_of(search, calibrated).epsilon > search.privacy_.epsilon  # it holds the network
    later = model(n_samples=100).fit(*test)
    assert privacy_of(search, later).epsilon == search.privacy_.epsilon


def test_going_on_with_another_part() -> None:
    split = DisjointSplit(N)
    network = DPSGDClassifier(
        1.0, hidden_layer_sizes=(), max_iter=5, classes=[0, 1], n_samples=200, warm_start=True
    )
    first = network.fit(*split.take("train", X, y)).privacy_
    second = network.set_params(n_samples=100).fit(*split.take("test", X, y)).privacy_
    assert second.epsilon <= 1.001 * first.epsilon


def fits_on_parts(split, **parameters):
    """A fit on each part, told the persons where these are the records."""
    for part in split.parts:
        rows, labels, persons = split.take(part, X, y, GROUPS)
        groups = {"groups": persons} if "unit" in parameters else {}
        yield model(n_samples=200, **parameters).fit(rows, labels, **groups)


@pytest.mark.parametrize(
    ("made", "fitted", "why"),
    [
        (
            {"neighboring_relation": "add_or_remove_one"},
            {"neighboring_relation": "add_or_remove_one", "unit": Persons(90)},
            "a person may have rows in several parts",
        ),
        (
            {"groups": GROUPS},
            {"neighboring_relation": "replace_one"},
            "whoever takes another's place may be of another part",
        ),
    ],
)
def test_a_split_that_is_none_for_these_neighbours(made, fitted, why: str) -> None:
    report: PrivacyReport = privacy_of(*fits_on_parts(DisjointSplit(N, **made), **fitted))
    assert report.epsilon > 1.2
    assert why in report.sampling
    assert not report.assumptions


@pytest.mark.parametrize(
    "fitted",
    [
        {"neighboring_relation": "add_or_remove_one"},
        {"unit": Persons(90)},
        {"unit": Persons(90), "neighboring_relation": "replace_one"},
    ],
)
def test_places_that_a_record_more_would_change_are_refused(fitted) -> None:
    first, second = (DisjointSplit(n, random_state=0).train for n in (N, N - 1))
    assert len(set(first) ^ set(second + 1)) > N / 4  # without the first row
    rows, labels, persons = DisjointSplit(N, random_state=0).take("train", X, y, GROUPS)
    groups = {"groups": persons} if "unit" in fitted else {}
    missing = "groups" if groups else "neighboring_relation"
    told = rf"DisjointSplit with {missing}=.* assigned rows by their places"
    with PrivacyLedger() as ledger, pytest.raises(ValueError, match=told):
        model(n_samples=300, **fitted).fit(rows, labels, **groups)
    assert not ledger.entries


@pytest.mark.parametrize("unit", ["row", "group"])
@pytest.mark.parametrize("relation", ["zero_out", "add_or_remove_one"])
def test_persons(unit: str, relation: str) -> None:
    split = DisjointSplit(N, groups=GROUPS, neighboring_relation=relation)
    more = {"unit": Persons(50)} if unit == "group" else {}
    report = privacy_of(*fits_on_parts(split, neighboring_relation=relation, **more))
    assert report.epsilon == pytest.approx(1.0)
    assert "the same rows in the same order" in report.assumptions[-1]


def test_the_fit_is_that_of_the_same_rows_without_a_mark() -> None:
    rows, labels = DisjointSplit(N).take("train", X, y)
    plain = np.array(rows), np.array(labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one, other = (model(random_state=0).fit(*given) for given in ((rows, labels), plain))
    np.testing.assert_array_equal(one.coef_, other.coef_)


# --- bad input ------------------------------------------------------------------------------------


def test_parts_that_are_mixed() -> None:
    split = DisjointSplit(N, test_size=0.5)
    with PrivacyLedger() as ledger:
        with pytest.raises(ValueError, match="of one part of one split"):
            model().fit(split.take("train", X), split.take("test", y))
        with pytest.raises(ValueError, match="of one part of one split"):
            model().fit(split.take("train", X), DisjointSplit(N, test_size=0.5).take("train", y))
    assert not ledger.entries
    # Rows that were made anew before their part was split again have the mark of the second.
    train, labels = split.take("train", X, y)
    second = DisjointSplit(len(labels), test_size=0.5)
    rows = second.take("train", np.array(train))
    one = model(n_samples=100).fit(rows, second.take("train", labels)).privacy_.event
    assert isinstance(one, PartDpEvent)
    assert one.split == second.id
    assert not isinstance(one.event, PartDpEvent)
    both = model(n_samples=100).fit(*second.take("train", train, labels)).privacy_.event
    assert isinstance(both.event, PartDpEvent)
    with pytest.raises(ValueError, match="of one part of one split"):
        model().fit(train[:100], second.take("train", labels))
    # Rows alone prove nothing, where there are targets.
    fitted = model().fit(split.take("train", X), np.array(split.take("train", y)))
    assert not isinstance(fitted.privacy_.event, PartDpEvent)


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"n_samples": 0}, "n_samples=0"),
        ({"n_samples": 2.5}, "n_samples"),
        ({"test_size": 0.0}, "test_size"),
        ({"test_size": 1}, "test_size"),
        ({"parts": {"train": 1.0}}, "parts"),
        ({"parts": {"train": 0.5, "test": 0.6}}, "parts"),
        ({"parts": {"train": 1.5, "test": -0.5}}, "parts"),
        ({"parts": {1: 0.5, 2: 0.5}}, "parts"),
        ({"parts": [0.5, 0.5]}, "parts"),
        ({"neighboring_relation": "other"}, "neighboring_relation"),
        ({"neighboring_relation": "replace_one", "groups": GROUPS}, "with groups"),
        ({"neighboring_relation": "add_or_remove_one", "random_state": 0}, "random_state"),
        ({"groups": GROUPS, "random_state": 0}, "random_state"),
        ({"random_state": -1}, "random_state"),
    ],
)
def test_bad_parameters(parameters, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        DisjointSplit(**({"n_samples": N} | parameters))


def test_bad_calls() -> None:
    split = DisjointSplit(N)
    with pytest.raises(ValueError, match="one of 'train', 'test'"):
        split.take("validation", X)
    with pytest.raises(ValueError, match="arrays to take rows of"):
        split.take("train")
    with pytest.raises(ValueError, match="400 rows of the table that was split"):
        split.take("train", X[:50])
    with pytest.raises(ValueError, match="token of a DisjointSplit"):
        DisjointSplit.from_token("{}")
    with pytest.raises(ValueError, match="None: the split is of rows"):
        DisjointSplit.from_token(split.token, groups=GROUPS)
    with pytest.raises(ValueError, match="the person of each row"):
        DisjointSplit.from_token(DisjointSplit(N, groups=GROUPS).token)
    with pytest.raises(ValueError, match="one hashable label per row"):
        DisjointSplit(N, groups=GROUPS[:7]).take("train", X)
