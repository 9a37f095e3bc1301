"""Modules, records and losses as people write them: what a network may be given."""

import pickle
import subprocess
import sys
from functools import partial
from unittest import mock

import numpy as np
import pytest
import torch
from refusals import refused
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from skdp import DPSGDClassifier, DPSGDRegressor, DPSGLDClassifier
from skdp.engine.modules.flat_module import FlatModule
from skdp.engine.modules.network_records import NetworkRecords
from skdp.engine.modules.network_sum import NetworkClippedSum
from skdp.estimators._datasets import from_dataset
from skdp.models.tasks import CrossEntropy

FACTS = {"classes": [0, 1], "n_samples": 120}
INF = float("inf")


class Net(nn.Module):
    def __init__(self, hidden=10, activation=nn.Tanh):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, hidden), activation(), nn.Linear(hidden, 2))

    def forward(self, x):
        return self.body(x)


class Sized(Net):
    def __init__(self, depth, n_outputs, n_features):
        super().__init__()
        layers = [nn.Linear(n_features, n_features) for _ in range(depth)]
        self.body = nn.Sequential(*layers, nn.Linear(n_features, n_outputs))


class TestClasses:
    def test_a_class_is_made_with_its_parameters(self, two_blobs):
        model = DPSGDClassifier(INF, module=Net, module__hidden=7, learning_rate=0.02, **FACTS)
        assert model.fit(*two_blobs).score(*two_blobs) > 0.8
        assert model.module_.body[0].weight.shape == (7, 3)
        model.set_params(module__hidden=2, module__activation=nn.ReLU, max_iter=1).fit(*two_blobs)
        assert model.module_.body[0].weight.shape == (2, 3)
        assert isinstance(model.module_.body[1], nn.ReLU)

    def test_a_class_or_function_gets_the_shape_if_it_asks_for_it(self, two_blobs):
        def make(width, n_outputs, hidden):
            return nn.Sequential(nn.Linear(width, hidden), nn.Linear(hidden, n_outputs))

        for module, given in [
            (Sized, {"module__depth": 2}),
            (nn.Linear, {}),
            (nn.Linear, {"module__bias": False}),
            (lambda p, k: nn.Linear(p, k), {}),
            (lambda p, n_outputs, hidden: make(p, n_outputs, hidden), {"module__p": 3}),
        ]:
            if "module__p" in given:
                given = {"module__p": 3, "module__hidden": 4}
            model = DPSGLDClassifier(module=module, max_iter=2, **given, **FACTS).fit(*two_blobs)
            assert model.predict(two_blobs[0]).shape == (120,)

    def test_parameters_of_parts_are_parameters(self, two_blobs):
        model = DPSGDClassifier(module=Net, module__hidden=7, max_iter=2, **FACTS)
        assert model.get_params()["module__hidden"] == 7
        assert clone(model).get_params() == model.get_params()
        assert "module__hidden=7" in repr(model)
        assert "module__hidden" in model._repr_html_()
        grid = GridSearchCV(model, {"module__hidden": [3, 4], "epsilon": [1.0, 2.0]}, cv=2)
        best = grid.fit(*two_blobs).best_estimator_
        assert best.module_.body[0].out_features == grid.best_params_["module__hidden"]
        with pytest.raises(TypeError, match="body__hidden"):
            DPSGDClassifier(body__hidden=7)
        with pytest.raises(ValueError, match="body"):
            model.set_params(body__hidden=7)

    @pytest.mark.parametrize(
        "given",
        [
            {"module": Net, "module__hiden": 3},
            {"module": Sized},
            {"module": nn.Linear(3, 2), "module__hidden": 3},
            {"module__hidden": 3},
            {"module": 3},
        ],
    )
    def test_what_makes_no_module_is_refused_before_the_charge(self, two_blobs, given):
        with refused("Expected module="):
            DPSGDClassifier(**given, **FACTS).fit(*two_blobs)


def images(n=300):
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2
    return (rng.standard_normal((n, 1, 6, 6)) + y[:, None, None, None]).astype(np.float32), y


class Words(nn.Module):
    def __init__(self, n_outputs, n_words=6, mixes=False):
        super().__init__()
        self.words, self.head, self.mixes = nn.Embedding(n_words, 4), nn.Linear(4, n_outputs), mixes

    def forward(self, x):
        z = self.words(x).mean(1)
        return self.head(z - z.mean(0) if self.mixes and len(x) > 7 else z)


