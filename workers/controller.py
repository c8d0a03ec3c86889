"""Reconcile declarations: move the runs of tournaments and campaigns toward the state of their declaration."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

from speciate.domain.declaration import DeclarationState, paused_with
from speciate.domain.errors import ConflictError, SpeciateError, UnavailableError
from speciate.domain.run import RunState
from speciate.schema.declarations import DeclarationRecord
from speciate.storage.declarations.store import DeclarationStore
from speciate.storage.stores import Stores

WAITS_FOR_QUOTA: Final = "waits for other runs of the project to end: its quota allows no more active runs"
"""Reason of a running declaration that may not start a run."""

S = TypeVar("S", bound=DeclarationStore[Any, Any])

_log = logging.getLogger(__name__)


class DeclarationController(ABC, Generic[S]):
    """Reconciles all declarations of one kind. What a controller remembers is a cache and may be lost."""

    @abstractmethod
    def store(self, stores: Stores) -> S:
        """Return the store of the controller's declarations."""

    @abstractmethod
    def reconcile(self, stores: Stores, declared_id: UUID) -> None:
        """Do what a declaration needs, in steps that may be interrupted and repeated."""

    def forget(self, pending: Collection[UUID]) -> None:
        """Drop what is remembered of declarations that are not pending."""

    def run(self, stores: Stores) -> None:
        """Reconcile every pending declaration once; an error of a run pauses its declaration."""
        store = self.store(stores)
        pending = store.pending()
        self.forget(pending)
        for declared_id in pending:
            try:
                self.reconcile(stores.within(store.project_of(declared_id), own=False), declared_id)
            except UnavailableError:
                raise
            except SpeciateError as error:
                _log.warning("%s %s is paused: %s", store.kind, declared_id, error)
                if store.get(declared_id).state is DeclarationState.RUNNING:
                    reason = f"a run cannot start or continue: {error}"
                    store.move(declared_id, DeclarationState.PAUSED, reason, fault=True)

    def steer(
        self, stores: Stores, record: DeclarationRecord[Any], run_id: UUID, state: RunState, reason: str | None
    ) -> None:
        """Pause, resume or cancel a run with its declaration; a run paused for another reason stays paused."""
        kind = self.store(stores).kind
        with_declaration = paused_with(kind, record.slug)
        try:
            match record.state:
                case DeclarationState.PAUSED if state is RunState.RUNNING:
                    stores.signals.committed(stores.runs.pause(run_id, with_declaration))
                case DeclarationState.RUNNING if state is RunState.PAUSED and reason == with_declaration:
                    stores.signals.committed(stores.runs.resume(run_id))
                case DeclarationState.CANCELLED | DeclarationState.COMPLETED:
                    commit = stores.runs.cancel(run_id, f"{kind} {record.slug} is {record.state}")
                    stores.signals.committed(commit)
        except ConflictError as error:
            _log.info("%s", error)  # the run ended in the meantime
