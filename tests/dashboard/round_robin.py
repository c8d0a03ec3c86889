"""A proxy that sends each connection to the next live replica, without stickiness."""

from __future__ import annotations

import asyncio
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
    """

    ports: list[int]
    port: int = 0
    served: Counter[int] = field(default_factory=Counter)
    _turn: int = 0

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

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            theirs = await self._open()
        except ConnectionError:
            writer.close()
            return
        await asyncio.gather(_pump(reader, theirs[1]), _pump(theirs[0], writer))


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
    proxy = RoundRobin(ports)
    loop = asyncio.new_event_loop()

    async def listen() -> asyncio.Server:
        return await asyncio.start_server(proxy._serve, "127.0.0.1", 0)

    thread = threading.Thread(target=loop.run_forever, name="proxy")
    thread.start()
    server = asyncio.run_coroutine_threadsafe(listen(), loop).result()
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        asyncio.run_coroutine_threadsafe(_end(server), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _end(server: asyncio.Server) -> None:
    server.close()
    mine = asyncio.current_task()
    tasks = [task for task in asyncio.all_tasks() if task is not mine]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
