"""Rows in chunks from files and through transformers, and what is predicted for them."""

import functools

import numpy as np
import pandas as pd
import pytest
from chunks.common import PLANTED, charged, classifier, data, in_chunks
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import skdp
from skdp.data import ChunkedRows, ParquetRows, RowWise

pytestmark = pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")
N = 500
RNG = np.random.default_rng(1)
X, Y = data(N, 3)
FRAME = pd.DataFrame({"age": 50 + 50 * X[:, 0], "dose": X[:, 1], "ward": RNG.choice(["a", "b"], N)})
classifier = functools.partial(classifier, N, max_iter=4)


def rows(n_chunks=7, X=X, y=Y):
    return in_chunks(n_chunks, X, y)


SECURE = {
    "noise-aware": lambda: classifier(secure=True),
    "steps": lambda: classifier(secure=True, inference="dpvi"),
    "numbers": lambda: skdp.DPVariationalLinearRegression(n_samples=N, secure=True, max_iter=4),
    "network": lambda: skdp.DPSGDClassifier(
        classes=[0, 1],
        n_samples=N,
        secure=True,
        max_iter=4,
        hidden_layer_sizes=(3,),
        sampling_rate=0.1,
    ),
}


@pytest.mark.parametrize("make", SECURE.values(), ids=SECURE)
def test_secure_fits_are_equal_to_the_bit_on_any_number_of_chunks(make, fixed):
    whole = make().fit(X, Y)
    for n_chunks in (1, 7, 64):
        found = make().fit(rows(n_chunks))
        for of in (lambda m: getattr(m, "coef_", 0), lambda m: m.sample_posterior(3, 0)):
            assert np.array_equal(of(found), of(whole))


# --- through transformers -------------------------------------------------------------------------

PIPELINES = {
    "scaler": lambda: [skdp.BoundedScaler(-1, 1)],
    "clipper": lambda: [skdp.BoundedScaler(-1, 2), skdp.NormClipper(0.5)],
    "bins": lambda: [skdp.AdditiveFeatures(n_bins=4)],
    "private": lambda: [skdp.DPStandardScaler(epsilon=1.0)],
}


@pytest.mark.parametrize("steps", PIPELINES.values(), ids=PIPELINES)
def test_a_pipeline_of_steps_by_row_stays_in_chunks(steps, fixed):
    n_private = 1 + hasattr(steps()[0], "epsilon")
    with charged(n_private) as ledger:
        whole = make_pipeline(*steps(), classifier()).fit(X, Y)
    with charged(n_private) as other:
        found = make_pipeline(*steps(), classifier()).fit(rows())
    assert [entry.event for entry in other.entries] == [entry.event for entry in ledger.entries]
    assert np.allclose(found[-1].coef_, whole[-1].coef_, atol=1e-9)
    assert found[-1].data_norm_ == whole[-1].data_norm_  # the norm that a step declares comes along
    assert np.allclose(found.predict_proba(rows(3)), whole.predict_proba(X), atol=1e-9)
    assert found.score(rows(3)) == whole.score(X, Y)


def test_frames_stay_frames_where_pandas_is_asked_for(fixed):
    frame = FRAME[["age", "dose"]]
    pipeline = make_pipeline(skdp.BoundedScaler([0, -1], [100, 1]), classifier())
    pipeline.set_output(transform="pandas").fit(rows(X=frame))
    assert pipeline[-1].feature_names_in_.tolist() == ["age", "dose"]
    ((part, _), *_) = pipeline[0].transform(rows(X=frame))
    assert part.columns.tolist() == ["age", "dose"]


def mixed():
    encoder = OneHotEncoder(categories=[["a", "b"]], sparse_output=False)
    scaler = skdp.BoundedScaler([0, -1], [100, 1])
    return ColumnTransformer([("n", scaler, ["age", "dose"]), ("c", encoder, ["ward"])])


def test_encoders_with_declared_categories_stay_in_chunks(fixed):
    steps = make_pipeline(RowWise(mixed()), skdp.NormClipper(2.0), classifier())
    found = steps.fit(rows(X=FRAME))
    whole = make_pipeline(mixed(), skdp.NormClipper(2.0), classifier()).fit(FRAME, Y)
    assert np.allclose(found[-1].coef_, whole[-1].coef_, atol=1e-9)
    assert np.array_equal(found.predict(rows(2, FRAME)), whole.predict(FRAME))
    assert np.array_equal(found.predict(FRAME), whole.predict(FRAME))
    assert found[0].get_feature_names_out().tolist() == whole[0].get_feature_names_out().tolist()
    assert not skdp.privacy_of(found).unaccounted


