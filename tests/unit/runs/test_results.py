"""Shared results between runs."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from speciate.domain.policy import Policy
from speciate.domain.problem import Problem, ProblemKind
from speciate.domain.run import RunSpec
from speciate.domain.target import ClaimState
from speciate.policies import build_client
from speciate.ports.work import RunContext
from speciate.runs.executor import LocalQueue, WorkExecutor, drain
from tests.support.memory_run import MemoryRun
from tests.support.memory_store import MemoryWorkStore
from tests.support.runs import ToyEvaluator, ticking_clock, toy_problem, toy_spec

ANSWERS = [f"```python\nx = {x}\ny = {9 - x}\n```" for x in range(10)]
HITS = 11
"""Distinct programs among 40 answers with the default seed."""


class Lab:
    """An in-memory deployment."""

    def __init__(self) -> None:
        self.store, self.evaluator, self.signals = MemoryWorkStore(ticking_clock()), ToyEvaluator(), LocalQueue()

    def run(self, spec: RunSpec | None = None, problem: Problem | None = None, *answers: str) -> MemoryRun:
        options = {"completions": list(answers or ANSWERS)}
        policy = Policy.model_validate({"slug": "s", "kind": "scripted", "options": options})
        context = RunContext(uuid4(), problem or toy_problem(), policy, uuid4(), spec or sharing())
        self.store.add(context)
        self.signals.committed(self.store.start(context.run_id))
        self.evaluator.evaluated.clear()
        executor = WorkExecutor(self.store, self.signals, self.evaluator, build_client)
        drain(executor, self.signals)
        return self.store.runs[context.run_id]


def sharing(evaluations: int = 40, **changes: object) -> RunSpec:
    return toy_spec(evaluations, reuse_results=True, **changes)


def _course(run: MemoryRun) -> list[object]:
    return [(event.kind, event.data) for event in run.events]


def test_a_second_run_evaluates_only_confirmations_and_spends_the_same_budget() -> None:
    lab = Lab()
    first = lab.run()
    evaluated = list(lab.evaluator.evaluated)
    second = lab.run()
    assert len(set(evaluated)) == HITS
    assert len(lab.evaluator.evaluated) == len(first.claims) == 2
    assert {claim.state for claim in second.claims.values()} == {ClaimState.CONFIRMED}
    assert _course(first) == _course(second)
    assert (first.progress.reused, second.progress.reused) == (0, HITS)
    assert second.progress.evaluations == 40


def test_a_reused_result_names_its_source_and_costs_no_time() -> None:
    lab = Lab()
    first, second = lab.run(), lab.run()
    outcome = second.candidates[1]
    assert outcome.reused_from == f"{first.context.run_id}/1"
    assert outcome.evaluation.rewards == first.candidates[1].evaluation.rewards
    assert (outcome.evaluation.wall_s, outcome.evaluation.cpu_s, outcome.evaluation.memory_bytes) == (0, 0, 0)
    third = lab.run()
    assert third.candidates[1].reused_from == f"{first.context.run_id}/1"
    named = [UUID(c.reused_from.split("/")[0]) for c in third.candidates.values() if c.reused_from]
    assert set(named) == {first.context.run_id}


STOCHASTIC = toy_problem().model_copy(update={"stochastic": True})
FORGEABLE = toy_problem().model_copy(update={"kind": ProblemKind.IN_PROCESS})
OTHER = toy_problem().model_copy(update={"evaluator": "def evaluate(candidate, context):\n    raise ValueError\n"})
RENAMED = toy_problem().model_copy(update={"title": "Other words", "description": "Other words."})


@pytest.mark.parametrize(
    ("spec", "before", "after", "hits"),
    [
        (toy_spec(), toy_problem(), toy_problem(), 0),
        (sharing(), toy_problem(), OTHER, 0),
        (sharing(), STOCHASTIC, STOCHASTIC, 0),
        (sharing(), FORGEABLE, FORGEABLE, 0),
        (sharing(budget={"evaluations": 40, "seconds": 1000.0}), toy_problem(), toy_problem(), 0),
        (sharing(), toy_problem(), RENAMED, 9),  # another problem draws other answers
    ],
)
def test_results_are_shared_only_where_they_must_be_equal(
    spec: RunSpec, before: Problem, after: Problem, hits: int
) -> None:
    lab = Lab()
    lab.run(spec, before)
    assert lab.run(spec, after).progress.reused == hits


def test_results_are_not_shared_between_isolation_tiers() -> None:
    lab = Lab()
    lab.run()
    lab.evaluator.tier = "A"
    assert lab.run().progress.reused == 0


def test_failures_are_evaluated_again() -> None:
    lab = Lab()
    broken = "```python\nx = z\n```"
    first, second = lab.run(None, None, broken), lab.run(None, None, broken)
    assert first.progress.failures == second.progress.failures == {"invalid_output": 39}
    assert lab.evaluator.evaluated == ["x = z\n"]
    assert second.progress.reused == 1


def test_candidates_stopped_at_a_stage_are_evaluated_again() -> None:
    lab = Lab()
    first = lab.run()
    seed = first.candidates[1]
    stopped = replace(seed.evaluation, stopped_at="costly")
    first.candidates[1] = replace(seed, evaluation=stopped)
    second = lab.run()
    assert second.candidates[1].reused_from is None
    assert second.progress.reused == HITS - 1
