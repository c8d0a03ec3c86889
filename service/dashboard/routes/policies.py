"""Policies: the list, and the page of a version with statistics, unlocks and a ping of its endpoint."""

from __future__ import annotations

from typing import Final

from anyio import to_thread
from fastapi import APIRouter, Request, Response

from service import policy_registration
from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.forms import FormErrors, SubmittedForm, form_errors
from service.dashboard.pages import address, page
from service.dashboard.parameters import Text
from service.dashboard.routes.visibility import visibility_from
from service.dependencies import AppStateDep
from service.policy_registration import PingResult
from speciate.domain.errors import SpeciateError
from speciate.domain.visibility import Visibility
from speciate.schema.policies import PolicyVersion

router = APIRouter(include_in_schema=False, prefix="/policies")

_LIMIT: Final = 60


@router.get("")
def list_policies(request: Request, dashboard: DashboardDep, visibility: Text = "", cursor: Text = "") -> Response:
    shown_visibility = visibility_from(visibility)
    versions = dashboard.stores.catalog.policies(visibility=shown_visibility, limit=_LIMIT, cursor=cursor or None)
    older = versions.next_cursor and address("/policies", visibility=visibility, cursor=versions.next_cursor)
    cells = dashboard.overview.matrix([policy.id for policy in versions.items])
    own = {policy.id: [cell for cell in cells if cell.pair == (policy.id, None)] for policy in versions.items}
    return page(request, "policies.html", policies=versions.items, cells=own, older=older, visibility=visibility)


@router.get("/{name}")
def show_policy(request: Request, name: str, dashboard: DashboardDep) -> Response:
    return _page(request, dashboard, dashboard.stores.catalog.policy(name))


@router.post("/{name}", dependencies=[SubmittedForm])
async def ping_policy(
    request: Request,
    name: str,
    dashboard: DashboardDep,
    app_state: AppStateDep,
) -> Response:
    """Ping the endpoint and show the result; only on request, since it may load an adapter."""
    version = await to_thread.run_sync(dashboard.stores.catalog.policy, name)
    ping = errors = None
    try:
        ping = await policy_registration.ping(version.definition, app_state)
    except SpeciateError as error:
        errors = form_errors(error)
    return await to_thread.run_sync(_page, request, dashboard, version, ping, errors)


def _page(
    request: Request,
    dashboard: DashboardContext,
    version: PolicyVersion,
    ping: PingResult | None = None,
    errors: FormErrors | None = None,
) -> Response:
    return page(
        request,
        "policy.html",
        version=version,
        policy=version.definition,
        ping=ping,
        errors=errors,
        figures=dashboard.overview.policy(version.id),
        versions=dashboard.stores.catalog.policies(
            slug=version.definition.slug, visibility=Visibility.ALL, limit=20
        ).items,
        unlocks=dashboard.stores.unlocks.list(policy_id=version.id, limit=60).items,
        runs=dashboard.stores.runs.list(policy_id=version.id, limit=12).items,
    )
