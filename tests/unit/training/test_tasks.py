"""Tasks: reproducible problems, disjoint splits, correct scores, and demonstrations that can be improved."""

import itertools
import re
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from evaluators.evaluator_factory import open_evaluator
from experiments.learning.plan import solvable
from speciate.domain.errors import InvalidInputError
from speciate.domain.policy import Policy, PolicyRole
from speciate.domain.problem import ProblemKind
from speciate.prompts.codecs import CODECS
from speciate.prompts.mutation import build_prompt
from speciate.training.tasks import GENERATED, Split, open_task, problems_of, scores_of

TASKS = [pytest.param(task, id=name) for name, task in GENERATED.items()]


@pytest.mark.parametrize("task", TASKS)
def test_a_problem_is_reproducible_and_in_one_split_only(task):
    test = list(task.problems(Split.TEST, 6))
    assert [p.digest for p in task.problems(Split.TEST, 2, start=3)] == [p.digest for p in test[3:5]]

    def content(problem):
        return problem.files.get("maze.json") or str(problem.cases)

    train = {content(p) for p in task.problems(Split.TRAIN, 30)}
    assert not train & {content(p) for p in test}
    assert len({p.slug for p in test}) == 6


@pytest.mark.parametrize("task", TASKS)
def test_a_prompt_and_the_longest_set_fit_into_the_context_of_a_base(task):
    models = pytest.importorskip("speciate.training.models", reason="needs the extra 'train'")
    for problem in task.problems(Split.TRAIN, 20):
        prompt = CODECS[task.codec].prompt(problem, answers=task.answers).split()
        assert len(prompt) + task.answers * (task.max_tokens + 1) <= models.CONTEXT


@pytest.mark.parametrize("task", TASKS)
def test_demonstrations_are_valid_and_rarely_perfect(task):
    problems = list(task.problems(Split.TRAIN, 20))
    shown = [(p, [task.demonstrate(p, np.random.default_rng([i, 3])) for i in range(10)]) for p in problems]
    scores = np.array(task.score(shown))
    assert (scores.max(axis=2) > 0).mean() > 0.9
    assert (scores.min(axis=2) >= 1).mean() < 0.2


@pytest.mark.parametrize("task", TASKS)
def test_children_are_better_than_their_parents_and_parents_not_solved(task):
    problems = list(task.problems(Split.TRAIN, 20))
    found = [(p, pair) for p in problems for i in range(5) if (pair := task.improve(p, np.random.default_rng([i, 1])))]
    assert len(found) > 20
    for problem, (parent, child) in found:
        before, after = task.score([(problem, [parent, child])])[0]
        assert problem.targets_met(before) == 0
        assert any(b > a for a, b in itertools.zip_longest(before, after))


@pytest.mark.parametrize("name", ["maze", "programs", "programs-hard"])
def test_trusted_scores_are_those_of_the_sandbox(name):
    """Training scores harmless candidates without a sandbox; the service must compute the same rewards."""
    task = GENERATED[name]
    rng = np.random.default_rng(5)
    with closing(open_evaluator("auto")) as sandbox:
        for problem in task.problems(Split.TEST, 3):
            candidates = [task.demonstrate(problem, rng) for _ in range(6)]
            if problem.kind is ProblemKind.DATA:
                candidates += ["", "00 00", "99", candidates[0] + " " + candidates[0], "nonsense", "0 1"]
            expected = task.score([(problem, candidates)])[0]
            evaluated = sandbox.evaluate(problem, candidates, seeds=[0] * len(candidates))
            assert [e.rewards for e in evaluated] == expected


def test_only_long_programs_can_solve_everything():
    standard = [solvable(GENERATED["programs"], p) for p in GENERATED["programs"].problems(Split.TEST, 60)]
    assert 0.2 < np.mean(standard) < 0.8
    assert all(solvable(GENERATED["programs-hard"], p) for p in GENERATED["programs-hard"].problems(Split.TEST, 60))


def test_an_unknown_task_is_refused_with_the_known_ones():
    with pytest.raises(InvalidInputError) as caught:
        open_task("chess")
    assert "maze, maze-9, programs, programs-hard" in caught.value.remedy


@pytest.mark.parametrize("name", ["no.such.module:task", "json:no_such_function", ":"])
def test_a_task_that_cannot_be_imported_is_refused(name):
    with pytest.raises(InvalidInputError, match="cannot be imported"):
        open_task(name)


FRUIT = """
from types import SimpleNamespace

from speciate.training.tasks import GENERATED


class Fruit:
    name, rewards, answers, max_tokens, codec = "fruit", GENERATED["programs"].rewards, 3, 9, None

    def problems(self, split, count, *, start=0):
        return iter([]) if start else GENERATED["programs"].problems(split, 2)

    def score(self, batch):
        return [[{"few": (1.0, 0.5), "nan": (float("nan"),) * 8, "good": (0.5,) * 8}[text] for text in texts]
                for _, texts in batch]


def task(folder, evaluator):
    return Fruit()


def from_file(folder, evaluator):
    return open(folder / "data.jsonl")


def half(folder, evaluator):
    return SimpleNamespace(name="half", rewards=("sweet",))
"""


