"""Trying a module on synthetic records, before it sees private ones.

A module that mixes records, as batch normalisation does, has no per-record gradient and is refused;
book-keeping is used only where it agrees with a loop over single records. docs/privacy.md, section
8, says what is seen, in evaluation and in training mode: outputs or gradients of a record that
change by more than 1e-3 of their size with other records, their number or order, or earlier
batches; and what is not: mixing in other batches, by other values, by chance that is rare, or by
hidden state.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn

from skdp.engine.modules.flat_module import BATCH_NORMS, FlatModule, Loss
from skdp.engine.modules.gradient_checks import Trial, full_precision, set_seed
from skdp.engine.modules.gradients import book_keeping, vmapped
from skdp.engine.modules.network_sum import attempted, out_of_memory
from skdp.engine.modules.recurrent import Recurrent
from skdp.engine.modules.shapes import mismatch

N_RECORDS = 33
_FEWEST_RECORDS = 7  # that a trial means something with
_SCALES = (1.0, 0.1, 3.0, 10.0)
# Records of each group are replaced at once. No record's groups are among another's, so for any two
# there is a group with the second and without the first: few passes try all ordered pairs.
_GROUPS = torch.tensor([[k in of_one for of_one in combinations(range(7), 3)] for k in range(7)])
_PARTS = slice(1), slice(-1, None), slice(2), slice(None, None, 16), slice(5), slice(None, None, 4)
_N_GRADIENTS = 11  # that are compared with those of single records

_DROPOUTS = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
    Recurrent,
)


def clipping_method(
    module: FlatModule,
    loss: Loss,
    x: Tensor,
    y: Tensor,
    n_outputs: int,
    *,
    every_gradient: bool = False,
) -> str:
    """Say how a module's per-record gradients are to be taken: "book-keeping" or "vmap".

    Book-keeping is chosen where it agrees with a loop over single records, but not where each
    gradient itself is needed (``every_gradient``). A module that mixes records, changes its buffers
    or puts out another shape than (n, n_outputs) is refused.
    """
    _refuse_layers(module.module)
    kept = module.flat.clone()
    try:
        # At other weights than the first: those of a last layer are often zero, and hide all else.
        torch.manual_seed(0)
        module.flat.add_(0.1 * torch.randn_like(kept))
        _check_outputs(module, x, n_outputs)
        _check_losses(module, loss, x, y)
        # Gradients are taken in training, but their masks would make a loop differ by chance.
        if not _is_quiet_in_training(module, x):
            module.module.eval()
        mixed = _of_mixed_scales(x)
        if attempted(_outputs, module, mixed) is not None:
            x = mixed
        chosen = torch.arange(len(x), device=x.device)[:: max(1, len(x) // _N_GRADIENTS)]
        trial, few = Trial(module, loss, x, y), Trial(module, loss, x[chosen], y[chosen])
        with full_precision(module):
            obvious = few.one_by_one()
            if not torch.isfinite(obvious.total).all():
                raise ArithmeticError("its gradients are not finite")
            if not obvious.norms.any():
                raise ArithmeticError("the loss depends on no trained parameter")
            by_books = (
                not every_gradient
                and trial.agrees(book_keeping, chosen, obvious)
                and trial.agrees_in_training(book_keeping)
            )
        if by_books and trial.gradients_in_training(book_keeping):
            return "book-keeping"
        # It sees one record at a time, and keeps all gradients.
        with full_precision(module):
            by_vmap = few.agrees(vmapped, chosen.argsort(), obvious)
        if by_vmap and few.gradients_in_training(vmapped):
            return "vmap"
    finally:
        module.set(kept)
        module.train()
    raise ValueError(
        "The gradients of this module cannot be taken record by record; write its forward pass "
        "with the records along the first dimension, without data-dependent control flow, and in "
        "the precision of its parameters: mixed_precision=True rounds to bfloat16."
    )


def tried(
    module: FlatModule,
    loss: Loss,
    targets: Tensor,
    *,
    shape: tuple[int, ...],
    n_outputs: int,
    every_gradient: bool = False,
    integers: bool = False,
) -> tuple[str, Tensor]:
    """Try a module on as many synthetic records as memory holds, for so many synthetic targets.

    Records are normal numbers, or 0 and 1 for a module that looks its inputs up; as 64-bit
    integers, where the caller has these, if it takes nothing else. Returns what `clipping_method`
    does, and the records that the module takes.
    """
    n, like = len(targets), module.flat
    looks_up = any(isinstance(p, nn.Embedding | nn.EmbeddingBag) for p in module.module.modules())
    options: Any = {"shape": shape, "n_outputs": n_outputs, "every_gradient": every_gradient}
    failures: list[tuple[Exception, Tensor]] = []
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(0)
        bits = torch.randint(2, (n, *shape)).to(like.device)
        for x in (torch.randn(n, *shape).to(like), bits.to(like), *[bits] * integers):
            y = targets.to(like.device)
            try:
                by = clipping_method(module, loss, x, y, n_outputs, every_gradient=every_gradient)
                return by, x
            except ValueError:
                raise
            except Exception as error:
                if out_of_memory(error) and n > _FEWEST_RECORDS:
                    return tried(module, loss, targets[: n // 2], **options, integers=integers)
                failures.append((error, x))
    # The first says most, but of a lookup that of integers.
    failure, of_failure = failures[-1 if looks_up else 0]
    rows = f"rows of {shape[0]} features" if len(shape) == 1 else f"records of shape {shape}"
    if in_words := mismatch(module.module, of_failure):
        raise ValueError(f"Expected module to take {rows}, as X has, but {in_words}.") from failure
    said = _said(failure)
    if looks_up and not integers:
        said += "; for an Embedding, give X as integers"
    if "checkpoint" in said:
        said += "; leave checkpointing out: physical_batch_size bounds memory"
    raise ValueError(
        f"Expected module to take {rows}, as X has, but it failed on synthetic ones "
        f"({type(failure).__name__}: {said})."
    ) from failure


def refuse_probabilities(module: FlatModule, x: Tensor) -> None:
    """Refuse a module that ends in a softmax or a sigmoid: predictions apply one themselves.

    At other weights than its own, so that a head of zeros is no probability.
    """
    kept, found = module.flat.clone(), []
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        try:
            torch.manual_seed(0)
            module.flat.add_(torch.randn_like(kept))
            found.append(attempted(_outputs, module, x))
            module.module.eval()
            found.append(attempted(_outputs, module, x))
        finally:
            module.set(kept)
            module.train()
    if any(z is not None and 0.0 <= z.min() <= z.max() <= 1.0 and z.max() > 0.0 for z in found):
        raise ValueError(
            "Expected module to return logits, but on synthetic records all its outputs are in "
            "[0, 1], as of a last Softmax or Sigmoid. Leave it out: predict_proba applies one, "
            "and two would keep all probabilities close to each other."
        )


def _refuse_layers(module: nn.Module) -> None:
    """Refuse layers that are known to mix records, or to give no gradient of one."""
    for part in module.modules():
        if isinstance(part, BATCH_NORMS):
            raise ValueError(
                f"Expected module to treat each record by itself, but it holds a "
                f"{type(part).__name__}, which mixes the records of a batch; use GroupNorm or "
                "LayerNorm, or freeze a pre-trained one: requires_grad_(False) and eval()."
            )
        if isinstance(part, nn.RNNBase) and not isinstance(part, Recurrent):
            raise ValueError(
                f"Expected recurrent layers to be nn.RNN, nn.GRU or nn.LSTM as they are, without "
                f"proj_size, got {type(part).__name__}: that of others cannot be taken record by "
                "record; put a Linear after one instead, or write a loop over cells."
            )
        if isinstance(part, nn.Embedding) and (
            part.max_norm is not None or part.scale_grad_by_freq
        ):
            raise ValueError(
                "Expected Embedding layers without max_norm and scale_grad_by_freq: both make one "
                "record's gradient depend on the others; drop them."
            )
        if isinstance(part, nn.Embedding | nn.EmbeddingBag) and part.sparse:
            raise ValueError(
                f"Expected {type(part).__name__} layers without sparse=True: noise is added to all "
                "of their rows; drop it."
            )


def _check_outputs(module: FlatModule, x: Tensor, n_outputs: int) -> None:
    buffers = {name: b.clone() for name, b in module.module.named_buffers()}
    module.module.eval()
    outputs = _outputs(module, x)
    if not isinstance(outputs, Tensor) or outputs.shape != (len(x), n_outputs):
        raise ValueError(
            f"Expected module to return a tensor of shape (n_records, {n_outputs}), got "
            f"{_form(outputs)} for {len(x)} records; adapt its last layer."
        )
    batches = [_of_mixed_scales(x), *((scale * x).to(x.dtype) for scale in _SCALES)]
    _check_batches(module, batches)
    # Training may do other things than evaluation.
    if _is_quiet_in_training(module, x):
        _check_batches(module, batches)
    module.train()
    if not _alike(_outputs(module, x, 0), _outputs(module, x, 1)):
        _check_batches(module, batches, of_any_size=False)  # other masks at other sizes
    now = dict(module.module.named_buffers())
    if now.keys() != buffers.keys() or any(not torch.equal(now[n], b) for n, b in buffers.items()):
        raise ValueError(
            "Expected module to leave its buffers alone, but one changed in a forward pass: it "
            "would carry private data from batch to batch; remove it."
        )


def _form(found: Any) -> Any:
    """Shape of a tensor, or what else something is."""
    return tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__


def _check_losses(module: FlatModule, loss: Loss, x: Tensor, y: Tensor) -> None:
    """Refuse a loss that is not one number per record, or depends on other records."""
    module.module.eval()
    with torch.no_grad():
        outputs = module.module(x)
    wrong = "Expected loss to take outputs and targets and return one number per record, (n,)"

    def of(z: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            values = loss(z, y)
        if not isinstance(values, Tensor) or values.shape != (len(z),):
            raise ValueError(f"{wrong}, got {_form(values)} for {len(z)}; use reduction='none'.")
        return values[:, None]

    try:
        values, others = of(outputs, y), of(outputs.roll(1, 0), y.roll(1, 0))
        _check_alike(others.roll(-1, 0), values, "loss", "its value")
        for part in (slice(17), *_PARTS):
            _check_alike(of(outputs[part], y[part]), values[part], "loss", "its value")
    except ValueError:
        raise
    except Exception as error:
        if out_of_memory(error):
            raise
        said = f"{type(error).__name__}: {_said(error)}"
        raise ValueError(f"{wrong}, but it failed on synthetic ones ({said}).") from error


def _said(error: Exception) -> str:
    """First line of an error's text."""
    return str(error).splitlines()[0] if str(error) else ""


