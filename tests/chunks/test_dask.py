"""Rows in the partitions of Dask collections, without a cluster."""

import functools
import gc
import pickle
import re
import subprocess
import sys

import dask
import dask.array as da
import dask.bag
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from chunks.common import PLANTED, charged, classifier
from chunks.faulty import Faulty, X, Y, is_task
from chunks.test_sources import PIPELINES, SECURE
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import skdp
from skdp.data import RowWise
from skdp.evaluation import private_regression_report, private_report
from skdp.rows import dask_rows
from skdp.rows.chunks import _LOST
from skdp.rows.dask_rows import DaskRows, Sealed
from skdp.testing import record_releases

pytestmark = pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")
N = len(X)
FRAME = pd.DataFrame(X, columns=["a", "b"]).assign(
    y=Y, ward=np.where(X[:, 1] > 0, "east", "west"), who=np.arange(N) % 30
)


@pytest.fixture(autouse=True)
def synchronous():
    with dask.config.set(scheduler="synchronous"):
        yield


classifier = functools.partial(classifier, N)


def arrays(n_parts=4, X=X, y=Y):
    size = -(-len(X) // n_parts)
    return da.from_array(X, chunks=(size, 2)), da.from_array(y, chunks=size)


def frame(n_parts=4, of=FRAME):
    return dd.from_pandas(of, npartitions=n_parts, sort=False)


def never(*given, **settings):
    raise AssertionError("computed")


# --- fits -----------------------------------------------------------------------------------------


@pytest.mark.quick(1)
@pytest.mark.parametrize("make", SECURE.values(), ids=SECURE)
def test_secure_fits_are_equal_to_the_bit_in_memory_and_on_any_partitions(make, fixed):
    def made():
        return make().set_params(n_samples=N)

    whole = made().fit(X, Y).sample_posterior(3, 0)
    for rows, y in (arrays(1), arrays(7), arrays(64), (frame(5)[["a", "b"]], frame(5)["y"])):
        with charged(1):
            found = made().fit(rows, y)
        assert np.array_equal(found.sample_posterior(3, 0), whole)


def test_threads_are_the_default(fixed):
    whole = classifier(secure=True).fit(X, Y).coef_
    with dask.config.set(scheduler=None):
        assert np.array_equal(classifier(secure=True).fit(*arrays(7)).coef_, whole)


def test_names_of_columns_are_learned():
    for columns in (["a", "b"], ["b", "a"]):
        model = classifier().fit(frame()[columns], frame()["y"])
        assert model.feature_names_in_.tolist() == columns


@pytest.mark.filterwarnings("ignore:A column-vector")
def test_columns_in_blocks_other_cuts_and_unknown_sizes(fixed):
    whole = classifier(secure=True).fit(X, Y).coef_
    y = frame(4)["y"]
    given = {
        "columns in blocks": (da.from_array(X, chunks=(30, 1)), da.from_array(Y, chunks=50)),
        "unknown sizes": (frame(4)[["a", "b"]].to_dask_array(), y),
        "both unknown": (frame(4)[["a", "b"]].values, y.values),
        "empty ones": (frame(4)[["a", "b"]].query("a < 2"), y),
        "a column as y": (frame(4)[["a", "b"]], frame(4)[["y"]]),
    }
    for rows, targets in given.values():
        assert np.array_equal(classifier(secure=True).fit(rows, targets).coef_, whole)


def test_persons_are_brought_together(fixed):
    unit = {"unit": skdp.Persons(30, rows_per_group=5), "n_samples": None}
    whole = classifier(secure=True, **unit).fit(X, Y, groups=FRAME.who)
    found = classifier(secure=True, **unit).fit(frame()[["a", "b"]], frame()["y"], frame()["who"])
    assert np.array_equal(found.coef_, whole.coef_)
    with pytest.raises(ValueError, match="where persons are protected"):
        classifier(**unit).fit(*arrays())


# --- lazily ---------------------------------------------------------------------------------------


def test_predictions_are_lazy_and_those_of_the_rows():
    model = classifier().fit(FRAME[["a", "b"]], Y)
    with dask.config.set(scheduler=never):
        lazy = {
            name: getattr(model, name)(frame()[["a", "b"]])
            for name in ("predict", "predict_proba", "predict_log_proba", "decision_function")
        }
    for name, found in lazy.items():
        # Of other numbers of rows at a time, functions of numpy may differ in the last bit.
        whole = getattr(model, name)(FRAME[["a", "b"]])
        np.testing.assert_allclose(found.compute(), whole, rtol=1e-12, atol=1e-12)
    regressor = skdp.DPVariationalLinearRegression(n_samples=N, max_iter=2).fit(X, X[:, 0])
    with dask.config.set(scheduler=never):
        pair = regressor.predict(arrays()[0], return_std=True)
    for found, whole in zip(pair, regressor.predict(X, return_std=True), strict=True):
        assert found.chunks == ((30,) * 4,)
        assert np.allclose(found.compute(), whole)


@pytest.mark.thorough
def test_scores_are_those_of_the_rows_and_none_comes_to_the_driver(monkeypatch):
    monkeypatch.setattr(DaskRows, "load", never)
    rows, y = arrays(7)
    model = classifier().fit(X, Y)
    assert model.score(rows, y) == pytest.approx(model.score(X, Y))
    for targets in (X[:, 0], X[:, :2], np.ones(N)):
        regressor = (
            skdp.DPVariationalLinearRegression(n_samples=N, max_iter=2)
            if targets.ndim == 1
            else skdp.DPSGDRegressor(n_samples=N, max_iter=1, hidden_layer_sizes=(2,))
        ).fit(X, targets)
        lazy = da.from_array(targets, chunks=20)
        assert regressor.score(rows, lazy) == pytest.approx(regressor.score(X, targets))
    counts = skdp.DPVariationalPoissonRegression(n_samples=N, max_iter=2).fit(X, Y)
    assert counts.score(rows, y) == pytest.approx(counts.score(X, Y))
    user = skdp.DPVariationalModel(_normal, 1, n_samples=N, max_iter=4).fit(X)
    assert user.score(rows) == pytest.approx(user.score(X))
    assert user.score_samples(rows).compute() == pytest.approx(user.score_samples(X))
    with pytest.raises(ValueError, match="sample_weight"):
        model.score(rows, y, sample_weight=y)
    with pytest.raises(ValueError, match="A chunk: Expected y"):
        model.score(rows)


def _normal(theta, x):
    return -((x[:, 0] - theta[0]) ** 2)


@pytest.mark.parametrize("steps", PIPELINES.values(), ids=PIPELINES)
def test_a_pipeline_stays_lazy_and_keeps_declared_norms(steps, fixed):
    private = 1 + hasattr(steps()[0], "epsilon")
    with charged(private) as ledger:
        whole = make_pipeline(*steps(), classifier()).fit(FRAME[["a", "b"]], Y)
    with charged(private) as other:
        found = make_pipeline(*steps(), classifier()).fit(frame()[["a", "b"]], frame()["y"])
    assert [entry.event for entry in other.entries] == [entry.event for entry in ledger.entries]
    assert found[-1].data_norm_ == whole[-1].data_norm_
    assert np.allclose(found[-1].coef_, whole[-1].coef_, atol=1e-9)
    rows = FRAME[["a", "b"]]
    lazy = found.predict_proba(frame()[["a", "b"]])
    assert np.allclose(lazy.compute(), whole.predict_proba(rows))


def test_encoders_with_declared_categories_and_frames_of_pandas(fixed):
    columns = ["a", "b", "ward"]

    def pipeline():
        encoder = OneHotEncoder(categories=[["east", "west"]], sparse_output=False)
        both = ColumnTransformer(
            [("n", skdp.BoundedScaler(-1, 1), ["a", "b"]), ("w", encoder, ["ward"])]
        )
        return make_pipeline(RowWise(both), skdp.NormClipper(2.0), classifier())

    whole = pipeline().fit(FRAME[columns], Y)
    found = pipeline().fit(frame()[columns], frame()["y"])
    assert np.allclose(found[-1].coef_, whole[-1].coef_, atol=1e-9)
    lazy = found.predict(frame()[columns])
    assert np.array_equal(lazy.compute(), whole.predict(FRAME[columns]))
    scaler = skdp.BoundedScaler(-1, 1).set_output(transform="pandas")
    part = scaler.fit_transform(frame()[["a", "b"]])
    assert isinstance(part, dd.DataFrame)
    pd.testing.assert_frame_equal(part.compute(), scaler.transform(FRAME[["a", "b"]]))
    with pytest.raises(ValueError, match="learns nothing"):
        RowWise(StandardScaler()).fit(frame()[["a", "b"]])


# --- what is refused ------------------------------------------------------------------------------


def second(change):
    """The rows, of which partition 1 is another."""

    def of(part, partition_info=None):
        return change(part) if partition_info and partition_info["number"] == 1 else part

    rows = frame().map_partitions(of, meta=FRAME[:0], enforce_metadata=False)
    return rows[["a", "b"]], rows["y"]


def raising(part):
    raise OSError(f"row {PLANTED}")


def text(part):
    return part.assign(b=[f"text {PLANTED}"] * len(part))


def delayed():
    return dask.delayed(lambda: X)()


def shuffled():
    with dask.config.set({"dataframe.shuffle.method": "tasks"}):
        return frame(40).shuffle("who")


REFUSED = {
    "NaN": (lambda: second(lambda part: part.assign(a=np.nan)), "Chunk 1 of 4: .* contains NaN"),
    "text": (lambda: second(text), "Chunk 1 of 4: .* got text"),
    "another type": (
        lambda: second(lambda part: part.astype({"a": np.float32, "b": np.float32})), "types",
    ),
    "another column": (
        lambda: second(lambda part: part.rename(columns={"b": "c"})), "cannot be read",
    ),
    "an undeclared label": (
        lambda: second(lambda part: part.assign(y=7)), "Chunk 1 of 4: .* every label",
    ),
    "unreadable": (lambda: second(raising), r"Chunk 1 of 4: X cannot be read \(OSError\)"),
    "no frame": (lambda: second(lambda part: None), "cannot be read"),
    "a bag": (lambda: (dask.bag.from_sequence([1, 2]), arrays()[1]), "X to be an array, a Data"),
    "a delayed object": (lambda: (delayed(), arrays()[1]), "X to be an array, a DataFrame"),
    "delayed targets": (lambda: (arrays()[0], delayed()), "y to be an array, a DataFrame"),
    "targets in memory": (lambda: (arrays()[0], Y), "collections of Dask together"),
    "rows in memory": (lambda: (X, arrays()[1]), "collections of Dask together"),
    "fewer targets": (lambda: (arrays()[0], arrays(y=Y[:100])[1]), "y to have as many rows as X"),
    "other partitions": (lambda: (frame(4)[["a", "b"]], frame(3)["y"]), "y in the same partitions"),
    "another order": (
        lambda: (frame()[["a", "b"]], frame(of=FRAME[::-1])["y"]), "same index, row by row",
    ),
    "fewer in one": (
        lambda: (frame()[["a", "b"]].values, frame()["y"][frame()["a"] > 0].values), "inconsistent",
    ),
    "a series": (lambda: (frame()["a"], frame()["y"]), "Chunk 0 of 4"),
    "no rows": (lambda: (frame().query("a > 2")[["a", "b"]], frame().query("a > 2")["y"]), "empty"),
    "no targets": (lambda: (arrays()[0], None), "requires y"),
    "a shuffle": (lambda: (shuffled()[["a", "b"]], shuffled()["y"]), r"X.persist\(\)"),
}  # fmt: skip


@pytest.mark.parametrize(("given", "says"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused_by_name_before_the_charge(given, says):
    model = classifier()
    with charged(0, ValueError, says):
        model.fit(*given())
    assert not hasattr(model, "n_features_in_")


def test_what_knows_no_collections_gathers_none():
    with dask.config.set(scheduler=never):
        model = classifier().fit(X, Y)
        rows, y = arrays()
        bounds = {"target_bounds": (0, 1), "residual_bound": 1}
        for ask in (
            lambda: model.sample_predictive(rows),
            lambda: private_report(y, y),
            lambda: private_regression_report(y, y, **bounds),
        ):
            with pytest.raises(ValueError, match="Rows in chunks are not an array"):
                ask()
    with pytest.raises(ValueError, match="Or use declared bounds"):
        skdp.DPQuantileScaler().fit(arrays()[0])


# --- faults ---------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, 180), marks=pytest.mark.slow)])
def test_lost_repeated_and_late_tasks_change_nothing(seeds, fixed):
    with record_releases() as tape:
        whole = classifier(secure=True).fit(X, Y)
    trace, happened = [(one.call, np.asarray(one.output)) for one in tape], 0
    for seed in seeds:
        schedule = Faulty(seed)
        rows = arrays(20 if seed % 20 == 0 else 3)
        with dask.config.set(scheduler=schedule), charged(1), record_releases() as tape:
            found = classifier(secure=True).fit(*rows)
        assert len(tape) == len(trace)  # noise is drawn once for each release
        for one, (call, output) in zip(tape, trace, strict=True):
            assert one.call == call
            assert np.array_equal(one.output, output)
        assert np.array_equal(found.coef_, whole.coef_)
        happened += schedule.happened
    assert happened > 5 * len(seeds)


def test_a_collection_that_changes_or_fails_later_ends_the_fit_in_the_same_words():
    reads, wrong = [], {}

    def change(block, block_id=None):
        reads.append(block_id)
        late = reads.count((1, 0)) > 3 and block_id == (1, 0)
        return wrong["now"](block) if late else block

    def fail(block):
        raise LookupError(f"row {PLANTED}")

    for wrong["now"] in (lambda block: block + PLANTED, lambda block: block[1:], fail):
        reads.clear()
        rows = arrays(3)[0].map_blocks(change, meta=X[:0])
        reads.clear()
        with charged(1, RuntimeError, f"^{re.escape(_LOST)}$", n_releases=2):
            classifier(secure=True, max_iter=8).fit(rows, arrays(3)[1])


@pytest.mark.parametrize(
    ("when", "fails", "error", "says"),
    [
        (1, functools.partial(OSError, f"row {PLANTED}"), ValueError, "did not answer"),
        (3, functools.partial(OSError, f"row {PLANTED}"), RuntimeError, "Rows are lost"),
        (3, KeyboardInterrupt, KeyboardInterrupt, "stays spent"),
    ],
)
def test_a_scheduler_that_fails_is_one_error_before_and_after_the_charge(when, fails, error, says):
    class Gone(Faulty):
        def __call__(self, graph, keys, **settings):
            calls.append(keys)
            if len(calls) == when:
                raise fails()
            return super().__call__(graph, keys, **settings)

    calls = []
    with dask.config.set(scheduler=Gone()), charged(when > 1, error, says):
        classifier().fit(*arrays())


def test_a_worker_of_other_versions_is_refused(monkeypatch):
    class Skewed(Faulty):
        def run(self, graph, key, done):
            if not is_task(graph[key]):
                return super().run(graph, key, done)
            tasks.append(key)
            with pytest.MonkeyPatch.context() as patch:
                if len(tasks) > when:
                    patch.setattr(dask_rows, "versions", lambda: versions[:-1])
                return super().run(graph, key, done)

    versions = dask_rows.versions()
    for when, error, says in ((0, ValueError, "other versions"), (6, RuntimeError, "Rows are")):
        tasks = []
        with dask.config.set(scheduler=Skewed()), charged(when > 0, error, says):
            classifier().fit(*arrays())


# --- what is sent ---------------------------------------------------------------------------------


def test_keys_are_random_and_what_is_sent_says_nothing():
    seen = []
    for _ in range(2):
        schedule = Faulty()
        with dask.config.set(scheduler=schedule):
            classifier().fit(*arrays())
        seen.append(set(map(str, schedule.keys)))
    assert not seen[0] & seen[1]
    assert all("skdp-" in key for key in seen[0])
    sealed = Sealed((PLANTED, X))
    assert repr(sealed) == repr(pickle.loads(pickle.dumps(sealed))) == "Sealed()"
    assert dask.base.tokenize(sealed) != dask.base.tokenize(sealed)
    arrived = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(sealed))))  # by a scheduler
    assert arrived.open()[0] == PLANTED


