"""Execute a run again in a schema of its own, which is dropped afterwards: no worker or client sees it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from uuid import UUID, uuid4

import sqlalchemy as sa

from speciate.domain.charge import Charge
from speciate.domain.event import Event, EventKind
from speciate.domain.policy import Policy
from speciate.domain.run import RunState
from speciate.ports.runs import NewRun
from speciate.ports.work import Commit, LearnedStep, RunContext
from speciate.runs import ledger
from speciate.schema.policies import PolicyVersion, RunPolicies, WeightedPolicyVersion
from speciate.storage.catalog import Catalog
from speciate.storage.database import connect
from speciate.storage.migrate import upgrade
from speciate.storage.runs.locking import lock_progress
from speciate.storage.runs.queries import RunQueries
from speciate.storage.runs.store import PostgresRunStore
from speciate.storage.work.learning import insert_version
from speciate.storage.work.store import PostgresWorkStore


class ScratchStore(PostgresWorkStore):
    """A ``ReplayStore`` whose only data are the runs that are added."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._runs = PostgresRunStore(self._engine)

    def add(self, context: RunContext, granted: int | None) -> UUID:
        """Create a run with the problem, the policies and the options of another one; return its id."""
        problem, _ = Catalog(self._engine).add_problem(context.problem)
        ensembles = {
            role: tuple(WeightedPolicyVersion(version=self._policy(each.policy), weight=each.weight) for each in shares)
            for role, shares in context.ensembles.items()
        }
        mutator = None if context.mutator is None else self._policy(context.mutator)
        policies = RunPolicies(self._policy(context.proposer), mutator, ensembles)
        run_id, _ = self._runs.create(NewRun(problem, policies, context.spec, granted=granted, seeds=context.seeds))
        return run_id

    def _policy(self, policy: Policy) -> PolicyVersion:
        catalog = Catalog(self._engine)
        versions = catalog.policies(slug=policy.slug).items
        if (stored := next((each for each in versions if each.digest == policy.digest), None)) is not None:
            return stored
        with self._engine.begin() as connection:
            policy_id = insert_version(connection, LearnedStep(len(versions) + 1, policy, 0.0, {}), None)
        return catalog.policy(policy_id)

    def start(self, run_id: UUID) -> Commit:
        return self._runs.start(run_id)

    def grant(self, run_id: UUID, granted: int) -> Commit:
        return self._runs.grant(run_id, granted)

    def close(self, run_id: UUID, reason: str) -> Commit:
        return self._runs.close(run_id, reason)

    def charge(self, run_id: UUID, lost: Charge) -> None:
        with self._engine.begin() as connection:
            locked = lock_progress(connection, run_id)
            ledger.charge(locked.progress, lost)
            locked.save(connection)

    def resume_diagnosed(self, run_id: UUID) -> Commit | None:
        run = self._runs.get(run_id)
        return self._runs.resume(run_id) if run.state is RunState.PAUSED and run.diagnosis else None

    def events(self, run_id: UUID) -> Sequence[Event]:
        return all_events(RunQueries(self._engine), run_id)


@contextmanager
def scratch_store(database: sa.Engine) -> Iterator[ScratchStore]:
    """Yield an empty store in a new schema of a database, which is not behind a pooler; the user may create schemas."""
    schema = f"speciate_replay_{uuid4().hex}"
    url = database.url.update_query_dict({"options": f"-csearch_path={schema}"})
    engine = connect(url.render_as_string(hide_password=False), pool_size=4)
    try:
        with database.begin() as connection:
            connection.exec_driver_sql(f"CREATE SCHEMA {schema}")
        upgrade(engine)
        yield ScratchStore(engine)
    finally:
        engine.dispose()
        with database.begin() as connection:
            connection.exec_driver_sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


def all_events(queries: RunQueries, run_id: UUID) -> list[Event]:
    events: list[Event] = []
    while page := queries.events(run_id, after=len(events)):
        events.extend(Event(EventKind(record.kind), record.data) for record in page)
    return events
