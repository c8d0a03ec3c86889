from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from speciate.domain.candidate import FailureKind
from speciate.domain.policy import Policy
from speciate.domain.problem import Problem
from speciate.domain.values import MAX_PROGRAM_BYTES
from speciate.prompts.evolve_blocks import find_blocks, outside_of
from speciate.prompts.parse import Answer, parse_completion, program_failure
from speciate.prompts.rejection import Reason
from speciate.prompts.state import words_of

MakeProblem = Callable[..., Problem]
MakePolicy = Callable[..., Policy]
GOOD = "def solve():\n    return 1\n"
FENCED = f"```python\n{GOOD}```"


@pytest.fixture
def read(problem: MakeProblem, policy: MakePolicy) -> Callable[..., list[Answer]]:
    def parse(text: str, answers: int = 1, parent: str | None = None) -> list[Answer]:
        return parse_completion(text, problem=problem(), policy=policy(answers), parent=parent)

    return parse


Read = Callable[..., list[Answer]]


def reason(answer: Answer) -> str | None:
    return None if answer.failure is None else answer.failure.reason


@pytest.mark.parametrize(
    "text",
    [
        FENCED,
        f"Here it is:\n\n{FENCED}\n\nIt returns 1.",
        f"```\n{GOOD}```",
        f"```py\n{GOOD}```",
        f"~~~python\n{GOOD}~~~",
        f"````python\n{GOOD}````",
        f"```python\n{GOOD}",
        f"```python\r\n{GOOD.replace(chr(10), chr(13) + chr(10))}```\r\n",
        f"Answer: ```python\n{GOOD}```",
        "1. ```python\n   def solve():\n       return 1\n   ```",
        "1. So:\n   ```python\n   def solve():\n       return 1\n   ```",
        GOOD,
        f"<think>maybe\n```python\nx = 2\n```\n</think>\n{FENCED}",
        f"```python\ndef solve(): pass\n```\nbetter:\n{FENCED}",
        f"{FENCED}\nUse it:\n```python\nsolve()\n```",
        f"{FENCED}\nRun it with\n```bash\npython a.py --all-the-options --that-are-long-enough\n```",
        f"```python\ndef broken(:\n    a long line that is not Python at all\n```\n{FENCED}",
        f"{FENCED}\nCheck it with:\n```python\ndef test():\n    for _ in range(9):\n        assert solve() == 1\n```",
        f"<think>hm</think>\n{FENCED}\n</think>",
        f"maybe\n```python\nx = 2\n```\nor so.</think>Then:\n{FENCED}",
        f"<think>so\n{FENCED}\n</think>\n",
        f"Let me see.\n<think>\nmaybe\n```python\nx = 2\n```\n</think>\n{FENCED}",
        f"<think>\nlet me\n<think>\nmore\n```python\nx = 2\n```\n</think>\n{FENCED}",
        f"<answer>\n{GOOD}</answer>",
        json.dumps({"reasoning": "I replaced the loop by ```sum(...)``` here.", "code": GOOD}),
        f"<think>so\n{FENCED}\nI split at '</think>' later.",
        f"\ufeff{FENCED}",
        f"```python\n\ufeff{GOOD.replace('    ', chr(160) * 4)}```",
        f"```python\n{GOOD.replace('return', 'return' + chr(0x200B))}```",
        f"```py\n{GOOD}```\nThe page:\n```js\nconst solve = () => 1\n```\n```json\n[1, 2, 3, 4]\n```",
    ],
)
def test_the_program_is_found_in_typical_completions(read: Read, text: str) -> None:
    assert [(answer.program, answer.failure) for answer in read(text)] == [(GOOD, None)]


@pytest.mark.parametrize("label", ["", "python", "text"])
@pytest.mark.parametrize("margin", ["", "    "])
def test_a_fence_inside_a_docstring_does_not_end_the_program(read: Read, label: str, margin: str) -> None:
    docstring = f'"""Example:\n\n{margin}```{label}\n{margin}solve()\n{margin}```\n{margin}"""\n'
    function = f"def solve():\n    {docstring if margin else ''}    return 1\n"
    program = function if margin else docstring + function
    assert read(f"```python\n{program}```") == [Answer(program)]


