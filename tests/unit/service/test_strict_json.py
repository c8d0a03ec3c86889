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
from pydantic import BaseModel

from service import errors, strict_json
from service.strict_json import LargeRoute, MalformedJsonError, StrictRoute, parse, require_storable
from speciate.domain.errors import InvalidInputError, TooLargeError
from speciate.domain.unstorable import MAX_DEPTH, MAX_KEYS, MAX_VALUES, storage_errors, values_within

_plain = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _plain,
    lambda inner: st.lists(inner) | st.dictionaries(_plain, inner),
)


class _Empty(BaseModel, extra="forbid"):
    pass


@given(_values)
def test_what_json_holds_is_read_unchanged(value: Any) -> None:
    assert parse(json.dumps(value).encode()) == value


@given(st.binary())
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    with suppress(InvalidInputError):
        require_storable(parse(body))


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
        require_storable(["\x00"] * 100_000)
    assert len(caught.value.flaws) <= 20


def size(value: Any) -> int:
    match value:
        case dict():
            return 1 + sum(map(size, value.values()))
        case list():
            return 1 + sum(map(size, value))
    return 1


@given(_values)
def test_as_many_values_as_there_are_fit_and_half_as_many_do_not(value: Any) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        # An empty list or object counts as if it held something.
        assert values_within(text, 2 * size(value))
        assert not values_within(text, size(value) // 2 - 1)


@pytest.mark.parametrize("text", ['",[{"', '"\\",[{"', '"\\\\\\",[{"', '["\\\\", ",,,,[[[[{{{{"]'])
def test_signs_inside_texts_are_no_values(text: str) -> None:
    json.loads(text)
    assert values_within(text, 2)


@pytest.mark.parametrize(
    ("body", "most"),
    [
        (b'{"k": [' + b"1," * 99 + b"1]}", 50),
        (b"[" + b"{}," * 99 + b"{}]", 50),
        (b"[" + b'"",' * 200 + b'""]', 50),
        (b"[" * 99 + b"]" * 99, 50),
        (b'["\\\\", ' + b"1," * 99 + b"1]", 50),  # the quote after an escaped backslash ends the text
    ],
)
def test_a_body_of_too_many_values_is_refused_before_it_is_read(body: bytes, most: int) -> None:
    with pytest.raises(TooLargeError, match="more than 50 values"):
        parse(body, most)


def test_an_object_of_too_many_keys_is_named() -> None:
    with pytest.raises(InvalidInputError, match=r"a\.b: has 20001 keys: expected at most 20000"):
        parse(json.dumps({"a": {"b": {str(i): 0 for i in range(MAX_KEYS + 1)}}}).encode())


def test_a_body_in_another_encoding_is_none() -> None:
    for encoding in ("utf-16", "utf-16-le", "utf-32"):
        with pytest.raises(MalformedJsonError):
            parse('{"a": 1}'.encode(encoding))


def test_flaws_come_in_the_order_of_the_body() -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse(b'{"a": [1, NaN, {"b": "\\u0000"}], "c": 1e999}')
    assert [flaw.where for flaw in caught.value.flaws] == ["a.1", "a.2.b", "c"]


def test_looking_through_a_large_body_takes_no_memory() -> None:
    value = [[1] * 100_000, {"a": [2] * 100_000}]
    tracemalloc.start()
    try:
        assert storage_errors(value) == []
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("count", "apart"), [(1, False), (100_000, True)])
def test_a_large_body_is_read_where_it_holds_up_nobody(
    monkeypatch: pytest.MonkeyPatch, count: int, apart: bool
) -> None:
    threads: list[threading.Thread] = []

    def noted(body: bytes, most: int) -> Any:
        threads.append(threading.current_thread())
        return parse(body, most)

    monkeypatch.setattr(strict_json, "parse", noted)
    router = APIRouter(route_class=LargeRoute)

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


@pytest.mark.parametrize(("route", "most"), [(StrictRoute, 20_000), (LargeRoute, MAX_VALUES)])
def test_unknown_keys_without_end_are_refused_at_once(route: type[StrictRoute], most: int) -> None:
    router = APIRouter(route_class=route)

    @router.post("/")
    async def nothing(body: _Empty) -> None: ...

    app = FastAPI()
    errors.install(app)
    app.include_router(router)

    async def ask(count: int) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as client:
            return await client.post("/", json=dict.fromkeys(map(str, range(count)), 1))

    many = asyncio.run(ask(most + 1))
    assert many.status_code == 413
    assert f"more than {most} values" in many.json()["detail"]
    some = asyncio.run(ask(2000)).json()
    assert some["detail"].endswith("(and 1999 more)")
    assert len(some["errors"]) == 100
