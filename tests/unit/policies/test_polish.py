"""The policy kind ``polish`` improves numbers step by step from the run's record alone."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speciate.domain.candidate import Individual
from speciate.domain.errors import PolicyUnavailableError
from speciate.domain.policy import Policy, PolicyRole
from speciate.domain.problem import Problem, ProblemKind
from speciate.domain.rollout import Prompt
from speciate.policies import build_client
from speciate.policies.mutators.reading import read_source
from speciate.policies.polish import Polisher
from speciate.ports.policy import SampleRequest
from speciate.ports.work import RunContext
from speciate.prompts.evolve_blocks import find_blocks, outside_of
from speciate.prompts.parse import parse_completion
from speciate.runs.executor import LocalQueue, WorkExecutor, drain
from tests.support.memory_store import MemoryRun, MemoryWorkStore
from tests.support.runs import ToyEvaluator, ticking_clock, toy_problem, toy_spec

POLICY = Policy(slug="polish", kind="polish")
PROBLEM = toy_problem()
DATA = PROBLEM.model_copy(update={"kind": ProblemKind.DATA})
FIXED = "HALF = 0.5\n# EVOLVE-BLOCK-START\nA = 2.0  # 7\nB = [3.5, -4, 0.0]\n# EVOLVE-BLOCK-END\nC = 9\n"


def answers(
    parent: str,
    relatives: Sequence[Relative] = (),
    *,
    n: int = 1,
    seed: int = 0,
    earlier: int = 0,
    number: int = 1,
    problem: Problem = PROBLEM,
) -> list[str]:
    """Return the programs that answer a request to change a candidate, read as a run reads them."""
    member = Individual(number, parent, (1.0, 1.0))
    request = SampleRequest(
        Prompt("", ""), PolicyRole.MUTATE, n, seed, (member,), relatives=lambda: relatives, earlier=earlier
    )
    (result,) = Polisher(POLICY).sample([request])
    return [
        answer.program
        for completion in result.completions
        for answer in parse_completion(completion.text, problem=problem, policy=POLICY, parent=parent)
    ]


def numbers(program: str) -> list[float]:
    return [number.value for number in read_source(program).numbers]


Relative = tuple[Individual, float]


def relative(number: int, parent: int, program: str, value: float) -> Relative:
    return Individual(number, program, None, parents=(parent,)), value


def searched(start: str, value: Callable[[list[float]], float], evaluations: int) -> list[Relative]:
    """Change the best program, one request at a time."""
    record = [relative(1, 0, start, value(numbers(start)))]
    while len(record) < evaluations:
        best, _ = max(record, key=lambda each: each[1])
        (child,) = answers(best.program, record, seed=len(record), number=best.number)
        record.append(relative(len(record) + 1, best.number, child, value(numbers(child))))
    return record


def test_a_number_behind_a_minus_of_another_language_is_not_read_without_it() -> None:
    assert numbers("int f(int n) { return n-1; } int a[] = {-1, 2*-2, n - 3};") == [-1, 2, -2, 3]


def test_the_numbers_of_a_smooth_function_are_found() -> None:
    goal = [3.25, -0.02, 40.0, 7]
    record = searched(
        "x = [1.0, 0.1, 10.0, 2]\n",
        lambda at: -sum(((a - b) / max(1.0, abs(b))) ** 2 for a, b in zip(at, goal, strict=True)),
        120,
    )
    assert max(value for _, value in record) > -1e-4
    assert len({each.program for each, _ in record}) == len(record)


def test_a_step_that_improved_grows_and_one_that_did_not_turns_around() -> None:
    start = relative(1, 0, "x = 10.0\n", 1.0)
    for step in (0.5, -0.5):
        child = relative(2, 1, f"x = {10 + step}\n", 2.0)
        (improved,) = answers(child[0].program, [start, child], number=2)
        assert 1.5 < (numbers(improved)[0] - 10 - step) / step < 6
        worse = relative(2, 1, child[0].program, -math.inf)
        (turned,) = answers(start[0].program, [start, worse])
        assert -2 < (numbers(turned)[0] - 10) / step < -0.5
        both_worse = relative(3, 1, f"x = {10 - step}\n", 0.0)
        (smaller,) = answers(start[0].program, [start, worse, both_worse])
        assert abs(numbers(smaller)[0] - 10) < 0.4


def test_numbers_stay_finite_however_much_they_improve() -> None:
    for value in ("9e298", "9" * 14):
        start, child = relative(1, 0, "x = [1.0, 1]\n", 1.0), relative(2, 1, f"x = [1.0, {value}]\n", 2.0)
        found = numbers(answers(child[0].program, [start, child], number=2)[0])
        assert len(found) == 2
        assert max(found) <= 1e299


def test_improvements_of_several_attempts_are_united() -> None:
    start = relative(1, 0, "x, y, z = 1.0, 2.0, 3.0\n", 1.0)
    one = relative(2, 1, "x, y, z = 1.5, 2.0, 3.0\n", 3.0)
    two = relative(3, 1, "x, y, z = 1.0, 2.5, 3.0\n", 2.0)
    worse = relative(4, 1, "x, y, z = 1.0, 2.0, 3.5\n", 0.0)
    children = [answers(one[0].program, [start, one, two, worse], seed=seed, number=2)[0] for seed in range(8)]
    united = [numbers(child) for child in children if numbers(child)[1] != 2.0 and numbers(child)[0] == 1.5]
    assert all(1.2 < y - 1 < 3 and z == 3.0 for _, y, z in united)
    assert len(united) > 2


def test_equal_records_give_equal_answers_and_requests_of_a_batch_different_ones() -> None:
    start = relative(1, 0, FIXED, 1.0)
    assert answers(FIXED, [start], n=3, seed=5) == answers(FIXED, [start], n=3, seed=5)
    # Each request takes the numbers that come after those of the earlier ones, whatever its seed.
    batch = [answers(FIXED, [start], seed=7, earlier=earlier)[0] for earlier in range(4)]
    changed = [
        [i for i, (a, b) in enumerate(pairs) if a != b]
        for pairs in (zip(numbers(FIXED), numbers(child), strict=True) for child in batch)
    ]
    assert sorted(changed) == [[0], [1], [2], [3]]


def test_integers_stay_integers_and_sizes_do_not_become_negative() -> None:
    program = "x = [0] * 3\ny = x[0] + 5\nz = range(0)\n"
    record = searched(program, lambda at: -sum(at), 60)
    assert all(isinstance(number, int) for each, _ in record for number in numbers(each.program))
    assert not any("range(-" in each.program or "x[-" in each.program for each, _ in record)


def test_json_stays_json() -> None:
    program = '{"a": 1.5, "b": [2, -3e-2]}'
    for child in answers(program, n=12, problem=DATA):
        assert json.loads(child).keys() == {"a", "b"}
        assert child != program


def test_a_program_without_numbers_is_edited_otherwise() -> None:
    (child,) = answers("def f(x, y):\n    return x + y\n")
    assert child != "def f(x, y):\n    return x + y\n"


def test_programs_from_scratch_are_the_seed_program_with_all_numbers_changed() -> None:
    request = SampleRequest(Prompt("", ""), PolicyRole.PROPOSE, 4, 1, seed_program=FIXED)
    (result,) = Polisher(POLICY).sample([request])
    children = [parse_completion(c.text, problem=PROBLEM, policy=POLICY, parent=FIXED)[0] for c in result.completions]
    assert len({child.program for child in children}) == 4
    assert all(child.failure is None and numbers(child.program)[0] != 2.0 for child in children)
    with pytest.raises(PolicyUnavailableError, match="no seed program"):
        Polisher(POLICY).sample([SampleRequest(Prompt("", ""), PolicyRole.PROPOSE, 1, 1)])


@given(
    # A step of the least numbers is none: then programs are edited.
    values=st.lists(st.floats(-1e6, 1e6, allow_subnormal=False) | st.integers(-99, 99), min_size=1, max_size=6),
    rewards=st.lists(st.floats(-5, 5) | st.just(-math.inf), min_size=1, max_size=12),
    seed=st.integers(0, 2**31),
)
def test_nothing_but_the_numbers_of_the_blocks_changes(values: list[float], rewards: list[float], seed: int) -> None:
    start = f"A = 1.5\n# EVOLVE-BLOCK-START\nB = {values!r}\n# EVOLVE-BLOCK-END\nC = 3\n"
    record = [relative(1, 0, start, 0.0)]
    for reward in rewards:
        best, _ = max(record, key=lambda each: each[1])
        (child,) = answers(best.program, record, seed=seed, number=best.number)
        record.append(relative(len(record) + 1, best.number, child, reward))
        assert outside_of(child, find_blocks(child)) == outside_of(start, find_blocks(start))
        assert list(map(type, numbers(child))) == list(map(type, numbers(start)))


def test_a_document_of_many_files_keeps_its_files() -> None:
    document = "# === main.py\nimport part\nx = 1.5\n# === part.py\ny = 2.5\n"
    for child in answers(document, n=8):
        assert [line for line in child.splitlines() if line.startswith("#")] == ["# === main.py", "# === part.py"]


def run(lanes: int, **changes: object) -> MemoryRun:
    problem = toy_problem(seed_program="x = 1.0\ny = 9.0\n")
    options = {"scratch": 0.0, "min_elites": 1}
    spec = toy_spec(strategy="vector_evolution", strategy_options=options, lanes=lanes, **changes)
    context = RunContext(uuid4(), problem, POLICY, uuid4(), spec)
    store, signals = MemoryWorkStore(ticking_clock()), LocalQueue()
    store.add(context)
    signals.committed(store.start(context.run_id))
    drain(WorkExecutor(store, signals, ToyEvaluator(), build_client), signals)
    return store.runs[context.run_id]


@pytest.mark.parametrize("lanes", [1, 4])
def test_a_run_repeats_nothing_and_learns_from_its_record(lanes: int) -> None:
    candidates = run(lanes, evaluations=60).candidates
    assert not [c.number for c in candidates.values() if c.duplicate_of is not None]
    assert max(c.evaluation.rewards[0] for c in candidates.values() if c.evaluation.rewards) > 2  # from 1.0


def test_a_run_with_one_lane_is_the_same_again() -> None:
    first, second = ([c.proposal.program for c in run(1).candidates.values()] for _ in range(2))
    assert first == second
