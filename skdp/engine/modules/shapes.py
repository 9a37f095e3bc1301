"""Records of a shape that a network does not take, in words that say which it does."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

_AXES = ("length",), ("height", "width"), ("depth", "height", "width")


def mismatch(module: nn.Module, x: Tensor) -> str:
    """Say which layer takes records of another shape than x's, and what to do about X; or nothing.

    >>> import torch
    >>> from skdp.engine.modules.shapes import mismatch
    >>> mismatch(torch.nn.Conv2d(1, 4, 3), torch.zeros(33, 28, 28))
    'its Conv2d takes records of shape (1, height, width): give X an axis of channels, X[:, None]'
    """
    reached: list[tuple[str, Any, Tensor]] = []
    handles = []
    for name, part in module.named_modules():
        if isinstance(part, _ConvNd | nn.Linear):

            def note(part: nn.Module, given: tuple, name: str = name) -> None:
                reached.append((name, part, given[0]))

            handles.append(part.register_forward_pre_hook(note))
    try:
        with torch.no_grad():
            module(x)
        return ""
    except Exception:
        if not reached:
            return ""
    finally:
        for handle in handles:
            handle.remove()
    name, part, given = reached[-1]
    layer = f"its {type(part).__name__}" + f" {name!r}" * bool(name)
    shape = tuple(given.shape[1:])
    if isinstance(part, nn.Linear):
        return _of_linear(layer, part.in_features, shape, given.shape == x.shape)
    return _of_convolution(layer, part, shape, given.shape == x.shape)


def _of_linear(layer: str, n: int, shape: tuple[int, ...], of_x: bool) -> str:
    if shape[-1:] == (n,):
        return ""
    takes = f"{layer} takes {n} features"
    if of_x:
        return f"{takes}: give X a last axis of {n}, or set in_features={shape[-1]}"
    return f"{takes} and is given {shape[-1]}, by layers before it: adapt either, or the size of X"


def _of_convolution(layer: str, part: Any, shape: tuple[int, ...], of_x: bool) -> str:
    C, axes = part.in_channels, _AXES[len(part.kernel_size) - 1]
    if shape[:1] == (C,) and len(shape) == 1 + len(axes):
        return ""
    takes = f"{layer} takes records of shape ({C}, {', '.join(axes)})"
    if not of_x:
        return f"{takes} and is given {shape}, by layers before it: adapt either, or the shape of X"
    if len(shape) == len(axes) and C == 1:
        return f"{takes}: give X an axis of channels, X[:, None]"
    if len(shape) == 1 + len(axes) and shape[-1] == C:
        return f"{takes}, channels first: give np.moveaxis(X, -1, 1)"
    side = round((math.prod(shape) / C) ** (1 / len(axes)))
    if len(shape) == 1 and C * side ** len(axes) == shape[0]:
        sizes = ", ".join(map(str, (-1, C, *[side] * len(axes))))
        return f"{takes}: if a row is all of these, give X.reshape({sizes})"
    return f"{takes}, channels first: give X in that shape, or set in_channels"
