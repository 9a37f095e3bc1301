"""Published privacy bugs, acted again in a few lines, next to the check that finds them.

Every test applies one check twice: the wrong way must fail it, and skdp's way must pass.
"""

import inspect
import math
import os
import pickle
import sys
import warnings

import dp_accounting
import numpy as np
import pytest
import torch
from bugs.catalogue import BUGS, CAUGHT, caught
from dp_accounting.rdp import RdpAccountant
from scipy import stats
from sklearn.base import BaseEstimator, clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_array

from skdp import (
    DPSGDClassifier,
    DPSGDRegressor,
    DPStandardScaler,
    DPVariationalLogisticRegression,
    PrivacyLedger,
    PrivacyWarning,
    privacy_of,
)
from skdp.engine import release_hook
from skdp.engine.sampling import PoissonSampling
from skdp.fitting.streams import Streams
from skdp.mechanisms import GaussianMechanism, LaplaceMechanism
from skdp.privacy import epsilon, epsilon_of_event
from skdp.privacy.events import dp_sgd_event

C = 1.0
ALMOST_NONE = 1e-7  # a noise multiplier that leaves a released sum as it is, to seven digits
ROOM = 1e-5
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (40, 3))
Y = (X[:, 0] > 0).astype(int)


def flat(output):
    return np.concatenate([np.asarray(part).ravel() for part in np.atleast_1d(output)])


def releases(estimator, X, y):
    """What a fit releases, and what it declares of that; the seed fixes a network's start."""
    with release_hook.record() as tape, warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        estimator.fit(X, y)
    return [flat(release.output) for release in tape], [release.call for release in tape]


@pytest.fixture(autouse=True)
def counted(request, figure):
    """Each re-enactment that passes counts on the page of evidence."""
    if request.function.__qualname__ in CAUGHT.values():
        figure("published bugs, re-enacted and caught")


PLAN = {"epsilon": None, "noise_multiplier": ALMOST_NONE, "clip_norm": C, "max_iter": 1}
PLAN |= {"hidden_layer_sizes": (5,), "sampling_rate": 1.0, "random_state": 0, "n_samples": 40}


def network(**parameters):
    return DPSGDRegressor(**{**PLAN, **parameters})


def linear(**parameters):
    plan = {"epsilon": None, "noise_multiplier": ALMOST_NONE, "clip_norm": C, "max_iter": 1}
    plan |= {"inference": "dpvi", "classes": [0, 1], "n_samples": 40, "random_state": 0}
    return DPVariationalLogisticRegression(**{**plan, **parameters})


def moved_by_a_record(release, X, y):
    """How far the first release moves when one record goes, the worst of a few."""
    whole = release(X, y)
    moves = [whole - release(np.delete(X, i, 0), np.delete(y, i)) for i in range(4)]
    return max(np.linalg.norm(move) for move in moves)


def skdp_sum(estimator):
    return lambda X, y: releases(clone(estimator), X, y)[0][0]


# Least squares at θ = 0: the gradient of record i is −y_i x_i.
def gradients(X, y):
    return -y[:, None] * X


def clipped(rows, norm=C):
    return rows * np.minimum(1, norm / np.linalg.norm(rows, axis=1))[:, None]


LOUD = 1e3 * RNG.standard_normal((40, 3)), 1e3 * RNG.standard_normal(40)


