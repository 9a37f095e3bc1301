"""Networks as algorithms see them: parameters as one tensor, a clipped sum, records; and back."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from skdp._bounded_sum import MAX_ROWS
from skdp._rows import LinearRows
from skdp._validate import expected, in_range, one_of
from skdp.engine.clipping import LinearClippedSum, Residual
from skdp.engine.loop import ClippedSum, Rows
from skdp.engine.network import FlatModule, Loss, NetworkClippedSum, out_of_memory
from skdp.engine.records import NetworkRecords
from skdp.engine.trial import N_RECORDS as N_RECORDS
from skdp.engine.trial import check_device, clipping_method

_FEWEST_RECORDS = 7  # that a trial means something with
_NO_NORM = 1e100  # rows of a lone linear layer are not clipped, gradients are


class Model(Protocol):
    """What a run needs of a model; built from public facts and initial weights alone."""

    max_rows: float  # beyond, the rounding of a sum is not covered

    @property
    def start(self) -> Tensor:
        """Initial parameters."""
        ...

    def clipped_sum(
        self,
        clip_norm: float,
        *,
        clipping: str = "flat",
        physical_batch_size: int | None = None,
        prenoise_scale: float = 0.0,
    ) -> ClippedSum:
        """Return the private value of a step."""
        ...

    def records(self, X: np.ndarray, targets: np.ndarray) -> Rows:
        """Wrap the private rows for the clipped sum."""
        ...

    def vector(self, theta: Tensor) -> np.ndarray:
        """Return parameters in the order of `parameter_names`."""
        ...


class NetworkModel:
    """Any module, by book-keeping or vmap.

    Parameters
    ----------
    module : nn.Module
        Copied; its weights are the start.
    loss : callable
        Loss of each record.
    n_features, n_outputs : int
        Shape of a record and of the output.
    targets : ndarray of shape (N_RECORDS, ...)
        Synthetic targets, for a trial of the module.
    device : device or None
        Where to run; None is where the parameters are.
    mixed_precision : bool
        Run the network in bfloat16.
    every_gradient : bool
        Whether each record's gradient itself is needed; see `clipping_method`.
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Loss,
        *,
        n_features: int,
        n_outputs: int,
        targets: np.ndarray,
        device: Any = None,
        mixed_precision: bool = False,
        every_gradient: bool = False,
    ) -> None:
        self.max_rows = math.inf
        self._every_gradient = every_gradient
        place = check_device(device)
        self._flat, self._loss = FlatModule(module, place, mixed_precision=mixed_precision), loss
        self._method = self._tried(torch.from_numpy(targets), n_features, n_outputs)

    def _tried(self, targets: Tensor, n_features: int, n_outputs: int) -> str:
        """Try the module on synthetic records: normal numbers, or 0 and 1 for one that looks up."""
        like, shape = self._flat.flat, (len(targets), n_features)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            for made_up in (torch.randn(shape), torch.randint(2, shape)):
                try:
                    x, y = made_up.to(like), targets.to(like.device)
                    return clipping_method(
                        self._flat,
                        self._loss,
                        x,
                        y,
                        n_outputs,
                        every_gradient=self._every_gradient,
                    )
                except (RuntimeError, IndexError, TypeError, AttributeError, KeyError) as error:
                    if out_of_memory(error) and len(targets) > _FEWEST_RECORDS:
                        return self._tried(targets[: len(targets) // 2], n_features, n_outputs)
                    failure = error
        raise ValueError(
            f"Expected module to take rows of {n_features} features, but it failed on made-up ones "
            f"({type(failure).__name__}: {str(failure).splitlines()[0] if str(failure) else ''})."
        ) from failure

    @property
    def start(self) -> Tensor:
        """Initial parameters."""
        return self._flat.flat.clone()

    def clipped_sum(
        self,
        clip_norm: float,
        *,
        clipping: str = "flat",
        physical_batch_size: int | None = None,
        prenoise_scale: float = 0.0,
    ) -> NetworkClippedSum:
        """Return the private value of a step."""
        return NetworkClippedSum(
            self._flat,
            self._loss,
            clip_norm,
            clipping=clipping,
            physical_batch_size=physical_batch_size,
            method=self._method,
            prenoise_scale=prenoise_scale,
        )

    def records(self, X: np.ndarray, targets: np.ndarray) -> NetworkRecords:
        """Wrap the private rows."""
        return NetworkRecords(X, targets, self._flat.flat)

    def vector(self, theta: Tensor) -> np.ndarray:
        """Return a copy of the parameters."""
        return theta.cpu().numpy().copy()


class LinearModel:
    """A lone linear layer, by the closed form of its clipped sum.

    Parameters
    ----------
    module : nn.Linear
        Its weights are the start.
    residual : callable
        ∂ log p/∂z from logits (m, K) and targets (m, K).
    encode : callable
        Maps targets as a network's loss wants them to (m, K).
    neighboring_relation : str
        Who is a neighbour.
    """

    def __init__(
        self,
        module: nn.Linear,
        residual: Residual,
        encode: Callable[[np.ndarray], np.ndarray],
        neighboring_relation: str,
    ) -> None:
        self._neighboring_relation = neighboring_relation
        self.max_rows: float = MAX_ROWS
        self._weight, self._bias = module.weight.detach(), module.bias.detach()
        self._residual, self._encode = residual, encode

    @property
    def start(self) -> Tensor:
        """Initial parameters, (n_outputs, n_features + 1), the bias last."""
        return torch.cat([self._weight, self._bias[:, None]], dim=1).double()

    def clipped_sum(
        self,
        clip_norm: float,
        *,
        clipping: str = "flat",
        physical_batch_size: int | None = None,
        prenoise_scale: float = 0.0,
    ) -> LinearClippedSum:
        """Return the private value of a step; it knows flat clipping only."""
        one_of(("flat",), clipping=clipping)
        in_range(0.0, 0.0, prenoise_scale=prenoise_scale, closed="both")
        return LinearClippedSum(self._residual, clip_norm)

    def records(self, X: np.ndarray, targets: np.ndarray) -> LinearRows:
        """Wrap the private rows."""
        return LinearRows(
            X,
            self._encode(targets),
            data_norm=_NO_NORM,
            fit_intercept=True,
            neighboring_relation=self._neighboring_relation,
        )

    def vector(self, theta: Tensor) -> np.ndarray:
        """Return all weights, then all biases."""
        return torch.cat([theta[:, :-1].flatten(), theta[:, -1]]).float().numpy()


# --- modules ------------------------------------------------------------------------------------


def build_module(
    make: Callable[[int, int], nn.Module] | nn.Module, n_features: int, n_outputs: int, seed: int
) -> nn.Module:
    """Return a module, or the one that a function makes, its weights drawn under a seed.

    Parameters
    ----------
    make : nn.Module or callable
        A callable takes (n_features, n_outputs).
    n_features, n_outputs : int
        Shape of a record and of the output.
    seed : int
        Of torch's generator, which is put back afterwards. Initial weights need not be secret.
    """
    if isinstance(make, nn.Module):
        return make
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = make(n_features, n_outputs) if callable(make) else None
    if not isinstance(module, nn.Module):
        raise expected(
            "an nn.Module, or a function of (n_features, n_outputs) that returns one", module=make
        )
    return module


def with_parameters(module: nn.Module, flat: np.ndarray) -> nn.Module:
    """Return a copy of a module whose trained parameters are a flat vector."""
    module = copy.deepcopy(module)
    parameters = [p for p in module.parameters() if p.requires_grad]
    sizes = [p.numel() for p in parameters]
    vectors = torch.from_numpy(np.ascontiguousarray(flat)).split(sizes)
    with torch.no_grad():
        for parameter, vector in zip(parameters, vectors, strict=True):
            parameter.copy_(vector.view(parameter.shape))
    return module.eval()


def weights(module: nn.Module) -> list[np.ndarray]:
    """Return all weights and buffers of a module, trained or not."""
    return [value.detach().cpu().numpy() for value in module.state_dict().values()]


def parameter_names(module: nn.Module) -> list[str]:
    """Names of the trained parameters, one after the other, e.g. ``"0.weight[3, 1]"``."""
    return [
        f"{name}[{', '.join(map(str, index))}]"
        for name, p in module.named_parameters()
        if p.requires_grad
        for index in np.ndindex(*p.shape)
    ]


def predict(
    module: nn.Module, X: np.ndarray, *, double: bool, batch_size: int = 4096
) -> np.ndarray:
    """Outputs of a module on rows, shape (n, n_outputs), worked out in double precision or not."""
    if double:
        module = copy.deepcopy(module).double()
    like = next(module.parameters())
    pieces = []
    with torch.no_grad():
        for start in range(0, len(X), batch_size):
            piece = torch.from_numpy(np.array(X[start : start + batch_size]))
            pieces.append(module.eval()(piece.to(like)).double().cpu().numpy())
    return np.concatenate(pieces)
