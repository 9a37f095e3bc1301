"""Noise for a sum that is a tensor of torch, on the CPU or on a device of its own."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from skdp.fitting.streams import RARE_BITS, SecureStream


def noised(exact: Tensor, scale: float, stream: SecureStream) -> Tensor:
    """Return exact + N(0, scale² I) in double precision, whatever the precision of the value is.

    Neither noise nor grid may lose digits to it.
    """
    wide = exact.to(torch.float64, copy=True)  # first, because mixed sums take twice as long
    return wide.add_(_normals(tuple(exact.shape), exact.device, stream), alpha=scale)


def _normals(shape: tuple[int, ...], device: torch.device, stream: SecureStream) -> Tensor:
    """Standard normals in float64, until the next call: the stream's, or a device's keyed by it."""
    if device.type == "cpu":
        return torch.from_numpy(stream.scratch_normal(shape))
    key = int(stream.generator.integers(2**63))
    generator = torch.Generator(device).manual_seed(key)

    def uniform(n: int) -> Tensor:
        return torch.rand(n, generator=generator, device=device, dtype=torch.float64)

    size = math.prod(shape)
    return _box_muller(uniform(size + size % 2), uniform)[:size].view(shape)


def _box_muller(uniform: Tensor, more: Callable[[int], Tensor]) -> Tensor:
    """Turn 2m uniform numbers of 53 bits on [0, 1) into 2m normal ones, in place.

    As `skdp.fitting.streams` does it for the CPU: in the tail, where 53 bits leave gaps between the
    radii, 53 bits ``more`` are drawn: of all, since to count those would be to wait for the device.
    """
    m = len(uniform) // 2
    radius, angle = uniform[:m], uniform[m:]
    rare = radius > 1.0 - 2.0**-RARE_BITS
    fine = (1.0 - radius) - more(m) * 2.0**-53  # where rare, uniform on (0, 2^-RARE_BITS]
    radius.neg_().log1p_()
    torch.where(rare, fine.log_(), radius, out=radius)
    radius.mul_(-2.0).sqrt_()
    angle.mul_(2.0 * math.pi)
    sine = angle.sin()
    angle.cos_().mul_(radius)
    radius.mul_(sine)
    return uniform
