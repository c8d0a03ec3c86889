"""Sets of answers in the forms that an untrained SmolLM2-135M writes are read by the rules of single answers."""

import pytest

from speciate.domain.policy import Policy
from speciate.prompts.compact import until_stop
from speciate.prompts.parse import parse_completion

OPENING = "```python\ndef solve(x):"
PREFILLED = Policy(slug="p", kind="scripted", answers_per_rollout=3, prompt_style="prefilled")
STANDARD = Policy(slug="p", kind="scripted", answers_per_rollout=3)
TRIPLE = "def solve(x):\n    return x * 3\n"

CONTINUED = {
    "usage below": ("\n    return x * 3\n\n# Example 1:\nexample_1 = solve(187)\n```\n\nExample 1 uses", [TRIPLE]),
    "other functions": ("\n    return x * 3\n\ndef more(x):\n    return solve(x)\n\ndef main():\n    pri", [TRIPLE]),
    "a block of usage": (
        "\n    return x * 3\n```\n\nExample use:\n```python\nsolve([4, -8])  # Expected output: 11\n```\n",
        [TRIPLE],
    ),
    "a block of output": ('\n    return x * 3\n\nprint(solve(4))\n```\n\nOutput:\n```\napple bee\n```\n', [TRIPLE]),
    "functions in one block": (
        "\n    return x * 3\n\n# Example 1\ndef solve(x):\n    return x + 1\n\n# 2\ndef solve(x):\n    return x\n```\n",
        [TRIPLE, "def solve(x):\n    return x + 1\n", "def solve(x):\n    return x\n"],
    ),
    "no fences": (
        "\n    return x * 3\n---\ndef solve(x):\n    return x + 1\n",
        [TRIPLE, "def solve(x):\n    return x + 1\n"],
    ),
    "the form": (
        "\n    return x * 3\n```\n---\n```python\ndef solve(x):\n    return x + 1\n```",
        [TRIPLE, "def solve(x):\n    return x + 1\n"],
    ),
}  # fmt: skip
COMPLETE = {
    "separators in one block": (
        "```python\ndef solve(x):\n    return x * 3\n---\ndef solve(x):\n    return x + 1\n```",
        [TRIPLE, "def solve(x):\n    return x + 1\n"],
    ),
    "separators without fences": (
        "def solve(x):\n    return x * 3\n---\ndef solve(x):\n    return x + 1\n",
        [TRIPLE, "def solve(x):\n    return x + 1\n"],
    ),
    "functions in one block": (
        "```python\nimport re\n\ndef solve(x):\n    return re.sub('a', '', x)\n\ndef solve(x):\n    return x\n```",
        ["import re\n\ndef solve(x):\n    return re.sub('a', '', x)\n", "import re\n\ndef solve(x):\n    return x\n"],
    ),
    "usage and output": (
        f"```\n{TRIPLE}```\n---\n```\nsolve(4)\n```\n---\n```\n12\n```\n---\n```\ndef solve(x):\n    return x + 1\n```",
        [TRIPLE, "def solve(x):\n    return x + 1\n"],
    ),
    "overloads": (
        "```python\n@overload\ndef solve(x): ...\n@overload\ndef solve(y): ...\ndef solve(x):\n    return x\n```",
        ["@overload\ndef solve(x): ...\n@overload\ndef solve(y): ...\ndef solve(x):\n    return x\n"],
    ),
}


@pytest.fixture
def asked(problem):
    """Return a function that reads a completion for a problem whose description names ``solve(x)``."""

    def read(text, policy, finish="stop"):
        defined = problem(seed_program="", description="Define solve(x).")
        return parse_completion(text, problem=defined, policy=policy, parent=None, finish_reason=finish)

    return read


@pytest.mark.parametrize("name", CONTINUED)
def test_a_continued_set_is_read_as_its_functions(asked, name):
    text, programs = CONTINUED[name]
    answers = asked(text, PREFILLED)
    assert [answer.program.strip() for answer in answers] == [program.strip() for program in programs]
    assert not any(answer.failure for answer in answers)


@pytest.mark.parametrize("name", COMPLETE)
def test_a_set_is_read_as_its_programs(asked, name):
    text, programs = COMPLETE[name]
    answers = asked(text, STANDARD)
    assert [answer.program.strip() for answer in answers] == [program.strip() for program in programs]


def test_an_answer_that_does_not_parse_is_one_of_the_set(asked):
    answers = asked("\n    return (x +\n\ndef solve(x):\n    return x\n", PREFILLED)
    assert [answer.failure and answer.failure.reason for answer in answers] == ["syntax_error", None]


def test_a_cut_set_keeps_its_complete_answers(asked):
    answers = asked("\n    return x\n\ndef solve(x):\n    return (x +", PREFILLED, "length")
    assert [answer.failure and answer.failure.reason for answer in answers] == [None, "truncated"]


def test_a_reply_ends_with_its_last_answer():
    one, two = "\n    return x * 3", "\n\n# Example\ndef solve(x):\n    return x"
    rest = "\n```\n\nIn this code"
    assert until_stop(one + rest, OPENING, 1) == one
    assert until_stop(one + two + rest, OPENING, 1) == one + "\n"
    assert until_stop(one + two + rest, OPENING, 2) == one + two
    assert until_stop(one + two, OPENING, 2) == one + two
    assert until_stop(one + rest, OPENING, 3) == one + rest
    block = "def a():\n    return 1"
    several = f"{block}\n```\n---\n```python\n{block}\n```\n"
    assert until_stop(several, "```python\n", 1) == block
    assert until_stop(several, "```python\n", 2) == several.removesuffix("\n```\n")
