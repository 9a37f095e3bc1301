"""The public grid on which every released value ends.

The theorems are about real numbers; what leaves is a double. Which doubles a noisy sum can be
depends on the sum (Mironov 2012), so a raw double can refute a data set with certainty. Released
values are therefore rounded to multiples of a power of two that is a function of public facts: in
exact arithmetic post-processing, and free; in doubles a mitigation, not a proof.

>>> import numpy as np
>>> from skdp._grid import grid_width, on_grid
>>> width = grid_width(3.0)
>>> width == 2.0**-19
True
>>> bool((np.fmod(on_grid(np.array([0.1, -7.3]), width), width) == 0).all())
True

References
----------
I. Mironov, *On Significance of the Least Significant Bits for Differential Privacy*, CCS 2012.
"""

from __future__ import annotations

import math
from typing import Any

# The cell is 2^-20 to 2^-21 of the noise. Wide enough that a cell near the centre holds about 2^32
# doubles of the noise, so that which of them the generator cannot make no longer shows; narrow
# enough to add less than 1e-13 to the variance.
GRID_BITS = 20

LEAST_SCALE, MOST_SCALE = 1e-290, 1e290  # the grid, and what rounds to it, stay in normal doubles


def grid_width(scale: float) -> float:
    """Largest power of two that is at most 2^-20 of a noise scale: a function of public facts.

    Parameters
    ----------
    scale : float
        Standard deviation of the noise, or what stands for it; 0 for no noise.

    Returns
    -------
    float
        Width of the grid; 0, which is no grid, without noise.

    Raises
    ------
    ValueError
        If doubles hold no such grid.
    """
    if scale == 0.0:
        return 0.0
    if not LEAST_SCALE <= scale <= MOST_SCALE:
        raise ValueError(
            f"Expected noise of a scale from {LEAST_SCALE:g} to {MOST_SCALE:g}, got {scale:.3g}: "
            "released values end on a grid in proportion to it, and doubles hold none so fine or "
            "coarse. Rescale the data, or use another clip_norm, data_norm or noise_multiplier."
        )
    _, exponent = math.frexp(scale)
    return math.ldexp(1.0, exponent - 1 - GRID_BITS)


def on_grid(values: Any, width: float) -> Any:
    """Round to the nearest multiples of a power of two, ties to even; -0.0 becomes 0.0.

    Parameters
    ----------
    values : ndarray or Tensor of float64
        What is to be released.
    width : float
        A power of two; 0 leaves the values as they are.

    Returns
    -------
    ndarray or Tensor
        Of the type and shape of ``values``.
    """
    # A sum with this has no digits below the width, and none that a double loses above it; values
    # beyond 2^51 widths lose a unit in the last place, and are multiples of the width too.
    far = 1.5 * 2.0**52 * width
    return (values + far) - far if width > 0.0 else values
