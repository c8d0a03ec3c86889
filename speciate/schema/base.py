"""Base class of the records, and pages of records."""

from datetime import datetime
from typing import Generic, TypeVar

from pydantic import ConfigDict

from speciate.domain.documented import Documented


class Record(Documented):
    """Base of the records: immutable; unknown fields of a newer server are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class HideableRecord(Record):
    """Base of records that can be archived and deleted."""

    archived_at: datetime | None = None
    """Time of archiving: lists hide the object, and new work cannot use it. None otherwise."""
    deleted_at: datetime | None = None
    """Time of deletion: the object counts nowhere, and can be restored until it is purged. None otherwise."""


T = TypeVar("T")


class Page(Record, Generic[T]):
    """One page of a list; ``next_cursor`` is None on the last page."""

    items: tuple[T, ...]
    next_cursor: str | None = None
