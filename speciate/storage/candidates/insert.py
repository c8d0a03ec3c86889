"""Insert the rollouts, candidates and reusable results of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB, insert

from speciate.domain.candidate import CandidateStatus, Evaluation, Proposal
from speciate.domain.policy import PolicyRole
from speciate.domain.rollout import Rollout
from speciate.domain.values import storable
from speciate.ids import uuid7
from speciate.ports.work import CandidateOutcome, EvaluatedBatch, Lease, ReusedResult, RunContext
from speciate.runs.progress import RunProgress
from speciate.storage.tables import results

_ROLLOUT_COLUMNS = (
    "id uuid, ord int, policy_id uuid, role text, prompt_digest text, seed bigint, completion text, prompt_tokens int,"
    " completion_tokens int, latency_s float8, finish_reason text, mean_logprob float8, logprobs real[],"
    " token_ids int[], reasoning_tokens int, answers int, reason text,"
    " advice bigint, author text, model text"
)
_CANDIDATE_COLUMNS = (
    "id uuid, number bigint, ord int, policy_id uuid, role text, island int, parents bigint[],"
    " inspirations bigint[], program text, program_hash text, status text, failure text, failure_reason text,"
    " failure_detail text, rewards float8[], scalar float8, targets bigint, spent_evaluations bigint,"
    " spent_tokens bigint, spent_seconds float8, duplicate_of bigint, tier text, wall_s float8, cpu_s float8,"
    " memory_bytes bigint, artifacts jsonb, stopped_at text, shape text, reused_from text,"
    " attested_by text, environment text, carried_from bigint, origin text"
)


_ROLLOUT_NAMES = ", ".join(column.split()[0] for column in _ROLLOUT_COLUMNS.split(", "))
_CANDIDATE_NAMES = ", ".join(column.split()[0] for column in _CANDIDATE_COLUMNS.split(", "))

# Prompts and rollouts are inserted in one statement; a candidate refers to its rollout by position in the batch.
_ROLLOUTS = sa.text(
    'WITH shown AS (INSERT INTO prompts (digest, system, "user") SELECT r.digest, r.system, r."user"'
    ' FROM jsonb_to_recordset(:prompts) AS r(digest text, system text, "user" text) ON CONFLICT (digest) DO NOTHING)'
    f" INSERT INTO rollouts (run_id, work_id, batch, {_ROLLOUT_NAMES}) SELECT :run_id, :work_id, :batch,"
    f" {', '.join('r.' + name for name in _ROLLOUT_NAMES.split(', '))}"
    f" FROM jsonb_to_recordset(:rows) AS r({_ROLLOUT_COLUMNS})"
).bindparams(sa.bindparam("prompts", type_=JSONB), sa.bindparam("rows", type_=JSONB))
_CANDIDATES = sa.text(
    f"INSERT INTO candidates (run_id, work_id, rollout_id, {_CANDIDATE_NAMES}) SELECT :run_id, :work_id, o.id,"
    f" {', '.join('r.' + name for name in _CANDIDATE_NAMES.split(', '))}"
    f" FROM jsonb_to_recordset(:rows) AS r({_CANDIDATE_COLUMNS}, rollout int)"
    " LEFT JOIN rollouts o ON o.run_id = :run_id AND o.batch = :batch AND o.ord = r.rollout"
).bindparams(sa.bindparam("rows", type_=JSONB))


def insert_rollouts(
    connection: sa.Connection, context: RunContext, work_id: UUID, ordinal: int, given: Sequence[tuple[int, Rollout]]
) -> None:
    """Insert the rollouts of a batch, and each prompt once.

    Args:
        connection: In the transaction that records the batch.
        context: The run.
        work_id: A unit of the batch; with the position of a rollout it is unique.
        ordinal: Ordinal of the batch.
        given: The rollouts with their positions, to which candidates refer.
    """
    if not given:
        return
    prompts = {rollout.prompt.digest: rollout.prompt for _, rollout in given}
    # Sorted, so that batches that share prompts cannot deadlock.
    shown = [
        {"digest": digest, "system": storable(prompt.system), "user": storable(prompt.user)}
        for digest, prompt in sorted(prompts.items())
    ]
    rows = [_rollout_row(context, rollout, ord_) for ord_, rollout in given]
    keys = {"run_id": context.run_id, "work_id": work_id, "batch": ordinal}
    connection.execute(_ROLLOUTS, {**keys, "prompts": shown, "rows": rows})


def insert_candidates(
    connection: sa.Connection, context: RunContext, lease: Lease, batch: EvaluatedBatch, progress: RunProgress
) -> None:
    """Insert the candidates of a batch; ``progress`` is the state before the batch."""
    first = int(lease.payload["first"])
    rows = []
    for ord_, outcome in enumerate(batch.outcomes):
        row = _candidate_row(context, outcome)
        row |= {
            "number": first + ord_,
            "ord": ord_,
            "rollout": outcome.proposal.rollout,
            "spent_evaluations": progress.evaluations + ord_ + 1,
            "spent_tokens": progress.tokens,
            "spent_seconds": progress.seconds,
        }
        rows.append(row)
    keys = {"run_id": context.run_id, "work_id": lease.work_id, "batch": lease.ordinal}
    connection.execute(_CANDIDATES, {**keys, "rows": rows})
    if context.reuses:
        keep_results(connection, context, first, batch.outcomes)


def _policy_id(context: RunContext, made: Rollout | Proposal) -> str | None:
    if made.proposed_by is not None:
        return made.proposed_by
    if made.version is not None:
        return made.version
    return None if made.role is PolicyRole.SEED else str(context.policies(made.role)[made.policy].policy_id)


def _rollout_row(context: RunContext, rollout: Rollout, ord_: int) -> dict[str, Any]:
    return {
        "id": str(uuid7()),
        "ord": ord_,
        "policy_id": _policy_id(context, rollout),
        "role": rollout.role.value,
        "prompt_digest": rollout.prompt.digest,
        "seed": rollout.seed,
        "completion": storable(rollout.completion.text),
        "prompt_tokens": rollout.prompt_tokens,
        "completion_tokens": rollout.completion.tokens,
        "latency_s": rollout.latency_s,
        "finish_reason": storable(rollout.completion.finish_reason),
        "mean_logprob": rollout.completion.mean_logprob,
        "logprobs": list(rollout.completion.logprobs) or None,
        "token_ids": list(rollout.completion.token_ids) or None,
        "reasoning_tokens": rollout.completion.reasoning_tokens,
        "answers": rollout.answers,
        "reason": rollout.reason,
        "advice": rollout.advice,
        "author": rollout.author,
        "model": rollout.model,
    }


def _candidate_row(context: RunContext, outcome: CandidateOutcome) -> dict[str, Any]:
    proposal, evaluation = outcome.proposal, outcome.evaluation
    failure, rewards = evaluation.failure, evaluation.rewards
    return {
        "id": str(uuid7()),
        "policy_id": _policy_id(context, proposal),
        "role": proposal.role.value,
        "island": proposal.island,
        "parents": list(proposal.parents),
        "inspirations": list(proposal.inspirations),
        "program": proposal.program,
        "program_hash": proposal.program_hash,
        "status": (CandidateStatus.FAILED if failure else CandidateStatus.EVALUATED).value,
        "failure": failure.kind.value if failure else None,
        "failure_reason": failure.reason if failure else None,
        "failure_detail": storable(failure.detail) if failure else None,
        "rewards": list(rewards) if rewards is not None else None,
        "scalar": context.problem.scalarize(rewards) if rewards is not None else None,
        "targets": outcome.targets,
        "duplicate_of": outcome.duplicate_of,
        "tier": evaluation.tier,
        "wall_s": evaluation.wall_s,
        "cpu_s": evaluation.cpu_s,
        "memory_bytes": evaluation.memory_bytes,
        "stopped_at": evaluation.stopped_at,
        "shape": outcome.shape,
        "reused_from": outcome.reused_from,
        "origin": proposal.origin,
        "attested_by": evaluation.attested_by or None,
        "environment": evaluation.environment or None,
        "carried_from": evaluation.carried_from,
        "artifacts": {storable(k): storable(v) for k, v in evaluation.artifacts.items()},
    }


_READ: Final = sa.text(
    "SELECT x.program_hash, c.run_id, c.number, c.rewards, c.tier, c.artifacts, c.attested_by, c.environment"
    " FROM results x"
    " JOIN runs r ON r.id = x.run_id AND r.deleted_at IS NULL"
    " JOIN candidates c ON c.run_id = x.run_id AND c.number = x.number"
    # Retention deletes the program before the result.
    " WHERE x.evaluator_digest = :digest AND x.tier = :tier AND x.program_hash = ANY(:hashes) AND c.program <> ''"
)


def read_results(
    connection: sa.Connection, context: RunContext, hashes: Sequence[str], tier: str
) -> dict[str, ReusedResult]:
    """Return the reusable results of programs, by program hash."""
    keys = {"digest": _evaluator(context), "tier": tier, "hashes": list(hashes)}
    return {
        row.program_hash: ReusedResult(f"{row.run_id}/{row.number}", _reused(row))
        for row in connection.execute(_READ, keys)
    }


def _reused(row: sa.Row[Any]) -> Evaluation:
    return Evaluation(
        tuple(row.rewards),
        tier=row.tier,
        artifacts=row.artifacts,
        attested_by=row.attested_by or "",
        environment=row.environment or "",
    )


def keep_results(
    connection: sa.Connection, context: RunContext, first: int, outcomes: Sequence[CandidateOutcome]
) -> None:
    """Store the results of a batch for other runs, except failures, which the machine may have caused."""
    rows = [
        {
            "evaluator_digest": _evaluator(context),
            "tier": outcome.evaluation.tier,
            "program_hash": outcome.proposal.program_hash,
            "run_id": context.run_id,
            "number": first + i,
        }
        for i, outcome in enumerate(outcomes)
        if is_reusable(outcome)
    ]
    if rows:
        # Sorted, so that runs that find the same programs cannot deadlock.
        rows.sort(key=lambda row: str(row["program_hash"]))
        connection.execute(insert(results).values(rows).on_conflict_do_nothing())


def _evaluator(context: RunContext) -> str:
    """Return the key of an evaluator's results: projects do not share them."""
    return f"{context.project_id}/{context.problem.evaluator_digest}"


def is_reusable(outcome: CandidateOutcome) -> bool:
    """Return True if an outcome is a complete result of this run."""
    evaluation = outcome.evaluation
    whole = evaluation.rewards is not None and evaluation.stopped_at is None
    return whole and outcome.duplicate_of is None and outcome.reused_from is None
