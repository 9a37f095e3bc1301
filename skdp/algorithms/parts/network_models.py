"""What a training run needs of a network: parameters as one tensor, a clipped sum, records.

Any module goes by book-keeping or vmap, our own perceptron by products of integers where sums are
on a grid, and a lone linear layer by the closed form of its clipped sum. Each is built from public
facts and initial weights alone, and has ``start``, the initial parameters; ``clipped_sum``, the
private value of a step; ``records``, which wraps the private rows for it; ``vector``, which puts
parameters in the order of `parameter_names`; and ``max_rows``, beyond which the rounding of a sum
is not covered.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from skdp.engine.linear_sums import LinearClippedSum
from skdp.engine.modules.checks import N_RECORDS, refuse_probabilities, tried
from skdp.engine.modules.flat_module import FlatModule, Loss
from skdp.engine.modules.network_records import NetworkRecords
from skdp.engine.modules.network_sum import NetworkClippedSum
from skdp.engine.perceptron_sum import PerceptronSum, RoundedRows
from skdp.fitting.validate import in_range, one_of
from skdp.models.tasks import Classification, Task
from skdp.rows.bounded_sum import MAX_ROWS
from skdp.rows.records import LinearRows

_NO_NORM = 1e100  # rows of a lone linear layer are not clipped, gradients are


class Clip(NamedTuple):
    """How a record's gradient is clipped, weighted and worked on; see `NetworkClippedSum`."""

    clip_norm: float
    clipping: str = "flat"
    physical_batch_size: int | None = None
    weight_bound: float = 1.0
    prenoise_scale: float = 0.0


class PrivateRows(NamedTuple):
    """Rows (n, ...) and targets (n, ...), where persons begin if they are the records; weights."""

    X: np.ndarray
    targets: np.ndarray
    starts: np.ndarray | None = None
    weights: np.ndarray | None = None


class ModuleTrial(NamedTuple):
    """What a trial of a module on synthetic records found.

    How per-record gradients are taken, the number of trained parameters, and about how much memory
    the gradients of one more record take.
    """

    method: str
    n_parameters: int
    bytes_per_record: int


class NetworkModel:
    """Any module, which is copied, by book-keeping or vmap; see `try_out`.

    It runs on a device, or where its parameters are, in bfloat16 with mixed precision. ``dtype`` is
    that in which it takes records.
    """

    max_rows = math.inf

    def __init__(
        self,
        module: nn.Module,
        loss: Loss,
        method: str = "book-keeping",
        *,
        device: Any = None,
        mixed_precision: bool = False,
    ) -> None:
        self._flat = FlatModule(module, device, mixed_precision=mixed_precision)
        self._loss, self._method, self.dtype = loss, method, self._flat.flat.dtype

    def try_out(
        self,
        task: Task,
        shape: tuple[int, ...],
        *,
        every_gradient: bool = False,
        integers: bool = False,
    ) -> ModuleTrial:
        """Try the module on synthetic records, and use the method that is right for it."""
        self._method, records = tried(
            self._flat,
            self._loss,
            torch.from_numpy(task.synthetic_targets(N_RECORDS)),
            shape=shape,
            n_outputs=task.n_outputs,
            every_gradient=every_gradient,
            integers=integers,
        )
        if isinstance(task, Classification):
            refuse_probabilities(self._flat, records)
        self.dtype = records.dtype
        bytes_per_record = self._flat.bytes_per_record(records, self._method)
        if self._method == "book-keeping":
            self._flat.at_once = self._flat.rows_at_once(bytes_per_record)
        return ModuleTrial(self._method, self._flat.flat.numel(), bytes_per_record)

    @property
    def start(self) -> Tensor:
        """Initial parameters."""
        return self._flat.flat.clone()

    def clipped_sum(self, clip: Clip) -> NetworkClippedSum:
        """Return the private value of a step."""
        return NetworkClippedSum(self._flat, self._loss, method=self._method, **clip._asdict())

    def records(self, given: PrivateRows) -> NetworkRecords:
        """Wrap the private rows."""
        X, targets, starts, weights = given
        like, dtype = self._flat.flat, self.dtype
        return NetworkRecords(X, targets, like, starts, dtype=dtype, weights=weights)

    def vector(self, theta: Tensor) -> np.ndarray:
        """Return a copy of the parameters."""
        return theta.cpu().numpy().copy()


