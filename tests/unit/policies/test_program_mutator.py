from __future__ import annotations

import ast
import json
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speciate.domain.candidate import Individual
from speciate.domain.errors import PolicyUnavailableError
from speciate.domain.language import Language
from speciate.domain.policy import Policy, PolicyRole
from speciate.domain.problem import Problem
from speciate.domain.rollout import Prompt
from speciate.policies import build_client
from speciate.policies.mutators.reading import read_source
from speciate.ports.policy import SampleRequest
from speciate.prompts.evolve_blocks import find_blocks, outside_of
from speciate.prompts.parse import parse_completion

PROGRAM = '''"""Fixed: 1 and 2."""
import math  # 3.5

LIMIT = 10


# EVOLVE-BLOCK-START
SCALE = 0.75  # ünïcode → stays


def inner(points, k=3):
    """Docstring with 5."""
    total = 0.0
    for i in range(4):
        if points[i] > -1.5 and total <= 2:
            total += points[i] ** 2 * SCALE
        else:
            total = total - (
                k  # comment
                + 1
            )
    label = f"{total:.3f} {7}"
    return max(total, 0.5), label
# EVOLVE-BLOCK-END


def solve(points):
    return inner(points, 2)
'''


ALONE = {"operators": 0, "expressions": 0, "statements": 0, "elements": 0, "crossover": 0, "second_edit": 0}
"""Options for changes of constants alone."""


def member(program: str) -> Individual:
    return Individual(1, program, (1.0,))


def children(
    *parents: str, n: int = 1, seeds: int = 1, seed_program: str = "", problem: Problem | None = None, **options: Any
) -> list[str]:
    """Return the programs of completions, parsed as usual; a rejected one fails the test."""
    policy = Policy(slug="m", kind="program_mutator", options=options)
    client = build_client(policy)
    role = PolicyRole.MUTATE if parents else PolicyRole.PROPOSE
    found = []
    for seed in range(seeds):
        request = SampleRequest(Prompt("", ""), role, n, seed, tuple(map(member, parents)), seed_program)
        for completion in client.sample([request])[0].completions:
            assert completion.tokens == 0
            base = parents[0] if parents else seed_program
            (answer,) = parse_completion(completion.text, problem=problem or problem_of(), policy=policy, parent=base)
            assert answer.failure is None, (answer, completion.text)
            found.append(answer.program)
    return found


def problem_of(kind: str = "evaluator") -> Problem:
    return Problem.model_validate(
        {
            "slug": "p",
            "title": "P",
            "kind": kind,
            "objectives": [{"name": "a"}],
            "targets": [{"name": "t", "rule": "a >= 1", "unlock": True}],
            "evaluator": "x",
        }
    )


def test_children_are_programs_that_differ_inside_the_blocks_only() -> None:
    found = children(PROGRAM, n=4, seeds=200)
    outside = outside_of(PROGRAM, find_blocks(PROGRAM))
    for child in found:
        ast.parse(child)
        assert outside_of(child, find_blocks(child)) == outside
    assert sum(child == PROGRAM for child in found) <= 8
    assert len(set(found)) > 400


def test_programs_in_other_languages_change_inside_the_blocks_only() -> None:
    block = "// EVOLVE-BLOCK-START\nint f() { return 1; }\n// EVOLVE-BLOCK-END\n"
    program = "int base = 5;\n" + block + "int main() { return f() + 20; }\n"
    cpp = problem_of().model_copy(update={"language": Language(name="C++", file="a.cpp", run=("./a.out",))})
    found = children(program, n=4, seeds=50, problem=cpp)
    assert len(set(found)) > 20


def test_every_operator_occurs() -> None:
    found = "\n".join(set(children(PROGRAM, n=4, seeds=300)))
    counts = Counter(line.strip() for line in found.splitlines())
    for sign in ("total -= points", "> -1.5 or", "total < 2", "SCALE = 0.7", "pass", "abs("):
        assert any(sign in line for line in counts), sign


def test_equal_seeds_give_equal_children_and_others_do_not() -> None:
    assert children(PROGRAM, PROGRAM, n=3, seeds=5) == children(PROGRAM, PROGRAM, n=3, seeds=5)
    assert len(set(children(PROGRAM, n=1, seeds=20))) > 10


def test_an_int_stays_an_int_and_a_float_a_float() -> None:
    program = "A = 3\nB = 0.5\nC = -4\nD = 1e-9\n"
    for child in children(program, n=4, seeds=100, operators=0, expressions=0, statements=0, elements=0):
        kinds = [type(ast.literal_eval(node.value)) for node in ast.parse(child).body if isinstance(node, ast.Assign)]
        assert kinds == [int, float, int, float]


