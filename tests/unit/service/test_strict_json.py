"""Bodies are JSON, and nothing in them is what PostgreSQL or JSON refuse."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.strict_json import MalformedJsonError, parse, refuse_unfit
from speciate.domain.errors import InvalidInputError
from speciate.domain.unfit import MAX_DEPTH

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
