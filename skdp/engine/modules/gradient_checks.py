"""Whether a method gives a module the gradients that its records have one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from skdp.engine.modules.flat_module import FlatModule, Loss
from skdp.engine.modules.gradients import Gradients
from skdp.engine.modules.network_sum import attempted


def set_seed(x: Tensor, seed: int = 0) -> None:
    """Seed what torch draws where records are."""
    if x.device.type == "cpu":
        torch.default_generator.manual_seed(seed)  # torch.manual_seed takes .5 ms
    else:
        torch.manual_seed(seed)


def agrees(
    method: Callable[..., Gradients],
    module: FlatModule,
    loss: Loss,
    x: Tensor,
    y: Tensor,
    chosen: Tensor,
    obvious: OneByOne,
) -> bool:
    """Whether a method gives the chosen ones of some records the gradients that they have alone."""
    c = torch.zeros(len(x), dtype=obvious.total.dtype, device=x.device)
    c[chosen] = obvious.weights
    found = _gradients_if_any(method, module, loss, x, y)
    if found is None:
        return False
    largest = float(obvious.norms.max())
    sizes = obvious.weights @ obvious.norms
    return bool(
        torch.allclose(found.norms[chosen], obvious.norms, rtol=1e-3, atol=1e-6 * (1 + largest))
        and _same_sums(module, found, c, obvious.total, 1e-3 * sizes + 1e-6, obvious.sizes)
    )


def agrees_in_training(
    method: Callable[..., Gradients], module: FlatModule, loss: Loss, x: Tensor, y: Tensor
) -> bool:
    """Whether a method gives a batch's sum what autograd gives it, with all that is random."""
    found = works_in_training(method, module, loss, x, y)
    if found is None:
        return False
    c = torch.arange(1, len(x) + 1, dtype=module.flat.dtype, device=x.device)
    parameters = _leaves(module)
    with _training(module), torch.enable_grad():
        set_seed(x)
        whole = c @ module.losses(loss, x, y, parameters).to(c)
    total = _gradient(whole, parameters)
    return _same_sums(module, found, c, total, 1e-3 * (c @ found.norms) + 1e-6)


def _same_sums(
    module: FlatModule,
    found: Gradients,
    c: Tensor,
    total: Tensor,
    tolerance: Tensor,
    sizes: Tensor | None = None,
) -> bool:
    """Whether a weighted sum of gradients is a given one, in each of the parameters.

    A parameter that is left out has a gradient of zero, which a sum over all parameters may not
    show: it is looked for by name. Others are held to a thousandth of their own ``sizes``, or of
    their sum, up to the rounding error of the whole sum.
    """
    off, expected = (module.named(flat) for flat in (found.weighted_sum(c) - total, total))
    for i, name in enumerate(off):
        if name not in found.covered and expected[name].any():
            return False
        own = 1e-3 * (expected[name].norm() if sizes is None else sizes[i])
        if not off[name].norm() <= own + 1e-2 * tolerance:
            return False
    return bool((found.weighted_sum(c) - total).norm() <= tolerance)


def works_in_training(
    method: Callable[..., Gradients], module: FlatModule, loss: Loss, x: Tensor, y: Tensor
) -> Gradients | None:
    """Gradients by a method in training, masks and all; None where it fails."""
    with _training(module):
        set_seed(x)
        return _gradients_if_any(method, module, loss, x, y)


@contextmanager
def full_precision(module: FlatModule) -> Iterator[None]:
    """Hide no mistake behind rounding to bfloat16, nor take it for one."""
    mixed, module.mixed_precision = module.mixed_precision, False
    try:
        yield
    finally:
        module.mixed_precision = mixed


@contextmanager
def _training(module: FlatModule) -> Iterator[None]:
    """Train with all that is random; afterwards each part is in the mode that it was in."""
    modes = [(part, part.training) for part in module.module.modules()]
    module.train()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def _gradients_if_any(
    method: Callable[..., Gradients], module: FlatModule, loss: Loss, x: Tensor, y: Tensor
) -> Gradients | None:
    found = attempted(method, module, loss, x, y)
    if found is None or attempted(found.weighted_sum, torch.zeros_like(found.norms)) is None:
        return None
    return found


class OneByOne(NamedTuple):
    """Gradients of single records: their norms, weights c_i, Σ c_i g_i, Σ c_i‖g_i‖ by parameter."""

    norms: Tensor
    weights: Tensor
    total: Tensor
    sizes: Tensor


def one_by_one(module: FlatModule, loss: Loss, x: Tensor, y: Tensor) -> OneByOne:
    """Take gradients the slow and obvious way."""
    total = torch.zeros_like(module.flat)
    weights = torch.arange(1, len(x) + 1, dtype=total.dtype, device=total.device)
    norms, sizes = torch.zeros_like(weights), total.new_zeros(len(module.trained))
    for i in range(len(x)):
        parameters = _leaves(module)
        with torch.enable_grad():
            of_one = module.losses(loss, x[i : i + 1], y[i : i + 1], parameters).sum()
        gradient = _gradient(of_one, parameters)
        norms[i] = gradient.norm()
        sizes += weights[i] * torch.stack([g.norm() for g in module.named(gradient).values()])
        total += weights[i] * gradient
    return OneByOne(norms, weights, total, sizes)


def _leaves(module: FlatModule) -> dict[str, Tensor]:
    return {n: v.detach().requires_grad_() for n, v in module.named(module.flat).items()}


def _gradient(value: Tensor, parameters: dict[str, Tensor]) -> Tensor:
    leaves = list(parameters.values())
    if not value.requires_grad:
        return torch.cat([torch.zeros_like(leaf).flatten() for leaf in leaves])
    found = torch.autograd.grad(value, leaves, allow_unused=True, materialize_grads=True)
    return torch.cat([g.flatten() for g in found])
