import math
import pickle
from itertools import permutations

import numpy as np
import pytest
import torch
from bundles import bundled
from refusals import refused
from scipy import stats
from sklearn.base import clone
from torch.distributions import MultivariateNormal, Normal, StudentT

from skdp import FitWarning
from skdp.algorithms.dp_vi_model import clipping_of
from skdp.algorithms.user_model.lengths import CHECK_EDGES, CLIP_EDGES, learned_clip
from skdp.algorithms.user_model.sums import LengthCounts, ModelClippedSum
from skdp.engine.modules.network_records import NetworkRecords
from skdp.estimators.variational_model import DPVariationalModel
from skdp.models.user_models import UserModel

INF = float("inf")


def normal_mean(theta, x):
    return -0.5 * ((x - theta) ** 2).sum(1)


class Scaled:
    """A log-likelihood whose repr is no address, which test identifiers must not hold."""

    def __call__(self, theta, x):
        return -0.5 * ((x - theta[0]) ** 2).sum(1) * torch.exp(theta[1])

    def __repr__(self):
        return "scaled"


scaled = Scaled()


def coin(theta, x, generator):
    """Targets of `logistic`."""
    return torch.bernoulli(torch.sigmoid(x @ theta), generator=generator)


def student(theta, x, y):
    return StudentT(4.0, x @ theta[:2], theta[2].exp()).log_prob(y)


def draw_student(theta, x, generator):
    z = torch.randn((len(x), 5), generator=generator, dtype=x.dtype)
    return x @ theta[:2] + theta[2].exp() * z[:, 0] / z[:, 1:].square().mean(1).sqrt()


def student_data(seed, n):
    X = np.random.default_rng(seed).uniform(-1, 1, (n, 2))
    generator = torch.Generator().manual_seed(seed)
    theta = torch.tensor([1.0, -0.5, math.log(0.3)], dtype=torch.float64)
    return X, draw_student(theta, torch.from_numpy(X), generator).numpy()


def logistic(theta, x, y):
    z = x @ theta
    return y * z - torch.nn.functional.softplus(z)


def make(log_likelihood=normal_mean, n_parameters=2, **parameters):
    return DPVariationalModel(log_likelihood, n_parameters, **{"n_samples": 400, **parameters})


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal([1.0, -0.5], 1.0, (400, 2))


class TestAgainstTheExactPosterior:
    @pytest.mark.quick(1)
    @pytest.mark.parametrize("covariance", ["full", "diag"])
    def test_conjugate_normal_without_privacy(self, rows, covariance):
        model = make(epsilon=INF, prior=0.1, covariance=covariance).fit(rows)
        precision = len(rows) + 0.1**-2
        deviation = precision**-0.5
        np.testing.assert_allclose(model.mean_, rows.sum(0) / precision, atol=0.05 * deviation)
        np.testing.assert_allclose(model.covariance_, np.eye(2) / precision, atol=0.25 / precision)
        assert model.privacy_.epsilon == INF

    @pytest.mark.thorough
    def test_priors_of_all_kinds_agree(self, rows):
        covariance = torch.tensor([[0.02, 0.01], [0.01, 0.02]], dtype=torch.float64)
        normal = MultivariateNormal(torch.ones(2, dtype=torch.float64), covariance)
        # The posterior by hand.
        P0 = np.linalg.inv(covariance.numpy())
        exact = np.linalg.inv(P0 + 400 * np.eye(2))
        mean = exact @ (P0 @ np.ones(2) + rows.sum(0))
        for prior in (normal, normal.log_prob):
            model = make(epsilon=INF, prior=prior).fit(rows)
            np.testing.assert_allclose(model.mean_, mean, atol=0.003)
            np.testing.assert_allclose(model.covariance_, exact, atol=0.1 / 400)

    def test_returns_to_the_prior_where_noise_drowns_the_data(self, rows):
        model = make(epsilon=1e-3, prior=Normal(torch.full((2,), 3.0), 0.5)).fit(rows)
        np.testing.assert_allclose(np.sqrt(np.diag(model.covariance_)), 0.5, rtol=0.1)
        assert np.abs(model.mean_ - 3.0).max() < 4 * 0.5

    @pytest.mark.slow
    def test_noise_aware_intervals_cover_and_plain_ones_do_not(self):
        # θ from the prior; 3·60 intervals: the standard error of a 90 % coverage is .022 if the
        # three were independent, .04 if they were one.
        covered = {"noise_aware": [], "dpvi": []}
        rng = np.random.default_rng(0)
        for _ in range(60):
            theta = 2 * rng.standard_normal(3)
            X = rng.uniform(-1, 1, (1000, 3))
            y = (rng.random(1000) < 1 / (1 + np.exp(-X @ theta))).astype(int)
            for inference, found in covered.items():
                model = make(logistic, 3, prior=2.0, n_samples=1000, inference=inference).fit(X, y)
                z = np.abs(theta - model.mean_) / np.sqrt(np.diag(model.covariance_))
                found.extend(z < stats.norm.ppf(0.95))
        assert 0.80 < np.mean(covered["noise_aware"]) < 0.98
        assert np.mean(covered["dpvi"]) < 0.80


