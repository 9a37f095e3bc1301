"""Parameters of many estimators: what is spent and declared, weights, and checkpoints."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import wraps
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from sklearn.base import BaseEstimator

from skdp.base import PrivateEstimator, PublicFacts, Records
from skdp.fitting.types import EVERY
from skdp.fitting.validate import expected, in_range, is_real

_Class = TypeVar("_Class", bound=type)


@dataclass(eq=False, repr=False)
class FitParameters(PrivateEstimator):
    """What every fit is told.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        ε > 0. ``float("inf")`` is the ordinary, non-private fit. None with ``noise_multiplier``.
    delta : float, default=1e-5
        δ in (0, 1); should be well below 1/n.
    neighboring_relation : {"zero_out", "add_or_remove_one", "replace_one"}, default="zero_out"
        Who is a neighbour. Under ``"add_or_remove_one"`` the number of rows is private and
        ``n_samples`` must be given.
    n_samples : int or None, default=None
        Public number of rows, from which rates and step sizes are computed. None reads it from X
        and says so in the report. Where it is public, below half and above three times that of X
        are refused.
    random_state : int, RandomState instance or None, default=None
        None keys the noise from the operating system. A seed makes the fit repeatable and its
        guarantee void: the report says ``valid=False``.
    verbose : int, default=0
        Above 0, a progress bar over the steps (needs tqdm). Callbacks of scikit-learn, where the
        version has them, work too: they get the steps and no data.

    Attributes
    ----------
    parameter_names_ : list of str
        Names of the columns of `sample_posterior`.
    privacy_ : PrivacyReport
        The privacy statement of this fit.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Feature names, where X had any.
    """

    _: KW_ONLY
    neighboring_relation: str = "zero_out"
    n_samples: int | None = None
    random_state: Any = None
    verbose: int = 0


@dataclass(eq=False, repr=False)
class Resumable:
    """A fit of many steps, which goes on from a checkpoint.

    Parameters
    ----------
    checkpoint : str, path-like or None, default=None
        File from which a fit that was killed goes on when it is called again with the same rows and
        parameters, as the same release at no further charge. The key file beside it (``.key``) is
        as secret as the rows; both are deleted when the fit ends. Each fit needs a path of its
        own, and calls that go on from an earlier one take none. See the guide page on long runs.
    every : int, default=50
        Number ≥ 1 of steps from one checkpoint to the next.
    """

    _: KW_ONLY
    checkpoint: Any = None
    every: int = EVERY


@dataclass(eq=False, repr=False)
class WeightedRows(FitParameters):
    """A fit that takes weights of rows, up to a bound, and what such fits share.

    Parameters
    ----------
    max_sample_weight : float, default=1.0
        Public bound > 0 of ``sample_weight``; the noise is for rows of this weight.
    secure : bool, default=False
        Round each record's share to a grid, sum integers exactly and add exact discrete Gaussian
        noise: the guarantee then no longer treats floating-point sums and noise as exact. Full
        batches only; slower, and as accurate. See docs/privacy.md, section 8.
    accountant : {"auto", "gdp", "pld", "rdp"}, default="auto"
        See `skdp.privacy.epsilon`.

    Attributes
    ----------
    n_iter_ : int
        Number of noisy gradients, or of passes at most.
    """

    epsilon: float | None = 1.0
    delta: float = 1e-5
    _: KW_ONLY
    accountant: str = "auto"
    max_sample_weight: float = 1.0
    secure: bool = False

    _takes_weights: ClassVar[bool] = True
    _WEIGHTS_REMEDY: ClassVar[str] = (
        "pipelines and searches pass weights on by metadata routing alone: "
        "set_fit_request(sample_weight=True)"
    )

    def fit(self, X, y=None, groups=None, *, sample_weight=None) -> Self:
        """Fit, privately.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Numbers, finite unless the class takes NaN; sparse where the class takes that.
        y : array-like of shape (n_samples,)
            Class labels or targets.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            Weights of rows in [0, ``max_sample_weight``], by which their clipped terms are
            multiplied in every sum: one of weight 2 counts as two rows. As private as the rows.
        """
        return self._fit(X, y, groups=groups, sample_weight=sample_weight)

    def _weight_bound(self, facts: PublicFacts) -> float:
        """Largest weight that a row may have."""
        return in_range(1e-10, 1e10, max_sample_weight=self.max_sample_weight)


@dataclass(eq=False, repr=False)
class WeightedClasses(WeightedRows):
    """A fit of classes that takes weights of these too.

    Parameters
    ----------
    classes : array-like of shape (n_classes,) or None, default=None
        The class labels, as a declared public fact. None reads them from y and says so in the
        report.
    class_weight : dict or None, default=None
        Public weights ≥ 0 of classes, 1 for those that are not named; each row's clipped terms are
        multiplied by that of its class. The noise is for the largest, so it gives balance at
        the cost of noise. ``"balanced"`` is refused: the shares of classes are private.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    """

    _: KW_ONLY
    class_weight: Any = None
    _several = False  # whether labels do not exclude each other
    classes_: ClassVar[np.ndarray]

    def _class_weights(self) -> dict[Any, float]:
        """Check the weights of classes; those that are not named have 1."""
        if self.class_weight is None:
            return {}
        if isinstance(self.class_weight, str):
            raise expected(
                "None or numbers by class",
                "the shares of classes are private: of shares that you know from elsewhere, "
                "{label: 1 / (n_classes * share), ...} is balanced",
                class_weight=self.class_weight,
            )
        values = [*self.class_weight.values()] if isinstance(self.class_weight, dict) else [-1]
        if not all(is_real(v) and 0 <= v <= 1e10 for v in values):
            raise expected("a dict of finite numbers >= 0", class_weight=self.class_weight)
        return dict(self.class_weight)

    def _weight_bound(self, facts: PublicFacts) -> float:
        weights = self._class_weights()
        bounds = [float(weight) for weight in weights.values()]
        if facts.n_outputs is None or len(weights) < facts.n_outputs:
            bounds.append(1.0)
        bound = max(bounds) * super()._weight_bound(facts)
        if weights and not 1e-10 < bound < 1e10:
            raise expected(
                "a dict of numbers >= 0 whose largest, times max_sample_weight, is in "
                "(1e-10, 1e+10)",
                "only ratios of weights matter; the step size is learning_rate's business",
                class_weight=self.class_weight,
            )
        return bound

    def _codes_of(self, records: Records) -> np.ndarray:
        """Number of each row's class."""
        return records.targets