def test_an_example_in_a_docstring_is_not_an_answer(read: Read) -> None:
    program = 'def solve():\n    """Example:\n\n    ```python\n    solve()\n    ```\n    """\n    return 1\n'
    fenced = f"```python\n{program}```"
    assert read(f"{fenced}\nUse it:\n```python\nsolve()\n```") == [Answer(program)]
    assert [answer.program for answer in read(f"{fenced}\n---\n{FENCED}", 2)] == [program, GOOD]


def test_the_entry_point_decides_between_blocks(problem: MakeProblem, policy: MakePolicy) -> None:
    cases = problem(
        kind="cases",
        evaluator="",
        objectives=[{"name": "passed"}],
        targets=[{"name": "all", "rule": "passed >= 1", "unlock": True}],
        cases=[{"input": [1], "expected": 1}],
    )
    test_code = "def check():\n" + "    assert solve() == 1\n" * 20
    text = f"{FENCED}\nTested with\n```python\n{test_code}```"
    assert parse_completion(text, problem=cases, policy=policy(), parent=None) == [Answer(GOOD)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Reason.NO_TEXT),
        ("Sorry, I cannot.", Reason.NO_CODE_BLOCK),
        ("Sorry", Reason.NO_CODE_BLOCK),
        ("```python\n```", Reason.NO_CODE_BLOCK),
        ("```python\ndef solve(:\n```", Reason.SYNTAX_ERROR),
        ("```javascript\nx = 1\n```", Reason.NO_CODE_BLOCK),
        ("```diff\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-x\n+y\n```", Reason.DIFF_MALFORMED),
        ("@@ -1,2 +1,2 @@\n def solve():\n-    return 0\n+    return 1", Reason.DIFF_MALFORMED),
        ("```python\ndef solve():\n    # ... rest of the code unchanged ...\n```", Reason.CODE_LEFT_OUT),
        ("```python\ndef solve():\n    ...\n    return helper\n```", Reason.CODE_LEFT_OUT),
        ("```python\n" + "(" * 5000 + "\n```", Reason.SYNTAX_ERROR),
        ("```python\nx = " + "-" * 50_000 + "1\n```", Reason.SYNTAX_ERROR),
        ("```python\nx = " + "9" * 5000 + "\n```", Reason.SYNTAX_ERROR),
        ("```python\nx = '\x00'\n```", Reason.UNSTORABLE_TEXT),
        ("```python\nx = '\ud800'\n```", Reason.UNSTORABLE_TEXT),
        ("```python\nx = '" + "é" * MAX_PROGRAM_BYTES + "'\n```", Reason.PROGRAM_TOO_LARGE),
    ],
)
def test_unusable_answers_have_a_reason(read: Read, text: str, expected: Reason) -> None:
    (answer,) = read(text)
    assert answer.failure is not None
    assert answer.failure.kind is FailureKind.REJECTED
    assert answer.failure.reason == expected.value
    assert answer.failure.detail
    assert len(answer.failure.detail) < 2100


def test_odd_blanks_in_strings_stay(read: Read) -> None:
    program = "def solve():\n    return 'a\u00a0b'  # \u200b\n"
    assert read(f"```python\n{program.replace('    ', chr(160) * 4)}```") == [Answer(program)]


def test_a_syntax_error_names_the_line_and_keeps_the_text(read: Read) -> None:
    (answer,) = read("```python\nx = 1\ny = = 2\n```")
    assert answer.program == "x = 1\ny = = 2\n"
    assert answer.failure is not None
    assert answer.failure.detail == "line 2: invalid syntax\ny = = 2"
    (answer,) = read("```python\ndef inner(:\n    return 1\n```", parent=SEED)  # the line as sent
    assert answer.failure is not None
    assert answer.failure.detail == "line 1: invalid syntax\ndef inner(:"


