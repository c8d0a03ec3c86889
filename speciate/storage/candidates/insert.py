"""Insert the rollouts, candidates and reusable results of a batch."""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.candidate import COSTS, Candidate, CandidateStatus, Evaluation, Proposal
from speciate.domain.rollout import Rollout
from speciate.domain.values import storable
from speciate.ids import uuid7
from speciate.ports.work import EvaluatedBatch, Lease, RunContext
from speciate.runs.counters import with_spending
from speciate.runs.progress import RunProgress
from speciate.storage import tables
from speciate.storage.candidates.rows import columns_except, columns_of, from_row, to_row
from speciate.storage.statements import Statements

_ROLLOUT_COLUMNS: Final = columns_except(tables.candidates.rollouts, "run_id", "work_id", "batch", "created_at")
_LATER: Final = ("refuted", "repeats", "first", "error", "evaluations")
"""Columns that later evaluations of a program fill."""
_CANDIDATE_COLUMNS: Final = columns_except(
    tables.candidates.candidates, "run_id", "work_id", "rollout_id", "created_at", *_LATER
)

SQL = Statements(
    __file__,
    rollout_columns=", ".join(column.name for column in _ROLLOUT_COLUMNS),
    candidate_columns=", ".join(column.name for column in _CANDIDATE_COLUMNS),
    evaluation=columns_of(Evaluation, without=(*COSTS, "carried_from"), prefix="c."),
)


def insert_rollouts(
    connection: sa.Connection, context: RunContext, work_id: UUID, ordinal: int, batch: Sequence[tuple[int, Rollout]]
) -> None:
    """Insert the rollouts of a batch with their positions, to which candidates refer, and each prompt once.

    ``work_id`` is a unit of the batch; with the position of a rollout it is unique.
    """
    if not batch:
        return
    by_digest = {rollout.prompt.digest: rollout.prompt for _, rollout in batch}
    # Sorted, so that batches that share prompts cannot deadlock.
    prompts = [
        {"digest": digest, "system": storable(prompt.system), "user": storable(prompt.user)}
        for digest, prompt in sorted(by_digest.items())
    ]
    rows = [_rollout_row(context, rollout, ord_) for ord_, rollout in batch]
    keys = {"run_id": context.run_id, "work_id": work_id, "batch": ordinal}
    connection.execute(SQL.insert_rollouts, {**keys, "prompts": prompts, "rows": rows})


def insert_candidates(
    connection: sa.Connection, context: RunContext, lease: Lease, batch: EvaluatedBatch, progress: RunProgress
) -> None:
    """Insert the candidates of a batch; ``progress`` is the state before the batch."""
    candidates = with_spending(progress, batch.candidates)
    rows = [_candidate_row(context, candidate, ord_) for ord_, candidate in enumerate(candidates)]
    keys = {"run_id": context.run_id, "work_id": lease.work_id, "batch": lease.ordinal}
    connection.execute(SQL.insert_candidates, {**keys, "rows": rows})
    if context.reuses:
        _keep_results(connection, context, candidates)


def _policy_id(context: RunContext, answer: Rollout | Proposal) -> str | None:
    if answer.proposed_by is not None:
        return answer.proposed_by
    if answer.version is not None:
        return answer.version
    return str(context.policies(answer.role)[answer.policy].policy_id) if answer.role.asks_policy else None


def _rollout_row(context: RunContext, rollout: Rollout, ord_: int) -> dict[str, Any]:
    return to_row(
        _ROLLOUT_COLUMNS,
        rollout.completion,
        rollout,
        id=str(uuid7()),
        ord=ord_,
        policy_id=_policy_id(context, rollout),
        prompt_digest=rollout.prompt.digest,
        completion=storable(rollout.completion.text),
        completion_tokens=rollout.completion.tokens,
        finish_reason=storable(rollout.completion.finish_reason),
    )


def _candidate_row(context: RunContext, candidate: Candidate, ord_: int) -> dict[str, Any]:
    proposal, evaluation = candidate.proposal, candidate.evaluation
    failure, rewards = evaluation.failure, evaluation.rewards
    row = to_row(
        _CANDIDATE_COLUMNS,
        proposal,
        evaluation,
        candidate,
        id=str(uuid7()),
        ord=ord_,
        policy_id=_policy_id(context, proposal),
        status=(CandidateStatus.FAILED if failure else CandidateStatus.EVALUATED).value,
        failure=failure.kind.value if failure else None,
        failure_reason=failure.reason if failure else None,
        failure_detail=storable(failure.detail) if failure else None,
        scalar=context.problem.scalarize(rewards) if rewards is not None else None,
        artifacts={storable(k): storable(v) for k, v in evaluation.artifacts.items()},
    )
    return row | {"rollout": proposal.rollout}


def read_results(
    connection: sa.Connection, context: RunContext, hashes: Sequence[str], tier: str
) -> dict[str, tuple[str, Evaluation]]:
    """Return ``run/number`` and result of candidates of other runs, by program hash."""
    keys = {"digest": _evaluator(context), "tier": tier, "hashes": list(hashes)}
    return {
        row.program_hash: (f"{row.run_id}/{row.number}", Evaluation(**from_row(Evaluation, row)))
        for row in connection.execute(SQL.reusable_results, keys)
    }


def _keep_results(connection: sa.Connection, context: RunContext, candidates: Sequence[Candidate]) -> None:
    """Offer the results of a batch to other runs, except failures, which the machine may have caused."""
    rows = [
        {"tier": each.evaluation.tier, "program_hash": each.proposal.program_hash, "number": each.number}
        for each in candidates
        if each.is_reusable
    ]
    if rows:
        keys = {"digest": _evaluator(context), "run_id": context.run_id}
        connection.execute(SQL.keep_results, {**keys, "rows": rows})


def _evaluator(context: RunContext) -> str:
    """Return the key of an evaluator's results: projects do not share them."""
    return f"{context.project_id}/{context.problem.evaluator_digest}"
