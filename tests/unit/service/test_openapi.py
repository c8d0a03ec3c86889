"""The OpenAPI document is checked in and up to date."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.app import create_app
from speciate.domain.validation import validation_message
from speciate.settings import Settings

CHECKED_IN = json.loads(Path("docs/openapi.json").read_text())


def _document() -> dict[str, Any]:
    return json.loads(json.dumps(create_app(Settings(host="127.0.0.1", token=None)).openapi()))


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return _document()


def test_checked_in_document_is_current(document: dict[str, Any]) -> None:
    assert document == CHECKED_IN, "run `make openapi` and look at what changed"


def test_token_in_the_environment_does_not_change_the_document(
    document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECIATE_TOKEN", "x" * 16)
    monkeypatch.setenv("SPECIATE_HOST", "0.0.0.0")
    assert _document() == document


def test_errors_are_problem_details_and_references_resolve(document: dict[str, Any]) -> None:
    for operations in document["paths"].values():
        for operation in operations.values():
            assert "application/problem+json" in operation["responses"]["default"]["content"]
            assert operation["summary"]
            assert "422" not in operation["responses"]
    for reference in _references(document):
        assert reference.removeprefix("#/components/schemas/") in document["components"]["schemas"]


def test_every_operation_has_a_sentence_as_summary(document: dict[str, Any]) -> None:
    for operations in document["paths"].values():
        for operation in operations.values():
            words = operation["summary"].split()
            assert words[0] in {
                "Add",
                "Archive",
                "Cancel",
                "Change",
                "Check",
                "Create",
                "End",
                "Declare",
                "Delete",
                "Estimate",
                "Evaluate",
                "Freeze",
                "Lease",
                "List",
                "Pause",
                "Propose",
                "Queue",
                "Register",
                "Renew",
                "Restore",
                "Resume",
                "Return",
                "Revoke",
                "Set",
                "Start",
                "Stream",
                "Submit",
            }
            assert len(words) >= 3, operation["summary"]
            assert len(operation["summary"]) <= 120


def test_operation_ids_are_unique(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len(names) == len(set(names))


def _references(value: Any) -> list[str]:
    match value:
        case dict():
            own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            return own + [each for child in value.values() for each in _references(child)]
        case list():
            return [each for child in value for each in _references(child)]
        case _:
            return []


def _patterns(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if isinstance(part.get("pattern"), str):
            yield part["pattern"]
        part = [*part.values()]
    if isinstance(part, list):
        for inner in part:
            yield from _patterns(inner)


@pytest.mark.parametrize("pattern", sorted({*_patterns(CHECKED_IN)}))
def test_messages_do_not_show_regular_expressions(pattern: str) -> None:
    said = validation_message({"type": "string_pattern_mismatch", "msg": "raw", "ctx": {"pattern": pattern}})
    assert said.startswith("expected "), f"give {pattern} words in speciate.domain.validation"