@pytest.mark.parametrize(
    "transformer",
    [StandardScaler(), OneHotEncoder(sparse_output=False), skdp.DPStandardScaler(), mixed()],
)
def test_what_learns_from_rows_is_refused_as_row_wise(transformer):
    if isinstance(transformer, ColumnTransformer):
        transformer.transformers.append(("d", skdp.DPStandardScaler(), ["age"]))
    with charged(0, ValueError, "learns nothing"):
        RowWise(transformer).fit(FRAME[["age"]] if len(str(transformer)) < 40 else FRAME)


def test_what_knows_no_chunks_says_so():
    others = [step.fit for step in (StandardScaler(), OneHotEncoder(), LogisticRegression())]
    for call in (*others, lambda X, y: np.asarray(X)):
        with pytest.raises(ValueError, match="Rows in chunks are not an array"):
            call(rows(), Y)


def test_rows_are_mapped_as_the_transformer_was():
    scaler = skdp.BoundedScaler(-1, 1).fit(X)
    before = scaler.transform(rows())
    scaler.set_params(lower=-5, upper=5).fit(X)
    assert np.array_equal(np.concatenate([part for part, _ in before]), X)


# --- predictions ----------------------------------------------------------------------------------


def test_predictions_are_those_of_all_rows():
    model = classifier().fit(X, Y)
    assert np.array_equal(model.predict(rows()), model.predict(X))
    for name in ("predict_proba", "predict_log_proba", "decision_function"):
        found, whole = getattr(model, name)(rows()), getattr(model, name)(X)
        np.testing.assert_allclose(found, whole, rtol=1e-12, atol=1e-12)  # sums round by place
    assert model.score(rows()) == model.score(X, Y)
    assert model.score(rows(), 1 - Y) == model.score(X, 1 - Y)
    regressor = skdp.DPVariationalLinearRegression(n_samples=N, max_iter=2).fit(X, X[:, 0])
    assert np.allclose(regressor.predict(rows(), return_std=True), regressor.predict(X, True))
    assert np.isclose(regressor.score(rows(y=X[:, 0])), regressor.score(X, X[:, 0]))
    network = skdp.DPSGDRegressor(n_samples=N, max_iter=2).fit(X, X[:, :2])
    assert network.predict(rows()).shape == (N, 2)
    user = skdp.DPVariationalModel(lambda theta, x: -((x[:, 0] - theta[0]) ** 2), 1, n_samples=N)
    user.set_params(max_iter=4).fit(X)
    assert np.isclose(user.score(rows()), user.score(X))


def test_what_cannot_be_predicted_is_said_without_words_of_the_source():
    model = classifier().fit(X, Y)

    def load(i):
        raise OSError(f"row {PLANTED}")

    with charged(0, ValueError, r"Chunk 0 of 2 cannot be read \(OSError\)"):
        model.predict(ChunkedRows(load, 2))
    with pytest.raises(ValueError, match="all chunks are empty"):
        model.predict(ChunkedRows(lambda i: X[:0], 2))
    with pytest.raises(ValueError, match="no targets"):
        model.score(ChunkedRows(lambda i: X, 2))


# --- files ----------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    table = FRAME.assign(ill=Y, person=RNG.integers(0, 9, N))
    for name, part in (("b", table[300:]), ("a", table[:300])):
        part.to_parquet(tmp_path / f"{name}.parquet", row_group_size=50, index=False)
    return tmp_path


def test_columns_and_rows_come_in_their_order(folder):
    source = ParquetRows(folder, columns=["dose", "age"], target="ill", rows_per_chunk=100)
    assert source.n_chunks == 5
    found = pd.concat([part for part, _ in source], ignore_index=True)
    pd.testing.assert_frame_equal(found, FRAME[["dose", "age"]])
    assert np.array_equal(source.targets(), Y)


