"""Rules of learning in the state of a run: groups wait, are used in steps, or are counted and dropped.

Every group is in one place: waiting in the progress, in the payload of one ``learn`` unit, or in a counter (ADR 52).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Final
from uuid import UUID

import numpy as np
from pydantic import Field

from speciate.domain.candidate import Candidate
from speciate.domain.event import EventKind
from speciate.domain.learning import ROUNDING, Learning, LearningCounters
from speciate.domain.policy import PolicyRole
from speciate.domain.rollout import Rollout
from speciate.ports.work import GroupRef, LearnedStep, Lease, RunContext, WorkKind
from speciate.runs.progress import NewWork, RunChange, RunProgress

LEARN_LANE: Final = -2
"""Lane of ``learn`` units, which have no successor."""


class LearningState(LearningCounters):
    """Document ``learning`` of a run's progress."""

    policy_id: str | None = None  # id of the version in use; None for the policy that the run began with
    waiting: list[GroupRef] = Field(default_factory=list)  # groups for the next steps, oldest first
    held: list[int] = Field(default_factory=list)  # lanes that wait for the step in flight
    slug: str | None = None  # name of the versions, if the runs of a campaign share the learner; None otherwise
    # Groups of the step in flight, if the learner is shared: the next run receives them if this one ends.
    inside: list[GroupRef] = Field(default_factory=list)


def groups_of(rollouts: Sequence[Rollout]) -> list[dict[str, int]]:
    """Return the groups of a batch as JSON values: consecutive completions of one request, all of them with tokens."""
    groups, first = [], 0
    for (role, _, _), same in groupby(rollouts, key=lambda r: (r.role, r.prompt.digest, r.seed)):
        members = list(same)
        written = all(r.completion.has_answer and (r.completion.text or r.completion.token_ids) for r in members)
        if role in (PolicyRole.PROPOSE, PolicyRole.MUTATE) and written:
            tokens = sum(r.completion.tokens for r in members) + len(members) * members[0].prompt_tokens
            groups.append({"first": first, "size": len(members), "tokens": tokens})
        first += len(members)
    return groups


def record_groups(change: RunChange, context: RunContext, lease: Lease, candidates: Sequence[Candidate]) -> None:
    """Record the groups of an evaluated batch, and start a step if enough of them wait."""
    learning = context.spec.learning
    if learning is None or "groups" not in lease.payload:
        return
    state = LearningState.model_validate(change.progress.learning)
    place = {"batch": lease.ordinal, "number": int(lease.payload["first"]), "count": len(candidates)}
    for stored in lease.payload["groups"]:
        group = GroupRef(**stored, **place, step=int(lease.payload["step"]))
        answers = [c for c in candidates if c.proposal.rollout in range(group.first, group.first + group.size)]
        state.seen += 1
        failures = [c.evaluation.failure for c in answers if c.evaluation.failure is not None]
        unknown = any(failure.by_evaluator for failure in failures)  # the reward of an answer
        if state.ended is not None or group.size < learning.min_group or unknown:
            state.dropped += 1
        elif _flat(context, answers, group):
            state.flat += 1
        else:
            state.waiting.append(group)
    _start_step(change, context, state, learning)
    change.progress.learning = state.model_dump()


def _flat(context: RunContext, candidates: Sequence[Candidate], group: GroupRef) -> bool:
    """Return True if all completions earn the same but for rounding, as the learner sees it: a failure is worth as much
    as the minimum.

    Steps from such groups have no advantage, and the optimizer would follow rounding errors.
    """
    earned: list[list[tuple[float, ...] | None]] = [[] for _ in range(group.size)]
    for candidate in candidates:
        earned[(candidate.proposal.rollout or 0) - group.first].append(candidate.evaluation.rewards)
    scaled = learning_context(context, earned)
    learned = np.array([learned_rewards(scaled, rewards) for rewards in earned])
    return bool((np.ptp(learned, axis=0) <= ROUNDING * learned.max(axis=0)).all())


def learning_context(context: RunContext, completions: Iterable[Sequence[tuple[float, ...] | None]]) -> RunContext:
    """Return the context with estimated ranges that reach the best feasible rewards of completions, which none then
    exceeds; the archive does not count, so that a step is a function of its groups."""
    space = context.problem.space
    rewards = np.array([each for earned in completions for each in earned if each is not None])
    objectives = space.widened(rewards[space.violation(rewards) == 0.0]).objectives
    return replace(context, problem=context.problem.model_copy(update={"objectives": objectives}))


def learned_rewards(context: RunContext, earned: Sequence[tuple[float, ...] | None]) -> tuple[tuple[float, ...], ...]:
    """Return the normalised rewards of a completion, shape (answers, k): failures and missing answers are zero."""
    answers = context.proposer.answers_per_rollout
    matrix = np.zeros((answers, len(context.problem.space.selected)))
    for row, rewards in enumerate(earned[:answers]):
        if rewards is not None:
            matrix[row] = np.clip(context.problem.space.normalise([rewards])[0], 0.0, 1.0)
    return tuple(tuple(row) for row in matrix.tolist())


