"""``data_norm="auto"`` takes the norm that the steps before declare, in whatever container."""

import copy
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import OneHotEncoder

from skdp import (
    DPPCA,
    BoundedScaler,
    DPQuantileScaler,
    DPStandardScaler,
    DPVariationalLinearRegression,
    DPVariationalLogisticRegression,
    DPVariationalPoissonRegression,
    FitWarning,
    NormClipper,
    OPSPosteriorSampler,
    OPSRegressor,
)
from skdp.rows.bounds import BoundedRows, bounded, carried, declared, norm_lost, row_norm

RNG = np.random.default_rng(0)
X, Y = RNG.uniform(-1, 1, (40, 4)), RNG.integers(0, 2, 40)
ESTIMATORS = [
    DPVariationalLogisticRegression(max_iter=1),
    DPVariationalLogisticRegression(max_iter=1, inference="dpvi"),
    DPVariationalPoissonRegression(max_iter=1),
    DPVariationalLinearRegression(max_iter=1),
    OPSPosteriorSampler(),
    OPSPosteriorSampler(delta=0),
    OPSRegressor(target_bounds=(0, 1)),
]


class Declare(TransformerMixin, BaseEstimator):
    def __init__(self, norm=0.5):
        self.norm = norm

    def fit(self, X, y=None):
        return self

    def __sklearn_is_fitted__(self):
        return True

    def transform(self, X):
        return BoundedRows(X, self.norm)


def names(estimator):
    return f"{type(estimator).__name__}-{getattr(estimator, 'inference', estimator.delta)}"


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=names)
def test_auto_is_the_declared_norm(estimator):
    model = make_pipeline(Declare(), estimator).fit(X, Y)
    assert model[-1].data_norm_ == 0.5
    model.predict(X)


@pytest.mark.parametrize("estimator", ESTIMATORS[:2], ids=names)
def test_a_given_norm_wins(estimator):
    given = make_pipeline(Declare(), clone(estimator).set_params(data_norm=1.5)).fit(X, Y)
    assert given[-1].data_norm_ == 1.5


def test_rows_beyond_a_declared_norm_are_clipped_all_the_same():
    noiseless = DPVariationalLogisticRegression(float("inf"), inference="dpvi", max_iter=600)
    plain = clone(noiseless).set_params(data_norm=0.5).fit(X, Y)
    wrong = clone(noiseless).fit(BoundedRows(X, 0.5), Y)
    unclipped = clone(noiseless).set_params(data_norm=2.0).fit(X, Y)
    np.testing.assert_allclose(wrong.coef_, plain.coef_, atol=0.05)
    assert np.abs(wrong.coef_ - unclipped.coef_).max() > 0.2


def test_what_is_done_to_the_rows_takes_the_declaration_away():
    rows = BoundedRows(X, 0.5)
    for other in (rows[:3], rows * 2, rows + 1, np.sqrt(np.abs(rows)), rows.sum(axis=1)):
        assert type(other) is np.ndarray
    assert type(rows.sum()) is np.float64
    assert repr(rows) == repr(X)


# --- containers ---------------------------------------------------------------------------------

OUTPUTS = ["default", "pandas", "polars"]
TABLE = pd.DataFrame(X, columns=list("abcd")).assign(kind=np.arange(40) % 3)
TABLES = {"pandas": TABLE, "polars": pl.DataFrame({name: TABLE[name].tolist() for name in TABLE})}
NUMBERS, HALVES = ["a", "b", "c", "d"], (["a", "b"], ["c", "d"])
ONE_HOT = ("kind", OneHotEncoder(sparse_output=False), ["kind"])
# Of norms: other warnings follow the noise.
SILENT = pytest.mark.filterwarnings(
    "error:.*declared a norm:skdp.FitWarning",
    "error:A declared norm:skdp.FitWarning",
    "ignore::skdp.PrivacyWarning",
)


def direct():
    return NormClipper(0.5)


def union():
    return FeatureUnion([("short", NormClipper(0.3)), ("long", NormClipper(0.4))])


