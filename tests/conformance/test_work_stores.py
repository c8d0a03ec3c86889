"""Both work stores pass the conformance suite."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa

from speciate.domain.event import Event, EventKind
from speciate.domain.problem import Problem
from speciate.domain.run import RunSpec
from speciate.domain.seeds import SeedProgram
from speciate.domain.target import Claim, ClaimState
from speciate.ports.runs import NewRun
from speciate.ports.work import Commit, RunContext
from speciate.runs import ledger, stopping
from speciate.runs.progress import RunProgress
from speciate.schema.policies import RunPolicies
from speciate.storage.runs.locking import lock_progress
from speciate.storage.stores import Stores
from speciate.storage.work.store import PostgresWorkStore
from tests.support.memory_store import MemoryWorkStore
from tests.support.runs import toy_policy
from tests.support.work_stores import WorkStoreConformance


@dataclass
class _Clock:
    at: float = 1e9

    def now(self) -> float:
        return self.at


@dataclass
class MemoryHarness:
    clock: _Clock = field(default_factory=_Clock)

    def __post_init__(self) -> None:
        self.work = MemoryWorkStore(self.clock.now)

    def begin(
        self, problem: Problem, spec: RunSpec, granted: int | None = None, seeds: tuple[SeedProgram, ...] = ()
    ) -> Commit:
        context = RunContext(uuid4(), problem, toy_policy(), uuid4(), spec, seeds=seeds)
        self.work.add(context, granted)
        return self.work.start(context.run_id)

    def pause(self, run_id: UUID) -> Commit:
        return self.work.move(run_id, stopping.pause)

    def resume(self, run_id: UUID) -> Commit:
        return self.work.move(run_id, lambda change: ledger.resume(change, self.work.context(run_id)))

    def cancel(self, run_id: UUID) -> Commit:
        return self.work.move(run_id, stopping.cancel)

    def grant(self, run_id: UUID, granted: int) -> Commit:
        return self.work.grant(run_id, granted)

    def close(self, run_id: UUID, reason: str) -> Commit:
        return self.work.close(run_id, reason)

    def progress(self, run_id: UUID) -> RunProgress:
        return self.work.runs[run_id].progress

    def events(self, run_id: UUID) -> list[Event]:
        return list(self.work.events(run_id))

    def claims(self, run_id: UUID) -> list[Claim]:
        return [claim for _, claim in sorted(self.work.runs[run_id].claims.items())]

    def candidates(self, run_id: UUID) -> list[tuple[int, str, int | None]]:
        stored = sorted(self.work.runs[run_id].candidates.items())
        return [(n, c.proposal.program, c.duplicate_of) for n, c in stored]

    def pass_time(self, seconds: float) -> None:
        self.clock.at += seconds


@dataclass
class PostgresHarness:
    stores: Stores

    def __post_init__(self) -> None:
        self.work: PostgresWorkStore = self.stores.work

    def begin(
        self, problem: Problem, spec: RunSpec, granted: int | None = None, seeds: tuple[SeedProgram, ...] = ()
    ) -> Commit:
        stored, _ = self.stores.catalog.add_problem(problem)
        policy, _ = self.stores.catalog.add_policy(toy_policy())
        run_id, _ = self.stores.runs.create(NewRun(stored, RunPolicies(policy), spec, granted=granted, seeds=seeds))
        return self.stores.runs.start(run_id)

    def pause(self, run_id: UUID) -> Commit:
        return self.stores.runs.pause(run_id)

    def resume(self, run_id: UUID) -> Commit:
        return self.stores.runs.resume(run_id)

    def cancel(self, run_id: UUID) -> Commit:
        return self.stores.runs.cancel(run_id)

    def grant(self, run_id: UUID, granted: int) -> Commit:
        return self.stores.runs.grant(run_id, granted)

    def close(self, run_id: UUID, reason: str) -> Commit:
        return self.stores.runs.close(run_id, reason)

    def progress(self, run_id: UUID) -> RunProgress:
        with self.stores.engine.begin() as connection:
            return lock_progress(connection, run_id).progress

    def events(self, run_id: UUID) -> list[Event]:
        records = self.stores.queries.events(run_id)
        assert [record.seq for record in records] == list(range(1, len(records) + 1))
        return [Event(EventKind(record.kind), record.data) for record in records]

    def claims(self, run_id: UUID) -> list[Claim]:
        query = sa.text("SELECT * FROM claims WHERE run_id = :id ORDER BY target, number")
        with self.stores.engine.connect() as connection:
            return [
                Claim(r.target, r.number, r.evaluations, r.tokens, r.seconds, r.unlock, ClaimState(r.state))
                for r in connection.execute(query, {"id": run_id})
            ]

    def candidates(self, run_id: UUID) -> list[tuple[int, str, int | None]]:
        return [(c.number, c.program, c.duplicate_of) for c in self.stores.queries.export(run_id)]

    def pass_time(self, seconds: float) -> None:
        time.sleep(seconds)


class TestMemory(WorkStoreConformance):
    def make_harness(self) -> MemoryHarness:
        return MemoryHarness()


@pytest.mark.servers
class TestPostgres(WorkStoreConformance):
    @pytest.fixture(autouse=True)
    def _stores(self, stores: Stores) -> None:
        self._opened = stores

    def make_harness(self) -> PostgresHarness:
        return PostgresHarness(self._opened)
