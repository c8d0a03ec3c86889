from __future__ import annotations

from pathlib import Path

import pytest

from speciate.domain.rollout import TemplateName
from speciate.prompts.template import REQUIRED, default_template, fill, placeholders_of, requests, template_field_errors

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", TemplateName)
def test_the_default_templates_are_valid_and_their_placeholders_documented(name: TemplateName) -> None:
    assert template_field_errors(name, default_template(name), where="") == []
    page = (ROOT / "docs" / "concepts" / "prompts.md").read_text()
    assert f"`{name.value}.txt`" in page
    assert all(f"`${placeholder}`" in page for placeholder in placeholders_of(name))


def test_values_are_not_read_as_templates() -> None:
    assert fill("a $x b", {"x": "$y ${x} $$ $", "y": "never"}) == "a $y ${x} $$ $ b"


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        ("one\n\n$empty\n\ntwo", "one\n\ntwo"),
        ("one\n\n# Head\n\n$empty\n\n## Next\n\ntwo", "one\n\n## Next\n\ntwo"),
        ("# Head\n\n$empty\n\n$full", "full"),
        ("$empty and $full", " and full"),
        ("# Head of $empty\n\ntwo", "two"),
        ("# Two\n\n# Heads\n\n$empty", "# Two"),
        ("\none  \n \t\n\n$full\n", "one  \n\nfull"),
        ("$unknown $$ ${full}", "$unknown $ full"),
        ("costs $", "costs $"),
        ("# Head", "# Head"),
    ],
)
def test_empty_parts_are_dropped_with_their_heading(template: str, filled: str) -> None:
    assert fill(template, {"empty": "", "full": "full"}) == filled


def test_a_request_whose_placeholder_is_empty_is_never_drawn() -> None:
    text = "Change it.\n\n  Beat the $others.  \nBe ${candidate}."
    assert requests(text, {"candidate": "a", "others": ""}) == ["Change it.", "Be a."]
    assert requests(text, {"candidate": "a", "others": "b"}) == ["Change it.", "Beat the b.", "Be a."]


@pytest.mark.parametrize(
    ("name", "text", "line", "words"),
    [
        (TemplateName.CHANGE, "$problem\n$prnt\n$parent\n$request", 2, "unknown placeholder $prnt: expected one of"),
        (TemplateName.CHANGE, "$problem\n$parent\n\n5 $ each\n$request", 4, "write '$$'"),
        (TemplateName.CHANGE, "$problem\n$request", 1, "$parent is missing"),
        (TemplateName.PROPOSE, "$problem\nSeed: $seed\n$request", 2, "$seed needs a line of its own"),
        (TemplateName.PROPOSE, "$problem\n```\n$seed\n```\n$request", 3, "$seed stands inside a fence"),
        (TemplateName.PROPOSE, "$problem\n\n$parent\n\n$request", 3, "unknown placeholder $parent"),
        (TemplateName.SYSTEM, "$form", 1, "$caution is missing"),
        (TemplateName.SYSTEM, "Be good.\n$caution", 1, "$form is missing"),
        (TemplateName.CHANGE_REQUESTS, "\nBeat the $others.\n", 1, "has no request without $others"),
        (TemplateName.PROPOSE_REQUESTS, " \n", 1, "has no request without $others"),
    ],
)
def test_mistakes_name_the_line_and_the_expectation(name: TemplateName, text: str, line: int, words: str) -> None:
    (field_error,) = template_field_errors(name, text, where=f"prompts.{name}")
    assert (field_error.where, field_error.line) == (f"prompts.{name}", line)
    assert words in field_error.message


def test_optional_placeholders_may_be_omitted() -> None:
    for name, needed in REQUIRED.items():
        text = "\n".join(f"${placeholder}" for placeholder in needed) + "\nNo $$ here: ``` and ~~~.\n"
        assert template_field_errors(name, text, where="") == []