def _start_step(change: RunChange, context: RunContext, state: LearningState, learning: Learning) -> None:
    """Move waiting groups into a ``learn`` unit, if there are enough and none is in flight."""
    if state.busy or state.ended is not None:
        return
    fresh = [group for group in state.waiting if state.step - group.step <= learning.staleness]
    state.stale += len(state.waiting) - len(fresh)
    state.waiting = fresh
    if len(fresh) < learning.groups:
        return
    groups = fresh[: learning.groups]
    tokens = sum(group.tokens for group in groups)
    left = change.progress.tokens_left(context.spec.budget)
    if left is not None and left < tokens:
        _end(change, state, f"the rest of the token budget does not suffice for a step of {tokens} tokens")
        return
    state.waiting = fresh[learning.groups :]
    state.busy = True
    state.tokens += tokens
    change.progress.tokens += tokens
    payload: dict[str, Any] = {"step": state.step, "groups": [group.model_dump() for group in groups]}
    if state.slug is not None:
        state.inside = groups
        payload |= {"slug": state.slug, "campaign": state.campaign}
    change.works.append(NewWork(WorkKind.LEARN, LEARN_LANE, state.step, payload))
    change.progress.live += 1


def holds_lane(progress: RunProgress, context: RunContext, lane: int) -> bool:
    """Return True if a lane has to wait for the step in flight, and note it: sampling may run ahead of learning only as
    far as the groups stay usable."""
    learning = context.spec.learning
    if learning is None or not progress.learning.get("busy"):
        return False
    if len(progress.learning["waiting"]) < learning.staleness * learning.groups:
        return False
    progress.learning = {**progress.learning, "held": [*progress.learning["held"], lane]}
    return True


def finish_step(change: RunChange, context: RunContext, lease: Lease, step: LearnedStep, policy_id: UUID) -> list[int]:
    """Adopt the version of a step, and start the next one if enough groups wait; return the lanes that waited."""
    learning = context.spec.learning
    if learning is None:
        raise ValueError("the run does not learn")
    state = LearningState.model_validate(change.progress.learning)
    groups = lease.payload["groups"]
    state.step, state.policy_id, state.busy, state.inside = step.number, str(policy_id), False, []
    state.taken += 1
    state.used += len(groups)
    state.seconds += step.seconds
    change.event(
        EventKind.LEARNING_STEP,
        step=step.number,
        version=step.version,
        groups=[[group["batch"], group["first"], *([] if state.slug is None else [group["run"]])] for group in groups],
        seconds=round(step.seconds, 3),
        tokens=sum(group["tokens"] for group in groups),
        evaluations=change.progress.evaluations,
        measures=dict(step.metrics),
    )
    if state.step >= learning.steps:
        _end(change, state, f"all {learning.steps} steps are taken")
    _start_step(change, context, state, learning)
    lanes, state.held = state.held, []
    change.progress.learning = state.model_dump()
    return lanes


def end_learning(change: RunChange, lease: Lease, reason: str) -> list[int]:
    """Undo a step and learn no further; return the lanes that waited."""
    state = LearningState.model_validate(change.progress.learning)
    state.busy, state.inside = False, []
    state.dropped += len(lease.payload["groups"])
    _end(change, state, reason)
    lanes, state.held = state.held, []
    change.progress.learning = state.model_dump()
    return lanes


def receive_learner(
    change: RunChange, slug: str, campaign: str, before: RunProgress | None, run_id: UUID | None
) -> None:
    """Let a run of a campaign begin with the version and the waiting groups of the run before it, which leave that one.

    Neither run has work in flight. ``before`` and ``run_id`` are those of the run before; None for the first one.
    """
    state = LearningState.model_validate(change.progress.learning)
    state.slug, state.campaign = slug, campaign
    if before is not None:
        last = LearningState.model_validate(before.learning)
        groups = [*last.inside, *last.waiting]
        state.step, state.policy_id, state.ended = last.step, last.policy_id, last.ended
        state.waiting = [group.model_copy(update={"run": group.run or str(run_id)}) for group in groups]
        state.received += len(groups)
        last.waiting, last.inside, last.busy, last.held = [], [], False, []
        last.passed += len(groups)
        before.learning = last.model_dump()
        version = f"{slug}@{last.step}" if last.step else None
        change.event(EventKind.LEARNING_CONTINUED, run=str(run_id), version=version, groups=len(groups))
    change.progress.learning = state.model_dump()


def _end(change: RunChange, state: LearningState, reason: str) -> None:
    state.dropped += len(state.waiting)
    state.waiting, state.ended = [], reason
    change.event(EventKind.LEARNING_ENDED, reason=reason, step=state.step)
