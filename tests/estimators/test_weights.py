"""Weights of classes and rows: declared, bounded, and part of the sensitivity."""

import numpy as np
import pytest
import torch
from engine.networks import perceptron, random_records, seeded, squared_error
from reference.per_sample_gradients import clipped, per_sample_gradients
from refusals import refused
from sklearn.metrics import balanced_accuracy_score
from torch import nn

from skdp import DPSGDClassifier, DPSGDRegressor, DPSGLDClassifier, Persons
from skdp.engine import release_hook
from skdp.engine.modules.flat_module import FlatModule
from skdp.engine.modules.network_records import NetworkRecords
from skdp.engine.modules.network_sum import ROUNDING, NetworkClippedSum
from skdp.relations import RELATIONS, sensitivity_factor
from skdp.rows.persons import PersonUnit

FACTS = {"classes": [0, 1], "n_samples": 120}
INF = float("inf")


class TestSums:
    W = np.array([0.0, 0.5, 1.0, 3.0, 2.0, 1.5, 0.1])

    @pytest.mark.parametrize("method", ["book-keeping", "vmap"])
    def test_clipped_gradients_are_multiplied(self, method):
        module, (x, y) = seeded(perceptron).double(), random_records(0, 7, (6,))
        flat = FlatModule(module)
        records = NetworkRecords(x, y, flat.flat, weights=self.W)
        total = NetworkClippedSum(flat, squared_error, 0.3, method=method, weight_bound=3.0)
        rows = clipped(
            per_sample_gradients(module, squared_error, torch.tensor(x), torch.tensor(y)), 0.3
        )
        for chosen in (slice(None), np.array([1, 3, 6])):
            found = total(flat.flat.clone(), records.take(chosen)).numpy()
            np.testing.assert_allclose(found, -self.W[chosen] @ rows[chosen], rtol=1e-9, atol=1e-12)

    def test_one_record_moves_the_sum_by_its_weight_and_no_more(self):
        flat = FlatModule(seeded(lambda: nn.Linear(2, 1)))
        for relation in RELATIONS:
            total = NetworkClippedSum(flat, squared_error, 0.25, weight_bound=3.0)
            expected = 3.0 * 0.25 * sensitivity_factor(relation) * (1 + ROUNDING)
            assert total.sensitivity(relation) == pytest.approx(expected, rel=1e-12)
        for weight, bound in [(3.0, 0.75), (1e9, 0.75), (-5.0, 0.0)]:  # whatever the caller checked
            records = NetworkRecords(
                np.array([[300.0, 400.0]]), np.array([1e4]), flat.flat, weights=np.array([weight])
            )
            found = total(flat.flat.clone(), records.take(slice(None)))
            assert float(found.norm()) == pytest.approx(bound, rel=ROUNDING)

    def test_a_person_is_clipped_after_the_weights_of_its_rows(self):
        module, (x, y) = seeded(perceptron).double(), random_records(0, 7, (6,))
        flat, starts = FlatModule(module), np.array([0, 3, 7])
        rows = NetworkClippedSum(flat, squared_error, 0.3, weight_bound=3.0)
        persons = rows.of_persons(PersonUnit(2, 3.5, 0.8))
        assert persons.record_bound == pytest.approx(0.8 * 0.3 * 3.0)
        batch = NetworkRecords(x, y, flat.flat, starts, weights=self.W).take(slice(None))
        terms = -self.W[:, None] * clipped(
            per_sample_gradients(module, squared_error, torch.tensor(x), torch.tensor(y)), 0.3
        )
        of_persons = np.stack([terms[:3].sum(0), terms[3:].sum(0)])
        found = persons(flat.flat.clone(), batch).numpy()
        np.testing.assert_allclose(found, clipped(of_persons, 0.72).sum(0), rtol=1e-9, atol=1e-12)


