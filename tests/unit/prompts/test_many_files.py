"""Answers with several files: omitted files stay, and protected regions hold in all of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from speciate.domain.candidate import Failure, FailureKind, Individual
from speciate.domain.files import files_of, text_of
from speciate.domain.policy import Policy, PolicyRole
from speciate.domain.problem import Problem
from speciate.domain.rollout import Prompt
from speciate.policies.program_mutator import ProgramMutator
from speciate.ports.policy import SampleRequest
from speciate.prompts.failures import cause_of
from speciate.prompts.instructions import system_values
from speciate.prompts.parse import Answer, parse_completion
from speciate.prompts.python_source import shape_key

SEED = {
    "candidate.py": "import geometry\n\n\ndef solve(x):\n    return geometry.area(x)\n",
    "geometry.py": "def area(x):\n    return x\n",
}
MARKED = {
    "candidate.py": "import geometry\n# EVOLVE-BLOCK-START\nscale = 1\n# EVOLVE-BLOCK-END\n\n\ndef solve(x):\n"
    "    return geometry.area(x) * scale\n",
    "geometry.py": "# EVOLVE-BLOCK-START\ndef area(x):\n    return x\n# EVOLVE-BLOCK-END\n",
    "fixed.py": "pi = 3\n",
}
NEW = "def area(x):\n    return x * x\n"

Read = Callable[..., list[Answer]]


@pytest.fixture
def made(problem: Callable[..., Problem]) -> Callable[..., Problem]:
    def make(files: dict[str, str] = SEED, **changes: Any) -> Problem:
        cases = {"kind": "cases", "evaluator": "", "cases": [{"input": [1], "expected": 1}]}
        one = {"objectives": [{"name": "right"}], "targets": [{"name": "all", "rule": "right >= 1", "unlock": True}]}
        return problem(**{**cases, **one, "many_files": True, "seed_program": text_of(files), **changes})

    return make


@pytest.fixture
def read(made: Callable[..., Problem]) -> Read:
    def parse(text: str, files: dict[str, str] = SEED, *, answers: int = 1, **changes: Any) -> list[Answer]:
        policy = Policy(slug="p", kind="scripted", answers_per_rollout=answers)
        return parse_completion(text, problem=made(files, **changes), policy=policy, parent=None)

    return parse


def files(answer: Answer) -> dict[str, str]:
    assert answer.failure is None, answer.failure
    return files_of(answer.program)


def reason(answers: list[Answer]) -> str:
    (answer,) = answers
    assert answer.failure is not None, answer.program
    return answer.failure.reason


@pytest.mark.parametrize(
    "text",
    [
        f"So:\n```\n# === file: geometry.py ===\n{NEW}```\nDone.",
        f"```python\n# === file: geometry.py ===\n{NEW}```",
        f"# === file: geometry.py ===\n\n```python\n{NEW}```\n",
        f"# === file: geometry.py ===\n{NEW}",
        f"**geometry.py**\n```python\n{NEW}```",
        f"```python:geometry.py\n{NEW}```",
        f"```geometry.py\n{NEW}```",
        f"```python\n{NEW}```",
        f"### 1. `geometry.py`: (new)\n\n```python\n{NEW}```",
        f"**geometry.py**\n```python\n# === file: geometry.py ===\n{NEW}```",
        "```\n# === file: geometry.py ===\nx = 1\n```\nBetter:\n```\n# === file: geometry.py ===\n" + NEW + "```\n",
        f"```sh\nls\n```\n# === file: geometry.py ===\n```\n{NEW}```\n",
        json.dumps({"files": {"geometry.py": NEW}}),
        "```json\n" + json.dumps({"files": [{"path": "geometry.py", "content": NEW}]}) + "\n```",
    ],
)
def test_omitted_files_stay(read: Read, text: str) -> None:
    (answer,) = read(text)
    assert files(answer) == SEED | {"geometry.py": NEW}


def test_a_file_may_be_added_and_several_blocks_are_one_answer(read: Read) -> None:
    main = "import extra\n\n\ndef solve(x):\n    return extra.y\n"
    text = f"# === file: candidate.py ===\n```python\n{main}```\nand\n# === file: extra.py ===\n```python\ny = 1\n```\n"
    (answer,) = read(text)
    assert files(answer) == SEED | {"candidate.py": main, "extra.py": "y = 1\n"}


def test_text_without_a_heading_is_the_main_file(read: Read) -> None:
    main = "```python\ndef solve(x):\n    return 7\n```\n"
    (answer,) = read(main)
    assert files(answer) == SEED | {"candidate.py": "def solve(x):\n    return 7\n"}
    (answer,) = read(f"```python\n# geometry.py\n{NEW}```\n")  # unless its first comment names another
    assert files(answer) == SEED | {"geometry.py": f"# geometry.py\n{NEW}"}
    (answer,) = read(f"{main}```python\n# === file: geometry.py ===\n{NEW}```\n")  # also beside others
    assert files(answer) == {"candidate.py": "def solve(x):\n    return 7\n", "geometry.py": NEW}
    (answer,) = read(f"```python\ndef helper():\n    return 7\n```\n```python\n# === file: geometry.py ===\n{NEW}```\n")
    assert answer.failure is not None
    assert answer.failure.detail == "1 block without a heading: put # === file: NAME === above each"


def test_the_main_file_is_chosen_among_blocks_and_files_may_quote_edits(read: Read) -> None:
    main = "def solve(x):\n    return math.floor(x)\n"
    (answer,) = read(f"```python\nimport math\n```\n```python\n{main}```\n```python\nprint(solve(3))\n```")
    assert files(answer)["candidate.py"] == f"import math\n\n{main}"
    quoting = f'HELP = """\n{edit("a", "b")}"""\n{NEW}'
    (answer,) = read(f"```\n# === file: geometry.py ===\n{quoting}```")
    assert files(answer) == SEED | {"geometry.py": quoting}


def test_several_answers(read: Read) -> None:
    one = "```\n# === file: geometry.py ===\ny = {}\n```\n"
    found = read(one.format(1) + "---\n" + one.format(2) + "---\n" + one.format(1), answers=3)
    assert [files(answer)["geometry.py"] for answer in found[:2]] == ["y = 1\n", "y = 2\n"]
    assert reason(found[2:]) == "duplicate_in_rollout"
    unseparated = read(one.format(1) + one.format(2), answers=2)
    assert [files(answer)["geometry.py"] for answer in unseparated] == ["y = 1\n", "y = 2\n"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I would rather not.", "no_code_block"),
        ("```\n# === file: ../x.py ===\ny = 1\n```", "files_malformed"),
        ("```\n# === file: table.json ===\n{}\n```", "files_malformed"),
        ("```\ny = 0\n# === file: geometry.py ===\ny = 1\n```", "files_malformed"),
        ("```\n# === file: geometry.py ===\ndef area(:\n```", "syntax_error"),
        ("```\n" + "".join(f"# === file: f{i}.py ===\n" for i in range(63)) + "```", "files_malformed"),
    ],
)
def test_unusable_answers_have_a_reason(read: Read, text: str, expected: str) -> None:
    assert reason(read(text)) == expected


def test_a_syntax_error_names_file_and_line(read: Read) -> None:
    (answer,) = read("```\n# === file: geometry.py ===\nx = 1\ndef area(:\n```")
    assert answer.failure is not None
    assert answer.failure.detail.startswith("geometry.py, line 2: ")


def edit(search: str, replace: str) -> str:
    return f"<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n"


TWICE = {"candidate.py": "import other\nx = 1\n", "other.py": "x = 1\n"}


def test_a_diff_names_the_file(read: Read) -> None:
    (answer,) = read("# === file: other.py ===\n" + edit("x = 1", "x = 2"), TWICE, entry_point="x")
    assert files(answer) == TWICE | {"other.py": "x = 2\n"}
    both = (
        "# === file: other.py ===\n"
        + edit("x = 1", "x = 2")
        + "# === file: candidate.py ===\n"
        + edit("x = 1", "y = 3")
    )
    (answer,) = read(both, TWICE)
    assert files(answer) == {"candidate.py": "import other\ny = 3\n", "other.py": "x = 2\n"}


def test_a_diff_without_a_name_matches_one_place_in_all_files(read: Read) -> None:
    assert reason(read(edit("x = 1", "x = 2"), TWICE)) == "diff_ambiguous"
    (answer,) = read(edit("import other", "import other as o"), TWICE)
    assert files(answer)["candidate.py"] == "import other as o\nx = 1\n"
    named = "# === file: other.py ===\n" + edit("x = 1", "x = 2") + "---\n" + edit("x = 1", "x = 3")
    second = read(named, TWICE, answers=2)[1:]
    assert reason(second) == "diff_ambiguous"  # a name applies within its answer


def test_a_diff_adds_a_file_and_removes_none(read: Read) -> None:
    (answer,) = read("# === file: new.py ===\n" + edit("", "y = 2"))
    assert files(answer) == SEED | {"new.py": "y = 2\n"}
    assert reason(read("# === file: nowhere.py ===\n" + edit("x", "y"))) == "diff_search_not_found"
    removed = edit("# === file: geometry.py ===", "# gone")
    assert files(read(removed)[0])["geometry.py"] == SEED["geometry.py"]
    assert reason(read(edit("# === file: candidate.py ===", "# gone"))) == "files_malformed"


@pytest.mark.parametrize(
    "text",
    [
        "```\n# === file: fixed.py ===\npi = 4\n```",
        "```\n# === file: new.py ===\npi = 4\n```",
        "# === file: candidate.py ===\n" + edit("    return geometry.area(x) * scale", "    return 1"),
        edit("pi = 3", "pi = 4"),
        edit("# === file: fixed.py ===", "# === file: broken.py ==="),
    ],
)
def test_text_outside_of_regions_is_protected(read: Read, text: str) -> None:
    assert reason(read(text, MARKED)) == "protected_region_changed"


def test_regions_of_several_files_may_change(read: Read) -> None:
    geometry = MARKED["geometry.py"].replace("return x", "return x * x")
    (answer,) = read(f"```\n# === file: geometry.py ===\n{geometry}```", MARKED)
    assert files(answer) == MARKED | {"geometry.py": geometry}
    (answer,) = read(edit("scale = 1", "scale = 2"), MARKED)
    assert files(answer)["candidate.py"] == MARKED["candidate.py"].replace("scale = 1", "scale = 2")
    # Protected text of that file and another one is restored.
    changed = f'# === file: fixed.py ===\npi = 4\n# === file: geometry.py ===\n"""Other."""\n{geometry}'
    (answer,) = read(f"```\n{changed}```", MARKED)
    assert files(answer) == MARKED | {"geometry.py": geometry}
    # Without markers, whose places are certain.
    (answer,) = read(f"```\n# === file: geometry.py ===\n{NEW}```", MARKED)
    assert files(answer)["geometry.py"] == f"# EVOLVE-BLOCK-START\n{NEW}# EVOLVE-BLOCK-END\n"


def test_protected_text_is_compared_with_the_seed_program(made: Callable[..., Problem]) -> None:
    """A child must have the seed's protected lines even if its parent lost them."""
    problem = made(MARKED)
    parent = text_of(MARKED | {"fixed.py": "pi = 4\n"})
    answers = parse_completion(
        edit("scale = 1", "scale = 2"), problem=problem, policy=Policy(slug="p", kind="scripted"), parent=parent
    )
    assert reason(answers) == "protected_region_changed"


