"""Control-plane time per candidate and parent selection, by population size."""

from __future__ import annotations

import time
from uuid import UUID

import numpy as np
import sqlalchemy as sa

from benchmarks.figures import Figure, record
from benchmarks.parts import SpinningService, begin, median, processor_seconds, service_pids, show, spec, wait_for
from benchmarks.spinning import EVALUATION_S
from speciate.ids import uuid7
from speciate.ports.work import Lease, WorkKind
from speciate.runs.stored_population import StoredPopulation
from speciate.search.strategies import build_strategy
from speciate.settings import Settings
from speciate.storage.stores import Stores, open_stores

POPULATIONS = (100, 1_000, 5_000, 10_000)
WINDOW = 960


def control_plane(settings: Settings) -> None:
    """Measure processor time for each candidate in windows of one run, while its population grows."""
    stack = SpinningService(settings)
    with stack:
        for _ in stack.start():
            pass
        stores = open_stores(stack.settings)
        wait_for(stores, begin(stores, spec(480)), 480)
        run_id = begin(stores, spec(POPULATIONS[-1] + 2 * WINDOW))
        rows = []
        for population in POPULATIONS:
            wait_for(stores, run_id, population)
            before, start = processor_seconds(service_pids(stack)), stores.runs.get(run_id).spent.evaluations
            wait_for(stores, run_id, start + WINDOW)
            after, end = processor_seconds(service_pids(stack)), stores.runs.get(run_id).spent.evaluations
            rows.append((population, (after - before) / (end - start) * 1000 - EVALUATION_S * 1000))
        stores.close()
    first = rows[0][1]
    growth = Figure(rows[-1][1] / first, "×", 1.2, scales=False)
    record("control-plane: 10,000 against 100 candidates", growth)
    show(
        f"Control plane: processor time for each candidate beyond its evaluation, windows of {WINDOW} in one run",
        ["population", "CPU ms/candidate", "against 100"],
        [(population, cpu, cpu / first) for population, cpu in rows],
        "target: at most 1.2 times from 100 to 10,000",
    )


def sampling(settings: Settings) -> None:
    """Measure choosing a parent, from the work message to its program text, at 10³ and 10⁶ stored candidates."""
    from speciate.embedded.servers import EmbeddedServers
    from speciate.storage.migrate import upgrade

    with EmbeddedServers(settings.data_dir.with_name("sampling")) as servers:
        endpoints = servers.start()
        urls = {"database_url": endpoints.database_url, "redis_url": endpoints.redis_url}
        stores = open_stores(Settings.model_validate({**settings.model_dump(), **urls}))
        upgrade(stores.engine)
        timings: dict[int, tuple[float, float]] = {}
        for size in (1_000, 1_000_000):
            run_id = begin(stores, spec(10_000_000))
            _fill(stores, run_id, size)
            timings[size] = _time_selection(stores, run_id)
            stores.runs.cancel(run_id)
        stores.close()
    base = timings[1_000]
    record("sampling: 10⁶ against 10³ candidates", Figure(timings[1_000_000][0] / base[0], "×", 2, scales=False))
    show(
        "Choosing a parent (median of 2,000)",
        ["stored candidates", "archive read + choice, ms", "choice alone, ms", "against 10³"],
        [(size, whole, choice, whole / base[0]) for size, (whole, choice) in timings.items()],
        "target: at most twice the time at 10³",
    )


_FILL = sa.text(
    "INSERT INTO candidates (id, run_id, number, work_id, ord, role, island, parents, inspirations, program,"
    " program_hash, status, rewards, targets, spent_evaluations, spent_tokens, spent_seconds, tier, wall_s, cpu_s,"
    " memory_bytes, artifacts) SELECT gen_random_uuid(), :run_id, i, gen_random_uuid(), 0, 'mutate', i % 4, '{1}',"
    " '{}', 'def solve(x): return x + ' || i, md5(i::text), 'evaluated',"
    " ARRAY[random(), random(), random(), random()], 0, i, 0, 0, 'none', 0.001, 0.001, 0, '{}'::jsonb"
    " FROM generate_series(1, :size) AS i"
)
_ELITES = sa.text(
    "INSERT INTO elites (run_id, island, cell, number, fitness, rewards) SELECT run_id, island, 'w' || row, number,"
    " rewards[1], rewards FROM (SELECT *, row_number() OVER (PARTITION BY island ORDER BY number) AS row"
    " FROM candidates WHERE run_id = :run_id AND number <= 200) AS chosen"
)


def _fill(stores: Stores, run_id: UUID, size: int) -> None:
    with stores.engine.begin() as connection:
        connection.execute(_FILL, {"run_id": run_id, "size": size})
        connection.execute(_ELITES, {"run_id": run_id})
    with stores.engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        connection.execute(sa.text("ANALYZE candidates"))


def _time_selection(stores: Stores, run_id: UUID) -> tuple[float, float]:
    strategy = build_strategy("islands_map_elites", {})
    context, rng = stores.work.context(run_id), np.random.default_rng(0)
    whole, choice = [], []
    for ordinal in range(2_000):
        lease = Lease(uuid7(), run_id, WorkKind.GENERATE, 0, ordinal, 1, uuid7(), {}, 0)
        view = StoredPopulation(stores.work, context, lease.ordinal)
        at = time.perf_counter()
        selection = strategy.select(view, rng)
        stores.work.members(run_id, selection.parents)
        whole.append(time.perf_counter() - at)
        at = time.perf_counter()
        strategy.select(view, rng)
        choice.append(time.perf_counter() - at)
    return median(whole) * 1000, median(choice) * 1000