class TestWhatOneRecordAdds:
    """A record moves a sum by no more than its bound."""

    def bounded(self, release):
        return moved_by_a_record(release, *LOUD) <= C * (1 + ROOM)

    def test_skdp_bounds_what_a_record_adds(self):
        assert self.bounded(skdp_sum(network()))
        assert self.bounded(skdp_sum(network(hidden_layer_sizes=(4, 3))))

    @caught("no clipping at all")
    def test_no_clipping(self):
        assert not self.bounded(lambda X, y: gradients(X, y).sum(0))

    @caught("clipping after averaging")
    def test_clipping_after_averaging(self):
        def wrong(X, y):
            mean = gradients(X, y).mean(axis=0, keepdims=True)
            return len(X) * clipped(mean)[0]  # the noise is then made for one record of n

        assert not self.bounded(wrong)

    @caught("each tensor clipped to the whole bound")
    def test_clipping_each_tensor(self):
        def wrong(X, y):
            return np.concatenate([clipped(gradients(X[:, j : j + 1], y)).sum(0) for j in range(3)])

        assert not self.bounded(wrong)

    @caught("microbatches averaged before clipping")
    def test_averaging_microbatches(self):
        X = np.array([[3.0, 0, 0], [-9.0, 0, 0], [1, 0, 0], [1, 0, 0]])
        y = -np.ones(4)

        def wrong(X, y, ids):
            g = gradients(X, y)
            return sum(clipped(g[ids == k].mean(0, keepdims=True))[0] for k in range(2))

        ids = np.array([0, 0, 1, 1])
        move = wrong(X, y, ids) - wrong(X[[0, 2, 3]], y[[0, 2, 3]], ids[[0, 2, 3]])
        assert np.linalg.norm(move) == pytest.approx(2 * C)
        assert moved_by_a_record(skdp_sum(network(n_samples=4)), X, y) <= C * (1 + ROOM)

    @caught("an infinite gradient divided by its norm")
    def test_an_infinite_gradient(self):
        X = np.vstack([LOUD[0], [1e300, -1e300, 1e300]])
        y = np.append(LOUD[1], 1e300)

        def wrong(X, y):
            with np.errstate(all="ignore"):
                g = gradients(X, y)
                return (g * (C / (np.linalg.norm(g, axis=1) + 1e-6))[:, None]).sum(0)

        def tells_who_is_there(release):
            return np.isfinite(release(X, y)).all() != np.isfinite(release(X[:-1], y[:-1])).all()

        assert tells_who_is_there(wrong)
        assert not tells_who_is_there(skdp_sum(network()))

    @caught("the intercept left out of a row's bound")
    def test_the_intercept_in_the_bound_of_a_row(self):
        # A residual of at most 1 times a row: the gradient has the norm of the row.
        rows = clipped(LOUD[0])

        def wrong(X, y):
            return np.column_stack([clipped(X), np.ones(len(X))]).sum(0)

        assert moved_by_a_record(wrong, rows, LOUD[1]) > C * (1 + ROOM)
        ours = skdp_sum(network(hidden_layer_sizes=()))
        assert moved_by_a_record(ours, rows, LOUD[1]) <= C * (1 + ROOM)

    @caught("balanced class weights")
    def test_balanced_class_weights(self):
        y = np.array([1] + [0] * 39)

        def wrong(X, y):
            weights = len(y) / (2 * np.bincount(y, minlength=2).clip(1))
            return (weights[y][:, None] * clipped(X)).sum(0)

        assert moved_by_a_record(wrong, LOUD[0], y) > C * (1 + ROOM)
        ours = skdp_sum(DPSGDClassifier(**PLAN, classes=[0, 1]))
        assert moved_by_a_record(ours, LOUD[0], y) <= C * (1 + ROOM)
        with pytest.raises(ValueError, match="class_weight"):
            DPSGDClassifier(class_weight="balanced").fit(np.eye(2), [0, 1])

    @caught("rows repeated by an oversampler")
    def test_rows_repeated_by_an_oversampler(self):
        y = np.array([1] + [0] * 39)
        model = DPSGDClassifier(**PLAN, classes=[0, 1])
        ours = skdp_sum(model.set_params(class_weight={0: 1, 1: 4}))

        def wrong(X, y):
            rows = np.concatenate([np.arange(len(y)), np.repeat(np.flatnonzero(y), 3)])
            return skdp_sum(DPSGDClassifier(**PLAN, classes=[0, 1]))(X[rows], y[rows])

        # A record that has four rows moves the sum by four bounds, of which the noise is for one.
        assert moved_by_a_record(wrong, LOUD[0], y) > 2 * C
        calls = releases(clone(model), LOUD[0], y)[1]
        assert calls[0].sensitivity >= 4 * C
        assert moved_by_a_record(ours, LOUD[0], y) <= calls[0].sensitivity * (1 + ROOM)


