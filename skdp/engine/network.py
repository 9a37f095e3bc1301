"""The clipped sum of per-record gradients of a network, at about the price of a plain gradient.

Book-keeping (Bu et al. 2023): one forward and one backward pass keep each layer's input and output
gradient; per-record norms and the weighted sum of the gradients follow from these (`per_sample`).
Parameters themselves never ask for gradients, so the backward pass costs less than a plain one.
A module that book-keeping does not cover goes through ``torch.func.vmap``, in chunks.

Every module is *tried* before it is used, on made-up records: one that mixes records, as batch
normalisation does, has no per-record gradient and is refused; and book-keeping is used only if it
then agrees with a loop over single records.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from skdp._validate import expected, one_of, positive
from skdp.engine.per_sample import RULES, PerSample
from skdp.relations import sensitivity_factor

Loss = Callable[[Tensor, Tensor], Tensor]  # outputs (B, K), targets (B, ...) -> one a record, (B,)

# One record's clipped gradient, computed in single precision, may exceed C by the rounding of its
# norm and factor. The order of a sum's additions is not covered: see docs/privacy.md, §6.
ROUNDING = 1e-4
AUTOMATIC_GAMMA = 0.01  # Bu et al., *Automatic Clipping*, NeurIPS 2023

# Records at once where the caller leaves it open, and numbers in the gradients that vmap keeps.
PHYSICAL_BATCH_SIZE, _VMAP_NUMBERS = 1024, 2**25

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


class Records(Protocol):
    """A batch of private records, copied a piece at a time."""

    def __len__(self) -> int: ...
    def piece(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Copy some of the records: inputs (m, ...) and targets (m, ...)."""
        ...


class FlatModule:
    """A private copy of a module whose trained parameters are one flat vector.

    Parameters
    ----------
    module : nn.Module
        Copied; parameters with ``requires_grad=False`` stay as they are.
    device : torch.device or None
        Where the copy lives; None is where the parameters are.
    mixed_precision : bool
        Run forward passes in bfloat16; norms and sums stay in the precision of the parameters.
    """

    def __init__(
        self,
        module: nn.Module,
        device: torch.device | str | None = None,
        *,
        mixed_precision: bool = False,
    ) -> None:
        self._mixed_precision = mixed_precision
        self.module = copy.deepcopy(module).to(device).train()
        for part in self.module.modules():
            if getattr(part, "inplace", False):
                setattr(part, "inplace", False)  # noqa: B010 - it would overwrite outputs that book-keeping needs
        self.trained = {n: p for n, p in self.module.named_parameters() if p.requires_grad}
        if not self.trained:
            raise ValueError("Expected the module to have parameters to train; it has none.")
        first = next(iter(self.trained.values()))
        if any(p.dtype != first.dtype or p.device != first.device for p in self.trained.values()):
            raise ValueError("Expected the module's parameters to share one dtype and one device.")
        if first.dtype not in (torch.float32, torch.float64):
            raise ValueError(
                f"Expected the module's parameters in float32 or float64, got {first.dtype}: sums "
                "in less lose the bound on a record; use mixed_precision=True."
            )
        self.flat = torch.cat([p.detach().flatten() for p in self.trained.values()])
        for parameter, view in zip(self.trained.values(), self._views(self.flat), strict=True):
            parameter.requires_grad_(False)
            parameter.data = view
        self.uses: list[_Use] | None = None  # of layers, while a forward pass is being watched
        _watch(self)

    def losses(
        self, loss: Loss, x: Tensor, y: Tensor, parameters: dict[str, Tensor] | None = None
    ) -> Tensor:
        """Loss of each record, (B,), under the module's own parameters or others."""
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self._mixed_precision):
            if parameters is None:
                return loss(self.module(x), y)
            return loss(torch.func.functional_call(self.module, parameters, (x,)), y)

    def _views(self, flat: Tensor) -> list[Tensor]:
        sizes = [p.numel() for p in self.trained.values()]
        return [
            v.view(p.shape) for v, p in zip(flat.split(sizes), self.trained.values(), strict=True)
        ]

    def named(self, flat: Tensor) -> dict[str, Tensor]:
        """Views of a flat vector under the names of the parameters."""
        return dict(zip(self.trained, self._views(flat), strict=True))

    def set(self, flat: Tensor) -> None:
        """Give the module these parameters."""
        self.flat.copy_(flat)