PIECES = [
    "# === file: candidate.py ===\n", "# === file: geometry.py ===\n", "# === file: ../x ===\n", "```\n", "```python\n",
    "<<<<<<< SEARCH\n", "=======\n", ">>>>>>> REPLACE\n", "x = 1\n", "\x00", "# EVOLVE-BLOCK-START\n", "---\n",
    "# \\=== file: a.py ===\n", "pi = 3\n", "\ud800", "</think>", "    return x\n", "# EVOLVE-BLOCK-END\n",
]  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join), st.sampled_from([SEED, MARKED]), st.integers(1, 3))
def test_any_text_is_parsed(read: Read, text: str, start: dict[str, str], wanted: int) -> None:
    answers = read(text, start, answers=wanted)
    assert 1 <= len(answers) <= wanted
    for answer in answers:
        if answer.failure is None:
            found = files(answer)
            assert set(found) >= set(start)
            assert start is SEED or (set(found) == set(MARKED) and found["fixed.py"] == MARKED["fixed.py"])


def test_other_languages_are_not_parsed(read: Read) -> None:
    language = {"name": "C++", "file": "main.cpp", "build": ["make"], "run": ["./a.out"]}
    cpp = {"main.cpp": "int main() {}\n", "Makefile": "a.out: main.cpp\n"}
    changes = {"language": language, "cases": [{"input": ["1"], "expected": "1"}]}
    (answer,) = read("```\n# === file: lib/x.hpp ===\nint x(;\n```", cpp, **changes)
    assert files(answer) == cpp | {"lib/x.hpp": "int x(;\n"}