class TestMixture:
    """Five spherical components in the plane, as in Jälkö, Dikmen & Honkela (2017)."""

    CENTRES = np.array([[-2, -2], [-2, 2], [2, -2], [2, 2], [0, 0]], dtype=float)
    WEIGHTS = np.array([0.15, 0.2, 0.2, 0.2, 0.25])
    SCALE = 0.5

    @staticmethod
    def log_likelihood(theta, x):
        means, log_scales = theta[:10].reshape(5, 2), theta[10:15]
        squares = ((x[:, None] - means) ** 2).sum(2)
        log_densities = -0.5 * squares * torch.exp(-2 * log_scales) - 2 * log_scales
        return torch.logsumexp(torch.log_softmax(theta[15:], 0) + log_densities, dim=1)

    @pytest.mark.thorough
    def test_components_are_found_at_epsilon_1(self):
        rng = np.random.default_rng(0)
        component = rng.choice(5, 4000, p=self.WEIGHTS)
        X = self.CENTRES[component] + self.SCALE * rng.standard_normal((4000, 2))
        # A public guess: half as far out as the components are, each of scale 1.
        start = np.concatenate([self.CENTRES.ravel() / 2, np.zeros(10)])
        prior = Normal(torch.zeros(20), torch.tensor([3.0] * 10 + [1.0] * 10))
        # The clip that is learned is larger than a mixture needs.
        plan = {"prior": prior, "initial_mean": start, "clip_norm": 9.0, "n_samples": 4000}
        model = make(self.log_likelihood, 20, **plan)
        model.fit(X)
        assert model.privacy_.epsilon <= 1.0
        means = model.mean_[:10].reshape(5, 2)
        order = min(
            map(list, permutations(range(5))),
            key=lambda p: np.linalg.norm(means[p] - self.CENTRES, axis=1).sum(),
        )
        weights = np.exp(model.mean_[15:])[order]
        # In twelve such fits means were within .08, scales within .04, weights within .03.
        assert np.linalg.norm(means[order] - self.CENTRES, axis=1).max() < 0.2
        assert np.abs(np.exp(model.mean_[10:15])[order] - self.SCALE).max() < 0.12
        assert np.abs(weights / weights.sum() - self.WEIGHTS).max() < 0.06


def at(theta, clip_norm=1.0):
    """The query for parameters and a clip."""
    return torch.cat([theta, torch.tensor([clip_norm], dtype=theta.dtype)])


class TestLengthCounts:
    EDGES = (1.0, 2.0, 4.0)

    def counts(self, lengths, clip_norm=1.0):
        X = np.array(lengths, dtype=float)[:, None]
        theta = torch.zeros(1, dtype=torch.float64)
        batch = NetworkRecords(X, X[:, 0], theta).take(slice(0, len(X)))
        model = UserModel(lambda theta, x: (theta * x).sum(1), 1, False)  # a record's gradient is x
        return LengthCounts(model, self.EDGES)(at(theta, clip_norm), batch).tolist()

    def test_each_record_is_in_one_cell_or_in_none(self):
        assert self.counts([0.5, 1.0, 1.1, -2.0, 2.1, 4.0, 4.1, 1e300]) == [2, 2, 2]
        assert self.counts([0.5, 1.1, 2.1, 8.2], clip_norm=2.0) == [1, 0, 1]

    @pytest.mark.parametrize("length", [0.0, 1.0, INF, math.nan])
    def test_null_short_and_infinite_records_are_in_none(self, length):
        assert self.counts([length]) == [0, 0, 0]

    def test_no_record_moves_the_counts_beyond_the_sensitivity(self):
        counts = LengthCounts(UserModel(normal_mean, 1, False), self.EDGES)
        lengths = [0.0, 0.5, 1.5, 3.0, 5.0, -1e300, INF]
        for one in lengths:
            alone = np.array(self.counts([one]))
            assert np.linalg.norm(alone) <= counts.moved_by("zero_out") == 1.0
            assert np.linalg.norm(alone) <= counts.moved_by("add_or_remove_one") == 1.0
            for other in lengths:
                moved = np.linalg.norm(alone - self.counts([other]))
                assert moved <= counts.moved_by("replace_one") == math.sqrt(2)


