"""Rules of run state: the changes of one transaction.

A store loads ``RunProgress`` under a lock, calls one function of this module, and writes the progress and the returned
``Effects`` in the same transaction. The functions do no I/O. They change the given ``RunProgress`` and return what to
write besides it. The PostgreSQL and the in-memory store share these rules for budgets, lanes and claims; those for the
end of a run and for pauses are in ``speciate.runs.stopping``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from speciate.domain.campaign import waits_for_grant
from speciate.domain.candidate import Candidate, Evaluation, Failure, FailureKind, Individual, Proposal
from speciate.domain.charge import Charge
from speciate.domain.event import EventKind
from speciate.domain.guidance import Advice, Guidance
from speciate.domain.policy import PolicyRole
from speciate.domain.rollout import Rollout
from speciate.domain.run import RunState
from speciate.domain.target import Claim, ClaimState
from speciate.ports.work import (
    Confirmation,
    EvaluatedBatch,
    LearnedStep,
    Lease,
    ProposedBatch,
    RunContext,
)
from speciate.runs.counters import (
    add_confirmed_event,
    claim_targets,
    count,
    keep_best,
    new_rivals,
    summary,
)
from speciate.runs.ensemble import count_arm
from speciate.runs.guidance import adopt, count_gain
from speciate.runs.lanes import (
    EXTERNAL_LANE,
    add_evaluate,
    continue_lanes,
    proceed,
)
from speciate.runs.learning import end_learning as stop_learning
from speciate.runs.learning import finish_step, groups_of, record_groups
from speciate.runs.payloads import read_confirmations, read_proposals
from speciate.runs.progress import Effects, RunProgress
from speciate.runs.stopping import complete_when_idle, diagnose, forget_streaks, judge_alarm, pause
from speciate.search.cells import improves
from speciate.search.strategies import build_strategy
from speciate.search.strategy import Placement

MAX_ATTEMPTS = 3
"""Attempts after which a work unit is abandoned."""


FindClaimant = Callable[[int], Claim | None]
"""Maps the position of a target to the claim of the earliest candidate that meets it and is not refuted."""


def create(progress: RunProgress, context: RunContext, granted: int | None = None) -> Effects:
    """Record a new run. ``granted`` is the first grant of its campaign."""
    effects = Effects()
    spec = context.spec
    effects.event(
        EventKind.RUN_CREATED,
        problem=context.problem.digest,
        policy=context.proposer.digest,
        mutator=context.mutator.digest if context.mutator else None,
        strategy=spec.strategy,
        seed=spec.seed,
        lanes=spec.lanes,
        **({"seeds": len(context.seeds)} if context.seeds else {}),
        **_ensembles(context),
    )
    progress.state = RunState.CREATED
    if granted is not None:
        _grant(progress, effects, granted)
    return effects


def _ensembles(context: RunContext) -> dict[str, Any]:
    """Return the first event's data about ensembles; empty if every role has one policy."""
    if not context.has_ensemble:
        return {}
    shares = {role.value: [[s.policy.digest, s.weight] for s in of] for role, of in sorted(context.ensembles.items())}
    discount = context.spec.policy_discount
    more = {} if discount == 1.0 else {"discount": discount}
    return {"choice": context.spec.policy_choice.value, **more, "ensembles": shares}


def start(progress: RunProgress, context: RunContext) -> Effects:
    """Start a run with the evaluation of the seed programs, or with all lanes if there are none."""
    effects = Effects()
    progress.state = RunState.RUNNING
    effects.event(EventKind.RUN_STARTED)
    _begin(progress, context, effects)
    return effects


def _begin(progress: RunProgress, context: RunContext, effects: Effects) -> None:
    """Evaluate the seed programs, unless one is scored, and start all lanes otherwise.

    Seed programs are spread over the islands, from which the strategy lets them migrate.
    """
    unscored = progress.batches <= 1 and not progress.evaluated
    seeds = context.seed_programs[: progress.evaluations_left(context.spec.budget)] if unscored else ()
    if seeds:
        islands = build_strategy(context.spec.strategy, context.spec.strategy_options).islands
        proposals = [
            Proposal(seed.program, seed.digest, PolicyRole.SEED, island=i % islands, origin=seed.origin)
            for i, seed in enumerate(seeds)
        ]
        add_evaluate(progress, effects, lane=0, ordinal=0, proposals=proposals, reserved=len(proposals))
        progress.batches = 1
        progress.reserved_evaluations += len(proposals)
    else:
        continue_lanes(progress, context, effects, *range(context.spec.lanes))


