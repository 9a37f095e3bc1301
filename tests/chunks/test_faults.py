"""What can go wrong with rows in chunks, when it is found out, and what is said of it."""

import gc
import pickle
import weakref
from functools import partial

import numpy as np
import pandas as pd
import pytest
from chunks.common import PLANTED, charged, classifier, data

import skdp
from skdp.data import ChunkedRows
from skdp.fitting import charge
from skdp.fitting.streams import Streams
from skdp.rows.chunk_tasks import Ask, Work, look

pytestmark = pytest.mark.filterwarnings("ignore::skdp.PrivacyWarning")
N = 60
X, Y = data(N)
classifier = partial(classifier, N)


class Source:
    """Three chunks of which one may change, fail or be counted: chunk -> what it holds."""

    def __init__(self, change=lambda i, n_reads, X, y: (X, y), targets=Y):
        self.change, self.targets, self.reads = change, targets, []

    def __call__(self, i):
        self.reads.append(i)
        n_reads = self.reads.count(i)
        own = slice(20 * i, 20 * i + 20)
        return self.change(i, n_reads, X[own].copy(), self.targets[own].copy())

    @property
    def rows(self):
        return ChunkedRows(self, 3)


# --- before the charge ----------------------------------------------------------------------------


def in_second(change):
    """Chunk 1 is another."""
    return lambda i, n_reads, X, y: change(X, y) if i == 1 else (X, y)


def with_value(value):
    def change(X, y):
        X[3, 1] = value
        return X, y

    return in_second(change)


def unreadable(X, y):
    raise OSError(f"row with {PLANTED}")


def not_numbers(X, y):
    X = X.astype(object)
    X[3, 1] = f"text {PLANTED}"
    return X, y


IN_SECOND = {
    "a column more": (lambda X, y: (np.hstack([X, X]), y), "Chunk 1 of 3 has other"),
    "another type": (lambda X, y: (X.astype(np.float32), y), "other columns or types"),
    "names": (lambda X, y: (pd.DataFrame(X, columns=["a", "b"]), y), "other columns or types"),
    "no labels": (lambda X, y: X, "Chunk 1 of 3: .* requires y"),
    "fewer labels": (lambda X, y: (X, y[1:]), "Chunk 1 of 3: .* inconsistent numbers"),
    "an undeclared label": (lambda X, y: (X, y + 1), "Chunk 1 of 3: .* every label"),
    "four parts": (lambda X, y: (X, y, y, y), r"Chunk 1 of 3: X cannot .*ValueError"),
    "text": (not_numbers, "Chunk 1 of 3: .* numbers, got text"),
    "a file that is not there": (unreadable, r"cannot be read \(OSError\)"),
    "nothing": (lambda X, y: None, r"cannot be read \(TypeError\)"),
}
WRONG = {
    "NaN": (with_value(np.nan), "Chunk 1 of 3: Input X contains NaN"),
    "infinity": (with_value(np.inf), "Chunk 1 of 3: Input X contains infinity"),
    "persons": (lambda i, n_reads, X, y: (X, y, y), "unit='row'"),
    "no rows": (lambda i, n_reads, X, y: (X[:0], y[:0]), "all chunks are empty"),
    "too few rows": (lambda i, n_reads, X, y: (X[:1], y[:1]), "n_samples"),
} | {name: (in_second(change), says) for name, (change, says) in IN_SECOND.items()}


@pytest.mark.parametrize(("change", "says"), WRONG.values(), ids=WRONG)
def test_what_can_be_known_is_refused_before_the_charge(change, says):
    model = classifier()
    with charged(0, ValueError, says):
        model.fit(Source(change).rows)
    assert not hasattr(model, "coef_")
    assert not hasattr(model, "n_features_in_")


def test_classes_that_chunks_disagree_on_have_to_be_declared():
    def change(i, n_reads, X, y):
        return X, np.arange(20) % 2 + (i == 2)

    with pytest.raises(ValueError, match="declare classes="):
        classifier(classes=None).fit(Source(change).rows)
    with pytest.raises(ValueError, match=r"Chunk 0 of 3: .* declare classes="):
        classifier(classes=None).fit(Source(lambda i, n_reads, X, y: (X, 0 * y)).rows)
    model = classifier(classes=None).fit(Source(lambda i, n, X, y: (X, np.arange(20) % 2)).rows)
    assert model.classes_.tolist() == [0, 1]