class TestClippedSum:
    @pytest.mark.parametrize("clip_norm", [0.3, 1e3, INF])
    @pytest.mark.parametrize("kind", ["gradient", "outer", "squares"])
    def test_is_that_of_a_loop(self, clip_norm, kind, monkeypatch):
        monkeypatch.setattr("skdp.algorithms.user_model.sums.CHUNK_NUMBERS", 20)  # several chunks
        rng = np.random.default_rng(0)
        X, y = rng.standard_normal((23, 3)), rng.integers(0, 2, 23)
        theta = torch.from_numpy(rng.standard_normal(3))
        total = np.zeros((3, 3) if kind == "outer" else 3)
        for x, target in zip(X, y, strict=True):
            parameters = theta.clone().requires_grad_()
            logistic(parameters, torch.from_numpy(x[None]), torch.tensor([target])).sum().backward()
            g = parameters.grad.numpy()
            # In units of a clip of 2.
            g = g / 2 * min(1, clip_norm / np.linalg.norm(g / 2))
            total += {"gradient": g, "outer": np.outer(g, g), "squares": g**2}[kind]
        if kind == "outer":
            upper = np.triu_indices(3)
            total = total[upper] * np.where(upper[0] == upper[1], 1, np.sqrt(2))
        batch = NetworkRecords(X, y, theta).take(slice(0, 23))
        clipped_sum = ModelClippedSum(UserModel(logistic, 3, True), kind, clip_norm)
        found = clipped_sum(at(theta, 2.0), batch)
        np.testing.assert_allclose(found, total, rtol=1e-9, atol=1e-12)

    def test_a_record_without_a_finite_gradient_adds_nothing(self):
        def fails(theta, x):
            return theta.sum() * torch.log(x[:, 0])

        theta = torch.ones(1, dtype=torch.float64)
        clipped_sum = ModelClippedSum(UserModel(fails, 1, False))
        sums = []
        for value in (-1.0, 0.0, 1.0):
            X = np.array([[2.0], [value], [3.0]])
            sums.append(clipped_sum(at(theta), NetworkRecords(X, X[:, 0], theta).take(slice(0, 3))))
        # log 1 = 0 adds nothing either; log 2 is below the clip, log 3 is not.
        assert [float(s) for s in sums] == pytest.approx([math.log(2) + 1] * 3)

    def test_a_record_at_which_the_function_raises_adds_nothing(self, rows):
        def raises(theta, x):
            if len(x) != 1:  # a stand-in for a failure that depends on a value
                raise RuntimeError("no")
            return normal_mean(theta, x)

        theta = torch.zeros(2, dtype=torch.float64)
        batch = NetworkRecords(rows, rows[:, 0], theta).take(slice(0, 5))
        found = ModelClippedSum(UserModel(raises, 2, False), bound=INF)(at(theta), batch)
        np.testing.assert_allclose(found, rows[:5].sum(0))

        class Never(UserModel):
            def gradients(self, theta, x, y):
                raise RuntimeError("no")

        assert not ModelClippedSum(Never(raises, 2, False), bound=INF)(at(theta), batch).any()
        assert not LengthCounts(Never(raises, 2, False), (1e-9,))(at(theta), batch).any()


