"""Move the runs of tournaments and campaigns toward the state of their declaration."""

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final
from uuid import UUID

from speciate.domain.campaign import waits_for_grant
from speciate.domain.declaration import DeclarationState, paused_with
from speciate.domain.errors import ConflictError, SpeciateError, UnavailableError
from speciate.domain.run import RunState
from speciate.schema.declarations import CampaignProblem, DeclarationRecord
from speciate.storage.database import guarded
from speciate.storage.declarations.store import DeclarationStore
from speciate.storage.declarations.tournaments import ActiveRun
from speciate.storage.stores import Stores

WAITS_FOR_QUOTA: Final = "waits for other runs of the project to end: its quota allows no more active runs"
"""Reason of a running declaration that may not start a run."""

_log = logging.getLogger(__name__)


def reconcile_pending(
    stores: Stores, store: DeclarationStore[Any, Any], reconcile: Callable[[Stores, UUID], None]
) -> Collection[UUID]:
    """Reconcile every pending declaration of a store once, each in its project; return them.

    ``reconcile`` does what a declaration needs, in steps that may be interrupted and repeated. If it fails, because a
    run cannot start or continue, the declaration pauses. One that cannot be read is left to a later pass.
    """
    pending = store.pending()
    for declared_id in pending:
        with guarded(f"{store.kind} {declared_id}"):
            try:
                reconcile(stores.within(store.project_of(declared_id), own=False), declared_id)
            except UnavailableError:
                raise
            except SpeciateError as error:
                _log.warning("%s %s is paused: %s", store.kind, declared_id, error)
                if store.get(declared_id).state is DeclarationState.RUNNING:
                    reason = f"a run cannot start or continue: {error}"
                    store.move(declared_id, DeclarationState.PAUSED, reason, fault=True)
    return pending


def steer(stores: Stores, record: DeclarationRecord[Any], run_id: UUID, state: RunState, reason: str | None) -> None:
    """Pause, resume or cancel a run with its declaration; a run paused for another reason stays paused."""
    kind = record.declaration.kind
    with_declaration = paused_with(kind, record.slug)
    try:
        match record.state:
            case DeclarationState.PAUSED if state is RunState.RUNNING:
                stores.signals.committed(stores.runs.pause(run_id, with_declaration))
            case DeclarationState.RUNNING if state is RunState.PAUSED and reason == with_declaration:
                stores.signals.committed(stores.runs.resume(run_id))
            case DeclarationState.CANCELLED | DeclarationState.COMPLETED:
                stores.signals.committed(stores.runs.cancel(run_id, f"{kind} {record.slug} is {record.state}"))
    except ConflictError as error:
        _log.info("%s", error)  # the run ended in the meantime


def is_stuck(record: DeclarationRecord[Any], run: ActiveRun | CampaignProblem) -> bool:
    """Return True if a run is paused for a reason of its own, so that it does not go on by itself."""
    with_declaration = paused_with(record.declaration.kind, record.slug)
    return run.state is RunState.PAUSED and run.reason != with_declaration and not waits_for_grant(run.reason)


def describe_stuck(record: DeclarationRecord[Any], runs: Sequence[ActiveRun | CampaignProblem]) -> str | None:
    """Return how many runs are stuck, and why the first one is; None if none is."""
    if stuck := [run for run in runs if is_stuck(record, run)]:
        verb = "is" if len(stuck) == 1 else "are"
        return f"{len(stuck)} of its runs {verb} paused, the first one for: {stuck[0].reason or 'no stated reason'}"
    return None
