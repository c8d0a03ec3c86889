"""Importers of problems written for other systems: a function ``read_SYSTEM`` for each format."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from speciate.compat.draft import Draft


@dataclass(frozen=True, slots=True)
class Choice:
    """Files that the user names in a directory."""

    program: str | None = None
    """Path of the initial program, which may lie elsewhere; None for the name that the other system expects."""
    evaluator: str | None = None
    """Path of the evaluator; None likewise."""
    config: Path | None = None
    """Configuration of OpenEvolve or SkyDiscover; None for ``config.yaml`` in the directory."""
    include: tuple[str, ...] = ()
    """Patterns of files and folders to take although the import leaves them out."""
    alone: bool = False
    """True if the folder is not that of the problem: only what the evaluator names is taken from it."""


USUAL: Final = Choice()
"""The names that the other system expects."""

FORMATS: Final = ("openevolve", "shinka", "skydiscover", "alphaevolve", "harbor")


def read_directory(system: str, folder: Path, choice: Choice = USUAL) -> Draft:
    """Read a problem in another system's directory, without running anything."""
    module = "harbor" if system == "harbor" else "reading"
    draft: Draft = getattr(import_module(f"speciate.compat.{module}"), f"read_{system}")(folder, choice)
    return draft
