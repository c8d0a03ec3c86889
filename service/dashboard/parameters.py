"""Parameters that several pages take."""

from typing import Annotated
from uuid import UUID

from fastapi import Depends, Query

from speciate.domain.errors import NotFoundError


def parse_id(text: str, kind: str) -> UUID:
    """Return an id from a URL; raises ``NotFoundError`` for a malformed one."""
    try:
        return UUID(text.strip())
    except ValueError:
        raise NotFoundError(f"there is no {kind} {text[:60]!r}.") from None


def parse_count(text: str) -> int | None:
    """Return a number that PostgreSQL can store, or None for another text."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None


async def _run_id(run_id: str) -> UUID:
    return parse_id(run_id, "run")


RunIdDep = Annotated[UUID, Depends(_run_id)]
Word = Annotated[str, Query(max_length=80)]
Text = Annotated[str, Query(max_length=2000)]
