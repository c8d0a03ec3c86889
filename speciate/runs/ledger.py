"""The rules of the work plane as pure functions: what one transaction changes.

A store loads ``Progress`` under a lock, calls one function of this module, and writes the ``Effects`` in the same
transaction. Both the PostgreSQL store and the in-memory store do just that, so budgets, lanes, claims and endings
have one definition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from speciate.domain.candidate import FailureKind, Proposal
from speciate.domain.event import Event, EventKind
from speciate.domain.objective import Direction
from speciate.domain.policy import PolicyRole
from speciate.domain.run import RunState
from speciate.domain.unlock import Claim, ClaimState
from speciate.domain.values import text_digest
from speciate.ports.work import Confirmation, EvaluatedBatch, Lease, Outcome, ProposedBatch, RunContext, WorkKind
from speciate.runs.payloads import confirm_payload, evaluate_payload
from speciate.runs.progress import ALARM_WINDOW, Progress
from speciate.search.strategy import Placement

MOST_REASONS = 100
"""Reasons of failure that a run counts one by one; further ones count as ``other``."""

MAX_ATTEMPTS = 3
"""Attempts after which a unit of work is given up with its reason."""


@dataclass(frozen=True, slots=True)
class NewWork:
    """A unit of work to insert as ready."""

    kind: WorkKind
    lane: int
    ordinal: int
    payload: Mapping[str, Any]
    reserved_evaluations: int = 0


@dataclass(slots=True)
class Effects:
    """What a transaction writes besides ``Progress``.

    Attributes:
        works: Units of work to insert.
        claims: Claims to insert, or to update when one of this target and candidate exists.
        events: Events to append, in order.
        cancel_rest: Whether every other ready or leased unit of the run is cancelled.
        spare_confirmations: Whether confirmations are left out of that.
    """

    works: list[NewWork] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    cancel_rest: bool = False
    spare_confirmations: bool = False

    def event(self, kind: EventKind, **data: Any) -> None:
        """Append an event."""
        self.events.append(Event(kind, data))


FindClaimant = Callable[[int], Claim | None]
"""Given the position of a target, returns the earliest candidate that meets it and has not been refuted."""


def create(progress: Progress, context: RunContext) -> Effects:
    """Book a new run; it does nothing yet."""
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
    )
    progress.state = RunState.CREATED
    return effects


def start(progress: Progress, context: RunContext) -> Effects:
    """Begin: score the seed program first, or open the lanes at once when there is none."""
    effects = Effects()
    progress.state = RunState.RUNNING
    effects.event(EventKind.RUN_STARTED)
    seed = context.problem.seed_program
    if seed:
        proposal = Proposal(program=seed, program_hash=text_digest(seed), role=PolicyRole.SEED)
        _add_evaluate(progress, effects, lane=0, ordinal=0, proposals=[proposal], reserved=1)
        progress.batches = 1
        progress.reserved_evaluations += 1
    else:
        _open_lanes(progress, context, effects)
    return effects


def propose(
    progress: Progress, context: RunContext, lease: Lease, reserved: tuple[int, int], batch: ProposedBatch
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
    # What the policy did not answer goes back to the budget before the successor is measured.
    progress.reserved_evaluations -= evaluations - len(proposals)
    if proposals:
        _add_evaluate(
            progress, effects, lane=lease.lane, ordinal=lease.ordinal, proposals=proposals, reserved=len(proposals)
        )
    else:
        _continue_lane(progress, context, effects, lease.lane)
    return effects


def settle(
    progress: Progress,
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
    for offset, outcome in enumerate(batch.outcomes):
        progress.evaluations += 1
        _count(progress, context, outcome)
        _claim_targets(progress, context, effects, first + offset, outcome)
    effects.event(
        EventKind.BATCH_EVALUATED,
        batch=lease.ordinal,
        lane=lease.lane,
        first=first,
        candidates=[_summary(outcome) for outcome in batch.outcomes],
        archive=[[p.island, p.cell, p.number] for p in granted],
        evaluations=progress.evaluations,
    )
    _judge_alarm(progress, effects)
    pending = [claim for claim in effects.claims if claim.state is ClaimState.PENDING]
    for claim in pending:
        effects.event(EventKind.TARGET_CLAIMED, target=claim.target, candidate=claim.number)
    for claim in effects.claims:
        if claim.state is ClaimState.CONFIRMED:
            _announce(effects, claim)
    opens_lanes = lease.ordinal == 0 and bool(context.problem.seed_program)
    _proceed(progress, context, effects, lease.lane, pending, opens_lanes=opens_lanes)
    return effects


def confirm(
    progress: Progress,
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
        confirmed = _with_state(claim, ClaimState.CONFIRMED)
        effects.claims.append(confirmed)
        _announce(effects, confirmed)
    else:
        effects.claims.append(_with_state(claim, ClaimState.REFUTED))
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
    _proceed(progress, context, effects, lease.lane, pending, opens_lanes=opens, ends=ends, queued=remaining)
    return effects


def end_lane(progress: Progress, context: RunContext, reserved: tuple[int, int]) -> Effects:
    """Finish a unit that could not be afforded."""
    effects = Effects()
    progress.live -= 1
    progress.reserved_evaluations -= reserved[0]
    progress.reserved_tokens -= reserved[1]
    _complete_when_idle(progress, context, effects)
    return effects


def pause(progress: Progress, reason: str | None = None) -> Effects:
    """Stop handing out work; what is in flight is still booked."""
    effects = Effects()
    progress.state, progress.reason = RunState.PAUSED, reason
    effects.event(EventKind.RUN_PAUSED, reason=reason)
    return effects


def resume(progress: Progress) -> Effects:
    """Hand out work again."""
    effects = Effects()
    progress.state, progress.reason = RunState.RUNNING, None
    effects.event(EventKind.RUN_RESUMED)
    return effects


def cancel(progress: Progress, reason: str | None = None) -> Effects:
    """End now; what is in flight is thrown away."""
    return _end(progress, RunState.CANCELLED, EventKind.RUN_CANCELLED, reason)


def expire(progress: Progress, context: RunContext, confirming: int) -> Effects:
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
        progress.reserved_evaluations = progress.reserved_tokens = 0
    else:
        effects = _end(progress, RunState.COMPLETED, EventKind.RUN_COMPLETED, "the budget of seconds is spent")
    _cap_seconds(progress, context)
    return effects


def out_of_time(progress: Progress, context: RunContext) -> bool:
    """Tell whether the budget of seconds is spent, so that what arrives now is late."""
    return progress.state is RunState.RUNNING and progress.spent().seconds_left(context.spec.budget) == 0


def lose(progress: Progress, lease: Lease, reserved: tuple[int, int]) -> Effects:
    """Book the loss of an attempt: the tokens of its requests may have been spent, so they count as spent."""
    effects = Effects()
    progress.reserved_tokens -= reserved[1]
    progress.tokens += reserved[1]
    effects.event(EventKind.WORK_RETRIED, work=lease.kind.value, batch=lease.ordinal, attempt=lease.attempt)
    return effects


def poison_generate(progress: Progress, context: RunContext, lease: Lease, reserved: tuple[int, int]) -> Effects:
    """Give up a ``generate`` unit: pause the run, since a policy that kills its worker thrice will do so again."""
    effects = Effects()
    progress.live -= 1
    progress.reserved_evaluations -= reserved[0]
    progress.reserved_tokens -= reserved[1]
    progress.tokens += reserved[1]
    reason = f"batch {lease.ordinal} lost its worker {MAX_ATTEMPTS} times while asking the policy"
    effects.event(EventKind.WORK_POISONED, work=lease.kind.value, batch=lease.ordinal, reason=reason)
    _continue_lane(progress, context, effects, lease.lane)
    if progress.state is RunState.RUNNING:
        progress.state, progress.reason = RunState.PAUSED, reason
        effects.event(EventKind.RUN_PAUSED, reason=reason)
    return effects


def _add_evaluate(
    progress: Progress, effects: Effects, *, lane: int, ordinal: int, proposals: Sequence[Proposal], reserved: int
) -> None:
    payload = evaluate_payload(progress.numbers + 1, proposals)
    effects.works.append(NewWork(WorkKind.EVALUATE, lane, ordinal, payload, reserved))
    progress.numbers += len(proposals)
    progress.live += 1


def _open_lanes(progress: Progress, context: RunContext, effects: Effects) -> None:
    for lane in range(context.spec.lanes):
        _add_generate(progress, context, effects, lane)
    _complete_when_idle(progress, context, effects)


def _continue_lane(progress: Progress, context: RunContext, effects: Effects, lane: int) -> None:
    _add_generate(progress, context, effects, lane)
    _complete_when_idle(progress, context, effects)


def _add_generate(progress: Progress, context: RunContext, effects: Effects, lane: int) -> None:
    spent, budget = progress.spent(), context.spec.budget
    left = spent.evaluations_left(budget)
    wanted = context.spec.batch if left is None else min(context.spec.batch, left)
    if wanted == 0 or spent.tokens_left(budget) == 0 or spent.seconds_left(budget) == 0:
        return
    effects.works.append(NewWork(WorkKind.GENERATE, lane, progress.batches, {"answers": wanted}, wanted))
    progress.batches += 1
    progress.live += 1
    progress.reserved_evaluations += wanted


def _proceed(
    progress: Progress,
    context: RunContext,
    effects: Effects,
    lane: int,
    pending: Sequence[Claim],
    *,
    opens_lanes: bool,
    ends: bool = False,
    queued: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Go on after a batch: confirmations first, one after the other, then the lane's next batch.

    Confirmations are part of the chain of their lane, so that a run with one lane has one order of events.
    """
    names = [target.name for target in context.problem.targets]
    chain = [*({"number": c.number, "target": names.index(c.target)} for c in pending), *queued]
    unlock_confirmed = any(c.unlock and c.state is ClaimState.CONFIRMED for c in effects.claims)
    ends = ends or (unlock_confirmed and context.spec.stop_on_unlock)
    if chain:
        head, *rest = chain
        payload = confirm_payload(head["number"], head["target"], then=rest, opens=opens_lanes, ends=ends)
        effects.works.append(NewWork(WorkKind.CONFIRM, lane, progress.batches, payload))
        progress.live += 1
    elif ends:
        ended = _end(progress, RunState.COMPLETED, EventKind.RUN_COMPLETED, "the unlock target is confirmed")
        effects.events.extend(ended.events)
        effects.cancel_rest = True
    elif opens_lanes:
        _open_lanes(progress, context, effects)
    else:
        _continue_lane(progress, context, effects, lane)


