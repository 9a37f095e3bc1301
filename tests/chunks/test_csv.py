"""Rows of CSV files, in chunks."""

import numpy as np
import pandas as pd
import pytest
from chunks.common import PLANTED, charged, classifier, data

from skdp.base import Records
from skdp.data import CSVRows
from skdp.rows.chunks import ChunkSums, first_look
from skdp.rows.records import PlainRows

N, COLUMNS = 300, ["dose", "age"]
X, Y = data(N)
FRAME = pd.DataFrame({"age": X[:, 0], "note": 'a "quoted",\nline', "dose": X[:, 1], "ill": Y})


@pytest.fixture
def files(tmp_path):
    FRAME[:200].to_csv(tmp_path / "b.csv", index=False)
    FRAME[200:][FRAME.columns[::-1]].to_csv(tmp_path / "a.csv", index=False)  # in another order
    return [tmp_path / "b.csv", str(tmp_path / "a.csv")]


@pytest.mark.parametrize("most", [1, 7, 99, 200, 1000])
def test_sums_over_chunks_are_those_of_the_rows(files, most):
    rows = CSVRows(files, columns=COLUMNS, target="ill", rows_per_chunk=most)
    assert rows.n_chunks == -(-200 // most) + -(-100 // most)
    read = lambda chunk: (Records(np.asarray(chunk.X), chunk.y), list(chunk.X.columns))  # noqa: E731
    (in_chunks, *_), names = first_look(rows, read, bytes(16), n_is_public=True)
    whole = FRAME[COLUMNS].to_numpy()
    assert (names, in_chunks.shape) == (COLUMNS, whole.shape)

    def term(batch):  # whole numbers, whose sums are exact
        return np.round(batch.rows * 2**10).T @ np.round(batch.rows * 2**10)

    found = ChunkSums(rows, in_chunks.reading, PlainRows.of).sum(term, slice(None))
    np.testing.assert_array_equal(found, PlainRows(whole).sum(term, slice(None)))


def test_a_fit_of_files_is_that_of_their_rows(files, fixed):
    rows = CSVRows(files, columns=COLUMNS, target="ill", rows_per_chunk=70)
    found, whole = classifier(N).fit(rows), classifier(N).fit(FRAME[COLUMNS], Y)
    np.testing.assert_allclose(found.coef_, whole.coef_, atol=1e-9)
    assert found.score(rows) == whole.score(FRAME[COLUMNS], Y)


def test_what_is_wrong_is_said_and_not_quoted(files):
    with pytest.raises(ValueError, match="a column 'height'"):
        CSVRows(files, columns=["height"])
    FRAME.assign(dose=f"x{PLANTED}").to_csv(files[0])
    with charged(0, ValueError, r"Chunk 0 of 2: X cannot be read \(ValueError\)"):
        classifier(N).fit(CSVRows(files, columns=COLUMNS, target="ill"))
