"""Start, continue and end lanes: the chains of work units that a run has in flight."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from speciate.domain.candidate import Proposal
from speciate.domain.policy import PolicyRole
from speciate.domain.target import Claim, ClaimState
from speciate.ports.work import RunContext, WorkKind
from speciate.runs.guidance import due
from speciate.runs.learning import holds_lane
from speciate.runs.payloads import DueConfirmation, confirm_payload, evaluate_payload
from speciate.runs.progress import NewWork, RunChange, RunProgress
from speciate.runs.stopping import complete, complete_when_idle, notice_plateau, spent_limits
from speciate.search.strategies import strategy_of

EXTERNAL_LANE: Final = -1
"""Lane of proposals from outside: its batches are confirmed and have no successor."""
_SLOW_S: Final = 2.0
"""Seconds per evaluation from which a run is slow."""
_SLOW_LANES: Final = 4
"""Lanes of a slow run: with few evaluations, more of them find less (``docs/evidence/arena.md``)."""


def add_evaluate(
    change: RunChange, lane: int, ordinal: int, proposals: Sequence[Proposal], more: Mapping[str, Any] | None = None
) -> None:
    """Number the proposals of a batch and add the unit that evaluates them; ``more`` is added to its payload.

    The caller reserves the evaluations.
    """
    payload = evaluate_payload(change.progress.numbers + 1, proposals, more)
    change.works.append(NewWork(WorkKind.EVALUATE, lane, ordinal, payload, len(proposals)))
    change.progress.numbers += len(proposals)
    change.progress.live += 1


def continue_lanes(change: RunChange, context: RunContext, *lanes: int) -> None:
    """Start the next batch of some lanes, or end the run if no work is in flight."""
    for lane in lanes:
        if lane != EXTERNAL_LANE and not context.waits_for_proposals:
            _add_generate(change, context, lane)
    complete_when_idle(change, context)


def _add_generate(change: RunChange, context: RunContext, lane: int) -> None:
    progress = change.progress
    left = progress.evaluations_left(context.spec.budget)
    single = context.waits_for_proposals or _first_bill_due(context, progress)
    size, samples = (1, 1) if single else batch_size(context, progress.evaluations)
    answers = size if left is None else min(size, left)
    if progress.stopping or answers == 0 or spent_limits(progress, context) or holds_lane(progress, context, lane):
        return
    payload = {"answers": answers, "samples": samples, **due(context.spec.guidance, progress)}
    change.works.append(NewWork(WorkKind.GENERATE, lane, progress.batches, payload, answers))
    progress.batches += 1
    progress.live += 1
    progress.reserved_evaluations += answers


def open_lanes(progress: RunProgress, context: RunContext) -> range:
    """Open the lanes that a run now needs besides those that it has, and return them.

    A strategy may begin with few. A run that is slow with them, by its model or its evaluator, opens some more.
    """
    needed = _in_flight(context, progress.evaluations)
    if progress.seconds > _SLOW_S * (progress.evaluations + 1):
        needed = max(needed, _SLOW_LANES)
    needed = 1 if _first_bill_due(context, progress) else min(context.spec.lanes, needed)
    opened = range(progress.lanes, max(progress.lanes, needed))
    progress.lanes = opened.stop
    return opened


def _first_bill_due(context: RunContext, progress: RunProgress) -> bool:
    """Return True while a budget of dollars cannot tell what an agent's answer costs: one at a time is requested."""
    return context.bills_afterwards and progress.dearest is None


def _in_flight(context: RunContext, evaluated: int) -> int:
    spec = context.spec
    most = spec.lanes * spec.batch
    if spec.learning is not None:
        return most  # a training step needs whole groups
    return strategy_of(spec).in_flight(most, evaluated)


def batch_size(context: RunContext, evaluated: int) -> tuple[int, int]:
    """Return the answers of the next batch after ``evaluated`` candidates, and those of each of its prompts.

    Both are smaller if the strategy wants fewer.
    """
    spec = context.spec
    # A completion may hold a set of answers; asking for fewer would waste the rest.
    least = min(spec.batch, max(share.policy.answers_per_rollout for share in context.policies(PolicyRole.PROPOSE)))
    size = max(least, _in_flight(context, evaluated) // spec.lanes)
    return size, max(spec.samples_per_prompt * size // spec.batch, min(least, spec.samples_per_prompt))


def proceed(
    change: RunChange,
    context: RunContext,
    lane: int,
    pending: Sequence[Claim],
    *,
    opens: int = 0,
    ends: bool = False,
    queued: Sequence[DueConfirmation] = (),
    failed: bool = False,
) -> None:
    """Continue a lane after a batch: first the pending confirmations, one candidate at a time, then the next batch.

    Confirmations belong to the chain of their lane, so that a run with one lane has a single order of events. A seed
    program ``opens`` that many lanes in place of its own; proposals from outside may open further ones meanwhile. After
    those to a run without lanes a good program is evaluated again, unless that just ``failed``.
    """
    notice_plateau(change.progress, context)
    names = [target.name for target in context.problem.targets]
    positions: dict[int, list[int]] = {}
    for claim in pending:
        positions.setdefault(claim.number, []).append(names.index(claim.target))
    chain = [*((number, tuple(targets)) for number, targets in positions.items()), *queued]
    unlock_confirmed = any(c.unlock and c.state is ClaimState.CONFIRMED for c in change.claims)
    ends = ends or (unlock_confirmed and context.spec.stop_on_unlock)
    if chain:
        payload = confirm_payload(chain, opens=opens, ends=ends)
        change.works.append(NewWork(WorkKind.CONFIRM, lane, change.progress.batches, payload))
        change.progress.live += 1
    elif ends:
        complete(change, context, "the unlock target is confirmed")
    else:
        if context.repeats and context.proposer.is_external and not failed:
            _add_generate(change, context, 0)
        continue_lanes(change, context, *(range(opens) or (lane,)))
