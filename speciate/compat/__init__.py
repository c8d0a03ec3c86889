"""Importers of problems written for other systems: one file for each format, and one line in ``FORMATS``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from speciate.compat.draft import Draft


# Imported on first use: the command line needs only the names.
def _openevolve(folder: Path) -> Draft:
    from speciate.compat.openevolve import read_openevolve

    return read_openevolve(folder)


def _shinka(folder: Path) -> Draft:
    from speciate.compat.shinka import read_shinka

    return read_shinka(folder)


def _skydiscover(folder: Path) -> Draft:
    from speciate.compat.skydiscover import read_skydiscover

    return read_skydiscover(folder)


def _alphaevolve(folder: Path) -> Draft:
    from speciate.compat.alphaevolve_cli import read_alphaevolve

    return read_alphaevolve(folder)


def _harbor(folder: Path) -> Draft:
    from speciate.compat.harbor import read_harbor

    return read_harbor(folder)


FORMATS: Final[dict[str, Callable[[Path], Draft]]] = {
    "openevolve": _openevolve,
    "shinka": _shinka,
    "skydiscover": _skydiscover,
    "alphaevolve": _alphaevolve,
    "harbor": _harbor,
}
"""Importer of each system's directories, by its name on the command line. Importers run nothing in a directory."""