class TestClip:
    NOISE = 30.0  # of a count

    def counts(self, **cells):
        """Counts by CLIP_EDGES: 1/8, 1/8√2, ..., 16; cell c6 starts at the clip."""
        found = np.zeros(len(CLIP_EDGES))
        for cell, count in cells.items():
            found[int(cell[1:])] = count
        return found

    @pytest.mark.parametrize(
        ("cells", "clip"),
        [
            ({"c3": 4000, "c7": 500, "c8": 200}, 2**1.5),  # the edge after the last
            ({"c3": 4000, "c8": 90}, 2**-0.5),  # within 3.5 times the noise: 1/2√2, and one more
            ({"c3": 4000, "c5": 200}, 2**0.5),
            ({"c3": 4000, "c14": 200}, 2**-0.5),  # lone: may be noise
            ({"c3": 4000, "c13": 220}, 2**4.0),  # and may not
            ({}, 1 / 8 * 2**0.5),  # all below the first edge
            ({"c14": 4000}, 2**4.5),
        ],
    )
    def test_is_the_edge_after_the_last_cell_that_is_not_empty(self, cells, clip):
        assert learned_clip(self.counts(**cells), self.NOISE, 10_000) == pytest.approx(clip)

    def test_is_larger_where_noise_may_hide_records_and_stays_where_it_hides_most(self):
        counts = self.counts(c3=4000, c6=2000, c7=2000)
        assert learned_clip(counts, 90.0, 10_000) == pytest.approx(2 * 1.575)
        assert learned_clip(counts, 400.0, 10_000) == pytest.approx(4)
        assert learned_clip(counts, 800.0, 10_000) == 1.0

    def test_share_and_advice_are_read_off_the_counts(self):
        assert CHECK_EDGES == (1, 2, 4, 8)
        found = clipping_of(np.array([500.0, 200.0, -20.0, 20.0]), self.NOISE, 10_000, 3.0)
        assert found == (3.0, pytest.approx(0.07), pytest.approx(0.006), 12.0)
        far = clipping_of(np.array([500.0, 0.0, 0.0, 200.0]), self.NOISE, 10_000, 3.0)
        assert far.advised == INF
        assert math.isnan(clipping_of(np.zeros(4), self.NOISE, 10_000, 3.0).advised)

    @pytest.mark.thorough
    def test_too_small_a_clip_is_warned_of_and_the_advised_one_is_not(self):
        X, y = student_data(0, 5000)
        model = make(student, 3, clip_norm=1.5, n_samples=5000)
        with pytest.warns(
            FitWarning, match=r"gradients longer than the clip 1.5 .*give clip_norm="
        ):
            model.fit(X, y)
        (message,) = model.diagnostics_
        # log σ is off by many deviations, whose sign is that of the clipped scores.
        assert (model.mean_[2] - math.log(0.3)) / np.sqrt(model.covariance_[2, 2]) < -3
        assert model.clipped_share_ > 0.3
        advised = float(message.split("clip_norm=")[1].rstrip("."))
        again = model.set_params(clip_norm=advised).fit(X, y)
        assert again.diagnostics_ == ()
        assert abs(again.clipped_share_) < 0.03 + 4 * again.clipped_share_noise_
        assert again.clip_norm_ == advised

    @pytest.mark.thorough
    def test_learned_clip_leaves_few_records_clipped(self):
        X, y = student_data(1, 5000)
        model = make(student, 3, n_samples=5000).fit(X, y)
        G = model._model.gradients(*map(torch.from_numpy, (model.mean_, X, y))).numpy()
        share = np.mean(np.linalg.norm(G, axis=1) > model.clip_norm_)
        assert share < 0.03
        assert abs(model.clipped_share_ - share) < 4.5 * model.clipped_share_noise_
        assert model.diagnostics_ == ()

    @pytest.mark.slow
    def test_intervals_hold_at_the_defaults(self):
        # 40 fits: a 90 % interval holds fewer than 31 with probability 1e-3, one of 75 % or less
        # holds more with probability .4; before clips were learned log σ was held by none.
        z = []
        for seed in range(40):
            model = make(student, 3, n_samples=5000).fit(*student_data(seed, 5000))
            off = model.mean_ - [1.0, -0.5, math.log(0.3)]
            z.append(off / np.sqrt(np.diag(model.covariance_)))
        assert ((np.abs(z) < stats.norm.ppf(0.95)).sum(0) >= 31).all()

    def test_releases_are_planned_and_the_last_ones_count(self):
        config = make(student, 3).plan(n_features=2).config
        assert (config.n_releases, config.n_clip_steps, config.n_check_steps) == (150, 3, 3)
        sums = config.release_plan().clipped_sum
        assert [sums[i] for i in (147, 148, 149)] == [LengthCounts(sums[0].model, CHECK_EDGES)] * 3
        assert [sums[i].edges for i in config.clip_steps] == [CLIP_EDGES] * 3
        # A clip that is given is not learned, and without privacy nothing is clipped.
        given = make(student, 3, clip_norm=2.0).plan(n_features=2).config
        assert (given.n_clip_steps, given.n_check_steps, given.n_releases) == (0, 3, 150)
        free = make(student, 3, epsilon=INF).plan(n_features=2).config
        assert (free.n_clip_steps, free.n_check_steps, free.clip_norm) == (0, 0, INF)
        for max_iter, n_check in [(2, 0), (3, 1), (19, 1)]:
            config = make(student, 3, max_iter=max_iter).plan(n_features=2).config
            assert (config.n_clip_steps, config.n_check_steps) == (0, n_check)

    def test_weakly_identified_parameters_are_said_to_be(self):
        def flat(theta, x, y):
            return -0.5 * ((y - theta[0] - 0.01 * theta[1:].sum()) / 0.1) ** 2

        X = np.random.default_rng(0).uniform(-1, 1, (5000, 1))
        y = np.random.default_rng(1).normal(0, 0.1, 5000)
        with pytest.warns(FitWarning, match="of 6 directions of theta, while others are well"):
            model = make(flat, 6, n_samples=5000).fit(X, y)
        # In the directions without information the posterior is near the prior N(0, 1).
        assert np.sqrt(np.diag(model.covariance_))[1:].min() > 0.2


