"""Packages whose names are fetched when first asked for: a scaler should not cost torch."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def fetcher(package: str, homes: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """Return a module's ``__getattr__`` (PEP 562), for submodules and the names that live there."""
    home_of = {name: home for home, names in homes.items() for name in names}

    def __getattr__(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{home_of[name]}"), name)

    return __getattr__
