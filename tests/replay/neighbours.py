"""Data sets that differ from another one in a single record, which may be extreme."""

import numpy as np

from skdp.engine import release_hook

VALUES = [0.0, 1.0, 0.3, -1e300, 1e154, 5e-324]
RECORD = 3


def replaced(X, y, record, target):
    """Return the data with another record in the place of one."""
    X, y = X.copy(), y.copy()
    X[RECORD], y[RECORD] = record, target
    return X, y


def added(X, y, record, target):
    """Return the data with one record more."""
    return np.vstack([X, [record]]), np.append(y, target)


def neighbours(X, y, values=VALUES, targets=(0, 1), *, n_is_public=False):
    """Yield neighbours with every value, in one feature of a record and in all of them.

    Half of the values replace by the first and add by the second, the other half the other way;
    then one record is removed and one is there twice. Where the number of rows is public, all
    replace.
    """
    for i, value in enumerate(values):
        alone = X[RECORD].copy()
        alone[i % X.shape[1]] = value
        everywhere = np.full(X.shape[1], value)
        for j, record in enumerate([alone, everywhere]):
            change = replaced if n_is_public or (i + j) % 2 == 0 else added
            yield change(X, y, record, targets[(i // 2 + j) % len(targets)])
    if not n_is_public:
        yield X[1:], y[1:]
        yield added(X, y, X[0], y[0])


def frozen(fitted, rows, others):
    """Fit to rows, and to others with the same releases: nothing that can be seen differs."""
    with release_hook.record() as tape:
        first = fitted(*rows)
    for other in others:
        with release_hook.replay([release.output for release in tape]) as again:
            second = fitted(*other)
        assert [r.call for r in again] == [r.call for r in tape]
        assert second == first
