"""Data sets that differ from another one in all rows of one person, who may have very many."""

import numpy as np

VALUES = [0.0, 1.0, -1e300, 1e154, 5e-324]


def persons_changed(X, y, groups, values=VALUES, targets=(0, 1), person=3):
    """Yield neighbours (X, y, groups): a person vanishes, or has other rows, few or very many.

    The new rows stand apart, before those of others, and once the person owns half of the table.
    """
    others = groups != person
    yield X[others], y[others], groups[others]
    for i, value in enumerate(values):
        count = [1, 3, len(X)][i % 3]
        rows = np.full((count, X.shape[1]), value)
        if i % 2:  # one feature alone
            rows[:, 1:] = X[:1, 1:]
        label = np.full(count, targets[i % len(targets)], dtype=y.dtype)
        yield (
            np.vstack([rows, X[others]]),
            np.concatenate([label, y[others]]),
            np.concatenate([np.full(count, person), groups[others]]),
        )
