"""Routes for policies: register, list, read and ping."""

from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Query, Response

from service import policy_registration
from service.api.schemas import NameInPath, PingResponse, PolicySubmission, VisibilityFilter
from service.dependencies import AppStateDep, Cursor, Limit, StoresDep
from service.principal import PrincipalDep
from service.strict_json import StrictRoute
from speciate.domain.values import SLUG
from speciate.domain.visibility import Visibility, VisibilityChange
from speciate.schema.base import Page
from speciate.schema.policies import PolicyVersion

router = APIRouter(prefix="/v1/policies", tags=["policies"], route_class=StrictRoute)


@router.get("")
def list_policies(
    stores: StoresDep,
    slug: Annotated[str | None, Query(max_length=80, pattern=SLUG, description="Limit to a policy.")] = None,
    visibility: VisibilityFilter = Visibility.VISIBLE,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[PolicyVersion]:
    """List policy versions, newest first."""
    return stores.overview.policy_results(
        stores.catalog.policies(slug=slug, visibility=visibility, limit=limit, cursor=cursor)
    )


@router.post(
    "", status_code=201, responses={200: {"model": PolicyVersion, "description": "This version exists already."}}
)
async def add_policy(
    body: PolicySubmission, app_state: AppStateDep, stores: StoresDep, principal: PrincipalDep, response: Response
) -> PolicyVersion:
    """Register a policy. The same registration returns the same version; other weights make another version.

    Unless `check` is false, the service asks the endpoint which models and adapters it serves. If the endpoint does not
    serve the policy, the response is 503 and names the reason. Only the operator may use `api_key_env`, a variable of
    the workers; other callers send the key as `api_key`.
    """
    version, new = await policy_registration.register(body, app_state, stores, principal)
    response.status_code = 201 if new else 200
    response.headers["Location"] = f"/v1/policies/{version.id}"
    return version


@router.post("/{name}:ping")
async def ping_policy(name: NameInPath, app_state: AppStateDep, stores: StoresDep) -> PingResponse:
    """Check that the endpoint of a policy works. If not, the response is 503 and names the reason."""
    version = await to_thread.run_sync(stores.catalog.policy, name)
    result = await policy_registration.ping(version.definition, app_state)
    return PingResponse(
        policy=version.definition.slug,
        version=version.version,
        message=result.message,
        verdict=result.verdict,
        seconds=round(result.seconds, 3),
    )


@router.get("/{name}")
def get_policy(name: NameInPath, stores: StoresDep) -> PolicyVersion:
    """Return a policy version."""
    return stores.catalog.policy(name)


@router.get("/{name}/versions")
def list_policy_versions(
    name: NameInPath,
    stores: StoresDep,
    visibility: VisibilityFilter = Visibility.VISIBLE,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[PolicyVersion]:
    """List the versions of a policy, newest first."""
    slug = stores.catalog.policy(name).definition.slug
    return stores.overview.policy_results(
        stores.catalog.policies(slug=slug, visibility=visibility, limit=limit, cursor=cursor)
    )


@router.post("/{name}:archive")
def archive_policy(name: NameInPath, stores: StoresDep) -> Page[PolicyVersion]:
    """Archive a policy version, or all versions of a slug.

    Lists hide it and new work cannot use it; records still count it.
    """
    return Page[PolicyVersion](items=stores.catalog.change_policy(name, VisibilityChange.ARCHIVE))


@router.delete("/{name}")
def delete_policy(name: NameInPath, stores: StoresDep) -> Page[PolicyVersion]:
    """Delete a policy version, or all versions of a slug. It counts nowhere, and can be restored until it is purged."""
    return Page[PolicyVersion](items=stores.catalog.change_policy(name, VisibilityChange.DELETE))


@router.post("/{name}:restore")
def restore_policy(name: NameInPath, stores: StoresDep) -> Page[PolicyVersion]:
    """Restore a policy version, or all versions of a slug: undo the deletion, else the archiving."""
    return Page[PolicyVersion](items=stores.catalog.change_policy(name, VisibilityChange.RESTORE))
