from __future__ import annotations

from collections.abc import Callable

import pytest

from speciate.domain.policy import Policy
from speciate.domain.problem import Problem
from speciate.prompts.parse import Answer, parse_completion

PARENT = """import math

# EVOLVE-BLOCK-START
def inner(x):
    if x > 0:
        y = x * 2
        return y
    return 0
# EVOLVE-BLOCK-END


def solve(x):
    return inner(x)
"""


TABS = "def f(x):\n\tif x:\n\t\treturn 3\n\treturn 4\n"


def edit(search: str, replace: str) -> str:
    return f"<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE"


@pytest.fixture
def read(problem: Callable[..., Problem], policy: Callable[..., Policy]) -> Callable[..., list[Answer]]:
    def parse(text: str, parent: str | None = PARENT, answers: int = 1) -> list[Answer]:
        asked = policy(answers, edit_format="diff")
        return parse_completion(text, problem=problem(), policy=asked, parent=parent)

    return parse


Read = Callable[..., list[Answer]]


@pytest.mark.parametrize(
    ("search", "replace"),
    [
        ("        y = x * 2", "        y = x * 3"),
        ("        y = x * 2   \n        return y ", "        y = x * 3\n        return y"),
        ("y = x * 2", "y = x * 3"),
        ("    y = x * 2\n    return y", "    y = x * 3\n    return y"),
        ("\n        y = x * 2\n\n", "\n        y = x * 3\n"),
        ("            y = x * 2\n            return y", "            y = x * 3\n            return y"),
        ("y = x * 2\n        return y", "y = x * 3\n        return y"),
        ("y = x * 2\nreturn y", "        y = x * 3\n        return y"),
        ("  if x > 0:\n    y = x * 2", "  if x > 0:\n    y = x * 3"),
        ("\tif x > 0:\n\t\ty = x * 2", "\tif x > 0:\n\t\ty = x * 3"),
        ("\t\ty = x * 2", "\t\ty = x * 3"),
        ("    if x > 0:\n\n        y = x * 2", "    if x > 0:\n        y = x * 3"),
        ("```python\n        y = x * 2\n```", "```python\n        y = x * 3\n```"),
        ("```python\n        y = x * 2", "        y = x * 3\n```"),
        ("\u00a0" * 8 + "y = x *\u200b 2", "\u00a0" * 8 + "y = x * 3"),
        ("        y = x * 2", "```python\n        y = x * 3\n```"),
    ],
)
def test_a_diff_applies_despite_other_blanks_indentation_or_fences(read: Read, search: str, replace: str) -> None:
    assert read(edit(search, replace)) == [Answer(PARENT.replace("x * 2", "x * 3"))]


@pytest.mark.parametrize(
    ("search", "replace", "old", "new"),
    [
        ("    if x:\n        return 3", "    if x:\n        return 7", "return 3", "return 7"),
        ("        return 3", "        x += 1\n        if x:\n            return 3", "", "x += 1\n\t\tif x:\n\t\t\t"),
        ("def f(x):", "def f(x):\n    x += 1", "def f(x):", "def f(x):\n\tx += 1"),
        ("\treturn 4", "\treturn 5", "return 4", "return 5"),
    ],
)
def test_blanks_become_the_tabs_of_the_program(read: Read, search: str, replace: str, old: str, new: str) -> None:
    expected = TABS.replace(old, new) if old else TABS.replace("return 3", f"{new}return 3")
    assert read(edit(search, replace), TABS) == [Answer(expected)]


def test_fences_that_belong_to_the_program_are_edited_with_it(read: Read) -> None:
    program = 'def f():\n    """So:\n\n```\nf()\n```\n    """\n'
    assert read(edit("```\nf()\n```", "~~~\nf()\n~~~"), program) == [Answer(program.replace("```", "~~~"))]


QUOTING = f"HELP = '''\n{edit('old', 'new')}\n'''\n\n\ndef inner(x):\n    return 3\n"


@pytest.mark.parametrize("text", [f"```python\n{QUOTING}```", QUOTING, f"First: {edit('x', 'y')}\n```py\n{QUOTING}```"])
def test_a_whole_program_may_quote_edits(read: Read, text: str) -> None:
    (answer,) = read(text)
    assert answer.failure is None
    assert QUOTING in answer.program


def test_several_edits_apply_in_order_within_prose_and_fences(read: Read) -> None:
    text = f"First\n```\n{edit('    return 0', '    return 1')}\n```\nthen\n{edit('    return 1', '    return 2')}\n"
    assert read(text) == [Answer(PARENT.replace("return 0", "return 2"))]


def test_lines_can_be_deleted(read: Read) -> None:
    text = "<<<<<<< SEARCH\n    if x > 0:\n        y = x * 2\n        return y\n=======\n>>>>>>> REPLACE"
    assert read(text) == [Answer(PARENT.replace("    if x > 0:\n        y = x * 2\n        return y\n", ""))]


def test_the_replacement_keeps_its_inner_indentation(read: Read) -> None:
    text = edit("y = x * 2\nreturn y", "while x:\n    x -= 1\nreturn x")
    (answer,) = read(text)
    assert "        while x:\n            x -= 1\n        return x\n" in answer.program


