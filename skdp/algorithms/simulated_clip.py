"""A clip from synthetic rows: how long gradients are where a model's own draws are its data.

Rows, parameters and targets come from a fixed public stream and from what the caller declared, and
their number is fixed, so the clip is a public fact that a plan may hold.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from skdp.models.user_models import Simulator, UserModel
from skdp.models.user_priors import Prior

N_ROWS, N_DRAWS = 256, 32
QUANTILE = 0.99  # of the lengths at one θ; the median over θ


def simulated_clip(
    model: UserModel, simulator: Simulator, prior: Prior, start: np.ndarray, x: Tensor
) -> float | None:
    """Return the median over θ of the quantile of gradients' lengths at θ.

    Of a wide prior most draws are absurd, and lengths span orders of magnitude: the median is that
    of a usual θ, and the clip that is learned in the run starts from there. θ are draws of the
    prior, or ``start`` (n_parameters,) where it has none; ``x`` are synthetic rows (m, n_features).
    None where no θ has gradients that are finite and not all 0.
    """
    generator = torch.Generator().manual_seed(0)
    draws = prior.sample(N_DRAWS, generator)
    if draws is None:
        draws = torch.from_numpy(start)[None]
    lengths = []
    for theta in draws:
        try:
            gradients = model.gradients(theta, x, simulator.targets(theta, x, generator))
        except (ValueError, RuntimeError):  # at an absurd θ a function may fail
            continue
        norms = torch.linalg.vector_norm(gradients, dim=1)
        norms = norms[torch.isfinite(norms)]
        if norms.any():
            lengths.append(float(norms.quantile(QUANTILE)))
    return float(np.median(lengths)) if lengths else None
