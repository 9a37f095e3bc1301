"""What leaves a search on disjoint rows is its releases, whoever's part a neighbour changes."""

import pickle

import numpy as np
import pytest
from replay.neighbours import frozen

from skdp import DPVariationalLogisticRegression
from skdp.conformal import DPConformalClassifier
from skdp.engine import release_hook
from skdp.model_selection import DPDisjointSearch
from skdp.testing import fixed_streams, neighbours

N = 60
BASE = np.random.default_rng(0)
X = BASE.uniform(-1, 1, (N, 2))
Y = (X[:, 0] > 0).astype(int)
RELATIONS = ["zero_out", "replace_one", "add_or_remove_one"]


def model(relation, n_samples=N):
    return DPVariationalLogisticRegression(
        classes=[0, 1], n_samples=n_samples, inference="dpvi", max_iter=2,
        neighboring_relation=relation,
    )  # fmt: skip


def search(relation):
    return DPDisjointSearch(
        model(relation), {"learning_rate": [0.1, 0.5]}, epsilon=3.0, n_samples=N,
        neighboring_relation=relation, tuning_share=0.3, scoring_share=0.3,
    )  # fmt: skip


def conformal(relation):
    return DPConformalClassifier(
        model(relation), epsilon=10.0, alpha=0.4, n_samples=N, neighboring_relation=relation,
        calibration_share=0.5,
    )  # fmt: skip


def public_state(fitted):
    return pickle.dumps(vars(fitted)), repr(fitted.privacy_)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("make", [search, conformal])
def test_with_the_releases_frozen_nothing_depends_on_the_data(make, relation):
    with fixed_streams(b"replay"):
        frozen(
            lambda *rows: public_state(make(relation).fit(*rows)),
            (X, Y),
            neighbours(X, Y, relation, values=(0.0, -1e300)),
        )


@pytest.mark.quick(1)
@pytest.mark.parametrize("make", [search, conformal])
def test_a_row_moves_the_releases_of_its_own_part_alone(make):
    """With the noise fixed and each release given those before it: which of them one row moves."""
    own = []
    with fixed_streams(b"replay"), release_hook.record() as tape:
        make("zero_out").fit(X, Y)
    outputs = [release.output for release in tape]
    for row in range(N):
        changed = X.copy()
        changed[row] = -np.sign(X[row]) * 50.0
        labels = Y.copy()
        labels[row] = 1 - Y[row]
        with fixed_streams(b"replay"), release_hook.rerun(outputs) as again:
            make("zero_out").fit(changed, labels)
        moved = [
            number
            for number, (one, two) in enumerate(zip(tape, again, strict=True))
            if not np.array_equal(one.output, two.output)
        ]
        own.append({_part_of(number, [r.call.kind for r in tape]) for number in moved})
    assert all(len(parts) <= 1 for parts in own)
    assert len(set().union(*own)) >= 2


def _part_of(number, kinds):
    """Which part a release reads: the selection, or the quantile, is in the middle or the last."""
    middle = kinds.index("selection" if "selection" in kinds else "quantile")
    return np.sign(number - middle)
