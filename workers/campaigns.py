"""Reconcile campaigns: grant evaluations slice by slice where a new target is likeliest."""

from contextlib import suppress
from uuid import UUID

from speciate.domain.campaign import AllocationMode, Campaign, waits_for_grant
from speciate.domain.declaration import DeclarationState
from speciate.domain.errors import ConflictError
from speciate.domain.run import RunState
from speciate.ports.runs import NewRun
from speciate.runs.declarations import campaign_policies
from speciate.schema.declarations import CampaignProblem, CampaignRecord
from speciate.search.allocation import Decision, Slice, adaptive, fixed
from speciate.storage.declarations.campaigns import StoredSlice
from speciate.storage.stores import Stores
from workers.declarations import WAITS_FOR_QUOTA, describe_stuck, is_stuck, reconcile_pending, steer


class CampaignController:
    def __init__(self) -> None:
        self._settled: dict[UUID, list[Slice]] = {}  # a cache: the leading slices with a result

    def run(self, stores: Stores) -> None:
        pending = reconcile_pending(stores, stores.campaigns, self._reconcile)
        self._settled = {campaign: slices for campaign, slices in self._settled.items() if campaign in pending}

    def _reconcile(self, stores: Stores, declared_id: UUID) -> None:
        """Advance the open slices, decide further ones, and complete or pause the campaign when none is possible."""
        store = stores.campaigns
        record = store.get(declared_id)
        for run in record.problems:
            if run.run_id is not None and run.state is not None and not run.ended:
                steer(stores, record, run.run_id, run.state, run.reason)
        settled = self._settled.setdefault(declared_id, [])
        opened = store.slices(declared_id, after=len(settled))
        lacking = any(s.slice.spent is None and record.problems[s.slice.problem].granted < s.upto for s in opened)
        full = lacking and stores.runs.free_slots() == 0
        for stored in opened:
            if stored.slice.spent is None:
                _advance(stores, record, stored)
        if record.state is DeclarationState.RUNNING:
            store.wait(declared_id, WAITS_FOR_QUOTA if full else describe_stuck(record, record.problems))
            self._decide(stores, record, settled)

    def _decide(self, stores: Stores, record: CampaignRecord, settled: list[Slice]) -> None:
        """Decide slices until none is possible; if none is open, complete the campaign; if all are stuck, pause it."""
        store = stores.campaigns
        latest = store.slices(record.id, after=len(settled))
        for stored in latest:
            if stored.slice.spent is not None and stored.ord == len(settled) + 1:
                settled.append(stored.slice)
        history = [*settled, *(stored.slice for stored in latest if stored.ord > len(settled))]
        while (decision := _next(record.declaration, history)) is not None:
            first = record.problems[decision.problem].spent
            if not store.decide(record.id, len(history) + 1, first, decision):
                return  # another leader decided it: the next pass reads its decision
            history.append(Slice(decision.problem, decision.evaluations))
            _advance(stores, record, StoredSlice(len(history), first, history[-1]))
        awaited = [record.problems[each.problem] for each in history if each.spent is None]
        if not awaited:
            _complete(stores, record, history)
        elif all(is_stuck(record, run) for run in awaited):
            reason = f"no progress: {describe_stuck(record, awaited)}"
            store.move(record.id, DeclarationState.PAUSED, reason, fault=True)


def _next(declared: Campaign, history: list[Slice]) -> Decision | None:
    problems, budget, parallel = len(declared.problems), declared.evaluations, declared.parallel
    if declared.mode is AllocationMode.FIXED:
        return fixed(history, problems=problems, evaluations=budget, parallel=parallel)
    return adaptive(
        history, problems=problems, evaluations=budget, size=declared.slice, parallel=parallel, seed=declared.seed
    )


def _advance(stores: Stores, record: CampaignRecord, stored: StoredSlice) -> None:
    """Take the next step of an open slice: start its run, raise the run's grant, or record the result."""
    run = record.problems[stored.slice.problem]
    started = run.run_id is not None and run.state is not RunState.CREATED
    if run.ended or (run.run_id is None and record.state is DeclarationState.CANCELLED):
        ended = f"its run is {run.state or 'not started'}" + (f": {run.reason}" if run.reason else "")
        stores.campaigns.settle(record.id, stored, run, "unlocked" if run.unlocked else ended)
    elif not (started and run.granted >= stored.upto):
        # What the project's quota does not allow in this pass, a later pass grants.
        if record.state is DeclarationState.RUNNING and stores.runs.free_slots() != 0:
            _grant(stores, record, stored, run)
    elif waits_for_grant(run.reason):
        stores.campaigns.settle(record.id, stored, run, None)


def _grant(stores: Stores, record: CampaignRecord, stored: StoredSlice, run: CampaignProblem) -> None:
    # On a conflict another process started or cancelled the run, or used the quota: the next pass sees which.
    with suppress(ConflictError):
        run_id = run.run_id or _create_run(stores, record, stored)
        if record.declaration.shares_learner:
            for commit in stores.campaigns.move_learner(record, run_id):
                stores.signals.committed(commit)
        starts = run.run_id is None or run.state is RunState.CREATED
        stores.signals.committed(stores.runs.start(run_id) if starts else stores.runs.grant(run_id, stored.upto))


def _create_run(stores: Stores, record: CampaignRecord, stored: StoredSlice) -> UUID:
    declared, position = record.declaration, stored.slice.problem
    run_id, _ = stores.runs.create(
        NewRun(
            stores.catalog.problem(declared.problems[position]),
            campaign_policies(declared, stores.catalog),
            declared.spec(),
            granted=stored.upto,
            # If the worker dies before the run is attached, the next pass finds the same run by its key, not started.
            idempotency_key=f"campaign {record.id} {position}",
        )
    )
    stores.campaigns.attach(record.id, position, run_id)
    return run_id


def _complete(stores: Stores, record: CampaignRecord, history: list[Slice]) -> None:
    """Complete the runs that wait for evaluations, then the campaign."""
    spent, budget = sum(each.spent or 0 for each in history), record.declaration.evaluations
    if spent == budget:
        reason = f"all {spent:,} evaluations are spent"
    elif record.declaration.mode is AllocationMode.FIXED:
        reason = f"every problem had its share; {spent:,} of {budget:,} evaluations are spent"
    else:
        reason = f"no problem takes more; {spent:,} of {budget:,} evaluations are spent"
    for run in record.problems:
        if run.run_id is not None and run.state is RunState.PAUSED:
            with suppress(ConflictError):  # it was cancelled in the meantime
                stores.signals.committed(stores.runs.close(run.run_id, f"campaign {record.slug} is completed"))
    stores.campaigns.complete(record.id, reason)
