"""Labels of runs and their changes."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from speciate.domain.errors import InvalidInputError
from speciate.domain.labels import Labels, Relabelling

MANY = tuple(f"t{i}" for i in range(16))


def test_labels_are_stripped_and_tags_distinct() -> None:
    labels = Labels(name="  four islands ", tags=("b", "a", "b"), note="\nfirst\nsecond\n")
    assert (labels.name, labels.tags, labels.note) == ("four islands", ("b", "a"), "first\nsecond")
    assert Labels(name="ε-lexicase <b>", tags=("arm:a", "2026-11/x", "lr=1e-3", "a.b_c+d"), note="x" * 4000)


@pytest.mark.parametrize(
    "values",
    [
        {"name": "x" * 121},
        {"name": "two\nlines"},
        {"name": "two\u2028lines"},
        {"name": "\x1b[31mred"},
        {"name": "half \ud800"},
        {"tags": ["x" * 41]},
        {"tags": [""]},
        {"tags": ["two words"]},
        {"tags": ["a,b"]},
        {"tags": ["=1+1"]},
        {"tags": ["<b>"]},
        {"tags": [*MANY, "more"]},
        {"note": "x" * 4001},
        {"note": "NUL \x00"},
        {"colour": "red"},
    ],
)
def test_invalid_labels_are_refused(values: dict[str, object]) -> None:
    for kind in (Labels, Relabelling):
        with pytest.raises(ValidationError):
            kind.model_validate(values)


def test_a_change_keeps_fields_it_does_not_name() -> None:
    labels = Labels(name="n", tags=("a", "b"), note="why")
    assert Relabelling().of(labels) == labels
    assert Relabelling(name="").of(labels) == Labels(tags=("a", "b"), note="why")
    assert Relabelling(add_tags=("c", "a"), remove_tags=("b", "z")).of(labels).tags == ("a", "c")
    assert Relabelling(tags=("x",), add_tags=("y",)).of(labels).tags == ("x", "y")
    assert Relabelling(tags=()).of(labels).tags == ()


def test_added_tags_count_with_existing_ones() -> None:
    full = Labels(tags=MANY)
    assert Relabelling(add_tags=("new",), remove_tags=("t0",)).of(full).tags == (*MANY[1:], "new")
    with pytest.raises(InvalidInputError, match="17 tags: expected at most 16"):
        Relabelling(add_tags=("new",)).of(full)
