"""Clients that mean harm, on loopback and bounded: what they are answered, and what others wait for meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from uuid import UUID

import httpx
import psutil

from benchmarks.attacks.described import ask_everything
from benchmarks.parts import CONSOLE, begin, show, spec
from speciate.embedded.servers import EmbeddedServers
from speciate.settings import Settings
from speciate.storage.database import connect
from speciate.storage.migrate import upgrade
from speciate.storage.stores import Stores, open_stores

ROOT = Path(__file__).parents[1]
STREAMS, CLIENTS = 10_000, 10
SLOW = 500
LARGE, LARGE_BYTES = 40, 24 << 20
EXAMPLES = 12
HEAD = b"Host: localhost\r\nAccept: text/event-stream\r\n\r\n"

ODD: dict[str, tuple[bytes, set[int]]] = {}
"""Requests that no client sends, with what they may be answered."""


def _odd(name: str, request: bytes, *statuses: int) -> None:
    ODD[name] = request, set(statuses)


def _post(body: bytes, kind: bytes = b"application/json") -> bytes:
    return b"POST /v1/problems HTTP/1.1\r\nHost: localhost\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (
        kind, len(body), body,
    )  # fmt: skip


def _get(target: bytes) -> bytes:
    return b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % target


_odd("JSON, 100,000 levels deep", _post(b'{"definition":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), 422)
_odd("a number of 100,000 digits", _post(b'{"definition":{"x":' + b"9" * 100_000 + b"}}"), 422)
_odd("100,000 keys", _post(b'{"definition":{' + b",".join(b'"k%d":0' % i for i in range(100_000)) + b"}}"), 422)
_odd("invalid UTF-8", _post(b'{"definition":{"slug":"\xff\xfe"}}'), 422)
_odd("half a surrogate pair", _post(b'{"definition":{"slug":"\\ud800"}}'), 422)
_odd("NUL in JSON", _post(b'{"definition":{"slug":"\\u0000"}}'), 422)
_odd("no JSON", _post(b"<xml/>", b"text/xml"), 415)
_odd("a query of 60 kB", _get(b"/v1/runs?cursor=" + b"a" * 60_000), 400, 422)
_odd("10,000 parameters", _get(b"/v1/runs?" + b"&".join(b"x%d=1" % i for i in range(5_000))), 200, 400)
_odd("NUL in a path", _get(b"/v1/problems/%00"), 404)
_odd("NUL in a query", _get(b"/v1/policies?slug=%00"), 422)
_odd("no UTF-8 in a path", _get(b"/v1/problems/%ff%fe"), 404)
_odd("a path out of the tree", _get(b"/static/../../../../etc/passwd"), 404)
_odd("the same, disguised", _get(b"/static/%2e%2e/%2e%2e/%2e%2e/etc/passwd"), 404)
_odd("a script for a name", _get(b"/v1/problems/%3Cscript%3Ealert(1)%3C%2Fscript%3E"), 404)
_odd("another method", b"TRACE /v1/runs HTTP/1.1\r\nHost: localhost\r\n\r\n", 405)
_odd("no HTTP", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400)
_odd("two lengths", b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400)
_odd(
    "a length of 5,000 digits",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
    400,
)
_odd("another host", b"GET /v1/runs HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403)


def run(settings: Settings) -> None:
    """Attack a local service and print the results. Fails if well-behaved clients are affected."""
    with _service(settings) as (url, process, stores):
        run_id = begin(stores, spec(1000))  # no worker serves it, so it keeps running
        rows = asyncio.run(_attacks(url, process, run_id))
        show(
            "Abuse on loopback: what it is answered, and how long other requests take meanwhile",
            [
                "attack",
                "connections",
                "answered",
                "others, median ms",
                "others, slowest ms",
                "files after",
                "MiB after",
            ],
            rows,
            "Others: GET /v1/runs?limit=1, one after the other, each answered by 200.",
        )
        begun = time.monotonic()
        known = {"run_id": str(run_id), "name": "spinning", "number": "1"}
        statuses = ask_everything(url, examples=EXAMPLES, known=known)
        told = ", ".join(f"{status}: {count:,}" for status, count in sorted(statuses.items()))
        CONSOLE.print(f"schemathesis: {statuses.total():,} requests in {time.monotonic() - begun:.0f} s; {told}")


async def _attacks(url: str, process: psutil.Process, run_id: UUID) -> list[tuple[object, ...]]:
    place = httpx.URL(url)
    port = place.port or 0
    stream = b"GET /v1/runs/%b/events HTTP/1.1\r\n%b" % (str(run_id).encode(), HEAD)
    attacks: dict[str, tuple[int, Callable[[], Awaitable[Counter[str]]]]] = {
        "nothing": (0, lambda: _nothing(3)),
        "streams of one client": (STREAMS // 5, lambda: _streams(port, stream, STREAMS // 5, 1)),
        "streams of ten clients": (STREAMS, lambda: _streams(port, stream, STREAMS, CLIENTS)),
        "heads, a byte a second": (SLOW, lambda: _drips(port, b"GET /v1/runs HTTP/1.1\r\nX-Slow: ", b"x")),
        "bodies, a byte a second": (
            SLOW,
            lambda: _drips(port, b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n", b" "),
        ),
        f"bodies of {LARGE_BYTES >> 20} MiB": (LARGE, lambda: _large(url)),
        "odd requests": (len(ODD), lambda: _odd_requests(port)),
    }
    rows: list[tuple[object, ...]] = []
    for name, (connections, attack) in attacks.items():
        async with _others(url) as waits:
            answered = await attack()
        await asyncio.sleep(2)
        told = ", ".join(f"{status}: {count:,}" for status, count in sorted(answered.items()))
        waits.sort()
        memory = process.memory_info().rss / 2**20
        rows.append((name, connections, told, waits[len(waits) // 2] * 1e3, waits[-1] * 1e3, process.num_fds(), memory))
        CONSOLE.print(f"{name}: {told or 'nothing'}")
        assert "500" not in answered, f"{name}: the service failed"
        assert "lost" not in answered, f"{name}: connections without an answer"
    return rows


@asynccontextmanager
async def _others(url: str) -> AsyncIterator[list[float]]:
    """Ask as others do until the block is left; the seconds that each answer took."""
    waits: list[float] = []

    async def ask() -> None:
        async with httpx.AsyncClient(base_url=url, timeout=30) as client:
            while True:
                begun = time.monotonic()
                answer = await client.get("/v1/runs", params={"limit": 1})
                assert answer.status_code == 200, answer.text
                waits.append(time.monotonic() - begun)
                await asyncio.sleep(0.05)

    task = asyncio.create_task(ask())
    yield waits
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def _nothing(seconds: float) -> Counter[str]:
    await asyncio.sleep(seconds)
    return Counter()


async def _connect(port: int, client: int = 1) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port, local_addr=(f"127.0.0.{client}", 0))


async def _status(reader: asyncio.StreamReader, limit_s: float = 40.0) -> str:
    try:
        async with asyncio.timeout(limit_s):
            return (await reader.readline()).decode("latin-1").split()[1]
    except (TimeoutError, OSError, IndexError):
        return "lost"


async def _streams(port: int, request: bytes, number_of: int, clients: int) -> Counter[str]:
    """Open every stream and hold it; those that are refused are closed by the service."""
    held: list[asyncio.StreamWriter] = []
    answered: Counter[str] = Counter()

    async def one(number: int) -> None:
        reader, writer = await _connect(port, 1 + number % clients)
        held.append(writer)
        writer.write(request)
        answered[await _status(reader)] += 1

    for first in range(0, number_of, 250):
        await asyncio.gather(*(one(number) for number in range(first, min(number_of, first + 250))))
    await asyncio.sleep(3)
    for writer in held:
        writer.close()
    return answered


async def _drips(port: int, beginning: bytes, byte: bytes) -> Counter[str]:
    answered: Counter[str] = Counter()

    async def one(number: int) -> None:
        reader, writer = await _connect(port, 1 + number % CLIENTS)
        writer.write(beginning)
        waiting = asyncio.create_task(_status(reader, 60))
        while not waiting.done():
            with contextlib.suppress(OSError):
                writer.write(byte)
            await asyncio.wait({waiting}, timeout=1)
        answered[waiting.result()] += 1
        writer.close()

    await asyncio.gather(*(one(number) for number in range(SLOW)))
    return answered


async def _large(url: str) -> Counter[str]:
    answered: Counter[str] = Counter()

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(LARGE_BYTES >> 16):
            yield bytes(1 << 16)

    async with httpx.AsyncClient(base_url=url, timeout=60, limits=httpx.Limits(max_connections=4)) as client:
        for number in range(LARGE):
            body: bytes | AsyncIterator[bytes] = bytes(LARGE_BYTES) if number % 2 else chunks()
            try:
                answer = await client.post("/v1/problems", content=body, headers={"Content-Type": "application/json"})
                answered[str(answer.status_code)] += 1
            except httpx.TransportError:
                answered["connection closed while sending"] += 1
    return answered


async def _odd_requests(port: int) -> Counter[str]:
    answered: Counter[str] = Counter()
    for name, (request, expected) in ODD.items():
        reader, writer = await _connect(port)
        writer.write(request)
        status = await _status(reader)
        head = await reader.readuntil(b"\r\n\r\n")
        writer.close()
        answered[status] += 1
        assert status in {str(each) for each in expected}, f"{name}: {status}, expected {expected}"
        assert int(status) < 400 or b"application/problem+json" in head or b"text/html" in head, f"{name}: {head!r}"
    return answered


@contextmanager
def _service(settings: Settings) -> Iterator[tuple[str, psutil.Process, Stores]]:
    """Run servers and one process of the API, as `speciate up` does."""
    servers = EmbeddedServers(settings.data_dir)
    try:
        endpoints = servers.start()
        urls = {"SPECIATE_DATABASE_URL": endpoints.database_url, "SPECIATE_REDIS_URL": endpoints.redis_url}
        urls["SPECIATE_SECRET_KEY"] = secrets.token_hex(32)
        engine = connect(endpoints.database_url)
        upgrade(engine)
        engine.dispose()
        log = settings.data_dir / "api.log"
        command = [sys.executable, "-m", "service", "--port", "0"]
        environment = {**os.environ, **urls, "PYTHONPATH": str(ROOT)}
        with log.open("w") as out, subprocess.Popen(command, env=environment, cwd=ROOT, stdout=out, stderr=out) as api:
            try:
                while "running on" not in log.read_text():
                    assert api.poll() is None, log.read_text()
                    time.sleep(0.1)
                url = log.read_text().partition("running on ")[2].split()[0]
                stores = open_stores(Settings(database_url=endpoints.database_url, redis_url=endpoints.redis_url))
                yield url, psutil.Process(api.pid), stores
                stores.close()
                assert "Traceback" not in log.read_text(), log.read_text()[-4000:]
            finally:
                api.terminate()
    finally:
        servers.stop()
