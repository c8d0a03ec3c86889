"""Every planned run of a tournament with what it says, for files."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import sqlalchemy as sa

from speciate.ports.records.declarations import TournamentRecord, TournamentRun
from speciate.storage.database import reading
from speciate.tournaments.report.run_summary import RUN_NUMBERS

_AT_ONCE: Final = 2000
_PART = sa.text(
    "SELECT ord, problem, seed, entrant, run_id, state, reason, numbers FROM tournament_runs"
    " WHERE tournament_id = :id AND ord > :last ORDER BY ord LIMIT :limit"
)


def planned_runs(engine: sa.Engine, record: TournamentRecord) -> Iterator[TournamentRun]:
    """Yield every planned run in the order of the plan, without holding them all."""
    last, told = 0, {entrant.name: (entrant.strategy, *entrant.told()) for entrant in record.declaration.entrants}
    while True:
        with reading(engine) as connection:
            rows = connection.execute(_PART, {"id": record.id, "last": last, "limit": _AT_ONCE}).all()
        for row in rows:
            yield _run(record.slug, row, *told[row.entrant])
        if len(rows) < _AT_ONCE:
            return
        last = rows[-1].ord


def _run(slug: str, row: sa.Row[Any], strategy: str, policy: str, mutator: str | None) -> TournamentRun:
    numbers = dict(zip(RUN_NUMBERS, row.numbers or (), strict=False))
    return TournamentRun.model_validate(
        {
            "tournament": slug,
            "number": row.ord,
            "problem": row.problem,
            "seed": row.seed,
            "entrant": row.entrant,
            "policy": policy,
            "mutator": mutator,
            "strategy": strategy,
            "run_id": row.run_id,
            "state": row.state or ("planned" if row.run_id is None else "under way"),
            "reason": row.reason,
            **{name: None if math.isnan(value) else value for name, value in numbers.items()},
        }
    )
