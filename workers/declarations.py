"""Move the runs of tournaments and campaigns toward the state of their declaration."""

import logging
from collections.abc import Callable, Collection
from typing import Any, Final
from uuid import UUID

from speciate.domain.declaration import DeclarationKind, DeclarationState, paused_with
from speciate.domain.errors import ConflictError, SpeciateError, UnavailableError
from speciate.domain.run import RunState
from speciate.schema.declarations import DeclarationRecord
from speciate.storage.database import guarded
from speciate.storage.declarations.store import DeclarationStore
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


def steer(
    stores: Stores,
    kind: DeclarationKind,
    record: DeclarationRecord[Any],
    run_id: UUID,
    state: RunState,
    reason: str | None,
) -> None:
    """Pause, resume or cancel a run with its declaration; a run paused for another reason stays paused."""
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