def _check_batches(module: FlatModule, batches: list[Tensor], *, of_any_size: bool = True) -> None:
    """Refuse a module whose outputs for records depend on others, or on what came before."""
    index = torch.arange(len(batches[0]), device=batches[0].device)
    groups = _GROUPS[:, : len(index)].to(index.device)
    parts = [index[:17], index.flip(0), *(index[part] for part in _PARTS)] if of_any_size else []
    # Under one seed masks of dropout are the same wherever the shape is.
    tried = [
        (seed, x, outputs)
        for seed, x in enumerate(batches)
        if (outputs := attempted(_outputs, module, x, seed)) is not None
    ]
    for nth, (seed, x, outputs) in enumerate(tried):
        others = x.roll(1, 0)
        replaced = [(groups[nth], others), (groups[5], (-1e3 * x).to(x.dtype))]
        if nth == 0:  # thoroughly
            replaced += [(groups[6], 0 * x), *((group, others) for group in groups[1:])]
        for group, other in replaced:
            changed = torch.where(group.view(-1, *[1] * (x.ndim - 1)), other, x)
            found = attempted(_outputs, module, changed, seed)
            if found is not None:
                _check_alike(outputs[~group], found[~group])
        for part in parts if nth == 0 else parts[:1]:
            _check_alike(outputs[part], _outputs(module, x[part], seed))
    seed, x, outputs = tried[0]
    _check_alike(outputs, _outputs(module, x, seed))


