"""Migrations: up from an empty database, down again, equal to the tables of queries, and refused revisions."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command

from speciate import __version__
from speciate.cli.local_service import LocalService
from speciate.domain.errors import ConfigurationError
from speciate.domain.labels import Labels, Relabelling
from speciate.embedded.servers import EmbeddedServers
from speciate.ports.runs import NewRun
from speciate.schema.policies import RunPolicies
from speciate.settings import Settings
from speciate.storage import migrate
from speciate.storage.catalog import Catalog
from speciate.storage.database import connect
from speciate.storage.migrate import NEWEST_REVISION, current_revision
from speciate.storage.runs.store import PostgresRunStore
from tests.support.runs import toy_policy, toy_problem, toy_spec

pytestmark = pytest.mark.servers

UNRELEASED = "0016"


@pytest.fixture
def engine(database_url: str) -> sa.Engine:
    opened = connect(database_url)
    _downgrade(opened)
    return opened


def _downgrade(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        connection.exec_driver_sql("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        connection.commit()


def _tables(engine: sa.Engine) -> set[str]:
    return set(sa.inspect(engine).get_table_names()) - {"alembic_version"}


def test_up_from_empty_and_down_again(engine: sa.Engine) -> None:
    assert _tables(engine) == set()
    migrate.upgrade(engine)
    assert "run_progress" in _tables(engine)
    _downgrade(engine)
    assert _tables(engine) == set()
    engine.dispose()


def test_the_migrations_create_the_declared_tables(engine: sa.Engine) -> None:
    migrate.upgrade(engine)
    with engine.connect() as connection:
        command.check(migrate.alembic_config(connection))
    engine.dispose()


def test_the_newest_revision_is_the_one_the_code_names(engine: sa.Engine) -> None:
    migrate.upgrade(engine)
    assert current_revision(engine) == NEWEST_REVISION
    engine.dispose()


def test_several_processes_may_migrate_at_once(engine: sa.Engine) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: migrate.upgrade(engine), range(4)))
    assert current_revision(engine) == NEWEST_REVISION
    engine.dispose()


def test_a_newer_schema_is_refused_with_the_remedy(engine: sa.Engine) -> None:
    migrate.upgrade(engine)
    _set_revision(engine, "9999")
    with pytest.raises(ConfigurationError, match="newer version of Speciate"):
        migrate.upgrade(engine)
    # The service works with it and migrates nothing.
    migrate.ensure_newest_schema(engine.url.render_as_string(hide_password=False))
    engine.dispose()


@pytest.fixture
def unreleased(engine: sa.Engine) -> sa.Engine:
    """A database whose schema an unreleased version wrote."""
    migrate.upgrade(engine)
    _set_revision(engine, UNRELEASED)
    return engine


def test_a_schema_of_an_unreleased_version_is_refused(unreleased: sa.Engine, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=rf"^The database has schema revision {UNRELEASED}.*Use another database"
    ):
        migrate.upgrade(unreleased)
    with pytest.raises(ConfigurationError, match=rf"The database in {tmp_path} .*SPECIATE_DATA_DIR to another"):
        migrate.upgrade(unreleased, data_dir=tmp_path)
    assert current_revision(unreleased) == UNRELEASED
    unreleased.dispose()


def test_speciate_up_refuses_a_data_directory_of_an_unreleased_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SPECIATE_DATABASE_URL", "SPECIATE_REDIS_URL"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "data"
    with EmbeddedServers(home) as servers:
        engine = connect(servers.start().database_url)
        migrate.upgrade(engine)
        _set_revision(engine, UNRELEASED)
        engine.dispose()
    with pytest.raises(ConfigurationError) as raised, LocalService(Settings(data_dir=home, port=0)) as stack:
        list(stack.start())
    assert str(raised.value) == (
        f"The database in {home} has schema revision 0016 of an unreleased version, which Speciate {__version__} cannot"
        " read. Move or delete this directory, or set SPECIATE_DATA_DIR to another one."
    )


def test_runs_inserted_without_labels_have_empty_ones(engine: sa.Engine) -> None:
    migrate.upgrade(engine)
    catalog, runs = Catalog(engine), PostgresRunStore(engine)
    problem, _ = catalog.add_problem(toy_problem())
    policy, _ = catalog.add_policy(toy_policy())
    labelled, _ = runs.create(
        NewRun(problem, RunPolicies(policy), toy_spec(), labels=Labels(name="kept", tags=("a",), note="too"))
    )
    with engine.begin() as connection:
        connection.execute(
            sa.text(
                "INSERT INTO runs (id, problem_id, policy_id, strategy, spec) SELECT gen_random_uuid(), problem_id,"
                " policy_id, strategy, spec FROM runs"
            )
        )
        found = connection.execute(sa.text("SELECT name, tags, note FROM runs ORDER BY name")).all()
    assert [tuple(row) for row in found] == [("", [], ""), ("kept", ["a"], "too")]
    runs.label(labelled, Relabelling(name="again", add_tags=("b",)))
    assert [run.id for run in runs.list(tags=["b"], name="AGAIN").items] == [labelled]
    engine.dispose()


def _set_revision(engine: sa.Engine, revision: str) -> None:
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = :revision"), {"revision": revision})
