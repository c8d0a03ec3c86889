"""What control does for campaigns in every pass: evaluations go where a new target is likeliest."""

from __future__ import annotations

import logging
from contextlib import suppress
from uuid import UUID

from speciate.domain.campaign import AllocationMode, Campaign
from speciate.domain.declaration import DeclarationKind, DeclarationState, paused_with
from speciate.domain.errors import ConflictError, SpeciateError, UnavailableError
from speciate.domain.run import RunState
from speciate.ports.records.declarations import CampaignProblem, CampaignRecord
from speciate.runs.declarations import campaign_policies
from speciate.runs.lanes import WAITING
from speciate.runs.steer import cancel_run, pause_run, resume_run
from speciate.search.allocation import Decision, Slice, adaptive, fixed
from speciate.storage.declarations.campaigns import StoredSlice
from speciate.storage.stores import Stores
from workers.tournaments import WAITS

_log = logging.getLogger(__name__)


class CampaignController:
    """Tends every campaign; all that it remembers may be forgotten."""

    def __init__(self) -> None:
        self._settled: dict[UUID, list[Slice]] = {}

    def run(self, stores: Stores) -> None:
        """Do one pass. Each step may be cut off and repeated: the next pass finds what is still to be done."""
        pending = stores.campaigns.pending()
        self._settled = {known: slices for known, slices in self._settled.items() if known in pending}
        for campaign_id in pending:
            try:
                self.reconcile(stores.within(stores.campaigns.project_of(campaign_id), own=False), campaign_id)
            except UnavailableError:
                raise
            except SpeciateError as error:
                _log.warning("campaign %s is paused: %s", campaign_id, error)
                if stores.campaigns.get(campaign_id).state is DeclarationState.RUNNING:
                    stores.campaigns.move(
                        campaign_id, DeclarationState.PAUSED, f"a run cannot go on: {error}", fault=True
                    )

    def reconcile(self, stores: Stores, campaign_id: UUID) -> None:
        """Move the runs toward the state of the declaration."""
        record = stores.campaigns.get(campaign_id)
        for problem in record.problems:
            _steer(stores, record, problem)
        settled = self._settled.setdefault(campaign_id, [])
        for stored in stores.campaigns.slices(campaign_id, after=len(settled)):
            if stored.slice.spent is None:
                _hand_out(stores, record, stored)
        if record.state is not DeclarationState.RUNNING:
            return
        stores.campaigns.wait(campaign_id, WAITS if stores.runs.room() == 0 else None)
        latest = stores.campaigns.slices(campaign_id, after=len(settled))
        for stored in latest:
            if stored.slice.spent is not None and stored.ord == len(settled) + 1:
                settled.append(stored.slice)
        history = [*settled, *(stored.slice for stored in latest if stored.ord > len(settled))]
        while (decision := _next(record.declaration, history)) is not None:
            first = record.problems[decision.problem].spent
            if not stores.campaigns.decide(campaign_id, len(history) + 1, first, decision):
                return  # another leader was faster: the next pass sees what it decided
            history.append(Slice(decision.problem, decision.evaluations))
            _hand_out(stores, record, StoredSlice(len(history), first, history[-1]))
        if all(each.spent is not None for each in history):
            _complete(stores, record, history)


def _next(declared: Campaign, history: list[Slice]) -> Decision | None:
    problems, budget, parallel = len(declared.problems), declared.evaluations, declared.parallel
    if declared.mode is AllocationMode.FIXED:
        return fixed(history, problems=problems, evaluations=budget, parallel=parallel)
    return adaptive(
        history, problems=problems, evaluations=budget, size=declared.slice, parallel=parallel, seed=declared.seed
    )


def _hand_out(stores: Stores, record: CampaignRecord, stored: StoredSlice) -> None:
    """Do what an open slice still asks for: start the run, raise its grant, or note that it is spent."""
    run = record.problems[stored.slice.problem]
    ended = run.state is not None and run.state.ended
    # What the project's quota does not let in now, a later pass hands out.
    going = record.state is DeclarationState.RUNNING and stores.runs.room() != 0
    if going and (run.run_id is None or run.state is RunState.CREATED):
        # Somebody began or cancelled it meanwhile, or took the last room: the next pass sees which.
        with suppress(ConflictError):
            run_id = run.run_id or _create(stores, record, stored)
            stores.signals.committed(stores.runs.start(run_id))
    elif going and run.run_id is not None and run.granted < stored.upto and not ended:
        with suppress(ConflictError):
            stores.signals.committed(stores.runs.grant(run.run_id, stored.upto))
    elif ended or (run.reason == WAITING and run.granted >= stored.upto):
        stores.campaigns.settle(record.id, stored, run, _why_closed(run) if ended else None)


def _create(stores: Stores, record: CampaignRecord, stored: StoredSlice) -> UUID:
    declared, position = record.declaration, stored.slice.problem
    policy, mutator, ensembles = campaign_policies(declared, stores.catalog)
    run_id, _ = stores.runs.create(
        stores.catalog.problem(declared.problems[position]),
        policy,
        mutator,
        declared.spec(),
        ensembles=ensembles,
        granted=stored.upto,
        # Cut off before the next line, the next pass finds this very run by its key. It has not begun yet.
        idempotency_key=f"campaign:{record.id}:{position}",
    )
    stores.campaigns.attach(record.id, position, run_id)
    return run_id


def _why_closed(run: CampaignProblem) -> str:
    state = "" if run.state is None else run.state.value
    return "unlocked" if run.unlocked else f"its run is {state}" + (f": {run.reason}" if run.reason else "")


def _complete(stores: Stores, record: CampaignRecord, history: list[Slice]) -> None:
    """Complete the runs that wait for more, then the campaign."""
    spent = sum(each.spent or 0 for each in history)
    if spent == record.declaration.evaluations:
        reason = f"all {spent:,} evaluations are spent"
    elif record.declaration.mode is AllocationMode.FIXED:
        reason = f"every problem had its share; {spent:,} of {record.declaration.evaluations:,} evaluations are spent"
    else:
        reason = f"no problem takes more; {spent:,} of {record.declaration.evaluations:,} evaluations are spent"
    for run in record.problems:
        if run.run_id is not None and run.state is RunState.PAUSED:
            with suppress(ConflictError):  # it was cancelled meanwhile
                stores.signals.committed(stores.runs.close(run.run_id, f"campaign {record.slug} is completed"))
    stores.campaigns.complete(record.id, reason)


def _steer(stores: Stores, record: CampaignRecord, run: CampaignProblem) -> None:
    """Pause, resume or cancel a run with its campaign; what was paused for another reason stays so."""
    if run.run_id is None or run.state is None or run.state.ended:
        return
    told = paused_with(DeclarationKind.CAMPAIGN, record.slug)
    try:
        match record.state:
            case DeclarationState.PAUSED if run.state is RunState.RUNNING:
                pause_run(stores.runs, stores.signals, run.run_id, told)
            case DeclarationState.RUNNING if run.state is RunState.PAUSED and run.reason == told:
                resume_run(stores.runs, stores.signals, run.run_id)
            case DeclarationState.CANCELLED:
                cancel_run(stores.runs, stores.signals, run.run_id, f"campaign {record.slug} is cancelled")
    except ConflictError as error:
        _log.info("%s", error)  # it ended meanwhile
