"""Runs of problems with noise: what is known decides, in both work stores alike."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from uuid import UUID, uuid4

import numpy as np
import pytest

from speciate.domain.candidate import Evaluation, Failure, FailureKind
from speciate.domain.event import EventKind
from speciate.domain.policy import Policy, PolicyRole
from speciate.domain.problem import Problem
from speciate.domain.run import RunSpec, RunState
from speciate.policies import build_client
from speciate.ports.work import Commit, Confirmation, FinalValue, Lease, ProposedBatch, RunContext
from speciate.runs import ledger
from speciate.runs.counters import keep_best
from speciate.runs.executor import LocalQueue, WorkExecutor, drain
from speciate.runs.progress import RunProgress
from speciate.search.strategies import build_strategy
from speciate.storage.stores import Stores
from tests.conformance.test_work_stores import MemoryHarness, PostgresHarness
from tests.support.memory_run import MemoryRun
from tests.support.memory_store import MemoryWorkStore
from tests.support.runs import ToyEvaluator, toy_policy, toy_problem, toy_proposals, toy_rollout, toy_spec

CommitFinal = Callable[[Lease, FinalValue], Commit | None]
STRATEGIES = ("adaptive_evolution", "islands_map_elites", "mind_evolution", "sequential_revision", "best_of_n")


class NoisyToy(ToyEvaluator):
    """Adds noise to toy rewards: half of its variance follows from the seed alone."""

    def __init__(self, deviation: float, breaking: Sequence[int] = (), reason: str = "raised") -> None:
        super().__init__()
        self._deviation, self._breaking, self._reason = deviation, breaking, reason
        self.seeds: dict[str, list[int]] = defaultdict(list)
        self._calls = 0

    def evaluate(
        self, problem: Problem, programs: Sequence[str], *, seeds: Sequence[int], timeout_s: float | None = None
    ) -> list[Evaluation]:
        results = super().evaluate(problem, programs, seeds=seeds)
        return [self._blurred(*each) for each in zip(programs, seeds, results, strict=True)]

    def _blurred(self, program: str, seed: int, result: Evaluation) -> Evaluation:
        self._calls += 1
        self.seeds[program].append(seed)
        if self._calls in self._breaking:
            return Evaluation(failure=Failure(FailureKind.CRASHED, self._reason, "at times"))
        if result.rewards is None:
            return result
        noise = np.random.default_rng([seed]).normal(size=2) + np.random.default_rng([seed, self._calls]).normal(size=2)
        return replace(result, rewards=tuple((np.array(result.rewards) + self._deviation * noise).tolist()))


def noisy_problem(**changes: object) -> Problem:
    return toy_problem().model_copy(update={"stochastic": True, **changes})


def noisy_run(spec: RunSpec, evaluator: NoisyToy, problem: Problem | None = None) -> tuple[MemoryWorkStore, MemoryRun]:
    store, context = MemoryWorkStore(), RunContext(uuid4(), problem or noisy_problem(), toy_policy(), uuid4(), spec)
    store.add(context)
    execute(store, context.run_id, evaluator)
    return store, store.runs[context.run_id]


def execute(store: MemoryWorkStore, run_id: UUID, evaluator: NoisyToy) -> None:
    queue = LocalQueue()
    queue.committed(store.start(run_id))
    drain(WorkExecutor(store, queue, evaluator, client_for), queue)


def client_for(policy: Policy) -> object:
    return build_client(policy if policy.kind == "polish" else Policy(slug="mutator", kind="program_mutator"))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_noisy_run_spends_its_budget_and_repeats_what_decides(strategy: str) -> None:
    evaluator = NoisyToy(2.0)
    _, run = noisy_run(toy_spec(60, strategy=strategy, seed=3), evaluator)
    assert (run.progress.state, run.progress.evaluations) == (RunState.COMPLETED, 60)
    repeats = [c for c in run.candidates.values() if c.proposal.role is PolicyRole.REPEAT]
    assert 2 <= len(repeats) <= 40
    counts = Counter(c.duplicate_of for c in run.candidates.values() if c.duplicate_of and c.evaluation.rewards)
    known = {number: run.candidates[number].evaluations for number in counts}
    assert known == {number: count + 1 for number, count in counts.items()}
    for number, candidate in run.candidates.items():
        if number in counts:
            own = [c.evaluation.rewards for c in run.candidates.values() if c.duplicate_of == number]
            assert np.isfinite([candidate.first, *own]).all()


def test_all_programs_share_the_seed_of_each_trial() -> None:
    evaluator = NoisyToy(2.0)
    _, run = noisy_run(toy_spec(60, seed=1), evaluator)
    new = {c.proposal.program for c in run.candidates.values() if c.duplicate_of is None}
    assert len({evaluator.seeds[program][0] for program in new if program in evaluator.seeds}) == 1
    again = {c.proposal.program for c in run.candidates.values() if c.proposal.trial == 1}
    assert len(again) > 1
    assert len(set.intersection(*({*evaluator.seeds[program]} for program in again))) >= 2


def test_the_final_value_comes_from_evaluations_that_did_not_select_it() -> None:
    evaluator = NoisyToy(0.5)
    _, run = noisy_run(toy_spec(40, seed=2, final_evaluations=8), evaluator)
    final, best = run.progress.final, run.candidates[run.progress.best_number or 0]
    assert (final["number"], final["evaluations"], final["failed"]) == (best.number, 8, 0)
    assert run.progress.best == list(final["mean"])
    assert min(final["margin"]) > 0
    last = evaluator.seeds[best.proposal.program][-8:]
    assert len({*last}) == 8
    assert not {*last} & {seed for program, seeds in evaluator.seeds.items() for seed in seeds[:-8]}
    assert run.progress.evaluations == 40


def test_an_elite_that_ranks_above_the_final_value_is_measured_too_and_the_better_one_wins() -> None:
    measured, changed = Counter[int](), 0
    for seed in range(8):
        harness, queue = MemoryHarness(), LocalQueue()
        commit_final, finals = harness.work.commit_final, list[FinalValue]()

        def noted(
            lease: Lease, final: FinalValue, commit_final: CommitFinal = commit_final, finals: list[FinalValue] = finals
        ) -> Commit | None:
            finals.append(final)
            return commit_final(lease, final)

        harness.work.commit_final = noted  # type: ignore[method-assign]
        queue.committed(harness.begin(noisy_problem(), toy_spec(30, seed=seed)))
        drain(WorkExecutor(harness.work, queue, NoisyToy(4.0), client_for), queue)
        ((_, run),) = harness.work.runs.items()
        assert (run.progress.state, run.progress.evaluations) == (RunState.COMPLETED, 30)
        known = [run.candidates[final.number].individual.targets for final in finals]
        merits = run.context.problem.ranking.merits([final.mean for final in finals], known)
        best = finals[merits.index(max(merits))]
        assert (run.progress.best_number, run.progress.best) == (best.number, list(best.mean))
        assert run.progress.final["number"] == best.number
        measured[len(finals)] += 1
        changed += best is not finals[0]
    assert {*measured} == {1, 2}
    assert changed


def test_a_program_that_fails_in_a_repetition_is_no_elite() -> None:
    _, run = noisy_run(toy_spec(20), NoisyToy(0.5, breaking=[2]))
    assert run.candidates[2].proposal.role is PolicyRole.REPEAT
    assert run.candidates[2].evaluation.failure
    assert 1 not in {placement.number for placement in run.elites.values()}
    assert run.progress.best_number != 1


def test_a_failure_of_the_evaluator_says_nothing_of_the_program() -> None:
    """Such as NaN in one of several evaluations."""
    _, run = noisy_run(toy_spec(20), NoisyToy(0.5, breaking=[2], reason="invalid_rewards"))
    assert run.candidates[2].evaluation.failure
    assert run.candidates[1].evaluations == 2
    assert any(1 in candidate.proposal.parents for candidate in run.candidates.values())


@pytest.mark.parametrize("budget", [1, 2, 5])
def test_a_budget_too_small_for_repetitions_is_spent_on_programs(budget: int) -> None:
    _, run = noisy_run(toy_spec(budget), NoisyToy(0.5))
    assert run.progress.evaluations == budget
    assert all(c.proposal.role is not PolicyRole.REPEAT for c in run.candidates.values())
    assert run.progress.best_number


def test_without_noise_nothing_is_repeated_after_the_seed() -> None:
    _, run = noisy_run(toy_spec(40), NoisyToy(0.0))
    repeats = [number for number, c in run.candidates.items() if c.proposal.role is PolicyRole.REPEAT]
    assert repeats == [2, 3]
    assert list(run.progress.final["margin"]) == [0.0, 0.0]


def test_targets_are_claimed_on_a_bound() -> None:
    rules = tuple(t.model_copy(update={"rule": "x >= 1.5" if t.unlock else t.rule}) for t in toy_problem().targets)
    problem = noisy_problem(targets=rules, confirmations=0)
    lucky = 0
    for seed in range(6):
        _, run = noisy_run(toy_spec(30, seed=seed), NoisyToy(1.0), problem)
        for target, number in run.claims:
            assert target in {rule.name for rule in rules}
            candidate = run.candidates[number]
            lucky += candidate.evaluations == 1 and candidate.evaluation.rewards[0] < 2.0  # type: ignore[index]
    assert not lucky


@pytest.mark.servers
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_both_stores_give_the_same_events(stores: Stores, strategy: str) -> None:
    spec = toy_spec(50, strategy=strategy, seed=5)
    harness = PostgresHarness(stores)
    commit = harness.begin(noisy_problem(), spec)
    queue = LocalQueue()
    queue.committed(commit)
    drain(WorkExecutor(harness.work, queue, NoisyToy(2.0), client_for), queue)
    _, run = noisy_run(spec, NoisyToy(2.0))
    stored = harness.events(commit.run_id)
    assert [event.kind for event in stored] == [event.kind for event in run.events]
    evaluated = EventKind.BATCH_EVALUATED
    for ours, theirs in zip(stored, run.events, strict=True):
        if ours.kind is evaluated:
            assert ours.data["archive"] == theirs.data["archive"]
            assert ours.data["known"] == theirs.data["known"]
    progress = harness.progress(commit.run_id)
    assert (progress.best_number, progress.best) == (run.progress.best_number, run.progress.best)
    detail = stores.queries.candidate_of(commit.run_id, 1)
    first = run.candidates[1]
    assert (detail.evaluations, tuple((detail.rewards or {}).values())) == (first.evaluations, first.evaluation.rewards)
    assert tuple((detail.error or {}).values()) == first.error
    record = stores.runs.get(commit.run_id)
    assert record.best
    assert tuple(record.best.margin.values()) == tuple(run.progress.final["margin"])
    assert record.best_rewards[0].margin


@pytest.mark.servers
@pytest.mark.parametrize("kind", ["memory", "postgres"])
@pytest.mark.parametrize("seed", [1, 8])
def test_after_a_refutation_bounds_decide_which_candidate_is_best(kind: str, seed: int, stores: Stores) -> None:
    harness = MemoryHarness() if kind == "memory" else PostgresHarness(stores)
    rules = {"half": "x >= 3", "both": "y <= 6"}
    targets = tuple(target.model_copy(update={"rule": rules[target.name]}) for target in toy_problem().targets)
    commit = harness.begin(noisy_problem(targets=targets, confirmations=3), toy_spec(60, seed=seed))
    context, confirm = harness.work.context(commit.run_id), harness.work.commit_confirmation
    islands = range(build_strategy(context.spec.strategy, {}).islands)
    expected: list[tuple[int | None, list[int]]] = []
    stored: list[tuple[int | None, list[int]]] = []

    def checked(lease: Lease, confirmation: Confirmation) -> Commit | None:
        committed = confirm(lease, confirmation)
        if confirmation.refuted:
            tables = [harness.work.elites(lease.run_id, island) for island in islands]
            holders = [(int(n), tuple(row)) for t in tables for n, row in zip(t.numbers, t.rewards, strict=True)]
            members = harness.work.members(lease.run_id, [number for number, _ in holders])
            best = RunProgress()
            keep_best(best, context, [replace(members[number], rewards=bound) for number, bound in holders])
            expected.append((best.best_number, [members[number].evaluations or 1 for number, _ in holders]))
            stored.append((harness.progress(lease.run_id).best_number, [int(n) for t in tables for n in t.evaluations]))
        return committed

    harness.work.commit_confirmation = checked  # type: ignore[method-assign]
    queue = LocalQueue()
    queue.committed(commit)
    drain(WorkExecutor(harness.work, queue, NoisyToy(4.0), client_for), queue)
    assert len(expected) >= 8
    assert stored == expected


def external_run(evaluator: NoisyToy, spec: RunSpec) -> tuple[MemoryRun, Callable[[str], None]]:
    """Return a run that has evaluated its seed program, and a function that proposes a program and does the work."""
    store, queue = MemoryWorkStore(), LocalQueue()
    external = Policy(slug="external", kind="external")
    context = RunContext(uuid4(), noisy_problem(), external, uuid4(), spec)
    store.add(context)
    executor = WorkExecutor(store, queue, evaluator, client_for)
    queue.committed(store.start(context.run_id))
    drain(executor, queue)

    def propose(program: str) -> None:
        batch = ProposedBatch((toy_rollout(),), toy_proposals(program))
        record = partial(ledger.record_external_batch, context=context, batch=batch)
        queue.committed(store.move(context.run_id, record))
        drain(executor, queue)

    return store.runs[context.run_id], propose


@pytest.mark.parametrize("seed", range(3))
def test_a_run_of_external_programs_repeats_them_within_its_budget(seed: int) -> None:
    spec, sent = toy_spec(40, seed=seed), 0
    run, propose = external_run(NoisyToy(2.0), spec)
    while run.progress.evaluations_left(spec.budget):
        sent += 1
        propose(f"x = {5 + sent % 7 / 10}\ny = {sent % 9}.{sent}\n")
    repeats = Counter(c.duplicate_of for c in run.candidates.values() if c.proposal.role is PolicyRole.REPEAT)
    assert 4 <= repeats.total() <= 20, repeats
    assert repeats.total() + sent + 1 == run.progress.evaluations == 40
    assert (run.progress.state, run.progress.reserved_evaluations, run.progress.live) == (RunState.COMPLETED, 0, 0)
    assert "half" in {target for target, _ in run.claims}


def test_repetitions_that_the_evaluator_fails_do_not_spend_the_budget_of_external_programs() -> None:
    run, propose = external_run(NoisyToy(2.0, breaking=range(5, 99), reason="invalid_rewards"), toy_spec(40))
    propose("x = 5\ny = 1\n")
    assert (run.candidates[4].targets, run.progress.evaluations) == (0, 5)


class Penalty(NoisyToy):
    """One of the seven evaluations after the end has a penalty far beyond the declared range."""

    def evaluate(self, problem: Problem, programs: Sequence[str], **options: object) -> list[Evaluation]:
        results = super().evaluate(problem, programs, **options)  # type: ignore[arg-type]
        if len(programs) == 7:
            results[3] = replace(results[3], rewards=(5.0, 1e200), failure=None)
        return results


def test_a_penalty_after_the_end_is_a_failed_evaluation() -> None:
    _, run = noisy_run(toy_spec(20, final_evaluations=7, seed=1), Penalty(0.5))
    assert (run.progress.state, run.progress.final["failed"]) == (RunState.COMPLETED, 1)
    assert all(map(math.isfinite, run.progress.final["margin"]))
