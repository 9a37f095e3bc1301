"""``secure=True``: the same estimators on integers, for the same budget."""

import pickle
from unittest import mock

import numpy as np
import pytest
import torch
from bundles import bundled
from refusals import refused
from replay.neighbours import neighbours
from scipy import stats
from sklearn.pipeline import make_pipeline

from skdp import (
    DPSGDClassifier,
    DPSGDRegressor,
    DPSGLDClassifier,
    DPSGLDRegressor,
    DPVariationalLinearRegression,
    DPVariationalLogisticRegression,
    DPVariationalPoissonRegression,
    Persons,
    PrivacyLedger,
)
from skdp.engine import release_hook
from skdp.engine.grid import lattice_bits, lattice_bound
from skdp.fitting.streams import SecureStream
from skdp.model_selection import split_budget
from skdp.preprocessing import DPStandardScaler
from skdp.privacy import privacy_of
from skdp.privacy.events import terms_of
from skdp.relations import sensitivity_factor
from skdp.testing import fixed_streams

N = 40
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (N, 3))
Y = (X[:, 0] > 0).astype(int)

LOGISTIC = (DPVariationalLogisticRegression, {"classes": [0, 1]})
POISSON = (DPVariationalPoissonRegression, {"largest_count": 5.0})
LINEAR = (DPVariationalLinearRegression, {"target_bounds": (-1, 2)})
PLANS = [
    (LOGISTIC, {"max_iter": 3}),
    (LOGISTIC, {"max_iter": 3, "epsilon": 200.0}),  # second moments in full, and the slope
    (LOGISTIC, {"max_iter": 3, "classes": [0, 1, 2], "neighboring_relation": "replace_one"}),
    (LOGISTIC, {"max_iter": 3, "inference": "dpvi"}),
    (LOGISTIC, {"max_iter": 3, "inference": "dpvi", "covariance": "full"}),
    (LOGISTIC, {"max_iter": 3, "inference": "dpvi", "gradient": "vanilla", "classes": range(3)}),
    (LOGISTIC, {"max_iter": 3, "neighboring_relation": "add_or_remove_one"}),
    (LOGISTIC, {"max_iter": 3, "epsilon": None, "noise_multiplier": 2.5}),
    (POISSON, {"max_iter": 3, "epsilon": 200.0}),
    (POISSON, {"max_iter": 3, "inference": "dpvi"}),
    (LINEAR, {"max_iter": 3}),
    (LINEAR, {"max_iter": 3, "neighboring_relation": "replace_one"}),
    (LINEAR, {"max_iter": 3, "target_bounds": None}),
    (LINEAR, {"max_iter": 3, "epsilon": None, "noise_multiplier": 2.5}),
]
# Releases as they are before the public grid, which is coarser than the lattice.
UNROUNDED = mock.patch("skdp.engine.release_hook.on_grid", new=lambda values, width: values)


def make(plan, **more):
    (kind, own), settings_ = plan
    return kind(**{"n_samples": N, "secure": True, **own, **settings_, **more})


def public_state(estimator):
    state = {k: v for k, v in vars(estimator).items() if k != "_likelihood"}
    return pickle.dumps(state), repr(estimator), repr(estimator.privacy_)


@pytest.mark.thorough
@mock.patch("skdp.algorithms.parts.logit_posterior.TRAJECTORIES", 4)  # what follows the releases
@bundled("plan", PLANS)
def test_with_the_releases_frozen_nothing_depends_on_the_data(plan):
    with fixed_streams():
        with release_hook.record() as tape:
            first = public_state(make(plan).fit(X, Y))
        for other in neighbours(X, Y, [0.0, -1e300, 5e-324]):
            with release_hook.replay([release.output for release in tape]) as again:
                second = public_state(make(plan).fit(*other))
            assert [r.call for r in again] == [r.call for r in tape]
            assert second == first


