"""Names of imported problems, and notes about them that apply to every system."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from speciate.compat.folder import read_plain
from speciate.domain.values import REQUIREMENT
from speciate.problems.siblings import UnreadableError
from speciate.problems.template import slug_of

_REQUIREMENTS: Final = "requirements.txt"
_PACKAGE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}")
_COMMENT: Final = re.compile(r"(^|\s)#.*")
_PROVIDED: Final = frozenset({"openevolve", "shinka", "shinka-evolve"})
"""Packages whose parts that evaluators use come with the importers."""
_STARTERS: Final = re.compile(r"\b(subprocess|multiprocessing|ProcessPoolExecutor|os\.system|os\.fork)\b")
_PROMPTED: Final = "description is empty: describe the task for the policy in problem.toml"


def requirements_in(folder: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the packages of a directory's ``requirements.txt``, and its lines that a problem cannot declare.

    The packages are empty if this installation has all of them: the problem then uses those of the worker.
    """
    try:
        text = read_plain(folder, _REQUIREMENTS)
    except UnreadableError:
        return (), ()
    # A backslash continues a line, a blank and # begin a comment.
    lines = [_COMMENT.sub("", line).strip() for line in re.sub(r"\\\r?\n", " ", text).splitlines()]
    found = [" ".join(line.split()) for line in lines if line]
    wanted = [line for line in found if re.fullmatch(REQUIREMENT, line)]
    named = {line: match[0] for line in wanted if (match := _PACKAGE.match(line))}
    needed = {line: name for line, name in named.items() if name.lower().replace("_", "-") not in _PROVIDED}
    refused = tuple(line for line in found if line not in named)
    return () if all(map(_installed, needed.values())) else tuple(needed), refused


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
    _, refused = requirements_in(folder)
    if refused:
        remarks.append(f"{_REQUIREMENTS} has lines that are no package with versions, left out: {', '.join(refused)}")
    if found := _STARTERS.search(files[evaluator]):
        remarks.append(f"{evaluator} uses {found[1]}: only tier A of the sandbox lets evaluators start processes")
    return tuple(remarks)
