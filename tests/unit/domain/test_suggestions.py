from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import pytest
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from speciate.domain.suggestions import did_you_mean
from speciate.domain.validation import own_mistakes, validation_message


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


def test_messages_name_no_python_type_and_only_the_users_mistakes() -> None:
    class Request(BaseModel):
        model_config = ConfigDict(extra="forbid")
        seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field(min_length=1)

    def mistakes(**values: object) -> list[str]:
        try:
            Request.model_validate(values)
        except ValidationError as error:
            return [validation_message(each) for each in own_mistakes(error.errors())]
        return []

    assert mistakes(seeds=[-1]) == ["Input should be greater than or equal to 0"]
    assert mistakes(seeds=[]) == ["List should have at least 1 item, not 0"]
    assert mistakes(seeds="x", other=1) == ["expected a list", "is not a known field"]