def record_proposals(
    progress: RunProgress, context: RunContext, lease: Lease, reserved: tuple[int, int], batch: ProposedBatch
) -> Effects:
    """Record a generated batch. ``reserved`` are the evaluations and tokens that its unit had reserved."""
    effects = Effects()
    evaluations, tokens = reserved
    progress.live -= 1
    progress.rollouts += len(batch.rollouts)
    progress.reserved_tokens -= tokens
    progress.tokens += sum(rollout.tokens for rollout in batch.rollouts)
    progress.estimated_tokens += sum(rollout.estimated_tokens for rollout in batch.rollouts)
    proposals = batch.proposals[:evaluations]
    for rollout in batch.rollouts:
        count_arm(progress, context, rollout.role, rollout.policy, lease.ordinal, tokens=rollout.tokens)
        price = context.policies(rollout.role)[rollout.policy].policy.price
        if price is not None:
            progress.cost += price.cost(rollout.prompt_tokens, rollout.completion.tokens)
    for proposal in proposals:
        count_arm(progress, context, proposal.role, proposal.policy, lease.ordinal, asked=1)
    _add_proposed_event(progress, effects, lease.lane, lease.ordinal, batch.rollouts, proposals)
    if batch.advice is not None and context.spec.guidance is not None:
        adopt(progress, effects, context.spec.guidance.most, batch.advice)
    # Evaluations for missing answers return to the budget before the next batch is sized.
    progress.reserved_evaluations -= evaluations - len(proposals)
    if proposals:
        add_evaluate(
            progress,
            effects,
            lane=lease.lane,
            ordinal=lease.ordinal,
            proposals=proposals,
            reserved=len(proposals),
            more=None if context.spec.learning is None else {"groups": groups_of(batch.rollouts), "step": batch.step},
        )
    else:
        continue_lanes(progress, context, effects, lease.lane)
    return effects


def _add_proposed_event(
    progress: RunProgress,
    effects: Effects,
    lane: int,
    ordinal: int,
    rollouts: Sequence[Rollout],
    proposals: Sequence[Proposal],
) -> None:
    effects.event(
        EventKind.BATCH_PROPOSED,
        batch=ordinal,
        lane=lane,
        first=progress.numbers + 1,
        proposals=len(proposals),
        rollouts=len(rollouts),
        tokens=sum(rollout.tokens for rollout in rollouts),
        rejected=dict(Counter(p.failure.reason for p in proposals if p.failure)),
    )


def record_external_batch(progress: RunProgress, effects: Effects, batch: ProposedBatch, cost: float) -> None:
    """Record a batch that a proposer outside the service sent (ADR 38), with its cost in US dollars as he states it.

    The caller has checked the budget.
    """
    ordinal, proposals = progress.batches, batch.proposals
    progress.batches += 1
    progress.rollouts += len(batch.rollouts)
    progress.tokens += sum(rollout.tokens for rollout in batch.rollouts)
    progress.cost += cost
    _add_proposed_event(progress, effects, EXTERNAL_LANE, ordinal, batch.rollouts, proposals)
    progress.reserved_evaluations += len(proposals)
    add_evaluate(progress, effects, lane=EXTERNAL_LANE, ordinal=ordinal, proposals=proposals, reserved=len(proposals))


def apply_advice(progress: RunProgress, context: RunContext, text: str, author: str) -> tuple[Advice, Effects]:
    """Add a user's hint to the advice in use; return it with the effects."""
    effects = Effects()
    advice = Advice(progress.batches, text)
    progress.batches += 1
    adopt(progress, effects, (context.spec.guidance or Guidance()).most, advice, author)
    return advice, effects


