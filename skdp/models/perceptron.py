"""Networks: the perceptron that estimators build, and modules as vectors of parameters."""

from __future__ import annotations

import copy
import inspect
import io
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from skdp._validate import expected

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


def is_perceptron(module: nn.Module) -> bool:
    """Whether a module is one that `perceptron` could have made, all of it trained."""
    kinds = {nn.Linear, *ACTIVATIONS.values()}
    return (
        type(module) is nn.Sequential
        and all(type(part) in kinds for part in module)
        and all(part.bias is not None for part in module if isinstance(part, nn.Linear))
        and all(parameter.requires_grad for parameter in module.parameters())
    )


def packed(module: nn.Module) -> Any:
    """Return a perceptron as its activation and arrays, which any format can hold, or the module.

    A module that would not come back as it is from `unpacked` stays what it is.
    """
    if not is_perceptron(module) or any(
        p.device.type != "cpu" or p.dtype not in (torch.float32, torch.float64)
        for p in module.parameters()
    ):
        return module
    kinds = {type(part) for part in module.children()} - {nn.Linear}
    names = [name for name, kind in ACTIVATIONS.items() if kind in kinds] or ["identity"]
    plain = {"activation": names[0], "arrays": weights(module), "training": module.training}
    return plain if repr(unpacked(plain)) == repr(module) else module


def unpacked(plain: Any) -> nn.Module:
    """Return the module that was `packed`."""
    if isinstance(plain, nn.Module):
        return plain
    arrays = plain["arrays"]
    n_features, *hidden = [weight.shape[1] for weight in arrays[::2]]
    with torch.random.fork_rng(devices=[]):  # weights are drawn in vain
        module = perceptron(n_features, len(arrays[-1]), hidden, plain["activation"])
    for parameter, array in zip(module.parameters(), arrays, strict=True):
        parameter.data = torch.from_numpy(np.array(array))
    return module.train(plain["training"])


# --- modules ------------------------------------------------------------------------------------


_MODULE = (
    "an nn.Module, a class of modules, or a function of (n_features, n_outputs) that makes one"
)
_SHAPE = ("n_features", "n_outputs")


def build_module(
    make: Callable[..., nn.Module] | nn.Module,
    n_features: int,
    n_outputs: int,
    seed: int,
    parameters: Mapping[str, Any] | None = None,
) -> nn.Module:
    """Return a module, or the one that a class or a function makes, its weights drawn under a seed.

    Parameters
    ----------
    make : nn.Module, class or callable
        A callable takes (n_features, n_outputs), by these names where it has them. A class need
        not take either.
    n_features, n_outputs : int
        Shape of a record and of the output.
    seed : int
        Of torch's generator, which is put back afterwards. Initial weights need not be secret.
    parameters : mapping or None, default=None
        Further arguments of a callable, by name.
    """
    parameters = dict(parameters or {})
    if isinstance(make, nn.Module):
        if parameters:
            raise expected("a class or a function, which takes module__ parameters", module=make)
        return make
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        try:
            shape, named = _shape_arguments(make, (n_features, n_outputs), parameters)
            module = make(*shape, **named) if callable(make) else None
        except TypeError as error:
            if not isinstance(make, type):
                raise
            remedy = f"give what it needs as module__ parameters ({error})"
            raise expected(_MODULE, remedy, module=make) from error
    if not isinstance(module, nn.Module):
        raise expected(_MODULE, module=make)
    return module


def _shape_arguments(
    make: Any, shape: tuple[int, int], parameters: dict[str, Any]
) -> tuple[tuple[int, ...], dict[str, Any]]:
    """Arguments of a class or a function: by name, by position, or without the shape."""
    try:
        takes = inspect.signature(make).parameters
    except (TypeError, ValueError):  # as of some builtins
        return shape, parameters
    named = {k: n for k, n in zip(_SHAPE, shape, strict=True) if k in takes and k not in parameters}
    if named or not parameters.keys().isdisjoint(_SHAPE):
        return (), parameters | named
    required = any(
        p.kind is p.VAR_POSITIONAL or (p.default is p.empty and p.kind is not p.VAR_KEYWORD)
        for p in takes.values()
        if p.name not in parameters
    )
    return (() if isinstance(make, type) and not required else shape), parameters


def with_parameters(module: nn.Module, flat: np.ndarray) -> nn.Module:
    """Return a copy of a module whose trained parameters are a flat vector."""
    module = copy.deepcopy(module)
    parameters = [p for p in module.parameters() if p.requires_grad]
    sizes = [p.numel() for p in parameters]
    vectors = torch.from_numpy(np.ascontiguousarray(flat)).split(sizes)
    with torch.no_grad():
        for parameter, vector in zip(parameters, vectors, strict=True):
            parameter.copy_(vector.view(parameter.shape))
    return module.eval()


def weights(module: nn.Module) -> list[np.ndarray]:
    """Return all weights and buffers of a module, trained or not."""
    return [_array(value) for value in module.state_dict().values()]


def _array(value: Any) -> np.ndarray:
    try:
        return value.detach().cpu().numpy()
    except (AttributeError, RuntimeError, TypeError):  # bfloat16, packed weights, ...: as bytes
        file = io.BytesIO()
        torch.save(value, file)
        return np.frombuffer(file.getvalue(), np.uint8)


def parameter_names(module: nn.Module) -> list[str]:
    """Names of the trained parameters, one after the other, e.g. ``"0.weight[3, 1]"``."""
    return [
        f"{name}[{', '.join(map(str, index))}]"
        for name, p in module.named_parameters()
        if p.requires_grad
        for index in np.ndindex(*p.shape)
    ]


def predict(
    module: nn.Module,
    X: np.ndarray,
    *,
    double: bool,
    integers: bool = False,
    batch_size: int = 4096,
) -> np.ndarray:
    """Outputs of a module on rows, shape (n, n_outputs), worked out in double precision or not.

    Rows are given to it as 64-bit integers, or as numbers of its parameters' type.
    """
    if double:
        module = copy.deepcopy(module).double()
    like = next(p for p in module.parameters() if p.requires_grad)
    dtype = torch.int64 if integers else like.dtype
    pieces = []
    with torch.no_grad():
        for start in range(0, len(X), batch_size):
            piece = torch.from_numpy(np.array(X[start : start + batch_size]))
            pieces.append(module.eval()(piece.to(like.device, dtype)).double().cpu().numpy())
    return np.concatenate(pieces)
