"""Importers of problems written for other systems: one file for each format, and one line in ``FORMATS``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from speciate.compat.draft import Draft


@dataclass(frozen=True, slots=True)
class Choice:
    """Files that the user names in a directory.

    Attributes:
        program: Path of the initial program; None for the name that the other system expects.
        evaluator: Path of the evaluator; None likewise.
        include: Patterns of files and folders to take although the import leaves them out.
    """

    program: str | None = None
    evaluator: str | None = None
    include: tuple[str, ...] = ()


USUAL: Final = Choice()
"""The names that the other system expects."""


class Importer(Protocol):
    """Read a problem in another system's directory, without running anything."""

    def __call__(self, folder: Path, choice: Choice = ...) -> Draft:
        """Return the problem; raises ``NotFoundError`` and ``InvalidInputError``."""
        ...


# Imported on first use: the command line needs only the names.
def _openevolve(folder: Path, choice: Choice = USUAL) -> Draft:
    from speciate.compat.openevolve import read_openevolve

    return read_openevolve(folder, choice)


def _shinka(folder: Path, choice: Choice = USUAL) -> Draft:
    from speciate.compat.shinka import read_shinka

    return read_shinka(folder, choice)


def _skydiscover(folder: Path, choice: Choice = USUAL) -> Draft:
    from speciate.compat.skydiscover import read_skydiscover

    return read_skydiscover(folder, choice)


def _alphaevolve(folder: Path, choice: Choice = USUAL) -> Draft:
    from speciate.compat.alphaevolve_cli import read_alphaevolve

    return read_alphaevolve(folder, choice)


def _harbor(folder: Path, choice: Choice = USUAL) -> Draft:
    from speciate.compat.harbor import read_harbor

    return read_harbor(folder, choice)


FORMATS: Final[dict[str, Importer]] = {
    "openevolve": _openevolve,
    "shinka": _shinka,
    "skydiscover": _skydiscover,
    "alphaevolve": _alphaevolve,
    "harbor": _harbor,
}
"""Importer of each system's directories, by its name on the command line. Importers run nothing in a directory."""