def test_m_answers_are_divided_by_separator_lines(read: Read) -> None:
    text = "first\n```python\na = 1\n```\n---\nsecond\n```python\nb = 2\n```\n---\n```python\nc = 3"
    assert [answer.program for answer in read(text, 3)] == ["a = 1\n", "b = 2\n", "c = 3\n"]
    assert [answer.program for answer in read(text, 2)] == ["a = 1\n", "b = 2\n"]
    assert [answer.program for answer in read(text, 5)] == ["a = 1\n", "b = 2\n", "c = 3\n"]


def test_m_answers_survive_a_missing_fence_or_separator(read: Read) -> None:
    unclosed = "```python\na = 1\n---\n```python\nb = 2\n```"
    assert [answer.program for answer in read(unclosed, 2)] == ["a = 1\n", "b = 2\n"]
    unseparated = "```python\na = 1\n```\n```python\nb = 2\n```"
    assert [answer.program for answer in read(unseparated, 2)] == ["a = 1\n", "b = 2\n"]
    assert [answer.program for answer in read("a = 1\n---\nb = 2", 2)] == ["a = 1\n", "b = 2\n"]


def test_repeats_within_a_rollout_are_reported(read: Read) -> None:
    text = "```python\na = 1\n```\n---\n```python\na  =  1  # same tree\n```\n---\n```python\nb = (\n```"
    assert [reason(answer) for answer in read(text, 3)] == [None, "duplicate_in_rollout", "syntax_error"]


SEED = (
    "import math\n\n\n# EVOLVE-BLOCK-START\ndef inner():\n    return 1\n# EVOLVE-BLOCK-END\n\n\n"
    "def solve():\n    return math.pi * inner()\n"
)
CHILD = SEED.replace("return 1", "return 2")
INSIDE = "def inner():\n    return 2\n"


def _unmarked(text: str) -> str:
    return text.replace("# EVOLVE-BLOCK-START\n", "").replace("# EVOLVE-BLOCK-END\n", "")


RANDOM = CHILD.replace("return 2", "return random.random()")
_IMPORTING = RANDOM.replace("import math\n", "import math, random\n")
_HELPED = CHILD.replace("import math\n", "import math\n\ndef twice():\n    return 2\n").replace(
    "return 2\n#", "return twice()\n#"
)
_CACHED = "WIDTH = 2\n@functools.cache\ndef wide():\n    return WIDTH\n"
_CHAINED = CHILD.replace("import math\n", f"import functools, math\n{_CACHED}").replace(
    "return 2\n#", "return wide()\n#"
)
_LATE = CHILD.replace("return 2", "return early()").replace(
    "def solve", "def early():\n    return late()\n\n\ndef late():\n    return 2\n\n\ndef solve"
)


