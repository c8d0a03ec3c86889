"""Find a run by what people call it: an id, a part of it, the run's name, its answer's directory or its problem."""

import re
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from speciate.domain.errors import InvalidInputError, NotFoundError
from speciate.domain.suggestions import nearest
from speciate.schema.runs import RunRecord

LATEST_RUNS: Final = 100
"""Runs that are compared with a mistyped name."""

_ID_PART: Final = re.compile(r"[0-9a-fA-F][0-9a-fA-F-]{5,34}")
_DIRECTORY: Final = re.compile(r"(?:.*/)?(?P<problem>[^/]+)-(?P<end>[0-9a-f]{8})/?")
_LISTED: Final = 10


def is_whole_id(name: str) -> bool:
    try:
        UUID(name)
    except ValueError:
        return False
    return True


def may_hold_id(name: str) -> bool:
    """Return True if a name may be a part of an id, or the directory of an answer, which ends with one."""
    return bool(_ID_PART.fullmatch(name) or _DIRECTORY.fullmatch(name))


def has_id(run: RunRecord, name: str) -> bool:
    """Return True if a run's id starts or ends with a name, or if its answer's directory has that name."""
    run_id, part = str(run.id), name.lower()
    if _ID_PART.fullmatch(name) and (run_id.startswith(part) or run_id.endswith(part)):
        return True
    directory = _DIRECTORY.fullmatch(name)
    return bool(directory and run.problem == directory["problem"] and run_id.endswith(directory["end"]))


def is_on(run: RunRecord, problem: str) -> bool:
    """Return True if a run is on a problem given as ``slug`` or ``slug@version``."""
    return problem in (run.problem, f"{run.problem}@{run.problem_version}")


def only_one(name: str, runs: Sequence[RunRecord]) -> RunRecord:
    if len(runs) == 1:
        return runs[0]
    lines = [
        f"{run.id}  {run.created_at:%Y-%m-%d %H:%M} UTC  {run.state.value}  {run.problem}  {run.name}".rstrip()
        for run in runs[:_LISTED]
    ]
    if len(runs) > _LISTED:
        lines.append(f"and {len(runs) - _LISTED} more")
    listing = "\n  ".join(lines)
    raise InvalidInputError(f"{name!r} matches {len(runs)} runs. Give the last characters of an id:\n  {listing}")


def unknown_run(name: str, latest: Sequence[RunRecord]) -> NotFoundError:
    """Return the error for a name without a run; it suggests those of the latest runs with the nearest id or name."""
    texts = {text.lower(): run for run in latest for text in (str(run.id), run.name, run.problem)}
    near = [texts[text] for text in nearest(name, texts)]
    names = " or ".join(f"{run.id} ({run.name or run.problem})" for run in near)
    return NotFoundError(f"there is no run {name!r}.", remedy=f"Did you mean {names}?" if near else None)