def record_evaluations(
    progress: RunProgress,
    context: RunContext,
    lease: Lease,
    reserved: tuple[int, int],
    batch: EvaluatedBatch,
    accepted: Sequence[Placement],
) -> Effects:
    """Record an evaluated batch. ``accepted`` are the archive updates that took effect; see ``record_proposals``."""
    effects = Effects()
    progress.live -= 1
    progress.reserved_evaluations -= reserved[0]
    # Cells that rank by time accept every candidate, so entering one is no improvement.
    winners = {placement.number for placement in accepted if improves(placement.cell)}
    for candidate in batch.candidates:
        progress.evaluations += 1
        count(progress, context, candidate)
        proposal, won = candidate.proposal, candidate.number in winners
        if proposal.proposed_by is None:
            count_arm(progress, context, proposal.role, proposal.policy, lease.ordinal, judged=1, won=won)
        count_gain(progress, effects, proposal.advice, won=won)
        claim_targets(progress, context, effects, candidate)
    keep_best(progress, context, new_rivals(batch.candidates))
    progress.improvements += len(winners)
    if winners:
        progress.improved_at = progress.evaluations
    effects.event(
        EventKind.BATCH_EVALUATED,
        batch=lease.ordinal,
        lane=lease.lane,
        first=int(lease.payload["first"]),
        candidates=[summary(context, candidate) for candidate in batch.candidates],
        archive=[[p.island, p.cell, p.number] for p in accepted],
        evaluations=progress.evaluations,
    )
    judge_alarm(progress, effects)
    record_groups(progress, context, effects, lease, batch.candidates)
    pending = _announce_claims(effects)
    opens_lanes = lease.ordinal == 0 and bool(context.seed_programs)
    diagnosis = diagnose(progress, context, batch.candidates)
    if diagnosis is None or not opens_lanes:  # a run without a scored seed program opens no lanes
        proceed(progress, context, effects, lease.lane, pending, opens_lanes=opens_lanes)
    if diagnosis is not None and progress.state is RunState.RUNNING:
        effects.extend(pause(progress, diagnosis.summary, fault=True, diagnosis=diagnosis))
    return effects


def _announce_claims(effects: Effects) -> list[Claim]:
    """Append the events of new claims, pending ones first; return the pending ones."""
    pending = [claim for claim in effects.claims if claim.state is ClaimState.PENDING]
    for claim in pending:
        effects.event(EventKind.TARGET_CLAIMED, target=claim.target, candidate=claim.number)
    for claim in effects.claims:
        if claim.state is ClaimState.CONFIRMED:
            add_confirmed_event(effects, claim)
    return pending


def record_confirmation(
    progress: RunProgress,
    context: RunContext,
    lease: Lease,
    confirmation: Confirmation,
    claims: Mapping[int, Claim],
    find_claimant: FindClaimant,
    elites: Callable[[], Iterable[Individual]],
) -> Effects:
    """Record a confirmation of stored claims, by position of their target.

    The next candidate that meets a refuted target is due. A refuted best candidate competes again with the ``elites``:
    the candidates of the archive without refuted targets.
    """
    effects = Effects()
    progress.live -= 1
    for position in confirmation.confirmed:
        progress.confirmed |= 1 << position
        confirmed = replace(claims[position], state=ClaimState.CONFIRMED)
        effects.claims.append(confirmed)
        add_confirmed_event(effects, confirmed)
    number, refuted = confirmation.number, confirmation.refuted_targets
    if progress.best_number == number and progress.best_targets & refuted:
        progress.best_targets &= ~refuted
        keep_best(progress, context, elites())
    pending: list[Claim] = []
    for position, detail in confirmation.refuted.items():
        claim = claims[position]
        effects.claims.append(replace(claim, state=ClaimState.REFUTED))
        effects.event(EventKind.TARGET_REFUTED, target=claim.target, candidate=number, detail=detail[:2000])
        successor = find_claimant(position)
        if successor is None:
            progress.claimed &= ~(1 << position)
        else:
            effects.claims.append(successor)
            effects.event(EventKind.TARGET_CLAIMED, target=successor.target, candidate=successor.number)
            pending.append(successor)
    _, *queued = read_confirmations(lease.payload)
    opens, ends = bool(lease.payload.get("opens")), bool(lease.payload.get("ends"))
    proceed(progress, context, effects, lease.lane, pending, opens_lanes=opens, ends=ends, queued=queued)
    return effects


def record_step(
    progress: RunProgress, context: RunContext, lease: Lease, step: LearnedStep, policy_id: UUID
) -> Effects:
    """Record a training step; the lanes that waited for it continue, and the next batch uses its version."""
    effects = Effects()
    progress.live -= 1
    lanes = finish_step(progress, context, effects, lease, step, policy_id)
    continue_lanes(progress, context, effects, *lanes)
    return effects


def end_learning(progress: RunProgress, context: RunContext, lease: Lease, reason: str) -> Effects:
    effects = Effects()
    progress.live -= 1
    lanes = stop_learning(progress, effects, lease, reason)
    continue_lanes(progress, context, effects, *lanes)
    return effects