class TestRecords:
    def test_images_as_they_are(self):
        X, y = images()
        body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(64, 2))
        model = DPSGDClassifier(8.0, module=body, classes=[0, 1], n_samples=300).fit(X, y)
        assert model.score(X, y) > 0.8
        assert model.sample_predictive(X[:5], 2).shape == (2, 5, 2)
        bytes_ = np.uint8(100 + 20 * X)  # pixels are numbers for a convolution, whatever their type
        assert model.fit(bytes_, y).predict(bytes_).shape == (300,)
        targets = np.column_stack([y, -y])
        regressor = DPSGDRegressor(module=body, max_iter=2, n_samples=300).fit(X, targets)
        assert regressor.predict(X).shape == (300, 2)
        assert model.try_module((1, 6, 6)).method == "book-keeping"

    def test_rows_of_another_shape_are_refused(self):
        X, y = images()
        body = nn.Sequential(nn.Flatten(), nn.Linear(36, 2))
        model = DPSGDClassifier(module=body, max_iter=2, classes=[0, 1], n_samples=300).fit(X, y)
        with pytest.raises(ValueError, match=r"records of shape \(1, 6, 6\)"):
            model.predict(X[:, :, :5])
        with pytest.raises(ValueError, match="dim 4"):
            DPSGDClassifier(classes=[0, 1]).fit(X, y)
        with pytest.raises(ValueError, match=r"records of shape \(1, 6, 6\)"):
            DPSGDClassifier(module=nn.Linear(3, 2), classes=[0, 1]).fit(X, y)

    @pytest.mark.parametrize(
        ("shape", "first", "message"),
        [
            ((6, 6), nn.Conv2d(1, 4, 3), r"shape \(1, height, width\): .* channels, X\[:, None\]"),
            ((36,), nn.Conv2d(1, 4, 3), r"X\.reshape\(-1, 1, 6, 6\)"),
            ((6, 6, 3), nn.Conv2d(3, 4, 3), r"np\.moveaxis\(X, -1, 1\)"),
            ((6, 6), nn.Conv2d(3, 4, 3), r"shape \(3, height, width\), channels first"),
            ((6,), nn.Conv1d(1, 4, 3), r"shape \(1, length\): .*X\[:, None\]"),
            ((6, 6, 6), nn.Conv3d(1, 4, 3), r"shape \(1, depth, height, width\)"),
            ((5,), nn.Linear(4, 4), r"Linear '0' takes 4 features: give X a last axis of 4"),
            ((2, 6), nn.Sequential(nn.Flatten(), nn.Linear(9, 4)), "takes 9 features .* given 12"),
        ],
    )
    def test_the_shape_that_a_layer_takes_is_named(self, shape, first, message):
        body = nn.Sequential(first, nn.Flatten(), nn.Linear(4, 2))
        model = DPSGDClassifier(module=body, classes=[0, 1], n_samples=20)
        X = np.zeros((20, *shape), np.float32)
        told = rf"^Expected module to take .*, as X has, but its .*{message}"
        with refused(told) as refusal:
            model.fit(X, np.arange(20) % 2)
        assert "but got" not in str(refusal.value)
        with pytest.raises(ValueError, match=message):
            model.try_module(shape)

    @pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
    def test_numbers_of_words_reach_an_embedding_as_they_are(self, kind):
        X = np.random.default_rng(0).integers(0, 6, (300, 5)).astype(kind)
        y = (X.mean(1) > 2.5).astype(int)
        plan = {"classes": [0, 1], "n_samples": 300, "learning_rate": 0.05}
        model = DPSGDClassifier(8.0, module=Words, **plan).fit(X, y)
        assert model.score(X, y) > 0.8
        with pytest.raises(ValueError, match="give X as integers"):
            model.fit(X.astype(float), y)

    def test_an_embedding_of_integers_that_mixes_is_refused(self):
        X = np.random.default_rng(0).integers(0, 6, (120, 5))
        with refused("by itself"):
            DPSGDClassifier(module=Words, module__mixes=True, **FACTS).fit(X, np.arange(120) % 2)

    def test_a_large_number_of_a_word_stays_exact(self):
        seen = []

        class Spy(Words):
            def forward(self, x):
                seen.append(x.max().item())
                return super().forward(x % 6)

        X = np.full((120, 5), 2**24 + 1)
        DPSGDClassifier(module=Spy, max_iter=1, **FACTS).fit(X, np.arange(120) % 2)
        assert max(seen) == 2**24 + 1

    def test_sequences_of_vectors(self):
        X = np.random.default_rng(0).standard_normal((120, 7, 3))

        class Attends(nn.Module):
            def __init__(self):
                super().__init__()
                self.attention = nn.MultiheadAttention(3, 1, batch_first=True)
                self.head = nn.Linear(3, 2)

            def forward(self, x):
                return self.head(self.attention(x, x, x)[0].mean(1))

        model = DPSGDClassifier(module=Attends, max_iter=2, **FACTS).fit(X, np.arange(120) % 2)
        assert model.predict_proba(X).shape == (120, 2)
        assert torch.is_tensor(model.module_.head.weight)


