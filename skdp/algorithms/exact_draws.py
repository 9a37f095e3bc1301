"""Exact draws of a posterior on a lattice, by rejection; how stands in `algorithms.envelopes`.

Nothing is capped: a draw takes as many trials as it takes, and how many is a secret of the data.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from skdp.algorithms.envelopes import Envelope
from skdp.algorithms.lattice_posterior import LatticePotential
from skdp.engine.coins import exp_minus
from skdp.engine.lattice_gaussian import BITS
from skdp.fitting.streams import SecureStream

_FEW, _MANY = 16, 1024  # trials at once, at first and at most


def rejection(potential: LatticePotential, stream: SecureStream) -> Iterator[np.ndarray]:
    """Yield exact draws g (p,), one after the other."""
    envelope, size = Envelope(potential), _FEW
    random = stream.generator.integers
    while True:
        points, z, shells = envelope.propose(size, random)
        for part in potential.parts(len(points)):
            x = np.array(envelope.exponents(points[part], z[part], shells[part]), dtype=object)
            whole, fraction = x >> BITS, (x & (2**BITS - 1)).astype(np.int64)
            yield from points[part][exp_minus(whole, fraction, BITS, random)]
        size = min(2 * size, _MANY)