@bundled("plan", PLANS)
def test_the_event_in_the_ledger_is_the_trace(plan):
    relation = plan[1].get("neighboring_relation", "zero_out")
    with PrivacyLedger(neighboring_relation=relation) as ledger, release_hook.record() as tape:
        estimator = make(plan).fit(X, Y)
    (entry,) = ledger.entries
    assert entry.event == estimator.privacy_.event
    stated = [(part.event, part.count) for part in entry.event.events]
    in_turn = [event for event, count in stated for _ in range(count)]
    assert len(in_turn) == len(tape)
    for event, release in zip(in_turn, tape, strict=True):
        call = release.call
        assert call.kind == "discrete_gaussian"
        assert call.rate == 1.0
        assert event.dimension == np.prod(call.shape) == release.output.size
        assert event.lattice_scale == 2.0 ** lattice_bits(event.noise_multiplier)
        declared = call.scale / call.sensitivity * sensitivity_factor(relation)
        exact = event.lattice_scale / lattice_bound(event.noise_multiplier)
        assert event.noise_multiplier <= exact
        assert declared == pytest.approx(exact, rel=1e-14)
        assert declared == pytest.approx(event.noise_multiplier, rel=1e-9)


@bundled("plan", PLANS)
def test_what_is_released_is_on_the_grid(plan):
    """Integers of the lattice, before they are rounded to the coarser public grid."""
    with UNROUNDED, release_hook.record() as tape:
        make(plan).fit(X, Y)
    factor = sensitivity_factor(plan[1].get("neighboring_relation", "zero_out"))
    for release in tape:
        sigma = release.call.scale / release.call.sensitivity * factor
        width = release.call.scale / 2.0 ** lattice_bits(sigma * (1 - 1e-9))
        integers = release.output / width
        np.testing.assert_allclose(integers, np.rint(integers), rtol=2**-51, atol=0)


def test_the_noise_added_is_the_noise_declared():
    """On zeros every sum is zero, and what is released is noise."""
    plan = (LOGISTIC, {"inference": "dpvi", "max_iter": 60, "fit_intercept": False})
    fixed = fixed_streams(b"noise")
    with fixed, release_hook.record() as tape:
        make(plan).fit(np.zeros((N, 20)), Y)
    z = np.concatenate([r.output.ravel() / r.call.scale for r in tape])
    low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], z.size)
    assert low < np.sum(z**2) < high
    assert not low < np.sum((z * 1.5) ** 2) < high
    assert not low < np.sum((z / 1.5) ** 2) < high
    assert np.unique(z).size == z.size


@bundled("plan", PLANS)
def test_the_budget_is_kept_and_spent(plan):
    estimator = make(plan).fit(X, Y)
    report = estimator.privacy_
    assert report.valid
    # e^200 times any distance is too much for the exact curve: the Rényi bound remains.
    assert report.accountant == ("rdp" if estimator.epsilon == 200.0 else "gdp")
    if estimator.epsilon is not None:
        assert estimator.epsilon * (1 - 1e-3) <= report.epsilon <= estimator.epsilon
    plain = make(plan, secure=False).fit(X, Y)
    if report.accountant == "gdp":
        assert estimator.noise_multiplier_ == pytest.approx(plain.noise_multiplier_, rel=1e-6)
    assert {type(t).__name__ for t in terms_of(report.event)} == {"DiscreteGaussianTerm"}


def data(kind, n=4000):
    rng = np.random.default_rng(1)
    rows = rng.uniform(-1, 1, (n, 3))
    if kind is DPVariationalLogisticRegression:
        return rows, (rng.random(n) < 1 / (1 + np.exp(-3 * rows[:, 0]))).astype(int)
    if kind is DPVariationalPoissonRegression:
        return rows, rng.poisson(np.exp(0.5 + rows[:, 0] / 2)).clip(0, 5)
    return rows, 0.5 + rows[:, 0] + 0.1 * rng.normal(size=n)


DPVI = {"inference": "dpvi"}


