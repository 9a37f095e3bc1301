"""Gaussian noise on a value, once, through the trace: the only place where noise is added."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from skdp import _trace
from skdp._random import SecureStream


def gaussian(
    value: Callable[[], Tensor], call: _trace.MechanismCall, stream: SecureStream
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
        return exact + call.scale * torch.from_numpy(stream.normal(call.shape))

    return _trace.release(call, mechanism)