def columns():
    steps = [("short", NormClipper(0.3), HALVES[0]), ("long", NormClipper(0.4), HALVES[1])]
    return ColumnTransformer(steps)


def with_one_hot():
    """The norm of features in [-1, 1] is the automatic one, with one-hot columns or without."""
    return ColumnTransformer([("scaled", BoundedScaler(), NUMBERS), ONE_HOT])


def scaled_and_clipped():
    return ColumnTransformer(
        [("scaled", BoundedScaler(), HALVES[0]), ("clipped", NormClipper(0.5), HALVES[1])]
    )


# What makes the rows, their norm, and whether joined frames of polars lose it.
STEPS = [
    (direct, 0.5, False),
    (union, 0.5, True),
    (columns, 0.5, True),
    (with_one_hot, 7**0.5, False),
    (scaled_and_clipped, 1.5, True),
]
KEPT = [
    pytest.param(make, norm, output, id=f"{make.__name__}-{output}")
    for make, norm, is_lost in STEPS
    for output in OUTPUTS
    if not (is_lost and output == "polars")
]


def fitted(steps, output="default", table=TABLE, **params):
    """A fit whose seed repeats the noise, so that equal settings give equal posteriors."""
    numbers = table if isinstance(steps, ColumnTransformer) else table[NUMBERS]
    model = DPVariationalLogisticRegression(max_iter=2, random_state=0, **params)
    return make_pipeline(steps, model).set_output(transform=output).fit(numbers, Y)[-1]


@pytest.mark.quick(8)
@SILENT
@pytest.mark.parametrize("table", list(TABLES))
@pytest.mark.parametrize(("make", "norm", "output"), KEPT)
def test_the_container_changes_neither_norm_nor_posterior(make, norm, output, table):
    model, plain = fitted(make(), output, TABLES[table]), fitted(make())
    assert model.data_norm_ == pytest.approx(norm, rel=1e-15)
    assert not any("declared a norm" in said for said in model.diagnostics_)
    assert model.privacy_.event == plain.privacy_.event
    for name in ("data_norm_", "prior_scale_", "clip_norm_", "coef_", "covariance_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(plain, name))


@SILENT
@pytest.mark.parametrize(("make", "norm", "output"), KEPT)
def test_names_come_from_frames(make, norm, output):
    steps = make()
    names = [f"x{i}" for i in range(8)]
    numbers = TABLE if isinstance(steps, ColumnTransformer) else TABLE[NUMBERS]
    if output != "default":
        names = list(steps.set_output(transform=output).fit(numbers).get_feature_names_out())
    model = fitted(steps, output)
    assert model.parameter_names_ == [*names[: model.n_features_in_], "intercept"]


@SILENT
@pytest.mark.parametrize(("make", "norm", "output"), KEPT)
def test_a_cached_pipeline_keeps_the_norm(make, norm, output, tmp_path):
    steps, estimator = make(), DPVariationalLogisticRegression(max_iter=1)
    numbers = TABLE if isinstance(steps, ColumnTransformer) else TABLE[NUMBERS]
    model = make_pipeline(steps, estimator, memory=str(tmp_path)).set_output(transform=output)
    for _ in range(2):  # from the steps, then from the cache
        assert clone(model).fit(numbers, Y)[-1].data_norm_ == pytest.approx(norm, rel=1e-15)


@SILENT
@pytest.mark.parametrize("output", OUTPUTS[1:])
@pytest.mark.parametrize("make", [union, columns], ids=lambda make: make.__name__)
def test_frames_that_are_joined_as_arrays_keep_it(make, output):
    steps = make()
    for name in ("short", "long"):
        steps.set_params(**{name: steps.get_params()[name].set_output(transform=output)})
    assert fitted(steps).data_norm_ == pytest.approx(0.5)


@SILENT
@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize(
    "transformer",
    [
        BoundedScaler(),
        NormClipper(0.5),
        DPStandardScaler(output_norm=2.5),
        DPQuantileScaler(),
        DPPCA(2, data_norm=0.7),
    ],
    ids=lambda transformer: type(transformer).__name__,
)
def test_each_transformer_declares_its_norm_in_each_container(transformer, output):
    transformer = clone(transformer).set_output(transform=output)
    kind = {"default": np.ndarray, "pandas": pd.DataFrame, "polars": pl.DataFrame}[output]
    for rows in (transformer.fit_transform(TABLE[NUMBERS]), transformer.transform(TABLE[NUMBERS])):
        assert isinstance(rows, kind)
        assert row_norm(rows) == transformer.output_norm_
        if output != "default":
            assert list(rows.columns) == list(transformer.get_feature_names_out())


# --- a norm that is lost ------------------------------------------------------------------------


def lossy():
    return ColumnTransformer([("clipped", NormClipper(0.5), NUMBERS), ONE_HOT])


@pytest.mark.quick(5)
@pytest.mark.parametrize("output", ["default", "pandas"])
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=names)
def test_a_fit_that_does_not_use_a_declared_norm_says_so(estimator, output):
    steps = lossy().set_output(transform=output)
    with pytest.warns(FitWarning, match="data_norm=, or put a NormClipper"):
        model = make_pipeline(steps, clone(estimator)).fit(TABLE, Y)[-1]
    assert model.data_norm_ == 7**0.5
    assert "√7" in model.diagnostics_[0]
    given = clone(estimator).set_params(data_norm=2.0)
    for remedy in ([given], [NormClipper(2.0), clone(estimator)]):
        model = make_pipeline(steps, *remedy).fit(TABLE, Y)[-1]
        assert not any("declared a norm" in said for said in model.diagnostics_)


