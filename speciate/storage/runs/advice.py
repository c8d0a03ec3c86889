"""Store the advice that runs with guidance write for their own prompts."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.guidance import NO_ADVICE, Advice, Gain
from speciate.ports.work import Lease
from speciate.runs.guidance import read_gains, with_gains
from speciate.schema.candidates import AdviceRecord
from speciate.storage.statements import Statements

SQL = Statements(__file__)


def insert_advice(connection: sa.Connection, lease: Lease, advice: Advice) -> None:
    """Store new advice; its rollout must be stored already."""
    values = {"number": advice.number, "parent": advice.parent, "text": advice.text}
    connection.execute(SQL.insert, values | {"run_id": lease.run_id, "work_id": lease.work_id})


def insert_hint(connection: sa.Connection, run_id: UUID, advice: Advice, author: str) -> None:
    values = {"number": advice.number, "text": advice.text, "author": author}
    connection.execute(SQL.insert_hint, values | {"run_id": run_id})


def retire_advice(connection: sa.Connection, run_id: UUID, retired: Mapping[int, Gain]) -> None:
    keys = [{"number": number, "judged": gain.judged, "won": gain.won} for number, gain in retired.items()]
    connection.execute(SQL.retire, [key | {"run_id": run_id} for key in keys])


def read_living(connection: sa.Connection, run_id: UUID) -> tuple[Advice, ...]:
    """Return the advice in use, ``NO_ADVICE`` first."""
    stored = _gains(connection, run_id)
    rows = connection.execute(SQL.texts, {"run_id": run_id, "numbers": [int(number) for number in stored]})
    return with_gains({row.number: Advice(row.number, row.text, row.parent) for row in rows}, stored)


def read_page(connection: sa.Connection, run_id: UUID, before: int, limit: int) -> list[AdviceRecord]:
    """Return at most ``limit`` pieces of advice numbered below ``before``, newest first; ``NO_ADVICE`` is the last."""
    living = read_gains(_gains(connection, run_id))
    rows = connection.execute(SQL.page, {"run_id": run_id, "before": before, "limit": limit})
    pieces: list[dict[str, Any]] = [{**row._asdict(), "lives": not row.dropped} for row in rows]
    if len(pieces) < limit:
        pieces.append({"number": NO_ADVICE, "judged": 0, "won": 0, "lives": True})
    # The run's progress counts the gains of advice in use; its own row holds them afterwards.
    for values in pieces:
        gain = living.get(values["number"], Gain()) if values["lives"] else Gain()
        values["judged"] += gain.judged
        values["won"] += gain.won
    return [AdviceRecord.model_validate(values) for values in pieces]


def _gains(connection: sa.Connection, run_id: UUID) -> Mapping[str, Mapping[str, Any]]:
    gains: Mapping[str, Mapping[str, Any]] = connection.execute(SQL.gains, {"run_id": run_id}).scalar_one()
    return gains
