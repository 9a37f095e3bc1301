"""Networks: the perceptron that estimators build, and modules as vectors of parameters."""

from __future__ import annotations

import copy
import inspect
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from skdp.fitting.validate import expected

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
    """Return a perceptron as its activation and arrays, if these are all of it, or the module."""
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

    A callable takes (n_features, n_outputs), by these names where it has them, and further
    parameters by name; a class need not take either. torch's generator is put back afterwards:
    initial weights need not be secret.
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
    trained = [p for p in module.parameters() if p.requires_grad]
    parts = torch.from_numpy(np.ascontiguousarray(flat)).split([p.numel() for p in trained])
    with torch.no_grad():
        _loaded(module, [part.view(p.shape) for part, p in zip(parts, trained, strict=True)])
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


def outputs(
    module: nn.Module, vectors: np.ndarray, X: Any, *, double: bool, integers: bool = False
) -> Iterator[np.ndarray]:
    """Yield the outputs (k, m, n_outputs) of a module under k vectors, on blocks of m rows.

    Perceptrons run under all vectors of trained parameters at once, others under one after the
    other, in double precision if asked to. Rows are 64-bit integers, or of the parameters' type.
    """
    if not (at_once := is_perceptron(module)):
        module = copy.deepcopy(module).eval()
    trained = [p for p in module.parameters() if p.requires_grad]
    shapes, like = [p.shape for p in trained], trained[0]
    size = max(1, _ENTRIES // (max(map(len, trained)) * len(vectors))) if at_once else _ROWS
    flat = torch.from_numpy(np.ascontiguousarray(vectors)).to(like.device, like.dtype)
    if double:
        flat = flat.double()
        module = module if at_once else module.double()
    stacked = flat.split([shape.numel() for shape in shapes], dim=1)
    members = [part.unflatten(1, shape) for part, shape in zip(stacked, shapes, strict=True)]
    dtype = torch.int64 if integers else flat.dtype
    with torch.no_grad():
        for start in range(0, len(X), size):
            piece = torch.from_numpy(np.array(X[start : start + size])).to(like.device, dtype)
            if at_once:
                found = _all_at_once(module, members, piece)
            else:
                found = [_loaded(module, one)(piece) for one in zip(*members, strict=True)]
                found = torch.stack(found)
            yield found.double().cpu().numpy()


_ROWS, _ENTRIES = 4096, 2**19  # rows at once; numbers of a layer, which stay in the cache


def _all_at_once(module: nn.Module, members: Sequence[torch.Tensor], x: torch.Tensor) -> Any:
    """Outputs (k, m, n_outputs) of a perceptron under stacked weights and biases."""
    stacked = iter(members)
    x = x.expand(len(members[0]), *x.shape)
    for part in module.children():
        if isinstance(part, nn.Linear):
            weight, bias = next(stacked), next(stacked)
            x = torch.baddbmm(bias[:, None], x, weight.transpose(1, 2))
        else:
            x = part(x)
    return x


def _loaded(module: nn.Module, values: Sequence[torch.Tensor]) -> nn.Module:
    nn.utils.parametrize._cache.clear()  # what a caller's `cached()` keeps is of former values
    for parameter, value in zip(
        (p for p in module.parameters() if p.requires_grad), values, strict=True
    ):
        parameter.copy_(value)
    return module