class TestArithmetic:
    """The computed sum moves no further than declared, whatever its rounding."""

    def declared_bound_holds(self, X, X2):
        one, two = (np.clip(rows, -1, 1) for rows in (X, X2))
        scaler = DPStandardScaler(-1, 1, epsilon=None, noise_multiplier=1e-9)
        first, calls = releases(clone(scaler), one, None)
        second, _ = releases(clone(scaler), two, None)
        moves = [np.linalg.norm(a - b) for a, b in zip(first, second, strict=True)]
        return all(m <= call.sensitivity * (1 + ROOM) for m, call in zip(moves, calls, strict=True))

    @caught("rounding of a floating-point sum")
    def test_rounding(self):
        big, small, n = 2048.0, 1.1, 900  # in half precision 2048 + 1.1 rounds to 2050

        def wrong(values):
            total = np.float16(0)
            for value in values:
                total = np.float16(total + np.float16(value))
            return float(total)

        with_record = [big, *[small] * n]
        assert wrong(with_record) - wrong(with_record[1:]) > 1.3 * big
        X = np.array(with_record)[:, None] / big
        assert self.declared_bound_holds(X, X[1:])

    @caught("sums in an order that rounding notices")
    def test_order(self):
        values = np.array([1.0] + [2.0**-12] * 4000, dtype=np.float16)  # half a last place each

        def wrong(values):
            total = np.float16(0)
            for value in values:
                total = np.float16(total + value)
            return float(total)

        # The same rows in another order differ by nearly a whole record's contribution.
        assert abs(wrong(values) - wrong(values[::-1])) > 0.4
        X = values.astype(float)[:, None]
        (first,), (call,) = releases(
            DPStandardScaler(-1, 1, epsilon=None, noise_multiplier=1e-9), X, None
        )
        (second,), _ = releases(
            DPStandardScaler(-1, 1, epsilon=None, noise_multiplier=1e-9), X[::-1], None
        )
        assert np.linalg.norm(first - second) < 1e-3 * call.sensitivity

    @caught("integers that wrap around")
    def test_integer_overflow(self):
        rows = np.full((2, 1), 100, dtype=np.int8)
        assert abs(int(rows.sum(dtype=np.int8)) - int(rows[:1].sum(dtype=np.int8))) > 127

        def means(rows):
            scaler = DPStandardScaler(-128, 128, epsilon=None, noise_multiplier=1e-9)
            return releases(scaler, np.asarray(rows, dtype=np.int8), None)

        (whole,), (call,) = means(rows)
        (less,), _ = means(rows[:1])
        assert np.linalg.norm(whole - less) <= call.sensitivity * (1 + ROOM)

    @caught("bounds read from the data")
    def test_bounds_read_from_the_data(self):
        outlier = X.copy()
        outlier[0] = 1e6

        def wrong(X):
            return X.max(0) - X.min(0)  # the scale of the noise, which is public

        assert (wrong(X) != wrong(outlier)).any()
        calls = [releases(DPStandardScaler(-1, 1), rows, None)[1] for rows in (X, outlier)]
        assert calls[0] == calls[1]

    @caught("batch normalisation")
    def test_batch_normalisation(self):
        norm = torch.nn.BatchNorm1d(3)
        rows = torch.tensor(X, dtype=torch.float32)
        changed = rows.clone()
        changed[0] = 1e3
        # Other records' outputs, and so their gradients, move with this one.
        assert (norm(rows)[1:] - norm(changed)[1:]).abs().max() > 0.1
        module = torch.nn.Sequential(norm, torch.nn.Linear(3, 1))
        with PrivacyLedger() as ledger, pytest.raises(ValueError, match="BatchNorm"):
            network(module=module, hidden_layer_sizes=(100,)).fit(X, Y.astype(float))
        assert ledger.entries == ()


def normal_accepts(noise, scale):
    """Whether Σ(noise/scale)² is in the range of χ² at 1e-6."""
    low, high = stats.chi2.ppf([1e-6, 1 - 1e-6], noise.size)
    return low < float(((noise / scale) ** 2).sum()) < high


def pure_noise(**parameters):
    """Gradients of a fit on rows of zeros without an intercept: noise, and what it declared."""
    plan = {"noise_multiplier": 3.0, "fit_intercept": False, "max_iter": 4, "random_state": None}
    outputs, calls = releases(linear(**{**plan, **parameters}), np.zeros((40, 800)), Y)
    return outputs[:-1], calls[:-1]  # the last are counts


