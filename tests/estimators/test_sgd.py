"""DP-SGD estimators: what they learn, what they state, how they fit into scikit-learn."""

import functools
import math
import pickle
from unittest import mock

import numpy as np
import pytest
import torch
from bundles import bundled
from refusals import refused
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from torch import nn
from torch.nn import functional as F

from skdp import (
    DPSGDClassifier,
    DPSGDRegressor,
    DPSGLDClassifier,
    DPSGLDRegressor,
    DPVariationalLogisticRegression,
    NormClipper,
    PrivacyLedger,
)
from skdp.engine import release_hook
from skdp.privacy import epsilon, epsilon_to_gdp, privacy_of
from skdp.privacy.events import terms_of

FACTS = {"classes": [0, 1], "n_samples": 120}
INF = float("inf")


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return train_test_split(X / 16, y, test_size=0.3, random_state=0, stratify=y)


class TestUtility:
    def test_digits_with_defaults(self, digits):
        # Means over splits .79/.88/.94/.95 at ε = .5/1/3/8; one unseeded fit stays within .05.
        X, X_test, y, y_test = digits
        for eps, least in [(1.0, 0.82), (8.0, 0.92)]:
            assert DPSGDClassifier(eps).fit(X, y).score(X_test, y_test) > least

    @pytest.mark.thorough
    @pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
    def test_without_privacy_it_is_an_ordinary_network(self, digits):
        X, X_test, y, y_test = digits
        ours = DPSGDClassifier(INF).fit(X, y).score(X_test, y_test)
        peer = MLPClassifier((100,), activation="tanh", random_state=0, max_iter=200)
        assert ours > peer.fit(X, y).score(X_test, y_test) - 0.015

    @pytest.mark.parametrize("targets", [1, 2])
    def test_regression_on_bounded_targets(self, targets):
        X = np.random.default_rng(0).uniform(-1, 1, (4000, 2))
        y = 100 + 50 * np.column_stack([np.sin(3 * X[:, 0]), X[:, 1]])[:, :targets]
        y = y[:, 0] if targets == 1 else y
        regressor = DPSGDRegressor(8.0, target_bounds=(50, 150), n_samples=4000).fit(X, y)
        assert regressor.score(X, y) > 0.8
        assert regressor.predict(X).shape == y.shape
        assert regressor.sample_predictive(X, 3).shape == (3, *y.shape)

    def test_a_lone_linear_layer_has_two_paths_that_agree(self, two_blobs):
        # The closed form in float64 against book-keeping, which an explicit device asks for.
        sums = []
        for device in (None, "cpu"):
            plan = {"hidden_layer_sizes": (), "max_iter": 30, "clip_norm": 0.3, "averaging": 0}
            model = DPSGDClassifier(INF, device=device, **plan, **FACTS, sampling_rate=1.0)
            with mock.patch("skdp.fitting.charge.initial_seed", return_value=1):
                sums.append(model.fit(*two_blobs)._posterior.mean)
        np.testing.assert_allclose(*sums, rtol=1e-3, atol=1e-4)


class Mixing(nn.Module):
    """Nothing unusual on one record: ``body`` changes the rows of some batches only."""

    def __init__(self, body):
        super().__init__()
        self.first, self.head, self.body = nn.Linear(3, 8), nn.Linear(8, 2), body
        self.before = nn.Linear(3, 3)  # of few bodies only
        self.register_buffer("n_batches", torch.zeros(()))

    def forward(self, x):
        return self.head(torch.tanh(self.first(self.body(self, x))))


def centred_if(condition):
    return lambda self, x: x - x.mean(0) if condition(self, x) else x


def counts_large_batches(self, x):
    if len(x) > 7:
        self.n_batches += 1
    return x


class MixesGradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient - gradient.mean(0) if len(gradient) > 7 else gradient


def looks_8_back(self, x):
    return torch.cat([x[:8], x[8:] + x[:-8]])


