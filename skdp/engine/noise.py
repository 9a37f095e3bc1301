"""The one place where Gaussian noise is added: once per release, through the hook.

In floating point, or as exact integers in the units of `skdp.engine.grid`; either way the hook
rounds the result to the public grid that the call declares.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from skdp import _release_hook
from skdp._random import RARE_BITS, SecureStream
from skdp.engine.discrete_gaussian import discrete_gaussian_integers


def gaussian(
    value: Callable[[], Tensor], call: _release_hook.MechanismCall, stream: SecureStream
) -> Tensor:
    """Release value() + N(0, scale² I).

    Parameters
    ----------
    value : callable
        Computes the private value; not called in a replay.
    call : MechanismCall
        What the release declares; ``call.scale`` is the standard deviation, 0 for no noise.
    stream : SecureStream
        Source of the noise.
    """

    def mechanism() -> Tensor:
        exact = value()
        if call.scale == 0.0:
            return exact
        # In double precision whatever the value's is: neither noise nor grid loses digits to it.
        wide = exact.to(torch.float64, copy=True)  # first, because mixed sums take twice as long
        return wide.add_(_normals(call.shape, exact.device, stream), alpha=call.scale)

    return _release_hook.release(call, mechanism)


def discrete_gaussian(
    value: Callable[[], Tensor], call: _release_hook.MechanismCall, bits: int, stream: SecureStream
) -> Tensor:
    """Release value() + X in units of the grid, X discrete Gaussian of parameter 2^bits.

    Parameters
    ----------
    value : callable
        Computes the private value: integers. Not called in a replay.
    call : MechanismCall
        What the release declares; ``call.scale`` is what 2^bits grid units are worth.
    bits : int
        The noise in grid units, as a power of two.
    stream : SecureStream
        Source of the noise.

    Returns
    -------
    Tensor
        In float64: the released integers times the grid width, which is post-processing.
    """

    def mechanism() -> Tensor:
        exact = value().numpy()
        noise = discrete_gaussian_integers(bits, exact.size, stream).reshape(exact.shape)
        # Modulo 2⁶⁴, should it ever come to that: a function of the release too.
        released = exact.view(np.uint64) + noise.view(np.uint64)
        return torch.from_numpy(np.ldexp(released.view(np.int64) * call.scale, -bits))

    return _release_hook.release(call, mechanism)


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

    As `skdp._random` does it for the CPU: in the tail, where 53 bits leave gaps between the radii,
    53 bits ``more`` are drawn.
    """
    m = len(uniform) // 2
    radius, angle = uniform[:m], uniform[m:]
    rare = (radius > 1.0 - 2.0**-RARE_BITS).nonzero()[:, 0]
    fine = (1.0 - radius[rare]) - more(len(rare)) * 2.0**-53  # uniform on (0, 2^-RARE_BITS]
    radius.neg_().log1p_()
    radius[rare] = fine.log()
    radius.mul_(-2.0).sqrt_()
    angle.mul_(2.0 * math.pi)
    sine = angle.sin()
    angle.cos_().mul_(radius)
    radius.mul_(sine)
    return uniform