def poison_learn(progress: RunProgress, context: RunContext, lease: Lease) -> Effects:
    """Abandon a step that keeps losing its worker; the run goes on with its last version."""
    effects = Effects()
    reason = f"step {lease.ordinal + 1} lost its worker {MAX_ATTEMPTS} times"
    effects.event(EventKind.WORK_POISONED, work=lease.kind.value, batch=lease.ordinal, reason=reason)
    effects.extend(end_learning(progress, context, lease, reason))
    return effects


def end_lane(progress: RunProgress, context: RunContext, reserved: tuple[int, int]) -> Effects:
    effects = Effects()
    progress.live -= 1
    progress.reserved_evaluations -= reserved[0]
    progress.reserved_tokens -= reserved[1]
    complete_when_idle(progress, context, effects)
    return effects


def resume(progress: RunProgress, context: RunContext) -> Effects:
    """Dispatch work again."""
    effects = Effects()
    progress.state, progress.reason = RunState.RUNNING, None
    effects.event(EventKind.RUN_RESUMED)
    forget_streaks(progress)
    if progress.live == 0:  # the seed was not scored, or the run spent its grant or received a new one
        _begin(progress, context, effects)
    return effects


def grant_budget(progress: RunProgress, context: RunContext, granted: int) -> Effects:
    """Raise the limit of a campaign's run to ``granted`` evaluations in total, and resume it if it waited."""
    effects = Effects()
    if progress.state.ended or progress.granted is None or granted <= progress.granted:
        return effects
    _grant(progress, effects, granted)
    if progress.state is RunState.PAUSED and waits_for_grant(progress.reason):
        progress.state, progress.reason = RunState.RUNNING, None
        continue_lanes(progress, context, effects, *range(context.spec.lanes))
    return effects


def _grant(progress: RunProgress, effects: Effects, granted: int) -> None:
    progress.granted = granted
    effects.event(EventKind.RUN_GRANTED, evaluations=granted)


def charge(progress: RunProgress, spent: Charge) -> None:
    """Charge requests without a recorded answer."""
    progress.tokens += spent.tokens
    progress.cost += spent.cost
    progress.estimated_tokens += spent.estimated


def most_of(reserved_tokens: int, context: RunContext) -> Charge:
    """Return the most that requests with a reservation can have cost: all of it, at the price of the dearest policy."""
    return Charge(reserved_tokens, reserved_tokens * context.token_price, reserved_tokens)


def record_lost_attempt(progress: RunProgress, context: RunContext, lease: Lease, reserved: tuple[int, int]) -> Effects:
    """Record a lost attempt. Its reserved tokens count as spent, since its requests may have used them."""
    effects = Effects()
    progress.reserved_tokens -= reserved[1]
    charge(progress, most_of(reserved[1], context))
    effects.event(EventKind.WORK_RETRIED, work=lease.kind.value, batch=lease.ordinal, attempt=lease.attempt)
    return effects


def poison_generate(progress: RunProgress, context: RunContext, lease: Lease, reserved: tuple[int, int]) -> Effects:
    """Abandon a ``generate`` unit and pause the run, since a further attempt would probably fail as well."""
    effects = Effects()
    progress.live -= 1
    progress.reserved_evaluations -= reserved[0]
    progress.reserved_tokens -= reserved[1]
    charge(progress, most_of(reserved[1], context))
    reason = f"batch {lease.ordinal} lost its worker {MAX_ATTEMPTS} times during policy requests"
    effects.event(EventKind.WORK_POISONED, work=lease.kind.value, batch=lease.ordinal, reason=reason)
    continue_lanes(progress, context, effects, lease.lane)
    if progress.state is RunState.RUNNING:
        effects.extend(pause(progress, reason, fault=True))
    return effects


def lost_candidates(lease: Lease) -> tuple[Candidate, ...]:
    """Return the candidates of a poisoned ``evaluate`` unit, which fail."""
    proposals, first = read_proposals(lease.payload), int(lease.payload["first"])
    text = f"the evaluation of this batch of {len(proposals)} lost its worker {MAX_ATTEMPTS} times"
    failure = Failure(FailureKind.CRASHED, "worker_lost", text)
    return tuple(
        Candidate(number, proposal, Evaluation(failure=proposal.failure or failure))
        for number, proposal in enumerate(proposals, start=first)
    )