class TestNoise:
    @caught("Laplace noise by the inverse of a floating-point number")
    def test_least_significant_bits_of_laplace_noise(self):
        coins = np.random.default_rng(1).random(2000)

        def wrong(value):
            return value + 2.0 * np.sign(coins - 0.5) * np.log(1 - 2 * np.abs(coins - 0.5))

        def same_grid(release):
            """Outputs on one public grid, the same for both values."""
            mechanism_grid = 2.0**-20
            return all((np.asarray(release(v)) % mechanism_grid == 0).all() for v in (0.0, 1 / 3))

        mechanism = LaplaceMechanism(record_norm=1.0, scale=2.0)
        assert not same_grid(wrong)
        assert same_grid(lambda value: mechanism.release(np.full(2000, value)))

    @caught("noise of less precision than the value")
    def test_precision_of_the_output(self):
        def wrong(value):
            return value + np.float32(np.random.default_rng(2).standard_normal(1000))

        def tells_the_value(release):
            """The bits below those of the noise are those of the value."""
            low_bits = np.asarray(release(2.0**-40), dtype=np.float64) * 2.0**36 % 1
            return (low_bits != 0).mean() > 0.5

        mechanism = GaussianMechanism(record_norm=1.0, scale=1.0)
        assert tells_the_value(lambda v: wrong(v).astype(np.float64) + v)
        assert not tells_the_value(lambda v: mechanism.release(np.full(1000, v)))

    @caught("a torch generator that starts from a constant")
    def test_a_constant_start(self):
        def wrong():
            return torch.randn(8, generator=torch.Generator()).numpy()

        def differs(draw):
            return (draw() != draw()).all()

        assert not differs(wrong)
        assert differs(lambda: Streams()("noise").normal(8))
        assert differs(lambda: pure_noise()[0][0])

    @caught("a fork that repeats its parent's noise")
    def test_a_fork(self):
        def children_share(draw):
            drawn = []
            for _ in range(2):
                read, write = os.pipe()
                if os.fork() == 0:  # pragma: no cover - runs in the child
                    os.write(write, np.asarray(draw(), dtype=np.float64).tobytes())
                    os._exit(0)
                os.wait()
                drawn.append(os.read(read, 1024))
                os.close(read)
                os.close(write)
            return drawn[0] == drawn[1]

        generator, stream = np.random.default_rng(0), Streams()("noise")
        assert children_share(lambda: generator.standard_normal(4))
        assert not children_share(lambda: stream.normal(4))

    @caught("one seed for two data sets")
    def test_one_seed_for_two_data_sets(self):
        neighbour = Y.copy()
        neighbour[0] = 1 - neighbour[0]

        def wrong(y):
            return y.sum() + np.random.default_rng(0).standard_normal(500)

        def cancels(one, two):
            """The difference of two releases has no noise left: it is the same everywhere."""
            return np.ptp(one - two) < 1e-9

        def ours(y):
            plan = {"noise_multiplier": 3.0, "random_state": 0, "fit_intercept": False}
            return releases(linear(**plan), np.zeros((40, 500)), y)[0][0]

        assert cancels(wrong(Y), wrong(neighbour))
        assert not cancels(ours(Y), ours(neighbour))

    @caught("a key used twice")
    def test_a_key_used_twice(self):
        wrong = [np.random.default_rng(7).standard_normal(800) for _ in range(4)]

        def independent(steps):
            correlations = np.corrcoef(steps)[np.triu_indices(len(steps), 1)]
            return np.abs(correlations).max() < 6 / math.sqrt(np.size(steps[0]))

        assert not independent(wrong)
        assert independent(pure_noise()[0])

    @caught("a variance given for a standard deviation")
    def test_a_variance_for_a_deviation(self):
        outputs, (call, *_) = pure_noise()
        wrong = np.random.default_rng(3).normal(scale=call.scale**2, size=800)
        assert not normal_accepts(wrong, call.scale)
        assert all(normal_accepts(noise, call.scale) for noise in outputs)

    @caught("one number of noise for all coordinates")
    def test_one_number_for_all_coordinates(self):
        outputs, (call, *_) = pure_noise()

        def spread_out(noise):
            low, high = stats.chi2.ppf([1e-6, 1 - 1e-6], noise.size - 1)
            return low < noise.var() * noise.size / call.scale**2 < high

        wrong = np.zeros(800) + np.random.default_rng(4).normal(scale=call.scale)
        assert not spread_out(wrong)
        assert all(map(spread_out, outputs))

    @caught("noise for each physical batch")
    def test_noise_for_each_physical_batch(self):
        def noise(size):
            plan = {"noise_multiplier": 1e4, "physical_batch_size": size, "max_iter": 2}
            return releases(network(**plan, hidden_layer_sizes=(100,)), X, X[:, 0])

        wrong = sum(np.random.default_rng(k).normal(scale=1.0, size=500) for k in range(8))
        assert not normal_accepts(wrong, 1.0)
        for size in (5, 40):
            for output, call in zip(*noise(size), strict=True):
                assert normal_accepts(output, call.scale)

    @caught("noise scaled by the realised batch")
    def test_noise_scaled_by_the_realised_batch(self):
        sizes = np.random.default_rng(5).binomial(40, 0.2, 30)
        wrong = [s * np.random.default_rng(k).normal(size=800) / 8 for k, s in enumerate(sizes)]
        assert not all(normal_accepts(noise, 1.0) for noise in wrong)
        outputs, calls = pure_noise(sampling_rate=0.2, max_iter=30)
        assert len({call.scale for call in calls}) == 1
        assert all(
            normal_accepts(out, call.scale) for out, call in zip(outputs, calls, strict=True)
        )


