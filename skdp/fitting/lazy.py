"""Packages whose names are fetched when first asked for: a scaler should not cost torch."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def fetcher(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a module's ``__getattr__`` (PEP 562), for names and the submodules they live in."""

    def __getattr__(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return __getattr__
