"""Networks: the perceptron that estimators build, and per-record losses."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional as F

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "logistic": nn.Sigmoid,
    "identity": nn.Identity,
}


def perceptron(
    n_features: int, n_outputs: int, hidden_layer_sizes: Sequence[int], activation: str
) -> nn.Module:
    """Return a multilayer perceptron; a single linear layer without hidden ones."""
    sizes = [n_features, *hidden_layer_sizes]
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(sizes):
        layers += [nn.Linear(n_in, n_out), ACTIVATIONS[activation]()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], n_outputs))


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """−log softmax(z)_y of each record, from logits (B, K) and class numbers (B,)."""
    return F.cross_entropy(outputs, targets, reduction="none")


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """½‖z − y‖² of each record, from outputs (B, K) and targets (B, K)."""
    return 0.5 * (outputs - targets).square().sum(1)
