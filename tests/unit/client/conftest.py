from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from speciate.client import AsyncClient, Client
from tests.unit.client.fake_service import FakeService, run_fake_service


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.upper().startswith("SPECIATE_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def service() -> Iterator[FakeService]:
    with run_fake_service() as made:
        yield made


Step = Callable[[Any], Any]
Ask = Callable[..., Any]


@pytest.fixture(params=["sync", "async"])
def ask(request: pytest.FixtureRequest, service: FakeService) -> Ask:
    """Take steps from a client on, each with the result of the one before; every test holds for both clients."""

    def with_client(*steps: Step, token: str | None = None) -> Any:
        with Client(service.url, token) as value:
            result: Any = value
            for step in steps:
                result = step(result)
                result = list(result) if isinstance(result, Iterator) else result
            return result

    async def with_async_client(*steps: Step, token: str | None = None) -> Any:
        async with AsyncClient(service.url, token) as value:
            result: Any = value
            for step in steps:
                result = await _settle(step(result))
            return result

    if request.param == "sync":
        return with_client
    return lambda *steps, **options: asyncio.run(with_async_client(*steps, **options))


async def _settle(value: Any) -> Any:
    if isinstance(value, AsyncIterator):
        return [item async for item in value]
    return await value if isinstance(value, Awaitable) else value
