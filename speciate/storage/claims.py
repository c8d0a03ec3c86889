"""Claims to targets: who reached one first, and who is next when a claim is refuted."""

from __future__ import annotations

from uuid import UUID

import sqlalchemy as sa

from speciate.domain.target import Claim, ClaimState
from speciate.ports.work import Confirmation, RunContext

_LOAD = sa.text("SELECT * FROM claims WHERE run_id = :run_id AND target = :target AND number = :number")
_REFUTE = sa.text("UPDATE candidates SET refuted = refuted | :bit WHERE run_id = :run_id AND number = :number")
_NEXT = sa.text(
    "SELECT number, spent_evaluations, spent_tokens, spent_seconds FROM candidates WHERE run_id = :run_id"
    " AND targets <> 0 AND targets & :bit <> 0 AND refuted & :bit = 0 AND duplicate_of IS NULL"
    " ORDER BY spent_evaluations LIMIT 1"
)


def load_claim(connection: sa.Connection, context: RunContext, confirmation: Confirmation) -> Claim:
    """Return the claim that a confirmation decides."""
    target = context.problem.targets[confirmation.target].name
    keys = {"run_id": context.run_id, "target": target, "number": confirmation.number}
    row = connection.execute(_LOAD, keys).one()
    state = ClaimState(row.state)
    return Claim(row.target, row.number, row.evaluations, row.tokens, row.seconds, row.unlock, state)


def mark_refuted(connection: sa.Connection, run_id: UUID, confirmation: Confirmation) -> None:
    """Remember that a candidate did not hold, so that it is not asked again."""
    bit = 1 << confirmation.target
    connection.execute(_REFUTE, {"bit": bit, "run_id": run_id, "number": confirmation.number})


def earliest_claimant(connection: sa.Connection, context: RunContext, target: int) -> Claim | None:
    """Return the claim of the earliest candidate that meets a target and has not been refuted."""
    row = connection.execute(_NEXT, {"run_id": context.run_id, "bit": 1 << target}).one_or_none()
    if row is None:
        return None
    declared = context.problem.targets[target]
    return Claim(
        declared.name,
        row.number,
        row.spent_evaluations,
        row.spent_tokens,
        row.spent_seconds,
        declared.unlock,
        ClaimState.PENDING,
    )
