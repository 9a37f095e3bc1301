"""Parameters of parameters, as skorch names them: ``module__hidden`` is ``hidden`` of ``module``.

They are not fields, because their names are not known: they lie beside the fields, and
``get_params`` and ``set_params``, hence ``clone`` and searches, know them.
"""

from __future__ import annotations

from functools import wraps
from typing import Any, Self, TypeVar

from sklearn.base import BaseEstimator

_Class = TypeVar("_Class", bound=type)


class WithParts(BaseEstimator):
    """An estimator that takes parameters of some of its parameters."""

    _PARTS: tuple[str, ...] = ()  # names of the parameters that have parameters

    def _given(self, part: str) -> dict[str, Any]:
        """Return the parameters of a part, by their own names."""
        prefix = f"{part}__"
        return {k.removeprefix(prefix): v for k, v in vars(self).items() if k.startswith(prefix)}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters of the estimator, with those of its parts.

        Parameters
        ----------
        deep : bool, default=True
            Whether those of nested estimators are returned too.

        Returns
        -------
        dict
        """
        parts = {name: value for name, value in vars(self).items() if _is_of(self, name)}
        return super().get_params(deep=deep) | parts

    def set_params(self, **params: Any) -> Self:
        """Set parameters of the estimator, or of its parts.

        Parameters
        ----------
        **params : Any
            By name; ``module__hidden`` is ``hidden`` of ``module``.

        Returns
        -------
        estimator
            The estimator itself.
        """
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
