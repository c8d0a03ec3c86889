"""Numbers from endpoints: whatever arrives is a usable number or None."""

import math
from typing import Any

import pytest

from speciate.policies.numbers import read_count, read_json, read_logprobs, read_number, read_token_ids, sum_of_counts


@pytest.mark.parametrize(
    "value", [10**400, -(10**400), math.inf, math.nan, "1e400", "1.2.3", "", "nan", True, [], None]
)
def test_what_is_no_finite_number_is_none(value: Any) -> None:
    assert read_number(value) is None
    assert read_logprobs([value, -1.0]) == [-1.0]
    assert read_token_ids([value, 1]) == read_token_ids(value) == ()


def test_numbers_are_read() -> None:
    assert (read_number("2.5"), read_number(-3), read_number("1e3")) == (2.5, -3.0, 1000.0)
    assert (read_count(5), read_count(6, 5), read_count(-1), read_count(2.0), read_count(True)) == (
        5,
        None,
        *[None] * 3,
    )
    assert read_logprobs([-1.0, -1e308, -1e308, 700.0, "-2", -3]) == [-1.0, -3.0]  # no sum reaches infinity
    assert read_token_ids([0, 2**31 - 1]) == (0, 2**31 - 1)
    assert read_token_ids([2**31]) == ()


@pytest.mark.parametrize("waiting", ["1e400", "1.2.3", "1e300", "+"])
def test_a_count_that_no_server_has_does_not_count(waiting: str) -> None:
    assert sum_of_counts([waiting]) is None
    assert sum_of_counts([waiting, "3.0"]) == 3


@pytest.mark.parametrize("text", ["", "{", b"\xff", 10**5 * "[", "1" * 5000])
def test_what_is_no_json_is_none(text: str | bytes) -> None:
    assert read_json(text) is None
    assert read_json(b'{"a": [1]}') == read_json('{"a": [1]}') == {"a": [1]}