class TestSimulate:
    @pytest.mark.thorough
    def test_predictive_draws_are_those_of_the_model(self):
        X, y = student_data(0, 2000)
        model = make(student, 3, simulate=draw_student, n_samples=2000).fit(X, y)
        draws = model.sample_predictive(X[:200], 500, random_state=0)
        assert draws.shape == (500, 200)
        np.testing.assert_array_equal(draws, model.sample_predictive(X[:200], 500, random_state=0))
        # Medians follow the line: 100 000 draws in all, deviation of about .4 each.
        slope = np.polyfit(X[:200] @ model.mean_[:2], np.median(draws, axis=0), 1)[0]
        assert slope == pytest.approx(1.0, abs=0.15)

    @pytest.mark.parametrize(
        "prior", [2.0, [2.0, 2.0], Normal(0.0, 2.0), Normal(torch.zeros(2), 2.0)]
    )
    def test_prior_predictive_needs_no_fit(self, prior):
        def line(theta, x, generator):
            return x @ theta

        rows = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        state = torch.random.get_rng_state()
        model = make(logistic, prior=prior, simulate=line)
        draws = model.sample_prior_predictive(rows, 4000, random_state=0)
        assert draws.shape == (4000, 3)
        # x·θ ~ N(0, 4‖x‖²): a variance of 4000 draws has a relative deviation of √(2/4000) = .022.
        np.testing.assert_allclose(draws.var(axis=0), [4, 4, 8], rtol=0.1)
        assert torch.equal(torch.random.get_rng_state(), state)
        assert not hasattr(model, "n_features_in_")

    def test_gives_a_clip_that_is_public(self):
        clips = {
            (relation, n): make(
                student, 3, simulate=draw_student, neighboring_relation=relation, n_samples=n
            )
            .plan(n_features=2)
            .config.clip_norm
            for relation in ("zero_out", "add_or_remove_one")
            for n in (500, 5000)
        }
        # 99 % of the scores of Student's t at a usual θ are shorter: |score| of log σ is below 4.
        assert len(set(clips.values())) == 1
        assert 2.5 < clips["zero_out", 500] < 6
        assert make(student, 3).plan(n_features=2).config.clip_norm == pytest.approx(2 * 3**0.5)
        given = make(student, 3, simulate=draw_student, clip_norm=7.0)
        assert given.plan(n_features=2).config.clip_norm == 7.0

    def test_is_never_given_a_private_row(self, rows):
        seen = []

        def noting(theta, x, generator):
            seen.append(x.numpy().copy())
            return coin(theta, x, generator)

        make(logistic, simulate=noting, max_iter=4).fit(rows, rows[:, 0] > 0)
        assert seen
        assert not np.isin(np.concatenate(seen), rows).any()

    def test_draws_targets_for_examples_of_rows(self):
        def counts(theta, x, y):  # fails on the labels of synthetic records otherwise
            return theta[0] * y - theta[0].exp() + torch.where(y > 1.5, 0.0, torch.nan)

        def many(theta, x, generator):
            return 2.0 + torch.poisson(theta[0].exp().expand(len(x)), generator=generator)

        X = np.ones((400, 1))
        make(counts, 1, simulate=many, max_iter=4, example_rows=[[1.0], [2.0]]).fit(X, X[:, 0] * 3)


class TestPath:
    def test_keeps_means_along_the_run(self, rows):
        model = make(max_iter=30).fit(rows)
        assert model.posterior_means_.shape == (len(model.posterior_steps_), 2)
        assert (np.diff(model.posterior_steps_) == 1).sum() >= len(model.posterior_steps_) - 2
        assert 0 < model.burn_in_ < model.posterior_steps_[-1] <= model.n_iter_

    @pytest.mark.thorough
    def test_memory_is_bounded(self, rows):
        model = make(epsilon=INF, max_iter=1001, n_samples=10).fit(rows[:10])
        assert len(model.posterior_steps_) <= 201
        assert model.posterior_steps_[-1] == 1001