def test_an_index_is_left_alone_more_often_and_never_negative() -> None:
    program = "def f(x):\n    return x[3] + 3\n"
    indices = []
    for child in children(program, n=4, seeds=200, operators=0, expressions=0, statements=0, elements=0, second_edit=0):
        index = next(node.slice for node in ast.walk(ast.parse(child)) if isinstance(node, ast.Subscript))
        indices.append(ast.literal_eval(index))
    assert min(indices) >= 0
    assert 0 < sum(index != 3 for index in indices) < len(indices) / 2


def test_steps_span_several_scales_and_sometimes_move_together() -> None:
    values = [0.1 * i + 0.05 for i in range(20)]
    program = f"POINTS = {values}\n"
    sizes, moved = [], []
    for child in children(program, n=4, seeds=200, expressions=0, statements=0, elements=0, second_edit=0):
        new = ast.literal_eval(child.split("=", 1)[1].strip())
        steps = [abs(a - b) for a, b in zip(new, values, strict=True) if a != b]
        moved.append(len(steps))
        sizes += steps
    assert min(sizes) < 1e-4
    assert max(sizes) > 0.1
    share = Counter(moved)
    assert share[1] / len(moved) > 0.3
    assert share[20] > 0
    assert sum(share[i] for i in range(2, 20)) / len(moved) > 0.2


def test_values_stay_finite() -> None:
    for child in children("A = 1e299\nB = 9" + "9" * 14 + "\n", n=4, seeds=100, sigma_high=10.0):
        assert all(math.isfinite(node.value) for node in ast.walk(ast.parse(child)) if isinstance(node, ast.Constant))


def test_crossover_mixes_the_constants_of_two_parents() -> None:
    one = "P = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]\n"
    two = one.replace("1.0", "2.0")
    found = children(one, two, n=4, seeds=100, crossover=1.0, second_edit=0)
    mixed = [child for child in found if {"1.0", "2.0"} <= set(child.strip("P= []\n").split(", "))]
    blended = [
        child for child in found if len(set(child.strip("P= []\n").split(", "))) == 1 and child not in (one, two)
    ]
    assert len(mixed) > 50
    assert len(blended) > 20


def test_crossover_takes_whole_functions_over() -> None:
    one = "def f(x):\n    return x\n\n\ndef g(x):\n    return f(x)\n"
    two = one.replace("return x\n", "y = x * x\n    return y\n")
    assert two in children(one, two, n=4, seeds=50, crossover=1.0, second_edit=0)


def test_a_sorting_network_can_grow_and_shrink() -> None:
    program = "NETWORK = [(0, 1), (2, 3), (0, 2), (1, 3)]\n"
    found = children(program, n=4, seeds=300, expressions=0, statements=0)
    lengths = Counter(len(ast.literal_eval(child.split("=", 1)[1].strip())) for child in found)
    assert lengths[3] > 10
    assert lengths[5] > 10
    assert lengths[4] > 200


def test_a_proposal_changes_the_seed_program_more_than_a_mutation() -> None:
    def changed(found: list[str]) -> float:
        original = PROGRAM.splitlines()
        return float(np.mean([sum(line not in original for line in child.splitlines()) for child in found]))

    assert changed(children(n=4, seeds=50, seed_program=PROGRAM)) > 1.5 * changed(children(PROGRAM, n=4, seeds=50))


def test_a_missing_seed_program_is_reported() -> None:
    with pytest.raises(PolicyUnavailableError, match="no seed program"):
        children(n=1)


@pytest.mark.parametrize(
    "document",
    [
        '{"route": "RRDDLU", "steps": [1, 2.5, -3]}',
        "RRDDLLUU",
        "0.1 0.2 0.3\n0.4 0.5 0.6",
        "[[1, 2], [3, 4]]",
        '"</answer> 12"',
    ],
)
def test_documents_change_and_keep_their_format(document: str) -> None:
    found = children(document, n=4, seeds=50, problem=problem_of("data"))
    assert len(set(found)) > 10
    assert sum(child == document for child in found) < 20
    if document[0] in '{["':
        for child in found:
            json.loads(child)


def test_m_answers_in_one_completion() -> None:
    policy = Policy(slug="m", kind="program_mutator", answers_per_rollout=3)
    request = SampleRequest(Prompt("", ""), PolicyRole.MUTATE, 2, 1, (member(PROGRAM),))
    for completion in build_client(policy).sample([request])[0].completions:
        answers = parse_completion(completion.text, problem=problem_of(), policy=policy, parent=PROGRAM)
        assert len(answers) == 3
        assert {answer.failure.reason for answer in answers if answer.failure} <= {"duplicate_in_rollout"}


