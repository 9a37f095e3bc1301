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
from typing import Any, ClassVar, Self

import numpy as np
import torch
from scipy.special import expit, log_expit, log_softmax, softmax
from torch import Tensor, nn
from torch.nn import functional as F

from skdp.fitting.validate import expected, in_range
from skdp.models.likelihoods import Categorical

Loss = Callable[[Tensor, Tensor], Tensor]
Names = Mapping[str, type]

# --- losses -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CrossEntropy:
    """−Σ_k t_k log softmax(z)_k, with a share of t on all classes alike (Szegedy et al. 2016)."""

    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        in_range(0.0, 1.0, loss__label_smoothing=self.label_smoothing, closed="left")

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Loss of each record, from logits (B, K) and class numbers (B,)."""
        smooth = self.label_smoothing
        return F.cross_entropy(outputs, targets, reduction="none", label_smoothing=smooth)


@dataclass(frozen=True)
class Focal:
    """−(1 − p_y)^γ log p_y, γ ≥ 0, which looks less at what is right already (Lin et al. 2017)."""

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
    """Half the square of errors up to delta > 0, and a straight line beyond."""

    delta: float = 1.0

    def __post_init__(self) -> None:
        in_range(0.0, 1e10, loss__delta=self.delta)

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Loss of each record, from outputs (B, K) and targets (B, K)."""
        return F.huber_loss(outputs, targets, reduction="none", delta=self.delta).sum(1)


@dataclass(frozen=True)
class GivenLoss:
    """A loss of the caller's, (outputs, targets): what it says of a record is added up."""

    of: Loss

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Loss of each record."""
        values = self.of(outputs, targets)
        if isinstance(values, Tensor) and values.ndim > 1:
            return values.flatten(1).sum(1)
        return values


def _loss(named: Names, loss: Any, given: Mapping[str, Any]) -> Loss:
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


@dataclass(frozen=True)
class Task:
    """What a network of K outputs is trained for, by a loss of each record."""

    n_outputs: int
    loss: Loss
    named: ClassVar[Names]
    plain: ClassVar[Loss]  # of which `residual` is the slope

    @classmethod
    def of(cls, n_outputs: int, loss: Any, given: Mapping[str, Any]) -> Self:
        """Take a loss by name, or the caller's, with parameters."""
        return cls(n_outputs, _loss(cls.named, loss, given))

    @property
    def has_residual(self) -> bool:
        """Whether `residual` is that of the loss."""
        return self.loss == type(self).plain

    def residual(self, outputs: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """−∂ loss/∂ outputs, (n, K), where targets have one column per output."""
        raise NotImplementedError

    def columns(self, targets: np.ndarray) -> np.ndarray:
        """Return targets with one column per output, (n, K)."""
        raise NotImplementedError

    def synthetic_targets(self, n_records: int) -> np.ndarray:
        """Return targets to try a module on."""
        raise NotImplementedError


@dataclass(frozen=True)
class Classification(Task):
    """One class per record: class numbers (n,), and softmax of the outputs."""

    loss: Loss = CrossEntropy()
    plain = CrossEntropy()  # of labels it is another class
    named: ClassVar[Names] = {
        "cross_entropy": CrossEntropy,
        "focal": Focal,
        "ranked_probability": RankedProbability,
    }

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
    named: ClassVar[Names] = {
        "cross_entropy": BinaryCrossEntropy,
        "focal": BinaryFocal,
    }

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
class Regression(Task):
    """Targets (n, K)."""

    loss: Loss = SquaredError()
    plain = SquaredError()
    named: ClassVar[Names] = {
        "squared_error": SquaredError,
        "absolute_error": AbsoluteError,
        "huber": Huber,
    }

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
