import copy
from typing import Any

import pytest

from speciate.domain.errors import FieldError, InvalidInputError, TooLargeError
from speciate.problems.definition import parse_definition

DEFINITION: dict[str, Any] = {
    "slug": "small",
    "title": "Small",
    "kind": "cases",
    "objectives": [{"name": "right"}],
    "targets": [{"name": "all", "rule": "right >= 1", "unlock": True}],
    "cases": [{"input": [1], "expected": 2}],
    "seed_program": "def solve(x):\n    return x\n",
}


def field_errors_of(**changes: Any) -> list[FieldError]:
    with pytest.raises(InvalidInputError) as caught:
        parse_definition(copy.deepcopy(DEFINITION) | changes)
    return list(caught.value.field_errors)


def test_a_definition_and_what_it_says_of_itself_are_the_same_problem() -> None:
    problem = parse_definition(DEFINITION)
    assert parse_definition(problem.model_dump(mode="json")) == problem


def test_field_errors_carry_the_path() -> None:
    field_errors = field_errors_of(
        title=3,
        objectives=[{"name": "right", "range": [0, float("nan")]}],
        targets=[{"name": "all", "rule": "wrong >= 1", "unlock": True}, {"name": "b", "rule": "right >= ", "x": 1}],
        cases=[{"input": 1, "expected": 2}],
    )
    assert [field_error.where for field_error in field_errors] == [
        "title",
        "objectives.0.range.1",
        "targets.1.x",
        "cases.0.input",
        "targets.0.rule",
        "targets.1.rule",
    ]
    assert [field_error.place for field_error in field_errors] == [
        "title",
        "objective 'right', range, value 2",
        "target 'b', x",
        "case 1, input",
        "target 'all', rule",
        "target 'b', rule",
    ]
    assert all(field_error.file is None for field_error in field_errors)
    assert "expected one of name, rule, unlock, description" in field_errors[2].message


@pytest.mark.parametrize(
    ("changes", "where", "words"),
    [
        ({"objectives": []}, "objectives", "at least 1"),
        ({"objectives": [{"name": "right", "role": "record"}]}, "objectives", "nothing to improve"),
        (
            {"objectives": [{"name": "and"}], "targets": [{"name": "x", "rule": "and > 1"}]},
            "objectives.0.name",
            "rule language",
        ),
        ({"cases": []}, "kind", "at least one case"),
        ({"cases": [{"input": [], "expected": 1, "reward": "x"}]}, "cases", "right"),
        ({"preload": ["pip"]}, "preload", "a program or a test"),
        ({"colour": "red"}, "colour", "expected one of slug"),
        ({"evaluator": "def evaluate(c, x): pass\n"}, "kind", "remove the evaluator"),
        ({"weights": {}}, "weights", "with a positive sum"),
        (
            {"objectives": [{"name": "right"}, {"name": "size", "role": "constraint"}]},
            "objectives.1.role",
            "a constraint needs its `limit`",
        ),
        ({"objectives": [{"name": "right", "limit": 3}]}, "objectives.0", "bounds nothing: add role"),
        ({"language": "cpp", "cases": [{"input": ["1"], "expected": 2}]}, "cases", "number 1, is not one text"),
        ({"language": "cpp", "cases": [{"input": ["1", "2"], "expected": "2"}]}, "cases", "exchange = "),
        ({"language": "python"}, "language", "without `language` and `image`, programs are Python"),
        (
            {"stages": [{"name": "quick", "objectives": ["right"], "needs": "rihgt >= 1"}]},
            "stages.0.name",
            "needs 'rihgt >= 1': unknown objective",
        ),
        ({"seed_program": "def run():\n    return 1\n"}, "seed_program", "def solve(...)"),
        ({"objectives": "right"}, "objectives", "expected a list"),
        ({"targets": [3]}, "targets.0", "valid"),
        (
            {"seed_program": "# EVOLVE-BLOCK-START\ndef solve(x):\n    return x\n"},
            "seed_program",
            "without an EVOLVE-BLOCK-END",
        ),
    ],
)
def test_a_field_error_has_its_place(changes: dict[str, Any], where: str, words: str) -> None:
    field_errors = field_errors_of(**changes)
    assert any(field_error.where == where and words in field_error.message for field_error in field_errors), (
        field_errors
    )


def test_a_key_that_looks_like_a_path_is_no_entry() -> None:
    field_errors = field_errors_of(**{"objectives.7": 1, "objectives.²": 1, "title.0": 1})
    assert [field_error.place for field_error in field_errors] == ["objectives, value 8", "objectives.²", "title.0"]


def test_an_external_stage_has_no_function_in_the_script() -> None:
    stages = [
        {"name": "quick", "objectives": ["right"], "needs": "right >= 0.5"},
        {"name": "late", "objectives": ["cost"], "evaluation": "external"},
    ]
    objectives = [{"name": "right", "range": [0, 1]}, {"name": "cost", "range": [0, 1]}]
    changes = {"kind": "evaluator", "cases": [], "objectives": objectives, "stages": stages}
    script = "def evaluate_quick(candidate, context):\n    return {'right': 1.0}\n"
    assert parse_definition(DEFINITION | changes | {"evaluator": script}).external_stage is not None


def test_a_language_with_commands_of_its_own_keeps_the_file_of_a_known_one() -> None:
    table = {"name": "C++", "build": ["g++", "-o", "program", "main.cpp"], "run": ["./program"]}
    changes = {"language": table, "seed_program": "int main() {}", "cases": [{"input": ["1"], "expected": "2"}]}
    language = parse_definition(DEFINITION | changes).language
    assert language is not None
    assert (language.file, language.run) == ("main.cpp", ("./program",))


def test_a_program_field_error_has_the_line_of_the_program() -> None:
    (field_error,) = field_errors_of(seed_program="def solve(x):\n    return (\n")
    assert (field_error.where, field_error.line) == ("seed_program", 2)


def test_a_data_problem_starts_from_any_text() -> None:
    data = {
        "kind": "data",
        "cases": [],
        "seed_program": "URDL (",
        "evaluator": "def score(text, context):\n    return {}\n",
    }
    assert parse_definition(DEFINITION | data).seed_program == "URDL ("


def test_a_hostile_seed_warns_nobody_and_never_runs() -> None:
    seed = "def solve(x):\n    return '\\d' is x\nraise SystemExit\n"
    assert parse_definition(DEFINITION | {"seed_program": seed}).seed_program == seed


def test_a_seed_over_the_limit_is_too_large() -> None:
    with pytest.raises(TooLargeError):
        parse_definition(DEFINITION | {"seed_program": "é" * (1 << 19) + "x"})


def test_errors_beyond_the_limit_are_only_counted() -> None:
    field_errors = field_errors_of(cases=[{}] * 10_001)
    assert [field_error.message for field_error in field_errors if "too many" in field_error.message] == [
        "has 20002 errors, too many to report: try it with a few of its cases first"
    ]
    assert len(field_errors) < 10


EVALUATED = {"kind": "evaluator", "cases": [], "evaluator": "def evaluate(candidate, context): pass\n"}
STAGE = {"name": "one", "objectives": ["right"], "function": ["evaluate"]}


@pytest.mark.parametrize(
    ("changes", "where"),
    [({"entry_point": ["solve"]}, "entry_point"), ({**EVALUATED, "stages": [STAGE]}, "stages.0.function")],
)
def test_a_function_name_that_is_no_text_is_an_error_with_its_place(changes: dict[str, Any], where: str) -> None:
    assert where in [each.where for each in field_errors_of(**changes)]