# None of them differs from the identity on up to 7 normal records of scale 1 or 1000 in evaluation.
MIXING = {
    **{f"beyond {n}": centred_if(lambda _, x, n=n: len(x) > n) for n in (7, 8, 16, 32)},
    **{
        f"beyond {n} in training": centred_if(lambda self, x, n=n: self.training and len(x) > n)
        for n in (7, 8, 16, 32)
    },
    "beyond 7, by dropout too": lambda self, x: F.dropout(
        x - x.mean(0) if self.training and len(x) > 7 else x, 0.2, self.training
    ),
    "beyond 7, shuffled": lambda self, x: (
        x + 0.5 * x[torch.randperm(len(x))] if self.training and len(x) > 7 else x
    ),
    "small values": centred_if(lambda _, x: x.abs().max() < 0.9),
    "values of scale 10": centred_if(lambda _, x: 6 < x.abs().max() < 90),
    "values of scale 10, in training": centred_if(
        lambda self, x: self.training and 6 < x.abs().max() < 90
    ),
    "doubled by a large value": lambda self, x: 2 * x if x.abs().max() > 6 else x,
    "a record of zeros": centred_if(lambda _, x: (x == 0).all(1).any()),
    "where gradients are on": centred_if(lambda self, x: self.training and torch.is_grad_enabled()),
    "the size of the batch, in training": lambda self, x: (
        x * 10 / (9 + len(x)) if self.training else x
    ),
    "8 records back": looks_8_back,
    "a buffer": counts_large_batches,
    "the backward pass": lambda self, x: MixesGradients.apply(self.before(x)),
}


