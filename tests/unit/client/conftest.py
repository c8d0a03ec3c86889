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


@pytest.fixture
def ask(service: FakeService) -> Ask:
    """Take steps from the asyncio client on, each with the result of the one before.

    The blocking client is generated from it, and every test of the commands uses the blocking client.
    """

    async def steps_of(*steps: Step, token: str | None = None) -> Any:
        async with AsyncClient(service.url, token) as value:
            result: Any = value
            for step in steps:
                result = await _settle(step(result))
            return result

    return lambda *steps, **options: asyncio.run(steps_of(*steps, **options))


@pytest.fixture
def ask_blocking(service: FakeService) -> Ask:
    """The same with the blocking client."""

    def steps_of(*steps: Step) -> Any:
        with Client(service.url) as value:
            result: Any = value
            for step in steps:
                result = step(result)
                result = list(result) if isinstance(result, Iterator) else result
            return result

    return steps_of


async def _settle(value: Any) -> Any:
    if isinstance(value, AsyncIterator):
        return [item async for item in value]
    return await value if isinstance(value, Awaitable) else value