@pytest.mark.parametrize(
    "text",
    [
        CHILD,
        CHILD.replace("# EVOLVE-BLOCK-START\n", "").replace("# EVOLVE-BLOCK-END\n", ""),
        CHILD.replace("# EVOLVE-BLOCK-END\n", ""),
        CHILD.replace("import math\n", "import math   \n"),
        INSIDE,
        f"# EVOLVE-BLOCK-START\n{INSIDE}# EVOLVE-BLOCK-END",
    ],
)
def test_text_outside_of_the_blocks_is_kept_to_the_byte(read: Read, text: str) -> None:
    (answer,) = read(f"```python\n{text}\n```", parent=SEED)
    assert answer.failure is None
    assert answer.program.rstrip() == CHILD.rstrip()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (SEED.replace("math.pi", "math.tau"), "return math.pi * inner()"),
        (CHILD.replace("import math\n", "import cmath as math\n"), "import math"),
        (CHILD.replace("import math\n", "import math\nfrom numpy import *\n"), "added: from numpy import *"),
        (SEED + "\nprint(solve())\n", "outside of the EVOLVE-BLOCKs: added: print(solve())"),
        ("def solve():\n    return 3\n", "import math"),
        (CHILD + CHILD, "2 EVOLVE-BLOCKs"),
        (CHILD.replace("    return 2\n# EVOLVE-BLOCK-END", "    return 2  # EVOLVE-BLOCK-END"), "marker"),
        (SEED.replace("import math", "import math  # EVOLVE-BLOCK-START"), "import math"),
        (CHILD.replace("import math", "import math math"), "import math"),
    ],
)
def test_changes_outside_of_the_blocks_that_cannot_be_undone_are_refused(read: Read, text: str, says: str) -> None:
    (answer,) = read(f"```python\n{text}```", parent=SEED)
    assert reason(answer) == "protected_region_changed"
    assert answer.failure is not None
    assert says in answer.failure.detail


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ('"""Other words."""\n' + CHILD, INSIDE),
        (CHILD.replace("math.pi", "math.tau") + "\nprint(solve())\n", INSIDE),
        (_unmarked('"""Other words."""\n' + CHILD), INSIDE),
        (_unmarked(CHILD.replace("math.pi", "math.tau")), INSIDE),
        (_IMPORTING, "import random\ndef inner():\n    return random.random()\n"),
        (_unmarked(_IMPORTING), "import random\ndef inner():\n    return random.random()\n"),
        (_unmarked(_HELPED), "def twice():\n    return 2\n\n\ndef inner():\n    return twice()\n"),
        (_HELPED, "def twice():\n    return 2\ndef inner():\n    return twice()\n"),
        (_unmarked(CHILD.replace("math.pi", "math.tau")) + "\nprint(solve())\n", INSIDE),
        (_LATE, "def early():\n    return late()\n\n\ndef late():\n    return 2\ndef inner():\n    return early()\n"),
        (_CHAINED, f"import functools\n{_CACHED}def inner():\n    return wide()\n"),
        (CHILD.replace("math.pi", "math.tau").replace("return 2", "return ("), None),
    ],
)
def test_protected_text_is_restored_and_new_imports_move_inside(read: Read, text: str, inside: str | None) -> None:
    (answer,) = read(f"```python\n{text}```", parent=SEED)
    if inside is None:
        assert reason(answer) == "syntax_error"
    else:
        assert (answer.program, answer.failure) == (SEED.replace("def inner():\n    return 1\n", inside), None)
        no_code_undone = text in (_unmarked(_HELPED), _unmarked(f'"""Other words."""\n{CHILD}')) or text.endswith(CHILD)
        assert no_code_undone or answer.note.startswith("Changes outside of the EVOLVE-BLOCKs do not stay there: ")


_TWO = """\
import math

# EVOLVE-BLOCK-START
def guess(n):
    return n
# EVOLVE-BLOCK-END

def solve(n):
    return min(guess(n), 2)

# EVOLVE-BLOCK-START
extra = 1
# EVOLVE-BLOCK-END

if __name__ == "__main__":
    best = solve(3)
"""


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        ('    return n\n_ = """', '"""\ndef solve(n): return n * n', "into something else"),
        ("    return n\n@staticmethod", "extra = 1", "into something else"),
        ("    return n", "solve = lambda n: n * n", "binds solve"),
        ("    return n", "if 1:\n    def solve(n): return n * n", "binds solve"),
        ("    return n\nmin = lambda a, b: a * a", "extra = 1", "binds min"),
        ("    return n", "import cmath as math", "binds math"),
        ("    global solve\n    solve = print", "extra = 1", "binds solve"),
        ("    return n\nimport math, random", "max = best = guess(1)", None),
    ],
)
def test_a_block_does_not_change_what_protected_text_means(
    problem: MakeProblem, policy: MakePolicy, first: str, second: str, says: str | None
) -> None:
    text = _TWO.replace("    return n\n#", f"{first}\n#").replace("extra = 1", second)
    seeded = problem(seed_program=_TWO)
    (answer,) = parse_completion(f"~~~python\n{text}~~~", problem=seeded, policy=policy(), parent=_TWO)
    for failure in (answer.failure, program_failure(text, seeded)):
        assert (failure and failure.reason) == (says and "protected_region_changed")
        assert failure is None or str(says) in failure.detail


