"""Write the ledger's effects in the transaction that holds the run's lock; read and refute claims."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB, insert

from speciate.domain.candidate import Individual
from speciate.domain.run import RunState
from speciate.domain.target import Claim, ClaimState
from speciate.ids import uuid7
from speciate.ports.work import Commit, Confirmation, RunContext, WorkKind, WorkRef
from speciate.runs.progress import Effects
from speciate.search.cells import TARGET
from speciate.search.strategy import Placement
from speciate.search.targets import target_placements
from speciate.storage.runs.advice import retire_advice
from speciate.storage.runs.progress import SAVE, SAVED_DOCUMENTS, LockedProgress
from speciate.storage.tables import claims
from speciate.storage.webhooks.queue import enqueue_events

_CANCEL = sa.text(
    "UPDATE work SET state = 'cancelled', lease_token = NULL, reason = :reason, payload = '{}'::jsonb"
    " WHERE run_id = :run_id AND state IN ('ready', 'leased', 'parked') AND NOT (:spare AND kind = 'confirm')"
)
# Work, events and progress in one statement, because a round trip costs as much as the write.
_WRITE = sa.text(
    "WITH added_work AS (INSERT INTO work (id, run_id, kind, state, lane, ordinal, payload, reserved_evaluations,"
    " dispatched_at) SELECT r.id, :run_id, r.kind, 'ready', r.lane, r.ordinal, r.payload, r.reserved,"
    " CASE WHEN :dispatch THEN clock_timestamp() END FROM jsonb_to_recordset(:works)"
    " AS r(id uuid, kind text, lane int, ordinal bigint, payload jsonb, reserved bigint)),"
    " added_events AS (INSERT INTO events (run_id, seq, kind, data) SELECT :run_id, r.seq, r.kind, r.data"
    " FROM jsonb_to_recordset(:happened) AS r(seq bigint, kind text, data jsonb)) " + SAVE
).bindparams(sa.bindparam("works", type_=JSONB), sa.bindparam("happened", type_=JSONB), *SAVED_DOCUMENTS)
_PLACE = sa.text(
    "INSERT INTO elites AS e (run_id, island, cell, number, fitness, rewards)"
    " SELECT :run_id, r.island, r.cell, r.number, r.fitness, r.rewards FROM jsonb_to_recordset(:rows)"
    " AS r(island int, cell text, number bigint, fitness float8, rewards float8[])"
    " ON CONFLICT (run_id, island, cell) DO UPDATE SET number = excluded.number, fitness = excluded.fitness,"
    " rewards = excluded.rewards WHERE excluded.fitness > e.fitness RETURNING e.island, e.cell, e.number"
).bindparams(sa.bindparam("rows", type_=JSONB))


def place_elites(connection: sa.Connection, run_id: UUID, updates: Iterable[Placement]) -> tuple[Placement, ...]:
    """Apply archive updates that improve their cell, and return the accepted ones by island and cell."""
    best = best_per_cell(updates)
    if not best:
        return ()
    rows = [
        {"island": p.island, "cell": p.cell, "number": p.number, "fitness": p.fitness, "rewards": list(p.rewards)}
        for p in best
    ]
    granted = {(row.island, row.cell) for row in connection.execute(_PLACE, {"run_id": run_id, "rows": rows})}
    return tuple(p for p in best if (p.island, p.cell) in granted)


def best_per_cell(updates: Iterable[Placement]) -> list[Placement]:
    """Return the best update of every cell, the earliest among equals, by island and cell."""
    best: dict[tuple[int, str], Placement] = {}
    for update in updates:
        held = best.get((update.island, update.cell))
        if held is None or update.fitness > held.fitness:
            best[update.island, update.cell] = update
    return [best[key] for key in sorted(best)]


_CONFIRMING = sa.text(
    "SELECT count(*) FROM work WHERE run_id = :run_id AND kind = 'confirm' AND state IN ('ready', 'leased', 'parked')"
)


def open_confirmations(connection: sa.Connection, run_id: UUID) -> int:
    """Return the number of unfinished confirmations of a run."""
    return int(connection.execute(_CONFIRMING, {"run_id": run_id}).scalar_one())


def write_effects(
    connection: sa.Connection, locked: LockedProgress, effects: Effects, granted: Sequence[Placement] = ()
) -> Commit:
    """Write the effects and the progress, and return the commit to publish."""
    run_id, progress = locked.run_id, locked.progress
    if effects.cancel_rest:
        cancelled = {"run_id": run_id, "reason": progress.reason, "spare": effects.spare_confirmations}
        connection.execute(_CANCEL, cancelled)
    for claim in effects.claims:
        row = {
            "run_id": run_id,
            "target": claim.target,
            "number": claim.number,
            "state": claim.state.value,
            "unlock": claim.unlock,
            "evaluations": claim.evaluations,
            "tokens": claim.tokens,
            "seconds": claim.seconds,
        }
        statement = insert(claims).values(row)
        keys = ["run_id", "target", "number"]
        connection.execute(statement.on_conflict_do_update(index_elements=keys, set_={"state": claim.state.value}))
    if effects.retired:
        retire_advice(connection, run_id, effects.retired)
    happened = [
        {"seq": progress.events + i, "kind": event.kind.value, "data": dict(event.data)}
        for i, event in enumerate(effects.events, start=1)
    ]
    enqueue_events(connection, run_id, effects.events)
    refs, works = _work_rows(effects)
    running = progress.state is RunState.RUNNING
    progress.events += len(happened)
    progress.revision += 1
    values = locked.values() | {"works": works, "happened": happened, "dispatch": running}
    connection.execute(_WRITE, values)
    return Commit(run_id, tuple(refs) if running else (), tuple(granted), progress.revision, progress.events)


def _work_rows(effects: Effects) -> tuple[list[WorkRef], list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = []
    refs: list[WorkRef] = []
    for new in effects.works:
        refs.append(WorkRef(uuid7(), WorkKind(new.kind)))
        rows.append(
            {
                "id": str(refs[-1].id),
                "kind": new.kind.value,
                "lane": new.lane,
                "ordinal": new.ordinal,
                "payload": dict(new.payload),
                "reserved": new.reserved_evaluations,
            }
        )
    return refs, rows


_LOAD = sa.text("SELECT * FROM claims WHERE run_id = :run_id AND number = :number")
# Duplicates have the result of the candidate, and so miss what it misses.
_REPEATED = sa.text(
    "UPDATE candidates SET refuted = refuted | (targets & :refuted), repeats = :repeats WHERE run_id = :run_id"
    " AND (number = :number OR duplicate_of = :number)"
).bindparams(sa.bindparam("repeats", type_=JSONB))
_NEXT = sa.text(
    "SELECT number, spent_evaluations, spent_tokens, spent_seconds FROM candidates WHERE run_id = :run_id"
    " AND targets <> 0 AND targets & :bit <> 0 AND refuted & :bit = 0 AND duplicate_of IS NULL"
    " ORDER BY spent_evaluations LIMIT 1"
)


def load_claims(connection: sa.Connection, context: RunContext, number: int) -> dict[int, Claim]:
    """Return the claims of a candidate by position of their target."""
    names = [target.name for target in context.problem.targets]
    rows = connection.execute(_LOAD, {"run_id": context.run_id, "number": number})
    return {
        names.index(row.target): Claim(
            row.target, row.number, row.evaluations, row.tokens, row.seconds, row.unlock, ClaimState(row.state)
        )
        for row in rows
    }


def record_repeats(connection: sa.Connection, run_id: UUID, confirmation: Confirmation) -> None:
    """Record what the repeats measured, and the targets that they missed, which are not confirmed again."""
    keys = {"run_id": run_id, "number": confirmation.number, "refuted": confirmation.refuted_mask}
    connection.execute(_REPEATED, {**keys, "repeats": list(confirmation.repeats)})


_RELEASE_CELLS = sa.text(
    "DELETE FROM elites WHERE run_id = :run_id AND number = :number AND starts_with(cell, :prefix)"
)
_MEETING = sa.text(
    "SELECT number, island, rewards, targets & ~refuted AS met FROM candidates WHERE run_id = :run_id AND targets <> 0"
    " AND targets & :bit <> 0 AND refuted & :bit = 0 AND duplicate_of IS NULL ORDER BY number"
)
_RANKED_ELITES = sa.text(
    "SELECT number, rewards, targets & ~refuted AS met FROM candidates WHERE run_id = :run_id"
    " AND number IN (SELECT number FROM elites WHERE run_id = :run_id)"
)


def refill_target(connection: sa.Connection, context: RunContext, number: int, target: int) -> None:
    """Give the cells of a target that a refuted candidate held to the others that meet it."""
    prefix = f"{TARGET}{context.problem.targets[target].name}/"
    connection.execute(_RELEASE_CELLS, {"run_id": context.run_id, "number": number, "prefix": prefix})
    rows = connection.execute(_MEETING, {"run_id": context.run_id, "bit": 1 << target})
    meeting = [Individual(row.number, "", tuple(row.rewards), island=row.island, targets=row.met) for row in rows]
    place_elites(connection, context.run_id, target_placements(context.problem, meeting, prefix))


def ranked_elites(connection: sa.Connection, run_id: UUID) -> list[Individual]:
    """Return the candidates of a run's archive without refuted targets."""
    rows = connection.execute(_RANKED_ELITES, {"run_id": run_id})
    return [Individual(row.number, "", tuple(row.rewards), targets=row.met) for row in rows]


def earliest_claimant(connection: sa.Connection, context: RunContext, target: int) -> Claim | None:
    """Return a claim for the earliest unrefuted candidate that meets a target."""
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
