"""Trying a module on made-up records, before it sees private ones.

A module that mixes records, as batch normalisation does, has no per-record gradient and is refused;
book-keeping is used only where it agrees with a loop over single records.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from skdp._validate import expected
from skdp.engine.network import FlatModule, Gradients, Loss, book_keeping, vmapped

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def clipping_method(
    module: FlatModule,
    loss: Loss,
    x: Tensor,
    y: Tensor,
    n_outputs: int,
    *,
    every_gradient: bool = False,
) -> str:
    """Try a module on made-up records, and say how its per-record gradients are to be taken.

    Parameters
    ----------
    module : FlatModule
        The network.
    loss : callable
        As in `NetworkClippedSum`.
    x, y : Tensor
        Made-up records of the right shape, at least three, and never private ones.
    n_outputs : int
        What the module must return for each record.
    every_gradient : bool, default=False
        Whether each record's gradient itself is needed, which book-keeping never forms.

    Returns
    -------
    {"book-keeping", "vmap"}
        Book-keeping where it agrees with a loop over single records.

    Raises
    ------
    ValueError
        If the module mixes records, changes its buffers, or its output has the wrong shape.
    """
    for part in module.module.modules():
        if isinstance(part, _BATCH_NORMS):
            raise ValueError(
                f"Expected module to treat each record by itself, but it holds a "
                f"{type(part).__name__}, which mixes the records of a batch; use GroupNorm or "
                "LayerNorm."
            )
        if isinstance(part, nn.RNNBase):
            raise ValueError(
                f"Expected module without {type(part).__name__}: the gradients of recurrent layers "
                "cannot be taken record by record; use Conv1d, or attention made of Linear layers."
            )
        if isinstance(part, nn.Embedding) and (
            part.max_norm is not None or part.scale_grad_by_freq
        ):
            raise ValueError(
                "Expected Embedding layers without max_norm and scale_grad_by_freq: both make one "
                "record's gradient depend on the others; drop them."
            )
    kept = module.flat.clone()
    module.module.eval()  # dropout would make outputs differ by chance
    try:
        # At other weights than the first: those of a last layer are often zero, and hide all else.
        torch.manual_seed(0)
        module.flat.add_(0.1 * torch.randn_like(kept))
        _check_outputs(module, x, n_outputs)
        obvious = _one_by_one(module, loss, x, y)
        for method in (vmapped,) if every_gradient else (book_keeping, vmapped):
            if _agrees(method, module, loss, x, y, obvious):
                return "book-keeping" if method is book_keeping else "vmap"
    finally:
        module.set(kept)
        module.module.train()
    raise ValueError(
        "The gradients of this module cannot be taken record by record; write its forward pass "
        "with the records along the first dimension and without data-dependent control flow."
    )


def _check_outputs(module: FlatModule, x: Tensor, n_outputs: int) -> None:
    buffers = {name: b.clone() for name, b in module.module.named_buffers()}
    module.module.eval()
    outputs = _forward(module, x)
    if not isinstance(outputs, Tensor) or outputs.shape != (len(x), n_outputs):
        shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise ValueError(
            f"Expected module to return a tensor of shape (n_records, {n_outputs}), got {shape} "
            f"for {len(x)} records; adapt its last layer."
        )
    alone = torch.cat([_forward(module, x[i : i + 1]) for i in range(len(x))])
    _check_same(outputs, alone)
    _check_same(outputs, _forward(module, x.flip(0)).flip(0))
    # Training may do other things than evaluation. Under one seed dropout masks are the same, so
    # another record must leave the outputs of the others as they are, now and later.
    module.module.train()
    for seed in range(3):
        before = _forward(module, x, seed)
        for i in range(len(x)):
            others = torch.arange(len(x), device=x.device) != i
            changed = x.clone()
            changed[i] = x[i - 1]
            _check_same(before[others], _forward(module, changed, seed)[others])
        _check_same(before, _forward(module, x, seed))
    with suppress(RuntimeError, IndexError):  # a module that looks up takes no such numbers
        before = _forward(module, 1e3 * x)
        _check_same(before[1:], _forward(module, torch.cat([-7e3 * x[:1], 1e3 * x[1:]]))[1:])
    if any(not torch.equal(b, buffers[name]) for name, b in module.module.named_buffers()):
        raise ValueError(
            "Expected module to leave its buffers alone, but one changed in a forward pass: it "
            "would carry private data from batch to batch; remove it."
        )
    module.module.eval()


def _forward(module: FlatModule, x: Tensor, seed: int = 0) -> Tensor:
    torch.manual_seed(seed)
    with torch.no_grad():
        return module.module(x)


def _check_same(outputs: Tensor, other: Tensor) -> None:
    size = float(outputs.abs().nan_to_num(0.0, 0.0, 0.0).max())
    if not torch.allclose(outputs, other, rtol=1e-3, atol=1e-4 * (1 + size), equal_nan=True):
        raise ValueError(
            "Expected module to treat each record by itself, but its output for a record depends "
            "on the other records of the batch, or of an earlier one; remove what mixes them."
        )


def _agrees(
    method: Callable[..., Gradients],
    module: FlatModule,
    loss: Loss,
    x: Tensor,
    y: Tensor,
    obvious: Tensor,
) -> bool:
    try:
        norms, weighted_sum = method(module, loss, x, y)
        c = torch.arange(1, len(x) + 1, dtype=obvious.dtype, device=obvious.device)
        total = weighted_sum(c)
    except (RuntimeError, ValueError, TypeError, IndexError):
        return False
    scale = obvious.norm(dim=1)
    return bool(
        torch.allclose(norms, scale, rtol=1e-3, atol=1e-6)
        and (total - c @ obvious).norm() <= 1e-3 * (c @ scale) + 1e-6
    )


def _one_by_one(module: FlatModule, loss: Loss, x: Tensor, y: Tensor) -> Tensor:
    """Gradients of single records, (B, P), the slow and obvious way."""
    rows = []
    for i in range(len(x)):
        parameters = {n: v.detach().requires_grad_() for n, v in module.named(module.flat).items()}
        with torch.enable_grad():
            of_one = module.losses(loss, x[i : i + 1], y[i : i + 1], parameters).sum()
            found = torch.autograd.grad(
                of_one, list(parameters.values()), allow_unused=True, materialize_grads=True
            )
        rows.append(torch.cat([g.flatten() for g in found]))
    return torch.stack(rows)


def check_device(device: Any) -> torch.device | None:
    """Return the device asked for, or say that it is not there."""
    if device is None:
        return None
    try:
        found = torch.device(device)
        torch.empty(1, device=found)
    except (RuntimeError, TypeError, AssertionError):
        raise expected(
            "None, 'cpu', or a device that this machine has",
            "torch.cuda.is_available() says whether there is a GPU",
            device=device,
        ) from None
    return found
