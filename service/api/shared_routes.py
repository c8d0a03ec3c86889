"""Routes that several kinds of objects share."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from fastapi import APIRouter, Response

from service.api.schemas import DeclarationStateFilter, IdempotencyKey, NameInPath, SteeringRequest, VisibilityFilter
from service.dependencies import Cursor, Limit, StoresDep
from speciate.domain.declaration import Declaration, DeclarationState
from speciate.domain.visibility import Visibility, VisibilityChange
from speciate.schema.base import Page, Record
from speciate.schema.declarations import DeclarationRecord
from speciate.storage.catalog import Catalog
from speciate.storage.declarations.store import DeclarationStore
from speciate.storage.stores import Stores

D = TypeVar("D", bound=Declaration)


def add_declaration_routes(
    router: APIRouter,
    record: type[DeclarationRecord[Any]],
    store_of: Callable[[Stores], DeclarationStore[Any, Any]],
    noun: str,
    declaration: type[D],
    pin: Callable[[D, Catalog], D],
) -> None:
    """Add the routes that declare, list, read, pause, resume and cancel tournaments or campaigns."""

    def create(
        body: declaration,  # type: ignore[valid-type]
        stores: StoresDep,
        response: Response,
        idempotency_key: IdempotencyKey = None,
    ) -> Any:
        store, declared = store_of(stores), pin(body, stores.catalog)
        declared_id, _ = store.create(declared, request_digest=body.digest, idempotency_key=idempotency_key)  # type: ignore[attr-defined]
        response.headers["Location"] = f"/v1/{noun}s/{declared_id}"
        return store.get(declared_id)

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

    declare = f"Declare a {noun}. It starts at once and is immutable; names are pinned to versions."
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
    router.post("", status_code=202, response_model=record, name=f"create_{noun}", description=declare)(create)


def add_version_routes(
    router: APIRouter,
    record: type[Record],
    noun: str,
    versions_of: Callable[..., Page[Any]],
    change_of: Callable[[Stores], Callable[[str, VisibilityChange], Sequence[Record]]],
) -> None:
    """Add the routes that list the versions of a problem or policy, and archive, delete and restore one or all."""
    page: Any = Page[record]  # type: ignore[valid-type]

    def versions(
        name: NameInPath,
        stores: StoresDep,
        visibility: VisibilityFilter = Visibility.VISIBLE,
        limit: Limit = 100,
        cursor: Cursor = None,
    ) -> Any:
        return versions_of(stores, name, visibility=visibility, limit=limit, cursor=cursor)

    def endpoint(change: VisibilityChange) -> Callable[..., Any]:
        def route(name: NameInPath, stores: StoresDep) -> Any:
            return page(items=change_of(stores)(name, change))

        return route

    text = f"List the versions of a {noun}, newest first."
    router.get("/{name}/versions", response_model=page, name=f"list_{noun}_versions", description=text)(versions)
    for change, path, effect in (
        (VisibilityChange.ARCHIVE, ":archive", ". Lists hide it and new work cannot use it; records still count it."),
        (VisibilityChange.DELETE, "", ". It counts nowhere, and can be restored until it is purged."),
        (VisibilityChange.RESTORE, ":restore", ": undo the deletion, else the archiving."),
    ):
        text = f"{change.value.capitalize()} a {noun} version, or all versions of a slug{effect}"
        router.add_api_route(
            f"/{{name}}{path}", endpoint(change), methods=["POST" if path else "DELETE"], response_model=page,
            name=f"{change.value}_{noun}", description=text,
        )  # fmt: skip
