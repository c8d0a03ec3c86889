"""Reconcile tournaments: start the runs of the plan, record ended ones, and complete a decided tournament."""

import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Final
from uuid import UUID

from speciate.domain.declaration import DeclarationState
from speciate.domain.errors import ConflictError, QuotaExceededError
from speciate.domain.run import RunState
from speciate.domain.tournament import PlannedRun, StoppingRule
from speciate.runs.declarations import entrant_policies
from speciate.runs.start import prepare_run
from speciate.schema.declarations import TournamentRecord
from speciate.storage.declarations.tournaments import ActiveRun, TournamentStore
from speciate.storage.stores import Stores
from speciate.tournaments.report.comparisons import decided_after
from workers.declarations import WAITS_FOR_QUOTA, describe_stuck, is_stuck, reconcile_pending, steer

MAX_ACTIVE: Final = 32
"""Runs of a tournament that are active at once. Each has one lane, so this also bounds its work units.

Runs that wait for an engine or another proposer outside the service do not count, so that they keep no other entrant
waiting; each entrant has at most as many of them.
"""

_log = logging.getLogger(__name__)


class TournamentController:
    def __init__(self) -> None:
        self._inspected: dict[UUID, int] = {}  # a cache: problems at the last look of the e-process

    def run(self, stores: Stores) -> None:
        pending = reconcile_pending(stores, stores.tournaments, self._reconcile)
        self._inspected = {name: problems for name, problems in self._inspected.items() if name in pending}

    def _reconcile(self, stores: Stores, declared_id: UUID) -> None:
        """Record ended runs, then complete the tournament or start its next runs."""
        store = stores.tournaments
        store.summaries.record_ended(store.get(declared_id))
        record, active = store.get(declared_id), store.active_runs(declared_id)
        for run in active:
            if (record.state, run.state) == (DeclarationState.RUNNING, RunState.CREATED):  # the worker died meanwhile
                with suppress(ConflictError):  # another one started or cancelled it
                    stores.signals.committed(stores.runs.start(run.run_id))
            steer(stores, record, run.run_id, run.state, run.reason)
        if record.state is not DeclarationState.RUNNING:
            store.complete(declared_id)  # if it is paused and its runs have all ended, nothing is left to resume
            return
        if (decided := self._decided_after(store, record)) is not None:
            # The runs still active are not needed: the next pass cancels them.
            store.complete(declared_id, f"every comparison was decided after {decided} problems")
            return
        if _advance(stores, record, active) or not active or not all(is_stuck(record, run) for run in active):
            store.complete(declared_id)
        else:
            store.move(declared_id, DeclarationState.PAUSED, f"no progress: {_obstacle(record, active)}", fault=True)

    def _decided_after(self, store: TournamentStore, record: TournamentRecord) -> int | None:
        """Return the number of problems after which the e-process decided every comparison, if it has.

        It is evaluated only after further problems have ended.
        """
        if record.declaration.stopping is not StoppingRule.E_PROCESS:
            return None
        schedule, ended = record.schedule, store.leading_ended(record.id)
        runs_each = len(schedule.seeds) * len(record.declaration.entrants)
        problems = len(schedule.problems) if ended is None else ended // runs_each
        if problems == self._inspected.get(record.id, 0):
            return None
        decided = decided_after(schedule, store.results.read(record))
        self._inspected[record.id] = problems
        return decided


def _obstacle(record: TournamentRecord, active: Sequence[ActiveRun]) -> str | None:
    """Return why some runs do not go on; None if all do."""
    if stuck := describe_stuck(record, active):
        return stuck
    entrants = {run.run_id: record.declaration.entrant(run.entrant) for run in active}
    busy = {entrants[run.run_id].engine for run in active if not run.waits or run.held}
    idle = {each.engine: each.engine_command for each in entrants.values() if each.engine and each.engine not in busy}
    wanted = [f"engine {name!r} ({command})" for name, command in idle.items()]
    return f"waits for {' and '.join(wanted)}" if wanted else None


def _advance(stores: Stores, record: TournamentRecord, active: Sequence[ActiveRun]) -> bool:
    """Start the next runs of the plan; return True if one was started or has to wait for the quota."""
    waiting = Counter(run.entrant for run in active if run.waits)
    full = [entrant for entrant, runs in waiting.items() if runs >= MAX_ACTIVE]
    free = MAX_ACTIVE - (len(active) - waiting.total())
    allowed = stores.runs.free_slots()
    startable = free if allowed is None else min(free, allowed)
    started = _start_next(stores, record, startable, full)
    waits = startable < free and bool(stores.tournaments.next(record.id, 1, full))
    stores.tournaments.wait(record.id, WAITS_FOR_QUOTA if waits else _obstacle(record, active))
    return waits or started > 0


def _start_next(stores: Stores, record: TournamentRecord, count: int, without: Sequence[str]) -> int:
    """Start at most ``count`` of the next runs of the plan, without those of some entrants; return how many."""
    started = 0
    for ordinal, planned in stores.tournaments.next(record.id, max(0, count), without):
        try:
            _start(stores, record, ordinal, planned)
        except QuotaExceededError as error:
            _log.info("tournament %s waits: %s", record.slug, error)
            break  # another client used the quota in the meantime
        started += 1
    return started


def _start(stores: Stores, record: TournamentRecord, ordinal: int, planned: PlannedRun) -> None:
    entrant = record.declaration.entrant(planned.entrant)
    run_id, _ = stores.runs.create(
        prepare_run(
            stores.runs,
            problem=stores.catalog.problem(planned.problem),
            policies=entrant_policies(entrant, stores.catalog),
            spec=record.declaration.spec(entrant, planned.seed),
            # If the worker dies before the run is attached, the next pass finds the same run by its key, not started.
            idempotency_key=f"tournament {record.id} {ordinal}",
        )
    )
    stores.tournaments.attach(record.id, ordinal, run_id)
    with suppress(ConflictError):  # another one started or cancelled it
        stores.signals.committed(stores.runs.start(run_id))