@pytest.mark.parametrize("edge", ["    \n", "\n", " \n\n\t\n"])
def test_blank_lines_beside_regions_do_not_count(read: Read, edge: str) -> None:
    seed = edge + SEED.replace("# EVOLVE-BLOCK-END\n", f"# EVOLVE-BLOCK-END\n{edge}") + edge
    for text in (CHILD, _unmarked(CHILD), CHILD + " \n"):
        (answer,) = read(f"```python\n{text}```", parent=seed)
        assert answer == Answer(seed.replace("return 1", "return 2"))


def test_a_policy_cannot_mark_regions(read: Read) -> None:
    text = f"```python\n# EVOLVE-BLOCK-START\nx = 1\n# EVOLVE-BLOCK-END\n{GOOD}```"
    assert read(text) == read(text, parent=GOOD) == [Answer("x = 1\n" + GOOD)]


def test_a_proposal_keeps_the_seeds_protected_text(problem: MakeProblem, policy: MakePolicy) -> None:
    seeded = problem(seed_program=SEED)
    (answer,) = parse_completion(f"```python\n{INSIDE}```", problem=seeded, policy=policy(), parent=None)
    assert answer == Answer(CHILD)


def test_a_function_body_is_indented_into_place(read: Read) -> None:
    seed = "def f(x):\n    # EVOLVE-BLOCK-START\n    y = x\n    # EVOLVE-BLOCK-END\n    return y\n"
    for text in ("y = x\ny += 1\n", "    y = x\n    y += 1\n"):
        (answer,) = read(f"```python\n{text}```", parent=seed)
        assert answer == Answer(seed.replace("    y = x\n", "    y = x\n    y += 1\n"))


def test_two_blocks_without_markers_are_separated_by_protected_text(read: Read) -> None:
    start, end = "# EVOLVE-BLOCK-START\n", "# EVOLVE-BLOCK-END\n"
    seed = f"{start}a = 1\n{end}MIDDLE = 0\n{start}b = 1\n{end}"
    assert read("```python\na = 2\nMIDDLE = 0\nb = 3\n```", parent=seed) == [
        Answer(f"{start}a = 2\n{end}MIDDLE = 0\n{start}b = 3\n{end}")
    ]
    assert reason(read("```python\nMIDDLE = 0\nMIDDLE = 0\n```", parent=seed)[0]) == "protected_region_changed"


def test_data_is_unchanged(data_problem: Problem, policy: MakePolicy) -> None:
    def read(text: str, answers: int = 1) -> list[str]:
        found = parse_completion(text, problem=data_problem, policy=policy(answers), parent=None)
        return [answer.program if answer.failure is None else answer.failure.reason for answer in found]

    assert read("UUDD") == ["UUDD"]
    assert read("I go\n<answer>\nRRLL\n</answer>\ndone") == ["RRLL"]
    assert read("<answer>\n```json\n[1]\n```\n</answer>") == ["[1]"]
    assert read("<answer>a\n```\nb\n```\n</answer>") == ["a\n```\nb\n```"]
    assert read("<answer>```\na\n```\nb\n```\nc\n```</answer>") == ["```\na\n```\nb\n```\nc\n```"]
    assert read("My route between <answer> tags:\n<answer>RRLL</answer>") == ["RRLL"]
    assert read('```json\n{"a": [1, 2]}\n```') == ['{"a": [1, 2]}']
    assert read("<answer_1>A</answer_1> <answer_2>B</answer_2>", 2) == ["A", "B"]
    assert read("A\n---\nB\n---\nC", 2) == ["A", "B"]
    assert read("A\n---\nA", 2) == ["A", "duplicate_in_rollout"]
    assert read("  \n") == ["no_text"]
    assert read("a\x00b") == ["unstorable_text"]


TOKENS = [
    "```", "```python", "````", "~~~", "---", "<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE", "# EVOLVE-BLOCK-START",
    "# EVOLVE-BLOCK-END", "def solve():", "    return 1", "x = 1", "", "<answer>", "</answer>",
    "<answer_1>", "</think>", "\x00", "\ud800",
]  # fmt: skip


