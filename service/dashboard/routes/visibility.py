"""Archive, delete and restore runs, problems and policies from their pages and lists."""

from collections.abc import Callable
from typing import Final, TypeVar

from fastapi import APIRouter, Response
from fastapi.responses import RedirectResponse

from service.api.schemas import NameInPath
from service.dashboard.context import DashboardDep
from service.dashboard.forms import Form, FormDep, local_path
from service.dashboard.pages import address
from service.dashboard.parameters import RunIdDep
from speciate.domain.values import storable
from speciate.domain.visibility import Visibility, VisibilityChange
from speciate.schema.base import Page

router = APIRouter(include_in_schema=False)

_LIMIT: Final = 60
V = TypeVar("V")


def visibility_from(text: str) -> Visibility:
    """Return the list filter of a query parameter; unknown values are the default."""
    return Visibility(text) if text in set(Visibility) else Visibility.VISIBLE


def listed(
    list_versions: Callable[..., Page[V]], path: str, name: str, visibility: str, cursor: str
) -> tuple[Page[V], dict[str, str | None]]:
    """Return a page of versions, and the values of its filters in the template."""
    filters = {"name": storable(name).strip(), "visibility": visibility}
    versions = list_versions(
        name=filters["name"], visibility=visibility_from(visibility), limit=_LIMIT, cursor=cursor or None
    )
    older = versions.next_cursor and address(path, **filters, cursor=versions.next_cursor)
    return versions, {**filters, "older": older}


def _change_run(change: VisibilityChange) -> Callable[..., Response]:
    def endpoint(run_id: RunIdDep, form: FormDep, dashboard: DashboardDep) -> Response:
        stores = dashboard.stores
        stores.signals.committed(stores.runs.change_visibility(run_id, change))
        return _back(form, f"/runs/{run_id}")

    return endpoint


def _change_version(kind: str, change: VisibilityChange) -> Callable[..., Response]:
    def endpoint(name: NameInPath, form: FormDep, dashboard: DashboardDep) -> Response:
        catalog = dashboard.stores.catalog
        (catalog.change_problem if kind == "problems" else catalog.change_policy)(name, change)
        return _back(form, address(f"/{kind}/{name}"))

    return endpoint


def _back(form: Form, item: str) -> Response:
    """Redirect to the list that sent the form, or else to the page of the object."""
    return RedirectResponse(local_path(form.text("next") or item), 303)


for _change in VisibilityChange:
    router.post(f"/runs/{{run_id}}/{_change.value}")(_change_run(_change))
    for _kind in ("problems", "policies"):
        router.post(f"/{_kind}/{{name}}/{_change.value}")(_change_version(_kind, _change))
