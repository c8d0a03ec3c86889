"""What pages are handed: the stores, the columns and figures that this process keeps, and its live views."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, Self, cast
from uuid import UUID

import redis
from fastapi import Depends, Request
from fastapi.responses import StreamingResponse

from service.dashboard.charts import ChartCache
from service.dashboard.figures.population import Population
from service.dashboard.live import LivePart, LiveViews
from service.principal import PrincipalDep
from speciate.domain.problem import Problem
from speciate.ports.records.tournaments import TournamentRecord
from speciate.ports.records.work import WorkerProcess
from speciate.storage.overview import Overview
from speciate.storage.presence import present
from speciate.storage.replays import Replays
from speciate.storage.series import Columns, Series
from speciate.storage.stores import Stores
from speciate.tournaments.report.models import Report

_REPORTS: Final = 8
_POPULATIONS: Final = 16


@dataclass(frozen=True)
class DashboardContext:
    """What the pages of one process consist of; all but the stores can be lost at any time.

    Attributes:
        stores: The stores.
        overview: Questions across runs.
        columns: Candidates as columns.
        replays: Candidates that somebody has scored again.
        project: The project that is looked at; None before a request says so.
        charts: Figures as they are sent.
        live: Streams of what changes.
    """

    stores: Stores
    overview: Overview
    columns: ColumnCache
    replays: Replays
    project: UUID | None = None
    charts: ChartCache = field(default_factory=ChartCache)
    live: LiveViews = field(default_factory=LiveViews)

    _populations: OrderedDict[UUID, Population] = field(default_factory=OrderedDict)
    _reports: OrderedDict[Hashable, Report] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def population(self, run_id: UUID, problem: Problem) -> Population:
        """Return a run's candidates with what is worked out of them; the same object until there are more."""
        columns = self.columns.of(run_id, len(problem.objectives))
        with self._lock:
            held = self._populations.get(run_id)
            if held is None or held.columns is not columns:
                held = self._populations[run_id] = Population(problem, columns, f"/runs/{run_id}")
                while len(self._populations) > _POPULATIONS:
                    self._populations.popitem(last=False)
        return held

    def report(self, record: TournamentRecord) -> Report:
        """Return what a tournament says; it changes when a run of it ends, and is computed once for each change."""
        key = (record.id, record.state, record.ended, len(record.amendments))
        with self._lock:
            held = self._reports.get(key)
        if held is None:
            held = self.stores.tournaments.report(record)
            with self._lock:
                self._reports[key] = held
                while len(self._reports) > _REPORTS:
                    self._reports.popitem(last=False)
        return held

    def workers(self) -> tuple[WorkerProcess, ...] | None:
        """Return the live workers, or None if Redis does not answer."""
        try:
            return present(self.stores.redis)
        except redis.RedisError:
            return None

    def within(self, project: UUID) -> Self:
        """Return the same dashboard on one project: nothing of another one is found on it."""
        stores, overview = self.stores.within(project), replace(self.overview, project=project)
        return replace(self, stores=stores, overview=overview, project=project)

    def watch(self, key: str, render: Callable[[], LivePart], *, run_id: UUID | None, seen: str) -> StreamingResponse:
        """Return the stream of a view of this project; see ``LiveViews.watch``."""
        return self.live.watch(f"{self.project} {key}", render, run_id=run_id, seen=seen)

    @classmethod
    def over(cls, stores: Stores) -> Self:
        """Return a dashboard over stores."""
        replays = Replays(stores.redis, stores.celery)
        return cls(stores, Overview(stores.engine), ColumnCache(Series(stores.engine)), replays)


# Asynchronous because FastAPI would otherwise hand it to a thread.
async def _dashboard(request: Request, principal: PrincipalDep) -> DashboardContext:
    return cast("DashboardContext", request.app.state.dashboard).within(principal.project_id)


DashboardDep = Annotated[DashboardContext, Depends(_dashboard)]


_RUNS: Final = 16


@dataclass
class ColumnCache:
    """Columns of the runs that were asked about last."""

    series: Series
    _kept: OrderedDict[UUID, Columns] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, run_id: UUID, dimensions: int) -> Columns:
        """Return all candidates of a run, of which only those that are new are read."""
        with self._lock:
            held = self._kept.get(run_id)
        if held is None:
            found = self.series.columns(run_id, dimensions)
        else:
            found = held.followed_by(self.series.columns(run_id, dimensions, after=held.last))
        with self._lock:
            newest = self._kept.get(run_id)
            # Somebody else may have read further meanwhile.
            if newest is None or newest.last <= found.last:
                self._kept[run_id] = found
            self._kept.move_to_end(run_id)
            while len(self._kept) > _RUNS:
                self._kept.popitem(last=False)
        return found