class TestArviz:
    @pytest.mark.thorough
    def test_groups_of_public_rows_are_what_arviz_checks(self):
        arviz = pytest.importorskip("arviz")
        X, y = student_data(0, 2000)
        model = make(student, 3, simulate=draw_student, n_samples=2000).fit(X, y)
        X_public, y_public = student_data(1, 50)
        data = model.to_arviz(400, 0, X_public, y_public)
        assert data.posterior_predictive["y"].shape == (4, 100, 50)
        np.testing.assert_array_equal(data.observed_data["y"], y_public)
        draws = data.posterior["theta"].values.reshape(400, 3)
        exact = [stats.t(4, X_public @ d[:2], np.exp(d[2])).logpdf(y_public) for d in draws[:5]]
        found = data.log_likelihood["y"].values.reshape(400, 50)
        np.testing.assert_allclose(found[:5], exact, rtol=1e-6)
        # Warnings are errors. With p effective parameters elpd is that of the mean, about.
        loo = arviz.loo(data)
        assert loo.elpd_loo == pytest.approx(model.score_samples(X_public, y_public).sum(), abs=1.0)
        assert set(model.to_arviz(16, 0, X_public).groups()) == {
            "posterior",
            "posterior_predictive",
        }
        plain = model.set_params(simulate=None).to_arviz(16, 0, X_public, y_public)
        assert set(plain.groups()) == {"posterior", "log_likelihood", "observed_data"}
        with pytest.raises(ValueError, match="X_public with y_public"):
            model.to_arviz(16, 0, y_public=y_public)


