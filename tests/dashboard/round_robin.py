"""A proxy that sends each connection to the next live replica, without stickiness."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from starlette.types import ASGIApp, Message, Receive, Scope, Send


def one_request(app: ASGIApp) -> ASGIApp:
    """Wrap an application so that it closes each connection, and the proxy distributes single requests."""

    async def closing(scope: Scope, receive: Receive, send: Send) -> None:
        async def close(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"connection", b"close")]
            await send(message)

        await app(scope, receive, close if scope["type"] == "http" else send)

    return closing


@dataclass
class RoundRobin:
    """The proxy.

    Attributes:
        ports: Ports of the replicas; may be changed at any time.
        port: Port of the proxy.
        served: Connections by replica.
        ended: Whether the next connection ends the proxy.
    """

    ports: list[int]
    port: int
    served: Counter[int] = field(default_factory=Counter)
    ended: bool = False
    _turn: int = 0
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        for _ in range(len(self.ports) * 2):
            self._turn += 1
            port = self.ports[self._turn % len(self.ports)]
            try:
                opened = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                continue
            self.served[port] += 1
            return opened
        raise ConnectionError("no replica is listening")

    async def run(self, listener: socket.socket) -> None:
        """Accept until `ended` is set and one more connection arrives; then disconnect all clients.

        Nothing is cancelled: a cancelled accept could lose its socket unclosed.
        """
        serving = set()
        while True:
            client, _ = await asyncio.get_running_loop().sock_accept(listener)
            if self.ended:
                break
            serving.add(asyncio.create_task(self._serve(client)))
        client.close()
        while serving := {task for task in serving if not task.done()}:
            for writer in self._writers:
                writer.transport.abort()
            await asyncio.wait(serving, timeout=0.05)

    async def _serve(self, client: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=client)
        self._writers.add(writer)
        try:
            theirs = await self._open()
            await asyncio.gather(_pump(reader, theirs[1]), _pump(theirs[0], writer))
        except ConnectionError:
            pass  # no replica is listening
        finally:
            writer.close()
            self._writers.discard(writer)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass  # the client disconnected
    finally:
        writer.close()


@contextmanager
def round_robin(ports: list[int]) -> Iterator[RoundRobin]:
    """Run the proxy in a thread."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        proxy = RoundRobin(ports, listener.getsockname()[1])
        thread = threading.Thread(target=lambda: asyncio.run(proxy.run(listener)), name="proxy")
        thread.start()
        try:
            yield proxy
        finally:
            proxy.ended = True
            socket.create_connection(listener.getsockname()).close()
            thread.join()