class Reader(nn.Module):
    def __init__(self, n_features, n_outputs, kind=nn.LSTM):
        super().__init__()
        self.rnn, self.head = kind(2, 8, batch_first=True), nn.Linear(8, n_outputs)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])


class TestRecurrent:
    @pytest.mark.quick(1)
    @pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM, nn.RNN])
    def test_they_learn_and_come_back_as_layers_of_torch(self, kind):
        X = np.random.default_rng(0).standard_normal((400, 6, 2))
        y = (X[:, :, 0].sum(1) > 0).astype(int)
        plan = {"module": Reader, "module__kind": kind, "n_samples": 400, "learning_rate": 0.05}
        model = DPSGDClassifier(8.0, classes=[0, 1], **plan).fit(X, y)
        assert model.score(X, y) > 0.8
        assert model.try_module((6, 2)).method == "book-keeping"
        again = Reader(None, 2, kind)
        again.load_state_dict(model.module_.state_dict())
        with torch.no_grad():
            outputs = again(torch.from_numpy(X).float()).softmax(1).numpy()
        np.testing.assert_allclose(model.predict_proba(X), outputs, rtol=1e-4, atol=1e-6)


class TestFrozenBackbones:
    def test_a_body_with_batch_norm_in_evaluation_trains_its_head(self):
        X, y = images()
        body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
        body(torch.from_numpy(X))  # its statistics
        module = nn.Sequential(body, nn.Linear(64, 2))
        plan = {"module": module, "classes": [0, 1], "n_samples": 300}
        for freeze in (lambda: None, lambda: body.requires_grad_(False)):
            freeze()
            with refused(r"and eval\(\)"):
                DPSGDClassifier(8.0, **plan).fit(X, y)
        body.eval()
        model = DPSGDClassifier(8.0, **plan).fit(X, y)
        assert model.score(X, y) > 0.8
        assert torch.equal(model.module_[0][1].running_mean, body[1].running_mean)
        assert torch.equal(model.module_[0][0].weight, body[0].weight)
        assert model.partial_fit(X, y).n_iter_ > 100


def mean_loss(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets)


def against_others(outputs, targets):
    losses = nn.functional.cross_entropy(outputs, targets, reduction="none")
    return losses - losses.mean() / 2


def margin(outputs, targets, width=1.0):
    signs = 2 * nn.functional.one_hot(targets, 2) - 1
    return (width - signs * outputs).clamp(min=0)


