"""What holds for every private estimator that protects persons, who have several rows each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone

from skdp.engine.release_hook import MechanismCall, Release
from skdp.relations import ROW
from skdp.rows.persons import Persons
from skdp.testing._inputs import NAN, TEXT, N

N_PERSONS = 8
GROUPS = np.random.default_rng(0).permutation(np.arange(N) % N_PERSONS)
MANY = 4 * N  # rows of a person that has most of the table
_IN_FLOAT32 = 1e-6  # of a sum, that a network in single precision may round


def protects_persons(estimator: Any) -> bool:
    """Whether an estimator, or a part of it, was told to protect persons."""
    return bool(_persons_in(estimator))


def _persons_in(estimator: Any) -> dict[str, Persons]:
    """Persons that an estimator and its parts protect, by the name of the parameter."""
    known = estimator.get_params().items()
    units = {name: value for name, value in known if isinstance(value, Persons)}
    return {name: value for name, value in units.items() if name.rpartition("__")[2] == "unit"}


def of_rows(estimator: Any) -> Any:
    """Return a clone that protects rows."""
    copy: Any = clone(estimator)
    return copy.set_params(**dict.fromkeys(_persons_in(copy), ROW))


def with_persons(estimator: Any) -> Any:
    """Return a clone that declares a number of persons if it declared none.

    It is one more than `GROUPS` has, because some samplers refuse more than were declared.
    """
    copy: Any = clone(estimator)
    known = _persons_in(copy).items()
    counted = {name: replace(own, n_groups=own.n_groups or N_PERSONS + 1) for name, own in known}
    return copy.set_params(**counted)


def bad_groups() -> Iterator[tuple[str, Any]]:
    """Yield what are no labels of 24 rows, by kind; labels show the digits 8675."""
    labels = [f"{TEXT}{code}" for code in GROUPS]
    yield "no labels", None
    yield "too few labels", labels[1:]
    yield "too many labels", [*labels, TEXT]
    yield "one text", TEXT
    yield "a number", 8675309
    yield "a missing label", [None, *labels[1:]]
    yield "a label that is NaN", np.array([NAN, *range(8675309, 8675308 + N)])
    yield "a time that is missing", np.array(["NaT", *["8675-03-09"] * (N - 1)], "datetime64[D]")
    yield "a masked label", np.ma.masked_equal(8675309 + GROUPS, 8675309)
    yield "a column", np.array(labels)[:, None]
    yield "a label that is a list", [[TEXT], *labels[1:]]
    yield "labels that are arrays", [np.array([8675309, 1])] * N


def _rounding(release: Release) -> float:
    """How far a value of a release may be from the sum with its noise."""
    values = np.ravel(release.output)
    on_grid = release.call.width * np.sqrt(len(values))
    return float(on_grid + _IN_FLOAT32 * np.linalg.norm(values.astype(float)))


def assert_moved_within(
    first: list[Release], other: list[Release], *, steps: int, same_coins: bool
) -> None:
    """Assert that no noisy sum has moved by more than it declares, with the same noise in both.

    The data sets are ``steps`` apart; without ``same_coins`` only releases of all records tell.
    """
    assert len(first) == len(other), f"{len(first)} releases, and {len(other)} of a neighbour"
    for number, (one, two) in enumerate(zip(first, other, strict=True)):
        call: MechanismCall = one.call
        if call.kind not in ("gaussian", "discrete_gaussian") or not (
            same_coins or call.rate == 1.0
        ):
            continue
        most = steps * call.sensitivity + 2 * max(_rounding(one), _rounding(two))
        pairs = zip(np.ravel(one.output).tolist(), np.ravel(two.output).tolist(), strict=True)
        moved = float(np.linalg.norm([a - b for a, b in pairs]))
        assert moved <= most, (
            f"a person has moved release {number} by {moved / call.sensitivity:.3g} times the "
            f"sensitivity it declares, {steps} at most; are rows bounded instead of persons?"
        )
