"""Cost of a scrape of ``/metrics`` with 10,000 runs. Usage: ``python -m benchmarks.metrics``."""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from pydantic import SecretStr

from service.metrics import InstallationCollector, ServiceMetrics
from speciate.embedded.servers import EmbeddedServers
from speciate.settings import Settings
from speciate.storage.metrics import counters
from speciate.storage.metrics.counters import WorkerCounters
from speciate.storage.migrate import upgrade
from speciate.storage.stores import Stores, open_stores
from tests.support.runs import toy_policy, toy_problem

RUNS: Final = 10_000
_FILL: Final = (
    """INSERT INTO runs (id, problem_id, policy_id, strategy, spec)
    SELECT gen_random_uuid(), :problem, :policy, 'x', '{}' FROM generate_series(1, :runs)""",
    """INSERT INTO run_progress (run_id, state, running_since, evaluations, evaluated, tokens, failures)
    SELECT id, CASE WHEN row_number() OVER () <= 100 THEN 'running' ELSE 'completed' END, now(), 1000, 900, 50000,
    '{"timeout": 50, "crashed": 30, "rejected": 20}' FROM runs""",
    """INSERT INTO work (id, run_id, kind, state, lane, ordinal, payload) SELECT gen_random_uuid(), run_id, 'evaluate',
    'ready', 0, n, '{}' FROM run_progress, generate_series(1, 8) n WHERE state = 'running'""",
    """INSERT INTO claims (run_id, target, number, state, unlock, evaluations, tokens, seconds)
    SELECT id, 't', 1, 'confirmed', true, 1, 1, 1 FROM runs""",
    "ANALYZE",
)


def main() -> None:
    """Print the cost of one reading, and of a scrape that an earlier reading serves."""
    home = Path(tempfile.mkdtemp(prefix="speciate-metrics-"))
    home.chmod(0o711)
    servers = EmbeddedServers(home / "data")
    try:
        endpoints = servers.start()
        addresses = {"database_url": endpoints.database_url, "redis_url": endpoints.redis_url}
        stores = open_stores(Settings(data_dir=home, **{name: SecretStr(url) for name, url in addresses.items()}))
        upgrade(stores.engine)
        _fill(stores)
        metrics = ServiceMetrics()
        for route in range(100):
            metrics.record("GET", f"/v1/{route}", 200, 0.01)
        metrics.watch(InstallationCollector(stores, endpoints.database_url, stall_s=900, streams=lambda: 0))
        text = metrics.text()
        metrics._FRESH_S = -1.0  # type: ignore[misc]
        _say("reading all", [_timed(metrics) for _ in range(30)])
        metrics._FRESH_S = 1e9  # type: ignore[misc]
        _say("from the last reading", [_timed(metrics) for _ in range(30)])
        series = sum(not line.startswith(b"#") for line in text.splitlines())
        sys.stdout.write(f"{series} series, {len(text) / 1024:.0f} KiB\n")
        stores.close()
    finally:
        servers.stop()
        shutil.rmtree(home)


def _fill(stores: Stores) -> None:
    problem, _ = stores.catalog.add_problem(toy_problem())
    policy, _ = stores.catalog.add_policy(toy_policy())
    with stores.engine.begin() as connection:
        for statement in _FILL:
            names = {"problem": problem.id, "policy": policy.id, "runs": RUNS}
            connection.execute(sa.text(statement), {k: v for k, v in names.items() if f":{k}" in statement})
    counting = WorkerCounters(stores.redis)
    for i in range(counters.MAX_POLICIES):
        for role in ("propose", "mutate"):
            counting.observe(counters.POLICY_SECONDS, f"p{i}", role, values=[0.1, 1.0, 5.0])
            counting.add(counters.POLICY_TOKENS, f"p{i}", role, "prompt", by=100)
    counting.close()


def _timed(metrics: ServiceMetrics) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    metrics.text()
    return time.perf_counter() - wall, time.process_time() - cpu


def _say(what: str, times: list[tuple[float, float]]) -> None:
    wall, cpu = (statistics.median(each) * 1e3 for each in zip(*times, strict=True))
    least = min(wall for wall, _ in times) * 1e3
    sys.stdout.write(f"{what}: {wall:.1f} ms median, {least:.1f} ms at best, {cpu:.1f} ms of the API's processor\n")


if __name__ == "__main__":
    main()
