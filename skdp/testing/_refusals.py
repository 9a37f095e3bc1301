"""Input and parameters that are refused: by name, for nothing, and quoting nothing."""

from __future__ import annotations

import io
import logging
import pickle
import re
import struct
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.utils import get_tags

from skdp.privacy import BudgetExceededError, PrivacyLedger
from skdp.relations import GROUP, REPLACE_ONE, ZERO_OUT
from skdp.testing import _inputs
from skdp.testing._inputs import INF, NAN, assert_no_data, bad_inputs
from skdp.testing._replay import record_releases
from skdp.testing._subjects import (
    METHODS,
    assert_stated,
    declared,
    fitted,
    good_data,
    groups_of,
    quiet,
    relation_of,
)

# What may be given instead of epsilon.
_INSTEAD = ("noise_multiplier", "temperature", "quantile_epsilon", "likelihood_power")
BAD_BUDGETS = {
    "epsilon": (0, -1, NAN, -INF, "1", None, True, [1.0], 1j),
    "delta": (1, -1e-5, 2, NAN, INF, "1e-5", None, True, [1e-5]),
    "neighboring_relation": ("replace", None, 1),
    "random_state": (-1, 2**32, 1.5, "seed", [0.5]),
}
# What a message may name: the argument, or what of it is wrong.
_NAMES = re.compile(
    r"\b(X|y|samples?|rows?|features?|columns?|labels?|class(es)?|targets?|inputs?|array|data"
    r"|data_norm|row_norm|n_samples|n_components|string column names)\b",
    re.IGNORECASE,
)


@contextmanager
def nothing_said() -> Iterator[None]:
    """Assert that no warning, log record or printed line in the block holds a value of the data."""
    said, printed = [], io.StringIO()

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    listener, root = Listener(level=0), logging.getLogger()
    level = root.level
    root.addHandler(listener)
    root.setLevel(1)
    try:
        with (
            warnings.catch_warnings(record=True) as caught,
            redirect_stdout(printed),
            redirect_stderr(printed),
        ):
            warnings.simplefilter("always")
            yield
    finally:
        root.removeHandler(listener)
        root.setLevel(level)
    for message in [*said, printed.getvalue(), *(str(w.message) for w in caught)]:
        assert_no_data(message, "what was said")
    numerical = [w for w in caught if issubclass(w.category, RuntimeWarning)]
    assert not numerical, f"a numerical warning tells of values: {numerical[0].message}"


def assert_quotes_nothing(error: BaseException) -> None:
    """Assert that neither an error nor what a traceback prints of its causes quotes the data."""
    assert_no_data(f"{error} {error.args}", "the error")
    cause: BaseException | None = error
    while cause is not None:
        assert_no_data(f"{cause!r}", "a cause of the error")
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def assert_clear(error: Exception, ledger: PrivacyLedger) -> None:
    """Assert that an error names what is wrong, quotes nothing, and has cost nothing."""
    assert ledger.entries == (), f"charged and then refused: {error}"
    assert_quotes_nothing(error)
    assert _NAMES.search(str(error)), f"the error names nothing: {error}"


def takes(estimator: Any, X: Any, y: Any) -> bool:
    """Fit a clone on input of `bad_inputs`; whether it was taken. Either has to be clean."""
    estimator = clone(estimator)
    ledger = PrivacyLedger(neighboring_relation=relation_of(estimator))
    with ledger, nothing_said(), record_releases() as tape:
        try:
            estimator.fit(X, y)
        except (ValueError, TypeError) as error:
            learned = {a for a in vars(estimator) if a.endswith("_") and not a.endswith("__")}
            learned -= {"n_features_in_", "feature_names_in_"}
            assert not learned, f"a refused fit has left {learned}"
            assert not tape, "a refused fit has released"
            assert_clear(error, ledger)
            return False
        assert bool(tape) == bool(ledger.entries), "releases and charges do not go together"
        if tape:
            assert_stated(estimator, ledger)
        shown = [repr(estimator), repr(getattr(estimator, "privacy_", None))]
        _assert_finite(estimator)
    for text in shown:
        assert_no_data(text, "a repr")
    if X is not _inputs.X:  # labels become public with classes_
        pickled = pickle.dumps(estimator)
        secrets = (struct.pack("<d", _inputs.SECRET), b"8675309")
        assert not any(secret in pickled for secret in secrets), "the pickle holds the data"
    return True