@settings(max_examples=300)
@example("```python\nx=1\n```\n", SEED, 3)
@given(
    st.one_of(st.text(), st.lists(st.sampled_from(TOKENS), max_size=14).map("\n".join)),
    st.one_of(st.none(), st.just(SEED), st.lists(st.sampled_from(TOKENS), max_size=8).map("\n".join)),
    st.integers(1, 4),
)
def test_no_text_raises(text: str, parent: str | None, answers: int) -> None:
    policy = Policy(slug="p", kind="scripted", answers_per_rollout=answers)
    for kind in ("evaluator", "data"):
        problem = Problem.model_validate(
            {
                "slug": "p",
                "title": "P",
                "kind": kind,
                "objectives": [{"name": "a"}],
                "targets": [{"name": "t", "rule": "a >= 1", "unlock": True}],
                "evaluator": "x",
            }
        )
        found = parse_completion(text, problem=problem, policy=policy, parent=parent)
        assert 1 <= len(found) <= answers
        for answer in found:
            assert "\x00" not in answer.program
            assert answer.failure is not None or answer.program.strip() or parent
            answer.program.encode()


def test_hostile_sizes_are_failures(read: Read) -> None:
    """How the time grows is measured in ``test_reading_costs``."""
    texts = ("`" * 30_000, "```\n" * 10_000, "a```python\n" * 5_000, "<answer>" * 10_000, "\n" * 50_000)
    edits = ("<<<<<<< SEARCH\n" * 5_000, "<<<<<<< SEARCH\n" + "x\n" * 20_000 + "y\n=======\nz\n>>>>>>> REPLACE")
    # Only edits are searched for in the parent; parsing a long one takes most of the time.
    for text, lines in (*((text, 2_000) for text in texts), *((edit, 40_000) for edit in edits)):
        assert read(text, parent="x\n" * lines)[0].failure is not None


@pytest.mark.parametrize(
    "line",
    [
        "    cut = ''.split('</think>')\n",
        "    # reads <tool_call> tags\n",
        "    # Text after </think> is the answer.\n",
        '    form = """\n<think>\nsteps\n</think>\nanswer\n"""\n',
    ],
)
def test_a_program_may_mention_the_marks_of_reasoning_and_calls(read: Read, line: str) -> None:
    program = f"def solve():\n{line}    return 1\n"
    for before in ("So:", "<think>hm</think>\nSo:", "<think>\nhm\n</think>\n"):
        assert read(f"{before}\n```python\n{program}```") == [Answer(program)]


def test_a_region_is_found_beside_a_longer_test(problem: MakeProblem, policy: MakePolicy) -> None:
    region = "# EVOLVE-BLOCK-START\ndef pack(n):\n    return [n]\n# EVOLVE-BLOCK-END\n"
    of = problem(kind="evaluator", cases=[], evaluator="def evaluate(c, x): return {}\n", seed_program=region)
    better = "def pack(n):\n    return [n, n]\n"
    text = f"```python\n{better}```\nTest:\n```python\nresult = pack(3)\nfor each in result:\n    print(each)\n```"
    (answer,) = parse_completion(text, problem=of, policy=policy(1), parent=region)
    assert answer.failure is None
    assert better in answer.program
    assert "print" not in answer.program


@pytest.mark.parametrize(
    ("text", "document"),
    [
        ('```json\n{"x": 1}\n```\nVerify:\n```python\nimport json\n```', '{"x": 1}'),
        ('Here.\n<answer>\n{"x": 1}', '{"x": 1}'),
        ('I use <answer> tags.\n<answer_1>{"x": 1}</answer_1>', '{"x": 1}'),
        ("<answer>\n<think>\nsteps\n</think>\nThen x.\n</answer>", "<think>\nsteps\n</think>\nThen x."),
    ],
)
def test_the_document_is_found(problem: MakeProblem, policy: MakePolicy, text: str, document: str) -> None:
    of = problem(kind="data", cases=[], evaluator="def score(text, context): return {}\n", seed_program="")
    assert parse_completion(text, problem=of, policy=policy(1), parent=None) == [Answer(document)]