@pytest.mark.parametrize(
    ("rows_per_chunk", "n_chunks"), [(1, 10), (50, 10), (149, 5), (150, 4), (10**6, 1)]
)
def test_chunks_are_whole_row_groups(folder, rows_per_chunk, n_chunks):
    source = ParquetRows(folder, columns=["age"], rows_per_chunk=rows_per_chunk)
    sizes = [len(part) for part, _ in source]
    assert (len(sizes), sum(sizes)) == (n_chunks, N)
    assert max(sizes) <= max(rows_per_chunk, 50)


def test_files_are_named_in_several_ways(folder):
    files = [folder / "a.parquet", str(folder / "b.parquet")]
    for path in (folder, str(folder), str(folder / "*.parquet"), files):
        assert np.array_equal(ParquetRows(path, columns=["age"], target="ill").targets(), Y)
    assert len(ParquetRows(files[1], target="ill").targets()) == 200


def test_a_fit_of_files_is_that_of_their_rows(folder, fixed):
    source = ParquetRows(folder, columns=["age", "dose", "ward"], target="ill", rows_per_chunk=99)
    found = make_pipeline(RowWise(mixed()), classifier()).fit(source)
    whole = make_pipeline(mixed(), classifier()).fit(FRAME, Y)
    assert np.allclose(found[-1].coef_, whole[-1].coef_, atol=1e-9)
    assert found.score(source) == whole.score(FRAME, Y)


def test_a_file_that_is_written_anew_between_passes_ends_the_fit(folder):
    class Rewritten(ParquetRows):
        n_reads = 0

        def _read(self, number):
            self.n_reads += 1
            if self.n_reads == 15:
                pd.read_parquet(folder / "b.parquet").assign(dose=0.5).to_parquet(
                    folder / "b.parquet", row_group_size=50, index=False
                )
            return super()._read(number)

    source = Rewritten(folder, columns=["age", "dose"], target="ill", rows_per_chunk=50)
    with charged(1, RuntimeError, "Rows are lost"):
        classifier().fit(source)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"columns": ["height"]}, "'height'"), ({"target": "dead"}, "'dead'"),
        ({"rows_per_chunk": 0}, "rows_per_chunk=0"),
        *[({"path": path}, "path=") for path in ("nowhere/*.parquet", 3, [], [3], None)],
    ],
)  # fmt: skip
def test_what_files_do_not_hold_is_named(folder, given, says):
    with pytest.raises(ValueError, match=says):
        ParquetRows(**{"path": folder} | given)


def test_missing_values_of_files_are_refused_like_others(folder):
    FRAME.assign(ill=Y, dose=[None] + [0.5] * (N - 1)).to_parquet(folder / "c.parquet")
    source = ParquetRows(folder / "c.parquet", columns=["age", "dose"], target="ill")
    with pytest.raises(ValueError, match="Chunk 0 of 1: Input X contains NaN"):
        classifier().fit(source)
    skdp.DPStandardScaler(lower=0, upper=100).fit(source)


@pytest.mark.parametrize("kind", [skdp.DPSGDClassifier, skdp.DPSGDRegressor, skdp.DPSGLDClassifier])
def test_a_second_fit_of_the_same_rows_is_a_fit(kind):
    def load(i):
        X = np.random.default_rng(i).uniform(-1, 1, (20, 2))
        return X, (X[:, 0] > 0).astype(int)

    rows = ChunkedRows(load, 3)
    facts = {} if kind is skdp.DPSGDRegressor else {"classes": [0, 1]}
    model = kind(n_samples=60, max_iter=2, sampling_rate=1.0, **facts)
    for _ in range(3):
        model.fit(rows)
    assert model.n_iter_ == 2


def test_chunks_are_compared_with_each_other_and_not_with_a_former_fit():
    def of(columns, names=None):
        def load(i):
            X = np.random.default_rng(i).uniform(-1, 1, (20, columns))
            return pd.DataFrame(X, columns=names) if names else X, (X[:, 0] > 0).astype(int)

        return ChunkedRows(load, 3)

    model = skdp.DPSGDClassifier(classes=[0, 1], n_samples=60, max_iter=2)
    assert model.fit(of(2, ["a", "b"])).feature_names_in_.tolist() == ["a", "b"]
    assert not hasattr(model.fit(of(3)), "feature_names_in_")
    assert model.n_features_in_ == 3
    model.set_params(warm_start=True)
    with pytest.raises(ValueError, match="expecting 3 features"):
        model.fit(of(2))
    assert model.fit(of(3)).n_iter_ > 2