class TestSampling:
    N, RATE, STEPS = 400, 0.1, 400

    def dispersed(self, batches):
        """Batch sizes vary as those of independent coins: Σ(k − nq)²/(nq(1−q)) is χ² at 1e-6."""
        sizes = np.array([len(batch) for batch in batches])
        variance = self.N * self.RATE * (1 - self.RATE)
        low, high = stats.chi2.ppf([1e-6, 1 - 1e-6], len(sizes))
        return low < ((sizes - self.N * self.RATE) ** 2).sum() / variance < high

    def ours(self):
        sampling = PoissonSampling(self.RATE, self.STEPS)
        return list(sampling.batches(self.N, Streams(b"bugs")("sampling")))

    @caught("shuffled batches accounted as Poisson")
    def test_shuffled_batches(self):
        rng, size = np.random.default_rng(0), round(self.N * self.RATE)
        wrong = [
            part
            for _ in range(round(self.STEPS * self.RATE))
            for part in rng.permutation(self.N).reshape(-1, size)
        ]
        counts = [np.bincount(np.concatenate(b), minlength=self.N) for b in (wrong, self.ours())]
        assert np.ptp(counts[0]) == 0  # every record once an epoch: no coin of its own
        assert np.ptp(counts[1]) > 0
        assert not self.dispersed(wrong)
        assert self.dispersed(self.ours())

    @caught("batches of a fixed size accounted as Poisson")
    def test_batches_of_a_fixed_size(self):
        rng, size = np.random.default_rng(0), round(self.N * self.RATE)
        wrong = [rng.choice(self.N, size, replace=False) for _ in range(self.STEPS)]
        assert not self.dispersed(wrong)
        assert self.dispersed(self.ours())

    @caught("an empty Poisson batch skipped")
    def test_an_empty_batch(self):
        rng, steps = np.random.default_rng(0), 50
        batches = [np.flatnonzero(rng.random(40) < 1e-3) for _ in range(steps)]
        wrong = [X[batch].sum(0) + rng.normal(size=3) for batch in batches if len(batch)]

        def as_many_as_accounted(outputs):
            return len(outputs) == steps

        assert not as_many_as_accounted(wrong)
        outputs, _ = pure_noise(sampling_rate=1e-3, max_iter=steps)
        assert as_many_as_accounted(outputs)
        assert all(np.abs(noise).max() > 0 for noise in outputs)

    @caught("the realised batch as divisor")
    def test_the_realised_batch_as_divisor(self):
        # With the releases frozen, whatever depends on the data has leaked.
        small, large = X[:30], np.vstack([X, X])

        def wrong(frozen, rows):
            return -frozen / len(rows)

        frozen, _ = pure_noise(sampling_rate=0.5, max_iter=3)
        assert (wrong(frozen[0], small) != wrong(frozen[0], large)).any()

        plan = {"noise_multiplier": 1.0, "sampling_rate": 0.5, "max_iter": 3, "n_samples": 40}
        with release_hook.record() as tape, warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)
            linear(**plan).fit(small, Y[:30])
            coefficients = []
            for rows in (small, large):
                with release_hook.replay([release.output for release in tape]):
                    fitted = linear(**plan).fit(rows, np.tile(Y, 2)[: len(rows)])
                coefficients.append(fitted.coef_)
        np.testing.assert_array_equal(*coefficients)

    @caught("a private number of rows")
    def test_a_private_number_of_rows(self):
        def wrong(rows):
            return {"delta": 1 / len(rows), "sampling_rate": 10 / len(rows)}

        assert wrong(X) != wrong(X[1:])
        with PrivacyLedger(neighboring_relation="add_or_remove_one") as ledger:
            with pytest.raises(ValueError, match="n_samples"):
                DPVariationalLogisticRegression(neighboring_relation="add_or_remove_one").fit(X, Y)
            plan = {"neighboring_relation": "add_or_remove_one", "n_samples": 40, "batch_size": 10}
            model = linear(**plan, random_state=None)
            reports = [clone(model).fit(X[k:], Y[k:]).privacy_ for k in (0, 1)]
        assert reports[0] == reports[1]
        assert len(ledger.entries) == 2


