"""Names of imported problems, and notes about them that apply to every system."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from speciate.problems.template import slug_of

_STARTERS: Final = re.compile(r"\b(subprocess|multiprocessing|ProcessPoolExecutor|os\.system|os\.fork)\b")
_PROMPTED: Final = "description is empty: describe the task for the policy in problem.toml"


def named_after(folder: Path) -> tuple[str, str]:
    """Return the slug and the title of the problem in a directory."""
    slug = slug_of(folder, "imported")
    return slug, slug.replace("-", " ").capitalize()


def remarks_on(files: Mapping[str, str], evaluator: str, message: str) -> tuple[str, ...]:
    """Return notes about an imported problem that its user should read before the trial."""
    remarks = [] if message.strip() else [_PROMPTED]
    if found := _STARTERS.search(files[evaluator]):
        remarks.append(f"{evaluator} uses {found[1]}: contained code cannot start processes")
    return tuple(remarks)
