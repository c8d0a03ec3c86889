"""A candidate receives the output of the best candidate so far, as do its confirmations, repetitions and replays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest
from pydantic import ValidationError

from speciate.domain.candidate import Evaluation, Individual
from speciate.domain.policy import Policy
from speciate.domain.problem import Carry, Problem
from speciate.policies import build_client
from speciate.ports.work import RunContext
from speciate.prompts.render import artifact_texts, problem_text
from speciate.runs.evaluation import replay_evaluation
from speciate.runs.executor import LocalQueue, WorkExecutor, drain
from tests.support.memory_run import MemoryRun
from tests.support.memory_store import MemoryWorkStore
from tests.support.runs import ToyEvaluator, ticking_clock, toy_problem, toy_spec

CARRYING = toy_problem().model_copy(update={"carry": Carry.BEST})


class Building(ToyEvaluator):
    """Stores the program itself as its output, and remembers what each program received."""

    def __init__(self) -> None:
        super().__init__()
        self.received: list[tuple[str, str | None]] = []

    def evaluate(self, problem: Problem, programs: Sequence[str], **options: Any) -> list[Evaluation]:
        self.received += [(program, problem.data_files.get("best.json")) for program in programs]
        found = super().evaluate(problem, programs, **options)
        return [replace(one, artifacts={"output": program}) for one, program in zip(found, programs, strict=True)]


def search(problem: Problem) -> tuple[MemoryRun, Building, MemoryWorkStore]:
    store, evaluator, signals = MemoryWorkStore(ticking_clock()), Building(), LocalQueue()
    answers = [f"```python\nx = {x}\ny = {9 - x}\n```" for x in range(10)]
    policy = Policy.model_validate({"slug": "s", "kind": "scripted", "options": {"completions": answers}})
    context = RunContext(uuid4(), problem, policy, uuid4(), toy_spec(40, batch=2))
    store.add(context)
    signals.committed(store.start(context.run_id))
    drain(WorkExecutor(store, signals, evaluator, build_client), signals)
    return store.runs[context.run_id], evaluator, store


def test_candidates_start_from_the_best_output_so_far() -> None:
    run, evaluator, store = search(CARRYING)
    fresh = {n: c for n, c in run.candidates.items() if c.duplicate_of is None}
    assert fresh.pop(1).evaluation.carried_from is None
    best = 1
    for number, outcome in sorted(fresh.items()):
        source = outcome.evaluation.carried_from
        assert source is not None
        assert source < number
        assert source >= best  # it only gets better
        best = source
        start = run.candidates[source].proposal.program
        assert (outcome.proposal.program, start) in evaluator.received
    assert best > 1
    # Confirmations of a target start where the candidate did.
    claimed = min(number for _, number in run.claims)
    own = run.candidates[claimed]
    carried = store.carried(run.context.run_id, claimed)
    assert carried is not None
    assert evaluator.received.count((own.proposal.program, carried.output)) == 1 + CARRYING.confirmations


def test_all_trials_of_a_program_start_from_the_same_output() -> None:
    run, _, _ = search(CARRYING.model_copy(update={"stochastic": True}))
    starts: dict[int, list[int | None]] = {}
    for number, each in run.candidates.items():
        starts.setdefault(each.duplicate_of or number, []).append(each.evaluation.carried_from)
    assert max(map(len, starts.values())) > 3
    assert len({*(source for sources in starts.values() for source in sources)}) > 2
    assert all(len({*sources}) == 1 for sources in starts.values())


def test_a_replay_has_the_start_of_the_first_evaluation() -> None:
    run, _, store = search(CARRYING)
    number, candidate = max((n, c) for n, c in run.candidates.items() if c.duplicate_of is None)
    source = candidate.evaluation.carried_from
    detail = cast(
        "Any", SimpleNamespace(number=number, program=candidate.proposal.program, carried_from=source, trial=0)
    )
    again = Building()
    assert replay_evaluation(run.context, detail, store, again).carried_from == source
    assert again.received == [(detail.program, run.candidates[source or 0].proposal.program)]
    held = run.candidates[source or 0]
    run.candidates[source or 0] = replace(held, evaluation=replace(held.evaluation, artifacts={}))
    gone = replay_evaluation(run.context, detail, store, again)
    assert gone.failure is not None
    assert gone.failure.reason == "carried_output_deleted"


def test_without_carry_nothing_changes() -> None:
    run, evaluator, _ = search(toy_problem())
    assert {c.evaluation.carried_from for c in run.candidates.values()} == {None}
    assert {received for _, received in evaluator.received} == {None}


def test_an_output_that_programs_find_in_a_file_is_in_no_prompt() -> None:
    member = Individual(1, "x = 1\n", (1.0, 0.0), artifacts={"output": "[1, 2, 3]", "by part": "7 of 9"})
    assert artifact_texts(CARRYING, member) == ("by part:\n```\n7 of 9\n```",)
    assert len(artifact_texts(toy_problem(), member)) == 2


def test_carrying_changes_what_a_score_means() -> None:
    plain = toy_problem()
    assert "carry" not in plain.stored_json()
    assert CARRYING.digest != plain.digest
    assert CARRYING.evaluator_digest != plain.evaluator_digest
    assert not CARRYING.repeatable
    assert "data/best.json holds the output of the best candidate so far" in problem_text(CARRYING)
    data = {"kind": "data", "evaluator": "def score(text, context): ...", "carry": "best"}
    with pytest.raises(ValidationError, match="carry needs a script of kind 'evaluator' or 'in_process'"):
        Problem.model_validate({**plain.model_dump(exclude={"kind", "evaluator"}), **data})
