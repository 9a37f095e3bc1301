"""What holds for every private estimator, as functions that raise an AssertionError where not."""

from __future__ import annotations

import inspect
import io
import logging
import math
import pickle
import re
import struct
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from dp_accounting.dp_event import ComposedDpEvent, DpEvent
from sklearn.base import BaseEstimator, clone, is_classifier, is_regressor
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator

from skdp import _release_hook
from skdp._input import n_is_public
from skdp._warnings import FitWarning, PrivacyWarning
from skdp.privacy import BudgetExceededError, PrivacyLedger, privacy_of
from skdp.privacy.events import PosteriorTerm, SelectionTerm, terms_of
from skdp.relations import GROUP, REPLACE_ONE, ZERO_OUT, check_relation, sensitivity_factor
from skdp.testing import _inputs
from skdp.testing._inputs import INF, NAN, assert_no_data, bad_inputs
from skdp.testing._persons import (
    GROUPS,
    MANY,
    assert_moved_within,
    bad_groups,
    of_rows,
    protects_persons,
    with_persons,
)
from skdp.testing._replay import (
    EXTREMES,
    OF_PERSONS,
    Release,
    fixed_streams,
    neighbouring_persons,
    neighbours,
    record_releases,
    replay_releases,
)

N, D = _inputs.N, _inputs.D
# What may be given instead of epsilon.
_INSTEAD = ("noise_multiplier", "temperature", "quantile_epsilon", "likelihood_power")
_METHODS = ("predict", "predict_proba", "decision_function", "transform")
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


# --- an estimator, and data for it ----------------------------------------------------------------