def _complete_when_idle(progress: Progress, context: RunContext, effects: Effects) -> None:
    if progress.live == 0 and progress.state in {RunState.RUNNING, RunState.PAUSED}:
        budget, spent = context.spec.budget, progress.spent()
        used = [
            name
            for name, left in (
                ("evaluations", spent.evaluations_left(budget)),
                ("tokens", spent.tokens_left(budget)),
                ("seconds", spent.seconds_left(budget)),
            )
            if left == 0
        ]
        what = " and ".join(used) if used else "tokens: the rest does not hold another request"
        progress.state, progress.reason = RunState.COMPLETED, f"the budget of {what} is spent"
        _cap_seconds(progress, context)
        effects.event(EventKind.RUN_COMPLETED, reason=progress.reason, evaluations=progress.evaluations)


def _cap_seconds(progress: Progress, context: RunContext) -> None:
    """Do not charge the moments in which the end was noticed, or confirmations were awaited."""
    if context.spec.budget.seconds is not None:
        progress.seconds = min(progress.seconds, context.spec.budget.seconds)


def _end(progress: Progress, state: RunState, kind: EventKind, reason: str | None) -> Effects:
    effects = Effects(cancel_rest=True)
    progress.state, progress.reason = state, reason
    progress.live = 0
    progress.reserved_evaluations = progress.reserved_tokens = 0
    effects.event(kind, reason=reason, evaluations=progress.evaluations)
    return effects


