"""Write logs as one line per event, as text or JSON, with context ids and without secrets.

Every line that is logged inside a ``log_context`` block carries its ids, such as ``run`` and ``work``.
"""

import json
import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Final, TextIO

_SHORTEST_SECRET: Final = 6
"""Shorter secrets are not masked: they would hide ordinary words."""

_ids: ContextVar[dict[str, str] | None] = ContextVar("ids", default=None)


@contextmanager
def log_context(**ids: str) -> Iterator[dict[str, str]]:
    """Add ids to every line that is logged inside the block; yield all ids in force."""
    context = (_ids.get() or {}) | ids
    token = _ids.set(context)
    try:
        yield context
    finally:
        _ids.reset(token)


def add_log_context(**ids: str) -> None:
    """Add ids to the current ``log_context`` block, also from a thread with its context; outside a block do nothing."""
    context = _ids.get()
    if context is not None:
        context.update(ids)


class TextFormatter(logging.Formatter):
    """Formatter of text lines: the standard format, then the ids."""

    def __init__(self, secrets: Iterable[str]) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        # Longest first, so that a URL is masked as a whole before its password.
        self._secrets = sorted({s for s in secrets if len(s) >= _SHORTEST_SECRET}, key=len, reverse=True)

    def format(self, record: logging.LogRecord) -> str:
        return self.masked(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - name of the base class
        return super().formatMessage(record) + "".join(f" {name}={value}" for name, value in (_ids.get() or {}).items())

    def masked(self, line: str) -> str:
        for secret in self._secrets:
            line = line.replace(secret, "********")
        return line


class JsonFormatter(TextFormatter):
    """Formatter of JSON lines: ``at``, ``level``, ``logger``, ``message``, the ids, and ``error`` with a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        values: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **(_ids.get() or {}),
        }
        if record.exc_info:
            values["error"] = self.formatException(record.exc_info)
        # Masked as text, so secrets are also searched in their JSON-escaped form.
        return self.masked(json.dumps(values, default=str))


class ServiceLogHandler(logging.StreamHandler[TextIO]):
    """Handler that ``configure`` installs; a second call replaces it."""


def configure(*, form: str, level: str, secrets: Iterable[str] = (), stream: TextIO | None = None) -> None:
    """Log to standard error or ``stream``, including the libraries' loggers, with ``secrets`` masked in every line."""
    hidden = {text for secret in secrets for text in (secret, json.dumps(secret)[1:-1])}
    handler = ServiceLogHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(hidden) if form == "json" else TextFormatter(hidden))
    root = logging.getLogger()
    root.handlers = [each for each in root.handlers if not isinstance(each, ServiceLogHandler)] + [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "celery"):
        library = logging.getLogger(name)
        library.handlers, library.propagate = [], True
    # At level INFO httpx logs the URL of every request.
    logging.getLogger("httpx").setLevel(logging.WARNING)
