"""`DPSVMClassifier`: large margins by DP-SGD."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, NoReturn

import numpy as np
from torch import Tensor

from skdp.estimators._documented import documented
from skdp.estimators._parameters import takes_parts
from skdp.estimators.sgd import DPSGDClassifier
from skdp.models.tasks import Classification


@dataclass(frozen=True)
class Hinge:
    """max(0, 1 − z_y + max_{k≠y} z_k): zero where the class has a margin of 1."""

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Loss of each record, from outputs (B, K) and class numbers (B,)."""
        own = targets[:, None]
        others = outputs.scatter(1, own, -float("inf")).amax(1)
        return (1.0 - outputs.gather(1, own)[:, 0] + others).clamp(min=0.0)


@dataclass(frozen=True)
class SquaredHinge(Hinge):
    """The square of `Hinge`, which is smooth."""

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Loss of each record, from outputs (B, K) and class numbers (B,)."""
        return super().__call__(outputs, targets).square()


class Margins(Classification):
    """One class per record: that of the largest output."""

    named = {"hinge": Hinge, "squared_hinge": SquaredHinge}  # noqa: RUF012


@documented
@takes_parts
@dataclass(eq=False, repr=False)
class DPSVMClassifier(DPSGDClassifier):
    """Support vector machine, linear or on a network's last layer, by DP-SGD.

    Parameters
    ----------
    hidden_layer_sizes : tuple of int, default=()
        Neurons of the hidden layers; ``()`` is a linear support vector machine.
    loss : {"hinge", "squared_hinge"}, class or callable, default="hinge"
        What is clipped and summed is its gradient: the margin that the class of a record lacks over
        the best other one (Crammer and Singer 2001), or the square of it.

    References
    ----------
    K. Crammer, Y. Singer, *On the Algorithmic Implementation of Multiclass Kernel-based Vector
    Machines*, JMLR 2001.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skdp import DPSVMClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> classifier = DPSVMClassifier(epsilon=3.0, delta=1e-5, classes=range(10), n_samples=1797)
    >>> classifier.fit(X / 16, y).score(X / 16, y) > 0.7
    True
    """

    _: KW_ONLY
    hidden_layer_sizes: Any = ()
    loss: Any = "hinge"

    @property
    def _kind(self) -> type[Classification]:
        return Margins

    def _read_labels(self, X: Any, y: Any, classes: Any, *, goes_on: bool) -> NoReturn:
        raise ValueError("Expected y (n,): of each row one class.")

    def _doubted(self, *released: Any) -> tuple[str, ...]:
        return ()  # outputs are no odds

    def __sklearn_tags__(self) -> Any:
        """Labels exclude each other."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = False
        return tags

    @property
    def predict_proba(self) -> NoReturn:  # type: ignore[override]
        """Missing: margins are no probabilities."""
        raise AttributeError("Margins are no probabilities: see decision_function.")

    predict_log_proba = sample_predictive = predict_proba  # type: ignore[assignment]

    def decision_function(self, X) -> np.ndarray:
        """Outputs of each row, (n, n_classes); of two classes their difference, (n,)."""
        scores = np.concatenate([z.mean(axis=0) for z in self._outputs(X)])
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict(self, X) -> np.ndarray:
        """Class with the largest output of each row, shape (n,)."""
        scores = self.decision_function(X)
        codes = scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(int)
        return self.classes_[codes]
