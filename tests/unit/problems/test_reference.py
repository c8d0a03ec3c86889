"""The reference of ``problem.toml``: its worked examples hold, and the JSON schema accepts what the loader accepts."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from jsonschema import Draft7Validator
from pydantic import TypeAdapter

from speciate.domain.documented import attribute_docs
from speciate.domain.language import Language
from speciate.domain.limits import Limits
from speciate.domain.objective import Objective
from speciate.domain.problem import Case, Problem
from speciate.domain.stage import Stage
from speciate.domain.target import Target
from speciate.domain.values import Value
from speciate.problems.definition import parse_definition
from speciate.problems.loader import bundled
from speciate.problems.template import SCHEMA, write_template

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/reference/problem-toml.md").read_text()
BASE = {"slug": "example", "title": "Example", "kind": "evaluator"}
MODELS: tuple[type[Value], ...] = (Problem, Objective, Target, Case, Stage, Language, Limits)
FILE_KEYS = {"evaluator", "files", "cases", "data_files", "prompts"}
"""Keys that may name files; their examples are in the page and the schema only."""
SCHEMA_OF = Draft7Validator(json.loads(SCHEMA.read_text()))

Row = dict[str, str]


def _example(heading: str) -> tuple[Problem, list[Row]]:
    """Return the problem of a section's example and the rows of the table below it."""
    (section,) = [part for part in re.split(r"^##+ ", PAGE, flags=re.MULTILINE) if part.startswith(f"{heading}\n")]
    definition, rest = re.findall(r"```toml\n(.*?)```\n(.*)", section, re.DOTALL)[0]
    names, _, *rows = [
        [cell.strip(" `") for cell in line.strip("|").split("|")] for line in rest.splitlines() if line.startswith("|")
    ]
    raw = tomllib.loads(definition)
    assert list(SCHEMA_OF.iter_errors(BASE | raw)) == []
    problem = parse_definition(BASE | {"evaluator": "def evaluate(candidate, context):\n    return {}\n"} | raw)
    return problem, [dict(zip(names, row, strict=True)) for row in rows]


def _rewards(problem: Problem, row: Row) -> list[float]:
    return [float(row[name]) for name in problem.space.names]


def _met(problem: Problem, rewards: list[float]) -> str:
    mask = problem.targets_met(rewards)
    return ", ".join(t.name for i, t in enumerate(problem.targets) if mask >> i & 1) or "none"


def test_the_example_of_constraints() -> None:
    problem, rows = _example("`constraint` and `limit`")
    rewards = [_rewards(problem, row) for row in rows]
    assert problem.space.violation(rewards) == pytest.approx([float(row["violation"]) for row in rows])
    assert [row["feasible"] == "yes" for row in rows] == [*(problem.space.violation(rewards) <= 0)]
    best_first = [*(-problem.space.normalise(rewards)[:, 0]).argsort()]
    assert [int(rows[i]["rank"]) for i in best_first] == [1, 2, 3, 4]


def test_the_example_of_weights() -> None:
    problem, rows = _example("`weights`")
    for row in rows:
        assert problem.scalarize(_rewards(problem, row)) == pytest.approx(float(row["score"]))


def test_the_example_of_rules() -> None:
    problem, rows = _example("The rule language")
    assert [_met(problem, _rewards(problem, row)) for row in rows] == [row["targets met"] for row in rows]


def test_the_example_of_confirmations() -> None:
    problem, rows = _example("`stochastic` and `confirmations`")
    assert not problem.repeatable
    for row in rows:
        values = [float(value) for value in (row["first evaluation"], *filter(None, row["confirmations"].split(",")))]
        assert len(values) in (1, 1 + problem.confirmations)
        assert all(problem.targets_met([value]) for value in values) == (row["unlocked"] == "yes")


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_key_has_a_meaning_and_valid_examples(model: type[Value]) -> None:
    for name, field in model.model_fields.items():
        assert attribute_docs(model)[name], name
        assert field.examples or name in FILE_KEYS, name
        for example in field.examples or ():
            TypeAdapter(field.annotation).validate_json(json.dumps(example), strict=True)


def test_every_key_of_a_table_is_an_example_of_valid_toml() -> None:
    for name, example in re.findall(r"^\| `(\w+)` \|.* `(\1 = .*)` \|$", PAGE, re.MULTILINE):
        assert [*tomllib.loads(example.replace(r"\|", "|"))] == [name]


@pytest.mark.parametrize("path", bundled().values(), ids=lambda path: path.name)
def test_bundled_problems_name_the_schema_and_match_it(path: Path) -> None:
    text = (path / "problem.toml").read_text()
    first = text.partition("\n")[0]
    assert (path / first.removeprefix("#:schema ")).resolve() == SCHEMA.resolve()
    assert list(SCHEMA_OF.iter_errors(tomllib.loads(text))) == []


def test_a_new_problem_names_the_schema_beside_it(tmp_path: Path) -> None:
    text = write_template(tmp_path)[0].read_text()
    assert text.startswith("#:schema ./problem.schema.json\n")
    assert (tmp_path / "problem.schema.json").read_bytes() == SCHEMA.read_bytes()
    assert list(SCHEMA_OF.iter_errors(tomllib.loads(text))) == []


def test_examples_of_the_guide_match_the_schema() -> None:
    blocks = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/howto/write-evaluators.md").read_text(), re.DOTALL)
    assert len(blocks) > 5
    assert [error.message for block in blocks for error in SCHEMA_OF.iter_errors(tomllib.loads(block))] == []


FILES = 'seed = ["a.py"]\ncases = "cases.json"\nfiles = ["a.txt"]\ndata_files = ["b.txt"]\nprompts = ["change.txt"]\n'
GOOD = 'slug = "a"\ntitle = "A"\nkind = "cases"\nobjectives = [{ name = "x" }]\n' + FILES
GOOD += 'targets = [{ name = "t", rule = "x >= 1", unlock = true }]\n'


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("title", "titel", "'titel' was unexpected"),
        ('slug = "a"', 'slug = "A b"', "'A b' does not match"),
        ('kind = "cases"', 'kind = "case"', "'case' is not one of"),
        ('{ name = "x" }', '{ name = "x", rnage = [0, 1] }', "'rnage' was unexpected"),
        ('{ name = "x" }', '{ name = "x", range = [0, 1, 2] }', "is too long"),
        ('{ name = "x" }', '{ name = "x", role = "goal" }', "'goal' is not one of"),
        ("unlock = true", 'unlock = "yes"', "'yes' is not of type 'boolean'"),
        (FILES, "limits = { wall_s = 0 }\n", "0 is less than or equal to the minimum of 0"),
        (FILES, "seed = 3\n", "3 is not valid under any of the given schemas"),
    ],
)
def test_the_schema_reports(right: str, wrong: str, message: str) -> None:
    assert list(SCHEMA_OF.iter_errors(tomllib.loads(GOOD))) == []
    errors = [error.message for error in SCHEMA_OF.iter_errors(tomllib.loads(GOOD.replace(right, wrong)))]
    assert any(message in error for error in errors), errors
