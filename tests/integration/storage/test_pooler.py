"""A run through pgbouncer in transaction mode, where every transaction may use another session."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from pydantic import SecretStr

from service.metrics import InstallationCollector
from speciate.domain.run import RunState
from speciate.embedded.account import server_account
from speciate.policies import build_client
from speciate.runs.executor import LocalQueue, WorkExecutor
from speciate.runs.start import prepare_run, start_run
from speciate.schema.policies import RunPolicies
from speciate.settings import Settings
from speciate.storage.stores import Stores, open_stores
from tests.support.runs import ToyEvaluator, toy_policy, toy_problem, toy_spec
from workers.reconciler import reconcile_forever

pytestmark = [
    pytest.mark.servers,
    pytest.mark.skipif(shutil.which("pgbouncer") is None, reason="pgbouncer is not installed"),
]

BUDGET = 400
_INI = """
[databases]
* = host={host} dbname={database} user={user} password={password}
[pgbouncer]
unix_socket_dir = {here}
listen_addr =
listen_port = 6432
auth_type = any
pool_mode = transaction
default_pool_size = 3
ignore_startup_parameters = extra_float_digits
logfile = {here}/log
"""


@pytest.fixture
def pooled(settings: Settings, open_dir: Path) -> Iterator[Stores]:
    """Return stores behind a pooler with three sessions."""
    assert settings.database_url is not None
    past = sa.make_url(settings.database_url.get_secret_value())
    account = server_account()
    owner: dict[str, Any] = {"user": account.uid, "group": account.gid, "extra_groups": []} if account else {}
    here = open_dir / "pgbouncer"
    here.mkdir()
    ini = here / "pgbouncer.ini"
    values = {"host": past.query["host"], "database": past.database, "user": past.username, "password": past.password}
    ini.write_text(_INI.format(here=here, **values))
    if account:
        for path in (here, ini):
            os.chown(path, account.uid, account.gid)
    bouncer = subprocess.Popen(["pgbouncer", "-q", str(ini)], cwd="/", **owner)
    through = past.update_query_dict({"host": str(here), "port": "6432"}).render_as_string(hide_password=False)
    changes = {"database_url": SecretStr(through), "database_direct_url": settings.database_url}
    try:
        deadline = time.monotonic() + 60
        while not (here / ".s.PGSQL.6432").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        stores = open_stores(settings.model_copy(update=changes))
        yield stores
        stores.close()
    finally:
        bouncer.terminate()
        bouncer.wait(20)


def test_workers_share_three_sessions_and_the_leader_has_its_own(pooled: Stores) -> None:
    problem, _ = pooled.catalog.add_problem(toy_problem())
    policy, _ = pooled.catalog.add_policy(toy_policy(options={"template": "```python\nx = 1.{number}\ny = 3\n```"}))
    stop = threading.Event()
    leader = threading.Thread(target=reconcile_forever, args=(pooled,), kwargs={"stop": stop})
    leader.start()
    spec = toy_spec(BUDGET, lanes=6, strategy="best_of_n")
    run_id, _ = start_run(
        pooled.runs, LocalQueue(), prepare_run(pooled.runs, problem=problem, policies=RunPolicies(policy), spec=spec)
    )

    def work(_: int) -> None:
        executor = WorkExecutor(pooled.work, LocalQueue(), ToyEvaluator(), build_client)
        while not pooled.runs.get(run_id).state.ended:
            for waiting in pooled.runs.work_in_flight(limit=6):
                executor.execute(waiting.work_id)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    with pooled.direct.connect() as connection:
        held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database"
        assert connection.execute(sa.text(f"{held} WHERE datname = current_database())")).scalar_one() == 1
    stop.set()
    leader.join(20)
    run = pooled.runs.get(run_id)
    assert (run.state, run.spent.evaluations) == (RunState.COMPLETED, BUDGET)
    assert [candidate.number for candidate in pooled.queries.export(run_id)] == list(range(1, BUDGET + 1))


def test_without_the_setting_prepared_statements_are_missing_in_the_next_session(
    pooled: Stores, settings: Settings
) -> None:
    through = pooled.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)

    def query(*connections: psycopg.Connection) -> None:
        for connection in connections:
            connection.execute("SELECT 1")
            connection.commit()

    with (
        psycopg.connect(through, prepare_threshold=0) as one,
        psycopg.connect(through, prepare_threshold=0) as two,
        pytest.raises(psycopg.Error, match="prepared statement"),
    ):
        query(*(one, two) * 4)


def test_the_gauges_are_read_through_the_pooler(pooled: Stores) -> None:
    url = pooled.engine.url.render_as_string(hide_password=False)
    collectors = [InstallationCollector(pooled, url, stall_s=900, statement_s=7, streams=lambda: 0) for _ in range(2)]
    for collector in collectors * 8:
        collector._read_at = float("-inf")
        up = {sample.labels["server"]: sample.value for metric in collector.collect() for sample in metric.samples
              if sample.name == "speciate_up"}  # fmt: skip
        assert up["postgresql"] == 1
    with pooled.engine.connect() as connection:  # a session that the collectors used, too
        assert connection.execute(sa.text("SHOW statement_timeout")).scalar_one() == "0"
    for collector in collectors:
        collector.close()