@pytest.mark.parametrize(
    ("model", "more"),
    [(LOGISTIC, {}), (POISSON, {}), (LINEAR, {}), (LOGISTIC, DPVI), (POISSON, DPVI)],
)
def test_the_posterior_is_the_ordinary_one_up_to_the_noise(model, more):
    rows, y = data(model[0])
    plan = (model, {"epsilon": 100.0, "n_samples": len(rows)} | more)
    with fixed_streams(b"posterior"):
        secure, plain = make(plan).fit(rows, y), make(plan, secure=False).fit(rows, y)
    # At such an ε both are near the posterior of the data, itself a few hundredths wide.
    sd = np.sqrt(np.diag(plain.covariance_)[:3])
    assert np.all(np.abs(np.ravel(secure.coef_) - np.ravel(plain.coef_)) < 6 * sd + 0.05)
    ratio = np.sqrt(np.diag(secure.covariance_)[:3]) / sd
    assert np.all((ratio > 0.5) & (ratio < 2.0))


def test_without_noise_added_the_releases_are_the_ordinary_sums():
    """The grid alone, its noise left out: both fits go the same way.

    To many digits where the query is fixed; then by what inference, with draws on grids, makes of
    noise whose scale differs by the rounding bound, 3e-4, that ordinary sums need.
    """
    rows, y = data(DPVariationalLogisticRegression, 500)
    own = {"max_iter": 4, "epsilon": None, "noise_multiplier": 0.3, "n_samples": 500}
    plan = (LOGISTIC, own)
    silent = "skdp.engine.noise.discrete_gaussian_integers"
    none = mock.patch(silent, lambda bits, size, stream: np.zeros(size, dtype=np.int64))
    zero = mock.patch.object(SecureStream, "scratch_normal", lambda stream, shape: np.zeros(shape))
    with none, UNROUNDED, release_hook.record() as tape:
        make(plan).fit(rows, y)
    with zero, UNROUNDED, release_hook.record() as expected:
        make(plan, secure=False).fit(rows, y)
    for found, plain in zip(tape, expected, strict=True):
        scale = np.abs(plain.output).max(initial=1.0)  # of counts, which are 0
        off = np.abs(found.output - plain.output).max() / scale
        assert off < (1e-7 if found.call.step < 2 else 0.2)


def test_what_it_cannot_secure_is_refused_before_anything_is_spent():
    cases = [
        (make((LOGISTIC, {"epsilon": float("inf")})), "secure"),
        (make((LINEAR, {"epsilon": float("inf")})), "secure"),
        (make((LOGISTIC, {"secure": "yes"})), "secure"),
        (make((LINEAR, {"secure": 1})), "secure"),
        (make((LOGISTIC, {"inference": "dpvi", "batch_size": 5})), "sampling_rate"),
        (make((POISSON, {"inference": "dpvi", "sampling_rate": 0.2})), "sampling_rate"),
        (make((LOGISTIC, {"epsilon": None, "noise_multiplier": 1e-8})), "noise_multiplier"),
    ]
    for estimator, named in cases:
        with refused(named):
            estimator.fit(X, Y)


def test_a_pipeline_shares_its_budget_with_a_secure_model():
    pipeline = make_pipeline(DPStandardScaler(-1, 1), make((LOGISTIC, {"max_iter": 3})))
    split = split_budget(pipeline, 1.0, 1e-5, n_samples=N, n_features=3)
    assert split[-1].secure
    total = privacy_of(split.fit(X, Y))
    assert total.valid
    assert 1 - 2e-3 <= total.epsilon <= 1.0


def test_without_sizes_a_split_asks_for_them():
    model = DPVariationalLogisticRegression(secure=True, classes=[0, 1])
    pipeline = make_pipeline(DPStandardScaler(-1, 1), model)
    with pytest.raises(ValueError, match="n_features"):
        split_budget(pipeline, 1.0, 1e-5)


# --- networks: their sums are tested in tests/engine/test_perceptron_sum.py -----------------------