def test_the_mark_survives_the_cache_of_a_pipeline(tmp_path):
    model = make_pipeline(
        lossy(), DPVariationalLogisticRegression(max_iter=1), memory=str(tmp_path)
    )
    for _ in range(2):
        with pytest.warns(FitWarning, match="data_norm="):
            clone(model).fit(TABLE, Y)


@pytest.mark.parametrize("make", [union, columns, lossy], ids=lambda make: make.__name__)
def test_joined_frames_of_polars_lose_it_and_the_join_says_so(make):
    if make is union and tuple(map(int, sklearn.__version__.split(".")[:2])) < (1, 9):
        pytest.skip("unions of earlier versions join frames of polars without renaming columns")
    numbers = TABLE[NUMBERS] if make is union else TABLE
    with pytest.warns(FitWarning, match="data_norm='auto' takes"):
        rows = make().set_output(transform="polars").fit_transform(numbers)
    assert row_norm(rows) is None


@SILENT
def test_polars_are_silent_where_nothing_is_joined_or_lost():
    rows = NormClipper(0.5).set_output(transform="polars").fit_transform(TABLE[NUMBERS])
    rows.columns = NUMBERS  # the same names
    assert row_norm(rows) == 0.5
    assert rows.rename({"a": "e"}).columns == ["e", "b", "c", "d"]
    with_one_hot().set_output(transform="polars").fit_transform(TABLE)


def test_the_join_of_a_join_is_marked_too():
    rows, plain = bounded(X, 0.5), np.ones((40, 1))
    lost = np.hstack([rows, plain])
    assert norm_lost(lost)
    assert norm_lost(np.hstack([lost, rows]))
    assert norm_lost(np.concatenate([plain, lost], axis=-1))
    assert not norm_lost(np.hstack([bounded(X, 2.0), plain]))  # 2 = √4
    assert not norm_lost(lost * 1)


# --- what keeps it, and what does not -----------------------------------------------------------

CARRIERS = {
    "array": bounded(X, 0.5),
    "pandas": bounded(pd.DataFrame(X, columns=NUMBERS), 0.5),
    "polars": bounded(pl.DataFrame(X, schema=NUMBERS, orient="row"), 0.5),
}


def pickled(rows):
    return pickle.loads(pickle.dumps(rows))


