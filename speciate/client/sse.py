"""Reading server-sent events (WHATWG HTML, section 9.2.6) from the bytes of a stream, in whatever pieces they come.

Lines end at CR, LF or CRLF and nowhere else: ``str.splitlines`` (and with it httpx's ``iter_lines``) would also cut at
U+2028, which may stand in JSON.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

MAX_EVENT_CHARACTERS: Final = 32 << 20
"""Longest event that is held in memory; a stream without line ends would otherwise fill it."""

_LINE_END: Final = re.compile(r"\r\n|\n|\r")


class EventTooLongError(Exception):
    """The stream holds an event over ``MAX_EVENT_CHARACTERS``."""


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event.

    Attributes:
        name: Its kind; ``message`` when the stream names none.
        data: Its lines, joined.
        id: The last id that the stream gave, with this event or before.
    """

    name: str
    data: str
    id: str


class EventParser:
    """Turns bytes into events.

    Attributes:
        retry_ms: How long the service wants a client to wait before it connects again; None until it says so.
    """

    def __init__(self) -> None:
        self.retry_ms: int | None = None
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._rest = ""
        self._begun = False
        self._name, self._id = "", ""
        self._data: list[str] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[ServerSentEvent]:
        """Take bytes and yield the events that they complete.

        Raises:
            EventTooLongError: No end of the event is in sight.
        """
        for line in self._lines(chunk):
            if line:
                self._field(line)
            elif (event := self._dispatch()) is not None:
                yield event

    def _lines(self, chunk: bytes) -> list[str]:
        text = self._rest + self._decode(chunk)
        if text and not self._begun:
            text, self._begun = text.removeprefix("\ufeff"), True
        # A CR at the end may be the first half of a CRLF.
        held = "\r" if text.endswith("\r") else ""
        *lines, rest = _LINE_END.split(text[: len(text) - len(held)])
        self._rest = rest + held
        if len(self._rest) + self._size > MAX_EVENT_CHARACTERS:
            raise EventTooLongError(f"an event is over {MAX_EVENT_CHARACTERS} characters")
        return lines

    def _field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "data":
                self._data.append(value)
                self._size += len(value)
            case "event":
                self._name = value
            case "id" if "\0" not in value:
                self._id = value
            case "retry" if value.isascii() and value.isdigit():
                self.retry_ms = int(value[:9])
            case _:  # A comment (its name is empty) or a field that nobody has defined.
                pass

    def _dispatch(self) -> ServerSentEvent | None:
        event = ServerSentEvent(self._name or "message", "\n".join(self._data), self._id) if self._data else None
        self._name, self._size = "", 0
        self._data.clear()
        return event
