"""Cache locator so that numba's ``cache=True`` works in programs without a file.

Numba imports the class by name (``NUMBA_CACHE_LOCATOR_CLASSES``) and calls the methods of its ``_CacheLocator``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

VARIABLE = "NUMBA_CACHE_LOCATOR_CLASSES"
CLASSES = "InTreeCacheLocator,UserWideCacheLocator,contained.numba_cache.ProgramCache"
"""Value of the variable: numba's locators for files first."""


class ProgramCache:
    """Locates the cache of one function in the private temporary folder, which ends with the program."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._line = function.__code__.co_firstlineno
        self._folder = Path(tempfile.gettempdir(), ".numba")

    def ensure_cache_path(self) -> None:
        self._folder.mkdir(exist_ok=True)

    def get_cache_path(self) -> str:
        return str(self._folder)

    def get_source_stamp(self) -> int:
        """Return a constant: the source does not change while the folder exists."""
        return 0

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, function: Callable[..., Any], _: str) -> ProgramCache | None:
        located = cls(function)
        try:
            located.ensure_cache_path()
        except OSError:
            return None
        return located
