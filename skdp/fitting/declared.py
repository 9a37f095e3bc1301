"""What a caller declares: classes, bounds, numbers of rows, rates, and what a fit may spend."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state

from skdp.fitting.input import LABELS, without_data
from skdp.fitting.plan import PublicFacts
from skdp.fitting.types import Seed
from skdp.fitting.validate import expected, in_range, integer, is_real, one_of, positive
from skdp.fitting.warnings import FitWarning, PrivacyWarning
from skdp.relations import ROW, check_relation

if TYPE_CHECKING:
    from skdp.privacy.budget import Budget


def encode_labels(y: np.ndarray, classes: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the classes, sorted, and each label's number among them.

    Parameters
    ----------
    y : ndarray of shape (n,)
        Labels of rows.
    classes : array-like or None
        The declared classes; None reads them from y.
    name : str
        Of the estimator, for messages.

    Returns
    -------
    tuple of ndarray, (n_classes,) and (n,)

    Raises
    ------
    ValueError
        If y holds a label that was not declared, or only one; the label is not named.

    Examples
    --------
    >>> import numpy as np
    >>> from skdp.base import encode_labels
    >>> encode_labels(np.array(["b", "a"]), ["a", "b", "c"], "DPClassifier")[1]
    array([1, 0])
    """
    if classes is None:
        with without_data(LABELS):
            found, codes = np.unique(y, return_inverse=True)
        if len(found) < 2:
            raise ValueError(
                f"{name} needs at least 2 classes, but y holds only one class; declare "
                "classes=[...] if a class may be absent from the data."
            )
        return found, codes
    declared = _distinct(classes)
    with without_data(LABELS):
        known = np.isin(y, declared).all()
    if not known:
        raise ValueError(
            f"Expected every label in y to be one of the {len(declared)} declared classes, but "
            "there are others; declare them in classes, in the type of y, or drop their rows."
        )
    return declared, np.searchsorted(declared, y)


def _distinct(classes: Any) -> np.ndarray:
    """Distinct labels, sorted."""
    try:
        array = np.asarray(classes)
        found = np.unique(array) if array.ndim == 1 else array[:0].ravel()
    except (TypeError, ValueError, IndexError):
        found = np.empty(0)
    if len(found) < 2:
        raise expected("a list of at least 2 distinct labels", classes=classes)
    return found


def n_classes(estimator: Any, classes: Any) -> int | None:
    """Return the number of classes, given or declared; None for neither.

    Parameters
    ----------
    estimator : estimator
        With the parameter ``classes``.
    classes : array-like or None
        Given classes, which go first.

    Returns
    -------
    int or None

    Examples
    --------
    >>> from skdp import DPSGDClassifier
    >>> from skdp.base import n_classes
    >>> n_classes(DPSGDClassifier(classes=["a", "b"]), None)
    2
    """
    labels = estimator.classes if classes is None else classes
    return None if labels is None else len(_distinct(labels))


def target_bounds(bounds: Any) -> tuple[float, float]:
    """Check ``target_bounds``; None is no bound."""
    if bounds is None:
        return -np.inf, np.inf
    is_pair = isinstance(bounds, tuple | list | np.ndarray) and len(bounds) == 2
    if not is_pair or not all(map(is_real, bounds)) or not -np.inf < bounds[0] < bounds[1] < np.inf:
        raise expected("None or two finite numbers (low, high), low < high", target_bounds=bounds)
    low, high = float(bounds[0]), float(bounds[1])
    if not 1e-100 < (high - low) / 2 < 1e100:
        raise expected("neither closer than 1e-100 nor farther than 1e100", target_bounds=bounds)
    return low, high


def unit_of_targets(bounds: tuple[float, float] | None) -> tuple[float, float]:
    """Middle and half width of the bounds of the targets; 0 and 1 without bounds."""
    low, high = target_bounds(bounds)
    return (0.0, 1.0) if bounds is None else ((low + high) / 2, (high - low) / 2)


# A declared n may be that of a whole of which folds are fitted, or of last year's table.
_TOO_FEW, _TOO_MANY, _FAR_FROM = 2, 3, 2.1  # of two folds each is half of what was declared

_MORE_THAN = 1.5  # of what was declared, which no fold is


