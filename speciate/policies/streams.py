"""Join the chunks of a streamed response (server-sent events) into the response that was not streamed."""

import json
from collections.abc import Iterator
from typing import Any, Final

from speciate.policies.numbers import read_count

_WHOLE: Final = ("id", "model", "system_fingerprint", "usage", "error")
"""Fields of a chunk that are about the whole response; the last value counts."""
_TEXTS: Final = ("content", "reasoning_content", "reasoning", "thinking", "refusal")
_MOST_CHOICES: Final = 10_000


def is_stream(content_type: str, body: bytes) -> bool:
    """Return True if a response is a stream, by its type or its first line."""
    return content_type.startswith("text/event-stream") or body.lstrip().startswith((b"data:", b"event:", b":"))


def joined_stream(body: bytes) -> dict[str, Any]:
    """Return the response whose chunks a stream holds; it may end without ``[DONE]``."""
    whole: dict[str, Any] = {}
    choices: dict[int, _Choice] = {}
    for event in _events(body):
        chunk = json.loads(event)
        if not isinstance(chunk, dict):
            raise TypeError("an event of the stream is no object")
        whole |= {name: chunk[name] for name in _WHOLE if chunk.get(name)}
        listed = chunk.get("choices")
        for position, part in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(part, dict):
                index = read_count(part.get("index"), _MOST_CHOICES)
                choices.setdefault(position if index is None else index, _Choice()).add(part)
    if choices:
        whole["choices"] = [{"index": index, **choice.joined()} for index, choice in sorted(choices.items())]
    return whole


def joined_parts(content: object) -> object:
    """Return the texts of a content that is a list of parts, as of some models that reason."""
    if not isinstance(content, list):
        return content
    texts = [part.get("text") for part in content if isinstance(part, dict)]
    return "".join(text for text in texts if isinstance(text, str))


def _events(body: bytes) -> Iterator[str]:
    """Yield the data of each event. Comments and other fields are skipped."""
    lines: list[str] = []
    for line in [*body.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n").split("\n"), ""]:
        if line.startswith("data:"):
            lines.append(line.removeprefix("data:").removeprefix(" "))
        elif not line and lines:
            data, lines = "\n".join(lines), []
            if data.strip() == "[DONE]":
                return
            yield data


class _Choice:
    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._calls: dict[int, dict[str, list[str]]] = {}
        self._logprobs: dict[str, list[Any]] = {}
        self._token_ids: list[Any] = []
        self._rest: dict[str, Any] = {}

    def add(self, part: dict[str, Any]) -> None:
        """Add a part; some servers end a stream with the whole message."""
        delta = part.get("delta")
        if isinstance(whole := part.get("message"), dict) and not isinstance(delta, dict):
            self._texts, delta = {}, whole
        delta = delta if isinstance(delta, dict) else {}
        for name, text in [*((name, delta.get(name)) for name in _TEXTS), ("text", part.get("text"))]:
            if isinstance(joined := joined_parts(text), str):
                self._texts.setdefault(name, []).append(joined)
        calls = delta.get("tool_calls")
        for position, call in enumerate(calls if isinstance(calls, list) else ()):
            self._add_call(position, call)
        logprobs = part.get("logprobs")
        for name, values in logprobs.items() if isinstance(logprobs, dict) else ():
            if isinstance(values, list):
                self._logprobs.setdefault(name, []).extend(values)
        if isinstance(ids := part.get("token_ids"), list):
            self._token_ids.extend(ids)
        self._rest |= {name: part[name] for name in ("finish_reason", "error") if part.get(name) is not None}

    def joined(self) -> dict[str, Any]:
        texts = {name: "".join(parts) for name, parts in self._texts.items()}
        functions = [{name: "".join(parts) for name, parts in call.items()} for _, call in sorted(self._calls.items())]
        message: dict[str, Any] = {name: texts[name] for name in _TEXTS if name in texts}
        if functions:
            message["tool_calls"] = [{"function": function} for function in functions]
        choice = {"message": message, **self._rest}
        if "text" in texts:
            choice["text"] = texts["text"]
        if self._logprobs:
            choice["logprobs"] = self._logprobs
        if self._token_ids:
            choice["token_ids"] = self._token_ids
        return choice

    def _add_call(self, position: int, call: object) -> None:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(call, dict) or not isinstance(function, dict):
            return
        index = read_count(call.get("index"), _MOST_CHOICES)
        parts = self._calls.setdefault(position if index is None else index, {})
        for name in ("name", "arguments"):
            if isinstance(text := function.get(name), str):
                parts.setdefault(name, []).append(text)
