"""A backup taken during a run, restored into an empty database in which the run continues."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
import sqlalchemy as sa
from pydantic import SecretStr

from speciate.cli.app import app
from speciate.cli.errors import ExitCode
from speciate.cli.pg_archive import check_restorable, write_archive
from speciate.domain.policy import Policy
from speciate.domain.run import RunState
from speciate.embedded.binaries import find_client
from speciate.policies import build_client
from speciate.ports.work import Commit
from speciate.runs.executor import LocalQueue, WorkExecutor
from speciate.runs.start import prepare_run, start_run
from speciate.schema.policies import RunPolicies
from speciate.settings import Settings
from speciate.storage.migrate import NEWEST_REVISION, upgrade
from speciate.storage.stores import Stores, open_stores
from tests.support.http_server import wait_for
from tests.support.runs import ToyEvaluator, toy_problem, toy_spec

pytestmark = pytest.mark.servers

BUDGET = 400
Call = Callable[..., tuple[int, dict[str, Any], str]]


class _Hands:
    """Execute the work of a run in this process until stopped."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self.stopping = threading.Event()

    def committed(self, commit: Commit) -> None:
        self._stores.signals.committed(commit)

    def work(self, units: int = 1_000_000) -> None:
        executor = WorkExecutor(self._stores.work, self, ToyEvaluator(), build_client)
        for _ in range(units):
            waiting = self._stores.runs.work_in_flight(limit=1)
            if not waiting or self.stopping.is_set():
                return
            executor.execute(waiting[0].work_id)