def good_data(estimator: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """Return 24 rows of 3 features in [-1, 1]; labels 0 and 1, numbers in [0, 1], or no targets."""
    X = np.random.default_rng(0).uniform(-1, 1, (N, D))
    if is_classifier(estimator):
        return X, np.arange(N) % 2
    return X, np.arange(N) % 2 / 2 if is_regressor(estimator) else None


def declared(estimator: Any) -> Any:
    """Return a clone for which the public facts of `good_data` are declared where it takes them."""
    facts = {"classes": [0, 1], "n_samples": N}
    estimator = clone(estimator)
    known = estimator.get_params()
    return estimator.set_params(
        **{
            name: facts[name.rpartition("__")[2]]
            for name, value in known.items()
            if value is None and name.rpartition("__")[2] in facts
        }
    )


def relation_of(estimator: Any) -> str:
    """Return the neighbouring relation of an estimator, or of the first part that has one."""
    named = (v for k, v in estimator.get_params().items() if k.endswith("neighboring_relation"))
    relation = next(named, ZERO_OUT)
    return f"{relation}_{GROUP}" if protects_persons(estimator) else relation


def _fitted(estimator: Any) -> tuple[Any, PrivacyLedger, list[Release]]:
    persons = protects_persons(estimator)
    estimator = declared(with_persons(estimator) if persons else estimator)
    ledger = PrivacyLedger(neighboring_relation=relation_of(estimator))
    with _quiet(), ledger, record_releases() as tape:
        estimator.fit(*good_data(estimator), **_groups(GROUPS if persons else None))
    return estimator, ledger, tape


def _groups(groups: Any) -> dict[str, Any]:
    """The argument of `fit` that names persons, where there are any."""
    return {} if groups is None else {"groups": groups}


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        warnings.simplefilter("ignore", FitWarning)
        yield


# --- input that is refused ------------------------------------------------------------------------


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
            _assert_stated(estimator, ledger)
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
    for method in (*_METHODS, "sample_posterior"):
        if hasattr(estimator, method):
            ask = getattr(estimator, method)
            found = np.asarray(ask() if method == "sample_posterior" else ask(rows))
            finite = found.dtype.kind not in "fc" or np.isfinite(found).all()
            assert finite, f"{method} is not finite"


def check_bad_input(
    estimator: Any, inputs: Iterable[tuple[str, Any, Any]] | None = None
) -> dict[str, bool]:
    """Bad input is refused for nothing and quoting nothing, or is a valid release.

    Returns whether each kind was taken.
    """
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
            _assert_refused(refused, *good_data(estimator), (ValueError, TypeError), name)


def _assert_refused(
    estimator: Any,
    X: Any,
    y: Any,
    errors: type[Exception] | tuple[type[Exception], ...],
    match: str,
    ledger: PrivacyLedger | None = None,
    groups: Any = None,
) -> None:
    before = _attributes(estimator)
    if ledger is None:
        relation = relation_of(estimator)
        known = isinstance(relation, str) and relation.endswith(("one", "out", GROUP))
        ledger = PrivacyLedger(neighboring_relation=relation if known else ZERO_OUT)
    changed = f"{type(estimator).__name__} where {match} is wrong"
    with ledger, _quiet(), record_releases() as tape:
        try:
            estimator.fit(X, y, **_groups(groups))
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
    """Names of what an estimator and its parts hold."""
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
            _assert_refused(clone(estimator), rows, y, ValueError, "NaN|infinity|finite")
    _, charged, _ = _fitted(estimator)
    if charged.entries:
        relation = relation_of(estimator)
        low = PrivacyLedger(1e-6, 1e-9, neighboring_relation=relation)
        _assert_refused(clone(estimator), X, y, BudgetExceededError, "above the ceiling", low)
        other = ZERO_OUT if relation == REPLACE_ONE else REPLACE_ONE
        foreign = PrivacyLedger(neighboring_relation=other)
        _assert_refused(clone(estimator), X, y, ValueError, "neighboring_relation", foreign)


# --- releases -------------------------------------------------------------------------------------


def _assert_stated(estimator: Any, ledger: PrivacyLedger) -> None:
    charged = ComposedDpEvent([entry.event for entry in ledger.entries])
    same = terms_of(charged) == terms_of(privacy_of(estimator).event)
    assert same, "the ledger and the report differ"


def check_ledger(estimator: Any) -> None:
    """The ledger, the report and the releases are of one event."""
    estimator, ledger, tape = _fitted(estimator)
    if not ledger.entries:
        assert not tape, "released without a charge"
        assert not hasattr(estimator, "privacy_"), "states a cost that no ledger was charged"
        return
    _assert_stated(estimator, ledger)
    expected = _noise_of(privacy_of(estimator).event)
    if expected is None:
        return
    factor = sensitivity_factor(relation_of(estimator))
    found = sorted(
        (
            r.call.scale
            / r.call.sensitivity
            * (1.0 if r.call.kind in ("quantile", "posterior_samples", "selection") else factor),
            r.call.rate,
        )
        for r in tape
    )
    assert len(found) == len(expected), f"{len(expected)} charged, {len(found)} released"
    within = zip(found, expected, strict=True)
    if protects_persons(estimator):  # who may move a sum by less when replaced than twice the bound
        kept = all(f[0] >= e[0] * (1 - 1e-9) and f[1] == e[1] for f, e in within)
    else:
        kept = np.allclose(found, expected, rtol=1e-9)
    assert kept, "released with less or more noise than charged"


def _noise_of(event: DpEvent) -> list[tuple[float, float]] | None:
    """Noise over sensitivity and sampling rate of each release; None if their number is random."""
    noise = []
    for term in terms_of(event):
        if isinstance(term, SelectionTerm):
            return None
        pure = isinstance(term, PosteriorTerm)
        multiplier = 1 / term.eta if pure else term.noise_multiplier
        noise += [(multiplier, getattr(term, "sampling_rate", 1.0))] * term.count
    return sorted(noise)


def assert_on_grid(values: Any, width: float) -> None:
    """Assert in exact arithmetic that values are integers times the width, a power of two."""
    assert width > 0, "no grid is declared"
    assert math.frexp(width)[0] == 0.5, f"the width {width} is no power of two"
    for value in np.ravel(values).tolist():
        whole = (Fraction(value) / Fraction(width)).denominator == 1
        assert whole, "a release is off the grid that its call declares"


def check_grid(estimator: Any) -> None:
    """Every released value lies on the public grid that its call declares."""
    _, _, tape = _fitted(estimator)
    for release in tape:
        output = np.asarray(release.output)
        assert release.call.scale > 0, "released without noise"
        assert output.shape == release.call.shape, "released in another shape than declared"
        assert_on_grid(output, release.call.width)


class _Seen(NamedTuple):
    """What an adversary sees of a fit (docs/promises.md), and what its releases declared."""

    error: Any
    warnings: Any
    ledger: Any
    releases: Any
    attributes: Any


def _seen(estimator: Any, X: Any, y: Any, tape: list[Release], groups: Any = None) -> _Seen:
    ledger, error = PrivacyLedger(neighboring_relation=relation_of(estimator)), None
    with warnings.catch_warnings(record=True) as said, ledger:
        warnings.simplefilter("always")
        try:
            estimator.fit(X, y, **_groups(groups))
        except Exception as raised:
            error = repr(raised)
    return _Seen(
        error,
        [(w.category, str(w.message)) for w in said if w.category is not PrivacyWarning],
        [(entry.event, entry.label) for entry in ledger.entries],
        [release.call for release in tape],
        described(vars(estimator)),
    )


def described(value: Any) -> Any:
    """Return all that there is in an object, as something to compare."""
    if isinstance(value, dict):
        return {str(name): described(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [described(part) for part in value]
    if hasattr(value, "state_dict") and not isinstance(value, type):  # pickles hold addresses
        return repr(value), {k: v.numpy().tobytes() for k, v in value.state_dict().items()}
    if isinstance(value, BaseEstimator):
        return type(value).__name__, described(vars(value))
    try:
        return pickle.dumps(value)
    except (pickle.PicklingError, AttributeError, TypeError):
        return getattr(value, "__qualname__", None) or (
            type(value).__name__,
            described(vars(value)),
        )


def check_replay(estimator: Any) -> None:
    """With the releases held fixed, a fit looks the same on neighbouring data sets."""
    estimator = declared(estimator)
    X, y = good_data(estimator)
    values = EXTREMES
    if get_tags(estimator).input_tags.allow_nan:
        values = (*EXTREMES, NAN)
    with fixed_streams(), record_releases() as tape:
        first = _seen(clone(estimator), X, y, tape)
    assert first.error is None, f"a good fit has failed: {first.error}"
    for number, other in enumerate(neighbours(X, y, relation_of(estimator), values=values)):
        with fixed_streams(), replay_releases(tape) as again:
            second = _seen(clone(estimator), *other, again)
        _assert_same(first, second, f"neighbour {number}")


def _assert_same(first: _Seen, second: _Seen, who: str) -> None:
    differing = [f for f in _Seen._fields if getattr(first, f) != getattr(second, f)]
    if "attributes" in differing:
        one, two = first.attributes, second.attributes
        differing += sorted(k for k in one.keys() | two.keys() if one.get(k) != two.get(k))
    assert not differing, f"{who} shows in {', '.join(differing)}: {second.error}"


# --- persons --------------------------------------------------------------------------------------


def check_persons_replay(estimator: Any) -> None:
    """With the releases held fixed, a fit looks the same whatever rows a person has, or none."""
    estimator = declared(with_persons(estimator))
    X, y = good_data(estimator)
    values = OF_PERSONS
    if get_tags(estimator).input_tags.allow_nan:
        values = (*OF_PERSONS, NAN)
    with fixed_streams(), record_releases() as tape:
        first = _seen(clone(estimator), X, y, tape, GROUPS)
    assert first.error is None, f"a good fit has failed: {first.error}"
    pairs = neighbouring_persons(X, y, GROUPS, relation_of(estimator), values=values)
    for number, (rows, targets, groups) in enumerate(pairs):
        with fixed_streams(), replay_releases(tape) as again:
            second = _seen(clone(estimator), rows, targets, again, groups)
        _assert_same(first, second, f"person {number}")


def check_persons_bounded(estimator: Any) -> None:
    """No person, with however many rows, moves a noisy sum by more than the sum declares."""
    estimator = declared(with_persons(estimator))
    relation = check_relation(relation_of(estimator))
    X, y = good_data(estimator)
    rows = np.vstack([np.tile(X[:1], (MANY, 1)), X])
    targets = None if y is None else np.concatenate([np.repeat(y[:1], MANY), y])
    groups = np.concatenate([np.full(MANY, GROUPS[0]), GROUPS])
    with fixed_streams(), record_releases() as first:
        _seen(clone(estimator), rows, targets, first, groups)
    for other in neighbouring_persons(rows, targets, groups, relation, person=GROUPS[0]):
        with fixed_streams(), _release_hook.rerun([release.output for release in first]) as again:
            _seen(clone(estimator), *other[:2], again, other[2])
        replaced = len(np.unique(other[2])) == len(np.unique(groups))
        steps = 2 if replaced and relation.null_record else 1
        assert_moved_within(first, again, steps=steps, same_coins=replaced)


def check_persons_refused(estimator: Any) -> None:
    """A fit without one label per row is refused, before any charge and quoting no label."""
    estimator = declared(with_persons(estimator))
    X, y = good_data(estimator)
    for kind, groups in bad_groups():
        try:
            _assert_refused(clone(estimator), X, y, ValueError, "groups", groups=groups)
        except AssertionError as error:
            raise AssertionError(f"Groups of the kind {kind!r}: {error}") from error


# --- the rest of what scikit-learn's users rely on ------------------------------------------------


def check_clone_and_pickle(estimator: Any) -> None:
    """A clone has equal parameters, and what was pickled predicts as before."""
    copy: Any = clone(estimator)
    assert described(copy.get_params()) == described(estimator.get_params()), "a clone differs"
    estimator, _, _ = _fitted(estimator)
    X, _ = good_data(estimator)
    again = pickle.loads(pickle.dumps(estimator))
    for method in _METHODS:
        if hasattr(estimator, method):
            same = np.array_equal(getattr(estimator, method)(X), getattr(again, method)(X))
            assert same, f"after a pickle, {method} is another"
    if hasattr(estimator, "privacy_"):
        assert repr(again.privacy_) == repr(estimator.privacy_), "the pickle states another cost"


def check_docstring(estimator: Any) -> None:
    """The class says what its parameters are, and what of it is private."""
    text = inspect.getdoc(type(estimator)) or ""
    assert re.search(r"^Parameters\n-{10}$", text, re.MULTILINE), "no section on parameters"
    assert re.search("priva", text, re.IGNORECASE), "the docstring does not mention privacy"
    for name in estimator.get_params(deep=False):
        assert re.search(rf"^.*\b{name}\b.* : ", text, re.MULTILINE), f"{name} is not documented"


def check_plan(estimator: Any) -> None:
    """What `plan` states before any data exist is what a fit is charged."""
    if not hasattr(estimator, "plan"):
        return
    classes = [0, 1] if is_classifier(estimator) else None
    fitted_to = with_persons(estimator) if protects_persons(estimator) else estimator
    plan = declared(fitted_to).plan(n_samples=N, n_features=D, classes=classes)
    fitted, _, _ = _fitted(estimator)
    same = terms_of(plan.event) == terms_of(privacy_of(fitted).event)
    assert same, "the plan and the fit have different events"


# Of fits that take weights: these are beyond their bound, or rest on exact sums.
_OF_WEIGHTS = {
    "check_sample_weights_list": "weights beyond the declared bound are refused",
    "check_sample_weights_not_overwritten": "weights beyond the declared bound are refused",
    "check_sample_weight_equivalence_on_dense_data": "weights beyond the bound are refused",
    "check_class_weight_classifiers": "the noise is for the weight of 1000, and rows are 50",
    "check_sample_weight_equivalence_on_sparse_data": "weights beyond the bound are refused",
    "check_all_zero_sample_weights_error": "whether all weights are 0 is private",
}
_OF_NO_ROWS = {"check_estimators_empty_data_messages": "whether there are rows is private"}


def check_scikit_learn(
    estimator: Any, expected_failed_checks: Mapping[str, str] | None = None
) -> None:
    """scikit-learn's own checks pass."""
    # The checks seed the outermost estimator, and ask for equal results; the rest gets seeds here.
    copy: Any = clone(estimator)
    known = copy.get_params()
    if not getattr(copy, "sets_inner_budgets", False):  # a search seeds its trials itself
        copy.set_params(**{name: 0 for name in known if name.endswith("__random_state")})
    failing = dict(expected_failed_checks or {})
    if "max_sample_weight" in known:
        failing |= _OF_WEIGHTS
    if not n_is_public(copy):
        failing |= _OF_NO_ROWS
    with _quiet(), nullcontext() if "random_state" in known else fixed_streams():
        check_estimator(copy, expected_failed_checks=failing, on_skip=None)


CHECKS: tuple[Callable[[Any], Any], ...] = (
    check_docstring,
    check_clone_and_pickle,
    check_bad_parameters,
    check_bad_input,
    check_refused_fit,
    check_ledger,
    check_grid,
    check_replay,
    check_plan,
)
PERSON_CHECKS: tuple[Callable[[Any], Any], ...] = (
    check_persons_replay,
    check_persons_bounded,
    check_persons_refused,
)
# What fits without groups.
OF_ROWS = (
    "check_bad_parameters", "check_bad_input", "check_refused_fit", "check_replay",
    "check_scikit_learn",
)  # fmt: skip


def private_estimator_checks(
    estimator: Any, *, expected_failed_checks: Mapping[str, str] | None = None
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the checks of `check_private_estimator` one by one, for a test framework.

    Parameters
    ----------
    estimator : estimator
        An unfitted estimator or transformer.
    expected_failed_checks : mapping of str to str or None, default=None
        Names of checks that are left out, of these or of scikit-learn's, with the reason.

    Yields
    ------
    tuple of (str, callable)
        Name of the check, and a function without arguments that raises an AssertionError.

    Examples
    --------
    >>> from skdp import NormClipper
    >>> from skdp.testing import private_estimator_checks
    >>> sorted(name for name, _ in private_estimator_checks(NormClipper()))[:3]
    ['check_bad_input', 'check_bad_parameters', 'check_clone_and_pickle']
    """
    expected = expected_failed_checks or {}
    theirs = partial(check_scikit_learn, expected_failed_checks=expected)
    checks = {check.__name__: check for check in CHECKS} | {"check_scikit_learn": theirs}
    persons = protects_persons(estimator)
    rows = of_rows(estimator) if persons else estimator
    for name, check in checks.items():
        if name not in expected:
            yield name, partial(check, rows if name in OF_ROWS else estimator)
    for check in PERSON_CHECKS if persons else ():
        if check.__name__ not in expected:
            yield check.__name__, partial(check, estimator)


def check_private_estimator(
    estimator: Any, *, expected_failed_checks: Mapping[str, str] | None = None
) -> None:
    """Check that an estimator keeps what skdp promises, with scikit-learn's own checks last.

    The fits are on 24 synthetic rows of 3 features, with labels 0 and 1, numbers in [0, 1], or no
    targets, as scikit-learn's tags ask for; parameters named ``classes`` and ``n_samples`` are set
    where they are None. Settings of a few steps and much noise make the checks fast.

    ======================== =====================================================================
    check                    what has to hold
    ======================== =====================================================================
    check_docstring          every parameter is documented, and privacy is documented
    check_clone_and_pickle   clones have equal parameters; what was pickled predicts the same
    check_bad_parameters     bad ε, δ, relations and seeds are refused by name
    check_bad_input          170 kinds of input are refused in a ValueError or TypeError that
                             quotes no value, before any charge, or are a valid release
    check_refused_fit        a refused fit has released nothing and left no attribute
    check_ledger             the ledger's entries, the report and the releases are the same
    check_grid               every released value lies on the grid that its call declares
    check_replay             with the releases held fixed, neighbours with extreme records give
                             equal attributes, warnings, errors and ledgers
    check_plan               ``plan``, where there is one, states the event of the fit
    check_scikit_learn       `sklearn.utils.estimator_checks.check_estimator`
    ======================== =====================================================================

    An estimator with ``unit="group"`` is checked with ``unit="row"`` where rows are changed, and by
    itself for the rest, with 8 persons and a parameter ``n_groups`` set to 9 where it is None:

    ======================== =====================================================================
    check_persons_replay     as check_replay, where all rows of a person change, go or come
    check_persons_bounded    with the same noise, no person moves a noisy sum by more than declared
    check_persons_refused    without one label per row a fit is refused as in check_refused_fit
    ======================== =====================================================================

    Parameters
    ----------
    estimator : estimator
        An unfitted estimator or transformer; what it charges is in its ``privacy_``, or read
        with `privacy_of`.
    expected_failed_checks : mapping of str to str or None, default=None
        Names of checks that are left out, of these or of scikit-learn's, with the reason.

    Raises
    ------
    AssertionError
        If a check fails, saying which.

    Notes
    -----
    The checks find mistakes; they are no proof of privacy. That the sensitivity which a release
    declares is true is for the author to prove, and `skdp.audit` to try to refute.

    Examples
    --------
    >>> from skdp import DPStandardScaler
    >>> from skdp.testing import check_private_estimator
    >>> check_private_estimator(DPStandardScaler(lower=-100, upper=100))
    """
    checks = private_estimator_checks(estimator, expected_failed_checks=expected_failed_checks)
    for name, check in checks:
        try:
            check()
        except AssertionError as error:
            raise AssertionError(f"{name} of {type(estimator).__name__}: {error}") from error
