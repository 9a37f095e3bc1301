"""Reports on rows in chunks: predicted and counted where they are."""

import dask.array as da
import numpy as np
import pytest
from chunks.common import PLANTED, charged, classifier, data
from sklearn.pipeline import make_pipeline

from skdp import BoundedScaler, DPVariationalLinearRegression, Persons
from skdp.data import ChunkedRows
from skdp.evaluation import DPEvaluator, _release
from skdp.fitting import charge
from skdp.fitting.streams import Streams

pytestmark = pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")
N = 600
X, _ = data(N)
NUMBERS = X @ [1.0, -0.5]
TARGETS = {
    "two classes": (NUMBERS > 0).astype(int),
    "three classes": np.array(["a", "b", "c"])[np.digitize(NUMBERS, [-0.4, 0.4])],
    "numbers": NUMBERS,
}


def evaluator(y, **settings):
    facts = {"epsilon": 1.0, "n_samples": N, "target_bounds": (-2, 2), "residual_bound": 1.0}
    if y is NUMBERS:
        model = DPVariationalLinearRegression(n_samples=N, target_bounds=(-2, 2), max_iter=2)
    else:
        model = classifier(N, classes=np.unique(y))
    return DPEvaluator(model.fit(X, y), **facts | settings)


def in_chunks(y, n_chunks=5, change=lambda n_reads, X, y: (X, y)):
    cuts, reads = np.linspace(0, N, n_chunks + 1).astype(int), [0] * n_chunks

    def load(i):
        reads[i] += 1
        own = slice(cuts[i], cuts[i + 1])
        return change(reads[i], X[own], y[own]) if i == 1 else (X[own], y[own])

    return ChunkedRows(load, n_chunks)


def tables(report):
    return [value for name, value in vars(report).items() if isinstance(value, np.ndarray)]


@pytest.mark.parametrize("y", TARGETS.values(), ids=TARGETS)
def test_a_report_is_that_of_the_rows_in_memory(y, monkeypatch):
    private = evaluator(y)
    for module in (charge, _release):
        monkeypatch.setattr(module, "streams", lambda *given: Streams(b"fixed"))
    whole = private.report(X, y)
    elsewhere = ((in_chunks(y),), (da.from_array(X, chunks=(250, 2)), da.from_array(y, chunks=250)))
    for rows in elsewhere:
        with charged(1, n_releases=1):
            found = private.report(*rows)
        assert len(tables(found)) == len(tables(whole)) >= 2
        assert all(map(np.array_equal, tables(found), tables(whole)))
        assert (found.n_, str(found.privacy_.event)) == (N, str(whole.privacy_.event))


def test_a_seeded_report_repeats_and_shares_no_noise_with_other_rows():
    y = TARGETS["two classes"]
    private, neighbour = evaluator(y, random_state=0), y.copy()
    neighbour[0] = 1 - neighbour[0]
    first, again, other = (private.report(in_chunks(of)).counts_ for of in (y, y, neighbour))
    assert np.array_equal(first, again)
    assert np.count_nonzero(first != other) > 4  # the rows themselves move one count


def test_rows_that_change_after_the_charge_end_it():
    def change(n_reads, X, y):
        return (X, y) if n_reads == 1 else (X, 1 - y)

    y = TARGETS["two classes"]
    private = evaluator(y)
    with charged(1, RuntimeError, "Rows are lost", n_releases=0):
        private.report(in_chunks(y, change=change))


def planted(n_reads, X, y):
    return X, np.where(np.arange(len(y)) == 3, PLANTED, y)


BAD = {
    "another label": (planted, {}, "Chunk 1 of 5: .*every label in y to be one of"),
    "no targets": (lambda n, X, y: X, {}, "Chunk 1 of 5: Expected .X, y., of no persons"),
    "persons": (lambda n, X, y: (X, y, y), {}, "Chunk 1 of 5: Expected .X, y., of no persons"),
    "missing": (lambda n, X, y: (np.full_like(X, np.nan), y), {}, "Chunk 1 of 5: .*NaN"),
    "a person as unit": (lambda n, X, y: (X, y), {"unit": Persons()}, "needs arrays"),
}


@pytest.mark.parametrize(("change", "settings", "says"), BAD.values(), ids=BAD)
def test_bad_chunks_are_refused_before_the_charge(change, settings, says):
    y = TARGETS["two classes"]
    private = evaluator(y, **settings)
    with charged(0, ValueError, says):
        private.report(in_chunks(y, change=change))


@pytest.mark.parametrize("settings", [{"epsilon": -1.0}, {"delta": 1.0}, {"level": 2.0}])
def test_parameters_are_checked_before_a_row_is_read(settings):
    def load(number):
        raise AssertionError

    private = evaluator(TARGETS["two classes"], **settings)
    with pytest.raises(ValueError, match=f"Expected {next(iter(settings))}="):
        private.report(ChunkedRows(load, 3))


def test_subgroups_need_arrays():
    y = TARGETS["two classes"]
    with pytest.raises(ValueError, match="needs arrays"):
        evaluator(y).report(in_chunks(y), subgroup=y, subgroups=[0, 1])


def test_a_pipeline_predicts_the_chunks():
    y = TARGETS["two classes"]
    model = make_pipeline(BoundedScaler(-1, 1), classifier(N)).fit(X, y)
    report = DPEvaluator(model, epsilon=50, n_samples=N).report(in_chunks(y))
    assert float(report.accuracy) == pytest.approx(model.score(X, y), abs=1e-9)
