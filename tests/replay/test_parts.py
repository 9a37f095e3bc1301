"""Fits on parts of a split: what reads one part does not tell records of another."""

from __future__ import annotations

import numpy as np
import pytest

from skdp import DisjointSplit, DPSGDClassifier, DPStandardScaler, DPVariationalLogisticRegression
from skdp.testing import fixed_streams, record_releases

N = 90
rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (N, 3))
y = (X[:, 0] > 0).astype(int)
GROUPS = rng.integers(0, 30, N)

FITS = {
    "logistic": lambda n: DPVariationalLogisticRegression(
        classes=[0, 1], n_samples=n, max_iter=3, epsilon=50.0
    ),
    "scaler": lambda n: DPStandardScaler(epsilon=50.0, lower=-1, upper=1),
    "network": lambda n: DPSGDClassifier(
        50.0, hidden_layer_sizes=(), classes=[0, 1], n_samples=n, max_iter=3, sampling_rate=1.0
    ),
}


def outputs(fit, split: DisjointSplit, X, y) -> dict[str, list[np.ndarray]]:
    """Releases of a fit on each part, with the same noise whenever it is called."""
    found = {}
    for part in split.parts:
        with fixed_streams(), record_releases() as tape:
            FITS[fit](split.n_samples_of(part)).fit(*split.take(part, X, y))
        found[part] = [np.asarray(release.output) for release in tape]
    return found


def equal(ones, others) -> bool:
    return all(np.array_equal(one, other) for one, other in zip(ones, others, strict=True))


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("unit", ["row", "group"])
def test_a_record_shows_in_the_releases_of_its_part_alone(fit: str, unit: str) -> None:
    split = DisjointSplit(N, test_size=0.4, groups=GROUPS if unit == "group" else None)
    before = outputs(fit, split, X, y)
    changed = 0
    for row in (3, 17, 44, 61, 80):
        where = GROUPS[row] == GROUPS if unit == "group" else np.arange(N) == row
        own, other = ("train", "test") if row in split.train else ("test", "train")
        neighbour, labels = X.copy(), y.copy()
        neighbour[where], labels[where] = 0.9, 1 - y[row]
        after = outputs(fit, split, neighbour, labels)
        assert equal(before[other], after[other])
        changed += not equal(before[own], after[own])
    assert changed == 5


@pytest.mark.parametrize("fit", FITS)
def test_a_row_more_shows_in_its_part_alone(fit: str) -> None:
    split = DisjointSplit(N, test_size=0.4, neighboring_relation="add_or_remove_one")
    before = outputs(fit, split, X, y)
    after = outputs(fit, split, np.vstack([X, np.full((1, 3), 0.9)]), np.append(y, 0))
    unlike = [part for part in split.parts if not equal(before[part], after[part])]
    assert len(unlike) == 1
