"""Bodies are JSON, and nothing in them is what PostgreSQL or JSON refuse."""

from __future__ import annotations

import asyncio
import json
import threading
import tracemalloc
from contextlib import suppress
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from hypothesis import given
from hypothesis import strategies as st

from service import strict_json
from service.strict_json import MalformedJsonError, StrictRoute, parse, refuse_unfit
from speciate.domain.errors import InvalidInputError
from speciate.domain.unfit import MAX_DEPTH, unfit_flaws

_plain = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _plain,
    lambda inner: st.lists(inner) | st.dictionaries(_plain, inner),
)


@given(_values)
def test_what_json_holds_is_read_unchanged(value: Any) -> None:
    assert parse(json.dumps(value).encode()) == value


@given(st.binary())
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    with suppress(InvalidInputError):
        refuse_unfit(parse(body))


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ('{"a": [1, NaN]}', "a.1"),
        ('{"a": {"b": -1e999}}', "a.b"),
        ('["\\u0000"]', "0"),
        ('{"a": "\\ud800"}', "a"),
        ('{"\\u0000": 1}', "(key)"),
        ('"\\udfff"', "body"),
    ],
)
def test_what_cannot_be_stored_is_named(body: str, where: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse(body.encode())
    assert [flaw.where for flaw in caught.value.flaws] == [where]


def test_depth_is_bounded() -> None:
    parse(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    with pytest.raises(InvalidInputError, match="deeper"):
        parse(b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1))
    with pytest.raises(MalformedJsonError):
        parse(b"[" * 1_000_000)


def test_many_flaws_are_not_all_listed() -> None:
    with pytest.raises(InvalidInputError) as caught:
        refuse_unfit(["\x00"] * 100_000)
    assert len(caught.value.flaws) <= 20


def test_flaws_come_in_the_order_of_the_body() -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse(b'{"a": [1, NaN, {"b": "\\u0000"}], "c": 1e999}')
    assert [flaw.where for flaw in caught.value.flaws] == ["a.1", "a.2.b", "c"]


def test_looking_through_a_large_body_takes_no_memory() -> None:
    value = [[1] * 100_000, {"a": [2] * 100_000}]
    tracemalloc.start()
    try:
        assert unfit_flaws(value) == []
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("count", "apart"), [(1, False), (100_000, True)])
def test_a_large_body_is_read_where_it_holds_up_nobody(
    monkeypatch: pytest.MonkeyPatch, count: int, apart: bool
) -> None:
    threads: list[threading.Thread] = []

    def noted(body: bytes) -> Any:
        threads.append(threading.current_thread())
        return parse(body)

    monkeypatch.setattr(strict_json, "parse", noted)
    router = APIRouter(route_class=StrictRoute)

    @router.post("/")
    async def length(body: list[int]) -> int:
        return len(body)

    app = FastAPI()
    app.include_router(router)

    async def ask() -> int:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as client:
            read: int = (await client.post("/", json=[1] * count)).json()
            return read

    assert asyncio.run(ask()) == count
    assert [thread is not threading.current_thread() for thread in threads] == [apart]