@pytest.mark.parametrize(
    "program",
    [
        "x = y if z else-1\n",
        "def f():\n    return-1.5\n",
        "x = 0xFF + 1_000 + 1e5 + 3j + True\n",
        "lambda: 0\n",
        "x: int = 3; y = 4\n",
        "if a: b = 1\nelse: b = 2\n",
        "try:\n    x = 1\nexcept ValueError:\n    y = 2\nfinally:\n    z = 3\n",
        "match x:\n    case 1:\n        y = 2\n    case _:\n        y = 3\n",
        "with open(f) as g:\n    a = 1\n",
        "async def f():\n    async for x in y:\n        await z(1)\n",
        "class A:\n    x = 1\n\n    def f(self, a=1, *, b=2):\n        self.x = a + b\n",
        "x = [i * 2 for i in range(3) if i > 1]\nz = {k: 1 for k in x}\n",
        "s = f'{1 + 2}' 'é' + 'ü'\nt = 4 if s else 5\n",
        "a = b = 1\ndel a\nx[1:2, ...] = 3\n",
        "x = 1\r\ny = 2\r\n",
        "def f():\n\tx = 1\n\tif x:\n\t\treturn 2\n",
        "x = 1",
        "",
        "# EVOLVE-BLOCK-START\n# EVOLVE-BLOCK-END\n",
        "# EVOLVE-BLOCK-START\nx = 1\n",
        "x = (\n",
        "x = " + "-" * 50_000 + "1\n",
        "x = " + "+".join(["1"] * 3000) + "\n",
        "x = '\ud800' + 1\n",
    ],
)
def test_unusual_programs_are_handled(program: str) -> None:
    client = build_client(Policy(slug="m", kind="program_mutator"))
    for seed in range(10):
        request = SampleRequest(Prompt("", ""), PolicyRole.MUTATE, 2, seed, (member(program), member(PROGRAM)), PROGRAM)
        if program.strip():
            assert len(client.sample([request])[0].completions) == 2


@settings(max_examples=100)
@given(st.text(max_size=80), st.integers(0, 2**63 - 1))
def test_arbitrary_text_is_handled(text: str, seed: int) -> None:
    client = build_client(Policy(slug="m", kind="program_mutator"))
    request = SampleRequest(Prompt("", ""), PolicyRole.MUTATE, 2, seed, (member(f"x{text}"), member(text)))
    for completion in client.sample([request])[0].completions:
        completion.text.encode()


def test_places_point_at_their_text() -> None:
    source = read_source(PROGRAM)
    assert [source.cut(number.span) for number in source.numbers] == [
        b"0.75", b"3", b"0.0", b"4", b"-1.5", b"2", b"2", b"1", b"0.5",
    ]  # fmt: skip
    assert [number.value for number in source.numbers if number.structural] == [4]
    assert {source.cut(operator.span) for operator in source.operators} >= {
        b"and",
        b"<=",
        b">",
        b"+=",
        b"**",
        b"*",
        b"-",
    }
    assert all(source.cut(statement.span).endswith(b"\n") for statement in source.statements)
    assert set(source.definitions) == {"inner"}


CLIMBED = "# EVOLVE-BLOCK-START\nX = [{}]\n# EVOLVE-BLOCK-END\n\n\ndef solve():\n    return X\n"


def test_hill_climbing_sixty_constants_makes_progress() -> None:
    """Greedy search from a random start reduces the distance to a tenth in 2,500 evaluations."""
    rng = np.random.default_rng(0)
    goal = rng.random(60)
    best = CLIMBED.format(", ".join(f"{value:.6f}" for value in rng.random(60)))
    client = build_client(Policy(slug="m", kind="program_mutator"))

    def loss(program: str) -> float:
        try:
            values = ast.literal_eval(program.split("X = ")[1].split("\n#")[0])
            return float(np.sum((np.array(values, dtype=float) - goal) ** 2)) if len(values) == 60 else math.inf
        except (ValueError, SyntaxError, TypeError, IndexError):
            return math.inf

    start = lowest = loss(best)
    for seed in range(2500 // 4):
        request = SampleRequest(Prompt("", ""), PolicyRole.MUTATE, 4, seed, (member(best),))
        for completion in client.sample([request])[0].completions:
            child = completion.text.split("\n", 1)[1].rsplit("```", 1)[0]
            if (value := loss(child)) < lowest:
                best, lowest = child, value
    assert lowest < start / 10
