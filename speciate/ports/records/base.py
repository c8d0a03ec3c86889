"""Base class of the records, and pages of records."""

from __future__ import annotations

from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """Base of the records: immutable; unknown fields of a newer server are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


T = TypeVar("T")


class Page(Record, Generic[T]):
    """One page of a list; ``next_cursor`` is None on the last page."""

    items: tuple[T, ...]
    next_cursor: str | None = None
