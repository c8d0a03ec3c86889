"""The advice of runs that write some; other runs have no rows here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from speciate.domain.guidance import NO_ADVICE, Advice, Gain
from speciate.ports.records import AdviceRecord
from speciate.ports.work import Lease
from speciate.runs.guidance import read_gains, with_gains

_INSERT = sa.text(
    "INSERT INTO advice (run_id, number, parent, rollout_id, text) SELECT :run_id, :number, :parent, id, :text"
    " FROM rollouts WHERE work_id = :work_id AND role = 'advise'"
)
_DROP = sa.text("UPDATE advice SET dropped = :gain WHERE run_id = :run_id AND number = :number").bindparams(
    sa.bindparam("gain", type_=JSONB)
)
_GAINS = sa.text("SELECT advice FROM run_progress WHERE run_id = :run_id")
_TEXTS = sa.text("SELECT number, parent, text FROM advice WHERE run_id = :run_id AND number = ANY(:numbers)")
_PAGE = sa.text(
    "SELECT number, parent, rollout_id, text, dropped, created_at FROM advice"
    " WHERE run_id = :run_id AND number < :before ORDER BY number DESC LIMIT :limit"
)


def insert_advice(connection: sa.Connection, lease: Lease, advice: Advice) -> None:
    """Store a new piece; the rollout that wrote it is stored already."""
    values = {"number": advice.number, "parent": advice.parent, "text": advice.text}
    connection.execute(_INSERT, values | {"run_id": lease.run_id, "work_id": lease.work_id})


def drop_advice(connection: sa.Connection, run_id: UUID, advice: Advice) -> None:
    """Keep what came of a piece that prompts no longer carry."""
    connection.execute(_DROP, {"run_id": run_id, "number": advice.number, "gain": asdict(advice.gain)})


def read_living(connection: sa.Connection, run_id: UUID) -> tuple[Advice, ...]:
    """Return the pieces that prompts may carry, no advice first."""
    stored = _gains(connection, run_id)
    rows = connection.execute(_TEXTS, {"run_id": run_id, "numbers": [int(number) for number in stored]})
    return with_gains({row.number: Advice(row.number, row.text, row.parent) for row in rows}, stored)


def read_page(connection: sa.Connection, run_id: UUID, before: int, limit: int) -> list[AdviceRecord]:
    """Return at most ``limit`` pieces with a number below ``before``, newest first; no advice is the last of all."""
    living = read_gains(_gains(connection, run_id))
    rows = connection.execute(_PAGE, {"run_id": run_id, "before": before, "limit": limit}).all()
    records = [
        _record(row._asdict(), living.get(row.number) or Gain(**(row.dropped or {})), lives=row.dropped is None)
        for row in rows
    ]
    if len(records) < limit:
        records.append(_record({"number": NO_ADVICE}, living[NO_ADVICE], lives=True))
    return records


def _record(values: Mapping[str, Any], gain: Gain, *, lives: bool) -> AdviceRecord:
    return AdviceRecord.model_validate({**values, "judged": gain.judged, "won": gain.won, "lives": lives})


def _gains(connection: sa.Connection, run_id: UUID) -> Mapping[str, Mapping[str, Any]]:
    found: Mapping[str, Mapping[str, Any]] = connection.execute(_GAINS, {"run_id": run_id}).scalar_one()
    return found
