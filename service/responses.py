"""Downloads."""

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final
from urllib.parse import quote

from fastapi.responses import StreamingResponse

from speciate.schema.base import Record

JSON_LINES: Final = "application/x-ndjson"
_LINES_PER_CHUNK: Final = 100


def json_lines_response(description: str) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI description of a response by ``attached_json_lines``."""
    return {200: {"content": {JSON_LINES: {"schema": {"type": "string"}}}, "description": description}}


def attachment(name: str) -> dict[str, str]:
    """Return the header of a download (RFC 6266)."""
    quoted = quote(name, safe="", errors="replace")
    file = f'filename="{name}"' if quoted == name else f"filename*=UTF-8''{quoted}"
    return {"Content-Disposition": f"attachment; {file}"}


def attached_json_lines(name: str, records: Iterator[Record]) -> StreamingResponse:
    return StreamingResponse(_json_lines(records), media_type=JSON_LINES, headers=attachment(f"{name}.jsonl"))


def _json_lines(records: Iterator[Record]) -> Iterator[str]:
    # Each chunk costs a switch to another thread, which would take longer than reading one line.
    while chunk := list(islice(records, _LINES_PER_CHUNK)):
        yield "".join(record.model_dump_json() + "\n" for record in chunk)
