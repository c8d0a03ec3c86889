"""Work store in memory, on the same ledger as PostgreSQL's: for tests, benchmarks and experiments."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

from speciate.domain.candidate import COSTS, Candidate, Evaluation, Individual
from speciate.domain.charge import Charge
from speciate.domain.ensemble import BanditArm
from speciate.domain.errors import ConflictError, NotFoundError
from speciate.domain.event import Event, EventKind
from speciate.domain.guidance import Advice
from speciate.domain.policy import PolicyRole
from speciate.domain.problem import OUTPUT
from speciate.domain.rollout import Rollout
from speciate.domain.run import RunState
from speciate.domain.target import ClaimState, TargetSet
from speciate.ids import uuid7
from speciate.ports.work import (
    CarriedOutput,
    Commit,
    Confirmation,
    EvaluatedBatch,
    EvaluationRequest,
    FinalValue,
    GroupRef,
    LearnedStep,
    LearnedVersion,
    Lease,
    ProposedBatch,
    ReconcileReport,
    RunContext,
    Standing,
    StoredGroup,
    WorkKind,
    WorkRef,
)
from speciate.runs import ledger, stopping
from speciate.runs.counters import with_spending
from speciate.runs.ensemble import read_arms
from speciate.runs.guidance import with_gains
from speciate.runs.progress import RunChange
from speciate.runs.stored_population import StoredPopulation
from speciate.search.archive import best_per_cell
from speciate.search.cells import TARGET
from speciate.search.noise import Revision, revise, trial_of
from speciate.search.strategies import build_strategy
from speciate.search.strategy import EliteTable, Placement
from speciate.search.targets import target_placements
from tests.support.memory_run import (
    MemoryRun,
    MemoryUnit,
    earliest_claimant,
    holds,
    open_confirmations,
    ranked_elites,
    stored_group,
)


def _selected(run: MemoryRun) -> dict[int, Candidate]:
    """Return the candidates that are no repeated evaluations, by number."""
    return {number: c for number, c in run.candidates.items() if c.proposal.role is not PolicyRole.REPEAT}


def _meeting(run: MemoryRun, targets: TargetSet) -> list[Individual]:
    """Return the candidates that meet one of the targets, unless it was refuted."""
    candidates = run.candidates.values()
    return [c.individual for c in candidates if c.duplicate_of is None and c.targets & ~c.refuted & targets]


class MemoryWorkStore:
    """``WorkStore`` in memory; not thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.time, *, lease_s: float = 30.0) -> None:
        self._clock = clock
        self._lease_s = lease_s
        self.runs: dict[UUID, MemoryRun] = {}

    def add(self, context: RunContext, granted: int | None = None) -> UUID:
        run = self.runs[context.run_id] = MemoryRun(context)
        self._change(run, lambda change: ledger.create(change, context, granted))
        return context.run_id

    def start(self, run_id: UUID) -> Commit:
        run = self._run(run_id)
        if run.progress.state is not RunState.CREATED:
            raise ConflictError(f"run {run_id} has already started.")
        return self._change(run, lambda change: ledger.start(change, run.context))

    def events(self, run_id: UUID) -> Sequence[Event]:
        return tuple(self._run(run_id).events)

    def claim(self, work_id: UUID) -> Lease | None:
        run, unit = self._unit(work_id)
        if unit.state != "ready" or run.progress.state is not RunState.RUNNING:
            return None
        if unit.new.kind is not WorkKind.CONFIRM and self.seconds_left_of(run) == 0:
            return None
        unit.state, unit.token, unit.attempt = "leased", uuid7(), unit.attempt + 1
        unit.lease_until = self._clock() + self._lease_s
        new, run_id, last_event = unit.new, run.context.run_id, run.progress.events
        return Lease(
            work_id, run_id, new.kind, new.lane, new.ordinal, unit.attempt, unit.token, new.payload, last_event
        )

    def extend(self, lease: Lease) -> bool:
        _, unit = self._unit(lease.work_id)
        if holds(unit, lease):
            unit.lease_until = self._clock() + self._lease_s
            return True
        return False

    def context(self, run_id: UUID) -> RunContext:
        return self._run(run_id).context

    def seconds_left(self, run_id: UUID) -> float | None:
        return self.seconds_left_of(self._run(run_id))

    def seconds_left_of(self, run: MemoryRun) -> float | None:
        self._tick(run)
        return run.progress.seconds_left(run.context.spec.budget)

    def elites(self, run_id: UUID, island: int) -> EliteTable:
        run = self._run(run_id)
        elites = [each for (at, _), each in run.elites.items() if at == island]
        return EliteTable.of(elites, len(run.context.problem.objectives))

    def lineage_rows(self, run_id: UUID) -> Sequence[tuple[int, int, Sequence[float] | None]]:
        candidates = sorted(_selected(self._run(run_id)).items())
        return [(number, next(iter(c.proposal.parents), 0), c.evaluation.rewards) for number, c in candidates]

    def members(self, run_id: UUID, numbers: Sequence[int]) -> dict[int, Individual]:
        candidates = self._run(run_id).candidates
        return {number: candidates[number].individual for number in numbers if number in candidates}

    def latest(self, run_id: UUID, most: int) -> Sequence[Individual]:
        candidates = _selected(self._run(run_id))
        return [candidates[number].individual for number in heapq.nlargest(most, candidates)]

    def standing(self, run_id: UUID) -> Standing:
        run = self._run(run_id)
        seeds = [n for n, c in run.candidates.items() if c.proposal.role is PolicyRole.SEED and c.evaluation.rewards]
        left = run.progress.evaluations_left(run.context.spec.budget)
        confirmed = {c.target: c.number for c in run.claims.values() if c.state is ClaimState.CONFIRMED}
        return Standing(min(seeds, default=None), run.progress.best_number, left, confirmed)

    def completions(self, run_id: UUID, numbers: Sequence[int]) -> dict[int, str]:
        run = self._run(run_id)
        places = {number: run.candidates[number].proposal.rollout for number in numbers}
        rollouts = {n: run.rollouts[run.batches[n]][place] for n, place in places.items() if place is not None}
        return {number: each.completion.text for number, each in rollouts.items() if each.answers <= 1}

    def carried(self, run_id: UUID, to: int | None = None) -> CarriedOutput | None:
        run = self._run(run_id)
        number = run.progress.best_number if to is None else run.candidates[to].evaluation.carried_from
        output = None if number is None else run.candidates[number].evaluation.artifacts.get(OUTPUT)
        return None if number is None or output is None else CarriedOutput(number, output)

    def duplicates(self, run_id: UUID, hashes: Sequence[str], shapes: Sequence[str] = ()) -> dict[str, Candidate]:
        digests, earliest = {*hashes, *shapes}, dict[str, Candidate]()
        for _, candidate in sorted(self._run(run_id).candidates.items()):
            failure = candidate.evaluation.failure
            if candidate.duplicate_of is None and not (failure and failure.repeatable):
                for digest in digests.intersection((candidate.proposal.program_hash, candidate.shape)):
                    free = replace(candidate.evaluation, artifacts={}, **dict.fromkeys(COSTS, 0))
                    earliest.setdefault(digest, replace(candidate, evaluation=free))
        return earliest

    def results(self, run_id: UUID, hashes: Sequence[str], tier: str) -> dict[str, tuple[str, Evaluation]]:
        context, results = self._run(run_id).context, dict[str, tuple[str, Evaluation]]()
        for run in self.runs.values():
            if not (context.reuses and run.context.reuses):
                continue
            if run.context.problem.evaluator_digest == context.problem.evaluator_digest:
                for number, candidate in sorted(run.candidates.items()):
                    digest, result = candidate.proposal.program_hash, candidate.evaluation
                    if candidate.is_reusable and result.tier == tier and digest in hashes:
                        free = replace(result, carried_from=None, **dict.fromkeys(COSTS, 0))
                        results.setdefault(digest, (f"{run.context.run_id}/{number}", free))
        return results

    def arms(self, run_id: UUID) -> dict[str, BanditArm]:
        return read_arms(self._run(run_id).progress.arms)

    def advice(self, run_id: UUID) -> tuple[Advice, ...]:
        run = self._run(run_id)
        return with_gains(run.advice, run.progress.advice)

    def reserve_tokens(self, lease: Lease, tokens: int, agent_answers: int = 0) -> bool | None:
        run, unit = self._unit(lease.work_id)
        if not holds(unit, lease):
            return None
        run.progress.reserved_tokens -= unit.reserved_tokens
        granted = run.progress.affords(run.context, tokens, agent_answers, unit.new.reserved_evaluations)
        if granted:
            unit.reserved_tokens = tokens
        run.progress.reserved_tokens += unit.reserved_tokens
        return granted

    def commit_proposals(self, lease: Lease, batch: ProposedBatch) -> Commit | None:
        def body(run: MemoryRun, change: RunChange, reserved: tuple[int, int]) -> Sequence[Placement]:
            run.rollouts[lease.ordinal] = batch.rollouts
            if batch.advice is not None:
                run.advice[batch.advice.number] = batch.advice
            ledger.record_proposals(change, run.context, lease, reserved, batch)
            return self._place(run, batch.placements)

        return self._finish(lease, body, batch.rollouts)

    def commit_evaluations(self, lease: Lease, batch: EvaluatedBatch) -> Commit | None:
        def body(run: MemoryRun, change: RunChange, reserved: tuple[int, int]) -> Sequence[Placement]:
            run.candidates |= {each.number: each for each in with_spending(run.progress, batch.candidates)}
            run.batches |= dict.fromkeys((each.number for each in batch.candidates), lease.ordinal)
            granted, revision = self._place(run, batch.placements), None
            if run.context.problem.is_noisy:
                granted, revision = self._revise(run, lease.ordinal, batch)
            ledger.record_evaluations(change, run.context, lease, reserved, batch, granted, revision)
            return granted

        return self._finish(lease, body)

    def commit_confirmation(self, lease: Lease, confirmation: Confirmation) -> Commit | None:
        def body(run: MemoryRun, change: RunChange, _: tuple[int, int]) -> None:
            number, mask = confirmation.number, confirmation.refuted_targets
            for at, candidate in run.candidates.items():
                if number in (at, candidate.duplicate_of):
                    refuted = candidate.refuted | candidate.targets & mask
                    run.candidates[at] = replace(candidate, refuted=refuted, repeats=confirmation.repeats)
            revision = None
            if confirmation.refuted and run.context.problem.is_noisy:
                revision = self._revise(run, lease.ordinal, EvaluatedBatch(()), mask)[1]
            else:
                for position in confirmation.refuted:
                    self._refill_target(run, number, position)
            names = [target.name for target in run.context.problem.targets]
            claims = {i: run.claims[name, number] for i, name in enumerate(names) if (name, number) in run.claims}
            find, elites = partial(earliest_claimant, run), partial(ranked_elites, run)
            ledger.record_confirmation(change, run.context, lease, confirmation, claims, find, elites, revision)

        return self._finish(lease, body)

    def commit_final(self, lease: Lease, final: FinalValue) -> Commit | None:
        def body(run: MemoryRun, change: RunChange, _: tuple[int, int]) -> None:
            ledger.record_final(change, run.context, final, ranked_elites(run))

        return self._finish(lease, body)

    def learned(self, run_id: UUID) -> LearnedVersion | None:
        return self._run(run_id).learned

    def groups(self, run_id: UUID, refs: Sequence[GroupRef]) -> tuple[StoredGroup, ...]:
        return tuple(stored_group(self._run(UUID(ref.run) if ref.run else run_id), ref) for ref in refs)

    def commit_step(self, lease: Lease, step: LearnedStep) -> Commit | None:
        def body(run: MemoryRun, change: RunChange, _: tuple[int, int]) -> None:
            run.learned = LearnedVersion(step.policy, uuid7(), step.number)
            ledger.record_step(change, run.context, lease, step, run.learned.policy_id)

        return self._finish(lease, body)

    def end_learning(self, lease: Lease, reason: str) -> Commit | None:
        return self._finish(lease, lambda run, change, _: ledger.end_learning(change, run.context, lease, reason))

    def external_results(self, work_id: UUID) -> dict[tuple[str, int], Evaluation]:
        return {key: result for key, result in self._unit(work_id)[1].external.items() if result is not None}

    def park(self, lease: Lease, requests: Sequence[EvaluationRequest]) -> Commit | None:
        run, unit = self._unit(lease.work_id)
        if not holds(unit, lease):
            return None
        for request in requests:
            unit.external.setdefault((request.program_hash, request.seed), request.result)
        unit.state, unit.token, unit.attempt = "parked", None, unit.attempt - 1
        return self._write(run, RunChange(run.progress))

    def submit(self, work_id: UUID, program_hash: str, seed: int, result: Evaluation) -> Commit:
        """Store an external result; the last one of a unit makes it ready."""
        run, unit = self._unit(work_id)
        unit.external[program_hash, seed] = result
        refs: tuple[WorkRef, ...] = ()
        if unit.state == "parked" and None not in unit.external.values():
            unit.state, refs = "ready", (WorkRef(work_id, unit.new.kind),)
        return replace(self._write(run, RunChange(run.progress)), dispatch=refs)

    def end_lane(self, lease: Lease) -> Commit | None:
        return self._finish(lease, lambda run, change, reserved: ledger.end_lane(change, run.context, reserved))

    def release(self, lease: Lease, reason: str, *, spent: Charge | None = None) -> Commit | None:
        run, unit = self._unit(lease.work_id)
        if not holds(unit, lease):
            if spent is not None:
                self._charge_cancelled(run, unit, lease, spent)
            return None
        change = RunChange(run.progress)
        run.progress.reserved_tokens -= unit.reserved_tokens
        answers = unit.new.reserved_evaluations
        lost = spent or ledger.most_of(run.progress, run.context, answers, unit.reserved_tokens)
        if lost != Charge():
            ledger.record_lost_attempt(change, lease, lost)
        unit.state, unit.token, unit.attempt, unit.reserved_tokens = "ready", None, unit.attempt - 1, 0
        if run.progress.state is not RunState.RUNNING:
            return self._write(run, change)
        if any(event.kind is EventKind.RUN_RESUMED for event in run.events[lease.last_event :]):
            return replace(self._write(run, change), dispatch=(WorkRef(lease.work_id, lease.kind),))
        stopping.pause(change, reason, fault=True)
        return self._write(run, change)

    def move(self, run_id: UUID, step: Callable[[RunChange], None]) -> Commit:
        """Change a run's state by a function of the ledger, and dispatch the ready work of a running run."""
        run = self._run(run_id)
        self._tick(run)
        commit = self._change(run, step)
        running = run.progress.state is RunState.RUNNING
        ready = [(i, u) for i, u in run.units.items() if u.state == "ready"] if running else []
        refs = tuple(WorkRef(i, u.new.kind, retried=u.attempt > 0) for i, u in ready)
        return replace(commit, dispatch=refs)

    def charge(self, run_id: UUID, lost: Charge) -> None:
        ledger.charge(self._run(run_id).progress, lost)

    def resume_diagnosed(self, run_id: UUID) -> Commit | None:
        """Resume a run that a diagnosis paused; return None for any other run."""
        run = self._run(run_id)
        if run.progress.state is not RunState.PAUSED or not run.progress.diagnosis:
            return None
        return self.move(run_id, lambda change: ledger.resume(change, run.context))

    def grant(self, run_id: UUID, granted: int) -> Commit:
        run = self._run(run_id)
        return self._change(run, lambda change: ledger.grant_budget(change, run.context, granted))

    def close(self, run_id: UUID, reason: str) -> Commit:
        run = self._run(run_id)
        return self.move(run_id, lambda change: stopping.complete_waiting_run(change, run.context, reason))

    def reconcile(self) -> ReconcileReport:
        commits = []
        for run in self.runs.values():
            self._tick(run)
            confirming = open_confirmations(run)
            if stopping.out_of_time(run.progress, run.context) and (not confirming or run.progress.live != confirming):
                change = RunChange(run.progress)
                stopping.expire(change, run.context, confirming)
                commits.append(self._write(run, change))
        return ReconcileReport(tuple(commits))

    def _finish(
        self,
        lease: Lease,
        body: Callable[[MemoryRun, RunChange, tuple[int, int]], Sequence[Placement] | None],
        rollouts: Sequence[Rollout] = (),
    ) -> Commit | None:
        run, unit = self._unit(lease.work_id)
        if not holds(unit, lease):
            self._charge_cancelled(run, unit, lease, ledger.charge_of(run.context, rollouts))
            return None
        self._tick(run)
        unit.state, unit.token = "done", None
        change = RunChange(run.progress)
        if lease.kind is not WorkKind.CONFIRM and stopping.out_of_time(run.progress, run.context):
            ledger.settle(run.progress, run.context, unit.reserved_tokens, rollouts)
            stopping.expire(change, run.context, open_confirmations(run))
            return self._write(run, change)
        granted = body(run, change, (unit.new.reserved_evaluations, unit.reserved_tokens))
        return replace(self._write(run, change), placements=tuple(granted or ()))

    def _charge_cancelled(self, run: MemoryRun, unit: MemoryUnit, lease: Lease, spent: Charge) -> None:
        if unit.state == "cancelled" and unit.token == lease.token:
            unit.token = None
            run.progress.reserved_tokens -= unit.reserved_tokens
            ledger.charge(run.progress, spent)

    def _refill_target(self, run: MemoryRun, number: int, target: int) -> None:
        prefix = f"{TARGET}{run.context.problem.targets[target].name}/"
        for at in [at for at, p in run.elites.items() if p.number == number and at[1].startswith(prefix)]:
            del run.elites[at]
        self._place(run, target_placements(run.context.problem, _meeting(run, 1 << target), prefix))

    def _place(self, run: MemoryRun, updates: Sequence[Placement]) -> tuple[Placement, ...]:
        granted = []
        for update in best_per_cell(updates):
            elite = run.elites.get((update.island, update.cell))
            if elite is None or update.fitness > elite.fitness:
                run.elites[update.island, update.cell] = update
                granted.append(update)
        return tuple(granted)

    def _revise(
        self, run: MemoryRun, ordinal: int, batch: EvaluatedBatch, refuted: TargetSet = 0
    ) -> tuple[tuple[Placement, ...], Revision]:
        context, archive = run.context, [run.elites[key] for key in sorted(run.elites)]
        new, repeated = batch.newcomers, batch.repeated
        meeting = [each.number for each in _meeting(run, refuted)]
        best = [] if run.progress.best_number is None else [run.progress.best_number]
        holders = [each.number for each in archive]
        members = self.members(context.run_id, [*new, *repeated, *meeting, *best, *holders])
        trials = [
            trial_of(
                c.duplicate_of or c.number, c.proposal.trial, c.first or c.evaluation.rewards, c.evaluation.failure
            )
            for c in run.candidates.values()
        ]
        strategy = build_strategy(context.spec.strategy, context.spec.strategy_options)
        population = partial(StoredPopulation, self, context)
        known = [each for each in trials if each is not None]
        revision = revise(
            context.problem, strategy, population, ordinal, archive, members, known, new, repeated, meeting
        )
        for each in revision.individuals:
            candidate, estimate = run.candidates[each.number], revision.estimates[each.number]
            changes: dict[str, Any] = {"targets": each.targets | candidate.refuted}
            if estimate.evaluations > 1:
                changes |= {
                    "first": candidate.first or candidate.evaluation.rewards,
                    "evaluation": replace(candidate.evaluation, rewards=estimate.mean),
                    "error": estimate.error,
                    "evaluations": estimate.evaluations,
                }
            run.candidates[each.number] = replace(candidate, **changes)
        run.elites = {(each.island, each.cell): each for each in revision.archive}
        return revision.changes(archive), revision

    def _change(self, run: MemoryRun, step: Callable[[RunChange], None]) -> Commit:
        change = RunChange(run.progress)
        step(change)
        return self._write(run, change)

    def _write(self, run: MemoryRun, change: RunChange) -> Commit:
        progress = run.progress
        if change.cancel_rest:
            for unit in run.units.values():
                spared = change.spare_confirmations and unit.new.kind is WorkKind.CONFIRM
                if unit.state in {"ready", "leased", "parked"} and not spared:
                    unit.state = "cancelled"  # with its token, by which it is charged
        refs = tuple(WorkRef(uuid7(), new.kind) for new in change.works)
        run.units |= {ref.id: MemoryUnit(new) for ref, new in zip(refs, change.works, strict=True)}
        for claim in change.claims:
            run.claims[claim.target, claim.number] = claim
        run.events.extend(change.events)
        progress.events = len(run.events)
        progress.revision += 1
        running = progress.state is RunState.RUNNING
        run.running_since = self._clock() if running else None
        return Commit(run.context.run_id, refs if running else (), (), progress.revision, progress.events)

    def _tick(self, run: MemoryRun) -> None:
        if run.running_since is not None:
            now = self._clock()
            run.progress.seconds += now - run.running_since
            run.running_since = now

    def _run(self, run_id: UUID) -> MemoryRun:
        if run_id not in self.runs:
            raise NotFoundError(f"there is no run {run_id}.")
        return self.runs[run_id]

    def _unit(self, work_id: UUID) -> tuple[MemoryRun, MemoryUnit]:
        for run in self.runs.values():
            if work_id in run.units:
                return run, run.units[work_id]
        raise NotFoundError(f"there is no work {work_id}.")
