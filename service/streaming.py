"""Streams of JSON Lines: one record a line, sent as they are read."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from speciate.ports.records.base import Record

JSON_LINES: Final = "application/x-ndjson"
_LINES_PER_CHUNK: Final = 100


def json_lines(records: Iterator[Record]) -> Iterator[str]:
    """Yield the lines, some at a time."""
    # Each chunk is a trip to another thread: a chunk a line would cost more than reading it.
    while chunk := list(islice(records, _LINES_PER_CHUNK)):
        yield "".join(record.model_dump_json() + "\n" for record in chunk)
