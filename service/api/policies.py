"""Policies: versioned, never changed; asked only by workers, and here to see whether they answer."""

from __future__ import annotations

from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Query, Response

from service import policy_registration
from service.api.schemas import NameInPath, PingAnswer, PolicySubmission
from service.dependencies import AppStateDep, Cursor, Limit, StoresDep
from service.principal import PrincipalDep
from service.strict_json import StrictRoute
from speciate.domain.values import SLUG
from speciate.ports.records.base import Page
from speciate.ports.records.policies import PolicyVersion

router = APIRouter(prefix="/v1/policies", tags=["policies"], route_class=StrictRoute)


@router.get("")
def list_policies(
    stores: StoresDep,
    slug: Annotated[str | None, Query(max_length=80, pattern=SLUG, description="of this policy only")] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[PolicyVersion]:
    """List policy versions, newest first."""
    return stores.catalog.policies(slug=slug, limit=limit, cursor=cursor)


@router.post("", status_code=201, responses={200: {"model": PolicyVersion, "description": "It was there already."}})
async def add_policy(
    body: PolicySubmission, app_state: AppStateDep, stores: StoresDep, principal: PrincipalDep, response: Response
) -> PolicyVersion:
    """Register a policy; the same registration again is the same version, and other weights are another one.

    Its endpoint is asked which models and adapters it serves, unless ``check`` is false; 503 says what is amiss. Only
    the operator names a variable of the workers (``api_key_env``): anybody else sends the key itself.
    """
    version, new = await policy_registration.register(body, app_state, stores, principal)
    response.status_code = 201 if new else 200
    response.headers["Location"] = f"/v1/policies/{version.id}"
    return version


@router.post("/{name}:ping")
async def ping_policy(name: NameInPath, app_state: AppStateDep, stores: StoresDep) -> PingAnswer:
    """Ask a policy for a sign of life; 503 says why it cannot be used."""
    version = await to_thread.run_sync(stores.catalog.policy, name)
    sign = await policy_registration.ping(version.definition, app_state)
    return PingAnswer(
        policy=version.definition.slug,
        version=version.version,
        message=sign.message,
        seconds=round(sign.seconds, 3),
    )


@router.get("/{name}")
def get_policy(name: NameInPath, stores: StoresDep) -> PolicyVersion:
    """Read a policy version."""
    return stores.catalog.policy(name)


@router.get("/{name}/versions")
def list_versions(
    name: NameInPath, stores: StoresDep, limit: Limit = 100, cursor: Cursor = None
) -> Page[PolicyVersion]:
    """List the versions of a policy, newest first."""
    slug = stores.catalog.policy(name).definition.slug
    return stores.catalog.policies(slug=slug, limit=limit, cursor=cursor)
