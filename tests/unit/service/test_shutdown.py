"""The order in which the API stops: it leaves, then its streams end, then the server reacts."""

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

from service.middleware.leaving import Leaving
from service.shutdown import on_stop_signal


@pytest.mark.parametrize(("signals", "leave_s"), [(1, 0.3), (2, 60.0), (1, 0.0)])
def test_leaving_comes_first_and_a_second_signal_ends_it(signals: int, leave_s: float) -> None:
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
            with on_stop_signal(lambda: note("leave"), lambda: note("end"), leave_s):
                for _ in range(signals):
                    os.kill(os.getpid(), signal.SIGTERM)
                    await asyncio.sleep(0.05)
                await asyncio.wait_for(over.wait(), 20)
        finally:
            signal.signal(signal.SIGTERM, before)

    asyncio.run(serve())
    assert [what for what, _ in happened] == ["leave"] * signals + ["end", "server"]
    if signals == 1:
        assert happened[1][1] - happened[0][1] >= leave_s


def test_who_leaves_sends_clients_away_with_their_answer() -> None:
    async def hello(_: Request) -> PlainTextResponse:
        return PlainTextResponse("hello")

    app = Starlette(routes=[Route("/", hello)])
    app.state.leaving = threading.Event()
    app.add_middleware(Leaving)

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as client:
            return await client.get("/")

    assert "connection" not in asyncio.run(ask()).headers
    app.state.leaving.set()
    assert asyncio.run(ask()).headers["connection"] == "close"
