"""What is seen of fits on neighbouring data sets, with the releases or the noise held fixed."""

from __future__ import annotations

import pickle
import warnings
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils import get_tags

from skdp.engine import release_hook
from skdp.fitting.warnings import PrivacyWarning
from skdp.privacy import PrivacyLedger
from skdp.relations import check_relation
from skdp.testing import _replay
from skdp.testing._inputs import NAN
from skdp.testing._persons import GROUPS, MANY, assert_moved_within, bad_groups, with_persons
from skdp.testing._refusals import assert_refused
from skdp.testing._replay import fixed_streams, record_releases
from skdp.testing._subjects import declared, good_data, groups_of, relation_of


class _Seen(NamedTuple):
    """What an adversary sees of a fit (docs/promises.md), and what its releases declared."""

    error: Any
    warnings: Any
    ledger: Any
    releases: Any
    attributes: Any


def _seen(estimator: Any, X: Any, y: Any, tape: list[_replay.Release], groups: Any = None) -> _Seen:
    ledger, error = PrivacyLedger(neighboring_relation=relation_of(estimator)), None
    with warnings.catch_warnings(record=True) as said, ledger:
        warnings.simplefilter("always")
        try:
            estimator.fit(X, y, **groups_of(groups))
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
        held = getattr(value, "__qualname__", None)
        return held or (type(value).__name__, described(vars(value)))


def _check_replay(estimator: Any, pairs_of: Any, values: Any, who: str, groups: Any = None) -> None:
    estimator = declared(estimator)
    X, y = good_data(estimator)
    if get_tags(estimator).input_tags.allow_nan:
        values = (*values, NAN)
    with fixed_streams(), record_releases() as tape:
        first = _seen(clone(estimator), X, y, tape, groups)
    assert first.error is None, f"a good fit has failed: {first.error}"
    given = (X, y) if groups is None else (X, y, groups)
    for number, other in enumerate(pairs_of(*given, relation_of(estimator), values=values)):
        with fixed_streams(), _replay.replay_releases(tape) as again:
            second = _seen(clone(estimator), other[0], other[1], again, *other[2:])
        _assert_same(first, second, f"{who} {number}")


def check_replay(estimator: Any) -> None:
    """With the releases held fixed, a fit looks the same on neighbouring data sets."""
    _check_replay(estimator, _replay.neighbours, _replay.EXTREMES, "neighbour")


def _assert_same(first: _Seen, second: _Seen, who: str) -> None:
    differing = [f for f in _Seen._fields if getattr(first, f) != getattr(second, f)]
    if "attributes" in differing:
        one, two = first.attributes, second.attributes
        differing += sorted(k for k in one.keys() | two.keys() if one.get(k) != two.get(k))
    assert not differing, f"{who} shows in {', '.join(differing)}: {second.error}"


def check_persons_replay(estimator: Any) -> None:
    """With the releases held fixed, a fit looks the same whatever rows a person has, or none."""
    _check_replay(
        with_persons(estimator), _replay.neighbouring_persons, _replay.OF_PERSONS, "person", GROUPS
    )


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
    for other in _replay.neighbouring_persons(rows, targets, groups, relation, person=GROUPS[0]):
        with fixed_streams(), release_hook.rerun([release.output for release in first]) as again:
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
            assert_refused(clone(estimator), X, y, ValueError, "groups", groups=groups)
        except AssertionError as error:
            raise AssertionError(f"Groups of the kind {kind!r}: {error}") from error