def _of_mixed_scales(x: Tensor) -> Tensor:
    scales = torch.tensor(_SCALES, device=x.device).roll(-1).repeat(len(x))[: len(x)]
    return (scales.view(-1, *[1] * (x.ndim - 1)) * x).to(x.dtype)


def _is_quiet_in_training(module: FlatModule, x: Tensor) -> bool:
    """Let a module train without its layers of dropout; whether nothing else in it is random."""
    module.train()
    for part in module.module.modules():
        if isinstance(part, _DROPOUTS):
            part.eval()
    return _alike(_outputs(module, x, 0), _outputs(module, x, 1))


def _outputs(module: FlatModule, x: Tensor, seed: int = 0) -> Tensor:
    set_seed(x, seed)
    with torch.set_grad_enabled(module.module.training):
        return module.module(x)


def _alike(outputs: Tensor, other: Tensor) -> bool:
    if outputs.shape != other.shape:
        return False
    size = outputs.abs().nan_to_num(0.0, 0.0, 0.0).amax(1, keepdim=True)
    same = ((outputs - other).abs() <= 1e-4 + 1e-3 * size) | (outputs == other)
    return bool((same | (outputs.isnan() & other.isnan())).all())


def _check_alike(
    outputs: Tensor, other: Tensor, name: str = "module", what: str = "its output"
) -> None:
    if not _alike(outputs, other):
        raise ValueError(
            f"Expected {name} to treat each record by itself, but {what} for a record depends "
            "on the other records of the batch, or of an earlier one; remove what mixes them."
        )
