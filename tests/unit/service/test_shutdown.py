"""Graceful shutdown: the API drains, then its streams end, then the server stops."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from types import FrameType

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from service.middleware.headers import ResponseHeaders
from service.shutdown import on_stop_signal


@pytest.mark.parametrize(("signals", "drain_s"), [(1, 0.3), (2, 60.0), (1, 0.0)])
def test_drain_comes_first_and_a_second_signal_ends_it(signals: int, drain_s: float) -> None:
    happened: list[tuple[str, float]] = []

    def note(what: str) -> None:
        happened.append((what, time.monotonic()))

    async def serve() -> None:
        over = asyncio.Event()

        def server(_: int, __: FrameType | None) -> None:
            note("server")
            over.set()

        before = signal.signal(signal.SIGTERM, server)
        try:
            with on_stop_signal(lambda: note("drain"), lambda: note("end"), drain_s):
                for _ in range(signals):
                    os.kill(os.getpid(), signal.SIGTERM)
                    await asyncio.sleep(0.05)
                await asyncio.wait_for(over.wait(), 20)
        finally:
            signal.signal(signal.SIGTERM, before)

    asyncio.run(serve())
    assert [what for what, _ in happened] == ["drain"] * signals + ["end", "server"]
    if signals == 1:
        assert happened[1][1] - happened[0][1] >= drain_s


def test_draining_process_closes_connections_with_the_response() -> None:
    async def hello(_: Request) -> PlainTextResponse:
        return PlainTextResponse("hello")

    app = Starlette(routes=[Route("/", hello)])
    app.state.draining = threading.Event()
    app.add_middleware(ResponseHeaders)

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as client:
            return await client.get("/")

    assert "connection" not in asyncio.run(ask()).headers
    app.state.draining.set()
    assert asyncio.run(ask()).headers["connection"] == "close"