@pytest.mark.parametrize(
    ("text", "parent", "reason", "says"),
    [
        (edit("y = x * 5", "y = 1"), PARENT, "diff_search_not_found", "line 3 of the block: y = x * 2"),
        (edit("nothing like it whatsoever", "y = 1"), PARENT, "diff_search_not_found", "no line of the program"),
        (
            edit("    if x > 0:\n        z = 1", "y = 1"),
            PARENT,
            "diff_search_not_found",
            "its line 2 is: z = 1\nThe true line is: y = x * 2",
        ),
        (
            edit("x * 2", "x * 3"),
            PARENT,
            "diff_search_not_found",
            "of line 3 of the block: quote the whole line: y = x * 2",
        ),
        (edit("    if x > 0:\n    ...\n    return 0", "y = 1"), PARENT, "diff_search_not_found", "`...`"),
        (
            edit("    if x > 0:\n      y = x * 2\n         return y", "y = 1"),
            PARENT,
            "diff_search_not_found",
            "line 2 of SEARCH: '      ' where line 3 of the block has '        '",
        ),
        (
            edit("def f(x):\n    if x:\n\t return 3", "y = 1"),
            TABS,
            "diff_search_not_found",
            "'    ' where line 2 has '\\t'",
        ),
        (edit("  ", "y = 1"), PARENT, "diff_search_not_found", "SEARCH is empty"),
        (edit("a = 1", "a = 2"), "a = 1\nb = 1\na = 1\n", "diff_ambiguous", "line 1 and line 3"),
        (edit("    return 0", "    return 0"), PARENT, "empty_diff", "as it was"),
        ("<<<<<<< SEARCH\n    return 0\n=======\n    return 1", PARENT, "diff_malformed", "block 1"),
        ("<<<<<<< SEARCH\n    return 0\n>>>>>>> REPLACE", PARENT, "diff_malformed", "block 1"),
        (edit("x", "y"), None, "diff_malformed", "no parent"),
        (edit("import math", "import cmath"), PARENT, "protected_region_changed", "import math"),
        (
            edit("    return inner(x)", "    return 0\n# EVOLVE-BLOCK-END"),
            PARENT,
            "protected_region_changed",
            "inner(x)",
        ),
        (edit("    return 0", "    return ("), PARENT, "syntax_error", "line"),
        ("I would rather not.", PARENT, "no_code_block", ""),
    ],
)
def test_an_inapplicable_diff_has_a_reason(read: Read, text: str, parent: str | None, reason: str, says: str) -> None:
    (answer,) = read(text, parent)
    assert answer.failure is not None
    assert answer.failure.reason == reason
    assert says in answer.failure.detail


def test_of_two_places_the_editable_one_is_changed(read: Read) -> None:
    parent = "a = 1\n# EVOLVE-BLOCK-START\na = 1\n# EVOLVE-BLOCK-END\n"
    assert read(edit("a = 1", "a = 2"), parent) == [Answer("a = 1\n# EVOLVE-BLOCK-START\na = 2\n# EVOLVE-BLOCK-END\n")]


def test_a_marker_removed_by_a_diff_is_restored(read: Read) -> None:
    expected = PARENT.replace("    return 0\n", "    return 0\n# note\n")
    assert read(edit("# EVOLVE-BLOCK-END", "# note")) == [Answer(expected)]


def test_a_whole_program_is_accepted_in_place_of_a_diff(read: Read) -> None:
    child = PARENT.replace("x * 2", "x * 3")
    assert read(f"```python\n{child}```") == [Answer(child)]


def test_m_diffs_each_change_the_parent(read: Read) -> None:
    text = f"{edit('    return 0', '    return 1')}\n---\n{edit('    return 0', '    return 2')}"
    assert [answer.program for answer in read(text, answers=2)] == [
        PARENT.replace("return 0", "return 1"),
        PARENT.replace("return 0", "return 2"),
    ]


def test_a_separator_between_edits_of_one_answer_is_prose(read: Read) -> None:
    first, second = edit("    return 0", "    return 1"), edit("        y = x * 2", "        y = x * 3")
    text = f"First:\n{first}\n\n---\n\nSecond:\n{second}"
    assert read(text) == [Answer(PARENT.replace("return 0", "return 1").replace("x * 2", "x * 3"))]


def test_a_separator_inside_an_edit_belongs_to_the_program(read: Read) -> None:
    assert read(edit("    return 0", '    """\n---\n    """'), answers=2)[0].program.count("---") == 1


def test_an_underlined_title_in_search_is_no_divider(read: Read) -> None:
    parent = 'def solve(x):\n    """Title\n    =====\n    """\n    return x\n'
    search = '    """Title\n    =====\n    """\n    return x'
    (answer,) = read(edit(search, "    return x + 1"), parent)
    assert answer == Answer("def solve(x):\n    return x + 1\n")
    (short,) = read(edit("    return x", "    return x + 1").replace("=======", "====="), parent)
    assert short == Answer(parent.replace("return x", "return x + 1"))


def test_edits_of_a_second_block_of_reasoning_are_not_applied(read: Read) -> None:
    draft, final = edit("    return 0", "    return 2"), edit("    return 0", "    return 1")
    (answer,) = read(f"<think>plan</think>\n<think>\n{draft}\nno, wrong\n</think>\n{final}")
    assert answer.program == PARENT.replace("return 0", "return 1")
