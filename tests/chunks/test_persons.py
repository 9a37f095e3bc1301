"""Persons with rows in several chunks."""

import os
import tempfile

import numpy as np
import pandas as pd
import pytest

from skdp import (
    DPPCA,
    DPSGDClassifier,
    DPStandardScaler,
    DPVariationalLinearRegression,
    DPVariationalLogisticRegression,
    DPVariationalModel,
    OPSPosteriorSampler,
    Persons,
    PrivacyLedger,
)
from skdp.data import ChunkedRows
from skdp.fitting import charge, reading
from skdp.fitting.streams import Streams

pytestmark = pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")
N, PERSONS = 400, 60
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (N, 2))
Y = (X[:, 0] > 0).astype(int)
WHO = RNG.integers(0, PERSONS, N)
UNIT = {"unit": Persons(PERSONS, rows_per_group=7)}
LABELS = {"classes": [0, 1], "max_iter": 3}
MODELS = {
    "secure": lambda: DPVariationalLogisticRegression(**UNIT, **LABELS, secure=True),
    "secure numbers": lambda: DPVariationalLinearRegression(**UNIT, secure=True, max_iter=3),
    "noise-aware": lambda: DPVariationalLogisticRegression(**UNIT, **LABELS),
    "network": lambda: DPSGDClassifier(**UNIT, **LABELS, hidden_layer_sizes=(3,)),
    "chains": lambda: OPSPosteriorSampler(**UNIT, **LABELS, sampler="langevin"),
    "user": lambda: DPVariationalModel(
        lambda theta, x, y: -((y - x[:, 0] * theta[0]) ** 2), 1, **UNIT, max_iter=9
    ),
    "scaler": lambda: DPStandardScaler(**UNIT),
    "directions": lambda: DPPCA(n_components=1, **UNIT),
}


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """The same random bits for every fit, and a place for temporary files."""
    monkeypatch.setattr(charge, "streams", lambda *given: Streams(b"fixed"))
    monkeypatch.setattr(charge, "initial_seed", lambda estimator: 0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def rows(n_chunks=7, X=X, y=Y, who=WHO):
    cuts = np.linspace(0, len(X), n_chunks + 1).astype(int)

    def load(i):
        own = slice(cuts[i], cuts[i + 1])
        load.reads.append(i)
        return X[own], None if y is None else y[own], who[own]

    load.reads = []
    return ChunkedRows(load, n_chunks)


def what(model):
    for name in ("coef_", "mean_", "components_", "_samples"):
        if hasattr(model, name):
            return getattr(model, name)
    return np.concatenate([p.detach().numpy().ravel() for p in model.module_.parameters()])


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", MODELS)
def test_a_fit_of_persons_in_chunks_is_that_in_memory(name, folder):
    whole = MODELS[name]().fit(X, Y, groups=WHO)
    for n_chunks in (1, 7):
        with PrivacyLedger(neighboring_relation="zero_out_group") as ledger:
            found = MODELS[name]().fit(rows(n_chunks))
        assert len(ledger.entries) == 1
        assert found.privacy_.unit == "group"
        if name.startswith("secure"):
            assert np.array_equal(what(found), what(whole))
        else:
            assert np.allclose(what(found), what(whole), atol=1e-5)


def test_all_rows_of_a_person_come_together():
    together = rows().by_person(b"key")
    persons = [set(together.load(i).groups) for i in range(7)]
    assert sum(map(len, persons)) == len(set().union(*persons)) == len(set(WHO))
    parts = [together.load(i) for i in range(7)]
    assert sum(len(part.X) for part in parts if part.y is not None) == N
    pairs = {tuple(x): y for x, y in zip(X.tolist(), Y.tolist(), strict=True)}
    for part in parts:
        assert all(pairs[tuple(x)] == y for x, y in zip(part.X.tolist(), part.y, strict=True))


def test_the_source_is_read_once_and_the_files_are_gone_afterwards(folder):
    source = rows()
    MODELS["noise-aware"]().fit(source)
    assert source._load.reads == list(range(7))
    assert not os.listdir(folder)

    def fail(i):
        raise OSError

    with pytest.raises(ValueError, match=r"^A chunk: X cannot be read"):
        MODELS["noise-aware"]().fit(ChunkedRows(fail, 2))
    assert not os.listdir(folder)


def test_the_files_are_for_nobody_else(folder, monkeypatch):
    modes = []
    remove = reading.first_look

    def look(*given, **how):
        modes.append(os.stat(folder / os.listdir(folder)[0]).st_mode & 0o777)
        return remove(*given, **how)

    monkeypatch.setattr(reading, "first_look", look)
    MODELS["scaler"]().fit(rows())
    assert modes == [0o700]


def test_the_same_rows_of_a_person_are_kept_in_each_pass():
    unit = Persons(PERSONS, rows_per_group=7, max_rows=2)
    model = DPVariationalLogisticRegression(unit=unit, **LABELS)
    assert model.fit(rows()).privacy_.unit == "group"  # else a fingerprint would differ


def test_labels_of_any_kind_and_frames(folder):
    frame = pd.DataFrame(X, columns=["a", "b"])
    texts = np.array([f"person {who}" for who in WHO])
    expected = what(MODELS["secure"]().fit(X, Y, groups=WHO))
    for source in (
        rows(X=frame, y=pd.Series(Y)),
        rows(who=texts),
        rows(who=texts.astype(object)),
        rows(who=pd.Series(texts)),
        rows(who=WHO.astype(float)),
    ):
        assert np.array_equal(what(MODELS["secure"]().fit(source)), expected)


def without_labels(i):
    return X[:5], Y[:5]


def with_missing_ones(i):
    return X[:5], Y[:5], np.array([1.0, np.nan, 2.0, 3.0, 4.0])


def of_other_columns(i):
    return X[:5, : 1 + i], Y[:5], WHO[:5]


def of_too_few(i):
    return X[:5], Y[:5], WHO[:4]


def with_nan(i):
    return X[:5] * np.nan, Y[:5], WHO[:5]


@pytest.mark.parametrize(
    ("load", "says"),
    [
        (without_labels, "it has none"),
        (with_missing_ones, "some are missing"),
        (of_other_columns, "^A chunk has other columns"),
        (of_too_few, "one hashable label"),
        (with_nan, "contains NaN"),
    ],
)
def test_bad_chunks_of_persons_are_refused_before_the_charge(load, says, folder):
    with (
        PrivacyLedger(neighboring_relation="zero_out_group") as ledger,
        pytest.raises(ValueError, match=says),
    ):
        MODELS["noise-aware"]().fit(ChunkedRows(load, 2))
    assert not ledger.entries