def _count(progress: Progress, context: RunContext, outcome: Outcome) -> None:
    failure, rewards = outcome.evaluation.failure, outcome.evaluation.rewards
    progress.duplicates += outcome.duplicate_of is not None
    label = failure.kind.value if failure else "ok"
    progress.recent[label] = progress.recent.get(label, 0) + 1
    if failure:
        progress.failed += 1
        progress.failures[failure.kind.value] = progress.failures.get(failure.kind.value, 0) + 1
        # Reasons may be an author's own words: the row that every commit rewrites must not grow with them.
        known = failure.reason in progress.reasons or len(progress.reasons) < MOST_REASONS
        reason = failure.reason if known else "other"
        progress.reasons[reason] = progress.reasons.get(reason, 0) + 1
    elif rewards is not None:
        progress.evaluated += 1
        if outcome.duplicate_of is None:
            _raise_best(progress, context, rewards)


def _raise_best(progress: Progress, context: RunContext, rewards: tuple[float, ...]) -> None:
    if not progress.best:
        progress.best = list(rewards)
    else:
        for i, objective in enumerate(context.problem.objectives):
            better = max if objective.direction is Direction.MAXIMIZE else min
            progress.best[i] = better(progress.best[i], rewards[i])
    scalar = context.problem.scalarize(rewards)
    if scalar is not None and (progress.best_scalar is None or scalar > progress.best_scalar):
        progress.best_scalar = scalar


