"""Every query parameter that the client sends is one that its operation reads: the service refuses others."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from speciate.client import AsyncClient
from speciate.client.aio.run import AsyncRunHandle
from speciate.client.aio.transport import AsyncRestTransport
from speciate.client.calls import ApiCall
from speciate.schema.runs import RunRecord
from tests.unit.client.fake_service import run_json

PATHS = json.loads((Path(__file__).parents[3] / "docs/openapi.json").read_text())["paths"]


class _SentError(Exception):
    pass


class RecordingTransport(AsyncRestTransport):
    def __init__(self) -> None:
        self.calls: list[ApiCall[Any]] = []

    async def create(self, call: ApiCall[Any]) -> Any:
        self.calls.append(call)
        raise _SentError

    async def close(self) -> None:
        pass

    async def lines(self, call: ApiCall[Any]) -> AsyncIterator[Any]:
        yield await self.create(call)

    async def events(self, _: Any) -> AsyncIterator[Any]:
        raise _SentError  # a fixed path without a query
        yield


def readers(transport: RecordingTransport) -> Iterator[Callable[..., Any]]:
    """Yield the methods of the client that need no more than names."""
    client = AsyncClient("http://localhost:1")
    client._transport = transport
    groups = [name for name, each in vars(AsyncClient).items() if isinstance(each, cached_property)]
    run = AsyncRunHandle(transport, RunRecord.model_validate(run_json()))
    for group in (client, run, *(getattr(client, name) for name in groups)):
        for name, method in inspect.getmembers(group, inspect.ismethod):
            needed = [str(each.annotation) for each in arguments(method) if each.default is each.empty]
            if not name.startswith("_") and all(each in SAMPLES for each in needed):
                yield method


SAMPLES: dict[str, Any] = {"str | UUID": "x", "UUID | str": "x", "str": "x", "int": 2, "bool": True}
"""Values of arguments by annotation. One that is none of these and may be left out is ``x`` if it may be a text."""


def arguments(method: Callable[..., Any]) -> list[inspect.Parameter]:
    return [each for each in inspect.signature(method).parameters.values() if each.kind is not each.VAR_KEYWORD]


async def sent(transport: RecordingTransport, method: Callable[..., Any]) -> list[ApiCall[Any]]:
    """Return the calls of a method with all of its arguments that are texts or flags."""
    before = len(transport.calls)
    values = {each.name: SAMPLES.get(str(each.annotation), "x") for each in arguments(method)
              if str(each.annotation) in SAMPLES or "str | " in str(each.annotation)}  # fmt: skip
    try:
        result = method(**values)
        if isinstance(result, AsyncIterator):
            await anext(result)
        else:
            await result
    except _SentError:
        pass
    return transport.calls[before:]


def test_the_client_sends_only_query_parameters_that_its_operations_have() -> None:
    transport = RecordingTransport()
    queries = 0
    for method in readers(transport):
        for call in asyncio.run(sent(transport, method)):
            operations = [
                each[call.method.lower()]
                for path, each in PATHS.items()
                if call.method.lower() in each and re.fullmatch(re.sub(r"\{[^}]*\}", "[^/:]+", path), call.path)
            ]
            assert operations, (method.__qualname__, call.path)
            read = {each["name"] for one in operations for each in one.get("parameters", ()) if each["in"] == "query"}
            assert set(call.query) <= read, (method.__qualname__, call.path, set(call.query) - read)
            queries += bool(call.query)
    assert queries > 15
