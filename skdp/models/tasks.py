"""Tasks of a network: what its outputs mean, and the loss of each record.

A named loss is a class whose parameters are its fields; one of the caller's is a function of
outputs and targets that returns one number per record, or several, which are added up.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from scipy.special import expit, log_expit, log_softmax, softmax
from torch import Tensor, nn
from torch.nn import functional as F

from skdp.fitting.validate import expected, in_range
from skdp.models.likelihoods import Categorical

Loss = Callable[[Tensor, Tensor], Tensor]

# --- losses -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CrossEntropy:
    """−Σ_k t_k log softmax(z)_k, with t the class, or a mixture of it and all classes alike.

    Parameters
    ----------
    label_smoothing : float
        Share in [0, 1) of all classes alike (Szegedy et al. 2016).
    """

    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        in_range(0.0, 1.0, loss__label_smoothing=self.label_smoothing, closed="left")

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Loss of each record, from logits (B, K) and class numbers (B,)."""
        smooth = self.label_smoothing
        return F.cross_entropy(outputs, targets, reduction="none", label_smoothing=smooth)


@dataclass(frozen=True)
class Focal:
    """−(1 − p_y)^γ log p_y, which looks less at records that are right already (Lin et al. 2017).

    Parameters
    ----------
    gamma : float
        γ ≥ 0; 0 is the cross-entropy.
    """

    gamma: float = 2.0

    def __post_init__(self) -> None:
        in_range(0.0, 100.0, loss__gamma=self.gamma, closed="left")

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Loss of each record, from logits (B, K) and class numbers (B,)."""
        return self.of(F.cross_entropy(outputs, targets, reduction="none"))

    def of(self, losses: Tensor) -> Tensor:
        """Focal losses from −log p; 1 − p = −expm1(−loss)."""
        if self.gamma == 0.0:
            return losses
        return (-torch.expm1(-losses)).clamp(min=1e-12) ** self.gamma * losses


@dataclass(frozen=True)
class RankedProbability:
    """Σ_k (P(Y ≤ k) − 1[y ≤ k])² for ordered classes: a proper score (Epstein 1969)."""

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Loss of each record, from logits (B, K) and class numbers (B,)."""
        reached = targets[:, None] <= torch.arange(outputs.shape[1], device=outputs.device)
        below = outputs.softmax(1).cumsum(1)
        return (below - reached.to(below.dtype)).square().sum(1)


@dataclass(frozen=True)
class BinaryCrossEntropy(CrossEntropy):
    """Cross-entropy of each label by itself, added up over labels."""

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Loss of each record, from logits (B, L) and labels 0 and 1 (B, L)."""
        smoothed = targets + self.label_smoothing * (0.5 - targets)
        return F.binary_cross_entropy_with_logits(outputs, smoothed, reduction="none").sum(1)


@dataclass(frozen=True)
class BinaryFocal(Focal):
    """Focal loss of each label by itself, added up over labels."""

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Loss of each record, from logits (B, L) and labels 0 and 1 (B, L)."""
        losses = F.binary_cross_entropy_with_logits(outputs, targets, reduction="none")
        return self.of(losses).sum(1)


@dataclass(frozen=True)
class SquaredError:
    """½‖z − y‖²."""

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Loss of each record, from outputs (B, K) and targets (B, K)."""
        return 0.5 * (outputs - targets).square().sum(1)


@dataclass(frozen=True)
class AbsoluteError:
    """Σ_k |z_k − y_k|, whose minimum is the median."""

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Loss of each record, from outputs (B, K) and targets (B, K)."""
        return (outputs - targets).abs().sum(1)


@dataclass(frozen=True)
class Huber:
    """Half the square of errors up to delta, and a straight line beyond.

    Parameters
    ----------
    delta : float
        Errors > 0 from which on the loss grows in a straight line.
    """

    delta: float = 1.0

    def __post_init__(self) -> None:
        in_range(0.0, 1e10, loss__delta=self.delta)

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Loss of each record, from outputs (B, K) and targets (B, K)."""
        return F.huber_loss(outputs, targets, reduction="none", delta=self.delta).sum(1)


_OWN = {"cross_entropy": CrossEntropy, "focal": Focal, "ranked_probability": RankedProbability}
_OF_LABELS = {"cross_entropy": BinaryCrossEntropy, "focal": BinaryFocal}
_OF_TARGETS = {"squared_error": SquaredError, "absolute_error": AbsoluteError, "huber": Huber}


@dataclass(frozen=True)
class GivenLoss:
    """A loss of the caller's: what it says of a record is added up.

    Parameters
    ----------
    of : callable
        (outputs, targets) -> tensor whose first dimension is that of the records.
    """

    of: Loss

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Loss of each record."""
        values = self.of(outputs, targets)
        if isinstance(values, Tensor) and values.ndim > 1:
            return values.flatten(1).sum(1)
        return values


