from __future__ import annotations

from enum import StrEnum

import pytest
from pydantic import TypeAdapter, ValidationError

from speciate.domain.suggestions import did_you_mean
from speciate.domain.validation import validation_message


@pytest.mark.parametrize(
    ("name", "known", "question"),
    [
        ("sorting-netwrk-8", ["circle-packing-26", "sorting-network-8"], "Did you mean 'sorting-network-8'?"),
        ("MUTATOR", ["mutator"], "Did you mean 'mutator'?"),
        ("maze-vp", ["maze-vpo", "maze-grpo", "programs"], "Did you mean 'maze-vpo' or 'maze-grpo'?"),
        ("zzz", ["mutator"], None),
        ("", ["mutator"], None),
        ("mutator" * 100, ["mutator"], None),
        ("mutator", [], None),
    ],
)
def test_the_nearest_names_are_suggested(name: str, known: list[str], question: str | None) -> None:
    assert did_you_mean(name, known) == question


class _State(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("runing", "expected 'running' or 'paused' (did you mean 'running'?)"),
        ("x", "expected 'running' or 'paused'"),
        (7, "expected 'running' or 'paused'"),
    ],
)
def test_validation_suggests_the_nearest_choice(value: object, message: str) -> None:
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(_State).validate_python(value)
    assert validation_message(refused.value.errors()[0]) == message  # type: ignore[arg-type]
