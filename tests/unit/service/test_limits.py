"""Limits for connections, heads, bodies and streams; well-behaved clients are served meanwhile."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator, MutableMapping
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from service.http_protocol import LimitedHttpProtocol
from service.middleware.body_limit import BodyLimit
from service.middleware.stream_limit import StreamLimit
from tests.support.http_server import serve_app


class Hasty(LimitedHttpProtocol):
    head_s = 0.4
    max_connections = 12


async def _length(request: Request) -> Response:
    return JSONResponse(len(await request.body()))


async def _stream(_: Request) -> Response:
    async def chunks() -> object:
        while True:
            yield b": here\n\n"
            await asyncio.sleep(0.05)

    return StreamingResponse(chunks(), media_type="text/event-stream")  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    app = Starlette(
        routes=[
            Route("/length", _length, methods=["GET", "POST"]),
            Route("/login", _length, methods=["POST"]),
            Route("/stream", _stream),
        ]
    )
    app.add_middleware(BodyLimit, max_bytes=100_000, body_s=0.4, open_paths=("/login",))
    app.add_middleware(StreamLimit, max_streams=3)
    with serve_app(app, http=Hasty) as address:
        yield address


@contextmanager
def connected(url: str) -> Iterator[socket.socket]:
    with socket.create_connection((urlsplit(url).hostname or "", urlsplit(url).port or 0), timeout=10) as raw:
        yield raw


def answer(raw: socket.socket) -> tuple[int, dict[str, object]]:
    """Read until the server closes: the status, and the problem details."""
    received = b""
    while chunk := raw.recv(65536):
        received += chunk
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head
    assert b"nosniff" in head
    return int(head.split()[1]), json.loads(body)


def test_slow_head_is_rejected(url: str) -> None:
    with connected(url) as raw:
        begun = time.monotonic()
        for byte in b"GET /length HTTP":
            raw.send(bytes([byte]))
            time.sleep(0.01)
        status, details = answer(raw)
    assert status == details["status"] == 408
    assert time.monotonic() - begun < 5


def test_slow_second_head_and_idle_connection_are_closed(url: str) -> None:
    with connected(url) as raw:
        raw.send(b"GET /length HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200 OK" in raw.recv(65536)
        raw.send(b"GET /le")
        assert answer(raw)[0] == 408
    with connected(url) as raw:
        assert answer(raw)[0] == 408


def test_an_idle_connection_is_kept_for_its_next_request() -> None:
    app = Starlette(routes=[Route("/length", _length)])
    with serve_app(app, http=LimitedHttpProtocol, timeout_keep_alive=0) as address, connected(address) as raw:
        for _ in range(2):
            raw.send(b"GET /length HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = raw.recv(65536)
            while not answer.endswith(b"\r\n\r\n0"):
                answer += raw.recv(65536)
            assert b"200 OK" in answer
            time.sleep(0.1)


def test_pipelined_requests_are_answered_in_order(url: str) -> None:
    with connected(url) as raw:
        raw.sendall(b"POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab" * 2 + b"GET /le")
        received = b""
        while chunk := raw.recv(65536):
            received += chunk
    assert [int(part.split()[0]) for part in received.split(b"HTTP/1.1 ")[1:]] == [200, 200, 408]


def test_slow_body_is_rejected(url: str) -> None:
    with connected(url) as raw:
        raw.send(b"POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc")
        status, details = answer(raw)
    assert status == details["status"] == 408
    assert "did not arrive in time" in str(details["detail"])


def test_a_client_that_leaves_during_its_body_reaches_no_route() -> None:
    reached, sent = [], []

    async def app(*_: object) -> None:
        reached.append(True)

    async def receive() -> dict[str, object]:
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, object]) -> None:
        sent.append(message.get("status"))

    scope = {"type": "http", "path": "/", "headers": [(b"content-length", b"10")]}
    asyncio.run(BodyLimit(app, max_bytes=100)(scope, receive, send))
    assert (reached, sent[0]) == ([], 400)


def test_forms_that_anyone_may_send_are_small(url: str) -> None:
    assert httpx.post(f"{url}/login", content=b"x" * 65_536).json() == 65_536
    refused = httpx.post(f"{url}/login", content=b"x" * 65_537)
    assert (refused.status_code, refused.json()["detail"]) == (413, "the body exceeds 65536 bytes.")


@pytest.mark.parametrize("encoding", ["length", "chunks"])
def test_too_large_body_is_rejected_before_reading(url: str, encoding: str) -> None:
    with connected(url) as raw:
        if encoding == "length":
            raw.send(b"POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: 100001\r\n\r\n")
        else:
            raw.send(b"POST /length HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            raw.send(b"20000\r\n" + b"x" * 0x20000)
        assert answer(raw)[0] == 413


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
        b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"G\x00T / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: \x00\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET /" + b"a" * 20_000,
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 200_000,
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\nHost: x\n\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n folded: 1\r\n\r\n",
    ],
)
def test_malformed_http_is_rejected(url: str, sent: bytes) -> None:
    with connected(url) as raw:
        raw.sendall(sent)
        assert answer(raw)[0] == 400


def test_connections_and_streams_are_limited(url: str) -> None:
    with httpx.Client(base_url=url) as client:
        with closing(httpx.Client(base_url=url)) as viewers:
            open_streams = [viewers.send(viewers.build_request("GET", "/stream"), stream=True) for _ in range(3)]
            assert {stream.status_code for stream in open_streams} == {200}
            refused = client.get("/stream")
            assert (refused.status_code, refused.headers["connection"]) == (429, "close")
            assert refused.headers["retry-after"]
            assert refused.json()["type"] == "urn:speciate:error:too-many-requests"
            assert client.get("/length").json() == 0
            for stream in open_streams:
                stream.close()
        deadline = time.monotonic() + 60
        while True:
            with client.stream("GET", "/stream") as again:
                if again.status_code == 200:
                    break
            assert time.monotonic() < deadline
    held = [socket.create_connection((urlsplit(url).hostname or "", urlsplit(url).port or 0)) for _ in range(12)]
    try:
        with connected(url) as raw:
            assert answer(raw)[0] == 503
    finally:
        for each in held:
            each.close()
