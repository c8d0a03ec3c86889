"""Problems as environments of ``verifiers``, scored in the real sandbox."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from evaluators.evaluator import SandboxEvaluator
from evaluators.evaluator_factory import open_evaluator
from speciate.compat.verifiers import write_verifiers
from speciate.domain.errors import ConflictError, InvalidInputError
from speciate.domain.problem import Problem
from speciate.runs.environment import environment_prompts, score_completion
from tests.support.runs import scored_toy_problem

ANSWER = "```python\n{}\n```"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[SandboxEvaluator]:
    with closing(open_evaluator()) as opened:
        yield opened


def _weights(taskset: Path) -> dict[str, float]:
    """Return the weights of the decorated reward functions in the source of a taskset."""
    return {
        node.name: ast.literal_eval(decorator.keywords[0].value)
        for node in ast.walk(ast.parse(taskset.read_text()))
        if isinstance(node, ast.AsyncFunctionDef)
        for decorator in node.decorator_list
        if isinstance(decorator, ast.Call) and decorator.keywords
    }


def test_the_package_holds_the_problem_and_a_reward_function_for_each_objective(tmp_path: Path) -> None:
    problem = scored_toy_problem().model_copy(update={"weights": {"x": 3.0, "y": 1.0}, "title": 'Two "numbers" ü'})
    written = write_verifiers(problem, tmp_path / "env")
    files = {str(path.relative_to(tmp_path / "env")) for path in written}
    module = {f"speciate_toy/{name}" for name in ("__init__.py", "taskset.py", "problem.json")}
    assert files == {"pyproject.toml", "README.md", *module}
    project = tomllib.loads((tmp_path / "env/pyproject.toml").read_text())["project"]
    assert (project["name"], project["description"]) == ("speciate-toy", problem.title)
    kept = Problem.model_validate_json((tmp_path / "env/speciate_toy/problem.json").read_text())
    assert kept == problem
    assert _weights(tmp_path / "env/speciate_toy/taskset.py") == {"reward_x": 0.75, "reward_y": 0.25}
    write_verifiers(Problem.model_validate({**problem.model_dump(), "weights": None}), tmp_path / "equal")
    assert _weights(tmp_path / "equal/speciate_toy/taskset.py") == {"reward_x": 0.5, "reward_y": 0.5}
    with pytest.raises(ConflictError, match="is not empty"):
        write_verifiers(problem, tmp_path / "env")


def test_a_problem_that_others_measure_has_no_environment(tmp_path: Path) -> None:
    problem = Problem.model_validate({**scored_toy_problem().model_dump(), "evaluation": "external"})
    with pytest.raises(InvalidInputError, match="external evaluation"):
        write_verifiers(problem, tmp_path / "env")


def test_completions_are_scored_in_the_sandbox(sandbox: SandboxEvaluator) -> None:
    problem = scored_toy_problem()
    prompts = list(environment_prompts(problem, 8))
    assert len({prompt.digest for prompt in prompts}) == len(prompts) > 1
    assert problem.seed_program.strip() in prompts[0].user
    good = score_completion(problem, ANSWER.format("x = 9\ny = 2"), sandbox)
    assert good.rewards == {"x": 0.9, "y": 0.8}
    assert (good.measured, good.feasible, good.unlocked, good.failure) == ({"x": 9.0, "y": 2.0}, True, True, None)
    beyond = score_completion(problem, ANSWER.format("x = 1\ny = 99"), sandbox)
    assert beyond.rewards == {"x": 0.1, "y": 0.0}  # 99 lies beyond the worst end of the range
    for text in ("nothing to read", ANSWER.format("x = 1")):
        failed = score_completion(problem, text, sandbox)
        assert (failed.rewards, failed.measured, failed.unlocked) == ({"x": 0.0, "y": 0.0}, {}, False)
        assert failed.failure


def test_a_violated_constraint_gives_no_reward(sandbox: SandboxEvaluator) -> None:
    given = scored_toy_problem().model_dump(mode="json")
    given["objectives"][1] |= {"role": "constraint", "limit": 5.0}
    problem = Problem.model_validate(given | {"weights": {"x": 1.0}})
    scores = [score_completion(problem, ANSWER.format(f"x = 9\ny = {y}"), sandbox) for y in (5, 6)]
    assert [(score.rewards, score.feasible) for score in scores] == [({"x": 0.9}, True), ({"x": 0.0}, False)]
    assert scores[1].measured == {"x": 9.0, "y": 6.0}