def test_neither_seed_nor_noise_is_sent(monkeypatch):
    sent = []
    monkeypatch.setattr(
        Sealed, "__init__", lambda self, value: sent.append(value) or vars(self).update(
            _value=value, _closed=None
        )
    )  # fmt: skip
    classifier(random_state=918273).fit(*arrays())
    import cloudpickle

    assert len(sent) > 4
    for value in sent:
        pickled = cloudpickle.dumps(value)
        assert b"Streams" not in pickled
        assert (918273).to_bytes(4, "little") not in pickled


def test_one_sum_comes_back_and_no_rows(monkeypatch):
    answers = []

    class Watched(Faulty):
        def __call__(self, graph, keys, **settings):
            found = super().__call__(graph, keys, **settings)
            answers.append(len(pickle.dumps(found)))
            assert X[7].tobytes() not in pickle.dumps(found)
            return found

    with dask.config.set(scheduler=Watched()):
        classifier().fit(*arrays(40))
    assert all(n < 1000 for n in answers[1:])
    assert answers[0] < 40 * 2000  # what is public about each partition


@pytest.mark.thorough
def test_nothing_is_kept_and_dask_is_not_imported():
    rows, y = arrays()
    model = classifier().fit(rows, y)
    assert X[7].tobytes() not in pickle.dumps(model)
    gc.collect()
    assert not [one for one in gc.get_objects() if type(one) is DaskRows]
    code = "import sys, skdp, skdp.data; sys.exit('dask' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_verbose_says_passes_and_bytes(capsys):
    classifier(verbose=1).fit(*arrays())
    said = capsys.readouterr().out
    assert "reads all chunks" in said
    assert "tasks on 4 partitions" in said
