"""The operators of runs with the default strategy: polished programs beside those of policies."""

from __future__ import annotations

from collections import Counter
from uuid import uuid4

import pytest

from speciate.domain.budget import Budget
from speciate.domain.policy import Policy, PolicyRole
from speciate.domain.run import RunState
from speciate.policies import build_client
from speciate.ports.work import POLISHER, RunContext
from speciate.runs.executor import LocalQueue, WorkExecutor, drain
from speciate.runs.replay import RecordedCompletion, replay
from tests.support.memory_store import MemoryWorkStore
from tests.support.runs import ticking_clock, toy_problem, toy_spec
from tests.unit.runs.test_failures import Runs

MUTATOR = Policy(slug="mutator", kind="program_mutator")


WRITES: dict[str, object] = {"template": "```python\nx = 0.{number}\ny = 5\n```", "tokens_per_completion": 3}


def made(
    seed_program: str = "x = 0.0\ny = 5\n", policy: Policy = MUTATOR, **changes: object
) -> tuple[RunContext, MemoryWorkStore]:
    """Return a finished run of the default strategy."""
    spec = toy_spec(60, **{"strategy": "adaptive_evolution", **changes})
    context = RunContext(uuid4(), toy_problem(seed_program=seed_program), policy, uuid4(), spec)
    store, signals = MemoryWorkStore(ticking_clock()), LocalQueue()
    store.add(context)
    signals.committed(store.start(context.run_id))
    drain(WorkExecutor(store, signals, Runs(), build_client), signals)
    return context, store


def roles(context: RunContext, store: MemoryWorkStore) -> Counter[PolicyRole]:
    return Counter(each.proposal.role for each in store.runs[context.run_id].candidates.values())


def test_polished_programs_are_candidates_without_rollouts() -> None:
    context, store = made()
    counts = roles(context, store)
    assert counts[PolicyRole.POLISH] > 5
    assert counts[PolicyRole.MUTATE] > 5
    run = store.runs[context.run_id]
    polished = [each for each in run.candidates.values() if each.proposal.role is PolicyRole.POLISH]
    assert {each.proposal.rollout for each in polished} == {None}
    assert all(len(each.proposal.parents) == 1 for each in polished)
    assert all(r.role is not PolicyRole.POLISH for of_batch in run.rollouts.values() for r in of_batch)
    assert (run.progress.evaluations, run.progress.polished) == (60, counts[PolicyRole.POLISH])


@pytest.mark.parametrize("changes", [{}, {"budget": Budget(tokens=600)}, {"lanes": 4, "batch": 8}])
def test_beside_a_model_one_candidate_is_polished_for_three_answers(changes: dict[str, object]) -> None:
    context, store = made(policy=Policy.model_validate({"slug": "m", "kind": "scripted", "options": WRITES}), **changes)
    run = store.runs[context.run_id]
    assert run.progress.state is RunState.COMPLETED, run.progress.reason
    counts, first = roles(context, store), run.candidates[2].proposal.role
    answers = counts[PolicyRole.PROPOSE] + counts[PolicyRole.MUTATE]
    assert first is not PolicyRole.POLISH
    assert 5 < counts[PolicyRole.POLISH] <= answers / 3 + context.spec.lanes
    if context.spec.budget.tokens:
        assert 600 - run.progress.tokens < 600 / answers


def test_answers_that_fail_are_no_reason_to_polish() -> None:
    options = {"template": "no program {number}"}
    context, store = made(policy=Policy.model_validate({"slug": "m", "kind": "scripted", "options": options}))
    assert roles(context, store)[PolicyRole.POLISH] == 0


def test_a_replay_polishes_again() -> None:
    context, store = made()
    written = [
        RecordedCompletion(each.prompt.digest, each.seed, each.completion, each.prompt_tokens)
        for _, of_batch in sorted(store.runs[context.run_id].rollouts.items())
        for each in of_batch
    ]
    report = replay(
        context, written, store.events(context.run_id),
        store=MemoryWorkStore(ticking_clock()), evaluator=Runs(), client_for=build_client,
    )  # fmt: skip
    assert report.identical, report.describe()


@pytest.mark.parametrize("seed_program", ["x = len('')\ny = len('five!')\n"])
def test_programs_without_numbers_are_changed_instead(seed_program: str) -> None:
    context, store = made(seed_program)
    without = [
        each
        for each in store.runs[context.run_id].candidates.values()
        if each.proposal.role is PolicyRole.POLISH
        and not any(map(str.isdigit, store.runs[context.run_id].candidates[each.proposal.parents[0]].proposal.program))
    ]
    assert not without


def test_runs_of_codecs_and_runs_that_keep_tokens_have_no_polisher() -> None:
    context, _ = made()
    assert context.operators[PolicyRole.POLISH] == pytest.approx(0.45)
    assert sum(context.operators.values()) == pytest.approx(1.0)
    keeping = RunContext(uuid4(), context.problem, MUTATOR, uuid4(), toy_spec(60, keep_tokens=True))
    assert keeping.operators[PolicyRole.POLISH] == 0
    coded = MUTATOR.model_copy(update={"codec": "maze"})
    assert PolicyRole.POLISH not in RunContext(uuid4(), context.problem, coded, uuid4(), toy_spec(60)).operators


def test_the_polisher_does_not_hide_that_all_answers_fail() -> None:
    failing = Policy.model_validate(
        {"slug": "mutator", "kind": "scripted", "options": {"template": "no program {number}"}}
    )
    spec = toy_spec(120, strategy="adaptive_evolution")
    context = RunContext(uuid4(), toy_problem(), MUTATOR, uuid4(), spec)
    store, signals = MemoryWorkStore(ticking_clock()), LocalQueue()
    store.add(context)
    signals.committed(store.start(context.run_id))
    clients = {policy.slug: build_client(policy) for policy in (POLISHER.policy, failing)}
    drain(WorkExecutor(store, signals, Runs(), lambda policy: clients[policy.slug]), signals)
    progress = store.runs[context.run_id].progress
    assert roles(context, store)[PolicyRole.POLISH] > 20
    assert progress.alarm is not None
    assert "no_code_block" in progress.alarm