class TestLosses:
    @pytest.mark.quick(5)
    @pytest.mark.parametrize(
        ("loss", "given"),
        [
            ("cross_entropy", {"loss__label_smoothing": 0.1}),
            ("focal", {}),
            ("ranked_probability", {}),
            (nn.CrossEntropyLoss, {"loss__label_smoothing": 0.1}),
            (nn.MultiMarginLoss(reduction="none"), {}),
            (margin, {"loss__width": 2.0}),
        ],
    )
    @pytest.mark.parametrize("hidden", [(), (8,)])
    def test_losses_of_classes(self, two_blobs, loss, given, hidden):
        plan = {"hidden_layer_sizes": hidden, "learning_rate": 0.02, **FACTS}
        model = DPSGDClassifier(INF, loss=loss, **given, **plan).fit(*two_blobs)
        assert model.score(*two_blobs) > 0.85
        np.testing.assert_allclose(model.predict_proba(two_blobs[0]).sum(1), 1.0)
        assumed = model.set_params(max_iter=2, epsilon=1.0).fit(*two_blobs).privacy_.assumptions
        assert bool(assumed) == (not isinstance(loss, str))
        assert all("loss of a record" in words for words in assumed)

    def test_a_loss_of_torch_is_the_named_one(self, two_blobs):
        plan = {"max_iter": 5, "averaging": 0, "hidden_layer_sizes": (4,), **FACTS}
        weights = []
        for loss in ("cross_entropy", nn.CrossEntropyLoss, nn.CrossEntropyLoss(reduction="none")):
            model = DPSGDClassifier(INF, loss=loss, sampling_rate=1.0, **plan)
            if loss != nn.CrossEntropyLoss(reduction="none") and not isinstance(loss, nn.Module):
                model.set_params(loss__label_smoothing=0.0)
            with mock.patch("skdp.fitting.charge.initial_seed", return_value=1):
                weights.append(model.fit(*two_blobs)._posterior.mean)
        np.testing.assert_allclose(weights[0], weights[1], rtol=1e-5)
        np.testing.assert_allclose(weights[0], weights[2], rtol=1e-5)

    @pytest.mark.parametrize(
        "loss",
        [
            nn.CrossEntropyLoss(),
            nn.CrossEntropyLoss(reduction="sum"),
            nn.functional.cross_entropy,
            partial(nn.functional.cross_entropy, reduction="mean"),
            nn.MultiMarginLoss(),
        ],
    )
    def test_a_loss_that_reduces_is_taken_of_each_record(self, two_blobs, loss):
        of_each = nn.CrossEntropyLoss(reduction="none")
        if isinstance(loss, nn.MultiMarginLoss):
            of_each = nn.MultiMarginLoss(reduction="none")
        plan = {"max_iter": 3, "random_state": 0, "sampling_rate": 1.0, "epsilon": INF, **FACTS}
        body = nn.Linear(3, 2)
        weights = [
            DPSGDClassifier(loss=one, module=body, **plan).fit(*two_blobs)._posterior.mean
            for one in (loss, of_each)
        ]
        np.testing.assert_array_equal(*weights)
        assert getattr(loss, "reduction", "mean") in ("mean", "sum")  # the caller's own is left

    def test_a_mean_over_targets_is_their_sum(self):
        X = np.random.default_rng(0).uniform(-1, 1, (50, 2))
        found = []
        for loss in (nn.MSELoss(), nn.MSELoss(reduction="sum"), nn.MSELoss):
            model = DPSGDRegressor(
                INF, loss=loss, max_iter=3, random_state=0, module=nn.Linear(2, 2, bias=False)
            )
            model.module.weight.data.fill_(0.1)
            found.append(model.fit(X, X)._posterior.mean)
        np.testing.assert_array_equal(found[0], found[1])
        np.testing.assert_array_equal(found[0], found[2])

    @pytest.mark.parametrize(
        ("loss", "given", "message"),
        [
            ("hinge", {}, "'focal'"),
            (3, {}, "loss=3"),
            ("focal", {"loss__gamma": -1.0}, "loss__gamma=-1"),
            ("focal", {"loss__alpha": 1.0}, "alpha"),
            ("cross_entropy", {"loss__label_smoothing": 1.0}, "loss__label_smoothing=1"),
            (mean_loss, {}, r"got \(\) for 33; use reduction='none'"),
            (against_others, {}, "Expected loss to treat each record by itself"),
            (nn.CrossEntropyLoss, {"loss__reduction": "mean"}, "reduction='none'"),
            (nn.CrossEntropyLoss(reduction="none"), {"loss__weight": None}, "loss__ parameters"),
            (lambda outputs, targets: (outputs - targets).square().sum(1), {}, "failed on synth"),
        ],
    )
    def test_what_is_no_loss_of_a_record_is_refused_before_the_charge(
        self, two_blobs, loss, given, message
    ):
        for module in (None, nn.Linear(3, 2)):
            model = DPSGDClassifier(loss=loss, module=module, **given, **FACTS)
            with refused(message):
                model.fit(*two_blobs)

    @pytest.mark.quick(4)
    @pytest.mark.parametrize("loss", ["squared_error", "absolute_error", "huber", nn.L1Loss])
    @pytest.mark.parametrize("hidden", [(), (8,)])
    def test_losses_of_targets(self, loss, hidden):
        X = np.random.default_rng(0).uniform(-1, 1, (400, 2))
        Y = 10 + np.column_stack([X[:, 0], X[:, 0] - X[:, 1]])
        model = DPSGDRegressor(INF, loss=loss, target_bounds=(8, 12), n_samples=400, max_iter=400)
        model.set_params(hidden_layer_sizes=hidden, learning_rate=0.02)
        assert model.fit(X, Y).score(X, Y) > 0.95
        assert model.fit(X, Y[:, 0]).predict(X).shape == (400,)

    def test_an_outlier_pulls_the_median_less(self):
        X, y = np.zeros((100, 1)), np.r_[np.zeros(90), np.full(10, 100.0)]
        found = {}
        for loss in ("squared_error", "absolute_error"):
            plan = {"hidden_layer_sizes": (), "max_iter": 800, "learning_rate": 0.05}
            model = DPSGDRegressor(INF, loss=loss, target_bounds=(-100, 100), **plan).fit(X, y)
            found[loss] = model.predict(X[:1]).item()
        assert abs(found["absolute_error"]) < 3 < 7 < found["squared_error"]