def public_n_rows(declared: int | None, n: int, *, is_public: bool) -> int:
    """Return the number of rows that defaults may depend on: never n, that of X, unless public.

    Where n is public, a number that was declared is held against it.
    """
    if declared is None and not is_public:
        raise expected(
            "a public number of rows",
            "under add_or_remove_one the number of rows is private, and rates and step sizes "
            "must not depend on it: give a public estimate, e.g. n_samples=10_000",
            n_samples=None,
        )
    found = n if declared is None else integer(1, n_samples=declared)
    if is_public and not n <= _TOO_FEW * found <= _TOO_FEW * _TOO_MANY * n:
        raise expected(
            f"near the number of rows, {n}",
            "steps and noise are planned for it; n_samples=None takes it from X and says so in the "
            "report, as learning curves and halving searches need",
            n_samples=declared,
        )
    if is_public and not n <= _MORE_THAN * found <= _MORE_THAN * _FAR_FROM * n:
        which = "for rows that are not there" if found > n else "without many that are there"
        warnings.warn(
            f"n_samples={found} is {found / n:.2g} times the number of rows, {n}: steps, noise and "
            f"posterior are planned {which}. Declare a number nearby.",
            FitWarning,
            stacklevel=6,
        )
    return found


def warn_of_delta(estimator: Any, n: int, name: str = "") -> None:
    """Warn where δ allows one of n records, rows or persons, to be shown."""
    delta, epsilon = estimator.delta, estimator.epsilon
    if is_real(delta) and 1.0 <= delta * n < n and not (is_real(epsilon) and np.isinf(epsilon)):
        one, all_of_them = ("a row", "rows") if estimator.unit == ROW else ("a person", "persons")
        warnings.warn(
            f"{name or type(estimator).__name__} has delta={delta:g} for {n} {all_of_them}: a "
            f"delta of 1/n or more allows a fit that publishes {one} at random. Choose one well "
            "below 1/n.",
            PrivacyWarning,
            stacklevel=6,
        )


def too_many_rows(most: float) -> ValueError:
    """Return the error of more rows than the rounding bound of a sum covers."""
    return ValueError(
        f"Expected X to have at most {most} rows: beyond, the rounding of a sum is not covered "
        "by the declared sensitivity. Fit on a random subset."
    )


def sampling_rate(estimator: Any, facts: PublicFacts, default: Callable[[int], float]) -> float:
    """Return the rate that ``sampling_rate`` or ``batch_size`` asks for, or the default for n."""
    if estimator.sampling_rate is None:
        if estimator.batch_size == "auto":
            return default(facts.rows)
        return min(1.0, integer(1, "or 'auto'", batch_size=estimator.batch_size) / facts.rows)
    if estimator.batch_size != "auto":
        raise expected(
            "'auto' when sampling_rate is given",
            "the two are alternatives",
            batch_size=estimator.batch_size,
        )
    return in_range(1e-12, 1.0, closed="both", sampling_rate=estimator.sampling_rate)


def check_seed(random_state: Seed) -> None:
    """Refuse what is no seed."""
    try:
        check_random_state(random_state)
    except ValueError:
        kind = "None, an integer in [0, 2**32 - 1] or a RandomState"
        raise expected(kind, random_state=random_state) from None


_MOST_EPSILON = 1e9  # of a finite one


def check_budget(
    estimator: Any, instead: str = "noise_multiplier", *, pure: bool = False
) -> Budget:
    """Check ``epsilon``, ``delta``, the parameter ``instead`` of ε, and the relation.

    With ``pure``, δ may be 0. What is no seed is refused here too: later it would be charged for.
    """
    from skdp.privacy.accounting import ACCOUNTANTS
    from skdp.privacy.budget import Budget

    check_relation(estimator.neighboring_relation)
    relation = estimator._relation
    check_seed(estimator.random_state)
    epsilon, delta, given = estimator.epsilon, estimator.delta, getattr(estimator, instead, None)
    if not is_real(delta) or not (0 < delta < 1 or (pure and delta == 0)):
        kind = "a number in [0, 1)" if pure else "a number in (0, 1)"
        remedy = "" if pure or delta != 0 else "; OPSPosteriorSampler and OPSRegressor have delta=0"
        raise expected(kind, f"well below 1/n, e.g. 1e-5{remedy}", delta=delta)
    accountant = one_of(ACCOUNTANTS, accountant=getattr(estimator, "accountant", "auto"))
    if given is None:
        remedy = "use float('inf') for a fit without privacy"
        if hasattr(estimator, instead):
            remedy += f", or give {instead} instead"
        if _MOST_EPSILON < positive(remedy, epsilon=epsilon, allow_inf=True) < np.inf:
            raise expected(f"at most {_MOST_EPSILON:g}, or float('inf')", epsilon=epsilon)
        return Budget(epsilon, delta, relation, accountant)
    positive(**{instead: given})
    if instead == "noise_multiplier":
        remedy = "use epsilon=float('inf') for a fit without privacy"
        in_range(1e-9, 1e30, remedy, closed="both", noise_multiplier=given)
    if epsilon is not None:
        raise expected(
            f"None when {instead} is given",
            "the two are alternatives: one fixes the other",
            epsilon=epsilon,
        )
    return Budget(None, delta, relation, accountant, float(given))
