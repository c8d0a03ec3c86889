"""What all records are, and pages of them."""

from __future__ import annotations

from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """Base of the records: frozen; a newer server may add fields."""

    model_config = ConfigDict(frozen=True, extra="ignore")


T = TypeVar("T")


class Page(Record, Generic[T]):
    """One page of a list; ``next_cursor`` is None on the last one."""

    items: tuple[T, ...]
    next_cursor: str | None = None