class TestModules:
    def test_the_callers_module_is_left_alone(self, two_blobs):
        module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 2)).eval()
        before = pickle.dumps({k: v.numpy() for k, v in module.state_dict().items()})
        DPSGDClassifier(module=module, **FACTS, max_iter=3).fit(*two_blobs)
        assert pickle.dumps({k: v.numpy() for k, v in module.state_dict().items()}) == before
        assert not module.training
        assert module[1].inplace
        assert all(p.requires_grad for p in module.parameters())

    def test_frozen_parameters_stay(self, two_blobs):
        module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        module[0].requires_grad_(False)
        classifier = DPSGDClassifier(module=module, **FACTS, max_iter=3).fit(*two_blobs)
        assert torch.equal(classifier.module_[0].weight, module[0].weight)
        assert not torch.equal(classifier.module_[2].weight, module[2].weight)
        assert classifier.sample_posterior().shape == (1, 10)

    @pytest.mark.parametrize(
        ("module", "message"),
        [
            (nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)), "GroupNorm"),
            (nn.Sequential(nn.Linear(3, 5)), r"\(n_records, 2\)"),
            (nn.Sequential(nn.LSTM(3, 4, proj_size=2)), "LSTM"),
            (nn.Sequential(nn.Linear(4, 2)), "rows of 3 features"),
            (nn.Sequential(nn.Tanh()), "parameters to train"),
        ],
        ids=["batch norm", "output shape", "recurrent", "input shape", "nothing to train"],
    )
    def test_a_module_that_cannot_be_trained_is_refused(self, two_blobs, module, message):
        with refused(message):
            DPSGDClassifier(module=module, **FACTS).fit(*two_blobs)

    @bundled("name", MIXING)
    def test_a_module_that_mixes_records_is_refused_before_the_charge(self, two_blobs, name):
        for make in (DPSGDClassifier, DPSGLDClassifier):
            module = Mixing(MIXING[name])
            model = make(module=module, **FACTS, max_iter=2, sampling_rate=1.0)
            refused = pytest.raises(ValueError, match=r"Expected module to|taken record by record")
            with PrivacyLedger() as ledger, release_hook.record() as tape, refused:
                model.fit(*two_blobs)
            assert ledger.entries == ()
            assert tape == []
            assert not hasattr(model, "privacy_")

    def test_a_module_is_tried_on_as_many_records_as_memory_holds(self, two_blobs):
        def raise_beyond_8(self, x):
            if len(x) > 8:
                raise torch.OutOfMemoryError
            return x

        def mix_beyond_7(self, x):
            return centred_if(lambda _, x: len(x) > 7)(self, raise_beyond_8(self, x))

        plan = FACTS | {"max_iter": 2}
        assert DPSGDClassifier(module=Mixing(raise_beyond_8), **plan).fit(*two_blobs).privacy_.valid
        with pytest.raises(ValueError, match="by itself"):
            DPSGDClassifier(module=Mixing(mix_beyond_7), **plan).fit(*two_blobs)

    @pytest.mark.parametrize("seen", [0, 1, 3])
    def test_a_module_that_mixes_where_a_token_is_seen_is_refused(self, seen):
        class Bag(nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.head = nn.Embedding(4, 5), nn.Linear(5, 2)

            def forward(self, x):
                z = self.words(x.long()).mean(1)
                return self.head(z - z.mean(0) if len(x) > 7 and (x == seen).any() else z)

        X = np.random.default_rng(0).integers(0, 4, (120, 3))
        with refused("by itself"):
            DPSGDClassifier(module=Bag(), **FACTS).fit(X, np.arange(120) % 2)

    def test_the_report_says_what_is_assumed_of_a_module(self, two_blobs):
        X, y = two_blobs
        module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        plan = {"max_iter": 2, "n_samples": 120}
        for model in (
            DPSGDClassifier(module=module, classes=[0, 1], **plan),
            DPSGLDClassifier(module=module, classes=[0, 1], **plan),
            DPSGDRegressor(module=nn.Linear(3, 1), **plan),
            DPSGLDRegressor(module=nn.Linear(3, 1), **plan),
        ):
            (assumption,) = model.fit(X, y).privacy_.assumptions
            assert "module treats each record by itself" in assumption
            assert "synthetic records only" in assumption
            assert model.privacy_.valid
            workflow = make_pipeline(NormClipper(9.0), model).fit(X, y)
            assert privacy_of(workflow).assumptions == (assumption,)
            model.set_params(module=None).fit(X, y)
            assert model.privacy_.assumptions == ()

    @bundled("device", ["cuda", "cuda:1", torch.device("cuda"), "mps"])
    def test_the_report_says_where_noise_comes_from_a_generator_of_a_device(self, device):
        for make in (DPSGDClassifier, DPSGLDClassifier):
            plan = make(**FACTS, max_iter=2, device=device).plan(n_features=3)
            (assumption,) = plan.privacy.assumptions
            assert "device's own generator, which is not cryptographic" in assumption
            for here in (None, "cpu", torch.device("cpu", 0)):
                plan = make(**FACTS, max_iter=2, device=here).plan(n_features=3)
                assert plan.privacy.assumptions == ()

    def test_so_it_does_of_a_module_that_is_there(self, two_blobs, monkeypatch):
        there = nn.Linear(3, 2, device="meta")
        plan = DPSGDClassifier(module=there, **FACTS, max_iter=2).plan(n_features=3)
        assert any("not cryptographic" in words for words in plan.privacy.assumptions)
        # A function may put a module anywhere: then the report would not say so.
        monkeypatch.setattr(DPSGDClassifier, "_on_cpu", lambda self: False)
        with refused("device"):
            DPSGDClassifier(module=lambda p, k: nn.Linear(p, k), **FACTS).fit(*two_blobs)

    def test_what_was_assumed_of_an_earlier_call_stays_assumed(self, two_blobs):
        module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        model = DPSGDClassifier(module=module, **FACTS, max_iter=2).fit(*two_blobs)
        once = model.privacy_.assumptions
        assert model.set_params(module=None).partial_fit(*two_blobs).privacy_.assumptions == once

    @pytest.mark.thorough
    @bundled(
        "optimizer",
        ["adam", "sgd", torch.optim.RMSprop, functools.partial(torch.optim.SGD, nesterov=False)],
    )
    @bundled("schedule", ["constant", "linear", "cosine", lambda done: 0.5])
    def test_optimizers_and_schedules(self, two_blobs, optimizer, schedule):
        classifier = DPSGDClassifier(
            INF, optimizer=optimizer, learning_rate=0.04, learning_rate_schedule=schedule,
            max_iter=80, **FACTS,
        )  # fmt: skip
        assert classifier.fit(*two_blobs).score(*two_blobs) > 0.6


OF_GIVEN_NOISE = DPSGDClassifier(None, noise_multiplier=20.0)


class TestPlan:
    def test_memory_follows_the_layers_and_a_module_leaves_it_open(self):
        plan = DPSGDClassifier(classes=range(10), hidden_layer_sizes=(100,)).plan(1500, 784)
        # 79 510 weights in 16 vectors; inputs and twice the outputs of layers, of 1024 records.
        assert plan.memory == 4 * (16 * 79_510 + 1024 * (784 + 100 + 2 * 110))
        unmade = mock.Mock(side_effect=AssertionError("a plan makes no module"))
        assert DPSGDClassifier(module=unmade, classes=[0, 1]).plan(2000, 784).memory is None

    def test_batches_are_of_twice_mu_over_the_root_of_the_steps(self):
        middle = 2 * epsilon_to_gdp(3.0, 1e-5) / 300**0.5 * 10_000
        expected = {1536: 1536, 1537: 512, 4708: 512, 10_000: middle, 60_000: 2048}
        for n, rows in expected.items():
            config = DPSGDClassifier(3.0, classes=[0, 1]).plan(n, 784).config
            assert config.sampling_rate * n == pytest.approx(rows)
            assert config.n_steps == (100 if n == rows else 300)
        for one in (DPSGDClassifier(accountant="gdp"), DPSGLDClassifier(), OF_GIVEN_NOISE):
            assert clone(one).set_params(classes=[0, 1]).plan(4096, 5).config.sampling_rate == 1.0

    def test_the_plan_is_what_the_fit_is_charged(self, two_blobs):
        for model in (DPSGDClassifier(1.0, **FACTS), DPSGLDClassifier(1.0, **FACTS)):
            plan = model.plan(n_features=3)
            report = model.set_params(hidden_layer_sizes=()).fit(*two_blobs).privacy_
            assert plan.event == report.event
            assert plan.epsilon == report.epsilon

    @pytest.mark.parametrize("kind", [DPSGDClassifier, DPSGLDClassifier])
    def test_our_own_network_is_not_tried_and_any_other_is(self, two_blobs, kind):
        module = nn.Sequential(nn.Linear(3, 4), nn.Softsign(), nn.Linear(4, 2))
        with mock.patch(
            "skdp.algorithms.parts.network_models.tried", side_effect=ValueError("tried")
        ):
            fitted = kind(max_iter=2, **FACTS).fit(*two_blobs)
            assert fitted.privacy_.valid
            with pytest.raises(ValueError, match="tried"):
                kind(max_iter=2, module=module, **FACTS).fit(*two_blobs)
        model = DPSGDClassifier(max_iter=2, module=module, **FACTS).fit(*two_blobs)
        with (
            mock.patch(
                "skdp.algorithms.parts.network_models.tried", side_effect=ValueError("tried")
            ),
            pytest.raises(ValueError, match="tried"),
        ):  # its network is still the other one
            model.set_params(module=None).partial_fit(*two_blobs)

    @pytest.mark.thorough
    @bundled("activation", ["tanh", "relu", "gelu", "logistic", "identity"])
    @bundled("hidden", [(), (5,), (6, 4)])
    def test_a_trial_of_our_own_network_finds_what_is_taken_for_granted(self, activation, hidden):
        plan = {"activation": activation, "hidden_layer_sizes": hidden}
        found = DPSGDClassifier(classes=range(4), **plan).try_module(3)
        assert found.method == "book-keeping"
        widths = (3, *hidden, 4)
        assert found.bytes_per_record == 4 * (sum(widths[:-1]) + 2 * sum(widths[1:]))
        assert DPSGLDClassifier(prenoise_scale=0.1, **plan).try_module(3, 4).method == "vmap"

    def test_a_module_is_tried_on_request_as_in_the_fit(self):
        mixing = DPSGDClassifier(module=Mixing(MIXING["beyond 7"]))
        with refused("by itself"):
            mixing.try_module(3, 2)
        module = nn.Sequential(nn.Linear(3, 4), nn.PReLU(), nn.Linear(4, 2))
        found = DPSGDClassifier(module=module, classes=[0, 1]).try_module(3)
        assert found == ("vmap", 27, 4 * 27)
        with pytest.raises(ValueError, match=r"n_outputs=None .*declare classes"):
            DPSGDClassifier(module=module).try_module(3)


class TestPrivacyStatement:
    @pytest.mark.parametrize("relation", ["zero_out", "add_or_remove_one", "replace_one"])
    @pytest.mark.parametrize("rate", [1.0, 0.1])
    def test_the_budget_is_met_and_the_noise_is_what_it_needs(self, two_blobs, relation, rate):
        classifier = DPSGDClassifier(
            2.0, neighboring_relation=relation, sampling_rate=rate, max_iter=20, **FACTS
        ).fit(*two_blobs)
        assert 0.995 * 2.0 < classifier.privacy_.epsilon <= 2.0
        recomputed = epsilon(
            noise_multiplier=classifier.noise_multiplier_,
            sampling_rate=rate,
            n_steps=20,
            delta=1e-5,
            neighboring_relation=relation,
        )
        assert classifier.privacy_.epsilon == pytest.approx(recomputed)

    @pytest.mark.parametrize("hidden", [(), (8,)])
    def test_each_step_has_the_declared_noise(self, hidden):
        # All rows zero and no bias to move: pure noise in the weights of the first layer.
        module = nn.Linear(500, 2, bias=False) if hidden == () else None
        plan = {"module": module, "hidden_layer_sizes": hidden or (8,), "clip_norm": 0.5}
        with release_hook.record() as tape:
            DPSGDClassifier(None, noise_multiplier=3.0, max_iter=6, **plan, **FACTS).fit(
                np.zeros((120, 500)), [0, 1] * 60
            )
        noise = np.array([r.output.numpy().ravel()[: 2 * 500] for r in tape]) / 1.5
        assert abs((noise**2).mean() - 1) < 6 * math.sqrt(2 / noise.size)
        correlations = np.corrcoef(noise)[np.triu_indices(6, 1)]
        assert np.abs(correlations).max() < 6 / math.sqrt(1000)

    @pytest.mark.thorough
    def test_partial_fits_compose_to_the_fit_they_are_parts_of(self, two_blobs):
        # 10 epochs of 5 steps with the noise of a run of 50 steps: the same event, hence ε.
        plan = {"max_iter": 50, "sampling_rate": 0.2, "hidden_layer_sizes": (8,)}
        classifier = DPSGDClassifier(1.5, **plan, n_samples=120)
        with PrivacyLedger() as ledger:
            for _ in range(10):
                classifier.partial_fit(*two_blobs, classes=[0, 1])
                assert classifier.privacy_.epsilon == pytest.approx(ledger.total(1e-5))
        assert len(ledger.entries) == 10
        assert classifier.n_iter_ == 50
        assert 0.99 * 1.5 < classifier.privacy_.epsilon <= 1.5
        classifier.partial_fit(*two_blobs)  # beyond the plan: more than epsilon, and it says so
        assert classifier.privacy_.epsilon > 1.5

    def test_a_warm_start_composes_and_goes_on_from_the_solution(self, two_blobs):
        classifier = DPSGDClassifier(1.0, warm_start=True, max_iter=5, **FACTS).fit(*two_blobs)
        once, weights = classifier.privacy_, classifier.module_
        classifier.set_params(learning_rate=1e-12).fit(*two_blobs)
        assert sum(t.count for t in terms_of(classifier.privacy_.event)) == 10
        assert once.epsilon < classifier.privacy_.epsilon <= 2 * once.epsilon
        assert torch.allclose(classifier.module_[0].weight, weights[0].weight, atol=1e-6)
        classifier.set_params(warm_start=False).fit(*two_blobs)
        assert classifier.privacy_.epsilon == pytest.approx(once.epsilon)

    def test_going_on_under_another_relation_is_refused_before_anything_is_spent(self, two_blobs):
        classifier = DPSGDClassifier(warm_start=True, max_iter=3, **FACTS).fit(*two_blobs)
        classifier.set_params(neighboring_relation="replace_one")
        with refused("neighboring_relation="):
            classifier.fit(*two_blobs)

    @pytest.mark.parametrize(
        "public",
        [(None, [0]), ([[1.0]], [0]), ([[1.0] * 3], [0, 1]),
         ([[1.0] * 3], [0.5]), ([[1.0] * 3], [[0, 1]])],
    )  # fmt: skip
    def test_bad_public_rows_are_refused_before_anything_is_spent(self, two_blobs, public):
        with refused(r"public|feature|inconsis|label|[Cc]lassif|target|columns"):
            DPSGDClassifier(**FACTS).fit(*two_blobs, X_public=public[0], y_public=public[1])

    @pytest.mark.parametrize(
        "plan",
        [{"noise_multiplier": 1e200, "epsilon": None}, {"clip_norm": 1e39}, {"clip_norm": 1e-46},
         {"learning_rate": 1e300}],
    )  # fmt: skip
    def test_numbers_out_of_all_range_are_refused_before_anything_is_spent(self, two_blobs, plan):
        with refused("Expected"):
            DPSGDClassifier(**plan, **FACTS).fit(*two_blobs)

    def test_one_epoch_never_costs_more_than_epsilon(self, two_blobs):
        classifier = DPSGDClassifier(1.0, max_iter=3, sampling_rate=0.05, n_samples=120)
        classifier.partial_fit(*two_blobs, classes=[0, 1])
        assert classifier.n_iter_ == 20
        assert classifier.privacy_.epsilon <= 1.0
        assert classifier.privacy_.inferred_public_facts == ()

    def test_what_cannot_be_composed_is_refused_before_anything_is_spent(self, two_blobs):
        plan = {"neighboring_relation": "replace_one", "max_iter": 2}
        classifier = DPSGDClassifier(
            None, noise_multiplier=0.04, sampling_rate=1.0, **plan, **FACTS
        )
        classifier.fit(*two_blobs).set_params(noise_multiplier=1.0, sampling_rate=0.5)
        with PrivacyLedger(neighboring_relation="replace_one") as ledger, pytest.raises(ValueError):  # noqa: PT011
            classifier.partial_fit(*two_blobs)
        assert ledger.entries == ()

    @pytest.mark.filterwarnings("ignore:.*random_state:skdp.PrivacyWarning")
    def test_seeded_fits_with_other_frozen_weights_share_no_noise(self, two_blobs):
        releases = []
        for body in (1.0, 2.0):
            module = nn.Sequential(nn.Linear(3, 400), nn.Tanh(), nn.Linear(400, 2))
            for parameter in module.parameters():
                nn.init.zeros_(parameter)
            nn.init.constant_(module[0].weight, body).requires_grad_(False)
            plan = {"module": module, "noise_multiplier": 1e3, "random_state": 0, "max_iter": 1}
            with release_hook.record() as tape:
                DPSGDClassifier(None, **plan, **FACTS).fit(*two_blobs)
            releases.append(tape[0].output.numpy())
        assert abs(np.corrcoef(*releases)[0, 1]) < 6 / math.sqrt(len(releases[0]))

    def test_an_optimizer_that_needs_the_loss_is_refused_before_anything_is_spent(self, two_blobs):
        with refused("optimizer="):
            DPSGDClassifier(optimizer=torch.optim.LBFGS, **FACTS).fit(*two_blobs)

    @pytest.mark.parametrize("after", [0, 3, 9])
    def test_an_interrupt_leaves_the_fit_before_and_says_what_was_spent(self, two_blobs, after):
        def interrupting(iterator):
            for steps, state in enumerate(iterator):
                if steps == after:
                    raise KeyboardInterrupt
                yield state

        classifier = DPSGDClassifier(1.0, max_iter=10, **FACTS).fit(*two_blobs)
        before = dict(vars(classifier))
        with (
            PrivacyLedger() as ledger,
            mock.patch("skdp.fitting.charge.progress", return_value=interrupting),
            pytest.raises(KeyboardInterrupt, match=r"nothing of this fit .* epsilon=\S+ stays"),
        ):
            classifier.fit(*two_blobs)
        assert vars(classifier) == before
        assert ledger.total(1e-5) == pytest.approx(classifier.privacy_.epsilon)


class TestPosterior:
    def test_draws_have_the_moments_of_the_tail(self, two_blobs):
        X, y = two_blobs
        classifier = DPSGDClassifier(2.0, hidden_layer_sizes=(4,), **FACTS).fit(X, y)
        draws = classifier.sample_posterior(4000, random_state=0)
        assert draws.shape == (4000, len(classifier.parameter_names_))
        flat = np.concatenate([p.detach().ravel() for p in classifier.module_.parameters()])
        scale = draws.std(axis=0)
        assert (np.abs(draws.mean(axis=0) - flat) <= 6 * scale / math.sqrt(4000) + 1e-6).all()
        assert scale.min() > 0

    def test_averaging_none_keeps_the_last_iterate(self, two_blobs):
        with release_hook.record() as tape:
            model = DPSGDClassifier(
                1.0, optimizer="sgd", learning_rate=0.1, averaging=0, max_iter=1, **FACTS
            )
            with mock.patch("skdp.fitting.charge.initial_seed", return_value=1):
                model.fit(*two_blobs)
                start = DPSGDClassifier(1.0, learning_rate=1e-30, max_iter=1, **FACTS)
                start.fit(*two_blobs)
        step = model._posterior.mean - start._posterior.mean
        np.testing.assert_allclose(step, 0.1 * tape[0].output.numpy() / 120, rtol=1e-3, atol=1e-5)
        assert not model._posterior.scale.any()


class TestScikitLearn:
    @pytest.mark.thorough
    def test_parallel_search_over_epsilon(self, two_blobs):
        grid = {"epsilon": [0.5, 2.0], "hidden_layer_sizes": [(), (4,)]}
        search = GridSearchCV(DPSGDClassifier(max_iter=10, **FACTS), grid, n_jobs=2, cv=2)
        search.fit(*two_blobs)
        assert search.best_estimator_.privacy_.epsilon == pytest.approx(
            search.best_params_["epsilon"], rel=1e-3
        )

    def test_a_learning_curve_on_public_rows_alone(self, two_blobs):
        X, y = two_blobs
        classifier = DPSGDClassifier(INF, max_iter=60, **FACTS)
        scores = classifier.fit(X, y, X_public=X[:50], y_public=y[:50]).public_scores_
        assert [step for step, _ in scores] == list(range(3, 61, 3))
        assert scores[-1][1] == pytest.approx(classifier.score(X[:50], y[:50]))
        assert classifier.fit(X, y).public_scores_ == []

    @pytest.mark.parametrize(
        ("kind", "further_releases"), [(DPSGDClassifier, 0), (DPVariationalLogisticRegression, 3)]
    )
    def test_callbacks_are_told_of_steps_and_see_no_data(self, two_blobs, kind, further_releases):
        pytest.importorskip("sklearn.callback")
        told = []

        class Recorder:
            def setup(self, estimator, context):
                told.append("setup")

            def teardown(self, estimator, context):
                told.append("teardown")

            def on_fit_task_begin(self, estimator, context, *, X=None, y=None):
                assert X is None
                assert y is None

            def on_fit_task_end(self, estimator, context, *, X=None, y=None):
                told.append((context.task_name, X, y))

        model = kind(max_iter=4, **FACTS).set_callbacks(Recorder()).fit(*two_blobs)
        steps = [("noisy step", None, None)] * (4 + further_releases)
        assert told == ["setup", *steps, ("fit", None, None), "teardown"]
        assert "_callback_fit_ctx" not in vars(model)
        with pytest.raises(ValueError, match="epsilon="):
            model.set_params(epsilon=-1).fit(*two_blobs)
        assert told[-1] == "teardown"

    def test_a_memory_map_of_small_integers_stays_one(self, tmp_path):
        path = tmp_path / "pixels.npy"
        rng = np.random.default_rng(0)
        np.save(path, rng.integers(0, 256, (500, 6), dtype=np.uint8))
        X, y = np.load(path, mmap_mode="r"), rng.integers(0, 2, 500)
        copied = []
        with mock.patch(
            "skdp.engine.modules.network_records.copied",
            side_effect=lambda a, index: copied.append(a) or np.array(a[index]),
        ):
            DPSGDClassifier(batch_size=50, max_iter=3, classes=[0, 1], n_samples=500).fit(X, y)
        assert np.shares_memory(copied[0], X)
        assert copied[0].dtype == np.uint8
