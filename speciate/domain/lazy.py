"""Import slow modules at their first use: a command of the command line needs few of them."""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any


class LazyModule(ModuleType):
    """A stand-in for the module of its name, which it imports at the first access to an attribute."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)  # later accesses cost no more than those of the module
        return value


def lazy_submodules(package: str) -> Callable[[str], ModuleType]:
    """Return a ``__getattr__`` for a package that imports its submodules at their first use."""

    def get(name: str) -> ModuleType:
        if not name.startswith("_"):
            try:
                return import_module(f"{package}.{name}")
            except ModuleNotFoundError as error:
                if error.name != f"{package}.{name}":
                    raise
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get