def test_one_class_only_and_no_rows_are_no_fault_of_a_chunk():
    def change(i, n_reads, X, y):
        return (X[:0], y[:0]) if i == 1 else (X, y * 0 + i // 2)

    model = classifier(n_samples=40).fit(Source(change).rows)
    assert model.n_features_in_ == 2


@pytest.mark.parametrize(
    ("model", "given", "says"),
    [
        (classifier(), {"y": Y}, "nothing beside rows in chunks"),
        (classifier(unit=skdp.Persons(10)), {"groups": Y}, "nothing beside rows in chunks"),
        (classifier(), {"sample_weight": np.ones(N)}, "None for rows in chunks"),
    ],
)
def test_what_chunks_cannot_have_is_refused_by_name(model, given, says):
    with charged(0, ValueError, says):
        model.fit(Source().rows, **given)


@pytest.mark.parametrize("arguments", [(None, 3), (len, 0), (len, 1.5)])
def test_a_source_that_is_none_is_refused(arguments):
    with pytest.raises(ValueError, match=r"load=|n_chunks="):
        ChunkedRows(*arguments)


# --- the charge -----------------------------------------------------------------------------------


def test_it_is_charged_once_between_the_first_look_and_the_passes():
    n_entries = []

    def change(i, n_reads, X, y):
        n_entries.append(len(ledger.entries))
        return X, y

    with charged(1) as ledger:
        classifier().fit(Source(change).rows)
    assert n_entries[:3] == [0, 0, 0]
    assert set(n_entries[3:]) == {1}


def test_a_ledger_that_refuses_ends_it_after_the_first_look():
    source = Source()
    with skdp.PrivacyLedger(epsilon=0.1, delta=1e-4), pytest.raises(skdp.BudgetExceededError):
        classifier().fit(source.rows)
    assert source.reads == [0, 1, 2]


# --- after the charge -----------------------------------------------------------------------------


def later(change):
    """Chunk 1 is another from the third reading on: in the second pass."""
    return lambda i, n_reads, X, y: change(X, y) if (i, n_reads) == (1, 3) else (X, y)


def changed(X, y):
    X[3, 1] = PLANTED
    return X, y


LATER = {
    "another value": changed,
    "another order": lambda X, y: (X[::-1].copy(), y[::-1].copy()),
    "another label": lambda X, y: (X, 1 - y),
    "a row more": lambda X, y: (np.vstack([X, X[:1]]), np.append(y, 0)),
    "a row less": lambda X, y: (X[1:], y[1:]),
    "no rows": lambda X, y: (X[:0], y[:0]),
    "another type": lambda X, y: (X.astype(np.float32), y),
    "unreadable": unreadable,
    "text": not_numbers,
}


@pytest.mark.parametrize("model", [classifier(), classifier(secure=True)])
@pytest.mark.parametrize("change", LATER.values(), ids=LATER)
def test_a_source_that_changes_ends_the_fit_and_the_charge_stands(model, change):
    source = Source(later(change))
    # Only the first pass makes a release.
    with charged(1, RuntimeError, "Rows are lost: a chunk could not", n_releases=1):
        model.fit(source.rows)
    assert not hasattr(model, "coef_")


def test_a_term_that_fails_ends_the_fit_without_words_of_its_own(monkeypatch):
    def fail(*given):
        raise ArithmeticError(f"row with {PLANTED}")

    monkeypatch.setattr("skdp.rows.records.LinearRows.sum", fail)
    one_text_for_all_causes = r"^Rows are lost(?s:(?!Arithmetic).)*$"
    with charged(1, RuntimeError, one_text_for_all_causes):
        classifier().fit(Source().rows)


def test_an_interrupt_in_a_pass_says_what_was_spent():
    def change(i, n_reads, X, y):
        if n_reads == 3:
            raise KeyboardInterrupt
        return X, y

    with charged(1, KeyboardInterrupt, "stays spent"):
        classifier().fit(Source(change).rows)


# --- what is held, and what is left ---------------------------------------------------------------


def test_one_chunk_is_held_at_a_time():
    read, most = [], []

    def load(i):
        most.append(sum(one() is not None for one in read))
        rows = X[:50].copy()
        read.append(weakref.ref(rows))
        return rows, Y[:50]

    model = classifier(n_samples=500).fit(ChunkedRows(load, 10))
    assert len(most) > 30
    assert max(most) <= 1
    model.score(ChunkedRows(load, 10))
    assert max(most) <= 2


def test_nothing_of_the_rows_is_left_in_the_estimator():
    rows = Source().rows
    model = classifier().fit(rows)
    kept = pickle.dumps(model)  # a source of this module's could not be pickled
    assert X[7].tobytes() not in kept
    rows = weakref.ref(rows)
    gc.collect()
    assert rows() is None


def test_keys_and_states_show_in_no_repr():
    assert repr(Ask(partial(look, None, b"secret"))) == "Ask()"
    work = Work(reading=b"secret", build=len, term=len, selection=slice(None))
    assert repr(work) == "Work()"


def test_a_seeded_fit_repeats_and_shares_no_noise_with_other_rows(monkeypatch):
    material = []
    monkeypatch.setattr(charge, "Streams", lambda seed: material.append(seed) or Streams(b"fixed"))

    def fitted(change, n_chunks=3):
        rows = ChunkedRows(Source(change), n_chunks)
        return classifier(random_state=0, n_samples=20 * n_chunks).fit(rows).coef_

    same = lambda i, n_reads, X, y: (X, y)  # noqa: E731
    assert (fitted(same) == fitted(same)).all()
    fitted(with_value(0.5))
    fitted(in_second(lambda X, y: (X, 1 - y)))
    fitted(same, n_chunks=2)
    assert material[0] == material[1]
    assert len(set(material)) == 4


@pytest.mark.parametrize(
    "model", [skdp.DPVariationalLinearRegression(n_samples=N, max_iter=2), skdp.DPStandardScaler()]
)
def test_a_refit_forgets_the_columns_of_the_fit_before(model):
    source = Source(lambda i, n_reads, X, y: (X[:, :1], X[:, 0]))
    model.fit(np.hstack([X, X]), X[:, 0])
    assert model.fit(source.rows).n_features_in_ == 1
