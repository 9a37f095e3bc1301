"""Gradients of single records: their norms and weighted sums, by book-keeping or by vmap.

Book-keeping (Bu et al. 2023): one forward and one backward pass keep each layer's input and output
gradient; per-record norms and the weighted sum of the gradients follow from these (`layers`). A
module that it does not cover goes through ``torch.func.vmap``, in chunks.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection
from typing import NamedTuple

import torch
from torch import Tensor

from skdp.engine.modules import layers
from skdp.engine.modules.flat_module import FlatModule, Layer, Loss
from skdp.engine.modules.layers import RULES, PerSample


class Gradients(NamedTuple):
    """Loss gradients of B records: their norms, and c ↦ Σ c_i g_i."""

    norms: Tensor  # (B,)
    weighted_sum: Callable[[Tensor], Tensor]
    covered: Collection[str]  # names of parameters whose gradients are not left out as zeros
    # (c, rows) ↦ ‖Σ_j c_ij g_ij‖² of the records rows (G, k), in double; B stands for no record.
    squares_of_sums: Callable[[Tensor, Tensor], Tensor]


def book_keeping(module: FlatModule, loss: Loss, x: Tensor, y: Tensor) -> Gradients:
    """Norms and weighted sums of loss gradients, from one forward and one backward pass."""
    with module.watched() as uses, torch.enable_grad():
        losses = module.losses(loss, x, y)
        if not losses.requires_grad:
            raise ValueError("The loss does not depend on the module's parameters.")
        outputs = [use.z for use in uses]
        found = torch.autograd.grad(losses.sum(), outputs, allow_unused=True)
    dtype = module.flat.dtype
    by_name: dict[str, PerSample] = {}
    kept: list[tuple[Layer, Tensor, Tensor]] = []
    squares = torch.zeros(len(x), dtype=dtype, device=x.device)
    for use, b in zip(uses, found, strict=True):
        if use.z._version != use.version:
            raise ValueError(
                "The output of a layer is changed in place; use the out-of-place form."
            )
        if b is None:
            continue
        a, b = use.a if not use.a.is_floating_point() else use.a.to(dtype), b.to(dtype)
        kept.append((use.layer, a, b))
        for short, name in use.layer.trained.items():
            if name in by_name:
                raise ValueError("A layer is used twice in one forward pass.")
            by_name[name] = RULES[type(use.layer.part)](use.layer.part, short, a, b)
            squares += by_name[name].squared_norms

    def weighted_sum(c: Tensor) -> Tensor:
        sums = (
            by_name[name].weighted_sum(c) if name in by_name else torch.zeros_like(parameter)
            for name, parameter in module.trained.items()
        )
        return torch.cat([part.flatten() for part in sums])

    def squares_of_sums(c: Tensor, rows: Tensor) -> Tensor:
        total = torch.zeros(len(rows), dtype=torch.float64, device=c.device)
        for layer, a, b in kept:
            weighted = b * c.reshape(-1, *(1,) * (b.ndim - 1))
            a, b = taken(a, rows), taken(weighted, rows)
            total += layers.squares_of_sums(layer.part, layer.trained, a, b, rows.shape[1])
        return total

    return Gradients(squares.sqrt(), weighted_sum, by_name, squares_of_sums)


def taken(values: Tensor, rows: Tensor) -> Tensor:
    """Values of rows (G, k) one after the other, zeros where a row's number is beyond them."""
    flat, n = rows.flatten(), len(values)
    if len(flat) == n and torch.equal(flat, torch.arange(n, device=flat.device)):
        return values
    return torch.cat([values, values.new_zeros(1, *values.shape[1:])])[flat]


def vmapped(
    module: FlatModule, loss: Loss, x: Tensor, y: Tensor, prenoise_scale: float = 0.0
) -> Gradients:
    """Return the same for any module, with all gradients in memory; with noise on each, if any."""
    parameters = {name: view.detach() for name, view in module.named(module.flat).items()}

    def of_one(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return module.losses(loss, x[None], y[None], parameters)[0]

    gradients = torch.func.vmap(torch.func.grad(of_one), (None, 0, 0), randomness="different")
    with warnings.catch_warnings():  # where warnings are errors, slow operations work too
        warnings.filterwarnings("ignore", "There is a performance drop")
        flat = torch.cat([g.flatten(1) for g in gradients(parameters, x, y).values()], dim=1)
    if prenoise_scale > 0.0:
        flat.add_(torch.randn_like(flat), alpha=prenoise_scale)

    def squares_of_sums(c: Tensor, rows: Tensor) -> Tensor:
        weighted = torch.cat([flat * c[:, None], flat.new_zeros(1, flat.shape[1])])
        total = flat.new_zeros(len(rows), flat.shape[1], dtype=torch.float64)
        for column in rows.T:
            total += weighted[column]
        return total.square().sum(1)

    norms = torch.linalg.vector_norm(flat, dim=1)
    return Gradients(norms, lambda c: c @ flat, parameters, squares_of_sums)