class TestLabels:
    """Labels that do not exclude each other: y is a matrix of 0 and 1."""

    X = np.random.default_rng(0).uniform(-1, 1, (500, 3))
    Y = (np.stack([X[:, 0], X[:, 1], X.sum(1)], 1) > 0).astype(int)

    @pytest.mark.parametrize("loss", ["cross_entropy", "focal", nn.BCEWithLogitsLoss])
    @pytest.mark.parametrize("hidden", [(), (8,)])
    @pytest.mark.parametrize("kind", [DPSGDClassifier, DPSGLDClassifier])
    def test_each_label_is_learned(self, loss, hidden, kind):
        model = kind(8.0, loss=loss, hidden_layer_sizes=hidden, n_samples=500)
        model.fit(self.X, self.Y)
        probability = model.predict_proba(self.X)
        assert probability.shape == (500, 3)
        assert (model.predict(self.X) == (probability > 0.5)).all()
        assert (model.predict(self.X) == self.Y).mean() > 0.85
        assert model.score(self.X, self.Y) == pytest.approx(
            (model.predict(self.X) == self.Y).all(1).mean()
        )
        assert model.sample_predictive(self.X[:4], 2).shape == (2, 4, 3)
        np.testing.assert_array_equal(model.classes_, range(3))
        assert model.privacy_.inferred_public_facts == ()

    def test_declared_labels_plan_and_partial_fit(self):
        model = DPSGDClassifier(classes=["a", "b", "c"], n_samples=500, max_iter=5)
        planned = model.plan(n_features=3).epsilon
        assert model.fit(self.X, self.Y).privacy_.epsilon == planned
        assert list(model.classes_) == ["a", "b", "c"]
        model.partial_fit(self.X, self.Y)
        for wrong in (self.Y[:, :2], self.Y[:, 0]):
            with refused("columns"):
                model.partial_fit(self.X, wrong)

    @pytest.mark.parametrize("bad", [2, -1, 0.5, np.nan])
    def test_what_is_no_label_is_refused_unquoted(self, bad):
        Y = self.Y.astype(float)
        Y[7, 1] = bad
        with refused(r"0 and 1|NaN") as refusal:
            DPSGDClassifier(n_samples=500).fit(self.X, Y)
        assert str(bad) not in str(refusal.value).replace("0 and 1", "") or np.isnan(bad)

    def test_ranked_probability_is_a_proper_score_of_order(self):
        from skdp.models.tasks import RankedProbability

        targets = torch.multinomial(torch.tensor([0.2, 0.5, 0.3]), 4000, replacement=True)
        shares = targets.bincount() / 4000
        z = shares.log().requires_grad_()
        RankedProbability()(z.expand(4000, 3), targets).mean().backward()
        assert z.grad.abs().max() < 1e-6  # least at the true shares
        far, near = torch.tensor([[5.0, 0, 0]]), torch.tensor([[0.0, 5.0, 0]])
        last = torch.tensor([2])
        assert RankedProbability()(far, last) > RankedProbability()(near, last)


