"""What a noisy histogram of the lengths of gradients tells: where to clip them."""

from __future__ import annotations

import math

import numpy as np

# Edges of the histograms, in units of the clip.
RATIO = math.sqrt(2.0)
CLIP_EDGES = tuple(RATIO**k for k in range(-6, 9))  # 1/8 to 16
CHECK_EDGES = (1.0, 2.0, 4.0, 8.0)
LOUD = 3.5  # standard deviations of noise beyond which a cell is not empty
GAP = 3  # cells, beyond which one is lone
HIDDEN, MOST_HIDDEN = 0.02, 0.25  # of the records, that a cell may hide behind its noise


def learned_clip(counts: np.ndarray, noise: float, n_rows: int) -> float:
    """Choose a clip, in units of the old one, from noisy counts of lengths by `CLIP_EDGES`.

    It is the edge after the last cell that is not empty for sure. Of a lone one far above the
    others twice as much is asked, as one of many cells may have much noise. Clipped fits have
    longer gradients than others; so a clip that is not raised gets one edge more. A cell whose
    noise could hide many records may not be empty: then the clip is up to twice that, and where
    most could hide it stays.
    """
    hidden = LOUD * noise / n_rows
    if hidden > MOST_HIDDEN:
        return 1.0
    top = int(counts.argmax())
    for cell in np.flatnonzero(counts > LOUD * noise):
        if top < cell <= top + GAP or counts[cell] > 2 * LOUD * noise:
            top = max(top, int(cell))
    if counts[top] <= LOUD * noise:  # all lengths are below the first edge
        top = -1
    edge = CLIP_EDGES[0] * RATIO ** (top + 1)
    return edge * (1.0 if edge > 1.01 else RATIO) * min(max(hidden / HIDDEN, 1.0), 2.0)
