"""Entity tags of runs: a run's commits are counted, so their number says whether anything has changed.

Running seconds go on between commits; a tag stands for what has been committed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import Header

from speciate.domain.errors import PreconditionFailedError
from speciate.domain.run import RunState
from speciate.ports.records.runs import RunRecord
from speciate.storage.runs.store import PostgresRunStore

IfMatch = Annotated[str | None, Header(description="ETag that the run must still have, else 412")]
IfNoneMatch = Annotated[str | None, Header(description="ETag that is known already: 304 while the run still has it")]


def etag(run: RunRecord) -> str:
    """Return the tag of a run."""
    return _tag(run.revision, run.state)


def names(header: str, tag: str) -> bool:
    """Tell whether a list of tags, as headers carry it, names this one."""
    given = [each.strip().removeprefix("W/") for each in header.split(",")]
    return "*" in given or tag in given


def matching(header: str | None, runs: PostgresRunStore) -> PostgresRunStore:
    """Return the same runs, each to be changed only while it is as the sender of ``If-Match`` believes.

    Its changes raise ``PreconditionFailedError`` where the run has changed since.
    """
    if header is None:
        return runs

    def require(revision: int, state: RunState) -> None:
        if not names(header, tag := _tag(revision, state)):
            raise PreconditionFailedError(
                f"the run has ETag {tag} now: it has changed since it was read.",
                remedy="Read it again and decide anew.",
            )

    return replace(runs, require=require)


def _tag(revision: int, state: RunState) -> str:
    return f'"{revision}-{state.value}"'