CLASSIFIER = (DPSGDClassifier, {"classes": [0, 1], "max_iter": 3})
REGRESSOR = (DPSGDRegressor, {"target_bounds": (0, 1), "max_iter": 3})
CHAIN = (DPSGLDClassifier, {"classes": [0, 1], "max_iter": 3})
NETWORKS = [
    (CLASSIFIER, {"hidden_layer_sizes": ()}),
    (CLASSIFIER, {"hidden_layer_sizes": (5,), "sampling_rate": 0.3}),
    (CLASSIFIER, {"hidden_layer_sizes": (4, 3), "clipping": "automatic", "activation": "gelu"}),
    (CLASSIFIER, {"sampling_rate": 0.5, "neighboring_relation": "replace_one"}),
    (CLASSIFIER, {"epsilon": 60.0, "activation": "relu"}),  # the Rényi bound alone
    (REGRESSOR, {"hidden_layer_sizes": (5,), "neighboring_relation": "add_or_remove_one"}),
    (CHAIN, {"hidden_layer_sizes": (), "sampling_rate": 0.3}),
    ((DPSGLDRegressor, {"target_bounds": (0, 1), "max_iter": 3}), {"hidden_layer_sizes": (3,)}),
]


@pytest.mark.quick(3)
@pytest.mark.parametrize("plan", NETWORKS)
def test_a_network_keeps_its_budget_and_spends_it(plan):
    estimator, plain = make(plan).fit(X, Y), make(plan, secure=False).fit(X, Y)
    report = estimator.privacy_
    assert report.valid
    assert estimator.epsilon * (1 - 2e-3) <= report.epsilon <= estimator.epsilon
    (term,) = terms_of(report.event) if hasattr(estimator, "noise_multiplier_") else [None]
    if term is not None:
        assert term.dimension == sum(p.numel() for p in estimator.module_.parameters())
        assert term.sampling_rate == estimator.sampling_rate_
        assert term.count == 3
        factor = 1.2 if estimator.epsilon == 60.0 else 1 + 1e-3
        assert estimator.noise_multiplier_ / plain.noise_multiplier_ < factor
        assert estimator.noise_multiplier_ / plain.noise_multiplier_ > 1 - 1e-3


@pytest.mark.parametrize("plan", NETWORKS)
def test_what_a_network_releases_is_on_the_grid(plan):
    with UNROUNDED, release_hook.record() as tape:
        estimator = make(plan).fit(X, Y)
    stated = [t for t in terms_of(estimator.privacy_.event) for _ in range(t.count)]
    stated.sort(key=lambda term: term.noise_multiplier)
    tape.sort(key=lambda release: release.call.scale)
    for term, release in zip(stated, tape, strict=True):
        assert term.lattice_scale == 2.0 ** lattice_bits(term.noise_multiplier)
        integers = release.output / (release.call.scale / term.lattice_scale)
        np.testing.assert_allclose(integers, np.rint(integers), rtol=2**-51, atol=0)


@pytest.mark.parametrize("plan", NETWORKS)
def test_without_noise_a_network_releases_the_ordinary_sums(plan):
    silent = "skdp.engine.noise.discrete_gaussian_integers"
    none = mock.patch(silent, lambda bits, size, stream: np.zeros(size, dtype=np.int64))
    zero = mock.patch.object(SecureStream, "scratch_normal", lambda stream, shape: np.zeros(shape))
    given = {"epsilon": None, "noise_multiplier": 1.0}
    if plan[0][0] in (DPSGLDClassifier, DPSGLDRegressor):
        given = {"epsilon": None, "temperature": 1.0}
    with fixed_streams(b"silent"), none, UNROUNDED, release_hook.record() as tape:
        make(plan, **given, max_iter=1).fit(X, Y)
    with fixed_streams(b"silent"), zero, UNROUNDED, release_hook.record() as expected:
        make(plan, **given, max_iter=1, secure=False).fit(X, Y)
    (found,), (plain,) = tape, expected
    found, plain = (np.asarray(r.output, dtype=float) for r in (found, plain))
    # Features and then the intercept of each output; a layer's weights and then its biases.
    np.testing.assert_allclose(np.sort(found), np.sort(plain.ravel()), atol=1e-3)


@pytest.mark.thorough
def test_the_noise_of_a_chain_is_that_of_its_temperature():
    with release_hook.record() as tape:
        chain = make((CHAIN, {"sampling_rate": 0.5})).fit(X, Y)
    scales = np.array([release.call.scale for release in tape])
    eta, T = chain.learning_rates_, chain.temperature_
    np.testing.assert_allclose((eta * scales / (N / 2)) ** 2, 2 * T * eta / N, rtol=3e-4)


