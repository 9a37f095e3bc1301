"""A module whose trained parameters are one flat vector, and which notes what its layers do.

Parameters never ask for gradients, so that book-keeping's backward pass costs less than a plain
one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from skdp.engine.modules.layers import RULES
from skdp.engine.modules.recurrent import EQUALS, Note, Recurrent
from skdp.engine.precision import check_environment
from skdp.fitting.validate import expected

Loss = Callable[
    [Tensor, Tensor], Tensor
]  # outputs (B, K), targets (B, ...) -> one per record, (B,)

# Records at once where the caller leaves it open, and bytes that layers keep: of more, fresh memory
# and misses of the cache cost up to half of a step.
PHYSICAL_BATCH_SIZE, _KEPT_BYTES = 1024, 2**25
_ON_DEVICE = 2**14, 2**32  # the same of a device, which waits between pieces


class Layer(NamedTuple):
    """A layer with trained parameters: short name -> name in the module, for each of these."""

    part: nn.Module
    trained: dict[str, str]


_LINEAR = nn.Linear(1, 1, device="meta")  # stands for the maps of recurrent layers


class Use(NamedTuple):
    """What a layer did in one forward pass."""

    layer: Layer
    a: Tensor
    z: Tensor
    version: int


class FlatModule:
    """A private copy of a module whose trained parameters are one flat vector.

    Parameters with ``requires_grad=False`` stay as they are. The copy lives on a device, or where
    the parameters are. In mixed precision forward passes run in bfloat16; norms and sums do not.
    """

    def __init__(
        self, module: nn.Module, device: Any = None, *, mixed_precision: bool = False
    ) -> None:
        check_environment()
        self.mixed_precision = mixed_precision
        self.module = _copied(module).to(_checked(device))
        self._resting = [part for part in self.module.modules() if _is_at_rest(part)]
        for part in self.module.modules():
            if type(part) in EQUALS and not getattr(part, "proj_size", 0):
                part.__class__ = EQUALS[type(part)]
            elif _is_frozen(part):
                part.__class__ = FrozenBatchNorm
            if getattr(part, "inplace", False):
                # It would overwrite outputs that book-keeping needs.
                setattr(part, "inplace", False)  # noqa: B010
        self.train()
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
        self.at_once = PHYSICAL_BATCH_SIZE  # records, where the caller leaves it open
        self.uses: list[Use] | None = None  # of layers, while a forward pass is being watched
        _watch(self)

    def train(self) -> None:
        """Train, but for frozen parts that came in evaluation mode: their dropout stays off."""
        self.module.train()
        for part in self._resting:
            part.eval()

    def losses(
        self, loss: Loss, x: Tensor, y: Tensor, parameters: dict[str, Tensor] | None = None
    ) -> Tensor:
        """Loss of each record, (B,), under the module's own parameters or others."""
        with autocast(x.device.type, self.mixed_precision):
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

    @contextmanager
    def watched(self) -> Iterator[list[Use]]:
        """Let layers note what they do in a forward pass."""
        self.uses = uses = []
        try:
            yield uses
        finally:
            self.uses = None

    def bytes_per_record(self, x: Tensor, method: str) -> int:
        """Memory that gradients of one of the records takes, about."""
        numbers = self.flat.numel()
        if method == "book-keeping":
            with self.watched() as uses:
                self.module(x[:1])
            numbers = sum(use.a.numel() + 2 * use.z.numel() for use in uses)
        return numbers * self.flat.element_size()

    def rows_at_once(self, bytes_per_record: int) -> int:
        """Number of records whose inputs and outputs of layers are worked on well together.

        On the CPU not so few that the gradients of their sums outweigh them; on a device as many
        as there is room for, with a gradient of each.
        """
        most, room = PHYSICAL_BATCH_SIZE, _KEPT_BYTES + 4 * self.flat.nbytes
        if self.flat.device.type != "cpu":
            (most, room), bytes_per_record = _ON_DEVICE, bytes_per_record + self.flat.nbytes
        return max(1, min(most, room // max(1, bytes_per_record)))

    def set(self, flat: Tensor) -> None:
        """Give the module these parameters."""
        self.flat.copy_(flat)


def autocast(device_type: str, enabled: bool) -> AbstractContextManager[Any]:
    """Let operations run in bfloat16, or not, whatever the caller's autocast says."""
    if enabled or torch.is_autocast_enabled(device_type):
        return torch.autocast(device_type, torch.bfloat16, enabled=enabled)
    return nullcontext()  # a context of torch takes as long as a small layer


class FrozenBatchNorm(nn.modules.batchnorm._BatchNorm):
    """Batch normalisation by statistics and weights that stay as they are, in training too."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise by the running statistics."""
        return F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
        )


BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def _is_at_rest(part: nn.Module) -> bool:
    """Whether a part with parameters, none of them trained, came in evaluation mode."""
    parameters = list(part.parameters())
    return bool(parameters) and not part.training and not any(p.requires_grad for p in parameters)


def _is_frozen(part: nn.Module) -> bool:
    """Whether a layer is batch normalisation by known statistics, with nothing to train."""
    if type(part) not in BATCH_NORMS or part.training or part.running_mean is None:
        return False
    return not any(parameter.requires_grad for parameter in part.parameters())


_GRADIENT_HOOKS = "_backward_hooks", "_backward_pre_hooks", "_post_accumulate_grad_hooks"
_GRADIENT_HOOKS += "_global_backward_hooks", "_global_backward_pre_hooks"  # of all modules


def _copied(module: nn.Module) -> nn.Module:
    for part in module.modules():
        trained = any(p.requires_grad for p in part.parameters())
        if isinstance(part, torch.jit.ScriptModule) and trained:
            raise ValueError(
                "Expected a module of Python code, got a scripted one; pass the original."
            )
        if isinstance(part, nn.DataParallel | nn.parallel.DistributedDataParallel):
            raise expected("a module on one device", "pass its .module, and device=", module=part)
    if any(isinstance(p, nn.parameter.UninitializedParameter) for p in module.parameters()):
        raise ValueError("Expected layers that know their shape, got a lazy one; give its sizes.")
    if any(p.is_meta for p in module.parameters()):
        raise ValueError("Expected module to hold weights, but they are on the meta device.")
    for part in (*module.modules(), *module.parameters(), nn.modules.module):
        if any(getattr(part, name, None) for name in _GRADIENT_HOOKS):
            raise ValueError(
                "Expected module without gradient hooks, which act on sums of records, and not on "
                "each record's gradient as it is clipped; remove them, e.g. by handle.remove()."
            )
    try:
        return copy.deepcopy(module)
    except Exception as error:
        raise ValueError(
            f"Expected a module that can be copied, but it cannot ({type(error).__name__}); keep "
            "locks and open files out of it, and use torch.nn.utils.parametrizations in place of "
            "the weight_norm of old."
        ) from error


def _checked(device: Any) -> torch.device | None:
    if device is None:
        return None
    try:
        found = torch.device(device)
        torch.empty(1, device=found)
    except (RuntimeError, TypeError, ValueError, OverflowError, AssertionError):
        raise expected(
            "None, 'cpu', or a device that this machine has",
            "torch.cuda.is_available() says whether there is a GPU",
            device=device,
        ) from None
    return found


def _watch(module: FlatModule) -> None:
    """Let every layer that has a rule note its input and output in ``module.uses``."""

    def hook(layer: Layer) -> Callable[..., Tensor]:
        def note(
            part: nn.Module, args: tuple[Tensor, ...], others: dict[str, Tensor], z: Tensor
        ) -> Tensor:
            if module.uses is None:
                return z
            if len(args) != 1 or others:  # no rule knows the weights and offsets of a bag
                raise ValueError("A layer has other inputs than its first.")
            if not z.requires_grad:
                z.requires_grad_()
            module.uses.append(Use(layer, args[0].detach(), z, z._version))
            return z

        return note

    def of_maps(prefix: str) -> Callable[[], Note | None]:
        def found() -> Note | None:
            if (uses := module.uses) is None:
                return None

            def note(names: dict[str, str], a: Tensor, z: Tensor) -> None:
                full = {short: prefix + name for short, name in names.items()}
                trained = {short: name for short, name in full.items() if name in module.trained}
                uses.append(Use(Layer(_LINEAR, trained), a.detach(), z, z._version))

            return note

        return found

    for name, part in module.module.named_modules():
        prefix = f"{name}." if name else ""
        if isinstance(part, Recurrent):
            part.note = of_maps(prefix)
        own = {short: prefix + short for short, _ in part.named_parameters(recurse=False)}
        trained = {short: full for short, full in own.items() if full in module.trained}
        if type(part) in RULES and trained:
            part.register_forward_hook(hook(Layer(part, trained)), with_kwargs=True)