class TestSchedulers:
    @pytest.mark.parametrize(
        ("scheduler", "given"),
        [
            (lr_scheduler.StepLR, {"step_size": 3, "gamma": 0.5}),
            (lr_scheduler.CosineAnnealingLR, {"T_max": 7}),
            (lr_scheduler.OneCycleLR, {"max_lr": 0.3, "total_steps": 10}),
            (lr_scheduler.ExponentialLR, {"gamma": 0.9}),
        ],
    )
    def test_a_scheduler_of_torch_counts_noisy_steps(self, two_blobs, scheduler, given):
        optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1, momentum=0.9)
        theirs, rates = scheduler(optimizer, **given), []
        for _ in range(10):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            theirs.step() if len(rates) < 10 else None
        parts = {f"learning_rate_schedule__{name}": value for name, value in given.items()}
        plan = {"optimizer": "sgd", "learning_rate": 0.1, "max_iter": 10, **FACTS}
        model = DPSGDClassifier(learning_rate_schedule=scheduler, **parts, **plan)
        seen = []
        with mock.patch(
            "skdp.engine.updates.MomentumSGD.step",
            lambda self, state, theta, gradient, variance, rate: (
                seen.append(rate) or (theta, state)
            ),
        ):
            model.fit(*two_blobs)
        np.testing.assert_allclose(seen[3:], rates, rtol=1e-9)  # 3 are a rehearsal

    @pytest.mark.parametrize(
        "given",
        [
            {"learning_rate_schedule": lr_scheduler.StepLR},
            {"learning_rate_schedule": lr_scheduler.ReduceLROnPlateau},
            {"learning_rate_schedule": "cosine", "learning_rate_schedule__T_max": 3},
            {"optimizer": "adam", "optimizer__betas": (0.5, 0.5)},
            {"optimizer": torch.optim.SGD, "optimizer__mass": 3},
        ],
    )
    def test_parameters_that_a_part_does_not_take_are_refused(self, two_blobs, given):
        name = next(iter(given))
        with refused(f"Expected {name}="):
            DPSGDClassifier(**given, **FACTS).fit(*two_blobs)

    def test_parameters_of_an_optimizer(self, two_blobs):
        plan = {"max_iter": 20, "learning_rate": 0.1, "averaging": 0, **FACTS}
        norms = []
        for decay in (0.0, 5.0):
            model = DPSGDClassifier(INF, optimizer=torch.optim.SGD, **plan)
            model.set_params(optimizer__weight_decay=decay).fit(*two_blobs)
            norms.append(np.linalg.norm(model.sample_posterior()))
        assert norms[1] < 0.5 * norms[0]


class TestGoingOn:
    @pytest.mark.parametrize("hidden", [(), (4,)])
    @pytest.mark.parametrize("optimizer", ["adam", "sgd", torch.optim.Adam])
    def test_epochs_are_one_run_of_the_optimizer(self, two_blobs, optimizer, hidden):
        plan = {"optimizer": optimizer, "hidden_layer_sizes": hidden, "averaging": 0, **FACTS}
        plan |= {"sampling_rate": 1.0, "learning_rate": 0.05}
        with mock.patch("skdp.fitting.charge.initial_seed", return_value=1):
            whole = DPSGDClassifier(INF, max_iter=4, **plan).fit(*two_blobs)
            parts = DPSGDClassifier(INF, max_iter=1, **plan)
            for _ in range(4):
                parts = pickle.loads(pickle.dumps(parts)).partial_fit(*two_blobs)
            warm = DPSGDClassifier(INF, max_iter=1, warm_start=True, **plan)
            for _ in range(4):
                warm.fit(*two_blobs)
        expected = whole.sample_posterior()
        np.testing.assert_allclose(parts.sample_posterior(), expected, rtol=1e-3, atol=1e-4)
        assert np.abs(warm.sample_posterior() - expected).max() > 0.01  # its moments start again

    def test_moments_follow_the_noise_that_is_known(self, two_blobs):
        plan = {"epsilon": None, "sampling_rate": 1.0, **FACTS, "hidden_layer_sizes": (4,)}
        model = DPSGDClassifier(noise_multiplier=2.0, **plan).partial_fit(*two_blobs)
        state = model._kept.state
        found = []
        with mock.patch(
            "skdp.engine.adam.NoiseCorrectedAdam.step",
            lambda self, state, theta, *_: found.append(state) or (theta, state),
        ):
            model.set_params(noise_multiplier=4.0).partial_fit(*two_blobs)
        more = (1 - 0.99) * (16 - 4) / 120**2
        np.testing.assert_allclose(found[0].second, state[1] + more, rtol=1e-5)

    def test_a_failed_epoch_leaves_the_moments(self, two_blobs):
        plan = {"optimizer": torch.optim.Adam, "sampling_rate": 0.5, "max_iter": 4, **FACTS}
        model = DPSGDClassifier(**plan).partial_fit(*two_blobs)
        before = pickle.dumps(model._kept)
        with (
            mock.patch("skdp.engine.loop.gaussian", side_effect=MemoryError),
            pytest.raises(MemoryError),
        ):
            model.partial_fit(*two_blobs)
        assert pickle.dumps(model._kept) == before

    def test_another_optimizer_starts_anew(self, two_blobs):
        model = DPSGDClassifier(max_iter=2, **FACTS).partial_fit(*two_blobs)
        for optimizer in ("sgd", torch.optim.Adam, "adam"):
            assert model.set_params(optimizer=optimizer).partial_fit(*two_blobs).privacy_.valid


