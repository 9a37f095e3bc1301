"""Per-record gradients of single layers, side by side: their norms, and their weighted sums.

A layer is used once per record. From its input a and the gradient b of the record's loss in its
output, each rule gives for one parameter

- the squared norm of every record's gradient, shape (B,), and
- the function c ↦ Σ_i c_i g_i, the weighted sum of the gradients, in the parameter's shape.

No gradient of a single record is kept where that costs more than its norm (*ghost norm*, Li et al.
2022; *book-keeping*, Bu et al. 2023): the gradient of a matrix is Σ_t b_t a_tᵀ over the positions t
that share it, and its squared norm Σ_{t,t'} (a_t·a_t')(b_t·b_t'). With few positions the second
form is cheaper, with many the gradient itself.

Where ``rows`` rows that follow each other are one person, the norm of the sum of their gradients is
found alike (`squares_of_sums`): each row is a position, or has several.

Li, Tramèr, Liang & Hashimoto, *Large Language Models Can Be Strong Differentially Private
Learners*, ICLR 2022. Bu, Wang, Zha & Karypis, *Differentially Private Optimization on Large Model
at Small Cost*, ICML 2023.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d
InstanceNorm = nn.InstanceNorm1d | nn.InstanceNorm2d | nn.InstanceNorm3d


class PerSample(NamedTuple):
    """Gradients of B records in one parameter, without the gradients themselves."""

    squared_norms: Tensor
    weighted_sum: Callable[[Tensor], Tensor]


def _instantiated(gradients: Tensor) -> PerSample:
    """Gradients (B, ...) that are small enough to be kept."""
    flat = gradients.flatten(1)
    squares = torch.linalg.vector_norm(flat, dim=1).square()
    return PerSample(squares, lambda c: (c @ flat).reshape(gradients.shape[1:]))


def _matrix(a: Tensor, b: Tensor) -> PerSample:
    """Σ_t b_t a_tᵀ in G groups, from a (B, G, T, p) and b (B, G, T, r): shape (G, r, p)."""
    _, groups, positions, n_in = a.shape
    n_out = b.shape[-1]

    def weighted_sum(c: Tensor) -> Tensor:
        weighted = b * c[:, None, None, None]
        by_group = [
            weighted[:, g].reshape(-1, n_out).T @ a[:, g].reshape(-1, n_in) for g in range(groups)
        ]
        return torch.stack(by_group)

    if positions == 1:
        squares = (_norms(a) * _norms(b)).square().sum((1, 2))
        return PerSample(squares.to(a.dtype), weighted_sum)
    if _are_few(positions, n_in, n_out):
        # In double precision: the terms may cancel, and a norm that came out too small would let a
        # record contribute more than C.
        a_wide, b_wide = a.double(), b.double()
        products = (a_wide @ a_wide.mT) * (b_wide @ b_wide.mT)
        terms = a_wide.square().sum(-1).sqrt() * b_wide.square().sum(-1).sqrt()
        squares = _at_least(products.sum((1, 2, 3)), terms.sum((1, 2)))
        return PerSample(squares.to(a.dtype), weighted_sum)
    return _instantiated(b.mT @ a)


_SINGLE = range(128, 1025)  # numbers of summands for which single precision is worth it, and enough


def _are_few(positions: int, n_in: int, n_out: int) -> bool:
    """Whether a sum over positions costs more than its norm, in double at about 4 times."""
    return positions == 1 or 4 * positions * (n_in + n_out) <= n_in * n_out


def _norms(vectors: Tensor) -> Tensor:
    """Norms over the last dimension, returned in double precision: one may be tiny, another huge.

    A few hundred squares are added in single precision, several times as fast. In any order their
    sum errs by 1024·2⁻²⁴ at most, its root by half of that, and the norm of a product of two such
    vectors by 6.2e-5, which leaves a third of `network_sum.ROUNDING`. Where squares could underflow
    or overflow, double precision is taken: vector by vector, since no record may change the
    rounding of others. That is also why the number of vectors does not matter. A device would have
    to be waited for to know.
    """
    single = vectors.dtype == torch.float32 and vectors.device.type == "cpu"
    if not single or vectors.shape[-1] not in _SINGLE:
        return torch.linalg.vector_norm(vectors, dim=-1, dtype=torch.float64)
    norms = torch.linalg.vector_norm(vectors, dim=-1).double()
    least, most = torch.aminmax(norms)
    if not (least > 1e-15 and most < 1e15):  # or NaN
        odd = ~((norms > 1e-15) & (norms < 1e15))
        norms[odd] = torch.linalg.vector_norm(vectors[odd], dim=-1, dtype=torch.float64)
    return norms


def _at_least(squares: Tensor, terms: Tensor) -> Tensor:
    """Squared norms, not below a millionth of the squared sum of the norms of their terms.

    Where terms cancel to less than a thousandth, rounding of their sum in single precision could
    exceed what the exact norm allows; such a record is clipped a little more than it need be.
    """
    return torch.maximum(squares, 1e-6 * terms.square())


def linear(module: nn.Linear, name: str, a: Tensor, b: Tensor) -> PerSample:
    """``nn.Linear`` on (B, ..., p): everything between the record and the feature is a position."""
    if a.ndim == 2:
        norms = _norms(b)
        if name == "bias":
            return PerSample(norms.square().to(b.dtype), lambda c: c @ b)
        norms = norms * _norms(a)
        return PerSample(norms.square().to(b.dtype), lambda c: (b * c[:, None]).T @ a)
    b = b.reshape(len(b), -1, b.shape[-1])
    if name == "bias":
        return _instantiated(b.sum(1))
    a = a.reshape(len(a), -1, a.shape[-1])
    sums = _matrix(a[:, None], b[:, None])
    return PerSample(sums.squared_norms, lambda c: sums.weighted_sum(c)[0])


def convolution(module: Convolution, name: str, a: Tensor, b: Tensor, rows: int = 1) -> PerSample:
    """``nn.Conv1d``, ``nn.Conv2d``, ``nn.Conv3d``: a matrix for the patch of every position."""
    if name == "bias":
        return _instantiated(_joined(b.flatten(2).sum(2), rows))
    n_out, shape = len(module.weight) // module.groups, module.weight.shape
    outputs = b.flatten(2).unflatten(1, (module.groups, n_out)).mT
    a = _padded(module, a)
    few = _are_few(rows * outputs.shape[2], math.prod(shape[1:]), n_out)
    if not few and a.device.type == "cpu":  # up to 10 times as fast as patches, which are copies
        return _instantiated(_joined(_gradients(module, a, b), rows))
    sums = _matrix(*(_positions(t, rows) for t in (_patches(module, a), outputs)))
    return PerSample(sums.squared_norms, lambda c: sums.weighted_sum(c).reshape(shape))


def _gradients(module: Convolution, a: Tensor, b: Tensor) -> Tensor:
    """Gradients (B, ...) in the weight, by one convolution of which each row is a group."""
    n, shape = len(a), module.weight.shape
    of_weight = getattr(nn.grad, f"conv{len(shape) - 2}d_weight")  # type: ignore
    a, b = a.flatten(0, 1)[None], b.flatten(0, 1)[None]
    steps = (module.stride, 0, module.dilation)
    return of_weight(a, (n * shape[0], *shape[1:]), b, *steps, n * module.groups).view(n, *shape)


def _joined(gradients: Tensor, rows: int) -> Tensor:
    """Gradients (B, ...) of records from those (B·rows, ...) of their rows."""
    return gradients if rows == 1 else gradients.unflatten(0, (-1, rows)).sum(1)


def _positions(t: Tensor, rows: int) -> Tensor:
    """Reshape (B·rows, G, T, p) to (B, G, rows·T, p)."""
    return t if rows == 1 else t.unflatten(0, (-1, rows)).transpose(1, 2).flatten(2, 3)


def _patches(module: Convolution, a: Tensor) -> Tensor:
    """Patches (B, G, T, C/G·k) of the padded input of a convolution."""
    axes = zip(module.kernel_size, module.dilation, module.stride, strict=True)
    for axis, (k, d, s) in enumerate(axes, start=2):
        a = a.unfold(axis, d * (k - 1) + 1, s)[..., ::d]  # a view: faster than F.unfold
    n = len(module.kernel_size)
    a = a.unflatten(1, (module.groups, -1)).movedim(2, 2 + n)  # channels behind positions
    return a.flatten(2 + n).flatten(2, 1 + n)


def _padded(module: Convolution, a: Tensor) -> Tensor:
    sides = []  # before and after, last dimension first
    for i in reversed(range(len(module.kernel_size))):
        if module.padding == "same":
            total = module.dilation[i] * (module.kernel_size[i] - 1)
            sides += [total // 2, total - total // 2]
        else:
            sides += [0, 0] if module.padding == "valid" else [int(module.padding[i])] * 2
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
    return F.pad(a, sides, mode=mode) if any(sides) else a


def embedding(
    module: nn.Embedding | nn.EmbeddingBag, name: str, a: Tensor, b: Tensor, rows: int = 1
) -> PerSample:
    """``nn.Embedding``: positions that look up the same row share its gradient."""
    index = a.reshape(len(a) // rows, -1)
    b = b.reshape(len(index), -1, b.shape[-1])
    if module.padding_idx is not None:
        b = b.masked_fill((index == module.padding_idx)[..., None], 0.0)
    wide = b.double()
    terms = wide.square().sum(-1).sqrt()
    squares = _squares_by_index(index, wide, module.num_embeddings)
    squares = _at_least(squares, terms.sum(1)).to(b.dtype)

    def weighted_sum(c: Tensor) -> Tensor:
        # In double precision too: very many positions may share a row.
        total = torch.zeros_like(module.weight, dtype=wide.dtype)
        weighted = (wide * c.double()[:, None, None]).flatten(0, 1)
        return total.index_add_(0, index.reshape(-1), weighted).to(b.dtype)

    return PerSample(squares, weighted_sum)


def _squares_by_index(index: Tensor, b: Tensor, n_indices: int) -> Tensor:
    """Σ_v ‖Σ_{t: index_t = v} b_t‖² of each record, (B,), from (B, T) and (B, T, r)."""
    keys = index + n_indices * torch.arange(len(index), device=index.device)[:, None]
    found, place = keys.flatten().unique(return_inverse=True)
    sums = b.new_zeros(len(found), b.shape[-1]).index_add_(0, place, b.flatten(0, 1))
    squares = b.new_zeros(len(index))
    return squares.index_add_(0, found // n_indices, sums.square().sum(1))


def embedding_bag(
    module: nn.EmbeddingBag, name: str, a: Tensor, b: Tensor, rows: int = 1
) -> PerSample:
    """``nn.EmbeddingBag`` of bags (B, T): an embedding whose positions have shares of b."""
    kept = torch.ones_like(a) if module.padding_idx is None else a != module.padding_idx
    kept = kept.to(b.dtype)[..., None]
    if module.mode == "max":  # a feature's whole gradient is that of its largest entry
        found = module.weight[a].masked_fill(kept == 0, -math.inf)
        kept = torch.zeros_like(found).scatter_(1, found.argmax(1, keepdim=True), 1.0)
    elif module.mode == "mean":
        kept = kept / kept.sum(1, keepdim=True).clamp(min=1)
    return embedding(module, name, a, kept * b[:, None], rows)


def layer_norm(
    module: nn.LayerNorm | nn.RMSNorm, name: str, a: Tensor, b: Tensor, rows: int = 1
) -> PerSample:
    """``nn.LayerNorm``, ``nn.RMSNorm``: elementwise scale and shift, shared by all positions."""
    if name == "weight":
        normalized: Any = F.layer_norm if isinstance(module, nn.LayerNorm) else F.rms_norm
        b = b * normalized(a, module.normalized_shape, eps=module.eps)
    return _instantiated(b.reshape(len(b) // rows, -1, *module.normalized_shape).sum(1))


def group_norm(
    module: nn.GroupNorm | InstanceNorm, name: str, a: Tensor, b: Tensor, rows: int = 1
) -> PerSample:
    """``nn.GroupNorm``, and ``nn.InstanceNorm``, where each channel is a group.

    Scale and shift of channels are shared by all positions.
    """
    if name == "weight":
        groups = module.num_groups if isinstance(module, nn.GroupNorm) else module.num_features
        b = b * F.group_norm(a, groups, eps=module.eps)
    channels = b.reshape(*b.shape[:2], math.prod(b.shape[2:])).sum(2)
    return _instantiated(_joined(channels, rows))


RULES: dict[type[nn.Module], Callable[..., PerSample]] = {
    nn.Linear: linear,
    nn.Conv1d: convolution,
    nn.Conv2d: convolution,
    nn.Conv3d: convolution,
    nn.Embedding: embedding,
    nn.EmbeddingBag: embedding_bag,
    nn.LayerNorm: layer_norm,
    nn.RMSNorm: layer_norm,
    nn.GroupNorm: group_norm,
    nn.InstanceNorm1d: group_norm,
    nn.InstanceNorm2d: group_norm,
    nn.InstanceNorm3d: group_norm,
}


_FEW_POSITIONS = 16  # up to which no gradient is as cheap as its norm


def squares_of_sums(
    module: nn.Module, names: Iterable[str], a: Tensor, b: Tensor, rows: int
) -> Tensor:
    """Squared norms (B,), in double, of the sums of ``rows`` rows' gradients, over all parameters.

    Of a layer that has a rule; inputs and gradients in its outputs are (B·rows, ...).
    """
    if isinstance(module, nn.Linear):
        return _squares_of_linear(set(names), a, b, rows)
    rule = RULES[type(module)]
    found = [rule(module, name, a, b, rows).squared_norms.double() for name in names]
    return torch.stack(found).sum(0)


def _squares_of_linear(names: set[str], a: Tensor, b: Tensor, rows: int) -> Tensor:
    """Σ_tt' (a_t·a_t' + 1)(b_t·b_t'): the 1 is that of the bias."""
    a = a.reshape(len(a) // rows, -1, a.shape[-1])
    b = b.reshape(len(a), -1, b.shape[-1])
    positions, n_in, n_out = a.shape[1], a.shape[2], b.shape[2]
    if positions > _FEW_POSITIONS and 4 * positions * (n_in + n_out) > n_in * n_out:
        squares = torch.zeros(len(a), dtype=torch.float64, device=a.device)
        if "weight" in names:
            squares += (b.mT @ a).flatten(1).double().square().sum(1)
        if "bias" in names:
            squares += b.sum(1).double().square().sum(1)
        return squares
    a, b = a.double(), b.double()
    products = a @ a.mT if "weight" in names else a.new_zeros(())
    if "bias" in names:
        products = products + 1.0
    return (products * (b @ b.mT)).sum((1, 2))
