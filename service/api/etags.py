"""Entity tags of runs, and changes that are conditional on them.

A tag stands for the committed state of a run. The running seconds that a response shows do not change it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import Header

from speciate.domain.errors import PreconditionFailedError
from speciate.domain.run import RunState
from speciate.schema.runs import RunRecord
from speciate.storage.runs.store import PostgresRunStore

IfMatch = Annotated[str | None, Header(description="Change the run only if it still has this ETag, else 412.")]
IfNoneMatch = Annotated[str | None, Header(description="Respond 304 if the run still has this ETag.")]


def etag(run: RunRecord) -> str:
    return _tag(run.revision, run.state)


def matches(header: str, tag: str) -> bool:
    tags = [each.strip().removeprefix("W/") for each in header.split(",")]
    return "*" in tags or tag in tags


def store_if_match(header: str | None, runs: PostgresRunStore) -> PostgresRunStore:
    """Return a store whose changes require that the run still matches ``If-Match``.

    Its changes raise ``PreconditionFailedError`` if the run does not match.
    """
    if header is None:
        return runs

    def require(revision: int, state: RunState) -> None:
        if not matches(header, tag := _tag(revision, state)):
            raise PreconditionFailedError(
                f"the run has changed since it was read; its ETag is now {tag}.",
                remedy="Read the run again before changing it.",
            )

    return replace(runs, require=require)


def _tag(revision: int, state: RunState) -> str:
    return f'"{revision}-{state.value}"'