@dataclass(frozen=True)
class PerceptronModel:
    """A perceptron, by products of integers, for sums on a grid, and losses with a residual."""

    module: nn.Sequential
    task: Task
    neighboring_relation: str
    max_rows: ClassVar[float] = float(MAX_ROWS)

    @property
    def _layers(self) -> list[nn.Linear]:
        return [part for part in self.module if isinstance(part, nn.Linear)]

    @property
    def _sizes(self) -> tuple[int, ...]:
        return (self._layers[0].in_features, *(layer.out_features for layer in self._layers))

    @property
    def start(self) -> Tensor:
        """Initial parameters: of each layer (n_outputs, n_inputs + 1), the biases last."""
        layers = (torch.cat([layer.weight, layer.bias[:, None]], dim=1) for layer in self._layers)
        return torch.cat([layer.detach().flatten() for layer in layers]).double()

    def clipped_sum(self, clip: Clip) -> PerceptronSum:
        """Return the private value of a step."""
        in_range(0.0, 0.0, prenoise_scale=clip.prenoise_scale, closed="both")
        return PerceptronSum(
            self._sizes,
            tuple(type(part) for part in self.module if not isinstance(part, nn.Linear)),
            self.task.residual,
            clip.clip_norm,
            clip.clipping,
            clip.weight_bound,
            clip.physical_batch_size,
        )

    def records(self, given: PrivateRows) -> RoundedRows:
        """Wrap the private rows."""
        columns = self.task.columns(given.targets)
        weights = np.ones(len(columns)) if given.weights is None else given.weights
        return RoundedRows(
            given.X,
            np.column_stack([columns, weights]),
            data_norm=math.inf,
            fit_intercept=True,
            neighboring_relation=self.neighboring_relation,
            starts=given.starts,
        )

    def vector(self, theta: Tensor) -> np.ndarray:
        """Return the weights and then the biases of each layer in turn."""
        layers = PerceptronSum.matrices(self._sizes, theta.numpy())
        parts = (part.ravel() for layer in layers for part in (layer[:, :-1], layer[:, -1]))
        return np.concatenate(list(parts)).astype(np.float32)


@dataclass(frozen=True)
class LinearModel:
    """A lone linear layer, by the closed form of its clipped sum."""

    module: nn.Linear
    task: Task
    neighboring_relation: str
    max_rows: ClassVar[float] = float(MAX_ROWS)

    @property
    def start(self) -> Tensor:
        """Initial parameters, (n_outputs, n_features + 1), the bias last."""
        weight, bias = self.module.weight.detach(), self.module.bias.detach()
        return torch.cat([weight, bias[:, None]], dim=1).double()

    def clipped_sum(self, clip: Clip) -> LinearClippedSum:
        """Return the private value of a step; it knows flat clipping only, and no weights."""
        in_range(1.0, 1.0, weight_bound=clip.weight_bound, closed="both")
        one_of(("flat",), clipping=clip.clipping)
        in_range(0.0, 0.0, prenoise_scale=clip.prenoise_scale, closed="both")
        return LinearClippedSum(self.task.residual, clip.clip_norm)

    def records(self, given: PrivateRows) -> LinearRows:
        """Wrap the private rows, which have no weights."""
        if given.weights is not None:
            raise ValueError("A lone linear layer with weights goes by book-keeping.")
        return LinearRows(
            given.X,
            self.task.columns(given.targets),
            data_norm=_NO_NORM,
            fit_intercept=True,
            neighboring_relation=self.neighboring_relation,
            starts=given.starts,
        )

    def vector(self, theta: Tensor) -> np.ndarray:
        """Return all weights, then all biases."""
        return torch.cat([theta[:, :-1].flatten(), theta[:, -1]]).float().numpy()


Model = NetworkModel | PerceptronModel | LinearModel
