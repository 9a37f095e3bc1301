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

Method = Callable[..., Gradients]


def set_seed(x: Tensor, seed: int = 0) -> None:
    """Seed what torch draws where records are."""
    if x.device.type == "cpu":
        torch.default_generator.manual_seed(seed)  # torch.manual_seed takes .5 ms
    else:
        torch.manual_seed(seed)


class OneByOne(NamedTuple):
    """Gradients of single records: their norms, weights c_i, Σ c_i g_i, Σ c_i‖g_i‖ by parameter."""

    norms: Tensor
    weights: Tensor
    total: Tensor
    sizes: Tensor


class Trial(NamedTuple):
    """A module and its loss on synthetic records."""

    module: FlatModule
    loss: Loss
    x: Tensor
    y: Tensor

    def gradients(self, method: Method) -> Gradients | None:
        """Gradients by a method; None where it fails."""
        found = attempted(method, *self)
        if found is None or attempted(found.weighted_sum, torch.zeros_like(found.norms)) is None:
            return None
        return found

    def gradients_in_training(self, method: Method) -> Gradients | None:
        """The same in training, masks and all."""
        with _training(self.module):
            set_seed(self.x)
            return self.gradients(method)

    def one_by_one(self) -> OneByOne:
        """Take gradients the slow and obvious way."""
        total = torch.zeros_like(self.module.flat)
        weights = torch.arange(1, len(self.x) + 1, dtype=total.dtype, device=total.device)
        norms, sizes = torch.zeros_like(weights), total.new_zeros(len(self.module.trained))
        for i, c in enumerate(weights):
            one = self._replace(x=self.x[i : i + 1], y=self.y[i : i + 1])
            gradient = one._of_sum(torch.ones_like(weights[:1]))
            norms[i] = gradient.norm()
            sizes += c * torch.stack([g.norm() for g in self.module.named(gradient).values()])
            total += c * gradient
        return OneByOne(norms, weights, total, sizes)

    def _of_sum(self, c: Tensor) -> Tensor:
        """Gradient of Σ c_i loss_i by autograd, flat."""
        views = self.module.named(self.module.flat)
        leaves = {name: view.detach().requires_grad_() for name, view in views.items()}
        with torch.enable_grad():
            total = c @ self.module.losses(self.loss, self.x, self.y, leaves).to(c)
        if not total.requires_grad:
            return torch.zeros_like(self.module.flat)
        found = torch.autograd.grad(
            total, list(leaves.values()), allow_unused=True, materialize_grads=True
        )
        return torch.cat([g.flatten() for g in found])

    def agrees(self, method: Method, chosen: Tensor, obvious: OneByOne) -> bool:
        """Whether a method gives the chosen records the gradients that they have alone."""
        found = self.gradients(method)
        if found is None:
            return False
        c = torch.zeros(len(self.x), dtype=obvious.total.dtype, device=self.x.device)
        c[chosen] = obvious.weights
        tolerance = 1e-3 * (obvious.weights @ obvious.norms) + 1e-6
        least = 1e-6 * (1 + float(obvious.norms.max()))
        same = torch.allclose(found.norms[chosen], obvious.norms, rtol=1e-3, atol=least)
        return same and _same_sums(self.module, found, c, obvious.total, tolerance, obvious.sizes)

    def agrees_in_training(self, method: Method) -> bool:
        """Whether a method gives a batch's sum what autograd gives it, with all that is random."""
        found = self.gradients_in_training(method)
        if found is None:
            return False
        n, flat = len(self.x), self.module.flat
        c = torch.arange(1, n + 1, dtype=flat.dtype, device=self.x.device)
        with _training(self.module):
            set_seed(self.x)
            total = self._of_sum(c)
        return _same_sums(self.module, found, c, total, 1e-3 * (c @ found.norms) + 1e-6)


def _same_sums(
    module: FlatModule,
    found: Gradients,
    c: Tensor,
    total: Tensor,
    tolerance: Tensor,
    sizes: Tensor | None = None,
) -> bool:
    """Whether a weighted sum of gradients is a given one, in each of the parameters.

    A parameter that is left out has a gradient of zero, and is looked for by name. Others are held
    to a thousandth of their ``sizes``, or of their sum, up to the rounding error of the whole sum.
    """
    off, expected = (module.named(flat) for flat in (found.weighted_sum(c) - total, total))
    for i, name in enumerate(off):
        if name not in found.covered and expected[name].any():
            return False
        own = 1e-3 * (expected[name].norm() if sizes is None else sizes[i])
        if not off[name].norm() <= own + 1e-2 * tolerance:
            return False
    return bool((found.weighted_sum(c) - total).norm() <= tolerance)


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
