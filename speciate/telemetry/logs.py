"""Logs: one line an event, as text or JSON, with the ids of what is being worked on and without secrets.

``bound`` says what a block works on; every line that anybody writes inside it carries these ids.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Final, TextIO

_MASK: Final = "********"
_SHORTEST_SECRET: Final = 6
"""Shorter texts are not looked for: they would blacken words that only look like them."""

_ids: ContextVar[dict[str, str] | None] = ContextVar("ids", default=None)


@contextmanager
def log_context(**ids: str) -> Iterator[dict[str, str]]:
    """Add ids to every line that is logged inside the block; yields all that are in force, ``note`` adds to them."""
    held = (_ids.get() or {}) | ids
    token = _ids.set(held)
    try:
        yield held
    finally:
        _ids.reset(token)


def add_log_context(**ids: str) -> None:
    """Add ids that became known inside a ``bound`` block; also from a thread that works for it. Outside, do nothing."""
    held = _ids.get()
    if held is not None:
        held.update(ids)


class TextFormatter(logging.Formatter):
    """Lines of text: what the formatter of the library writes, then the ids."""

    def __init__(self, secrets: Iterable[str]) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        # Longest first: an address goes whole, before the password inside it.
        self._secrets = sorted({s for s in secrets if len(s) >= _SHORTEST_SECRET}, key=len, reverse=True)

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        return self.masked(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is the library's
        """Return the line without a traceback."""
        ids = "".join(f" {name}={value}" for name, value in (_ids.get() or {}).items())
        return super().formatMessage(record) + ids

    def masked(self, line: str) -> str:
        """Return a line without the secrets that this process knows."""
        for secret in self._secrets:
            line = line.replace(secret, _MASK)
        return line


class JsonFormatter(TextFormatter):
    """One JSON object a line: ``at``, ``level``, ``logger``, ``message``, the ids, and ``error`` with a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        values: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **(_ids.get() or {}),
        }
        if record.exc_info:
            values["error"] = self.formatException(record.exc_info)
        # Masked as text: a secret that JSON escapes is looked for in its escaped form, too.
        return self.masked(json.dumps(values, default=str))


class ServiceLogHandler(logging.StreamHandler[TextIO]):
    """The handler that ``configure`` installs; calling it again replaces it."""


def configure(*, form: str, level: str, secrets: Iterable[str] = (), stream: TextIO | None = None) -> None:
    """Have this process log to standard error, and the libraries' loggers through the same handler.

    Args:
        form: ``text`` or ``json``.
        level: ``debug``, ``info``, ``warning`` or ``error``.
        secrets: Texts that no line may hold.
        stream: Where lines go instead.
    """
    hidden = {text for secret in secrets for text in (secret, json.dumps(secret)[1:-1])}
    handler = ServiceLogHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(hidden) if form == "json" else TextFormatter(hidden))
    root = logging.getLogger()
    root.handlers = [each for each in root.handlers if not isinstance(each, ServiceLogHandler)] + [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "celery"):
        library = logging.getLogger(name)
        library.handlers, library.propagate = [], True
    # It writes down the address of every request it sends.
    logging.getLogger("httpx").setLevel(logging.WARNING)
