import math

import pytest

from evaluators.compare import equal, words_of


@pytest.mark.parametrize(
    ("expected", "got", "tolerance", "same"),
    [
        (1, 1, 0, True),
        (1, 1.0, 0, False),
        (1, 1.0, 1e-9, True),
        (1, True, 0, False),
        (1, True, 0.5, False),
        (True, 1, 0, False),
        (True, 1, 0.5, False),
        (True, True, 0, True),
        (False, 0.0, 0.5, False),
        (None, None, 0, True),
        (None, 0, 0, False),
        ("1", 1, 0, False),
        ("a", "a", 0, True),
        ("", None, 0, False),
        (0.1 + 0.2, 0.3, 0, False),
        (0.1 + 0.2, 0.3, 1e-12, True),
        (1000.0, 1001.0, 1e-3, True),
        (0.0, 1e-3, 1e-3, True),
        (1.0, 1.01, 1e-3, False),
        (math.nan, math.nan, 0, False),
        (math.nan, math.nan, 1, False),
        (10**400, 10**400, 1e-3, True),
        (10**400, 10**400 + 1, 0, False),
        (10**400, 1.0, 1e-3, False),
        ([1, [2, 3]], [1, [2, 3]], 0, True),
        ([1, 2], [1, 2, 3], 0, False),
        ([1, 2], [2, 1], 0, False),
        ([1.0], [1], 1e-6, True),
        ([], {}, 0, False),
        ([0], "0", 0, False),
        ({"a": 1, "b": [2]}, {"b": [2], "a": 1}, 0, True),
        ({"a": 1}, {"a": 1, "b": 2}, 0, False),
        ({"a": 1.0}, {"a": 1.0001}, 1e-3, True),
    ],
)
def test_equal(expected, got, tolerance, same):
    assert equal(expected, got, tolerance) is same


@pytest.mark.parametrize(
    ("expected", "got", "same"),
    [
        ("3.14159 ok", "3.1415904  ok", True),
        ("3.14159 ok", "3.15 ok", False),
        ("3.14159 ok", "3.14159 no", False),
        ("1\n2", "1 2", True),
        ("1 2", "1 2 3", False),
        ("1e3 -.5", "1000 -0.5", True),
        ("nan", "nan", True),
        ("x", 3, False),
    ],
)
def test_numbers_in_texts_are_compared_within_a_tolerance(expected: str, got: object, same: bool) -> None:
    assert equal(words_of(expected), words_of(got), 1e-6) is same
