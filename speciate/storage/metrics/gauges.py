"""Read the state of the installation from PostgreSQL, for the metrics endpoint and ``doctor``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from speciate.storage.database import reading
from speciate.storage.runs.progress import RUNNING_SECONDS

_RUNS: Final = sa.text(
    "SELECT state, count(*) AS runs, sum(evaluated) AS ok, sum(evaluations) AS evaluations, sum(tokens) AS tokens,"
    f" sum({RUNNING_SECONDS}) AS seconds,"
    " count(*) FILTER (WHERE state = 'running' AND alarm IS NOT NULL) AS alarmed,"
    " sum(budget_evaluations - evaluations) FILTER (WHERE state = 'running') AS evaluations_left,"
    " sum(budget_tokens - tokens) FILTER (WHERE state = 'running') AS tokens_left,"
    " sum(greatest(0, budget_seconds - seconds)) FILTER (WHERE state = 'running') AS seconds_left"
    " FROM run_progress GROUP BY state"
)
_FAILURES: Final = sa.text(
    "SELECT f.key AS kind, sum(f.value::bigint) AS failures FROM run_progress, jsonb_each_text(failures) f GROUP BY 1"
)
_UNLOCKS: Final = sa.text("SELECT count(*) FROM claims WHERE unlock AND state = 'confirmed'")
# Work of paused runs is not waiting.
_WORK: Final = sa.text(
    "SELECT w.kind, w.state, count(*) AS units,"
    " max(extract(epoch FROM clock_timestamp() - w.created_at)) AS oldest_s,"
    " count(*) FILTER (WHERE w.state = 'leased' AND w.lease_until < clock_timestamp()) AS overdue"
    " FROM work w JOIN run_progress p ON p.run_id = w.run_id"
    " WHERE w.state IN ('ready', 'leased', 'parked') AND p.state = 'running' GROUP BY 1, 2"
)
# Every commit sets the clock of a run, so an old clock means no commits.
_STALLED: Final = sa.text(
    "SELECT count(*) FROM run_progress p WHERE p.state = 'running' AND (p.running_since < clock_timestamp() -"
    " make_interval(secs => :stall_s) OR 'run.stalled' ="
    " (SELECT e.kind FROM events e WHERE e.run_id = p.run_id AND e.seq = p.events))"
)
_RECONCILER: Final = sa.text("SELECT extract(epoch FROM clock_timestamp() - alive_at) FROM reconciler")


@dataclass(frozen=True, slots=True)
class WorkGauge:
    """Work units of running runs, by kind and state.

    Attributes:
        kind: Kind of work.
        state: ``ready``, ``leased``, or ``parked`` until external evaluations arrive.
        units: Number of units.
        oldest_s: Age of the oldest in seconds.
        overdue: Number of units whose lease has expired.
    """

    kind: str
    state: str
    units: int
    oldest_s: float
    overdue: int


@dataclass(frozen=True, slots=True)
class Gauges:
    """The installation at one moment.

    Attributes:
        runs: Runs by state.
        candidates: Candidates by outcome: ``ok`` or the kind of failure.
        spent: Evaluations, tokens and running seconds of all runs.
        left: Remaining budgets of running runs.
        unlocks: Confirmed unlocks.
        work: Ready and leased work units.
        stalled: Running runs without a commit for long.
        alarmed: Running runs most of whose latest candidates failed.
        reconciler_age_s: Seconds since the last pass of the reconciler; None before the first.
    """

    runs: dict[str, int]
    candidates: dict[str, int]
    spent: dict[str, float]
    left: dict[str, float]
    unlocks: int
    work: tuple[WorkGauge, ...]
    stalled: int
    alarmed: int
    reconciler_age_s: float | None


def read_gauges(engine: sa.Engine, *, stall_s: float) -> Gauges:
    """Read all gauges.

    Args:
        engine: The database.
        stall_s: Seconds without a commit after which a running run counts as stalled.
    """
    with reading(engine) as connection:
        rows = connection.execute(_RUNS).all()
        failures = connection.execute(_FAILURES).all()
        work = connection.execute(_WORK).all()
        unlocks = int(connection.execute(_UNLOCKS).scalar_one())
        stalled = int(connection.execute(_STALLED, {"stall_s": stall_s}).scalar_one())
        age = connection.execute(_RECONCILER).scalar()
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