class TestFittedNetworks:
    def test_a_linear_model_has_coefficients(self, two_blobs):
        X, y = two_blobs
        model = DPSGDClassifier(8.0, hidden_layer_sizes=(), max_iter=5, **FACTS).fit(X, y)
        assert model.coef_.shape == (1, 3)
        logits = X @ model.coef_.T + model.intercept_
        np.testing.assert_allclose(
            model.predict_proba(X)[:, 1], 1 / (1 + np.exp(-logits[:, 0])), rtol=1e-5
        )
        three = DPSGDClassifier(8.0, hidden_layer_sizes=(), max_iter=5, classes=range(3)).fit(X, y)
        logits = X @ three.coef_.T + three.intercept_
        np.testing.assert_array_equal(three.predict(X), logits.argmax(1))
        for targets in (y, np.column_stack([y, -y])):
            regressor = DPSGDRegressor(hidden_layer_sizes=(), target_bounds=(-3, 7), max_iter=5)
            regressor.fit(X, targets)
            np.testing.assert_allclose(
                regressor.predict(X),
                X @ regressor.coef_.T + regressor.intercept_,
                rtol=1e-4,
                atol=1e-5,
            )

    def test_others_have_none(self, two_blobs):
        assert not hasattr(DPSGDClassifier(hidden_layer_sizes=()), "coef_")
        for plan in ({}, {"module": nn.Linear(3, 2)}):
            model = DPSGDClassifier(max_iter=1, **plan, **FACTS).fit(*two_blobs)
            assert not hasattr(model, "coef_")
            assert not hasattr(model, "intercept_")

    @pytest.mark.thorough
    def test_weights_load_without_skdp(self, two_blobs, tmp_path):
        model = DPSGDClassifier(hidden_layer_sizes=(4,), max_iter=2, **FACTS).fit(*two_blobs)
        path = tmp_path / "weights.pt"
        torch.save(model.module_.state_dict(), path)
        probe = (
            "import sys, torch; from torch import nn; sys.modules['skdp'] = None\n"
            "net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))\n"
            f"net.load_state_dict(torch.load({str(path)!r}, weights_only=True))\n"
            "print(net(torch.ones(1, 3)).softmax(1)[0, 1].item())"
        )
        said = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True)
        expected = model.predict_proba(np.ones((1, 3)))[0, 1]
        assert float(said.stdout) == pytest.approx(expected, rel=1e-5), said.stderr


class Pictures(Dataset):
    """A picture is made when it is asked for."""

    def __init__(self, n=300, targets=True, bad=None, odd=None):
        self.X, self.y = images(n)
        self.targets, self.bad, self.odd, self.read = targets, bad, odd, []

    def __len__(self):
        return len(self.X)

    def __getitem__(self, i):
        self.read.append(i)
        x = torch.from_numpy(self.X[i])
        if i == self.bad:
            x = x + float("nan")
        if i == self.odd:
            x = x[:, :3]
        return (x, int(self.y[i])) if self.targets else x


BODY = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(64, 2))
OF_PICTURES = {"module": BODY, "classes": [0, 1], "n_samples": 300}


class Items(Dataset):
    """What a function says of a number."""

    def __init__(self, of):
        self.of = of

    def __len__(self):
        return 9

    def __getitem__(self, i):
        return self.of(i)