@pytest.fixture
def fruit(tmp_path, monkeypatch):
    (tmp_path / "fruit.py").write_text(FRUIT)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("fruit", None)


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("json:loads", None, r"task 'json:loads', opened with no directory \(--data\): TypeError: loads\(\) takes 1"),
        ("fruit:from_file", ".", r"FileNotFoundError: .*data.jsonl' \(.*fruit.py, line 23\)"),
        ("fruit:task", "fruit.py", r"--data .*fruit.py: expected a directory"),
        ("fruit:half", None, "returned SimpleNamespace, which has no answers, codec, max_tokens, problems, score"),
    ],
)
def test_mistakes_in_a_task_of_ones_own_have_a_place(fruit, name, data, words):
    with pytest.raises(InvalidInputError, match=words):
        open_task(name, None if data is None else fruit / data)


def test_rewards_of_a_task_of_ones_own_are_checked(fruit):
    task = open_task("fruit:task")
    problems = problems_of(task, Split.TRAIN, 5)
    assert len(problems) == 2
    assert scores_of(task, [(problems[0], ["good"])]) == [[(0.5,) * 8]]
    with pytest.raises(InvalidInputError, match="has no problems from number 7 on in split 'train'"):
        problems_of(task, Split.TRAIN, 5, start=7)
    for text, words in {
        "few": rf"score of task 'fruit' returned \(1.0, 0.5\) for problem '{problems[0].slug}' and the answer 'few'",
        "nan": r"returned \(nan, nan.* for each of case_1, case_2",
        "else": r"score of task 'fruit': KeyError: 'else' \(.*fruit.py, line 14\)",
    }.items():
        with pytest.raises(InvalidInputError, match=words):
            scores_of(task, [(problems[0], [text])])


@pytest.fixture
def page_task(tmp_path, monkeypatch):
    """The task on the page about training, its script changed by replacing a text."""
    page = (Path(__file__).parents[3] / "docs/howto/train-on-your-data.md").read_text()
    row = re.search(r'`(\{"prompt": .*?\})`', page)[1]
    (tmp_path / "train.jsonl").write_text(f"{row}\n" * 2)
    monkeypatch.syspath_prepend(tmp_path)
    with closing(open_evaluator("auto")) as sandbox:

        def opened(old="", new=""):
            code = re.search(r"```python\n(.*?)```", page, re.DOTALL)[1]
            (tmp_path / "fruit_page.py").write_text(code.replace(old, new))
            return open_task("fruit_page:Fruit", tmp_path, sandbox)

        yield opened
    sys.modules.pop("fruit_page", None)


def test_the_task_on_the_page_works(page_task):
    task = page_task()
    problems = problems_of(task, Split.TRAIN, 5)
    assert len(problems) == 2
    assert scores_of(task, [(problems[0], ["a banana", "plum"])]) == [[(1.0, 0.5), (0.0, 1.0)]]
    prompt = build_prompt(
        problems[0],
        PolicyRole.PROPOSE,
        [],
        [],
        Policy(slug="p", kind="p", answers_per_rollout=3),
        np.random.default_rng(0),
    )
    assert "Name a yellow fruit." in prompt.text()


def test_an_evaluator_that_does_not_compile_is_refused_with_its_problem(page_task):
    words = r"problem 'fruit-train-.' of task 'fruit' is not valid: 5:13 evaluator: does not compile"
    with pytest.raises(InvalidInputError, match=words):
        problems_of(page_task("words =", "words = ="), Split.TRAIN, 5)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("text.lower()", "text.nope()", r"AttributeError: .* no attribute 'nope' \(evaluator.py, line 5\)\."),
        ('"short": 1', '"shrt": 1', "rewards: missing short; unknown shrt; expected exactly right, short"),
        ("1 / max", 'float("nan") * max', "reward 'short' is nan: expected a finite number"),
    ],
)
def test_an_evaluator_that_fails_on_every_answer_of_the_first_batch_stops_the_training(page_task, old, new, words):
    task = page_task(old, new)
    problems = problems_of(task, Split.TRAIN, 5)
    for _ in range(2):
        with pytest.raises(InvalidInputError, match=f"evaluator of task 'fruit' fails on every answer .*: {words}"):
            scores_of(task, [(problem, ["banana", "plum"]) for problem in problems])


def test_an_evaluator_that_has_scored_an_answer_may_fail_on_all_of_a_later_batch(page_task):
    task = page_task("words = text", "words = {'banana': text}[text]")
    problem = problems_of(task, Split.TRAIN, 1)[0]
    assert scores_of(task, [(problem, [])]) == [[]]
    assert scores_of(task, [(problem, ["banana", "plum"])]) == [[(1.0, 1.0), (0.0, 0.0)]]
    assert scores_of(task, [(problem, ["plum"])]) == [[(0.0, 0.0)]]