def _claim_targets(progress: Progress, context: RunContext, effects: Effects, number: int, outcome: Outcome) -> None:
    if outcome.duplicate_of is not None:
        return
    fresh = outcome.targets & ~progress.claimed
    state = ClaimState.PENDING if context.problem.confirmations else ClaimState.CONFIRMED
    for position, target in enumerate(context.problem.targets):
        if fresh >> position & 1:
            effects.claims.append(
                Claim(
                    target.name, number, progress.evaluations, progress.tokens, progress.seconds, target.unlock, state
                )
            )
    progress.claimed |= fresh
    if state is ClaimState.CONFIRMED:
        progress.confirmed |= fresh


def _announce(effects: Effects, claim: Claim) -> None:
    effects.event(
        EventKind.TARGET_CONFIRMED,
        target=claim.target,
        candidate=claim.number,
        evaluations=claim.evaluations,
        tokens=claim.tokens,
        unlock=claim.unlock,
    )


def _with_state(claim: Claim, state: ClaimState) -> Claim:
    return Claim(claim.target, claim.number, claim.evaluations, claim.tokens, claim.seconds, claim.unlock, state)


def _summary(outcome: Outcome) -> dict[str, Any]:
    evaluation, proposal = outcome.evaluation, outcome.proposal
    return {
        "rewards": list(evaluation.rewards) if evaluation.rewards is not None else None,
        "failure": evaluation.failure.kind.value if evaluation.failure else None,
        "reason": evaluation.failure.reason if evaluation.failure else None,
        "island": proposal.island,
        "parents": list(proposal.parents),
        "role": proposal.role.value,
        "program": proposal.program_hash[:16],
        "duplicate_of": outcome.duplicate_of,
        "targets": outcome.targets,
    }


def _judge_alarm(progress: Progress, effects: Effects) -> None:
    total = sum(progress.recent.values())
    if total < ALARM_WINDOW:
        return
    failed = {kind: count for kind, count in progress.recent.items() if kind != "ok"}
    share = sum(failed.values()) / total
    if share > 0.5:
        worst = max(failed, key=lambda kind: (failed[kind], kind))
        progress.alarm = f"{share:.0%} of the last {total} candidates failed, most of them by {worst}"
        effects.event(EventKind.ALARM_RAISED, share=share, failures=dict(failed), message=progress.alarm)
    elif progress.alarm:
        progress.alarm = None
        effects.event(EventKind.ALARM_CLEARED, share=share)
    progress.recent = {}


def lost_outcomes(proposals: Sequence[Proposal]) -> tuple[FailureKind, str, str]:
    """Return the failure that candidates of a poisoned ``evaluate`` unit are booked with."""
    text = f"the evaluation lost its worker {MAX_ATTEMPTS} times with this batch of {len(proposals)}"
    return FailureKind.CRASHED, "worker_lost", text