def test_names_and_contents_of_files_are_part_of_the_shape() -> None:
    one = {"candidate.py": "a = 1\nb = 2\n", "x.py": "c = 3\n"}
    assert shape_key(text_of(one)) == shape_key(text_of({**one, "candidate.py": "a  =  1 # !\nb = 2\n"}))
    assert shape_key(text_of(one)) == shape_key(text_of(dict(reversed(one.items()))))
    assert shape_key(text_of(one)) != shape_key(text_of({"candidate.py": "a = 1\n", "x.py": "b = 2\nc = 3\n"}))
    assert shape_key(text_of(one)) != shape_key(text_of({"candidate.py": one["candidate.py"], "y.py": "c = 3\n"}))


def test_the_mutator_changes_files_of_other_languages(made: Callable[..., Problem]) -> None:
    language = {"name": "C++", "file": "main.cpp", "build": ["make"], "run": ["./a.out"]}
    start = {"main.cpp": "int main() { return 12; }\n", "Makefile": "a.out: main.cpp\n"}
    problem = made(start, language=language, cases=[{"input": ["1"], "expected": "1"}])
    policy = Policy(slug="m", kind="program_mutator", answers_per_rollout=2)
    request = SampleRequest(Prompt("", ""), PolicyRole.MUTATE, 20, 1, (Individual(1, problem.seed_program, (0.0,)),))
    (result,) = ProgramMutator(policy).sample([request])
    answers = [
        parse_completion(completion.text, problem=problem, policy=policy, parent=problem.seed_program)
        for completion in result.completions
    ]
    good = [answer for of_one in answers for answer in of_one if answer.failure is None]
    assert len(good) > 20
    assert all(set(files(answer)) >= set(start) for answer in good)