class TestDatasets:
    def test_a_dataset_is_read_by_index_a_batch_at_a_time(self):
        pictures = Pictures()
        model = DPSGDClassifier(8.0, batch_size=20, max_iter=3, **OF_PICTURES).fit(pictures)
        assert pictures.read[:301] == [0, *range(300)]  # its shape, then a look at all
        assert len(pictures.read) < 310 + 3 * 60
        assert any("item of the dataset" in words for words in model.privacy_.assumptions)
        np.testing.assert_array_equal(model.predict(pictures), model.predict(pictures.X))
        assert model.score(pictures) == model.score(pictures.X, pictures.y)
        line = DPSGDRegressor(n_samples=40, max_iter=1)
        data = TensorDataset(torch.linspace(0, 1, 40)[:, None], torch.linspace(0, 1, 40))
        assert line.fit(data).score(data) == line.score(*(x.numpy() for x in data.tensors))
        model.fit(pictures.X, pictures.y)
        assert not any("item" in words for words in model.privacy_.assumptions)

    @pytest.mark.filterwarnings("ignore:.*random_state:skdp.PrivacyWarning")
    def test_all_ways_to_give_the_same_rows_give_the_same_fit(self):
        X, y = images()
        fits = [
            DPSGDClassifier(8.0, max_iter=3, random_state=0, batch_size=50, **OF_PICTURES).fit(
                *given
            )
            for given in [
                (X, y),
                (torch.from_numpy(X), torch.from_numpy(y)),
                (TensorDataset(torch.from_numpy(X), torch.from_numpy(y)),),
                (TensorDataset(torch.from_numpy(X)), y),
                (Pictures(),),
                (Pictures(targets=False), y),
            ]
        ]
        for fit in fits[1:]:
            np.testing.assert_array_equal(fit._posterior.mean, fits[0]._posterior.mean)

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (lambda: DataLoader(Pictures()), r"got a DataLoader.*Poisson.*loader\.dataset"),
            (
                lambda: type("Stream", (IterableDataset,), {"__iter__": None})(),
                "got an IterableDataset.*memmap",
            ),
            (lambda: Pictures(bad=7), "NaN or infinity"),
            (lambda: Pictures(odd=7), "one shape and one type"),
            (lambda: Pictures(targets=False), r"items \(x, y\)"),
            (lambda: Items(lambda i: ("secret", 1)), "whose x is an array of numbers"),
            (lambda: Items(lambda i: (0.5, 1)), "whose x is an array of numbers"),
            (lambda: Items(lambda i: (np.ones(2), [1] * (i + 1))), "y have one shape"),
            (lambda: Items(lambda i: {}["secret"]), r"cannot be read \(KeyError\)\.$"),
            (lambda: type("Endless", (Dataset,), {})(), "says how many records"),
            (lambda: Items(lambda i: {"x": np.ones(2), "y": 1}), "got dicts.*items are tuples"),
            (lambda: TensorDataset(*[torch.ones(3, 2)] * 3), "not of more.*are sample_weight"),
        ],
    )
    def test_what_is_not_read_by_index_is_refused_before_the_charge(self, given, message):
        with refused(message):
            DPSGDClassifier(**OF_PICTURES).fit(given())

    def test_targets_that_are_given_twice_are_refused(self):
        X, y = images()
        for twice in (Pictures(), TensorDataset(torch.from_numpy(X), torch.from_numpy(y))):
            with refused("or no y"):
                DPSGDClassifier(**OF_PICTURES).fit(twice, y)

    def test_an_item_that_fails_later_contributes_nothing(self):
        class Fails(Pictures):
            def __getitem__(self, i):
                if i == 7 and len(self.read) > 301:
                    raise OSError
                return super().__getitem__(i)

        X, y = images()
        flat = FlatModule(BODY)
        found = [
            NetworkClippedSum(flat, CrossEntropy(), 1.0)(
                flat.flat.clone(), records.take(slice(None))
            )
            for records in (
                NetworkRecords(rows, targets, flat.flat)
                for rows, targets in [
                    (from_dataset(Fails(), None)[0], y),
                    (np.delete(X, 7, 0), np.delete(y, 7)),
                ]
            )
        ]
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)

    def test_targets_and_labels_of_a_dataset(self):
        pictures = Pictures()
        regressor = DPSGDRegressor(module=BODY, max_iter=2, n_samples=300)
        pictures.y = np.column_stack([pictures.y, -pictures.y]).astype(np.float32)
        pictures.__class__ = type(
            "Both", (Pictures,), {"__getitem__": lambda s, i: (s.X[i], s.y[i])}
        )
        assert regressor.fit(pictures).predict(pictures).shape == (300, 2)
        pictures.y = np.abs(pictures.y)
        model = DPSGDClassifier(module=BODY, max_iter=2, n_samples=300).fit(pictures)
        assert model.predict(pictures).shape == (300, 2)
