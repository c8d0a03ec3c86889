"""Dependencies of the pages: stores, cached populations, figures and reports, and live views."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, Self, cast
from uuid import UUID

from fastapi import Depends, Request
from fastapi.responses import StreamingResponse

from service.dashboard.figures.population import Population
from service.dashboard.live import LivePart, LiveViews
from service.lru import LruCache
from service.principal import PrincipalDep
from speciate.domain.arrays import np
from speciate.domain.problem import Problem
from speciate.messaging.active import active_evaluations
from speciate.messaging.client_library import redis
from speciate.messaging.presence import present_workers
from speciate.messaging.replays import ReplayQueue
from speciate.schema.declarations import TournamentRecord
from speciate.schema.runs import ActiveEvaluation, WorkerProcess
from speciate.storage.candidates.arrays import ArrayReader
from speciate.storage.candidates.queries import CandidateQueries
from speciate.storage.stores import Stores
from speciate.tournaments.report.models import Report

_MAX_RUNS: Final = 32
_MAX_REPORTS: Final = 8


class PopulationCache:
    """Candidates of the runs viewed last; only those added since the last call are read."""

    def __init__(self, reader: ArrayReader, queries: CandidateQueries) -> None:
        self._reader, self._queries = reader, queries
        self._cache: LruCache[UUID, Population] = LruCache(_MAX_RUNS)

    def of(self, run_id: UUID, problem: Problem) -> Population:
        """Return the candidates of a run; the same object until one is added or refuted.

        Those of a run with noisy rewards are read anew, since every batch may revise them.
        """
        cached, size = None if problem.is_noisy else self._cache.get(run_id), len(problem.objectives)
        if cached is None:
            columns = self._reader.arrays(run_id, size)
        else:
            columns = cached.columns.followed_by(self._reader.arrays(run_id, size, after=cached.columns.last))
        refuted = self._reader.refuted(run_id)  # read again each time: a claim is refuted after it was recorded
        if cached is not None and cached.columns is columns and cached.refuted == refuted:
            return cached
        known = () if cached is None else (cached.front, len(cached.columns))
        if problem.is_noisy:
            rows = {number: row for row, number in enumerate(columns.number.tolist())}
            front = [rows[each.number] for each in self._queries.front(run_id) if each.number in rows]
            known = (np.array(front, dtype=np.int64), len(columns))
        population = Population(problem, columns, f"/runs/{run_id}", refuted, *known)
        # Another thread may have read further in the meantime.
        self._cache.put(run_id, population, keep=lambda other: other.columns.last > columns.last)
        return population


@dataclass(frozen=True)
class DashboardContext:
    """The state behind the pages of one process; everything but the stores is a cache."""

    stores: Stores
    populations: PopulationCache
    replays: ReplayQueue
    project: UUID | None = None
    live: LiveViews = field(default_factory=LiveViews)
    _reports: LruCache[Hashable, Report] = field(default_factory=lambda: LruCache(_MAX_REPORTS))

    @classmethod
    def from_stores(cls, stores: Stores) -> Self:
        replays = ReplayQueue(stores.redis, stores.celery)
        return cls(stores, PopulationCache(ArrayReader(stores.engine), stores.queries), replays)

    def within(self, project: UUID) -> Self:
        return replace(self, stores=self.stores.within(project), project=project)

    def report(self, record: TournamentRecord) -> Report:
        """Return a tournament's report; it is computed again when one of its runs ends."""
        key = (record.id, record.state, record.ended, len(record.amendments))
        cached = self._reports.get(key)
        if cached is None:
            cached = self.stores.tournaments.results.report(record)
            self._reports.put(key, cached)
        return cached

    def workers(self) -> tuple[WorkerProcess, ...] | None:
        """Return the live workers, or None if Redis does not answer."""
        try:
            return present_workers(self.stores.redis)
        except redis.RedisError:
            return None

    def evaluations(self, run_id: UUID) -> tuple[ActiveEvaluation, ...]:
        """Return a run's long evaluations in progress; none if Redis does not respond."""
        try:
            return active_evaluations(self.stores.redis, run_id)
        except redis.RedisError:
            return ()

    def watch(
        self, key: str, render: Callable[[], LivePart], seen: str, *, run_id: UUID | None = None
    ) -> StreamingResponse:
        """Return the event stream of a view of this project, which is rendered again when the run, or any, commits."""
        return self.live.watch(f"{self.project} {key}", render, run_id=run_id, seen=seen)


# Asynchronous, since FastAPI runs a synchronous dependency in a thread.
async def _dashboard(request: Request, principal: PrincipalDep) -> DashboardContext:
    return cast("DashboardContext", request.app.state.dashboard).within(principal.project_id)


DashboardDep = Annotated[DashboardContext, Depends(_dashboard)]