def test_the_noise_added_to_a_network_is_the_noise_declared():
    """Rows of weight 0 contribute nothing, and what is released is noise."""
    plan = (CLASSIFIER, {"hidden_layer_sizes": (20,), "max_iter": 20, "sampling_rate": 0.5})
    with fixed_streams(b"noise"), release_hook.record() as tape:
        make(plan, max_sample_weight=3.0).fit(X, Y, sample_weight=np.zeros(N))
    z = np.concatenate([r.output / r.call.scale for r in tape])
    low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], z.size)
    assert low < np.sum(z**2) < high
    assert not low < np.sum((z * 1.5) ** 2) < high
    assert not low < np.sum((z / 1.5) ** 2) < high
    assert {r.call.sensitivity > 2.99 for r in tape} == {True}  # for a row of weight 3


@pytest.mark.parametrize("groups", [None, np.arange(N) // 4])
def test_how_many_rows_are_worked_on_at_once_changes_no_bit(groups):
    plan = (CLASSIFIER, {"hidden_layer_sizes": (5,), "sampling_rate": 0.7})
    if groups is not None:
        plan[1].update(unit=Persons(10))
    found = []
    for size in (None, 1, 7, N):
        with fixed_streams(b"chunks"):
            fitted = make(plan, physical_batch_size=size).fit(X, Y, groups=groups)
        found.append(fitted.sample_posterior(1, random_state=0))
    assert all((one == found[0]).all() for one in found)


def test_a_network_goes_on_and_composes():
    plan = (CLASSIFIER, {"hidden_layer_sizes": (3,), "epsilon": None, "noise_multiplier": 9.0})
    fitted = make(plan).fit(X, Y)
    once = fitted.privacy_.epsilon
    fitted.partial_fit(X, Y)
    assert fitted.n_iter_ == 4
    assert once < fitted.privacy_.epsilon < 2 * once
    assert {type(t).__name__ for t in terms_of(fitted.privacy_.event)} == {"DiscreteGaussianTerm"}
    copy = pickle.loads(pickle.dumps(fitted))
    assert (copy.predict_proba(X) == fitted.predict_proba(X)).all()


def linear_module(n_features, n_outputs):
    return torch.nn.Linear(n_features, n_outputs)


@bundled(
    ("changes", "named"),
    [
        ({"epsilon": float("inf")}, "secure"),
        ({"secure": "yes"}, "secure"),
        ({"hidden_layer_sizes": (20_000,)}, "secure=True .* beyond 100000 parameters"),
        ({"hidden_layer_sizes": (2_000,), "unit": Persons(10)}, "beyond 10000"),
        ({"module": linear_module}, "module"),
        ({"loss": "focal"}, "loss"),
        ({"loss__label_smoothing": 0.1}, "loss"),
        ({"loss": torch.nn.CrossEntropyLoss}, "loss"),
        ({"device": "cpu"}, "device"),
        ({"mixed_precision": True}, "mixed_precision"),
        ({"epsilon": None, "noise_multiplier": 1e-8}, "noise_multiplier"),
        ({"epsilon": 60.0, "sampling_rate": 0.3}, "full batches"),
    ],
)
def test_what_a_network_cannot_secure_is_refused_before_anything_is_spent(changes, named):
    estimator, groups = DPSGDClassifier(secure=True, classes=[0, 1], n_samples=N), None
    if "unit" in changes:
        groups = np.arange(N)
    with PrivacyLedger(unit="group" if "unit" in changes else "row") as ledger:
        with pytest.raises(ValueError, match=named):
            estimator.set_params(**changes).fit(X, Y, groups=groups)
        assert not ledger.entries


def test_labels_of_a_row_and_noise_before_clipping_are_refused():
    with PrivacyLedger() as ledger:
        with pytest.raises(ValueError, match="loss"):
            make((CLASSIFIER, {})).fit(X, np.column_stack([Y, 1 - Y]))
        with pytest.raises(ValueError, match="prenoise_scale"):
            make((CHAIN, {"prenoise_scale": 0.1})).fit(X, Y)
        assert not ledger.entries
