"""Routes that tournaments and campaigns share: list, read, pause, resume and cancel."""

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter

from service.api.schemas import DeclarationStateFilter, NameInPath, SteeringRequest
from service.dependencies import Cursor, Limit, StoresDep
from speciate.domain.declaration import DeclarationState
from speciate.schema.base import Page
from speciate.schema.declarations import DeclarationRecord
from speciate.storage.declarations.store import DeclarationStore
from speciate.storage.stores import Stores


def add_declaration_routes(
    router: APIRouter,
    record: type[DeclarationRecord[Any]],
    store_of: Callable[[Stores], DeclarationStore[Any, Any]],
    noun: str,
) -> None:
    def move(stores: Stores, name: str, goal: DeclarationState, body: SteeringRequest | None = None) -> Any:
        store = store_of(stores)
        declared_id = store.get(name).id
        store.move(declared_id, goal, body.reason if body else None)
        return store.get(declared_id)

    def pause(name: NameInPath, stores: StoresDep, body: SteeringRequest | None = None) -> Any:
        return move(stores, name, DeclarationState.PAUSED, body)

    def resume(name: NameInPath, stores: StoresDep) -> Any:
        return move(stores, name, DeclarationState.RUNNING)

    def cancel(name: NameInPath, stores: StoresDep, body: SteeringRequest | None = None) -> Any:
        return move(stores, name, DeclarationState.CANCELLED, body)

    def list_(
        stores: StoresDep, state: DeclarationStateFilter = None, limit: Limit = 100, cursor: Cursor = None
    ) -> Any:
        return store_of(stores).list(state=state, limit=limit, cursor=cursor)

    def get(name: NameInPath, stores: StoresDep) -> Any:
        return store_of(stores).get(name)

    paused = f"Pause a {noun}: start no more work, and pause its active runs within about a second."
    cancelled = f"Cancel a {noun} and its active runs; committed results stay."
    page: Any = Page[record]  # type: ignore[valid-type]
    router.post("/{name}:pause", response_model=record, name=f"pause_{noun}", description=paused)(pause)
    router.post("/{name}:resume", response_model=record, name=f"resume_{noun}", description=f"Resume a paused {noun}.")(
        resume
    )
    router.post("/{name}:cancel", response_model=record, name=f"cancel_{noun}", description=cancelled)(cancel)
    router.get("", response_model=page, name=f"list_{noun}s", description=f"List {noun}s, newest first.")(list_)
    router.get("/{name}", response_model=record, name=f"get_{noun}", description=f"Return a {noun} with its progress.")(
        get
    )