class TestFits:
    @pytest.mark.parametrize("kind", [DPSGDClassifier, DPSGLDClassifier])
    @pytest.mark.parametrize("hidden", [(), (4,)])
    def test_the_noise_is_for_the_largest_weight(self, two_blobs, kind, hidden):
        scales, events = {}, {}
        for weight, given in {
            1: {},
            6: {"class_weight": {0: 2.0, 1: 6.0}},
            3: {"max_sample_weight": 3.0},
            18: {"class_weight": {1: 6.0}, "max_sample_weight": 3.0},
        }.items():
            model = kind(1.0, max_iter=2, hidden_layer_sizes=hidden, **given, **FACTS)
            with_rows = {"sample_weight": np.ones(120)} if "max_sample_weight" in given else {}
            with release_hook.record() as tape:
                model.fit(*two_blobs, **with_rows)
            scales[weight], events[weight] = tape[0].call.scale, model.privacy_.epsilon
        rounding = {"rel": 1e-3}  # a sum in double has another
        for weight, scale in scales.items():
            if kind is DPSGDClassifier:  # a chain has its noise from its temperature
                assert scale == pytest.approx(weight * scales[1], **rounding)
            assert events[weight] == pytest.approx(1.0, rel=2e-3)

    def test_without_privacy_weights_are_repetitions(self, two_blobs):
        X, y = two_blobs
        plan = {"sampling_rate": 1.0, "max_iter": 20, "averaging": 0, "hidden_layer_sizes": ()}
        plan |= {"classes": [0, 1], "optimizer": "sgd", "random_state": 0}
        weights = np.where(y == 1, 2.0, 1.0)
        again = np.repeat(np.arange(120), weights.astype(int))
        n = len(again)
        whole = DPSGDClassifier(INF, n_samples=n, learning_rate=0.1, **plan)
        whole.fit(X[again], y[again])
        rows = DPSGDClassifier(INF, max_sample_weight=2.0, learning_rate=0.1 * 120 / n, **plan)
        rows.set_params(n_samples=120).fit(X, y, sample_weight=weights)
        classes = DPSGDClassifier(INF, class_weight={1: 2.0}, **plan, n_samples=120)
        classes.set_params(learning_rate=0.1 * 120 / n).fit(X, y)
        for weighted in (rows, classes):
            np.testing.assert_allclose(
                weighted._posterior.mean, whole._posterior.mean, rtol=1e-3, atol=1e-4
            )

    def test_a_class_of_no_weight_leaves_the_others_theirs(self, two_blobs):
        X, y = two_blobs
        model = DPSGDClassifier(INF, class_weight={0: 0}, max_iter=50, **FACTS).fit(X, y)
        assert (model.predict(X) == 1).all()

    @pytest.mark.thorough
    def test_a_rare_class_is_found(self):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((4000, 2))
        y = (rng.random(4000) < 0.05).astype(int)
        X[:, 0] += 2 * y
        found = {}
        for weight in (1.0, 19.0):
            model = DPSGDClassifier(
                3.0, hidden_layer_sizes=(), class_weight={1: weight}, classes=[0, 1], n_samples=4000
            )
            found[weight] = balanced_accuracy_score(y, model.fit(X, y).predict(X))
        assert found[1.0] < 0.7 < 0.75 < found[19.0]

    def test_regressions_and_persons_take_weights(self, two_blobs):
        X, _ = two_blobs
        weights, groups = np.linspace(0, 1, 120), np.arange(120) // 3
        model = DPSGDRegressor(max_iter=2, unit=Persons(40, rows_per_group=3))
        model.fit(X, X[:, 0], groups, sample_weight=weights)
        assert model.privacy_.valid
        assert model.partial_fit(X, X[:, 0], groups, sample_weight=weights).privacy_.valid

    @pytest.mark.parametrize(
        "weights",
        [
            -np.ones(120), np.full(120, 1.01), np.full(120, np.nan), np.full(120, np.inf),
            np.ones(119), np.ones((120, 2)), ["a"] * 120,
        ],
    )  # fmt: skip
    def test_weights_beyond_the_bound_are_refused_unquoted(self, two_blobs, weights):
        with refused("sample_weight") as refusal:
            DPSGDClassifier(**FACTS).fit(*two_blobs, sample_weight=weights)
        assert "1.01" not in str(refusal.value)

    def test_what_cannot_be_known_or_used_is_refused(self, two_blobs):
        X, y = two_blobs
        for given, y_given, message in [
            ({"class_weight": "balanced"}, y, "1 / \\(n_classes"),
            ({"class_weight": {2: 3.0}}, y, "keys are classes"),
            ({"class_weight": {1: -3.0}}, y, "class_weight=.* finite numbers >= 0"),
            ({"class_weight": {1: float("nan")}}, y, "class_weight=.* finite numbers >= 0"),
            ({"class_weight": {1: 1e11}}, y, "class_weight"),
            ({"class_weight": {0: 0, 1: 0}}, y, "class_weight=.* whose largest"),
            ({"class_weight": {0: 1e10, 1: 1}}, y, "class_weight=.* whose largest"),
            ({"max_sample_weight": 0.0}, y, "max_sample_weight"),
            ({"class_weight": {1: 3.0}}, np.column_stack([y, y]), "do not exclude"),
            ({"max_sample_weight": 2.0}, y, "metadata routing"),
        ]:
            with refused(message):
                DPSGDClassifier(**given, **FACTS).fit(X, y_given)
