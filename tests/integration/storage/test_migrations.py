"""The schema goes up from nothing, down again, and equals what the code declares."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.runtime.migration import MigrationContext

from speciate.domain.errors import ConfigurationError
from speciate.domain.labels import Labels, Relabelling
from speciate.storage import migrate
from speciate.storage.catalog import Catalog
from speciate.storage.database import connect
from speciate.storage.revision import NEWEST_REVISION, has_newest_schema
from speciate.storage.runs.store import PostgresRunStore
from speciate.testing.runs import toy_policy, toy_problem, toy_spec

pytestmark = pytest.mark.servers


@pytest.fixture
def engine(database_url: str) -> sa.Engine:
    opened = connect(database_url)
    migrate.downgrade(opened, "base")
    return opened


def _tables(engine: sa.Engine) -> set[str]:
    return set(sa.inspect(engine).get_table_names()) - {"alembic_version"}


def test_up_from_empty_and_down_again(engine: sa.Engine) -> None:
    assert _tables(engine) == set()
    assert not migrate.is_current(engine)
    migrate.upgrade(engine)
    assert migrate.is_current(engine)
    assert "run_progress" in _tables(engine)
    migrate.downgrade(engine, "base")
    assert _tables(engine) == set()
    engine.dispose()


def test_the_migrations_equal_the_declared_schema(engine: sa.Engine) -> None:
    migrate.upgrade(engine)
    config = migrate._config()
    with engine.connect() as connection:
        config.attributes["connection"] = connection
        command.check(config)
    engine.dispose()


def test_the_newest_revision_is_the_one_the_code_names(engine: sa.Engine, database_url: str) -> None:
    assert not has_newest_schema(database_url)
    migrate.upgrade(engine)
    assert migrate.current(engine) == NEWEST_REVISION
    assert has_newest_schema(database_url)
    engine.dispose()


def test_runs_that_began_before_keep_comparing_texts(engine: sa.Engine) -> None:
    migrate.upgrade(engine)
    catalog, runs = Catalog(engine), PostgresRunStore(engine)
    problem, _ = catalog.add_problem(toy_problem())
    policy, _ = catalog.add_policy(toy_policy())
    before, _ = runs.create(problem, policy, None, toy_spec())
    migrate.downgrade(engine, "0002")
    migrate.upgrade(engine)
    after, _ = runs.create(problem, policy, None, toy_spec())
    assert [runs.get(run).spec.novelty.same for run in (before, after)] == ["text", None]
    engine.dispose()


def test_several_processes_may_migrate_at_once(engine: sa.Engine) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: migrate.upgrade(engine), range(4)))
    assert migrate.is_current(engine)
    engine.dispose()


def test_a_newer_schema_is_refused_with_the_remedy(engine: sa.Engine) -> None:
    migrate.upgrade(engine)
    with engine.begin() as connection:
        MigrationContext.configure(connection)
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(ConfigurationError, match="newer version of Speciate"):
        migrate.upgrade(engine)
    engine.dispose()


def test_runs_of_processes_that_know_no_labels_have_none(engine: sa.Engine) -> None:
    migrate.upgrade(engine)
    catalog, runs = Catalog(engine), PostgresRunStore(engine)
    problem, _ = catalog.add_problem(toy_problem())
    policy, _ = catalog.add_policy(toy_policy())
    before, _ = runs.create(problem, policy, None, toy_spec(), labels=Labels(name="gone", tags=("a",), note="too"))
    migrate.downgrade(engine, "0015")
    migrate.upgrade(engine)
    with engine.begin() as connection:
        # As the version before writes: without the columns.
        connection.execute(
            sa.text(
                "INSERT INTO runs (id, problem_id, policy_id, strategy, spec) SELECT gen_random_uuid(), problem_id,"
                " policy_id, strategy, spec FROM runs"
            )
        )
        found = connection.execute(sa.text("SELECT name, tags, note FROM runs")).all()
    assert [tuple(row) for row in found] == [("", [], "")] * 2
    runs.label(before, Relabelling(name="again", add_tags=("b",)))
    assert [run.id for run in runs.list(tags=["b"], name="AGAIN").items] == [before]
    engine.dispose()
