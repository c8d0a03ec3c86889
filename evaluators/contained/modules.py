"""Import a Python candidate's further files from memory, because it may not be allowed to write files.

They take precedence over installed modules of the same name, as files beside a script do, but not over modules that are
already imported.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from importlib.abc import Loader


def offer(files: dict[str, str]) -> None:
    """Make these files importable; a folder is a package, with or without ``__init__.py``."""
    if files:
        sys.meta_path.insert(0, _Files(files))


class _Files:
    """Find and load modules in a table of texts by path."""

    def __init__(self, files: dict[str, str]) -> None:
        self._files = files

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        place, loader = name.replace(".", "/"), cast("Loader", self)
        for origin, is_package in ((f"{place}/__init__.py", True), (f"{place}.py", False)):
            if origin in self._files:
                return ModuleSpec(name, loader, origin=origin, is_package=is_package)
        if any(file.startswith(f"{place}/") for file in self._files):
            return ModuleSpec(name, loader, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> None: ...

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        origin = None if spec is None else spec.origin
        if origin is not None:
            exec(compile(self._files[origin], origin, "exec", dont_inherit=True), module.__dict__)  # noqa: S102