class NetworkClippedSum:
    """Sum over records of the log-likelihood's gradient in θ, each clipped to a norm.

    Parameters
    ----------
    module : FlatModule
        The network; one record's output must depend on that record alone.
    loss : callable
        (outputs, targets) -> loss of each record, shape (B,). The sum is of *minus* its gradient.
    clip_norm : float
        C > 0: bound on the Euclidean norm of one record's gradient, over all parameters jointly;
        infinite for none.
    clipping : {"flat", "automatic"}
        Factor of a gradient g: min(1, C/‖g‖), or C/(‖g‖ + .01).
    physical_batch_size : int or None
        Records that are worked on at once; None is 1024, fewer where vmap needs it. Halved where
        memory runs out.
    method : {"book-keeping", "vmap"}
        How per-record gradients are taken.
    """

    def __init__(
        self,
        module: FlatModule,
        loss: Loss,
        clip_norm: float,
        *,
        clipping: str = "flat",
        physical_batch_size: int | None = None,
        method: str = "book-keeping",
    ) -> None:
        self.module, self.loss = module, loss
        self.clip_norm = positive(clip_norm=clip_norm, allow_inf=True)
        self.clipping = one_of(("flat", "automatic"), clipping=clipping)
        self.physical_batch_size = physical_batch_size
        self.method = one_of(("book-keeping", "vmap"), method=method)

    @property
    def norm_bound(self) -> float:
        """Bound on one record's share of the sum: C and the rounding of its clipping."""
        return self.clip_norm * (1 + ROUNDING)

    def sensitivity(self, neighboring_relation: str) -> float:
        """How far neighbours can move the sum, in Euclidean norm."""
        return sensitivity_factor(neighboring_relation) * self.norm_bound

    def __call__(self, theta: Tensor, batch: Records) -> Tensor:
        """Return the clipped sum, a flat vector, for parameters of that shape."""
        self.module.set(theta)
        total = None
        start, size = 0, self.physical_batch_size or PHYSICAL_BATCH_SIZE
        if self.method == "vmap":
            size = max(1, min(size, _VMAP_NUMBERS // theta.numel()))
        while start < len(batch):
            size = min(size, len(batch) - start)
            try:
                piece = self._piece(*batch.piece(start, start + size))
            except Exception as error:
                if not _out_of_memory(error):
                    piece = self._one_at_a_time(*batch.piece(start, start + size))
                elif size == 1:
                    raise
                else:
                    size = (size + 1) // 2  # the sum so far stands; noise is added after it, once
                    continue
            total = piece if total is None else total.add_(piece)
            start += size
        return torch.zeros_like(theta) if total is None else total

    def _piece(self, x: Tensor, y: Tensor) -> Tensor:
        gradients = _book_keeping if self.method == "book-keeping" else _vmap
        # The caller's autocast must not reach norms and sums.
        with torch.autocast(x.device.type, enabled=False):
            norms, weighted_sum = gradients(self.module, self.loss, x, y)
            if not math.isfinite(norms.sum()):
                finite = torch.isfinite(norms)
                # Records without a finite gradient contribute nothing. They are taken out before
                # the sum, because 0·inf = NaN there would tell everyone that they are present.
                if not finite.any():
                    return torch.zeros_like(self.module.flat)
                if not finite.all():  # else only the sum of norms is infinite
                    return self._piece(x[finite], y[finite])
            return weighted_sum(-self._factors(norms))

    def _one_at_a_time(self, x: Tensor, y: Tensor) -> Tensor:
        """Sum over records of which one makes the module fail: it contributes nothing.

        The module works on made-up records, so it fails because of a value; raising would tell
        everyone that the record is there.
        """
        total = torch.zeros_like(self.module.flat)
        for i in range(len(x)):
            try:
                total += self._piece(x[i : i + 1], y[i : i + 1])
            except Exception as error:
                if _out_of_memory(error):
                    raise
        return total

    def _factors(self, norms: Tensor) -> Tensor:
        if self.clip_norm == float("inf"):
            return torch.ones_like(norms)
        if self.clipping == "automatic":
            return self.clip_norm / (norms + AUTOMATIC_GAMMA)
        return self.clip_norm / norms.clamp(min=self.clip_norm)

    def per_record(self, x: Tensor, y: Tensor) -> Callable[[Tensor], Tensor]:
        """Return c ↦ Σ c_i g_i of unclipped loss gradients: what tests compare."""
        return (_book_keeping if self.method == "book-keeping" else _vmap)(
            self.module, self.loss, x, y
        )[1]


def _out_of_memory(error: BaseException) -> bool:
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


class _Gradients(NamedTuple):
    norms: Tensor  # (B,)
    weighted_sum: Callable[[Tensor], Tensor]


# --- book-keeping -------------------------------------------------------------------------------


class _Layer(NamedTuple):
    """A layer with trained parameters: short name -> name in the module, for each of these."""

    part: nn.Module
    trained: dict[str, str]


class _Use(NamedTuple):
    """What a layer did in one forward pass."""

    layer: _Layer
    a: Tensor
    z: Tensor
    version: int


def _watch(module: FlatModule) -> None:
    """Let every layer that has a rule note its input and output in ``module.uses``."""

    def hook(layer: _Layer) -> Callable[..., Tensor]:
        def note(part: nn.Module, args: tuple[Tensor, ...], z: Tensor) -> Tensor:
            if module.uses is None:
                return z
            if not z.requires_grad:
                z.requires_grad_()
            module.uses.append(_Use(layer, args[0].detach(), z, z._version))
            return z

        return note

    for name, part in module.module.named_modules():
        prefix = f"{name}." if name else ""
        own = {short: prefix + short for short, _ in part.named_parameters(recurse=False)}
        trained = {short: full for short, full in own.items() if full in module.trained}
        if type(part) in RULES and trained:
            part.register_forward_hook(hook(_Layer(part, trained)))


def _book_keeping(module: FlatModule, loss: Loss, x: Tensor, y: Tensor) -> _Gradients:
    module.uses = uses = []
    try:
        with torch.enable_grad():
            losses = module.losses(loss, x, y)
            if not losses.requires_grad:
                raise ValueError("The loss does not depend on the module's parameters.")
            outputs = [use.z for use in uses]
            found = torch.autograd.grad(losses.sum(), outputs, allow_unused=True)
    finally:
        module.uses = None
    dtype = module.flat.dtype
    by_name: dict[str, PerSample] = {}
    squares = torch.zeros(len(x), dtype=dtype, device=x.device)
    for use, b in zip(uses, found, strict=True):
        if use.z._version != use.version:
            raise ValueError(
                "The output of a layer is changed in place; use the out-of-place form."
            )
        if b is None:
            continue
        a = use.a if not use.a.is_floating_point() else use.a.to(dtype)
        for short, name in use.layer.trained.items():
            if name in by_name:
                raise ValueError("A layer is used twice in one forward pass.")
            by_name[name] = RULES[type(use.layer.part)](use.layer.part, short, a, b.to(dtype))
            squares += by_name[name].squared_norms

    def weighted_sum(c: Tensor) -> Tensor:
        sums = (
            by_name[name].weighted_sum(c) if name in by_name else torch.zeros_like(parameter)
            for name, parameter in module.trained.items()
        )
        return torch.cat([part.flatten() for part in sums])

    return _Gradients(squares.sqrt(), weighted_sum)


# --- any module ---------------------------------------------------------------------------------


def _vmap(module: FlatModule, loss: Loss, x: Tensor, y: Tensor) -> _Gradients:
    parameters = {name: view.detach() for name, view in module.named(module.flat).items()}

    def of_one(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return module.losses(loss, x[None], y[None], parameters)[0]

    gradients = torch.func.vmap(torch.func.grad(of_one), (None, 0, 0), randomness="different")
    flat = torch.cat([g.flatten(1) for g in gradients(parameters, x, y).values()], dim=1)
    return _Gradients(torch.linalg.vector_norm(flat, dim=1), lambda c: c @ flat)


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


# --- trying a module ----------------------------------------------------------------------------


def clipping_method(module: FlatModule, loss: Loss, x: Tensor, y: Tensor, n_outputs: int) -> str:
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
        for method in (_book_keeping, _vmap):
            if _agrees(method, module, loss, x, y, obvious):
                return "book-keeping" if method is _book_keeping else "vmap"
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
    method: Any, module: FlatModule, loss: Loss, x: Tensor, y: Tensor, obvious: Tensor
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
