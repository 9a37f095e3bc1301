"""What leaves an additive fit with private edges is the trace and nothing else."""

import pickle

import numpy as np
import pytest
from replay.neighbours import VALUES, neighbours

from skdp import (
    DPAdditiveClassifier,
    DPAdditivePoissonRegressor,
    DPAdditiveRegressor,
    PrivacyLedger,
    _release_hook,
)
from skdp.privacy.events import PosteriorTerm, terms_of
from skdp.relations import sensitivity_factor
from skdp.testing import fixed_streams

N = 40
BASE = np.random.default_rng(0)
X = np.where(BASE.random((N, 2)) < 0.3, 0.0, BASE.lognormal(0.0, 1.0, (N, 2)))
Y = (X[:, 0] > 1).astype(int)
GROUPS = np.repeat(np.arange(N // 4), 4)
DECLARED = {"bounds": [(0, 1e6), (-10, 10)], "edges": "private", "n_bins": 8, "n_samples": N}
CLASSES = {"classes": [0, 1]}
PLANS = [
    (DPAdditiveClassifier, CLASSES),
    (DPAdditiveClassifier, CLASSES | {"epsilon": 300.0}),  # many bins and waves
    (DPAdditiveClassifier, CLASSES | {"epsilon": 300.0, "secure": True}),
    (DPAdditiveClassifier, CLASSES | {"edges": {0: "private"}, "epsilon": 100.0}),
    (DPAdditiveClassifier, {"classes": [0, 1, 2], "epsilon": 100.0, "n_bins": 4}),
    (DPAdditiveClassifier, CLASSES | {"neighboring_relation": "replace_one", "epsilon": 100.0}),
    (DPAdditiveRegressor, {"neighboring_relation": "add_or_remove_one", "epsilon": 300.0}),
    (DPAdditiveRegressor, {"epsilon": None, "noise_multiplier": 0.2, "target_bounds": (0, 2)}),
    (DPAdditivePoissonRegressor, {"epsilon": 300.0, "edges_share": 0.5}),
]


def public_state(estimator):
    """Return everything that a user, a pickle or a repr can see of a fitted estimator."""
    state = {k: v for k, v in vars(estimator).items() if k != "_likelihood"}
    return pickle.dumps(state), repr(estimator), repr(estimator.privacy_), estimator.predict(X)


@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "settings"), PLANS)
def test_with_the_releases_frozen_nothing_depends_on_the_data(kind, settings):
    estimator = kind(**DECLARED | settings)
    with fixed_streams():
        with _release_hook.record() as tape:
            first = public_state(estimator.fit(X, Y))
        for other in neighbours(X, Y, [*VALUES, np.nan]):
            with _release_hook.replay([release.output for release in tape]) as again:
                second = public_state(estimator.fit(*other))
            assert [r.call for r in again] == [r.call for r in tape]
            assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.quick(7)
@pytest.mark.parametrize(("kind", "settings"), PLANS)
def test_the_event_in_the_ledger_is_the_trace(kind, settings):
    relation = settings.get("neighboring_relation", "zero_out")
    estimator = kind(**DECLARED | settings)
    plan = estimator.plan(n_features=2)
    with PrivacyLedger(neighboring_relation=relation) as ledger, _release_hook.record() as tape:
        estimator.fit(X, Y)
    (entry,) = ledger.entries
    assert entry.event == estimator.privacy_.event == plan.event
    assert len(tape) == plan.config.n_releases
    terms = terms_of(entry.event)
    quantiles = [term for term in terms if isinstance(term, PosteriorTerm)]
    assert len(quantiles) == 1
    sums = [term for term in terms if term not in quantiles for _ in range(term.count)]
    kinds = [release.call.kind for release in tape]
    n = quantiles[0].count
    assert kinds[:n] == ["quantile"] * n
    assert "quantile" not in kinds[n:]
    for release in tape[:n]:
        found = release.call.sensitivity / release.call.scale
        assert found == pytest.approx(quantiles[0].eta, rel=1e-12)
    factor = sensitivity_factor(relation)
    found = sorted(r.call.scale / r.call.sensitivity * factor for r in tape[n:])
    np.testing.assert_allclose(found, sorted(term.noise_multiplier for term in sums), rtol=1e-9)


def test_persons_with_frozen_releases_are_not_told_apart():
    settings = DECLARED | CLASSES | {"epsilon": 300.0, "n_samples": None}
    estimator = DPAdditiveClassifier(
        **settings, unit="group", n_groups=N // 4, rows_per_group=4, random_state=None
    )
    with fixed_streams():
        with _release_hook.record() as tape:
            first = public_state(estimator.fit(X, Y, groups=GROUPS))
        for value in (0.0, 5.0, 1e300, np.nan):
            other, labels = X.copy(), Y.copy()
            other[4:8], labels[4:8] = value, 1 - labels[4:8]
            with _release_hook.replay([release.output for release in tape]) as again:
                second = public_state(estimator.fit(other, labels, groups=GROUPS))
            assert [r.call for r in again] == [r.call for r in tape]
            assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    levels = [release.call.shape for release in tape if release.call.kind == "quantile"]
    assert levels == [(1,), (2,), (4,)] * 2
