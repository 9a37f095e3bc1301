"""The clipped sum of per-record gradients of a network, at about the price of a plain gradient.

Book-keeping (Bu et al. 2023): one forward and one backward pass keep each layer's input and output
gradient; per-record norms and the weighted sum of the gradients follow from these (`per_sample`).
Parameters themselves never ask for gradients, so the backward pass costs less than a plain one.
A module that book-keeping does not cover goes through ``torch.func.vmap``, in chunks.

Every module is *tried* before it is used (`trial`).

*Persons.* Where persons are the records, each row's gradient is clipped as above, and the sum of a
person's rows once more: rows of a person are positions of one record, whose norm follows from
δ_i·δ_j and a_i·a_j (`layers`), and no gradient of a row or a person is kept. Of a person with more
rows than are worked on at once the sum itself is made, in pieces.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from skdp.engine.modules import layers
from skdp.engine.modules.layers import RULES, PerSample
from skdp.engine.modules.recurrent import EQUALS, Note, Recurrent
from skdp.engine.precision import check_environment
from skdp.fitting.validate import expected, in_range, one_of, positive
from skdp.rows.bounded_sum import BoundedSum
from skdp.rows.persons import PersonUnit, sizes_between
from skdp.rows.records import Selection, copied, selected_rows

Loss = Callable[
    [Tensor, Tensor], Tensor
]  # outputs (B, K), targets (B, ...) -> one per record, (B,)

# One record's clipped gradient, computed in single precision, may exceed C by the rounding of its
# norm and factor. The order of a sum's additions is not covered: see docs/privacy.md, §8.
ROUNDING = 1e-4
AUTOMATIC_GAMMA = 0.01  # Bu et al., *Automatic Clipping*, NeurIPS 2023

# Records at once where the caller leaves it open, numbers in the gradients that vmap keeps, and
# bytes that layers keep: of more, fresh memory and misses of the cache cost up to half of a step.
PHYSICAL_BATCH_SIZE, _VMAP_NUMBERS, _KEPT_BYTES = 1024, 2**25, 2**25


class FlatModule:
    """A private copy of a module whose trained parameters are one flat vector.

    Parameters
    ----------
    module : nn.Module
        Copied; parameters with ``requires_grad=False`` stay as they are.
    device : str, torch.device or None
        Where the copy lives; None is where the parameters are.
    mixed_precision : bool
        Run forward passes in bfloat16; norms and sums stay in the precision of the parameters.
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
        self.uses: list[_Use] | None = None  # of layers, while a forward pass is being watched
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
        with _autocast(x.device.type, self.mixed_precision):
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

    def bytes_per_record(self, x: Tensor, method: str) -> int:
        """Memory that gradients of one of the records takes, about."""
        numbers = self.flat.numel()
        if method == "book-keeping":
            self.uses = uses = []
            try:
                self.module(x[:1])
            finally:
                self.uses = None
            numbers = sum(use.a.numel() + 2 * use.z.numel() for use in uses)
        return numbers * self.flat.element_size()

    def rows_at_once(self, bytes_per_record: int) -> int:
        """Number of records whose inputs and outputs of layers are worked on well together.

        On the CPU; not so few that the gradients of their sums outweigh them.
        """
        if self.flat.device.type != "cpu":
            return PHYSICAL_BATCH_SIZE
        room = _KEPT_BYTES + 4 * self.flat.nbytes
        return max(1, min(PHYSICAL_BATCH_SIZE, room // max(1, bytes_per_record)))

    def set(self, flat: Tensor) -> None:
        """Give the module these parameters."""
        self.flat.copy_(flat)


def _autocast(device_type: str, enabled: bool) -> AbstractContextManager[Any]:
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
    for part in (*module.modules(), *module.parameters()):
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
    except (RuntimeError, TypeError, AssertionError):
        raise expected(
            "None, 'cpu', or a device that this machine has",
            "torch.cuda.is_available() says whether there is a GPU",
            device=device,
        ) from None
    return found


class NetworkClippedSum(BoundedSum):
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
        Records that are worked on at once; None is 1024, fewer where layers or vmap keep much.
        Halved where memory runs out.
    method : {"book-keeping", "vmap"}
        How per-record gradients are taken.
    weight_bound : float, default=1.0
        Largest weight > 0 of a record, by which its clipped gradient is multiplied.
    prenoise_scale : float, default=0.0
        Standard deviation of normal noise on each coordinate of each record's gradient, *before* it
        is clipped; it adds nothing to the sensitivity and does not protect. Needs ``"vmap"``.
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
        weight_bound: float = 1.0,
        prenoise_scale: float = 0.0,
    ) -> None:
        self.weight_bound = positive(weight_bound=weight_bound)
        self.module, self.loss = module, loss
        self.clip_norm = positive(clip_norm=clip_norm, allow_inf=True)
        self.clipping = one_of(("flat", "automatic"), clipping=clipping)
        self.physical_batch_size = physical_batch_size
        self.method = one_of(("book-keeping", "vmap"), method=method)
        self.prenoise_scale = in_range(0.0, 1e10, prenoise_scale=prenoise_scale, closed="left")
        if self.prenoise_scale > 0.0 and method != "vmap":
            raise ValueError("Noise on a record's gradient needs the gradient: use method='vmap'.")

    rounding = ROUNDING

    @property
    def record_bound(self) -> float:
        """Bound on the norm of one record's term: C times the largest weight."""
        return self.clip_norm * self.weight_bound

    def shape(self, theta_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the sum: that of θ."""
        return theta_shape

    def of_persons(self, unit: PersonUnit) -> NetworkPersonSum:
        """The same over persons, whose gradients nearly cancel: clipped to c times the bound."""
        return NetworkPersonSum(self, unit.clip * self.record_bound)

    def __call__(self, theta: Tensor, batch: NetworkBatch) -> Tensor:
        """Return the clipped sum, a flat vector, for parameters of that shape."""
        self.module.set(theta)
        total = self.between(batch, 0, len(batch))
        return torch.zeros_like(theta) if total is None else total

    @property
    def at_once(self) -> int:
        """Number of rows that are worked on at once, at most."""
        size = self.physical_batch_size or PHYSICAL_BATCH_SIZE
        if self.method == "vmap":
            size = max(1, min(size, _VMAP_NUMBERS // self.module.flat.numel()))
        return size

    def between(self, batch: NetworkBatch, start: int, stop: int) -> Tensor | None:
        """Sum over some rows of a batch, at the module's parameters; None over no rows."""
        total, size = None, self.at_once
        if self.physical_batch_size is None:
            size = min(size, self.module.at_once)
        while start < stop:
            size = min(size, stop - start)
            try:
                piece = self.piece(*batch.piece(start, start + size))
            except Exception as error:
                if not out_of_memory(error):
                    piece = self._one_at_a_time(batch, start, start + size)
                elif size == 1:
                    raise
                else:
                    size = (size + 1) // 2  # the sum so far stands; noise is added after it, once
                    continue
            total = piece if total is None else total.add_(piece)
            start += size
        return total

    def piece(
        self, x: Tensor, y: Tensor, weights: Tensor | None, persons: PersonClip | None = None
    ) -> Tensor:
        """Sum over a few rows, or over persons who have them: each person's sum clipped too."""
        with _autocast(x.device.type, False):  # norms and sums keep their precision
            found = self._gradients(x, y)
            norms = found.norms
            if not math.isfinite(norms.sum()):
                finite = torch.isfinite(norms)
                # Records without a finite gradient contribute nothing. They are taken out before
                # the sum, because 0·inf = NaN there would tell everyone that they are present.
                if not finite.any():
                    return torch.zeros_like(self.module.flat)
                if not finite.all():  # else only the sum of norms is infinite
                    persons = None if persons is None else persons.without(~finite)
                    weights = None if weights is None else weights[finite]
                    return self.piece(x[finite], y[finite], weights, persons)
            factors = self._factors(norms)
            if weights is not None:
                factors = factors * weights.clamp(0.0, self.weight_bound)
            if persons is not None:
                factors = factors * persons.factors(found, factors)
            return found.weighted_sum(-factors)

    def _gradients(self, x: Tensor, y: Tensor) -> Gradients:
        if self.method == "book-keeping":
            return book_keeping(self.module, self.loss, x, y)
        return vmapped(self.module, self.loss, x, y, self.prenoise_scale)

    def _one_at_a_time(self, batch: NetworkBatch, start: int, stop: int) -> Tensor:
        """Sum over records of which one makes the module fail: it contributes nothing.

        The module works on synthetic records, so it fails because of a value; raising would tell
        everyone that the record is there.
        """
        total = torch.zeros_like(self.module.flat)
        for i in range(start, stop):
            try:
                total += self.piece(*batch.piece(i, i + 1))
            except Exception as error:
                if out_of_memory(error):
                    raise
        return total

    def _factors(self, norms: Tensor) -> Tensor:
        if self.clip_norm == float("inf"):
            return torch.ones_like(norms)
        if self.clipping == "automatic":
            return self.clip_norm / (norms + AUTOMATIC_GAMMA)
        return self.clip_norm / norms.clamp(min=self.clip_norm)


def out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, on the device or beside it."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


class Gradients(NamedTuple):
    """Loss gradients of B records: their norms, and c ↦ Σ c_i g_i."""

    norms: Tensor  # (B,)
    weighted_sum: Callable[[Tensor], Tensor]
    covered: Collection[str]  # names of parameters whose gradients are not left out as zeros
    # (c, rows) ↦ ‖Σ_j c_ij g_ij‖² of the records rows (G, k), in double; B stands for no record.
    squares_of_sums: Callable[[Tensor, Tensor], Tensor]


# --- book-keeping -------------------------------------------------------------------------------


class _Layer(NamedTuple):
    """A layer with trained parameters: short name -> name in the module, for each of these."""

    part: nn.Module
    trained: dict[str, str]


_LINEAR = nn.Linear(1, 1, device="meta")  # stands for the maps of recurrent layers


class _Use(NamedTuple):
    """What a layer did in one forward pass."""

    layer: _Layer
    a: Tensor
    z: Tensor
    version: int


def _watch(module: FlatModule) -> None:
    """Let every layer that has a rule note its input and output in ``module.uses``."""

    def hook(layer: _Layer) -> Callable[..., Tensor]:
        def note(
            part: nn.Module, args: tuple[Tensor, ...], others: dict[str, Tensor], z: Tensor
        ) -> Tensor:
            if module.uses is None:
                return z
            if len(args) != 1 or others:  # no rule knows the weights and offsets of a bag
                raise ValueError("A layer has other inputs than its first.")
            if not z.requires_grad:
                z.requires_grad_()
            module.uses.append(_Use(layer, args[0].detach(), z, z._version))
            return z

        return note

    def of_maps(prefix: str) -> Callable[[], Note | None]:
        def found() -> Note | None:
            if (uses := module.uses) is None:
                return None

            def note(names: dict[str, str], a: Tensor, z: Tensor) -> None:
                full = {short: prefix + name for short, name in names.items()}
                trained = {short: name for short, name in full.items() if name in module.trained}
                uses.append(_Use(_Layer(_LINEAR, trained), a.detach(), z, z._version))

            return note

        return found

    for name, part in module.module.named_modules():
        prefix = f"{name}." if name else ""
        if isinstance(part, Recurrent):
            part.note = of_maps(prefix)
        own = {short: prefix + short for short, _ in part.named_parameters(recurse=False)}
        trained = {short: full for short, full in own.items() if full in module.trained}
        if type(part) in RULES and trained:
            part.register_forward_hook(hook(_Layer(part, trained)), with_kwargs=True)


def book_keeping(module: FlatModule, loss: Loss, x: Tensor, y: Tensor) -> Gradients:
    """Norms and weighted sums of loss gradients, from one forward and one backward pass."""
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
    kept: list[tuple[_Layer, Tensor, Tensor]] = []
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
            a, b = _taken(a, rows), _taken(weighted, rows)
            total += layers.squares_of_sums(layer.part, layer.trained, a, b, rows.shape[1])
        return total

    return Gradients(squares.sqrt(), weighted_sum, by_name, squares_of_sums)


def _taken(values: Tensor, rows: Tensor) -> Tensor:
    """Values of rows (G, k) one after the other, zeros where a row's number is beyond them."""
    flat, n = rows.flatten(), len(values)
    if len(flat) == n and torch.equal(flat, torch.arange(n, device=flat.device)):
        return values
    return torch.cat([values, values.new_zeros(1, *values.shape[1:])])[flat]


# --- any module ---------------------------------------------------------------------------------


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


# --- persons ------------------------------------------------------------------------------------


class PersonClip(NamedTuple):
    """Persons whose rows follow each other, and the norm to which each one's sum is clipped."""

    starts: np.ndarray  # (n_persons + 1,): where the rows of each begin, and where all end
    bound: float

    def without(self, rows: Tensor) -> PersonClip:
        """The same persons without the rows of a mask (B,)."""
        gone = np.concatenate([[0], np.cumsum(rows.cpu().numpy())])
        return self._replace(starts=self.starts - gone[self.starts])

    def factors(self, found: Gradients, c: Tensor) -> Tensor:
        """Factor of each row, (B,): that of its person, whose rows have weights c (B,)."""
        if self.bound == math.inf:
            return torch.ones_like(c)
        sizes, lengths = np.diff(self.starts), c * found.norms
        norms = torch.zeros(len(sizes), dtype=torch.float64, device=c.device)
        for persons, rows in _by_size(self.starts):
            chosen = torch.from_numpy(persons).to(c.device)
            rows = torch.from_numpy(rows).to(c.device)
            if rows.shape[1] == 1:
                norms[chosen] = lengths[rows[:, 0]].double()
                continue
            # In single precision a sum of k terms is rounded by up to √k 2⁻²⁴ times the sum of
            # their norms, and they may cancel: that must be little beside the bound.
            terms = _taken(lengths, rows).double().reshape(rows.shape).sum(1)
            least = 1e-6 * sizes[persons].astype(np.float64)
            least = torch.from_numpy(least).to(c.device) * terms.square()
            norms[chosen] = torch.maximum(found.squares_of_sums(c, rows), least).sqrt()
        of_persons = self.bound / norms.clamp(min=self.bound)
        of_persons = torch.where(norms <= self.bound * (1 + _ON_BOUND), 1.0, of_persons)
        counts = torch.from_numpy(sizes).to(c.device)
        return of_persons.to(c.dtype).repeat_interleave(counts)


_ON_BOUND = 1e-5  # relative, in single precision: a row that has been clipped to the bound is on it


def _by_size(starts: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield persons (G,) of about equal size, with the numbers of their rows (G, k).

    The number of all rows stands in the place of rows that a person lacks; k is less than twice a
    person's size.
    """
    sizes, n = np.diff(starts), int(starts[-1])
    for power in np.unique(np.frexp(np.maximum(sizes - 1, 0))[1]):
        persons = np.flatnonzero((np.frexp(np.maximum(sizes - 1, 0))[1] == power) & (sizes > 0))
        if not len(persons):
            continue
        numbers = np.arange(sizes[persons].max())
        rows = starts[persons, None] + numbers
        yield persons, np.where(numbers < sizes[persons, None], rows, n)


class NetworkPersonSum(BoundedSum):
    """Sum over persons of the sum of their rows' clipped gradients, clipped to a norm itself.

    Parameters
    ----------
    inner : NetworkClippedSum
        The sum over rows.
    bound : float
        Norm > 0 to which a person's sum is scaled down where it exceeds that; infinite for none.
    """

    rounding = ROUNDING

    def __init__(self, inner: NetworkClippedSum, bound: float) -> None:
        self.inner, self.bound = inner, positive(bound=bound, allow_inf=True)

    @property
    def record_bound(self) -> float:
        """Bound on the norm of one person's term."""
        return self.bound

    def shape(self, theta_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the sum: that of θ."""
        return theta_shape

    def __call__(self, theta: Tensor, batch: NetworkBatch) -> Tensor:
        """Return the clipped sum, a flat vector, for parameters of that shape."""
        self.inner.module.set(theta)
        if batch.starts is None:
            raise ValueError("Expected a batch that says whose its rows are.")
        total = torch.zeros_like(theta)
        for first, last in sizes_between(batch.starts, self.inner.at_once):
            total += self._of(batch, batch.starts[first : last + 1])
        return total

    def _of(self, batch: NetworkBatch, starts: np.ndarray) -> Tensor:
        """Sum over persons, as many as are worked on at once; or over one with many rows."""
        start, stop = int(starts[0]), int(starts[-1])
        if stop - start <= self.inner.at_once:
            # If memory runs out or the module fails at a row, each person's sum is made by itself.
            with suppress(Exception):
                persons = PersonClip(starts - start, self.bound)
                return self.inner.piece(*batch.piece(start, stop), persons)
        total = torch.zeros_like(self.inner.module.flat)
        for start, stop in pairwise(starts.tolist()):
            total += self._whole(batch, start, stop)
        return total

    def _whole(self, batch: NetworkBatch, start: int, stop: int) -> Tensor:
        """Return one person's sum, made in pieces and then clipped."""
        total = torch.zeros_like(self.inner.module.flat, dtype=torch.float64)
        for first in range(start, stop, self.inner.at_once):
            last = min(first + self.inner.at_once, stop)
            piece = self.inner.between(batch, first, last)
            if piece is not None:
                total += piece
        if self.bound < math.inf:
            total *= self.bound / max(float(torch.linalg.vector_norm(total)), self.bound)
        return total.to(self.inner.module.flat)


# --- records ------------------------------------------------------------------------------------


class NetworkRecords:
    """Rows and targets on their way into a network.

    Parameters
    ----------
    X : ndarray of shape (n, ...)
        Inputs of any numeric type; may be a memory map.
    targets : ndarray of shape (n, ...)
        Targets as the loss wants them.
    like : Tensor
        Whose dtype and device the inputs get.
    dtype : torch.dtype or None, default=None
        The dtype of the inputs, if it is another one.
    starts : ndarray of shape (n_persons + 1,) or None, default=None
        As in `LinearRows`: records are persons then.
    weights : ndarray of shape (n,) or None, default=None
        Weights of rows.
    """

    def __init__(
        self,
        X: np.ndarray,
        targets: np.ndarray,
        like: Tensor,
        starts: np.ndarray | None = None,
        *,
        dtype: torch.dtype | None = None,
        weights: np.ndarray | None = None,
    ) -> None:
        self._X, self._targets, self._starts = X, targets, starts
        self._weights = None if weights is None else torch.from_numpy(weights).to(like)
        self._device, self._dtype = like.device, dtype or like.dtype

    def __len__(self) -> int:
        return len(self._X) if self._starts is None else len(self._starts) - 1

    def sum(self, term: Callable[[NetworkBatch], Any], selection: Selection) -> Any:
        """Sum over the selected records."""
        return term(self.take(selection))

    def take(self, selection: Selection) -> NetworkBatch:
        """Note which records are in the batch; nothing is copied yet."""
        if isinstance(selection, slice) and self._starts is None:
            index = np.arange(*selection.indices(len(self)))
            return NetworkBatch(self, index, contiguous=True)
        if isinstance(selection, slice):
            return NetworkBatch(self, np.arange(len(self._X)), True, self._starts)
        # In the order of the file.
        index, starts = selected_rows(np.sort(selection), self._starts)
        return NetworkBatch(self, index, False, starts)

    def copy(self, index: np.ndarray | slice) -> tuple[Tensor, Tensor, Tensor | None]:
        """Copy records to the device, with their weights if they have any."""
        x, y = copied(self._X, index), copied(self._targets, index)
        if isinstance(index, slice):  # a network never gets the caller's memory
            x, y = np.array(x), np.array(y)
        rows = torch.from_numpy(x).to(self._device, self._dtype)
        weights = None if self._weights is None else self._weights[index]
        return rows, torch.from_numpy(y).to(self._device), weights


class NetworkBatch(NamedTuple):
    """Some of the records, copied a piece at a time: numbers of rows, and whose they are."""

    records: NetworkRecords
    index: np.ndarray
    contiguous: bool
    starts: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.index)

    def piece(self, start: int, stop: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """Copy some records of the batch."""
        if self.contiguous:
            first = int(self.index[0]) if len(self.index) else 0
            return self.records.copy(slice(first + start, first + stop))
        return self.records.copy(self.index[start:stop])
