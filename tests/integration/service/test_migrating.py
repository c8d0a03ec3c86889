"""Upgrades: old processes keep working with a newer schema."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy import make_url

from speciate.domain.errors import ConflictError
from speciate.settings import Settings
from speciate.storage import migrate
from speciate.storage.migrate import NEWEST_REVISION, SchemaState, current_revision, schema_state
from tests.integration.service.conftest import Lab, refused
from workers import startup

pytestmark = pytest.mark.servers

# What a later release may do to the tables that are busiest.
_LATER = f'''
"""the next release"""
import sqlalchemy as sa
from alembic import op
revision = "9000"
down_revision = "{NEWEST_REVISION}"
def upgrade():
    op.add_column("candidates", sa.Column("later", sa.Text(), nullable=True))
    op.add_column("run_progress", sa.Column("later", sa.BigInteger(), server_default="0", nullable=False))
    op.create_table("later", sa.Column("id", sa.BigInteger(), primary_key=True))
    with op.get_context().autocommit_block():
        op.create_index("ix_candidates_later", "candidates", ["later"], postgresql_concurrently=True)
'''


@pytest.fixture
def later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Migrations with one more revision."""
    scripts = tmp_path / "migrations"
    shutil.copytree(migrate._SCRIPTS, scripts, ignore=shutil.ignore_patterns("__pycache__"))
    (scripts / "versions" / "9000_later.py").write_text(_LATER)
    monkeypatch.setattr(migrate, "_SCRIPTS", scripts)
    monkeypatch.setattr(migrate, "_LOCK_TIMEOUT", "SET lock_timeout = '150ms'")


@contextmanager
def _reader(engine: sa.Engine, table: str) -> Iterator[None]:
    """Holds a table as a long report does."""
    with engine.connect() as connection:
        connection.execute(sa.text(f"LOCK TABLE {table} IN ACCESS SHARE MODE"))
        yield


def test_workers_and_replicas_work_with_a_newer_schema(
    lab: Lab, settings: Settings, later: None, caplog: pytest.LogCaptureFixture
) -> None:
    run = lab.start(4000)
    done = threading.Event()

    def work() -> None:
        while not done.is_set():
            lab.work(1)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        with _reader(lab.stores.engine, "candidates"):
            migrating = threading.Thread(target=migrate.upgrade, args=(lab.stores.engine,))
            migrating.start()
            # While the migration cannot have its lock, commits go on: it never keeps anybody for longer than a moment.
            for _ in range(4):
                spent = lab.stores.runs.get(run).spent.evaluations
                deadline = time.monotonic() + 60
                while lab.stores.runs.get(run).spent.evaluations == spent:
                    assert time.monotonic() < deadline, "nothing is committed while the migration waits"
                    time.sleep(0.02)
            assert current_revision(lab.stores.engine) == NEWEST_REVISION
        migrating.join(60)
        assert current_revision(lab.stores.engine) == "9000"
        spent = lab.stores.runs.get(run).spent.evaluations
        assert lab.api.get("/readyz").status_code == 200
    finally:
        done.set()
        worker.join(60)
    assert spent < 4000  # there was work to do all the time
    numbers = [candidate.number for candidate in lab.stores.queries.export(run)]
    assert numbers == list(range(1, len(numbers) + 1))
    with caplog.at_level(logging.WARNING, logger="workers.startup"):
        startup.wait_for_schema(settings)
    assert f"revision 9000; this worker, built for {NEWEST_REVISION}, works with it" in caplog.text


def test_worker_waits_for_the_schema(
    lab: Lab, settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(startup, "_WARN_S", 0.1)
    with lab.stores.engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '0001'"))
    assert "of an unreleased version" in refused(lab.api.get("/readyz"), 503, "unavailable")["detail"]
    waiting = threading.Thread(target=startup.wait_for_schema, args=(settings,))
    waiting.start()
    waiting.join(1)
    assert waiting.is_alive()
    assert "this worker waits: The database has schema revision 0001 of an unreleased version" in caplog.text
    assert "speciate migrate" not in caplog.text  # which refuses it
    with lab.stores.engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = :newest"), {"newest": NEWEST_REVISION})
    waiting.join(10)
    assert not waiting.is_alive()


def test_a_worker_says_why_postgresql_refuses_it(settings: Settings) -> None:
    url = make_url(settings.database_url.get_secret_value()).set(drivername="postgresql", password="n0t-it")
    problem = startup._schema_problem(url.render_as_string(hide_password=False))
    assert "PostgreSQL does not respond" in problem
    assert "password authentication failed" in problem
    assert "n0t-it" not in problem


def test_draining_process_is_not_ready_but_serves(lab: Lab) -> None:
    lab.api.app.state.draining.set()
    assert "shutting down" in refused(lab.api.get("/readyz"), 503, "unavailable")["detail"]
    assert lab.api.get("/v1/runs").headers["connection"] == "close"


def test_locked_table_ends_migration_with_a_remedy(lab: Lab, later: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrate, "_LOCK_TRIES", 1)
    with _reader(lab.stores.engine, "candidates"), pytest.raises(ConflictError, match="a transaction holds a table"):
        migrate.upgrade(lab.stores.engine)
    assert current_revision(lab.stores.engine) == NEWEST_REVISION


def test_schema_revisions_are_compared() -> None:
    assert schema_state(NEWEST_REVISION) is SchemaState.CURRENT
    assert (schema_state("9000"), schema_state("0001"), schema_state(None)) == (
        SchemaState.NEWER,
        SchemaState.UNKNOWN,
        SchemaState.OLDER,
    )