class TestErrors:
    """Each names the parameter, spends nothing, and quotes no data."""

    @pytest.fixture
    def names(self, rows):
        marked = rows.copy()
        marked[0, 0] = 123.456789

        def check(match, y=None, **parameters):
            with refused(match) as caught:
                make(**parameters).fit(marked, y)
            assert "123.45" not in str(caught.value)

        return check

    @bundled(
        ("log_likelihood", "match"),
        [
            (3.0, "Expected log_likelihood=3.0 .* to be a function"),
            (lambda theta, x: x.numpy().sum(1), "log_likelihood to return a torch tensor"),
            (lambda theta, x: normal_mean(theta, x).sum(), r"shape \(n,\), but got shape \(\)"),
            (lambda theta, x: (x - theta) ** 2, r"one log-density a record.*got shape \(5, 2\)"),
            (lambda theta, x: normal_mean(theta, x).float(), "double precision.*float32"),
            (lambda theta, x: torch.log(x[:, 0]) * theta[0], "finite on ordinary.*example_rows"),
            (lambda theta, x: x @ torch.ones(7), "it raised RuntimeError on synthetic records"),
            (lambda theta, x: normal_mean(theta.detach(), x), "differentiable in theta"),
            (lambda theta, x: normal_mean(theta, x - x.mean(0)), "each record by itself"),
            (lambda theta, x: normal_mean(theta, x) + torch.rand(len(x)), "or by chance"),
            (lambda theta, x: normal_mean(theta, x) * x[0, 0].item(), "each record by itself"),
            (
                lambda theta, x: normal_mean(theta, x) if x[0, 0] < 9 else x[:, 0],
                r"differentiable record by record.*\.item\(\)",
            ),
            (lambda theta, x: torch.sqrt(0 * x[:, 0] * theta[0]), "finite gradients"),
            (lambda theta, x, y: logistic(theta, x, y), "missing 1 required.*give y to fit"),
        ],
    )
    def test_of_the_log_likelihood(self, names, log_likelihood, match):
        names(match, log_likelihood=log_likelihood)

    @bundled(
        ("parameters", "match"),
        [
            ({"n_parameters": 0}, "n_parameters=0"),
            ({"prior": -1.0}, "prior=-1.0"),
            ({"prior": [1.0]}, "prior=.*or 2 of them"),
            ({"prior": [1.0, 0.0]}, "prior=.*scale > 0"),
            *[({"prior": [1.0, bad]}, "prior=.*scale > 0") for bad in ("a", 10**400)],
            ({"prior": [[1.0, 1.0]]}, "prior=.*scale > 0"),
            ({"simulate": lambda theta, x, generator: x[:, 0]}, "simulate=.*takes no y"),
            ({"prior": "flat"}, "prior='flat'"),
            ({"prior": lambda theta: theta}, "finite log-density"),
            ({"prior": lambda theta: theta.sum().log()}, "finite log-density"),
            ({"prior": lambda theta: 1.0}, "torch can differentiate"),
            ({"prior": Normal(torch.zeros(3), 1.0)}, "log-density of 2 numbers"),
            ({"initial_mean": [0.0]}, "initial_mean=.*2 finite numbers"),
            *[({"initial_mean": [0.0, bad]}, "initial_mean=") for bad in (np.nan, 10**400)],
            ({"initial_mean": "zero"}, "initial_mean='zero'"),
            ({"initial_scale": 0.0}, "initial_scale=0.0"),
            ({"inference": "exact"}, "inference='exact'"),
            ({"covariance": "block"}, "covariance='block'"),
            ({"parameter_names": ["a"]}, "parameter_names=.*2 names"),
            ({"example_rows": [[1.0]]}, "example_rows=.*2 rows of 2 features"),
            ({"example_rows": (np.ones((3, 2)), [1.0])}, "one target for each"),
            ({"max_iter": 1}, "max_iter=1.*>= 2"),
            ({"data_norm": 0.0}, "data_norm=0.0"),
            ({"clip_norm": 0.0}, "clip_norm=0.0"),
            ({"learning_rate": -1.0}, "learning_rate=-1.0"),
            ({"batch_size": 10, "sampling_rate": 0.1}, "batch_size"),
            ({"neighboring_relation": "add_or_remove_one", "n_samples": None}, "n_samples"),
        ],
    )
    def test_of_parameters(self, names, parameters, match):
        names(match, **parameters)

    @bundled(
        ("simulate", "match"),
        [
            ("y", "simulate='y'.*a function of"),
            (lambda theta, x: x[:, 0], "simulate to work on .theta, x, generator.*TypeError"),
            (lambda theta, x, generator: x.numpy()[:, 0], "simulate to return a torch tensor"),
            (lambda theta, x, generator: x, r"one target per row.*shape \(5, 2\) for 5 rows"),
            (lambda theta, x, generator: torch.rand(len(x)), "same from generators"),
            (lambda theta, x, generator: x[:, 0] / 0, "finite log-likelihood"),
            (lambda theta, x, generator: x @ torch.ones(7), "simulate to work on"),
        ],
    )
    def test_of_simulate(self, names, simulate, match):
        y = np.arange(400) % 2
        for clip_norm in ("auto", 1.0):
            names(match, y, log_likelihood=logistic, simulate=simulate, clip_norm=clip_norm)

    def test_predictive_draws_need_simulate_and_a_prior_to_draw_from(self, rows):
        with pytest.raises(ValueError, match="simulate=None"):
            make(logistic).sample_prior_predictive(rows)
        with pytest.raises(ValueError, match="simulate=None"):
            make(max_iter=4).fit(rows).sample_predictive(rows)
        density = make(logistic, prior=lambda theta: -theta.square().sum(), simulate=coin)
        with pytest.raises(ValueError, match="scales or a torch distribution"):
            density.sample_prior_predictive(rows)

    def test_a_failed_fit_leaves_the_old_one(self, rows):
        model = make(max_iter=3).fit(rows)
        before = model.mean_
        with pytest.raises(ValueError, match="clip_norm"):
            model.set_params(clip_norm=-1.0).fit(rows)
        assert model.mean_ is before

    def test_score_needs_the_targets_that_fit_had(self, rows):
        model = make(logistic, max_iter=3).fit(rows, rows[:, 0] > 0)
        with pytest.raises(ValueError, match="Expected y"):
            model.score_samples(rows)


