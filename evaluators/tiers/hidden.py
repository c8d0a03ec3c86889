"""Folders and files of this project that candidates must not read: hidden cases, and passwords of a checkout."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import speciate

_PACKAGES = (Path(speciate.__file__).resolve().parent, Path(__file__).resolve().parent.parent)
_CHECKOUT = "pyproject.toml"


@cache
def hidden_folders() -> tuple[Path, ...]:
    """Return the folders that no candidate may read: Speciate's packages, and their checkouts."""
    checkouts = {package.parent for package in _PACKAGES if (package.parent / _CHECKOUT).exists()}
    return tuple(sorted({_PACKAGES[0], *checkouts}))


@cache
def hidden_files() -> tuple[str, ...]:
    """Return one file of each hidden kind, which the canary tries to read."""
    bundled = sorted((_PACKAGES[0] / "problems" / "bundled").glob("*/problem.toml"))[:1]
    checkouts = [folder / _CHECKOUT for folder in hidden_folders() if (folder / _CHECKOUT).exists()]
    return tuple(map(str, (*bundled, *checkouts)))
