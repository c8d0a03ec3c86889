"""Request bodies are JSON with storable values."""

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
def test_json_values_are_parsed_unchanged(value: Any) -> None:
    assert parse(json.dumps(value).encode()) == value


@given(st.binary())
def test_any_bytes_are_parsed_or_rejected(body: bytes) -> None:
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
def test_unstorable_values_are_named(body: str, where: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse(body.encode())
    assert [field_error.where for field_error in caught.value.field_errors] == [where]


def test_nesting_depth_is_limited() -> None:
    parse(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    with pytest.raises(InvalidInputError, match="deeper"):
        parse(b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1))
    with pytest.raises(MalformedJsonError):
        parse(b"[" * 1_000_000)


def test_number_of_listed_errors_is_limited() -> None:
    with pytest.raises(InvalidInputError) as caught:
        require_storable(["\x00"] * 100_000)
    assert len(caught.value.field_errors) <= 20


def size(value: Any) -> int:
    match value:
        case dict():
            return 1 + sum(map(size, value.values()))
        case list():
            return 1 + sum(map(size, value))
    return 1


@given(_values)
def test_value_limit_is_exact(value: Any) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        # An empty list or object counts as if it held something.
        assert values_within(text, 2 * size(value))
        assert not values_within(text, size(value) // 2 - 1)


@pytest.mark.parametrize("text", ['",[{"', '"\\",[{"', '"\\\\\\",[{"', '["\\\\", ",,,,[[[[{{{{"]'])
def test_punctuation_inside_strings_does_not_count(text: str) -> None:
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
def test_body_with_too_many_values_is_rejected_before_parsing(body: bytes, most: int) -> None:
    with pytest.raises(TooLargeError, match="more than 50 values"):
        parse(body, most)


def test_object_with_too_many_keys_is_rejected() -> None:
    with pytest.raises(InvalidInputError, match=r"a\.b: has 20001 keys: expected at most 20000"):
        parse(json.dumps({"a": {"b": {str(i): 0 for i in range(MAX_KEYS + 1)}}}).encode())


def test_other_encodings_are_rejected() -> None:
    for encoding in ("utf-16", "utf-16-le", "utf-32"):
        with pytest.raises(MalformedJsonError):
            parse('{"a": 1}'.encode(encoding))


def test_errors_are_in_body_order() -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse(b'{"a": [1, NaN, {"b": "\\u0000"}], "c": 1e999}')
    assert [field_error.where for field_error in caught.value.field_errors] == ["a.1", "a.2.b", "c"]


def test_scanning_a_large_body_needs_no_memory() -> None:
    value = [[1] * 100_000, {"a": [2] * 100_000}]
    tracemalloc.start()
    try:
        assert storage_errors(value) == []
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("count", "apart"), [(1, False), (100_000, True)])
def test_large_body_is_parsed_in_a_thread(monkeypatch: pytest.MonkeyPatch, count: int, apart: bool) -> None:
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
def test_many_unknown_keys_are_rejected_quickly(route: type[StrictRoute], most: int) -> None:
    router = APIRouter(route_class=route)

    @router.post("/")
    async def nothing(body: _Empty) -> None: ...

    app = FastAPI()
    errors.install(app, with_redis=False)
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
