"""The further files of a candidate in Python: modules that are imported from memory, whether or not it may write files.

They come before installed modules of the same name, as files beside a script would, but after what is imported already.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from importlib.abc import Loader


def offer(files: dict[str, str]) -> None:
    """Let programs import these files; a folder is a package, with or without ``__init__.py``."""
    if files:
        sys.meta_path.insert(0, _Files(files))


class _Files:
    """Finds and loads modules in a table of texts by path."""

    def __init__(self, files: dict[str, str]) -> None:
        self._files = files

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """Say whether a module is one of the files."""
        place, loader = name.replace(".", "/"), cast("Loader", self)
        for origin, is_package in ((f"{place}/__init__.py", True), (f"{place}.py", False)):
            if origin in self._files:
                return ModuleSpec(name, loader, origin=origin, is_package=is_package)
        if any(file.startswith(f"{place}/") for file in self._files):
            return ModuleSpec(name, loader, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave making the module to Python."""

    def exec_module(self, module: ModuleType) -> None:
        """Run a file's text; a package without ``__init__.py`` has none."""
        spec = module.__spec__
        origin = None if spec is None else spec.origin
        if origin is not None:
            exec(compile(self._files[origin], origin, "exec", dont_inherit=True), module.__dict__)  # noqa: S102