class TestAccounting:
    @caught("an accountant that turns NaN into 0")
    def test_nan(self):
        wrong = RdpAccountant().compose(dp_accounting.GaussianDpEvent(math.nan)).get_epsilon(1e-5)
        assert wrong == 0.0
        with pytest.raises(ValueError, match="noise_multiplier=nan"):
            epsilon_of_event(dp_accounting.GaussianDpEvent(math.nan), 1e-5)

    @caught("a replaced record accounted as a removed one")
    def test_replace_one(self):
        event = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(1.0), 10)
        wrong = RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE)
        # Ten Gaussians whose mean moves by 2: μ = 2√10, of which the exact ε is 46.21.
        assert wrong.compose(event).get_epsilon(1e-5) < 0.5 * 46.21
        for accountant in ("auto", "gdp", "pld", "rdp"):
            assert epsilon_of_event(event, 1e-5, "replace_one", accountant) >= 46.2

    @caught("one step accounted for many")
    def test_one_step_for_many(self):
        _, calls = pure_noise(max_iter=9)
        with PrivacyLedger() as ledger:
            pure_noise(max_iter=9)
        stated = ledger.total(1e-5)
        μ = math.sqrt(sum((call.sensitivity / call.scale) ** 2 for call in calls))
        exact = epsilon(noise_multiplier=1 / μ, delta=1e-5)

        def covers(claim):
            return claim >= exact * (1 - 1e-9)

        assert not covers(epsilon(noise_multiplier=3.0, delta=1e-5))
        assert covers(stated)

    @caught("a central limit taken for a bound")
    def test_the_central_limit(self):
        plan = {"noise_multiplier": 0.5, "sampling_rate": 0.01, "n_steps": 20, "delta": 1e-6}
        with pytest.warns(PrivacyWarning, match="not a bound"):
            wrong = epsilon(**plan, accountant="gdp_clt")
        # One threshold test on one step is a lower bound already: log((P(S) − δ)/Q(S)).
        t = np.linspace(0.5, 2, 50)
        absent = stats.norm.sf(t, scale=0.5)
        present = 0.99 * absent + 0.01 * stats.norm.sf(t, loc=1.0, scale=0.5)
        least = np.log((present - 1e-6) / absent).max()
        assert wrong < least < epsilon(**plan)

    @pytest.mark.thorough
    @caught("epsilons added at a fixed delta")
    def test_epsilons_are_not_added_at_a_fixed_delta(self):
        one = dp_sgd_event(1.0, 0.001, 1)
        many = dp_accounting.SelfComposedDpEvent(one, 200)
        wrong = 200 * epsilon_of_event(one, 1e-3)  # each step is (0, 1e-3)-DP by itself
        with PrivacyLedger() as ledger:
            for _ in range(200):
                ledger.spend(one, label="step")
        assert wrong < epsilon_of_event(many, 1e-3) <= ledger.total(1e-3) * (1 + 1e-6)


class LosesItsAccountant(BaseEstimator):
    """Keeps its account in a parameter, of which scikit-learn hands every clone a copy."""

    def __init__(self, account=None, prior_scale=1.0):
        self.account = account
        self.prior_scale = prior_scale

    def fit(self, X, y):
        self.account.append("spent")
        return self

    def score(self, X, y):
        return 0.0