@pytest.mark.parametrize(
    ("kind", "same"),
    [(kind, same) for kind in CARRIERS for same in (pickled, copy.copy, copy.deepcopy)],
)
def test_pickles_and_copies_keep_it(kind, same):
    rows = CARRIERS[kind]
    again = same(rows)
    assert type(again) is type(rows)
    assert row_norm(again) == 0.5
    np.testing.assert_array_equal(np.asarray(again), X)


FILTERS = {
    "mask": lambda frame, most: frame[frame["a"] < most],
    "query": lambda frame, most: frame.query(f"a < {most}"),
    "loc": lambda frame, most: frame.loc[frame["a"] < most],
    "drop_duplicates": lambda frame, most: frame.drop_duplicates(),
    "dropna": lambda frame, most: frame.dropna(),
    "sort_values": lambda frame, most: frame.sort_values("a"),
    "head": lambda frame, most: frame.head(int(20 * most)),
}


@pytest.mark.parametrize("name", FILTERS)
def test_whether_a_filter_removes_a_row_does_not_show_in_the_norm(name):
    frame = CARRIERS["pandas"]
    assert [row_norm(FILTERS[name](frame, most)) for most in (0.5, 2.0)] == [None, None]
    in_order = carried(frame.sort_values("a"), declared(frame))
    assert row_norm(in_order) == 0.5
    assert row_norm(FILTERS[name](in_order, 2.0)) is None


def test_whether_a_slice_of_polars_has_all_rows_does_not_show_in_the_norm():
    frame = CARRIERS["polars"]
    for other in (frame[: len(X)], frame[:3], frame.head(len(X)), frame.filter(pl.col("a") < 2)):
        assert row_norm(other) is None


@pytest.mark.parametrize("kind", list(CARRIERS))
def test_what_is_done_to_rows_takes_it_away(kind):
    rows = CARRIERS[kind]
    for other in (rows[:3], rows * 2, rows + 1):
        assert row_norm(other) is None
        assert not norm_lost(other)
        assert row_norm(pickle.loads(pickle.dumps(other))) is None
    assert type(np.asarray(rows)) is np.ndarray


def test_frames_look_and_behave_like_those_of_their_library():
    frame, other = CARRIERS["pandas"], CARRIERS["polars"]
    plain = pd.DataFrame(X, columns=NUMBERS)
    assert repr(frame) == repr(plain)
    pd.testing.assert_frame_equal(pd.DataFrame(frame), plain)
    assert type(frame["a"]) is pd.Series
    assert other.equals(pl.DataFrame(plain.to_dict("list")))
    assert np.mean(frame, axis=0).equals(plain.mean())
    frame = frame.copy()
    frame.attrs["source"] = "survey"
    assert pickle.loads(pickle.dumps(frame)).attrs == {"source": "survey"}
    frame["e"] = 9.0  # one more column in place: the norm was of the others
    assert row_norm(frame) is None


def test_frames_joined_below_each_other_are_not_joined_columns():
    frame = CARRIERS["pandas"]
    assert row_norm(pd.concat([frame, frame])) is None
    assert row_norm(pd.concat([frame, frame.add_prefix("_")], axis=1)) == pytest.approx(0.5**0.5)
    assert norm_lost(pd.concat([frame, pd.Series(X[:, 0], name="e")], axis=1))
    assert row_norm(np.vstack([CARRIERS["array"], CARRIERS["array"]])) is None


def test_a_container_of_another_library_is_left_as_it_is():
    rows = [[1.0, 2.0]]

    class Frame(list):
        shape = (1, 2)

    frame = Frame(rows)
    assert bounded(frame, 1.0) is frame
    assert row_norm(frame) is None


def test_a_subclass_with_a_transform_of_its_own_declares_nothing():
    class Doubled(NormClipper):
        def transform(self, X):
            return 2 * super().transform(X)

    for output in OUTPUTS:
        rows = Doubled(0.5).set_output(transform=output).fit_transform(TABLE[NUMBERS])
        assert row_norm(rows) is None
