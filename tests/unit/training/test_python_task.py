"""Task ``python``: solutions solve, nothing else does, and no test function is trained on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest

from evaluators.evaluator_factory import open_evaluator
from speciate.domain.errors import EvaluatorUnavailableError, InvalidInputError
from speciate.domain.policy import Policy, PolicyRole, PromptStyle
from speciate.prompts.mutation import build_prompt
from speciate.training.tasks import Split, Task, open_task
from speciate.training.tasks.choices import ChoicesTask
from speciate.training.tasks.python import FAMILIES, MOST_STEPS, TESTS, VISIBLE, PythonTask
from speciate.training.tasks.python_steps import STEPS, draw_inputs, run


@pytest.fixture(scope="module")
def task() -> Iterator[Task]:
    with closing(open_evaluator("auto")) as sandbox:
        yield open_task("python", evaluator=sandbox)


def test_solutions_pass_every_test_and_wrong_programs_do_not(task: Task) -> None:
    problems, solutions = zip(*PythonTask().with_solutions(Split.TEST, 6), strict=True)
    answers = [[*each, "def solve(x):\n    return None\n", "def solve(x):\n    return 1 / 0\n"] for each in solutions]
    scored = task.score(list(zip(problems, answers, strict=True)))
    assert all(first == (1.0,) * TESTS for first, *_ in scored)
    assert all(rest == [(0.0,) * TESTS] * 2 for _, *rest in scored)


def test_a_constant_passes_few_tests(task: Task) -> None:
    for problem in task.problems(Split.TRAIN, 100):
        common = Counter(repr(case.expected) for case in problem.cases).most_common(1)[0][1]
        assert common <= TESTS - 3


def test_splits_are_disjoint_by_behaviour() -> None:
    """The digest of the behaviour is in the source of a problem."""
    task = open_task("python")
    found = {split: {p.source.partition("behaviour ")[2][:16] for p in task.problems(split, 120)} for split in Split}
    assert not found[Split.TRAIN] & found[Split.TEST]
    assert all(len(digests) > 60 for digests in found.values())


def test_families_and_difficulties_are_declared_and_all_occur() -> None:
    problems = list(open_task("python").problems(Split.TEST, 120))
    named = Counter(p.source.partition("family ")[2].partition(", behaviour")[0] for p in problems)
    for family in FAMILIES:
        counts = [named[f"{family}, {n} step{'s' if n > 1 else ''}"] for n in range(1, MOST_STEPS + 1)]
        assert all(counts), (family, counts)
    for problem, (solution,) in PythonTask().with_solutions(Split.TEST, 20):
        assert solution.count("    x = ") == int(problem.source.partition(" step")[0][-1])
        assert solution.split("x = ")[1].split("\n")[0] not in problem.model_dump_json()
    assert [p.digest for p in open_task("python").problems(Split.TEST, 2, start=3)] == [p.digest for p in problems[3:5]]


def test_choices_need_a_specialist_each() -> None:
    with closing(open_evaluator("auto")) as sandbox:
        task = ChoicesTask(sandbox)
        problems, solutions = zip(*task.with_solutions(Split.TEST, 6), strict=True)
        answers = [[*each, "def solve(x):\n    return 0\n"] for each in solutions]
        scored = task.score(list(zip(problems, answers, strict=True)))
    for first, second, third, constant in scored:
        assert (first, second, third) == ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
        assert max(constant) <= 0.5
    digests = {split: {p.source[-17:] for p in ChoicesTask().problems(split, 120)} for split in Split}
    assert not digests[Split.TRAIN] & digests[Split.TEST]


def test_every_step_takes_and_gives_its_types() -> None:
    kinds = {"an integer": int, "a list of integers": list, "a text": str}
    for position, step in enumerate(STEPS):
        for value in draw_inputs(step.takes, 40, np.random.default_rng(1)):
            for k in step.numbers:
                assert isinstance(run(((position, k),), value), kinds[step.gives]), step


@pytest.mark.parametrize("style", PromptStyle)
def test_prompts_show_visible_tests_only(style: PromptStyle) -> None:
    for problem, (solution,) in PythonTask().with_solutions(Split.TEST, 20):
        policy = Policy(slug="p", kind="scripted", prompt_style=style)
        user = build_prompt(problem, PolicyRole.PROPOSE, [], [], policy, np.random.default_rng(0)).user
        assert problem.description.split(": ", 1)[1][:60] in user
        assert solution not in user
        shown = [repr(case.input[0]) in user or str(case.input[0]) in user for case in problem.cases[:VISIBLE]]
        assert all(shown), user


def test_mistakes_are_named(tmp_path: object) -> None:
    with pytest.raises(InvalidInputError, match="generates its problems"):
        open_task("python", data=tmp_path)  # type: ignore[arg-type]
    task = open_task("python")
    with pytest.raises(EvaluatorUnavailableError, match="without an evaluator"):
        task.score([(next(task.problems(Split.TEST, 1)), ["x = 1"])])
