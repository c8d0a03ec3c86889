"""Follow the events of a run over several connections: position, reconnection delays and when to give up."""

import time
from typing import Final
from uuid import UUID

import httpx
from httpx_sse import ServerSentEvent
from pydantic import ValidationError

from speciate.client.calls import path_segment
from speciate.client.responses import raise_for_error, unexpected_response
from speciate.domain.errors import UnavailableError
from speciate.schema.runs import EventRecord

END: Final = "end"
"""Name of the last event of a stream."""

HEARTBEAT: Final = "heartbeat"
"""Name of an event without data that breaks the silence of a stream."""

MAX_ATTEMPTS: Final = 18
"""Consecutive connections that may fail without an event: about a minute, long enough for a restart of the service."""

_FIRST_DELAY_S: Final = 0.1
_LONGEST_DELAY_S: Final = 5.0
_LASTING_S: Final = 10.0


class StreamBrokenError(Exception):
    """The connection cannot be read further. The next one continues after the last event."""


class EventCursor:
    """Position in the event stream of one run, after the event ``last``. Performs no I/O."""

    def __init__(self, run_id: UUID, *, after: int = 0) -> None:
        self.path = f"/v1/runs/{path_segment(run_id, 'run')}/events"
        self.last = after
        self.ended = False
        self._run_id = run_id
        self._attempts = 0
        self._connected_at = 0.0
        self._retry_s = 0.0

    @property
    def headers(self) -> dict[str, str]:
        return {"Accept": "text/event-stream", "Cache-Control": "no-store", "Last-Event-ID": str(self.last)}

    def connected(self, response: httpx.Response) -> None:
        """Check the head of a response. The body of an error response must have been read.

        Raises ``StreamBrokenError`` if the service is unavailable at the moment.
        """
        try:
            raise_for_error(response)
        except UnavailableError as error:
            raise StreamBrokenError(str(error)) from error
        kind = response.headers.get("Content-Type", "")
        if not kind.startswith("text/event-stream"):
            raise unexpected_response(response, f"{kind or 'an untyped body'} instead of server-sent events")
        self._retry_s = 0.0
        self._connected_at = time.monotonic()

    def accept(self, event: ServerSentEvent) -> EventRecord | None:
        """Return the record of the next event, or None for an event already seen, a comment or the end."""
        if event.retry is not None:
            self._retry_s = event.retry / 1000
        if not event.data or self.ended:
            return None
        if event.event == END:
            self.ended = True
            return None
        record = _record(event)
        if record.seq <= self.last:
            return None
        if record.seq != self.last + 1:
            raise StreamBrokenError(f"event {record.seq} came after event {self.last}")
        self.last, self._attempts = record.seq, 0
        return record

    def delay_after(self, error: Exception | None) -> float:
        """Return the seconds to wait before the next connection; raises if too many in a row broke.

        ``error`` broke the connection; None if it closed without an ``end`` event.
        """
        if self._connected_at and time.monotonic() - self._connected_at > _LASTING_S:
            self._attempts = 0  # A proxy that cuts idle connections of a quiet run is not a failure.
        self._connected_at = 0.0
        self._attempts += 1
        if self._attempts >= MAX_ATTEMPTS:
            reason = str(error) or type(error).__name__ if error else "the stream ended without an end"
            raise UnavailableError(
                f"the event stream of run {self._run_id} broke {self._attempts} times in a row: {reason}.",
                remedy="The run itself is not affected. Watch it again later.",
            ) from error
        return min(_LONGEST_DELAY_S, max(self._retry_s, _FIRST_DELAY_S * 2.0 ** (self._attempts - 1)))


def _record(event: ServerSentEvent) -> EventRecord:
    try:
        return EventRecord.model_validate_json(event.data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise StreamBrokenError(f"the event with id {event.id!r} cannot be read ({first['msg']})") from None
