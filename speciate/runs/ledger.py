"""The rules of the work plane as pure functions: what one transaction changes.

A store loads ``RunProgress`` under a lock, calls one function of this module, and writes the ``Effects`` in the same
transaction. Both the PostgreSQL store and the in-memory store do just that, so budgets, lanes, claims and endings
have one definition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from speciate.domain.candidate import FailureKind, Proposal
from speciate.domain.event import EventKind
from speciate.domain.policy import PolicyRole
from speciate.domain.run import RunState
from speciate.domain.target import Claim, ClaimState
from speciate.domain.values import text_digest
from speciate.ports.work import Confirmation, EvaluatedBatch, Lease, ProposedBatch, RunContext
from speciate.runs.ensemble import count_arm
from speciate.runs.guidance import adopt, count_gain
from speciate.runs.lanes import (
    WAITING,
    add_evaluate,
    cap_seconds,
    complete_when_idle,
    continue_lane,
    end_run,
    open_lanes,
    proceed,
)
from speciate.runs.progress import Effects, RunProgress
from speciate.runs.tally import announce, claim_targets, count, judge_alarm, summary, with_state
from speciate.search.cells import improves
from speciate.search.strategy import Placement

MAX_ATTEMPTS = 3
"""Attempts after which a unit of work is given up with its reason."""


FindClaimant = Callable[[int], Claim | None]
"""Given the position of a target, returns the earliest candidate that meets it and has not been refuted."""


def create(progress: RunProgress, context: RunContext, granted: int | None = None) -> Effects:
    """Book a new run; it does nothing yet. A campaign grants it evaluations, the first ones here."""
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
        **_ensembles(context),
    )
    progress.state = RunState.CREATED
    if granted is not None:
        _grant(progress, effects, granted)
    return effects


def _ensembles(context: RunContext) -> dict[str, Any]:
    """Return what the first event says of several policies; nothing where every role has one."""
    if not context.has_ensemble:
        return {}
    shares = {role.value: [[s.policy.digest, s.weight] for s in of] for role, of in sorted(context.ensembles.items())}
    discount = context.spec.policy_discount
    more = {} if discount == 1.0 else {"discount": discount}
    return {"choice": context.spec.policy_choice.value, **more, "ensembles": shares}


def start(progress: RunProgress, context: RunContext) -> Effects:
    """Begin: score the seed program first, or open the lanes at once when there is none."""
    effects = Effects()
    progress.state = RunState.RUNNING
    effects.event(EventKind.RUN_STARTED)
    seed = context.problem.seed_program
    if seed:
        proposal = Proposal(program=seed, program_hash=text_digest(seed), role=PolicyRole.SEED)
        add_evaluate(progress, effects, lane=0, ordinal=0, proposals=[proposal], reserved=1)
        progress.batches = 1
        progress.reserved_evaluations += 1
    else:
        open_lanes(progress, context, effects)
    return effects


def record_proposals(
    progress: RunProgress, context: RunContext, lease: Lease, reserved: tuple[int, int], batch: ProposedBatch
) -> Effects:
    """Book a generated batch.

    Args:
        progress: The run's counters, changed in place.
        context: What never changes about the run.
        lease: The ``generate`` unit.
        reserved: Evaluations and tokens that the unit had set aside.
        batch: What it made.
    """
    effects = Effects()
    evaluations, tokens = reserved
    spent_tokens = sum(rollout.tokens for rollout in batch.rollouts)
    progress.live -= 1
    progress.rollouts += len(batch.rollouts)
    progress.reserved_tokens -= tokens
    progress.tokens += spent_tokens
    proposals = batch.proposals[:evaluations]
    for rollout in batch.rollouts:
        count_arm(progress, context, rollout.role, rollout.policy, lease.ordinal, tokens=rollout.tokens)
    for proposal in proposals:
        count_arm(progress, context, proposal.role, proposal.policy, lease.ordinal, asked=1)
    effects.event(
        EventKind.BATCH_PROPOSED,
        batch=lease.ordinal,
        lane=lease.lane,
        first=progress.numbers + 1,
        proposals=len(proposals),
        rollouts=len(batch.rollouts),
        tokens=spent_tokens,
        rejected=dict(Counter(p.failure.reason for p in proposals if p.failure)),
    )
    if batch.advice is not None and context.spec.guidance is not None:
        adopt(progress, effects, context.spec.guidance.most, batch.advice)
    # What the policy did not answer goes back to the budget before the successor is measured.
    progress.reserved_evaluations -= evaluations - len(proposals)
    if proposals:
        add_evaluate(
            progress, effects, lane=lease.lane, ordinal=lease.ordinal, proposals=proposals, reserved=len(proposals)
        )
    else:
        continue_lane(progress, context, effects, lease.lane)
    return effects


def record_evaluations(
    progress: RunProgress,
    context: RunContext,
    lease: Lease,
    reserved: tuple[int, int],
    batch: EvaluatedBatch,
    granted: Sequence[Placement],
) -> Effects:
    """Book an evaluated batch; arguments as for ``propose``, ``granted`` being the archive updates that took place."""
    effects = Effects()
    first = int(lease.payload["first"])
    progress.live -= 1
    progress.reserved_evaluations -= reserved[0]
    # A place that ranks by time alone goes to whoever came last, however bad: it earns nothing.
    gains = [placement for placement in granted if improves(placement.cell)]
    winners = {placement.number for placement in gains}
    for offset, outcome in enumerate(batch.outcomes):
        progress.evaluations += 1
        count(progress, context, outcome)
        proposal = outcome.proposal
        won = first + offset in winners
        count_arm(progress, context, proposal.role, proposal.policy, lease.ordinal, judged=1, won=won)
        count_gain(progress, effects, proposal.advice, won=won)
        claim_targets(progress, context, effects, first + offset, outcome)
    progress.improvements += len(winners)
    if gains:
        progress.improved_at = progress.evaluations
    effects.event(
        EventKind.BATCH_EVALUATED,
        batch=lease.ordinal,
        lane=lease.lane,
        first=first,
        candidates=[summary(context, outcome) for outcome in batch.outcomes],
        archive=[[p.island, p.cell, p.number] for p in granted],
        evaluations=progress.evaluations,
    )
    judge_alarm(progress, effects)
    pending = [claim for claim in effects.claims if claim.state is ClaimState.PENDING]
    for claim in pending:
        effects.event(EventKind.TARGET_CLAIMED, target=claim.target, candidate=claim.number)
    for claim in effects.claims:
        if claim.state is ClaimState.CONFIRMED:
            announce(effects, claim)
    opens_lanes = lease.ordinal == 0 and bool(context.problem.seed_program)
    proceed(progress, context, effects, lease.lane, pending, opens_lanes=opens_lanes)
    return effects


def record_confirmation(
    progress: RunProgress,
    context: RunContext,
    lease: Lease,
    confirmation: Confirmation,
    claim: Claim,
    find_claimant: FindClaimant,
) -> Effects:
    """Book a confirmation; ``claim`` is the claim as stored. A refuted one passes the turn to the next claimant."""
    effects = Effects()
    progress.live -= 1
    bit = 1 << confirmation.target
    pending: list[Claim] = []
    if confirmation.holds:
        progress.confirmed |= bit
        confirmed = with_state(claim, ClaimState.CONFIRMED)
        effects.claims.append(confirmed)
        announce(effects, confirmed)
    else:
        effects.claims.append(with_state(claim, ClaimState.REFUTED))
        effects.event(
            EventKind.TARGET_REFUTED, target=claim.target, candidate=claim.number, detail=confirmation.detail[:2000]
        )
        successor = find_claimant(confirmation.target)
        if successor is None:
            progress.claimed &= ~bit
        else:
            effects.claims.append(successor)
            effects.event(EventKind.TARGET_CLAIMED, target=successor.target, candidate=successor.number)
            pending.append(successor)
    remaining = lease.payload.get("then", [])
    opens, ends = bool(lease.payload.get("opens")), bool(lease.payload.get("ends"))
    proceed(progress, context, effects, lease.lane, pending, opens_lanes=opens, ends=ends, queued=remaining)
    return effects


def end_lane(progress: RunProgress, context: RunContext, reserved: tuple[int, int]) -> Effects:
    """Finish a unit that could not be afforded."""
    effects = Effects()
    progress.live -= 1
    progress.reserved_evaluations -= reserved[0]
    progress.reserved_tokens -= reserved[1]
    complete_when_idle(progress, context, effects)
    return effects


def pause(progress: RunProgress, reason: str | None = None, *, fault: bool = False) -> Effects:
    """Stop handing out work; what is in flight is still booked.

    Args:
        progress: The run's counters, changed in place.
        reason: Why.
        fault: Whether nobody asked for it: something does not work, and somebody should hear of that.
    """
    effects = Effects()
    _pause(progress, effects, reason, fault=fault)
    return effects


def _pause(progress: RunProgress, effects: Effects, reason: str | None, *, fault: bool) -> None:
    progress.state, progress.reason = RunState.PAUSED, reason
    effects.event(EventKind.RUN_PAUSED, reason=reason, **({"fault": True} if fault else {}))


def resume(progress: RunProgress, context: RunContext) -> Effects:
    """Hand out work again."""
    effects = Effects()
    progress.state, progress.reason = RunState.RUNNING, None
    effects.event(EventKind.RUN_RESUMED)
    if progress.live == 0:  # its grant was spent while it was paused, or raised
        open_lanes(progress, context, effects)
    return effects


def grant(progress: RunProgress, context: RunContext, granted: int) -> Effects:
    """Let a campaign's run spend up to so many evaluations in all; one that waited for that goes on.

    Saying it again changes nothing.
    """
    effects = Effects()
    if progress.state.ended or progress.granted is None or granted <= progress.granted:
        return effects
    _grant(progress, effects, granted)
    if progress.state is RunState.PAUSED and progress.reason == WAITING:
        progress.state, progress.reason = RunState.RUNNING, None
        open_lanes(progress, context, effects)
    return effects


def _grant(progress: RunProgress, effects: Effects, granted: int) -> None:
    progress.granted = granted
    effects.event(EventKind.RUN_GRANTED, evaluations=granted)


def close(progress: RunProgress, reason: str) -> Effects:
    """Complete a run that waits for a grant which will not come; any other is left as it is."""
    if progress.state is not RunState.PAUSED or progress.reason != WAITING:
        return Effects()
    return end_run(progress, RunState.COMPLETED, EventKind.RUN_COMPLETED, reason)


def cancel(progress: RunProgress, reason: str | None = None) -> Effects:
    """End now; what is in flight is thrown away."""
    return end_run(progress, RunState.CANCELLED, EventKind.RUN_CANCELLED, reason)


def expire(progress: RunProgress, context: RunContext, confirming: int) -> Effects:
    """End because the seconds are spent; what is in flight would be late and is thrown away.

    Confirmations are the service's own check of what was found in time: the run ends after the last of them.

    Args:
        progress: The run's counters, changed in place.
        context: What never changes about the run.
        confirming: Its ``confirm`` units that are ready or leased.
    """
    if confirming:
        effects = Effects(cancel_rest=True, spare_confirmations=True)
        progress.live = confirming
        progress.reserved_evaluations = 0
    else:
        effects = end_run(progress, RunState.COMPLETED, EventKind.RUN_COMPLETED, "the budget of seconds is spent")
    cap_seconds(progress, context)
    return effects


def out_of_time(progress: RunProgress, context: RunContext) -> bool:
    """Tell whether the budget of seconds is spent, so that what arrives now is late."""
    return progress.state is RunState.RUNNING and progress.spent().seconds_left(context.spec.budget) == 0


def lose(progress: RunProgress, lease: Lease, reserved: tuple[int, int]) -> Effects:
    """Book the loss of an attempt: the tokens of its requests may have been spent, so they count as spent."""
    effects = Effects()
    progress.reserved_tokens -= reserved[1]
    progress.tokens += reserved[1]
    effects.event(EventKind.WORK_RETRIED, work=lease.kind.value, batch=lease.ordinal, attempt=lease.attempt)
    return effects


def poison_generate(progress: RunProgress, context: RunContext, lease: Lease, reserved: tuple[int, int]) -> Effects:
    """Give up a ``generate`` unit: pause the run, since a policy that kills its worker thrice will do so again."""
    effects = Effects()
    progress.live -= 1
    progress.reserved_evaluations -= reserved[0]
    progress.reserved_tokens -= reserved[1]
    progress.tokens += reserved[1]
    reason = f"batch {lease.ordinal} lost its worker {MAX_ATTEMPTS} times while asking the policy"
    effects.event(EventKind.WORK_POISONED, work=lease.kind.value, batch=lease.ordinal, reason=reason)
    continue_lane(progress, context, effects, lease.lane)
    if progress.state is RunState.RUNNING:
        _pause(progress, effects, reason, fault=True)
    return effects


def lost_outcomes(proposals: Sequence[Proposal]) -> tuple[FailureKind, str, str]:
    """Return the failure that candidates of a poisoned ``evaluate`` unit are booked with."""
    text = f"the evaluation lost its worker {MAX_ATTEMPTS} times with this batch of {len(proposals)}"
    return FailureKind.CRASHED, "worker_lost", text
