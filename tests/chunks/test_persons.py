"""Persons with rows in several chunks."""

import os
import tempfile

import numpy as np
import pandas as pd
import pytest
from chunks.common import charged, data, in_chunks

import skdp
from skdp.data import ChunkedRows
from skdp.fitting import reading

pytestmark = pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")
N, PERSONS = 400, 60
X, Y = data(N)
WHO = np.random.default_rng(1).integers(0, PERSONS, N)
UNIT = {"unit": skdp.Persons(PERSONS, rows_per_group=7)}
LABELS = {"classes": [0, 1], "max_iter": 3}
MODELS = {
    "secure": lambda: skdp.DPVariationalLogisticRegression(**UNIT, **LABELS, secure=True),
    "secure numbers": lambda: skdp.DPVariationalLinearRegression(**UNIT, secure=True, max_iter=3),
    "noise-aware": lambda: skdp.DPVariationalLogisticRegression(**UNIT, **LABELS),
    "network": lambda: skdp.DPSGDClassifier(**UNIT, **LABELS, hidden_layer_sizes=(3,)),
    "chains": lambda: skdp.OPSPosteriorSampler(**UNIT, **LABELS, sampler="langevin"),
    "user": lambda: skdp.DPVariationalModel(
        lambda theta, x, y: -((y - x[:, 0] * theta[0]) ** 2), 1, **UNIT, max_iter=9
    ),
    "scaler": lambda: skdp.DPStandardScaler(**UNIT),
    "directions": lambda: skdp.DPPCA(n_components=1, **UNIT),
}


@pytest.fixture
def folder(monkeypatch, tmp_path, fixed):
    """The same random bits for every fit, and a place for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def rows(n_chunks=7, X=X, y=Y, who=WHO):
    return in_chunks(n_chunks, X, y, who)


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
        with charged(1, relation="zero_out_group"):
            found = MODELS[name]().fit(rows(n_chunks))
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
    unit = skdp.Persons(PERSONS, rows_per_group=7, max_rows=2)
    model = skdp.DPVariationalLogisticRegression(unit=unit, **LABELS)
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


PERSONS_MISSING = np.array([1.0, np.nan, 2.0, 3.0, 4.0])
BAD = {
    "no labels": (lambda i: (X[:5], Y[:5]), "it has none"),
    "missing ones": (lambda i: (X[:5], Y[:5], PERSONS_MISSING), "some are missing"),
    "other columns": (lambda i: (X[:5, : 1 + i], Y[:5], WHO[:5]), "^A chunk has other columns"),
    "too few labels": (lambda i: (X[:5], Y[:5], WHO[:4]), "one hashable label"),
    "too few targets": (lambda i: (X[:5], Y[:4], WHO[:5]), "of as many rows as"),
    "NaN": (lambda i: (X[:5] * np.nan, Y[:5], WHO[:5]), "contains NaN"),
}


@pytest.mark.parametrize(("load", "says"), BAD.values(), ids=BAD)
def test_bad_chunks_of_persons_are_refused_before_the_charge(load, says, folder):
    with charged(0, ValueError, says, relation="zero_out_group"):
        MODELS["noise-aware"]().fit(ChunkedRows(load, 2))