@pytest.mark.parametrize("seed", range(4))
def test_the_mutator_keeps_a_set_of_files(made: Callable[..., Problem], seed: int) -> None:
    for start in (SEED, MARKED):
        problem, policy = made(start), Policy(slug="m", kind="program_mutator")
        parent = Individual(1, problem.seed_program, (0.0,))
        request = SampleRequest(
            prompt=Prompt("", ""), role=PolicyRole.MUTATE, n=40, seed=seed, parents=(parent,),
            seed_program=problem.seed_program,
        )  # fmt: skip
        (result,) = ProgramMutator(policy).sample([request])
        children = [
            parse_completion(completion.text, problem=problem, policy=policy, parent=parent.program)[0]
            for completion in result.completions
        ]
        good = [files(child) for child in children if child.failure is None]
        assert len(good) > 30
        assert len({text_of(child) for child in good}) > 5
        assert all(set(child) == set(start) for child in good)


def test_programs_with_blocks_take_no_new_files(made: Callable[..., Problem]) -> None:
    for files, added in ((SEED, True), (MARKED, False)):
        for edit_format in ("diff", "rewrite"):
            policy = Policy.model_validate({"slug": "p", "kind": "scripted", "edit_format": edit_format})
            asked = "".join(map(str, system_values(made(files), policy, with_base=True).values()))
            assert ("adds a new file" in asked or "or add" in asked) == added


def test_a_failure_names_the_file_of_its_line(made: Callable[..., Problem]) -> None:
    detail = 'Traceback (most recent call last):\n  File "geometry.py", line 2, in area\n    return x\nValueError: x'
    cause = cause_of(Failure(FailureKind.CRASHED, "raised", detail), made())
    assert cause.where == "line 2 of geometry.py"
