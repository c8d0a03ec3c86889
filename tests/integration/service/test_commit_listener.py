"""The listener for commits behind the event streams, on a network that swallows packets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import urlsplit
from uuid import UUID

import pytest
import redis.asyncio

from service import commit_listener
from service.commit_listener import listen_for_commits
from speciate.messaging.signals import COMMIT_CHANNEL
from tests.support.relay import Relay, relay

pytestmark = pytest.mark.servers

LIMIT_S = 20.0
RUN = UUID(int=7)


@pytest.fixture
def network(redis_url: str) -> Iterator[tuple[Relay, str]]:
    """A relay to Valkey, and the server's URL through it."""
    given = urlsplit(redis_url)
    with relay(given.path) as made:
        yield made, f"redis://:{given.password}@127.0.0.1:{made.port}/0"


def test_a_silent_connection_is_replaced(
    redis_url: str, network: tuple[Relay, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(commit_listener, "_PING_S", 0.5)
    caplog.set_level(logging.WARNING, logger="service.commit_listener")
    line, through = network
    woken: list[UUID] = []

    async def wake() -> None:
        """Publish until the listener hears it."""
        woken.clear()
        async with redis.asyncio.Redis.from_url(redis_url) as publisher:
            while not woken:
                await publisher.publish(COMMIT_CHANNEL, str(RUN))
                await asyncio.sleep(0.05)

    async def scenario() -> None:
        async with asyncio.timeout(LIMIT_S):
            listener = asyncio.create_task(listen_for_commits(through, woken.append))
            await wake()
            await asyncio.sleep(1.5)  # several pings: an idle connection is not a silent one
            assert caplog.messages == []
            line.silent.set()
            while "event streams poll PostgreSQL: no answer" not in caplog.text:
                await asyncio.sleep(0.05)
            line.silent.clear()
            await wake()
            listener.cancel()
            with suppress(asyncio.CancelledError):
                await listener

    asyncio.run(scenario())


def test_it_ends_whenever_it_is_cancelled(redis_url: str) -> None:
    async def scenario() -> None:
        for tenths_ms in range(0, 200, 3):  # a connection is made within a few of them
            listener = asyncio.create_task(listen_for_commits(redis_url, lambda _: None))
            await asyncio.sleep(tenths_ms / 10_000)
            listener.cancel()
            ended, _ = await asyncio.wait({listener}, timeout=commit_listener._PING_S / 3)
            assert ended, f"cancelled after {tenths_ms / 10} ms"

    asyncio.run(scenario())
