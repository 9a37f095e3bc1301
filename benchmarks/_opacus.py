"""Opacus as its users run it, behind one function; the benchmarks do without it if it is missing.

Every run has ``loss_reduction="mean"``, ``clipping="flat"`` and no secure mode: the noise comes
from torch's generator.
"""

import torch
from torch import nn

try:
    import opacus
    from opacus import PrivacyEngine
    from opacus.validators import ModuleValidator

    VERSION = opacus.__version__
except ImportError:
    VERSION = None

MISSING = "Opacus is not installed (pip install opacus): its columns are left out.\n"


def fit_for(module):
    """Return a module with layers of Opacus in place of those that it does not take."""
    return ModuleValidator.fix(module)


def private(module, optimizer, X, y, *, batch_size, noise_multiplier, mode, poisson=False):
    """Let a `PrivacyEngine` make a training private, with clipping norm 1.

    Parameters
    ----------
    module, optimizer
        Of torch.
    X, y : Tensor
        The rows.
    batch_size : int
        Expected batch size, which Opacus divides by.
    noise_multiplier : float
        Standard deviation of the noise over the clipping norm.
    mode : {"hooks", "ghost"}
        How per-record norms are found.
    poisson : bool
        Let the loader draw Poisson batches, as it does by default.

    Returns
    -------
    step : callable
        (x, y) -> None, a whole step on a batch.
    loader : DataLoader
        Opacus' own.
    """
    rows = torch.utils.data.TensorDataset(X, y)
    made = PrivacyEngine().make_private(
        module=module,
        optimizer=optimizer,
        criterion=nn.CrossEntropyLoss(),
        data_loader=torch.utils.data.DataLoader(rows, batch_size=batch_size),
        noise_multiplier=noise_multiplier,
        max_grad_norm=1.0,
        poisson_sampling=poisson,
        grad_sample_mode=mode,
    )
    network, optimizer, loader = made[0], made[1], made[-1]
    criterion = made[2] if mode == "ghost" else nn.CrossEntropyLoss()
    if not poisson:
        optimizer.expected_batch_size = batch_size  # it was worked out from whole batches an epoch

    def step(x, y):
        optimizer.zero_grad()
        criterion(network(x), y).backward()
        optimizer.step()

    return step, loader
