"""HTTP over plain sockets: a client light enough to ask a thousand times a second from the machine that answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

LIMIT_S = 20.0
_ERRORS = (OSError, EOFError, asyncio.TimeoutError, asyncio.LimitOverrunError, ValueError)


@dataclass
class Replicas:
    """One keep-alive connection to each of several replicas; asks them in turn, passing over those that refuse."""

    ports: Sequence[int]
    turn: int = 0
    passed_over: int = 0
    _open: dict[int, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = field(default_factory=dict)

    async def get(self, path: str) -> tuple[int, bytes]:
        """Return status and body of the first answer that is no refusal of the process itself; 0 without any."""
        self.turn += 1
        status, body = 0, b""
        for step in range(len(self.ports)):
            port = self.ports[(self.turn + step) % len(self.ports)]
            try:
                async with asyncio.timeout(LIMIT_S):
                    status, body = await self._ask(port, path)
            except _ERRORS:
                self._close(port)
                self.passed_over += 1
                continue
            if status != 503:
                return status, body
            self.passed_over += 1
        return status, body

    def close(self) -> None:
        """Close every connection."""
        for port in list(self._open):
            self._close(port)

    async def _ask(self, port: int, path: str) -> tuple[int, bytes]:
        if port not in self._open:
            self._open[port] = await asyncio.open_connection("127.0.0.1", port)
        reader, writer = self._open[port]
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        lowered = head.lower()
        status = int(head.split(b" ", 2)[1])
        length = lowered.partition(b"content-length:")[2].partition(b"\r\n")[0]
        if not length:
            raise ValueError("an answer without a length")
        body = await reader.readexactly(int(length))
        if b"connection: close" in lowered:
            self._close(port)
        return status, body

    def _close(self, port: int) -> None:
        if port in self._open:
            self._open.pop(port)[1].close()


async def events(port: int, run: str, after: int) -> AsyncIterator[int | None]:
    """Yield the sequence number of each event of a stream, and None for its end; ends early when the stream breaks."""
    writer = None
    with suppress(*_ERRORS):
        reader, writer = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), LIMIT_S)
        head = f"GET /v1/runs/{run}/events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept: text/event-stream\r\n"
        writer.write(f"{head}Last-Event-ID: {after}\r\n\r\n".encode())
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), LIMIT_S)
        if b" 200 " not in answer.split(b"\r\n", 1)[0]:
            return
        while True:
            line = await asyncio.wait_for(reader.readline(), 2 * LIMIT_S)
            if not line:
                return
            if line.startswith(b"id: "):
                yield int(line[4:])
            elif line.startswith(b"event: end"):
                yield None
                return
    if writer is not None:
        writer.close()


def items(body: bytes) -> list[dict[str, object]]:
    """Return the items of a page."""
    found: list[dict[str, object]] = json.loads(body)["items"]
    return found
