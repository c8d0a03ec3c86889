"""Count outcomes of candidates, track the best candidate and claim targets."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from speciate.domain.candidate import BUILD_FAILED, Candidate, Individual
from speciate.domain.event import EventKind
from speciate.domain.policy import PolicyRole
from speciate.domain.target import Claim, ClaimState, TargetSet
from speciate.ports.work import RunContext
from speciate.runs.progress import RunChange, RunProgress

MOST_REASONS = 100
"""Failure reasons that a run counts separately; further ones count as ``other``."""

DUPLICATE: Final = "duplicate"
"""Label of a repeated answer in ``RunProgress.recent``."""


def count_outcome(progress: RunProgress, context: RunContext, candidate: Candidate) -> None:
    failure, rewards = candidate.evaluation.failure, candidate.evaluation.rewards
    progress.duplicates += candidate.is_repetition
    progress.reused += candidate.reused_from is not None
    progress.polished += candidate.proposal.role is PolicyRole.POLISH
    label = "ok" if failure is None else BUILD_FAILED if failure.reason == BUILD_FAILED else failure.kind.value
    if candidate.proposal.failure is not None:
        label = candidate.proposal.failure.reason
    elif candidate.is_repetition and context.samples_at_endpoint:  # mutators and tiny models repeat themselves
        label = DUPLICATE
    if candidate.proposal.role not in (PolicyRole.POLISH, PolicyRole.REPEAT):  # the alarm is about what policies write
        progress.recent[label] = progress.recent.get(label, 0) + 1
    if failure:
        progress.failed += 1
        progress.failures[failure.kind.value] = progress.failures.get(failure.kind.value, 0) + 1
        # Problem authors choose reasons freely. The row that every commit rewrites must stay small.
        counted = failure.reason in progress.reasons or len(progress.reasons) < MOST_REASONS
        reason = failure.reason if counted else "other"
        progress.reasons[reason] = progress.reasons.get(reason, 0) + 1
    elif rewards is not None:
        progress.evaluated += 1


def with_spending(progress: RunProgress, candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the candidates of a batch with what the run had spent with each; ``progress`` is from before the batch."""
    return [
        replace(
            candidate,
            spent_evaluations=progress.evaluations + position,
            spent_tokens=progress.tokens,
            spent_seconds=progress.seconds,
        )
        for position, candidate in enumerate(candidates, start=1)
    ]


def keep_best(progress: RunProgress, context: RunContext, rivals: Iterable[Individual]) -> None:
    """Replace the best candidate by the best feasible rival that ranks above it."""
    ranking, candidates = context.problem.ranking, list(rivals)
    best = ranking.merit(progress.best, progress.best_targets) if progress.best_number is not None else None
    # All at once: a single rank costs as much as those of a whole batch.
    merits = ranking.merits([each.vector for each in candidates], [each.targets for each in candidates])
    for rival, merit in zip(candidates, merits, strict=True):
        if merit.feasibility == 0.0 and (best is None or merit > best):
            best = merit
            progress.best_number, progress.best_targets = rival.number, rival.targets
            progress.best = list(rival.vector)


def claim_targets(change: RunChange, context: RunContext, number: int, targets: TargetSet) -> None:
    """Claim the targets that a candidate is the first to meet."""
    progress = change.progress
    spent = (progress.evaluations, progress.tokens, progress.seconds)
    fresh = targets & ~progress.claimed
    state = ClaimState.PENDING if context.problem.confirmations else ClaimState.CONFIRMED
    for position, target in enumerate(context.problem.targets):
        if fresh >> position & 1:
            change.claims.append(Claim(target.name, number, *spent, target.unlock, state))
    progress.claimed |= fresh
    if state is ClaimState.CONFIRMED:
        progress.confirmed |= fresh


def add_confirmed_event(change: RunChange, claim: Claim) -> None:
    change.event(
        EventKind.TARGET_CONFIRMED,
        target=claim.target,
        candidate=claim.number,
        evaluations=claim.evaluations,
        tokens=claim.tokens,
        unlock=claim.unlock,
    )


def summary(context: RunContext, candidate: Candidate) -> dict[str, Any]:
    """Return the entry of one candidate in the event of its batch."""
    evaluation, proposal = candidate.evaluation, candidate.proposal
    policy = {"policy": proposal.policy} if context.has_ensemble else {}
    return policy | {
        "rewards": list(evaluation.rewards) if evaluation.rewards is not None else None,
        "failure": evaluation.failure.kind.value if evaluation.failure else None,
        "reason": evaluation.failure.reason if evaluation.failure else None,
        "island": proposal.island,
        "parents": list(proposal.parents),
        "role": proposal.role.value,
        "program": proposal.program_hash[:16],
        "duplicate_of": candidate.duplicate_of,
        "targets": candidate.targets,
        "repetition": candidate.is_repetition,
    }
