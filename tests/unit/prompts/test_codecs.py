"""Codecs: prompts, parsed answers, and robustness against any text."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speciate.domain.candidate import FailureKind, Individual
from speciate.domain.errors import InvalidInputError
from speciate.domain.policy import Policy, PolicyRole, PromptFormat
from speciate.prompts.codecs import CODECS, codec_of
from speciate.prompts.mutation import build_prompt
from speciate.prompts.parse import parse_completion
from speciate.training.tasks import GENERATED, Split

TASKS = [pytest.param(task, id=name) for name, task in GENERATED.items()]
ROUTE = "S00 .01 <b5>"


def policy(codec, answers=1):
    return Policy(
        slug="tiny", kind="any", codec=codec, prompt_format=PromptFormat.COMPLETION, answers_per_rollout=answers
    )


def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize("task", TASKS)
def test_all_tokens_of_prompts_and_answers_are_in_the_vocabulary(task):
    codec, words = CODECS[task.codec], set(task.vocabulary())
    for problem in task.problems(Split.TEST, 5):
        answer = task.demonstrate(problem, rng())
        parent = Individual(1, answer, task.score([(problem, [answer])])[0][0])
        for text in (
            codec.prompt(problem, answers=1),
            codec.prompt(problem, answers=3, parent=parent),
            " ".join(codec.write(answer)),
        ):
            assert set(text.split()) <= words


@pytest.mark.parametrize("task", TASKS)
def test_written_tokens_are_read_back(task):
    codec = CODECS[task.codec]
    for problem in task.problems(Split.TEST, 5):
        answers = [task.demonstrate(problem, np.random.default_rng(i)) for i in range(3)]
        written = [" ".join(codec.write(answer)) for answer in answers]
        assert codec.read(written[0], answers=1) == answers[:1]
        assert codec.read(" ; ".join(written) + " ;", answers=3) == answers
        assert codec.read(" ; ".join(written) + " ;", answers=2) == answers[:2]


def test_a_prompt_begins_with_the_problem_and_shows_the_parents_results():
    problem = next(GENERATED["programs"].problems(Split.TEST, 1))
    parent = Individual(4, "def solve(x):\n    return 3 if x < 7 else 1\n", (1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0))
    scratch = build_prompt(problem, PolicyRole.PROPOSE, [], [], policy("programs"), rng()).text()
    change = build_prompt(problem, PolicyRole.MUTATE, [parent], [], policy("programs"), rng()).text()
    assert scratch.endswith(" <one>")
    assert change.startswith(scratch.removesuffix("<one>"))
    assert change.endswith("<edit> y3 x7 y1 <c0+> <c1-> <c2+> <c3-> <c4-> <c5-> <c6-> <c7+> <one>")


def test_an_inexpressible_parent_is_omitted():
    problem = next(GENERATED["programs"].problems(Split.TEST, 1))
    parent = Individual(4, "def solve(x):\n    return max(x, 3)\n", (0.0,) * 8)
    asked = build_prompt(problem, PolicyRole.MUTATE, [parent], [], policy("programs"), rng()).text()
    assert asked == build_prompt(problem, PolicyRole.PROPOSE, [], [], policy("programs"), rng()).text()


@pytest.mark.parametrize(
    ("codec", "other"), [("maze", "programs"), ("programs", "maze")], ids=["maze of programs", "programs of maze"]
)
def test_a_problem_of_another_task_is_refused_by_name(codec, other):
    problem = next(GENERATED[other].problems(Split.TEST, 1))
    with pytest.raises(InvalidInputError, match=f"problem '{other}-test-0' .*codec '{codec}'") as caught:
        CODECS[codec].prompt(problem, answers=1)
    assert f"task:{codec}" in caught.value.remedy


def test_hidden_cases_are_not_shown():
    problem = next(GENERATED["programs"].problems(Split.TEST, 1))
    *shown, last = problem.cases
    secret = problem.model_copy(update={"cases": (*shown, last.model_copy(update={"hidden": True}))})
    with pytest.raises(InvalidInputError, match="hides one"):
        CODECS["programs"].prompt(secret, answers=1)


def test_an_unknown_codec_is_refused_with_the_known_ones():
    with pytest.raises(InvalidInputError) as caught:
        codec_of("chess")
    assert "maze, programs" in caught.value.remedy


def test_a_codec_needs_the_completion_format():
    with pytest.raises(ValueError, match="needs prompt_format 'completion'"):
        Policy(slug="tiny", kind="any", codec="maze")


@pytest.mark.parametrize(
    ("text", "programs"),
    [
        ("y3", ["def solve(x):\n    return 3\n"]),
        ("y3 x31 y0", ["def solve(x):\n    return 3 if x < 31 else 0\n"]),
        ("y3 x0 y0", [""]),
        ("y3 x32 y0", [""]),
        ("y3 y4", [""]),
        ("x3 y4 x5", [""]),
        ("__import__('os')", [""]),
        ("", [""]),
    ],
)
def test_only_step_functions_are_read(text, programs):
    assert CODECS["programs"].read(text, answers=1) == programs


def test_repeats_and_unreadable_answers_of_a_rollout_are_rejected_by_reason():
    problem = next(GENERATED["programs"].problems(Split.TEST, 1))
    answers = parse_completion("y3 ; y3 ; x9 ;", problem=problem, policy=policy("programs", 3), parent=None)
    assert [a.failure and a.failure.reason for a in answers] == [None, "duplicate_in_rollout", "no_code_block"]
    assert answers[2].failure.kind is FailureKind.REJECTED


@pytest.mark.parametrize("task", [GENERATED["maze"], GENERATED["programs"]], ids=["maze", "programs"])
@given(text=st.text(max_size=200), answers=st.integers(1, 4))
def test_any_text_is_parsed(task, text, answers):
    read = CODECS[task.codec].read(text, answers=answers)
    assert len(read) <= answers
    problem = next(task.problems(Split.TEST, 1))
    parse_completion(text, problem=problem, policy=policy(task.codec, answers), parent=None)
    for vectors in task.score([(problem, read)]):
        assert all(len(vector) == len(task.rewards) and 0 <= min(vector) <= max(vector) <= 1 for vector in vectors)
