"""Names of imported problems, and notes about them that apply to every system."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from speciate.compat.folder import read_plain
from speciate.problems.siblings import UnreadableError
from speciate.problems.template import slug_of

_REQUIREMENTS: Final = "requirements.txt"
_PACKAGE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}")
_PROVIDED: Final = frozenset({"openevolve", "shinka", "shinka-evolve"})
"""Packages whose parts that evaluators use come with the importers."""
_STARTERS: Final = re.compile(r"\b(subprocess|multiprocessing|ProcessPoolExecutor|os\.system|os\.fork)\b")
_PROMPTED: Final = "description is empty: describe the task for the policy in problem.toml"


def missing_requirements(folder: Path) -> list[str]:
    """Return the packages of a directory's ``requirements.txt`` that are missing here, as written there."""
    try:
        text = read_plain(folder, _REQUIREMENTS)
    except UnreadableError:
        return []
    found = [line.partition("#")[0].partition(";")[0].strip() for line in text.splitlines()]
    named = [(line, name[0]) for line in found if (name := _PACKAGE.match(line))]
    return [
        line.replace(" ", "")
        for line, package in named
        if package.lower().replace("_", "-") not in _PROVIDED and not _installed(package)
    ]


def _installed(package: str) -> bool:
    try:
        distribution(package)
    except (PackageNotFoundError, ValueError):
        return False
    return True


def named_after(folder: Path) -> tuple[str, str]:
    """Return the slug and the title of the problem in a directory."""
    slug = slug_of(folder, "imported")
    return slug, slug.replace("-", " ").capitalize()


def remarks_on(folder: Path, files: Mapping[str, str], evaluator: str, message: str) -> tuple[str, ...]:
    """Return notes about an imported problem that its user should read before the trial."""
    remarks = [] if message.strip() else [_PROMPTED]
    if missing := missing_requirements(folder):
        remarks.append(f"{_REQUIREMENTS} names packages that are not installed here: pip install {' '.join(missing)}")
    if found := _STARTERS.search(files[evaluator]):
        remarks.append(f"{evaluator} uses {found[1]}: contained code cannot start processes")
    return tuple(remarks)
