"""Rows in chunks, and what is asked of a fit that is refused, ends, or goes well."""

import traceback
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from skdp import DPVariationalLogisticRegression, PrivacyLedger
from skdp.data import ChunkedRows
from skdp.testing import record_releases

PLANTED = 424242.4242  # in rows of which no message may tell


def data(n, d=2):
    """Rows, and two classes."""
    X = np.random.default_rng(0).uniform(-1, 1, (n, d))
    return X, (X[:, 0] > 0).astype(int)


def classifier(n, **settings):
    settings = {"classes": [0, 1], "n_samples": n, "max_iter": 2} | settings
    return DPVariationalLogisticRegression(**settings)


def in_chunks(cuts, *arrays):
    """Rows, targets and persons in so many chunks, or cut there; some arrays may be missing."""
    if isinstance(cuts, int):
        cuts = np.linspace(0, len(arrays[0]), cuts + 1).astype(int)

    def load(i):
        load.reads.append(i)
        return tuple(None if a is None else a[cuts[i] : cuts[i + 1]] for a in arrays)

    load.reads = []
    return ChunkedRows(load, len(cuts) - 1)


@contextmanager
def charged(n, error=None, says="", *, relation="zero_out", n_releases=None):
    """So many fits are charged; an error says this, and nothing of the rows."""
    with PrivacyLedger(neighboring_relation=relation) as ledger, record_releases() as tape:
        if error is None:
            yield ledger
        else:
            with pytest.raises(error, match=says) as caught:
                yield ledger
            assert str(PLANTED) not in words_of(caught.value)
    assert len(ledger.entries) == n
    assert n_releases is None or len(tape) == n_releases


def words_of(error):
    """All that is to be found of an error: its message, its causes, its frames."""
    found = "".join(traceback.format_exception(error))
    while error is not None:
        trace = error.__traceback__
        while trace is not None:
            found += "".join(
                repr(value)
                for value in trace.tb_frame.f_locals.values()
                if isinstance(value, str | tuple | list | dict | np.ndarray)
                and Path(trace.tb_frame.f_code.co_filename).parent != Path(__file__).parent
            )
            trace = trace.tb_next
        error = error.__cause__ or error.__context__
    return found
