"""Networks of the examples: their per-record gradients are those of a loop in double precision."""

import ast
import functools
from pathlib import Path

import numpy as np
import pytest
import torch
from engine.networks import METHODS, clipped_sum_of, random_records, seeded, trial
from reference.per_sample_gradients import clipped, per_sample_gradients
from torch import nn

from skdp.engine.modules.flat_module import FlatModule
from skdp.models.perceptron import perceptron
from skdp.models.tasks import BinaryCrossEntropy, CrossEntropy

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def classes_of(example):
    """Run the classes of an example alone."""
    tree = ast.parse((EXAMPLES / f"{example}.py").read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    names = {"nn": nn, "torch": torch, "F": nn.functional}
    exec(compile(tree, example, "exec"), names)
    return names


def frozen(body):
    """Freeze a body as its users do, with statistics that are not those of a new one."""
    body.eval().requires_grad_(False)
    for part in body.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            nn.init.uniform_(part.running_mean, -0.5, 0.5)
            nn.init.uniform_(part.running_var, 0.5, 2.0)
            part.train = lambda mode=True: None  # nor does the loop's train() thaw it
    return body


def on_frozen_body():
    return nn.Sequential(frozen(classes_of("plot_frozen_body")["Body"]()), nn.Linear(128, 5))


def whole_body():
    norm = functools.partial(nn.GroupNorm, 4)
    return nn.Sequential(classes_of("plot_frozen_body")["Body"](norm=norm), nn.Linear(128, 5))


class OnPhotographs(nn.Module):
    """A linear head on the EfficientNet of the examples."""

    def __init__(self):
        super().__init__()
        network = pytest.importorskip("efficientnet_lite_pytorch").EfficientNet
        self.body = network.from_name("efficientnet-lite1")  # the weights do not matter here
        # It would drop whole blocks at random in training, frozen or not.
        self.body._global_params = self.body._global_params._replace(drop_connect_rate=None)
        self.head = nn.Linear(1280, 2)
        frozen(self.body)

    def forward(self, x):
        return self.head(self.body.extract_features(x).mean((2, 3)))


def tremor():
    module = classes_of("plot_sequences")["Tremor"](2)
    nn.init.normal_(module.head.weight)  # from zeros no gradient reaches the LSTM
    return module


CASES = {
    "frozen body": (on_frozen_body, (1, 8, 8), 5, 645),
    "whole body": (whole_body, (1, 8, 8), 5, 38645),
    "EfficientNet": (OnPhotographs, (3, 32, 32), 2, 2562),
    "LSTM": (tremor, (40, 2), 2, 1314),
    "several labels": (lambda: perceptron(10, 5, (30,), "tanh"), (10,), 5, 485),
}


@pytest.mark.quick(9)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_a_loop(name, method):
    make, shape, n_outputs, n_trained = CASES[name]
    module = seeded(make)
    assert len(FlatModule(module).flat) == n_trained
    x = random_records(0, 6, shape)[0]
    if name == "LSTM":  # sequences end at their own time
        x[:, :, 1] = np.arange(40) < np.array([20, 40, 33, 1, 0, 27])[:, None]
    loss, y = CrossEntropy(), np.arange(6) % n_outputs
    if name == "several labels":
        loss, y = BinaryCrossEntropy(), (random_records(1, 6, (n_outputs,))[0] > 0).astype(float)
    assert trial(module, shape, n_outputs) == "book-keeping"
    gradients = per_sample_gradients(module, loss, torch.tensor(x), torch.tensor(y))
    norms = np.linalg.norm(gradients, axis=1)
    bound = np.median(norms)  # so that some are clipped and some are not
    found = clipped_sum_of(module.double(), x, y, bound, loss, method=method).numpy()
    expected = -clipped(gradients, bound).sum(0)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11 * norms.max())