def _assert_finite(estimator: Any) -> None:
    rows = np.zeros((2, estimator.n_features_in_))
    for method in (*METHODS, "sample_posterior"):
        if hasattr(estimator, method):
            ask = getattr(estimator, method)
            found = np.asarray(ask() if method == "sample_posterior" else ask(rows))
            finite = found.dtype.kind not in "fc" or np.isfinite(found).all()
            assert finite, f"{method} is not finite"


def check_bad_input(
    estimator: Any, inputs: Iterable[tuple[str, Any, Any]] | None = None
) -> dict[str, bool]:
    """Bad input is refused for nothing and quoting nothing, or a valid release; say which."""
    taken = {}
    for kind, X, y in inputs or bad_inputs(classifier=is_classifier(estimator)):
        try:
            taken[kind] = takes(estimator, X, y)
        except Exception as error:
            raise AssertionError(f"Input of the kind {kind!r}: {error!r}") from error
    return taken


def check_bad_parameters(
    estimator: Any, bad: Mapping[str, Iterable[Any]] = BAD_BUDGETS, *, valid: Iterable = ()
) -> None:
    """A bad value of a parameter is refused, by name, before anything is charged or released."""
    known = estimator.get_params(deep=False)
    for name in bad.keys() & known.keys():
        for value in bad[name]:
            if (value is None and known[name] is None) or (name, value) in valid:
                continue
            changes = {name: value}
            if name == "epsilon":
                changes |= {other: None for other in _INSTEAD if other in known}
            refused = declared(estimator).set_params(**changes)
            assert_refused(refused, *good_data(estimator), (ValueError, TypeError), name)


def assert_refused(
    estimator: Any, X: Any, y: Any, errors: Any, match: str, ledger: Any = None, groups: Any = None
) -> None:
    """Assert that a fit is refused in such an error, for nothing and leaving nothing."""
    before = _attributes(estimator)
    if ledger is None:
        relation = relation_of(estimator)
        known = isinstance(relation, str) and relation.endswith(("one", "out", GROUP))
        ledger = PrivacyLedger(neighboring_relation=relation if known else ZERO_OUT)
    changed = f"{type(estimator).__name__} where {match} is wrong"
    with ledger, quiet(), record_releases() as tape:
        try:
            estimator.fit(X, y, **groups_of(groups))
        except errors as error:
            refusal: Exception = error
        else:
            raise AssertionError(f"{changed}: not refused")
    assert re.search(match, str(refusal)), f"{changed}: the error does not name it: {refusal}"
    assert_quotes_nothing(refusal)
    assert not tape, f"{changed}: released before it was refused"
    assert ledger.entries == (), f"{changed}: charged before it was refused"
    assert _attributes(estimator) == before, f"{changed}: the refused fit has left attributes"


def _attributes(estimator: Any) -> dict[str, set[str]]:
    parts = {"": estimator, **estimator.get_params()}
    return {name: set(vars(p)) for name, p in parts.items() if isinstance(p, BaseEstimator)}


def check_refused_fit(estimator: Any) -> None:
    """A fit that is refused has released nothing, was not charged, and has left no attribute."""
    estimator = declared(estimator)
    X, y = good_data(estimator)
    for value in (INF, NAN):
        if not (np.isnan(value) and get_tags(estimator).input_tags.allow_nan):
            rows = X.copy()
            rows[[3, 20], 1] = value
            assert_refused(clone(estimator), rows, y, ValueError, "NaN|infinity|finite")
    _, charged, _ = fitted(estimator)
    if charged.entries:
        relation = relation_of(estimator)
        low = PrivacyLedger(1e-6, 1e-9, neighboring_relation=relation)
        assert_refused(clone(estimator), X, y, BudgetExceededError, "above the ceiling", low)
        other = ZERO_OUT if relation == REPLACE_ONE else REPLACE_ONE
        foreign = PrivacyLedger(neighboring_relation=other)
        assert_refused(clone(estimator), X, y, ValueError, "neighboring_relation", foreign)
