"""Read the state of the installation from PostgreSQL, for the metrics endpoint and ``doctor``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from speciate.storage.database import reading
from speciate.storage.statements import Statements

SQL = Statements(__file__)


@dataclass(frozen=True, slots=True)
class WorkGauge:
    """Work units of running runs, by kind and state."""

    kind: str
    state: str  # ``ready``, ``leased``, or ``parked`` until external evaluations arrive
    units: int
    oldest_s: float  # age of the oldest in seconds
    overdue: int  # number of units whose lease has expired


@dataclass(frozen=True, slots=True)
class Gauges:
    """The installation at one moment."""

    runs: dict[str, int]  # runs by state
    candidates: dict[str, int]  # candidates by outcome: ``ok`` or the kind of failure
    spent: dict[str, float]  # evaluations, tokens and running seconds of all runs
    left: dict[str, float]  # remaining budgets of running runs
    unlocks: int
    work: tuple[WorkGauge, ...]
    stalled: int  # running runs without a commit for long
    alarmed: int  # running runs with an alarm
    reconciler_age_s: float | None  # seconds since the last pass of the reconciler; None before the first


def read_gauges(engine: sa.Engine, *, stall_s: float) -> Gauges:
    """Read all gauges; a running run without a commit for ``stall_s`` seconds counts as stalled."""
    with reading(engine) as connection:
        rows = connection.execute(SQL.runs).all()
        failures = connection.execute(SQL.failures).all()
        work = connection.execute(SQL.work).all()
        unlocks = int(connection.execute(SQL.unlocks).scalar_one())
        stalled = int(connection.execute(SQL.stalled, {"stall_s": stall_s}).scalar_one())
        age = connection.execute(SQL.reconciler_age).scalar()
    return Gauges(
        runs={row.state: row.runs for row in rows},
        candidates={"ok": int(sum(row.ok for row in rows))} | {row.kind: int(row.failures) for row in failures},
        spent=_totals(rows, ""),
        left=_totals(rows, "_left"),
        unlocks=unlocks,
        work=tuple(WorkGauge(row.kind, row.state, row.units, float(row.oldest_s), row.overdue) for row in work),
        stalled=stalled,
        alarmed=sum(row.alarmed for row in rows),
        reconciler_age_s=None if age is None else float(age),
    )


def _totals(rows: Sequence[sa.Row[Any]], suffix: str) -> dict[str, float]:
    resources = ("evaluations", "tokens", "seconds")
    return {name: float(sum(getattr(row, name + suffix) or 0 for row in rows)) for name in resources}
