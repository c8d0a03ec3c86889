"""Write the changes of a run in the transaction that holds its lock; read and refute claims."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.candidate import Individual
from speciate.domain.run import RunState
from speciate.domain.target import Claim, ClaimState, TargetSet
from speciate.ids import uuid7
from speciate.ports.work import Commit, Confirmation, RunContext, WorkKind, WorkRef
from speciate.search.archive import best_per_cell
from speciate.search.cells import TARGET
from speciate.search.strategy import Placement
from speciate.search.targets import target_placements
from speciate.storage.runs.advice import retire_advice
from speciate.storage.runs.locking import SAVE, LockedRun
from speciate.storage.statements import Statements
from speciate.storage.webhooks.queue import enqueue_events

SQL = Statements(__file__, save_progress=SAVE)


def place_elites(connection: sa.Connection, run_id: UUID, updates: Iterable[Placement]) -> tuple[Placement, ...]:
    """Apply archive updates that improve their cell, and return the accepted ones by island and cell."""
    best = best_per_cell(updates)
    if not best:
        return ()
    rows = [asdict(each) for each in best]
    granted = {(row.island, row.cell) for row in connection.execute(SQL.place, {"run_id": run_id, "rows": rows})}
    return tuple(p for p in best if (p.island, p.cell) in granted)


def open_confirmations(connection: sa.Connection, run_id: UUID) -> int:
    return int(connection.execute(SQL.open_confirmations, {"run_id": run_id}).scalar_one())


def write_change(connection: sa.Connection, locked: LockedRun, granted: Sequence[Placement] = ()) -> Commit:
    """Write the progress and what else changed, and return the commit to publish."""
    run_id, progress = locked.run_id, locked.progress
    if locked.cancel_rest:
        cancelled = {"run_id": run_id, "reason": progress.reason, "spare": locked.spare_confirmations}
        connection.execute(SQL.cancel_rest, cancelled)
    if locked.claims:
        rows = [{"run_id": run_id, **asdict(claim), "state": claim.state.value} for claim in locked.claims]
        connection.execute(SQL.save_claim, rows)
    if locked.retired:
        retire_advice(connection, run_id, locked.retired)
    events = [
        {"seq": progress.events + i, "kind": event.kind.value, "data": dict(event.data)}
        for i, event in enumerate(locked.events, start=1)
    ]
    enqueue_events(connection, run_id, locked.events)
    refs = tuple(WorkRef(uuid7(), new.kind) for new in locked.works)
    works = [{"id": str(ref.id), **asdict(new)} for ref, new in zip(refs, locked.works, strict=True)]
    running = progress.state is RunState.RUNNING
    progress.events += len(events)
    progress.revision += 1
    connection.execute(SQL.write, locked.values() | {"works": works, "new_events": events, "dispatch": running})
    return Commit(run_id, refs if running else (), tuple(granted), progress.revision, progress.events)


def dispatch_ready(connection: sa.Connection, run_id: UUID) -> tuple[WorkRef, ...]:
    """Return the ready work of a run, marked as sent."""
    return tuple(map(work_ref, connection.execute(SQL.dispatch_ready, {"run_id": run_id})))


def work_ref(row: sa.Row[Any]) -> WorkRef:
    return WorkRef(row.id, WorkKind(row.kind), retried=row.attempt > 0)


def load_claims(connection: sa.Connection, context: RunContext, number: int) -> dict[int, Claim]:
    """Return the claims of a candidate by position of their target."""
    names = [target.name for target in context.problem.targets]
    rows = connection.execute(SQL.claims, {"run_id": context.run_id, "number": number})
    return {names.index(row.target): Claim(**row._asdict() | {"state": ClaimState(row.state)}) for row in rows}


def record_repeats(connection: sa.Connection, run_id: UUID, confirmation: Confirmation) -> None:
    """Record what the repeats measured, and the targets that they missed, which are not confirmed again."""
    keys = {"run_id": run_id, "number": confirmation.number, "refuted": confirmation.refuted_targets}
    connection.execute(SQL.record_repeats, {**keys, "repeats": list(confirmation.repeats)})


def refill_target(connection: sa.Connection, context: RunContext, number: int, target: int) -> None:
    """After a refuted claim, re-place the remaining candidates that meet the target."""
    prefix = f"{TARGET}{context.problem.targets[target].name}/"
    connection.execute(SQL.release_cells, {"run_id": context.run_id, "number": number, "prefix": prefix})
    rivals = meeting(connection, context.run_id, 1 << target)
    place_elites(connection, context.run_id, target_placements(context.problem, rivals, prefix))


def meeting(connection: sa.Connection, run_id: UUID, targets: TargetSet) -> list[Individual]:
    """Return the candidates that meet one of the targets, unless it was refuted."""
    rows = connection.execute(SQL.meeting, {"run_id": run_id, "bits": targets})
    return [Individual(row.number, "", tuple(row.rewards), island=row.island, targets=row.met) for row in rows]


def ranked_elites(connection: sa.Connection, run_id: UUID) -> list[Individual]:
    rows = connection.execute(SQL.elites, {"run_id": run_id})
    return [Individual(row.number, "", tuple(row.rewards), targets=row.met) for row in rows]


def earliest_claimant(connection: sa.Connection, context: RunContext, target: int) -> Claim | None:
    """Return a claim for the earliest unrefuted candidate that meets a target."""
    row = connection.execute(SQL.earliest_claimant, {"run_id": context.run_id, "bit": 1 << target}).one_or_none()
    if row is None:
        return None
    declared, spent = context.problem.targets[target], (row.spent_evaluations, row.spent_tokens, row.spent_seconds)
    return Claim(declared.name, row.number, *spent, declared.unlock, ClaimState.PENDING)