class TestAroundTheMechanism:
    @caught("an accountant lost in a clone")
    def test_an_accountant_in_a_search(self):
        grid = {"prior_scale": [1.0, 2.0]}
        account = []
        GridSearchCV(LosesItsAccountant(account), grid, cv=2).fit(X, Y)
        assert account == []  # five fits
        model = DPVariationalLogisticRegression(0.1, classes=[0, 1], n_samples=20, max_iter=1)
        with PrivacyLedger() as ledger:
            GridSearchCV(model, grid, cv=2).fit(X, Y)
        assert len(ledger.entries) == 5

    @caught("a fit that fails for free")
    def test_a_fit_that_fails(self, monkeypatch):
        class CrashError(Exception):
            pass

        def crash(*args):
            raise CrashError

        account = []

        def wrong():
            releases(linear(random_state=None), X, Y)
            crash()
            account.append("spent")

        with pytest.raises(CrashError):
            wrong()
        assert account == []
        monkeypatch.setattr("skdp.engine.loop.ReleasePlan.release", crash)
        with PrivacyLedger() as ledger, pytest.raises(CrashError):
            linear(random_state=None).fit(X, Y)
        assert len(ledger.entries) == 1

    @caught("early stopping on private rows")
    def test_early_stopping(self):
        separable, noise = np.sign(X[:, 0]), RNG.integers(0, 2, 40)

        def wrong(y):
            loss, θ = [], np.zeros(3)
            for _ in range(100):
                θ = θ + 0.01 * (X.T @ (y - X @ θ))
                loss.append(float(((y - X @ θ) ** 2).mean()))
                if len(loss) > 1 and loss[-2] - loss[-1] < 1e-3:
                    break
            return len(loss)

        assert wrong(separable) != wrong(noise)
        steps = [len(releases(linear(max_iter=7), X, y)[0]) for y in ((separable > 0), noise)]
        assert steps == [8, 8]  # and the counts
        assert "early_stopping" not in DPSGDClassifier().get_params()

    @caught("training rows in the fitted model")
    def test_training_rows_in_a_pickle(self):
        class Wrong(LogisticRegression):
            def fit(self, X, y):
                self.X_fit_ = X
                return super().fit(X, y)

        rows = X.copy()
        rows[7] = 0.123456789123
        secret = np.float64(0.123456789123).tobytes()
        sys.modules[__name__].Wrong = Wrong
        Wrong.__qualname__ = "Wrong"
        assert secret in pickle.dumps(vars(Wrong().fit(rows, Y)))
        for model in (linear(random_state=None), DPSGDClassifier(max_iter=2), DPStandardScaler()):
            assert secret not in pickle.dumps(model.fit(rows, Y))

    @caught("a generator's state in the pickle")
    def test_a_generator_in_a_pickle(self):
        rng = np.random.default_rng()
        wrong = {"coef_": X.sum(0) + rng.normal(size=3), "rng_": np.random.default_rng(1)}

        def holds_a_generator(pickled):
            return any(word in pickled for word in (b"PCG64", b"MT19937", b"AESCounter", b"Stream"))

        assert holds_a_generator(pickle.dumps(wrong))
        for model in (linear(random_state=None), DPSGDClassifier(max_iter=2), DPStandardScaler()):
            assert not holds_a_generator(pickle.dumps(model.fit(X, Y)))
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(Streams()("noise"))

    @caught("data in an error message")
    def test_data_in_an_error_message(self):
        secret = np.array([8675309.0, 1.0])
        with pytest.raises(ValueError, match=r"8\.675309e"):
            check_array(secret)
        with pytest.raises(ValueError, match="2D array") as error:
            linear().fit(secret, Y[:2])
        assert "8675309" not in str(error.value).replace(".", "")

    @caught("a scaler that learned from private rows")
    def test_a_scaler_that_learned(self):
        model = DPVariationalLogisticRegression(1.0, classes=[0, 1], n_samples=40, max_iter=1)
        wrong = make_pipeline(StandardScaler(), model).fit(X, Y)
        ours = make_pipeline(DPStandardScaler(-1, 1), clone(model)).fit(X, Y)
        assert not privacy_of(wrong).valid
        assert "StandardScaler" in str(privacy_of(wrong).unaccounted)
        assert privacy_of(ours).valid

    @caught("labels of classes taken for public")
    def test_labels_of_classes(self):
        rare = Y.copy()
        rare[0] = 2

        def wrong(y):
            return np.unique(y).shape

        assert wrong(Y) != wrong(rare)  # who has the rare label shows in the shape alone
        with pytest.raises(ValueError, match=r"declared classes.*in the type of y"):
            linear().fit(X, rare)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)
            undeclared = linear(classes=None, random_state=None).fit(X, Y)
        assert "classes" in undeclared.privacy_.inferred_public_facts


def test_every_bug_of_the_catalogue_is_caught():
    assert set(CAUGHT) == set(BUGS)
    assert len(BUGS) >= 22
    module = inspect.getsource(sys.modules[TestNoise.__module__])
    assert all(f'@caught("{name}")' in module for name in BUGS)
