"""The one place where Gaussian noise is added: once per release, through the hook.

In floating point, or as exact integers in the units of `skdp.engine.grid`; either way the hook
rounds the result to the public grid that the call declares.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from skdp.engine import release_hook
from skdp.engine.discrete_gaussian import discrete_gaussian_integers
from skdp.fitting.streams import SecureStream

if TYPE_CHECKING:
    from torch import Tensor

V = TypeVar("V", np.ndarray, "Tensor")


def gaussian(value: Callable[[], V], call: release_hook.MechanismCall, stream: SecureStream) -> V:
    """Release value() + N(0, scale² I), for the scale of the call; 0 is no noise.

    The value, an array of float64 or a tensor, is not computed in a replay.
    """

    def mechanism() -> V:
        exact = value()
        if call.scale == 0.0:
            return exact
        if isinstance(exact, np.ndarray):
            return exact + call.scale * stream.scratch_normal(exact.shape)
        from skdp.engine.tensor_noise import noised  # who has a tensor has torch

        return noised(exact, call.scale, stream)

    return release_hook.release(call, mechanism)


def discrete_gaussian(
    value: Callable[[], np.ndarray],
    call: release_hook.MechanismCall,
    bits: int,
    stream: SecureStream,
) -> np.ndarray:
    """Release value(), integers, plus a discrete Gaussian of parameter 2^bits, in grid units.

    ``call.scale`` is what 2^bits units are worth. What comes out is the released integers times the
    grid width, in float64, which is post-processing.
    """

    def mechanism() -> np.ndarray:
        exact = value()
        noise = discrete_gaussian_integers(bits, exact.size, stream).reshape(exact.shape)
        # Modulo 2⁶⁴, should it ever come to that: a function of the release too.
        released = exact.view(np.uint64) + noise.view(np.uint64)
        return np.ldexp(released.view(np.int64) * call.scale, -bits)

    return release_hook.release(call, mechanism)
