"""What holds for every private estimator, as functions that raise an AssertionError where not."""

from __future__ import annotations

import inspect
import math
import pickle
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from dp_accounting.dp_event import DpEvent
from sklearn.base import clone, is_classifier
from sklearn.utils.estimator_checks import check_estimator

from skdp.fitting.input import n_is_public
from skdp.privacy import privacy_of
from skdp.privacy.events import PosteriorTerm, SelectionTerm, terms_of
from skdp.relations import sensitivity_factor
from skdp.testing._inputs import D, N
from skdp.testing._persons import of_rows, protects_persons, with_persons
from skdp.testing._refusals import check_bad_input, check_bad_parameters, check_refused_fit
from skdp.testing._replay import fixed_streams
from skdp.testing._replayed import (
    check_persons_bounded,
    check_persons_refused,
    check_persons_replay,
    check_replay,
    described,
)
from skdp.testing._subjects import (
    METHODS,
    assert_stated,
    declared,
    fitted,
    good_data,
    quiet,
    relation_of,
)

# --- releases -------------------------------------------------------------------------------------


def check_ledger(estimator: Any) -> None:
    """The ledger, the report and the releases are of one event."""
    estimator, ledger, tape = fitted(estimator)
    if not ledger.entries:
        assert not tape, "released without a charge"
        assert not hasattr(estimator, "privacy_"), "states a cost that no ledger was charged"
        return
    assert_stated(estimator, ledger)
    expected = _noise_of(privacy_of(estimator).event)
    if expected is None:
        return
    factor = sensitivity_factor(relation_of(estimator))
    pure, calls = ("quantile", "posterior_samples", "selection"), [release.call for release in tape]
    multipliers = [c.scale / c.sensitivity * (1.0 if c.kind in pure else factor) for c in calls]
    found = sorted(zip(multipliers, [call.rate for call in calls], strict=True))
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
    _, _, tape = fitted(estimator)
    for release in tape:
        output = np.asarray(release.output)
        assert release.call.scale > 0, "released without noise"
        assert output.shape == release.call.shape, "released in another shape than declared"
        assert_on_grid(output, release.call.width)


# --- the rest of what scikit-learn's users rely on ------------------------------------------------


def check_clone_and_pickle(estimator: Any) -> None:
    """A clone has equal parameters, and what was pickled predicts as before."""
    copy: Any = clone(estimator)
    assert described(copy.get_params()) == described(estimator.get_params()), "a clone differs"
    estimator, _, _ = fitted(estimator)
    X, _ = good_data(estimator)
    again = pickle.loads(pickle.dumps(estimator))
    for method in METHODS:
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
    found, _, _ = fitted(estimator)
    same = terms_of(plan.event) == terms_of(privacy_of(found).event)
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
    with quiet(), nullcontext() if "random_state" in known else fixed_streams():
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
    estimator, expected_failed_checks : estimator and mapping of str to str or None
        As of `check_private_estimator`.

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

    An estimator with ``unit=Persons()`` is checked with ``unit="row"`` where rows are changed, and
    by itself for the rest, with 8 persons and ``n_groups=9`` where it is None:

    ======================== =====================================================================
    check_persons_replay     as check_replay, where all rows of a person change, go or come
    check_persons_bounded    with the same noise, no person moves a noisy sum by more than declared
    check_persons_refused    without one label per row a fit is refused as in check_refused_fit
    ======================== =====================================================================

    Parameters
    ----------
    estimator : estimator
        Unfitted estimator or transformer; its charge is in ``privacy_``, or read with `privacy_of`.
    expected_failed_checks : mapping of str to str or None, default=None
        Names of checks that are left out, of these or of scikit-learn's, with the reason.

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
