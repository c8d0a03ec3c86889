"""Following a run's events over connections that break: where the stream stands, and when to give up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final
from uuid import UUID

import httpx
from pydantic import ValidationError

from speciate.client.answers import foreign, refuse_errors
from speciate.client.calls import segment
from speciate.client.sse import EventParser, EventTooLongError, ServerSentEvent
from speciate.domain.errors import UnavailableError
from speciate.ports.records.runs import EventRecord

END: Final = "end"
"""Name of the event after which nothing more comes."""

MAX_ATTEMPTS: Final = 18
"""Connections in a row that may break without having brought an event: about a minute, in which a service restarts."""

_FIRST_DELAY_S: Final = 0.1
_LONGEST_DELAY_S: Final = 5.0
_LASTING_S: Final = 10.0


class StreamBrokenError(Exception):
    """The connection cannot be read on; the next one continues where it stopped."""


class Course:
    """Where a stream of events stands. Does no waiting and no sending, so that both clients share it.

    Attributes:
        last: Sequence number of the newest event that was passed on.
        ended: Whether the service said that nothing more will come.
    """

    def __init__(self, run_id: UUID, *, after: int = 0) -> None:
        self.path = f"/v1/runs/{segment(run_id, 'run')}/events"
        self.last = after
        self._run_id = run_id
        self.ended = False
        self._attempts = 0
        self._connected_at = 0.0
        self._parser = EventParser()

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the next connection."""
        return {"Accept": "text/event-stream", "Cache-Control": "no-store", "Last-Event-ID": str(self.last)}

    def connected(self, response: httpx.Response) -> None:
        """Check the head of an answer whose body has been read if it is an error.

        Raises:
            SpeciateError: The service refused, and would again.
            StreamBrokenError: It does not answer now.
        """
        try:
            refuse_errors(response)
        except UnavailableError as error:
            raise StreamBrokenError(str(error)) from error
        kind = response.headers.get("Content-Type", "")
        if not kind.startswith("text/event-stream"):
            raise foreign(response, f"{kind or 'nameless bytes'} instead of server-sent events")
        self._parser = EventParser()
        self._connected_at = time.monotonic()

    def take(self, chunk: bytes) -> Iterator[EventRecord]:
        """Yield the events that a chunk completes, each once and in order.

        Raises:
            StreamBrokenError: The bytes are no events, or some are missing.
        """
        try:
            for event in self._parser.feed(chunk):
                if event.name == END:
                    self.ended = True
                    return
                record = _record(event)
                if record.seq <= self.last:
                    continue
                if record.seq != self.last + 1:
                    raise StreamBrokenError(f"event {record.seq} came after event {self.last}")
                self.last, self._attempts = record.seq, 0
                yield record
        except EventTooLongError as error:
            raise StreamBrokenError(str(error)) from error

    def delay_after(self, error: Exception | None) -> float:
        """Return the seconds to wait before connecting again.

        Args:
            error: What broke the connection; None when it ended without saying so.

        Raises:
            UnavailableError: It broke too often in a row.
        """
        if self._connected_at and time.monotonic() - self._connected_at > _LASTING_S:
            self._attempts = 0  # A quiet run behind a proxy that cuts idle connections is no failure.
        self._connected_at = 0.0
        self._attempts += 1
        if self._attempts >= MAX_ATTEMPTS:
            reason = str(error) or type(error).__name__ if error else "the stream ended without an end"
            raise UnavailableError(
                f"the events of run {self._run_id} broke off {self._attempts} times in a row: {reason}.",
                remedy="The run itself is not affected: watch it again later.",
            ) from error
        wanted_s = (self._parser.retry_ms or 0) / 1000
        return min(_LONGEST_DELAY_S, max(wanted_s, _FIRST_DELAY_S * 2.0 ** (self._attempts - 1)))


def _record(event: ServerSentEvent) -> EventRecord:
    try:
        return EventRecord.model_validate_json(event.data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise StreamBrokenError(f"the event with id {event.id!r} cannot be read ({first['msg']})") from None