# --- parameters of parameters --------------------------------------------------------------------
# As skorch names them, ``module__hidden`` is ``hidden`` of ``module``. They are not fields, because
# their names are not known: they lie beside the fields, and ``get_params`` and ``set_params``,
# hence ``clone`` and searches, know them.


class WithParts(BaseEstimator):
    """An estimator that takes parameters of some of its parameters."""

    _PARTS: tuple[str, ...] = ()  # names of the parameters that have parameters

    def _given(self, part: str) -> dict[str, Any]:
        """Return the parameters of a part, by their own names."""
        prefix = f"{part}__"
        return {k.removeprefix(prefix): v for k, v in vars(self).items() if k.startswith(prefix)}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters of the estimator, with those of its parts if ``deep``."""
        parts = {name: value for name, value in vars(self).items() if _is_of(self, name)}
        return super().get_params(deep=deep) | parts

    def set_params(self, **params: Any) -> Self:
        """Set parameters of the estimator, or of its parts, ``module__hidden`` for instance."""
        parts = {name: value for name, value in params.items() if _is_of(self, name)}
        super().set_params(**{name: params[name] for name in params.keys() - parts})
        vars(self).update(parts)
        return self


def _is_of(estimator: WithParts, name: str) -> bool:
    part, separator, own = name.partition("__")
    return bool(separator and own) and part in estimator._PARTS


def takes_parts(cls: _Class) -> _Class:
    """Let a constructor take parameters of parts; its signature stays what it was."""
    init: Any = cls.__init__

    @wraps(init)
    def __init__(self: WithParts, *args: Any, **kw: Any) -> None:
        parts = {name: kw.pop(name) for name in tuple(kw) if _is_of(self, name)}
        init(self, *args, **kw)
        vars(self).update(parts)

    cls.__init__ = __init__  # type: ignore
    return cls
