"""What a caller declares: classes, bounds, numbers of rows, rates, and what a fit may spend."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state

from skdp.fitting.input import LABELS, without_data
from skdp.fitting.plan import PublicFacts
from skdp.fitting.types import Seed
from skdp.fitting.validate import expected, in_range, integer, is_real, one_of, positive
from skdp.relations import check_relation

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
