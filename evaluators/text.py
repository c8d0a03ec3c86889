"""Bound and sanitize texts from candidates and scripts."""

import json

from pydantic import JsonValue


def sanitize(text: str, max_chars: int = 4000) -> str:
    """Return the end of a text without NUL and lone surrogates."""
    return text[-max_chars:].encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd") if max_chars else ""


def short_json(value: JsonValue, max_chars: int = 200) -> str:
    text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= max_chars else text[:max_chars] + " …"


class Tail:
    """Buffer of the last bytes of an unbounded stream."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._kept = b""

    def feed(self, data: bytes) -> None:
        self._kept = (self._kept + data)[-self.max_bytes :] if self.max_bytes else b""

    def take(self) -> str:
        text = sanitize(self._kept.decode("utf-8", "replace"), self.max_bytes)
        self._kept = b""
        return text
