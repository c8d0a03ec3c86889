"""Start, continue and end lanes: the chains of work units that a run has in flight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from speciate.domain.candidate import Proposal
from speciate.domain.event import EventKind
from speciate.domain.run import RunState
from speciate.domain.target import Claim, ClaimState
from speciate.ports.work import RunContext, WorkKind
from speciate.runs.guidance import due
from speciate.runs.learning import holds_lane
from speciate.runs.payloads import DueConfirmation, confirm_payload, evaluate_payload
from speciate.runs.progress import Effects, NewWork, RunProgress

WAITING: Final = "it has spent what its campaign granted"
"""Reason of the pause between two grants of a campaign."""


EXTERNAL_LANE: Final = -1
"""Lane of proposals from outside: its batches are confirmed and have no successor."""


def add_evaluate(
    progress: RunProgress,
    effects: Effects,
    *,
    lane: int,
    ordinal: int,
    proposals: Sequence[Proposal],
    reserved: int,
    more: Mapping[str, Any] | None = None,
) -> None:
    """Number the proposals of a batch and add the unit that evaluates them; ``more`` is added to its payload."""
    payload = evaluate_payload(progress.numbers + 1, proposals, more)
    effects.works.append(NewWork(WorkKind.EVALUATE, lane, ordinal, payload, reserved))
    progress.numbers += len(proposals)
    progress.live += 1


def open_lanes(progress: RunProgress, context: RunContext, effects: Effects) -> None:
    """Start every lane with a batch, as far as the budget allows. A run that waits for proposals has no lanes."""
    for lane in range(0 if context.waits_for_proposals else context.spec.lanes):
        _add_generate(progress, context, effects, lane)
    complete_when_idle(progress, context, effects)


def continue_lane(progress: RunProgress, context: RunContext, effects: Effects, lane: int) -> None:
    """Start the next batch of a lane, or end the run if no work is in flight."""
    if lane != EXTERNAL_LANE and not context.waits_for_proposals:
        _add_generate(progress, context, effects, lane)
    complete_when_idle(progress, context, effects)


def continue_held(progress: RunProgress, context: RunContext, effects: Effects, lanes: Sequence[int]) -> None:
    """Start the next batch of lanes that waited for a training step, or end the run if no work is in flight."""
    for lane in lanes:
        _add_generate(progress, context, effects, lane)
    complete_when_idle(progress, context, effects)


def _add_generate(progress: RunProgress, context: RunContext, effects: Effects, lane: int) -> None:
    left = progress.evaluations_left(context.spec.budget)
    wanted = context.spec.batch if left is None else min(context.spec.batch, left)
    if progress.stopping or wanted == 0 or _spent_limits(progress, context):
        return
    if holds_lane(progress, context, lane):
        return
    payload = {"answers": wanted, **due(context.spec.guidance, progress)}
    effects.works.append(NewWork(WorkKind.GENERATE, lane, progress.batches, payload, wanted))
    progress.batches += 1
    progress.live += 1
    progress.reserved_evaluations += wanted


def proceed(
    progress: RunProgress,
    context: RunContext,
    effects: Effects,
    lane: int,
    pending: Sequence[Claim],
    *,
    opens_lanes: bool,
    ends: bool = False,
    queued: Sequence[DueConfirmation] = (),
) -> None:
    """Continue a lane after a batch: first the pending confirmations, one candidate at a time, then the next batch.

    Confirmations belong to the chain of their lane, so that a run with one lane has a single order of events.
    """
    _notice_plateau(progress, context)
    names = [target.name for target in context.problem.targets]
    due: dict[int, list[int]] = {}
    for claim in pending:
        due.setdefault(claim.number, []).append(names.index(claim.target))
    chain = [*((number, tuple(targets)) for number, targets in due.items()), *queued]
    unlock_confirmed = any(c.unlock and c.state is ClaimState.CONFIRMED for c in effects.claims)
    ends = ends or (unlock_confirmed and context.spec.stop_on_unlock)
    if chain:
        payload = confirm_payload(chain, opens=opens_lanes, ends=ends)
        effects.works.append(NewWork(WorkKind.CONFIRM, lane, progress.batches, payload))
        progress.live += 1
    elif ends:
        ended = end_run(progress, RunState.COMPLETED, EventKind.RUN_COMPLETED, "the unlock target is confirmed")
        effects.events.extend(ended.events)
        effects.cancel_rest = True
    elif opens_lanes:
        open_lanes(progress, context, effects)
    else:
        continue_lane(progress, context, effects, lane)


def _notice_plateau(progress: RunProgress, context: RunContext) -> None:
    """Start no further batch once the archive has not improved for ``stop_on_plateau`` evaluations.

    Work in flight is still recorded: it is paid for, and a target that it reaches needs confirmation.
    """
    patience = context.spec.stop_on_plateau
    if patience is not None and progress.since_improvement() >= patience and progress.stopping is None:
        progress.stopping = f"the archive has not improved for {progress.since_improvement()} evaluations"


def complete_when_idle(progress: RunProgress, context: RunContext, effects: Effects) -> None:
    """Complete a run without work in flight, or pause it until its campaign grants more evaluations.

    A run that waits for proposals completes when its budget is spent or it stops improving.
    """
    if progress.live == 0 and progress.state in {RunState.RUNNING, RunState.PAUSED}:
        if _awaits_grant(progress, context):
            if progress.state is RunState.RUNNING:
                progress.state, progress.reason = RunState.PAUSED, WAITING
                effects.event(EventKind.RUN_PAUSED, reason=WAITING)
            return
        used = _spent_limits(progress, context)
        if context.waits_for_proposals and not used and not progress.stopping:
            return
        exhausted = f"the budget of {' and '.join(used)} is spent"
        progress.state = RunState.COMPLETED
        scarce = "token budget" if context.spec.budget.dollars is None else "budget"
        unaffordable = f"the rest of the {scarce} does not suffice for another request"
        progress.reason = progress.stopping or (exhausted if used else unaffordable)
        cap_seconds(progress, context)
        effects.event(EventKind.RUN_COMPLETED, reason=progress.reason, evaluations=progress.evaluations)


def _spent_limits(progress: RunProgress, context: RunContext) -> list[str]:
    """Return the limits of the budget that are spent."""
    budget, spent = context.spec.budget, progress.spent()
    left = {
        "evaluations": spent.evaluations_left(budget),
        "tokens": spent.tokens_left(budget),
        "seconds": spent.seconds_left(budget),
        "dollars": spent.dollars_left(budget, context.token_price),
    }
    return [name for name, amount in left.items() if amount == 0]


def _awaits_grant(progress: RunProgress, context: RunContext) -> bool:
    exhausted = progress.granted == progress.evaluations
    return exhausted and not progress.stopping and progress.spent().evaluations_left(context.spec.budget) != 0


def cap_seconds(progress: RunProgress, context: RunContext) -> None:
    """Charge no more seconds than the budget: detecting the end and confirmations take extra time."""
    if context.spec.budget.seconds is not None:
        progress.seconds = min(progress.seconds, context.spec.budget.seconds)


def end_run(progress: RunProgress, state: RunState, kind: EventKind, reason: str | None) -> Effects:
    """Move a run to a final state and cancel all work in flight."""
    effects = Effects(cancel_rest=True)
    progress.state, progress.reason = state, reason
    progress.live = 0
    # Tokens of open requests stay reserved: their real use remains unknown, and quotas must count it.
    progress.reserved_evaluations = 0
    effects.event(kind, reason=reason, evaluations=progress.evaluations)
    return effects
