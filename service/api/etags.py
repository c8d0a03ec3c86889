"""Entity tags of runs: a run's commits are counted, so their number says whether anything has changed.

Running seconds go on between commits; a tag stands for what has been committed.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Header

from speciate.domain.errors import PreconditionFailedError
from speciate.ports.records import RunRecord

IfMatch = Annotated[str | None, Header(description="ETag that the run must still have, else 412")]
IfNoneMatch = Annotated[str | None, Header(description="ETag that is known already: 304 while the run still has it")]


def etag(run: RunRecord) -> str:
    """Return the tag of a run."""
    return f'"{run.revision}-{run.state.value}"'


def names(header: str | None, run: RunRecord) -> bool:
    """Tell whether a list of tags, as headers carry it, names the run as it is."""
    given = [tag.strip().removeprefix("W/") for tag in (header or "").split(",")]
    return "*" in given or etag(run) in given


def require_match(header: str | None, run: RunRecord) -> None:
    """Let a change go on only if the run is as its sender believes.

    Raises:
        PreconditionFailedError: It has changed since.
    """
    if header is not None and not names(header, run):
        raise PreconditionFailedError(
            f"run {run.id} has ETag {etag(run)} now: it has changed since it was read.",
            remedy="Read it again and decide anew.",
        )
