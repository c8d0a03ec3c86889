"""Responses that routes share: JSON written in the route's own thread, and JSON Lines streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from itertools import islice
from typing import Any, Final, ParamSpec, TypeVar, get_type_hints

from fastapi import Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, TypeAdapter

from speciate.schema.base import Record

JSON_LINES: Final = "application/x-ndjson"
_LINES_PER_CHUNK: Final = 100

P = ParamSpec("P")
T = TypeVar("T", bound=BaseModel)


def serialize_in_thread(read: Callable[P, T]) -> Callable[P, Response]:
    """Serialize the result of a route in the thread that computed it.

    FastAPI uses a second thread to validate and serialize what a route returns. Records from the stores are valid
    already, so busy routes skip that step. The OpenAPI document is unaffected.
    """
    adapter: TypeAdapter[Any] = TypeAdapter(get_type_hints(read)["return"])

    @wraps(read)
    def respond(*args: P.args, **kwargs: P.kwargs) -> Response:
        # A page is generic: this turns it into a page of the declared record without validating the items again.
        page = adapter.validate_python(read(*args, **kwargs), from_attributes=True)
        return Response(adapter.dump_json(page), media_type="application/json")

    return respond


def json_lines_response(description: str) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI description of a response by ``attached_json_lines``."""
    return {200: {"content": {JSON_LINES: {"schema": {"type": "string"}}}, "description": description}}


def attached_json_lines(name: str, records: Iterator[Record]) -> StreamingResponse:
    headers = {"Content-Disposition": f'attachment; filename="{name}.jsonl"'}
    return StreamingResponse(_json_lines(records), media_type=JSON_LINES, headers=headers)


def _json_lines(records: Iterator[Record]) -> Iterator[str]:
    # Each chunk costs a switch to another thread, which would take longer than reading one line.
    while chunk := list(islice(records, _LINES_PER_CHUNK)):
        yield "".join(record.model_dump_json() + "\n" for record in chunk)