def _loss(named: Mapping[str, type], loss: Any, given: Mapping[str, Any]) -> Loss:
    """Return a loss by name, or one of the caller's, with parameters by their names."""
    what = f"one of {', '.join(map(repr, named))}, or a function of outputs and targets"
    make: Any = named.get(loss) if isinstance(loss, str) else loss
    if make is None or not callable(make):
        raise expected(what, loss=loss)
    if isinstance(make, nn.Module) and given:
        raise expected("a class or a function, which takes loss__ parameters", loss=loss)
    try:
        if isinstance(loss, str):
            of_a_name: Any = make(**given)
            return of_a_name
        if isinstance(make, nn.Module):
            return GivenLoss(_by_record(make))
        if _reduces(make):
            given = {"reduction": "none", **given}
        if isinstance(make, type):
            return GivenLoss(make(**given))
        own: Any = partial(make, **given) if given else make
        return GivenLoss(own)
    except TypeError as error:
        raise expected(what, f"with loss__ parameters that it takes ({error})", loss=loss) from None


def _by_record(loss: nn.Module) -> nn.Module:
    """Return a loss of torch that reduces nothing: clipping comes before any mean."""
    if not isinstance(loss, nn.modules.loss._Loss) or loss.reduction == "none":
        return loss
    loss = copy.copy(loss)  # the caller's stays as it is
    loss.reduction = "none"
    return loss


def _reduces(make: Callable[..., Any]) -> bool:
    """Whether a class or function can be told not to reduce."""
    try:
        return "reduction" in inspect.signature(make).parameters
    except ValueError:  # of some functions in C
        return False


# --- tasks --------------------------------------------------------------------------------------


class Task(Protocol):
    """What a network is trained for."""

    @property
    def n_outputs(self) -> int:
        """Number of outputs K."""
        ...

    @property
    def loss(self) -> Loss:
        """Loss of each record, (B,)."""
        ...

    @property
    def has_residual(self) -> bool:
        """Whether `residual` is that of the loss."""
        ...

    def residual(self, outputs: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """−∂ loss/∂ outputs, (n, K), where targets have one column per output."""
        ...

    def columns(self, targets: np.ndarray) -> np.ndarray:
        """Return targets with one column per output, (n, K)."""
        ...

    def synthetic_targets(self, n_records: int) -> np.ndarray:
        """Return targets to try a module on."""
        ...


@dataclass(frozen=True)
class Classification:
    """One class per record: class numbers (n,), and softmax of the outputs."""

    n_outputs: int
    loss: Loss = CrossEntropy()

    @classmethod
    def of(cls, n_outputs: int, loss: Any, given: Mapping[str, Any]) -> Classification:
        """Take a loss by name, or the caller's, with parameters."""
        return cls(n_outputs, _loss(_OWN, loss, given))

    @property
    def has_residual(self) -> bool:
        """Whether the loss is the cross-entropy itself."""
        return self.loss == CrossEntropy()  # of labels it is another class

    def probabilities(self, outputs: np.ndarray) -> np.ndarray:
        """Return probabilities, (..., K)."""
        return softmax(outputs, axis=-1)

    def log_probabilities(self, outputs: np.ndarray) -> np.ndarray:
        """Return the logarithm of `probabilities`."""
        return log_softmax(outputs, axis=-1)

    def residual(self, outputs: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return columns − softmax(outputs)."""
        return Categorical(self.n_outputs).residual(outputs, columns)

    def columns(self, targets: np.ndarray) -> np.ndarray:
        """Return a column per class."""
        return Categorical(self.n_outputs).targets(targets)

    def synthetic_targets(self, n_records: int) -> np.ndarray:
        """Take each class in turn."""
        return np.arange(n_records) % self.n_outputs


@dataclass(frozen=True)
class Labelling(Classification):
    """Any number of labels per record: 0 and 1 (n, L), and a sigmoid of each output."""

    loss: Loss = BinaryCrossEntropy()

    @classmethod
    def of(cls, n_outputs: int, loss: Any, given: Mapping[str, Any]) -> Labelling:
        """Take a loss by name, or the caller's, with parameters."""
        return cls(n_outputs, _loss(_OF_LABELS, loss, given))

    def probabilities(self, outputs: np.ndarray) -> np.ndarray:
        """Return the probability of each label, (..., L)."""
        return expit(outputs)

    def log_probabilities(self, outputs: np.ndarray) -> np.ndarray:
        """Return the logarithm of `probabilities`."""
        return log_expit(outputs)

    def synthetic_targets(self, n_records: int) -> np.ndarray:
        """Take labels in turn."""
        return (np.arange(n_records)[:, None] % (np.arange(self.n_outputs) + 2) == 0).astype("f4")


@dataclass(frozen=True)
class Regression:
    """Targets (n, K)."""

    n_outputs: int
    loss: Loss = SquaredError()

    @classmethod
    def of(cls, n_outputs: int, loss: Any, given: Mapping[str, Any]) -> Regression:
        """Take a loss by name, or the caller's, with parameters."""
        return cls(n_outputs, _loss(_OF_TARGETS, loss, given))

    @property
    def has_residual(self) -> bool:
        """Whether the loss is half the squared error."""
        return self.loss == SquaredError()

    def residual(self, outputs: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return columns − outputs."""
        return columns - outputs

    def columns(self, targets: np.ndarray) -> np.ndarray:
        """Return the targets as they are."""
        return targets

    def synthetic_targets(self, n_records: int) -> np.ndarray:
        """Spread them over [-1, 1]."""
        numbers = np.linspace(-1, 1, n_records * self.n_outputs, dtype=np.float32)
        return numbers.reshape(n_records, self.n_outputs)