@pytest.fixture
def empty_url(settings: Settings) -> Iterator[str]:
    """Create an empty database on the server of the test."""
    assert settings.database_url is not None
    url = sa.make_url(settings.database_url.get_secret_value())
    name = f"{url.database}_restored"
    admin = url.set(drivername="postgresql", database="postgres").render_as_string(hide_password=False)
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    yield url.set(database=name).render_as_string(hide_password=False)
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def call(settings: Settings, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    assert settings.redis_url is not None
    monkeypatch.setenv("SPECIATE_REDIS_URL", settings.redis_url.get_secret_value())

    def run(url: str, *words: str) -> tuple[int, dict[str, Any], str]:
        monkeypatch.setenv("SPECIATE_DATABASE_URL", url)
        with pytest.raises(SystemExit) as ended:
            app([*words, "--json"], prog_name="speciate")
        captured = capfd.readouterr()
        return int(ended.value.code or 0), json.loads(captured.out or "{}"), captured.err

    return run


def _begin(stores: Stores, evaluations: int, seed: int = 0) -> UUID:
    problem, _ = stores.catalog.add_problem(toy_problem())
    good = "```python\nx = 1.{number}\ny = 3\n```"
    policy, _ = stores.catalog.add_policy(Policy(slug="numbers", kind="scripted", options={"template": good}))
    spec = toy_spec(evaluations, seed=seed, strategy="best_of_n")
    return start_run(
        stores.runs, LocalQueue(), prepare_run(stores.runs, problem=problem, policies=RunPolicies(policy), spec=spec)
    )[0]


def _record(stores: Stores, run_id: UUID) -> list[str]:
    found: list[Any] = [stores.runs.get(run_id), *stores.queries.export(run_id), *stores.queries.recorded(run_id)]
    return [
        record.model_dump_json() for record in (*found, *stores.queries.events(run_id), *stores.unlocks.list().items)
    ]


def _check_whole(stores: Stores, run_id: UUID) -> None:
    run = stores.runs.get(run_id)
    numbers = [candidate.number for candidate in stores.queries.export(run_id)]
    assert numbers == list(range(1, run.spent.evaluations + 1))
    assert [event.seq for event in stores.queries.events(run_id, limit=5000)] == list(range(1, run.last_event + 1))


def test_running_run_continues_in_a_restored_database(
    stores: Stores, settings: Settings, call: Call, empty_url: str, tmp_path: Path
) -> None:
    assert settings.database_url is not None
    source, file = settings.database_url.get_secret_value(), tmp_path / "all.dump"
    hands = _Hands(stores)
    ended = _begin(stores, 12, seed=1)
    hands.work()
    running = _begin(stores, BUDGET)
    hands.work(units=20)
    leased = stores.work.claim(stores.runs.work_in_flight(limit=1)[0].work_id)
    assert leased is None or stores.work.extend(leased)
    worker = threading.Thread(target=hands.work)
    worker.start()

    code, result, err = call(source, "backup", str(file))

    hands.stopping.set()
    worker.join()
    assert (code, result["revision"], err) == (ExitCode.OK, NEWEST_REVISION, "")
    assert file.stat().st_mode & 0o077 == 0
    assert call(source, "backup", str(file))[0] == ExitCode.CONFLICT  # the file exists
    assert call(source, "restore", str(file))[0] == ExitCode.CONFLICT  # the database is not empty
    with psycopg.connect(empty_url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("CREATE TABLE invoices (id int)")
        assert call(empty_url, "restore", str(file))[0] == ExitCode.CONFLICT  # it is another application's
        connection.execute("DROP TABLE invoices")
    code, _, err = call(source, "restore", str(file), "--force")
    assert code == ExitCode.CONFLICT  # the database is in use
    assert "open connections" in err

    code, result, err = call(empty_url, "restore", str(file))

    assert (code, result["revision"], result["runs"], err) == (ExitCode.OK, NEWEST_REVISION, 1, "")
    restored = open_stores(settings.model_copy(update={"database_url": SecretStr(empty_url)}))
    try:
        assert _record(restored, ended) == _record(stores, ended)
        _check_whole(restored, running)
        assert restored.runs.get(running).state is RunState.RUNNING
        with restored.engine.begin() as connection:
            connection.execute(sa.text("UPDATE work SET lease_until = now() WHERE state = 'leased'"))
        restored.work.reconcile()
        _Hands(restored).work()
        run = restored.runs.get(running)
        assert (run.state, run.spent.evaluations, run.spent.reserved_evaluations) == (RunState.COMPLETED, BUDGET, 0)
        _check_whole(restored, running)
    finally:
        restored.close()

    # Without other connections, --force replaces a database.
    # The server needs a moment to end those that were just closed.
    wait_for(lambda: call(empty_url, "restore", str(file), "--force")[::2] == (ExitCode.OK, ""))


def test_documented_docker_compose_commands_use_the_same_file(
    stores: Stores, settings: Settings, call: Call, empty_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settings.database_url is not None
    text = (Path(__file__).parents[3] / "docs" / "howto" / "operate.md").read_text()
    commands = re.findall(r"docker compose exec -T postgres (.+?)\)?$", text, re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["pg_dump", "pg_restore", "psql", "pg_restore"]
    monkeypatch.setenv("PATH", f"{find_client('psql', 15).parent}:{os.environ['PATH']}")

    def compose(url: str, command: str) -> None:
        there = sa.make_url(url)
        monkeypatch.setenv("PGHOST", str(there.host or there.query["host"]))
        monkeypatch.setenv("PGPORT", str(there.port or 5432))
        monkeypatch.setenv("PGPASSWORD", str(there.password))
        monkeypatch.setenv("PGDATABASE", str(there.database))
        command = command.replace("-U speciate", f"-U {there.username}")
        command = command.replace("--dbname=speciate", f"--dbname={there.database}")
        subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True)

    ended = _begin(stores, 12)
    _Hands(stores).work()
    dump, *restore = commands
    compose(settings.database_url.get_secret_value(), dump)

    assert call(empty_url, "restore", str(tmp_path / "speciate.dump"))[1]["revision"] == NEWEST_REVISION
    for command in restore:
        compose(empty_url, command)

    restored = open_stores(settings.model_copy(update={"database_url": SecretStr(empty_url)}))
    try:
        assert _record(restored, ended) == _record(stores, ended)
    finally:
        restored.close()


def test_invalid_and_newer_backups_are_rejected_without_data_loss(
    stores: Stores, settings: Settings, call: Call, empty_url: str, tmp_path: Path
) -> None:
    assert settings.database_url is not None
    source, file, noise = settings.database_url.get_secret_value(), tmp_path / "new.dump", tmp_path / "noise"
    upgrade(stores.engine)
    with stores.engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    assert call(source, "backup", str(file))[0] == ExitCode.OK
    code, _, err = call(empty_url, "restore", str(file))
    assert code == ExitCode.CONFIGURATION
    assert "schema 9999" in err
    with stores.engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '0016'"))
    file.unlink()
    assert call(source, "backup", str(file))[0] == ExitCode.OK
    code, _, err = call(empty_url, "restore", str(file))
    assert code == ExitCode.CONFIGURATION
    assert "schema 0016 of an unreleased version" in err
    noise.write_bytes(b"PGDMP" + bytes(range(200)))
    code, _, err = call(empty_url, "restore", str(noise))
    assert code == ExitCode.INVALID
    assert "is not a backup" in err
    assert call(empty_url, "restore", str(tmp_path / "nothing"))[0] == ExitCode.INVALID
    code, _, err = call(empty_url, "backup", str(tmp_path / "empty.dump"))
    assert code == ExitCode.CONFIGURATION
    assert "nothing to back up" in err
    assert call(source, "backup", str(tmp_path / "no" / "where"))[0] == ExitCode.INVALID


def test_backup_names_the_weights_that_it_does_not_hold(
    stores: Stores, settings: Settings, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settings.database_url is not None
    monkeypatch.setenv("SPECIATE_CHECKPOINTS_DIR", str(tmp_path / "learned"))
    source = settings.database_url.get_secret_value()
    assert call(source, "backup", str(tmp_path / "none.dump"))[::2] == (ExitCode.OK, "")
    (tmp_path / "learned").mkdir()
    code, _, err = call(source, "backup", str(tmp_path / "some.dump"))
    assert code == ExitCode.OK
    assert f"copy {tmp_path / 'learned'}, too" in err


def test_the_password_may_be_in_the_environment(
    settings: Settings, stores: Stores, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgrade(stores.engine)
    assert settings.database_url is not None
    url = sa.make_url(settings.database_url.get_secret_value())
    monkeypatch.setenv("PGPASSWORD", str(url.password))
    bare = url._replace(password=None).render_as_string(hide_password=False)
    assert call(bare, "backup", str(tmp_path / "all.dump"))[::2] == (ExitCode.OK, "")


def test_a_vacuum_keeps_no_backup_from_being_restored(database_url: str, tmp_path: Path) -> None:
    write_archive(database_url, tmp_path / "all.dump")
    vacuums = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'autovacuum worker'"
    with psycopg.connect(database_url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET autovacuum_naptime = '1s'")
        connection.execute("SELECT pg_reload_conf()")
        connection.execute("CREATE TABLE t AS SELECT g, repeat('x', 300) AS s FROM generate_series(1, 30000) g")
        slow = "autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1, autovacuum_vacuum_threshold = 1"
        connection.execute(f"ALTER TABLE t SET ({slow}, autovacuum_vacuum_scale_factor = 0)")
        connection.execute("DELETE FROM t WHERE g % 2 = 0")
        wait_for(lambda: connection.execute(vacuums).fetchone() is not None)
        connection.execute("ALTER SYSTEM RESET autovacuum_naptime")
        connection.execute("SELECT pg_reload_conf()")
    check_restorable(database_url, tmp_path / "all.dump", force=True)


def test_damaged_backup_changes_nothing(
    stores: Stores, settings: Settings, call: Call, empty_url: str, tmp_path: Path
) -> None:
    assert settings.database_url is not None
    source, file = settings.database_url.get_secret_value(), tmp_path / "all.dump"
    ended = _begin(stores, 12)
    _Hands(stores).work()
    assert call(source, "backup", str(file))[0] == ExitCode.OK
    assert call(empty_url, "restore", str(file))[0] == ExitCode.OK
    file.write_bytes(file.read_bytes()[:-200])

    codes: list[int] = []

    def in_use() -> bool:
        codes.append((outcome := call(empty_url, "restore", str(file), "--force"))[0])
        return "open connections" in outcome[2]

    wait_for(lambda: not in_use())

    assert codes[-1] == ExitCode.INVALID
    restored = open_stores(settings.model_copy(update={"database_url": SecretStr(empty_url)}))
    try:
        assert _record(restored, ended) == _record(stores, ended)
    finally:
        restored.close()


def test_backup_to_a_directory_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        app(["backup", str(tmp_path), "--force", "--data-dir", str(tmp_path / "new")], prog_name="speciate")
    assert ended.value.code == ExitCode.INVALID
    assert list(tmp_path.iterdir()) == []


def test_missing_backup_file_creates_no_database(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        app(["restore", str(tmp_path / "none"), "--data-dir", str(tmp_path / "new")], prog_name="speciate")
    assert ended.value.code == ExitCode.INVALID
    assert list(tmp_path.iterdir()) == []


def test_an_older_version_leaves_a_newer_schema_as_it_is(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECIATE_DATABASE_URL", empty_url)
    engine = sa.create_engine(empty_url)
    for revision in (NEWEST_REVISION, "9999"):
        done = subprocess.run([sys.executable, "-m", "speciate.cli", "migrate"], capture_output=True, text=True)
        assert (done.returncode, revision in done.stderr) == (0, True), done.stderr
        with engine.begin() as connection:
            connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
