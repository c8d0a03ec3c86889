"""The whole service as `speciate up` starts it, to break parts of."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import pytest
import sqlalchemy as sa

from speciate.cli.local_service import LocalService
from speciate.domain.policy import Policy
from speciate.domain.problem import Problem
from speciate.domain.run import RunSpec
from speciate.runs.start import prepare_run, start_run
from speciate.schema.policies import RunPolicies
from speciate.schema.runs import RunRecord
from speciate.settings import Settings
from speciate.storage.database import with_retries
from speciate.storage.stores import Stores, open_stores

LEASE_S = 4.0
LIMIT_S = 120.0


@dataclass
class Service:
    """A running service with direct access to its stores."""

    stack: LocalService
    stores: Stores
    retry_for_s: float = 30.0
    limit_s: float = LIMIT_S

    def __post_init__(self) -> None:
        self._engine = self.stores.engine

    def begin(self, problem: Problem, policy: Policy, spec: RunSpec) -> UUID:
        stored, _ = self.stores.catalog.add_problem(problem)
        registered, _ = self.stores.catalog.add_policy(policy)
        run_id, _ = start_run(
            self.stores.runs,
            self.stores.signals,
            prepare_run(self.stores.runs, problem=stored, policies=RunPolicies(registered), spec=spec),
        )
        return run_id

    def wait(self, run_id: UUID, until: Callable[[RunRecord], bool]) -> RunRecord:
        """Wait until something is true of a run, reviving what ended as `up` does."""
        deadline = time.monotonic() + self.limit_s
        while time.monotonic() < deadline:
            self.stack.restart_ended()
            run = self.stores.runs.get(run_id)
            if until(run):
                return run
            assert not run.state.ended, f"the run ended too early: {run}"
            time.sleep(0.05)
        raise AssertionError(f"not reached within {self.limit_s} s: {self.stores.runs.get(run_id)}")

    def wait_for_end(self, run_id: UUID) -> RunRecord:
        return self.wait(run_id, lambda run: run.state.ended)

    def children_of(self, name: str) -> list[int]:
        """Process ids below one of our processes, itself not included."""
        parent = psutil.Process(self.stack.poll()[name].pid)
        return [child.pid for child in parent.children(recursive=True)]

    @with_retries
    def query(self, statement: str, **values: object) -> list[tuple[Any, ...]]:
        with self._engine.connect() as connection:
            return [tuple(row) for row in connection.execute(sa.text(statement), values)]

    def leased(self, run_id: UUID, kind: str) -> set[UUID]:
        statement = "SELECT id FROM work WHERE run_id = :id AND kind = :kind AND state = 'leased'"
        return {work for (work,) in self.query(statement, id=run_id, kind=kind)}

    def seconds_until_done(self, work: set[UUID]) -> float:
        """Wait until units of work have been finished and return how long that took."""
        begun = time.monotonic()
        statement = "SELECT id FROM work WHERE id = ANY(:ids) AND state IN ('ready', 'leased')"
        while time.monotonic() < begun + self.limit_s:
            self.stack.restart_ended()
            if not self.query(statement, ids=list(work)):
                return time.monotonic() - begun
            time.sleep(0.05)
        raise AssertionError("leased work was never finished")

    def check_complete(self, run_id: UUID, budget: int) -> None:
        """Check that the budget was spent exactly, with nothing lost and nothing doubled."""
        run = self.stores.runs.get(run_id)
        assert run.state.value == "completed", run.reason
        assert (run.spent.evaluations, run.spent.reserved_evaluations) == (budget, 0)
        numbers = [candidate.number for candidate in self.stores.queries.export(run_id)]
        assert numbers == list(range(1, budget + 1))
        seqs = []
        while page := self.stores.queries.events(run_id, after=len(seqs)):
            seqs += [event.seq for event in page]
        assert seqs == list(range(1, run.last_event + 1))
        assert self.query("SELECT DISTINCT state FROM work WHERE run_id = :id", id=run_id) == [("done",)]


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    home = Path(tempfile.mkdtemp(prefix="speciate-test-"))
    home.chmod(0o711)
    settings = Settings(data_dir=home / "data", port=0, lease_s=LEASE_S, evaluate_slots=2, generate_slots=4)
    with LocalService(settings) as stack:
        for _ in stack.start():
            pass
        stores = open_stores(stack.settings)
        yield Service(stack, stores)
        stores.close()
    shutil.rmtree(home)
