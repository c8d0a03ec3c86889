"""Reading JSON Lines from the bytes of a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Generic, TypeVar

import httpx
from pydantic import ValidationError

from speciate.client.answers import foreign
from speciate.client.calls import Call

T = TypeVar("T")


class LineSplitter(Generic[T]):
    """Cuts a stream at its line feeds and reads every line as the call says."""

    def __init__(self, call: Call[T]) -> None:
        self._call = call
        self._rest = b""

    def feed(self, chunk: bytes, response: httpx.Response) -> Iterator[T]:
        """Yield the values whose lines a chunk completes.

        Raises:
            ConfigurationError: A line does not hold such a value.
        """
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return (self._value(line, response) for line in lines if line.strip())

    def finish(self, response: httpx.Response) -> Iterator[T]:
        """Yield the value of a last line that no line feed ends; raises as ``feed`` does."""
        if self._rest.strip():
            yield self._value(self._rest, response)

    def _value(self, line: bytes, response: httpx.Response) -> T:
        try:
            return self._call.read(json.loads(line))
        except (ValidationError, ValueError):
            raise foreign(response, "a line that is no such record") from None
