"""Benchmark a tournament of 20 policies × 500 problems × 8 seeds: standings and report of 80,000 synthetic runs."""

from __future__ import annotations

import time
from collections.abc import Callable

import sqlalchemy as sa

from benchmarks.figures import Figure, record
from benchmarks.parts import show
from speciate.domain.declaration import DeclarationState
from speciate.domain.tournament import Entrant, Tournament
from speciate.embedded.servers import EmbeddedServers
from speciate.runs.declarations import pin_tournament
from speciate.settings import Settings
from speciate.storage.migrate import upgrade
from speciate.storage.stores import Stores, open_stores
from speciate.tournaments.rendering.html import page
from speciate.tournaments.report.models import Report
from tests.support.runs import toy_policy, toy_problem

POLICIES, PROBLEMS, SEEDS, BUDGET = 20, 500, 8, 100
GOAL_S = 5.0

# Run ids derive from positions, a thousand to a revision. Policy i of n reaches the target slightly more often
# than policy i − 1. All runs except the last pair have ended.
_FILL = (
    """INSERT INTO runs (id, problem_id, policy_id, strategy, spec)
       SELECT md5(t.ord::text)::uuid, p.id, a.id, 'best_of_n', '{}'::jsonb FROM tournament_runs t
       JOIN problems p ON p.slug || '@' || p.version = t.problem JOIN policies a ON a.slug = t.entrant""",
    """UPDATE tournament_runs SET run_id = md5(ord::text)::uuid, ended = true, state = 'completed',
       revision = 1 + ord / 1000, numbers = made.numbers FROM (
         SELECT ord AS at, ARRAY[hit::int, CASE WHEN hit THEN used ELSE :budget END, 30 * used, score, :budget,
           30 * :budget, 0.002 * :budget, :budget, 0, 7, 0.9, 1.1, 0.4] || array_fill(score, ARRAY[8])
           || ARRAY[:budget, :budget, 0.3 + score, 0.02, 0, 0.07, score, 1.2, 0.8]::float8[] AS numbers
         FROM (SELECT ord, random() < 0.3 + 0.01 * substr(entrant, 2)::int AS hit,
           1 + floor(:budget * random()) AS used,
           random() AS score FROM tournament_runs) drawn) made WHERE ord = made.at""",
    """INSERT INTO run_progress (run_id, state, budget_evaluations, evaluations, tokens, evaluated)
       SELECT run_id, CASE WHEN ord > 79998 THEN 'running' ELSE 'completed' END, :budget, :budget, 30 * :budget, :budget
       FROM tournament_runs""",
    "UPDATE tournament_runs SET ended = false, revision = NULL, numbers = NULL WHERE ord > 79998",
    "UPDATE tournaments SET revision = 81",
)


def run(settings: Settings) -> None:
    """Measure the requests of clients and a pass of the controller."""
    with EmbeddedServers(settings.data_dir) as servers:
        endpoints = servers.start()
        urls = {"database_url": endpoints.database_url, "redis_url": endpoints.redis_url}
        stores = open_stores(Settings.model_validate({**settings.model_dump(), **urls}))
        upgrade(stores.engine)
        declared = _declared(stores)
        rows = []

        def timed(what: str, call: Callable[[], object]) -> None:
            begun, cpu = time.monotonic(), time.process_time()
            call()
            rows.append((what, time.monotonic() - begun, time.process_time() - cpu))

        pinned = pin_tournament(declared, stores.catalog)
        timed(
            "declare: pin names, write the plan",
            lambda: stores.tournaments.create(pin_tournament(declared, stores.catalog), request_digest=""),
        )
        _fill(stores)
        stored = stores.tournaments.get(pinned.slug)
        assert (stored.ended, stored.state) == (79_998, DeclarationState.RUNNING)
        timed("what control looks at every second", lambda: _pass(stores))
        timed("standings", lambda: stores.tournaments.results.standings(stores.tournaments.get("large")))
        timed("report", lambda: _report(stores))
        for ordinal in (79_999, 80_000):
            _end(stores, ordinal)
        timed("report when all have ended", lambda: _report(stores))
        report = _report(stores)
        assert (report.design.ended, report.standings.comparisons[0].p_value is None) == (80_000, False)
        timed("HTML file of the report", lambda: page(report))
        stores.close()
    slowest = max(seconds for what, seconds, _ in rows if what.startswith("report"))
    record("tournaments: report", Figure(slowest, "s", GOAL_S))
    show(
        f"Tournament: {POLICIES} policies × {PROBLEMS} problems × {SEEDS} seeds, 80,000 runs",
        ["what", "seconds", "of them CPU here"],
        rows,
        f"target: the report in at most {GOAL_S:.0f} s",
    )


def _declared(stores: Stores) -> Tournament:
    for i in range(PROBLEMS):
        stores.catalog.add_problem(toy_problem().model_copy(update={"slug": f"p{i}"}))
    for i in range(POLICIES):
        stores.catalog.add_policy(toy_policy(slug=f"q{i}", options={"template": "x = {number}"}))
    return Tournament.model_validate(
        {
            "slug": "large",
            "problems": [f"p{i}" for i in range(PROBLEMS)],
            "entrants": [Entrant(name=f"q{i}", policy=f"q{i}", strategy="best_of_n") for i in range(POLICIES)],
            "baseline": "q0",
            "seeds": list(range(SEEDS)),
            "budget": {"evaluations": BUDGET},
        }
    )


def _fill(stores: Stores) -> None:
    with stores.engine.begin() as connection:
        for statement in _FILL:
            connection.execute(sa.text(statement), {"budget": BUDGET} if ":budget" in statement else {})
    with stores.engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        connection.execute(sa.text("VACUUM ANALYZE"))


def _report(stores: Stores) -> Report:
    return stores.tournaments.results.report(stores.tournaments.get("large"))


def _end(stores: Stores, ordinal: int) -> None:
    with stores.engine.begin() as connection:
        connection.execute(
            sa.text("UPDATE run_progress SET state = 'completed' WHERE run_id = md5(:ord)::uuid"), {"ord": str(ordinal)}
        )
    stores.tournaments.summaries.record_ended(stores.tournaments.get("large"))


def _pass(stores: Stores) -> None:
    for tournament_id in stores.tournaments.pending():
        stores.tournaments.summaries.record_ended(stores.tournaments.get(tournament_id))
        stores.tournaments.get(tournament_id)
        stores.tournaments.active_runs(tournament_id)
        stores.tournaments.next(tournament_id, 32)
