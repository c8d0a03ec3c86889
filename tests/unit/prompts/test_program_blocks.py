"""Programs in several blocks, and programs in JSON."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from speciate.domain.policy import Policy
from speciate.domain.problem import Problem
from speciate.prompts.parse import Answer, parse_completion

SEED = "def line(x):\n    return 0 * x + 0\n"
GOOD = "def line(x):\n    return 7 * x + 3\n"
USE = "from candidate import line\n\nprint(line(3))\nassert line(1) == 10\n"

Read = Callable[..., list[Answer]]


@pytest.fixture
def read(problem: Callable[..., Problem], policy: Callable[..., Policy]) -> Read:
    def parse(text: str, *, seed: str = SEED, answers: int = 1) -> list[Answer]:
        of = problem(seed_program=seed)
        return parse_completion(text, problem=of, policy=policy(answers), parent=seed or None)

    return parse


def blocks(*texts: str) -> str:
    return "\n\nThen:\n\n".join(f"```python\n{text.strip()}\n```" for text in texts)


@pytest.mark.parametrize(
    ("texts", "value"),
    [
        (["import math", "def helper(x):\n    return 7 * x", "def line(x):\n    return math.floor(helper(x)) + 3"], 24),
        (["def line(x):\n    return helper(x) + C", "C = 3", "def helper(x):\n    return 7 * x", USE], 24),
        (
            [
                "from functools import partial",
                "def scaled(a, x):\n    return a * x + 3",
                "line = partial(scaled, 7)",
                USE,
            ],
            24,
        ),
        (["import math", "line = lambda x: math.floor(7 * x) + 3"], 24),
        (["from math import exp as line", USE], pytest.approx(20.0855, abs=1e-3)),
        (["from functools import cache", GOOD, "line = cache(line)"], 24),
        (["class Line:\n    def __call__(self, x):\n        return 7 * x + 3", "line = Line()", "print(line(3))"], 24),
        (["def helper(x):\n    return 7 * x\n\nprint(helper(2))", "def line(x):\n    return helper(x) + 3"], 24),
        (["import math\n\ndef line(x):\n    return 1", "def line(x):\n    return math.floor(7 * x) + 3"], 24),
        ([GOOD, SEED], 24),
        ([GOOD, "def line(x):\n    ..."], 24),
        ([GOOD, "def line(x):\n    return a * x + b"], 24),
        ([GOOD, "def line(x):\n    # ... existing code ...\n    return 1"], 24),
        (["def line(x):\n    return 1", GOOD, "def test_line():\n    assert line(3) == 24"], 24),
        (
            [
                "from __future__ import annotations",
                "from __future__ import annotations\n\n" + GOOD + "\n\nY = Z",
                "Z = 1",
            ],
            24,
        ),
    ],
)
def test_the_last_complete_program_is_joined_from_its_blocks(read: Read, texts: list[str], value: float) -> None:
    (answer,) = read(blocks(*texts))
    assert answer.failure is None
    namespace: dict[str, Callable[[int], float]] = {}
    exec(compile(answer.program, "answer", "exec"), namespace)
    assert namespace["line"](3) == value
    assert "print" not in answer.program
    assert "assert" not in answer.program


def test_names_that_the_seed_assigns_or_the_evaluator_calls_are_wanted(
    read: Read, problem: Callable[..., Problem]
) -> None:
    longer = "def check(x):\n" + "    x += 1\n" * 9
    assert read(blocks("line = lambda x: 7", longer), seed="line = lambda x: 0\n") == [Answer("line = lambda x: 7\n")]
    calling = problem(evaluator='def evaluate(candidate):\n    return candidate.call("line", 1)\n')
    policy = Policy(slug="p", kind="scripted")
    (answer,) = parse_completion(blocks("line = lambda x: 7", longer), problem=calling, policy=policy, parent=None)
    assert answer == Answer("line = lambda x: 7\n")


def test_names_of_protected_text_are_not_missing(read: Read) -> None:
    seed = "import math\n# EVOLVE-BLOCK-START\ndef line(x):\n    return 0\n# EVOLVE-BLOCK-END\n"
    (answer,) = read(blocks("import math", "def line(x):\n    return math.pi"), seed=seed)
    assert answer == Answer(seed.replace("return 0", "return math.pi"))


def test_several_answers_without_separators_share_their_imports(read: Read) -> None:
    text = blocks("import math", "def line(x):\n    return math.pi", USE, "def line(x):\n    return math.e")
    expected = ["import math\n\ndef line(x):\n    return math.pi\n", "import math\n\ndef line(x):\n    return math.e\n"]
    assert [answer.program for answer in read(text, answers=2)] == expected


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"code": GOOD}),
        json.dumps({"thoughts": "It is a line.", "answer": {"program": GOOD, "sure": True}}, indent=2),
        f"```json\n{json.dumps({'answer': GOOD})}\n```",
        f"So:\n```\n{json.dumps([{'file': 'candidate.py', 'content': GOOD}])}\n```\nDone.",
        f"Here it is:\n{json.dumps({'code': GOOD})}\nIt fits.",
        json.dumps({"code": f"```python\n{GOOD}```"}),
        json.dumps({"code": GOOD.split("\n")}),
        json.dumps({"imports": "import math", "code": GOOD}),
        json.dumps({"edit": "<<<<<<< SEARCH\n    return 0 * x + 0\n=======\n    return 7 * x + 3\n>>>>>>> REPLACE"}),
        f"{{'code': '''{GOOD}'''}}",
        json.dumps([GOOD.replace("7", "6"), GOOD]),
        json.dumps({"code": GOOD.replace("7", "6")}) + "\n" + json.dumps({"code": GOOD}),
        json.dumps({"code": GOOD.replace("\n", "\\n")}),
        f"<answer>{json.dumps({'code': GOOD.replace('    ', chr(160) * 4)})}</answer>",
    ],
)
def test_a_program_in_json_is_read(read: Read, text: str) -> None:
    assert read(text) == [Answer(GOOD)]


def test_elements_of_an_array_are_answers_if_several_are_wanted(read: Read) -> None:
    text = json.dumps({"answers": [{"code": GOOD}, {"code": SEED}]})
    assert [answer.program for answer in read(text, answers=2)] == [GOOD, SEED]


@pytest.mark.parametrize("text", ['{"score": 1}', '```json\n{"why": "no idea"}\n```', "[1, 2]"])
def test_json_without_a_program_is_no_answer(read: Read, text: str) -> None:
    (answer,) = read(text)
    assert answer.failure is not None
    assert answer.failure.reason == "no_code_block"
    assert "JSON" in answer.failure.detail