class TestFit:
    def test_example_rows_stand_in_for_made_up_ones(self):
        def exponential(theta, x):
            return torch.log(x[:, 0]) * 0 + theta[0] - theta[0].exp() * x[:, 0]

        X = np.random.default_rng(0).exponential(0.5, (400, 1))
        model = make(exponential, 1, prior=3.0, example_rows=[[1.0], [2.0]]).fit(X)
        assert abs(model.mean_[0] - math.log(2)) < 1.0

    @pytest.mark.parametrize("dtype", [int, bool, np.float32])
    def test_targets_keep_their_kind(self, rows, dtype):
        seen = set()

        def noting(theta, x, y):
            seen.add(y.dtype)
            return logistic(theta, x, y)

        make(noting, max_iter=3).fit(rows, (rows[:, 0] > 0).astype(dtype))
        assert seen == {torch.float64 if dtype is np.float32 else torch.int64}

    def test_distributions_that_check_arguments_work(self, rows):
        def log_likelihood(theta, x):
            return Normal(theta, 1.0, validate_args=None).log_prob(x).sum(1)

        checks = torch.distributions.Distribution._validate_args
        make(log_likelihood, max_iter=3).fit(rows)
        assert torch.distributions.Distribution._validate_args is checks

    def test_a_function_cannot_write_into_the_rows(self, rows):
        def greedy(theta, x):
            x = x.clone() if torch._C._functorch.maybe_current_level() is not None else x.zero_()
            return normal_mean(theta, x)

        kept = rows.copy()
        make(greedy, max_iter=3).fit(rows)
        np.testing.assert_array_equal(rows, kept)

    def test_a_function_that_takes_no_y_gets_none(self, rows):
        model = make(max_iter=3).fit(rows, np.full(400, "a"))
        np.testing.assert_array_equal(model.score_samples(rows, "b"), model.score_samples(rows))

    def test_public_interface(self, rows):
        model = make(parameter_names=["a", "b"], max_iter=20, data_norm=1.0).fit(rows)
        assert model.parameter_names_ == ["a", "b"]
        assert model.n_iter_ == 20
        assert model.sampling_rate_ == 1.0
        draws = model.sample_posterior(50_000, random_state=0)
        np.testing.assert_allclose(draws.mean(0), model.mean_, atol=0.02)
        np.testing.assert_allclose(np.cov(draws.T), model.covariance_, rtol=0.1, atol=2e-3)
        again = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(again.mean_, model.mean_)
        assert clone(model).get_params() == model.get_params()

    @pytest.mark.thorough
    def test_score_is_the_predictive_density(self, rows):
        model = make(epsilon=INF, prior=10.0).fit(rows)
        # The predictive is N(mean, 1 + variance) in each coordinate, up to the constant.
        variance = 1 + np.diag(model.covariance_)
        exact = stats.norm(model.mean_, np.sqrt(variance)).logpdf(rows).sum(1) + math.log(
            2 * math.pi
        )
        np.testing.assert_allclose(model.score_samples(rows), exact, atol=0.1)
        assert model.score(rows) == pytest.approx(exact.mean(), abs=0.02)
        # A row's score does not depend on its neighbours.
        np.testing.assert_allclose(model.score_samples(rows[:3]), model.score_samples(rows)[:3])

    @pytest.mark.parametrize("noise_multiplier", [0.5, 1e4])
    def test_poisson_batches(self, rows, noise_multiplier):
        given = {"epsilon": None, "noise_multiplier": noise_multiplier, "batch_size": 40}
        model = make(**given, max_iter=30).fit(rows)
        assert model.sampling_rate_ == 0.1
        assert np.isfinite(model.mean_).all()
        assert (np.linalg.eigvalsh(model.covariance_) > 0).all()

    @bundled("max_iter", [2, 3, 4, 7])
    @bundled("n", [1, 2])
    def test_shortest_runs(self, max_iter, n):
        model = make(max_iter=max_iter, n_samples=n).fit(np.ones((n, 2)))
        assert np.isfinite(model.covariance_).all()


def line(theta, x, y):
    return Normal(x @ theta[:2] + theta[2], theta[3].exp()).log_prob(y)


@pytest.mark.parametrize("scale", [1e-6, 1e-2])
def test_a_posterior_that_is_the_prior_says_so(scale):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (2000, 3))
    y = (X[:, 0] > 0.3 * rng.logistic(size=2000)).astype(float)
    model = make(logistic, 3, prior=3.0, epsilon=2.0, n_samples=2000)
    assert "every parameter" not in " ".join(model.fit(X, y).diagnostics_)
    with pytest.warns(FitWarning, match="of every parameter is about as wide as its prior"):
        model.fit(scale * X, y)


@pytest.mark.parametrize("epsilon", [2.0, INF])
def test_a_run_that_has_not_arrived_says_so(epsilon):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (3000, 2))
    y = X @ [0.3, -0.2] + 1.0 + 0.1 * rng.normal(size=3000)
    facts = {"epsilon": epsilon, "n_samples": 3000}
    assert make(line, 4, **facts).fit(X, y).diagnostics_ == ()
    for short in ({"max_iter": 10}, {"max_iter": 4}, {"learning_rate": 1e-3, "max_iter": 150}):
        with pytest.warns(FitWarning, match="The run is too short"):
            make(line, 4, **facts, **short).fit(X, y)
    with pytest.warns(FitWarning, match="The run has not converged"):
        make(line, 4, **facts, max_iter=30, learning_rate=0.04).fit(X, y)
