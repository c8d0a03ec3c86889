"""Duplicates and near-duplicates are found before evaluation."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pytest

from speciate.domain.candidate import Failure, FailureKind
from speciate.domain.language import Language
from speciate.domain.novelty import DuplicateRule, Novelty
from speciate.domain.policy import PolicyRole
from speciate.domain.problem import Problem, ProblemKind
from speciate.domain.run import RunState
from speciate.ports.work import RunContext
from speciate.runs.novelty import Neighbours, shape_of
from speciate.search.strategy import Placement
from tests.support.runs import toy_policy, toy_problem, toy_spec
from tests.unit.runs.test_executor import Session, session

PROGRAM = "def solve(n):\n    total = n * (n + 1)\n    return total // 2\n"


def _context(problem: Problem | None = None, **novelty: object) -> RunContext:
    return RunContext(uuid4(), problem or toy_problem(), toy_policy(), uuid4(), toy_spec(novelty=novelty))


def _answers(*programs: str) -> list[str]:
    return [f"```python\n{program}\n```" for program in programs]


def _kept(s: Session) -> dict[int, tuple[int | None, str | None]]:
    """Return ``(duplicate_of, reason)`` of every candidate by number."""
    candidates = s.store.runs[s.context.run_id].candidates
    return {n: (c.duplicate_of, c.evaluation.failure and c.evaluation.failure.reason) for n, c in candidates.items()}


@pytest.mark.parametrize(
    "other",
    [
        "# Gauss\n" + PROGRAM,
        PROGRAM.replace("    ", "\t"),
        PROGRAM.replace("n * (n + 1)", "(n*(n  +  1))"),
        PROGRAM.replace("(n):\n", '(n):\n    """The sum of the first numbers."""\n'),
        '"""A module."""\n\n\n' + PROGRAM,
    ],
)
def test_equivalent_texts_have_the_same_shape(other: str) -> None:
    assert shape_of(_context(), other) == shape_of(_context(), PROGRAM) != None  # noqa: E711


@pytest.mark.parametrize(
    "other",
    [
        PROGRAM.replace("n + 1", "1 + n"),
        PROGRAM.replace("total", "sum_"),
        PROGRAM.replace("// 2", "// 2.0"),
        PROGRAM.replace("// 2", "// True"),
        PROGRAM.replace("// 2", "// '2'"),
        PROGRAM.replace("(n):", "(n=None):"),
        PROGRAM + "pass\n",
    ],
)
def test_different_programs_have_different_shapes(other: str) -> None:
    assert shape_of(_context(), other) != shape_of(_context(), PROGRAM)


def test_docstrings_count_if_the_program_reads_them() -> None:
    one = 'def solve():\n    """Short."""\n    return len(solve.__doc__)\n'
    other = one.replace("Short", "Longer")
    assert shape_of(_context(), one) != shape_of(_context(), other)


@pytest.mark.parametrize("hostile", ["def (", "x = " + "(" * 5000, "x = 0x" + "f" * 5000, "\x00", "x = 1\n" * 20_000])
def test_programs_too_expensive_to_parse_are_compared_by_text(hostile: str) -> None:
    assert shape_of(_context(), hostile) is None


def test_the_run_overrides_the_rule_of_the_problem() -> None:
    by_output = toy_problem()
    by_text = by_output.model_copy(update={"evaluator": "def evaluate(c, context):\n    return len(c.source)\n"})
    by_helper = by_output.model_copy(update={"files": {"golf.py": "def size(c):\n    return len(c.source)\n"}})
    assert Novelty().duplicate_rule(by_output) is DuplicateRule.SYNTAX
    assert Novelty().duplicate_rule(by_text) is Novelty().duplicate_rule(by_helper) is DuplicateRule.TEXT
    assert Novelty(same=DuplicateRule.SYNTAX).duplicate_rule(by_text) is DuplicateRule.SYNTAX
    assert Novelty(same=DuplicateRule.TEXT).duplicate_rule(by_output) is DuplicateRule.TEXT


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": ProblemKind.DATA},
        {"many_files": True},
        {"language": Language(name="JavaScript", file="main.js", run=("node", "main.js"))},
    ],
)
def test_other_than_single_python_programs_are_always_compared_by_text(changes: dict[str, object]) -> None:
    problem = toy_problem().model_copy(update=changes)
    assert Novelty(same=DuplicateRule.SYNTAX).duplicate_rule(problem) is DuplicateRule.TEXT


def test_an_equivalent_program_gets_the_rewards_of_its_duplicate() -> None:
    s = session(toy_spec(13, seed=5), completions=_answers("x = 3\ny = 3", "x = (3)  # three\ny = 3", "x = 4\ny = 3"))
    s.go()
    run = s.store.runs[s.context.run_id]
    assert sorted(p.strip() for p in s.evaluator.evaluated) == ["x = 1\ny = 9", "x = 3\ny = 3", "x = 4\ny = 3"]
    assert run.progress.duplicates == 10
    others = [c for c in run.candidates.values() if "three" in c.proposal.program]
    assert others
    assert {(o.evaluation.rewards, o.duplicate_of) for o in others} == {((3.0, 3.0), 2)}


def test_by_text_equivalent_programs_differ() -> None:
    answers = _answers("x = 3\ny = 3", "x = (3)\ny = 3")
    s = session(toy_spec(9, novelty={"same": "text"}), completions=answers)
    s.go()
    assert s.store.runs[s.context.run_id].progress.duplicates == 6


LONG = "".join(f"a{i} = {i}7\n" for i in range(1, 40)) + "x = 2\ny = 2\n"
LIKE = LONG.replace("a3 = 37", "a3 = 38")


def test_near_duplicates_are_rejected_if_configured() -> None:
    answers = _answers(LONG, LIKE, LONG.replace("a", "b"))
    free = session(toy_spec(13, strategy="best_of_n"), completions=answers)
    free.go()
    assert free.store.runs[free.context.run_id].progress.failed == 0
    s = session(toy_spec(13, strategy="best_of_n", novelty={"near": 0.9}), completions=answers)
    s.go()
    run = s.store.runs[s.context.run_id]
    assert (run.progress.state, run.progress.evaluations) == (RunState.COMPLETED, 13)
    assert set(run.progress.reasons) == {"near_duplicate"}
    assert run.progress.reasons["near_duplicate"] + run.progress.duplicates == 10
    assert len(s.evaluator.evaluated) == 3
    rejected = [c for c in run.candidates.values() if c.evaluation.failure]
    assert {o.proposal.program.strip() for o in rejected} == {LIKE.strip()}
    first = min(n for n, c in run.candidates.items() if c.proposal.program.strip() == LONG.strip())
    assert {(o.duplicate_of, o.evaluation.failure) for o in rejected} == {
        (first, Failure(FailureKind.REJECTED, "near_duplicate", f"92% similar to candidate {first}"))
    }


def test_polished_programs_are_like_their_parents() -> None:
    spec = toy_spec(30, seed=1, strategy="adaptive_evolution", novelty={"near": 0.9})
    s = session(spec, completions=_answers(LONG))
    s.go()
    polished = [c for c in s.store.runs[s.context.run_id].candidates.values() if c.proposal.role is PolicyRole.POLISH]
    assert polished
    assert "near_duplicate" not in {c.evaluation.failure.reason for c in polished if c.evaluation.failure}


def _nearest(s: Session, program: str, window: int = 64) -> int | None:
    """Return the candidate number to which a next program is too similar, elites left out."""
    context = replace(s.context, spec=toy_spec(novelty={"near": 0.9, "window": window}))
    first = max(s.store.runs[s.context.run_id].candidates) + 1
    found = Neighbours(context, s.store, {99}, first).nearest(program)
    return found and found.number


def test_a_small_change_of_a_program_that_failed_is_new() -> None:
    s = session(toy_spec(2, batch=1), completions=_answers(LONG.replace("x = 2", "x = z")))
    s.go()
    assert s.store.runs[s.context.run_id].progress.reasons == {"not_assigned": 1}
    assert _nearest(s, LONG) is None


def test_only_the_latest_programs_are_compared() -> None:
    s = session(toy_spec(6, batch=1), toy_problem(seed_program=LONG))
    s.go()
    assert _nearest(s, LIKE, window=6) == 1
    assert _nearest(s, LIKE, window=5) is None


def test_elites_of_any_age_are_compared() -> None:
    s = session(toy_spec(6, batch=1), toy_problem(seed_program=LONG))
    s.go()
    run = s.store.runs[s.context.run_id]
    run.elites = {(0, "w0"): Placement(1, 0, "w0", 0.5, (2.0, 2.0))}
    context = replace(s.context, spec=toy_spec(novelty={"near": 0.9, "window": 1}))
    found = Neighbours(context, s.store, {0}, 7).nearest(LIKE)
    assert found is not None
    assert found.number == 1


def test_the_similarity_is_the_jaccard_index() -> None:
    # Shingles of one token: {x, =, 1, y, 2} and {x, =, 1, y, 3}: four in common of six.
    answers = _answers("x = 1\ny = 2", "x = 1\ny = 3")
    for near, found in ((4 / 6, {"near_duplicate": 1}), (4 / 6 + 1e-6, {})):
        spec = toy_spec(2, strategy="best_of_n", novelty={"near": near, "shingle": 1})
        s = session(spec, toy_problem(seed_program=""), completions=answers)
        s.go()
        assert s.store.runs[s.context.run_id].progress.reasons == found


def test_a_similarity_equal_to_the_threshold_is_rejected() -> None:
    # 7 shingles of 25: exactly .28, although .28 · 25 is more than 7 in floating point.
    few, many = ("\n".join(f"name{i}" for i in range(count)) for count in (7, 25))
    spec = toy_spec(2, strategy="best_of_n", novelty={"near": 0.28, "shingle": 1})
    s = session(spec, toy_problem(seed_program=""), completions=_answers(few, many))
    s.go()
    assert s.store.runs[s.context.run_id].progress.reasons["near_duplicate"] == 1


@pytest.mark.parametrize("seed", range(6))
def test_equivalents_of_a_rejected_program_in_one_batch_are_rejected(seed: int) -> None:
    answers = _answers(LONG, LIKE, f"# the same\n{LIKE}")
    s = session(toy_spec(8, batch=8, seed=seed, strategy="best_of_n", novelty={"near": 0.9}), completions=answers)
    s.go()
    progress = s.store.runs[s.context.run_id].progress
    assert (progress.state, progress.evaluations) == (RunState.COMPLETED, 8), progress.reason


def test_repeats_of_a_rejected_program_in_one_batch_are_rejected() -> None:
    s = session(
        toy_spec(4, seed=1, strategy="best_of_n", novelty={"near": 0.9}), completions=_answers(LONG, LIKE, LIKE)
    )
    s.go()
    assert _kept(s)[3] == _kept(s)[4] == (2, "near_duplicate")
    assert s.store.runs[s.context.run_id].progress.duplicates == 0


def test_further_trials_of_a_noisy_program_are_no_near_duplicates_of_it() -> None:
    noisy = toy_problem().model_copy(update={"stochastic": True})
    spec = toy_spec(9, batch=8, strategy="best_of_n", novelty={"near": 0.9}, final_evaluations=0)
    s = session(spec, noisy, completions=_answers(LONG))
    s.go()
    assert s.store.runs[s.context.run_id].progress.failed == 0
    assert [program for program in s.evaluator.evaluated if program.strip() == LONG.strip()] == [LONG] * 8