@pytest.mark.parametrize("line", ["~" * 60_000 + "`", "```" + "x" * 60_000 + "`", " " * 60_000 + "`"])
def test_a_line_that_is_almost_a_fence_is_read_in_linear_time(read: Read, line: str) -> None:
    assert reason(read(line)[0]) is not None  # minutes if the time is quadratic


def test_the_code_that_was_undone_is_named_and_no_comment(read: Read) -> None:
    head = '"""What it\ndoes."""\n\nimport math\n\n# half of it\nHALF = 0.5\n'
    seed = head + SEED.replace("import math\n", "")
    for text, note in (
        (seed.replace(head, "import math\nHALF = 0.5\n"), ""),
        (seed.replace(head, "import math\nHALF = 0.75\n"), "undone: HALF = 0.75"),
        (seed.replace(head, "import math, os\n"), "moved into the block: import os; undone: HALF = 0.5"),
    ):
        own = text.replace("return 1", "return os.stat" if "os" in note else "return 2")
        (answer,) = read(f"```python\n{own}```", parent=seed)
        assert outside_of(answer.program, find_blocks(answer.program)) == outside_of(seed, find_blocks(seed))
        assert answer.note.partition("do not stay there: ")[2] == note


def test_two_blocks_that_define_the_same_are_told(read: Read) -> None:
    first, second = (f"Idea {n}.\n```python\ndef inner():\n    return {n}\n```\n" for n in (3, 4))
    (answer,) = read(first + second, parent=SEED)
    assert answer.program == SEED.replace("return 1", "return 4")
    assert answer.note == "Your answer held 2 blocks that define inner; the last was used."
    old = "Before:\n```python\ndef inner():\n    return 1\n```\n"
    assert read(old + second, parent=SEED)[0].note == ""
    assert words_of(first + second, last=True) == "Idea 4"
    helper = "**norms.py**\n```python\ndef norm(x):\n    return x\n```\n"
    assert read(helper + second, parent=SEED)[0].note == "The block norms.py was not used: a program is one file."


def test_a_lead_in_is_no_idea() -> None:
    for words, idea in (
        ("Here is the improved prompt:", ""),
        ("**Idea:**\n\nAsk twice.\n\nHere is the prompt:", "Ask twice"),
        ("Ask twice before the answer:", "Ask twice before the answer"),
    ):
        assert words_of(f"{words}\n\n<answer>x</answer>") == idea


def test_a_region_alone_keeps_all_its_statements(read: Read) -> None:
    """Also those that bind no name."""
    block = 'import math\nimport random\n\nrandom.seed(7)\nTABLE = {}\nTABLE["a"] = 1\n# Why.\n' + INSIDE
    (answer,) = read(f"```python\n{block}```", parent=SEED)
    assert (answer.program, answer.note) == (SEED.replace("def inner():\n    return 1\n", block), "")
    (answer,) = read(f"```python\n{block}\nprint(inner())\n```", parent=SEED)  # an example is no part of it
    assert "print" not in answer.program


def test_a_block_with_the_unchanged_entry_point_has_no_note(read: Read) -> None:
    (answer,) = read(f"```python\n{INSIDE}\n\ndef solve():\n    return math.pi * inner()\n```", parent=SEED)
    assert (answer.program, answer.note) == (CHILD, "")


def test_a_removed_helper_is_not_asked_for(read: Read) -> None:
    parent = SEED.replace("def inner", "def twice():\n    return 2\n\n\ndef inner")
    text = "from numpy import *\n" + CHILD.replace("# EVOLVE-BLOCK-START\n", "").replace("# EVOLVE-BLOCK-END\n", "")
    (answer,) = read(f"```python\n{text}```", parent=parent)
    assert answer.failure is None or "must define" not in answer.failure.detail


def test_a_program_with_the_entry_point_alone_is_told_what_to_define(read: Read) -> None:
    (answer,) = read("```python\ndef solve():\n    return 3\n```", parent=SEED)
    assert answer.failure is not None
    assert answer.failure.reason == "protected_region_changed"
    assert "the block must define inner" in answer.failure.detail
