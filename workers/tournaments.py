"""What control does for tournaments in every pass: their runs become what their state asks for."""

from __future__ import annotations

import logging
from typing import Final
from uuid import UUID

from speciate.domain.declaration import DeclarationKind, DeclarationState, paused_with
from speciate.domain.errors import ConflictError, QuotaExceededError, SpeciateError, UnavailableError
from speciate.domain.run import RunState
from speciate.domain.tournament import PlannedRun, StoppingRule
from speciate.ports.records.declarations import TournamentRecord
from speciate.runs.declarations import entrant_policies
from speciate.runs.steer import cancel_run, pause_run, resume_run, start_run
from speciate.storage.declarations.tournaments import ActiveRun
from speciate.storage.stores import Stores
from speciate.tournaments.report.comparisons import decided_after

IN_FLIGHT: Final = 32
"""Runs of a tournament that are under way at once. Each has one lane, so this is also its units of work."""

WAITS: Final = "waits for runs of the project to end: its quota lets no more be under way"
"""Reason of what goes on and may start nothing."""

_log = logging.getLogger(__name__)


class TournamentController:
    """Tends every tournament; all that it remembers may be forgotten."""

    def __init__(self) -> None:
        self._looked_at: dict[UUID, int] = {}

    def run(self, stores: Stores) -> None:
        """Do one pass. Each step may be cut off and repeated: the next pass finds what is still to be done."""
        for tournament_id in stores.tournaments.pending():
            try:
                self.reconcile(stores.within(stores.tournaments.project_of(tournament_id), own=False), tournament_id)
            except UnavailableError:
                raise
            except SpeciateError as error:
                _log.warning("tournament %s is paused: %s", tournament_id, error)
                if stores.tournaments.get(tournament_id).state is DeclarationState.RUNNING:
                    stores.tournaments.move(
                        tournament_id, DeclarationState.PAUSED, f"a run cannot be started: {error}", fault=True
                    )

    def reconcile(self, stores: Stores, tournament_id: UUID) -> None:
        """Move the runs toward the state of the declaration."""
        store = stores.tournaments
        store.summaries.record_ended(store.get(tournament_id))
        record, under_way = store.get(tournament_id), store.active_runs(tournament_id)
        for run in under_way:
            _steer(stores, record, run)
        if record.state is not DeclarationState.RUNNING:
            return
        if (decided := self._decided_after(stores, record)) is not None:
            # What is still under way is not needed: the next pass cancels it.
            store.complete(tournament_id, f"every comparison was decided after {decided} problems")
            return
        wanted = IN_FLIGHT - len(under_way)
        room = _room(stores, wanted)
        started = _top_up(stores, record, room)
        waits = room < wanted and bool(store.next(tournament_id, 1))
        store.wait(tournament_id, WAITS if waits else None)
        if under_way and not (started or waits) and all(_stands_still(record, run) for run in under_way):
            reason = f"{len(under_way)} of its runs are paused, the first one for: {under_way[0].reason}"
            store.move(tournament_id, DeclarationState.PAUSED, f"nothing goes on: {reason}", fault=True)
            return
        store.complete(tournament_id)

    def _decided_after(self, stores: Stores, record: TournamentRecord) -> int | None:
        """Return after how many problems the e-process has decided everything, looking only after new ones."""
        if record.declaration.stopping is not StoppingRule.E_PROCESS:
            return None
        schedule, ended = record.schedule, stores.tournaments.leading_ended(record.id)
        runs_each = len(schedule.seeds) * len(record.declaration.entrants)
        problems = len(schedule.problems) if ended is None else ended // runs_each
        if problems == self._looked_at.get(record.id, 0):
            return None
        decided = stores.tournaments.results.use(record, decided_after)
        self._looked_at[record.id] = problems
        return decided


def _stands_still(record: TournamentRecord, run: ActiveRun) -> bool:
    return run.state == RunState.PAUSED and run.reason != paused_with(DeclarationKind.TOURNAMENT, record.slug)


def _steer(stores: Stores, record: TournamentRecord, run: ActiveRun) -> None:
    """Pause, resume or cancel a run with its tournament; what was paused for another reason stays so until then."""
    told = paused_with(DeclarationKind.TOURNAMENT, record.slug)
    try:
        match record.state:
            case DeclarationState.PAUSED if run.state == RunState.RUNNING:
                pause_run(stores.runs, stores.signals, run.run_id, told)
            case DeclarationState.RUNNING if run.state == RunState.PAUSED and run.reason == told:
                resume_run(stores.runs, stores.signals, run.run_id)
            case DeclarationState.CANCELLED | DeclarationState.COMPLETED:
                cancel_run(stores.runs, stores.signals, run.run_id, f"tournament {record.slug} is {record.state.value}")
    except ConflictError as error:
        _log.info("%s", error)  # it ended meanwhile


def _room(stores: Stores, wanted: int) -> int:
    """Return how many runs may be started: what the project's quota does not let in now, a later pass starts."""
    left = stores.runs.room()
    return wanted if left is None else min(wanted, left)


def _top_up(stores: Stores, record: TournamentRecord, room: int) -> int:
    """Start the next runs of the plan where there is room; return how many."""
    started = 0
    for ordinal, planned in stores.tournaments.next(record.id, max(0, room)):
        try:
            run_id = _start(stores, record, ordinal, planned)
        except QuotaExceededError as error:
            _log.info("tournament %s waits: %s", record.slug, error)
            break  # somebody else took the room meanwhile
        stores.tournaments.attach(record.id, ordinal, run_id)
        started += 1
    return started


def _start(stores: Stores, record: TournamentRecord, ordinal: int, planned: PlannedRun) -> UUID:
    declared = record.declaration
    entrant = declared.entrant(planned.entrant)
    policies = entrant_policies(entrant, stores.catalog)
    run_id, _ = start_run(
        stores.runs,
        stores.signals,
        problem=stores.catalog.problem(planned.problem),
        policy=policies.policy,
        mutator=policies.mutator,
        spec=declared.spec(entrant, planned.seed),
        ensembles=policies.ensembles,
        # Cut off before it is attached, the next pass finds this very run by its key.
        idempotency_key=f"tournament:{record.id}:{ordinal}",
    )
    return run_id
