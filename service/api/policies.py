"""Routes for policies: register, list, read and ping."""

from dataclasses import asdict
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Query, Response

from service import policy_registration
from service.api.schemas import NameInPath, PingResponse, PolicySubmission, VisibilityFilter
from service.api.shared_routes import add_version_routes
from service.dependencies import AppStateDep, Cursor, Limit, StoresDep
from service.principal import PrincipalDep
from service.strict_json import StrictRoute
from speciate.domain.values import SLUG
from speciate.domain.visibility import Visibility
from speciate.schema.base import Page
from speciate.schema.policies import PolicyVersion
from speciate.storage.stores import Stores

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
    return PingResponse(policy=version.definition.slug, version=version.version, **asdict(result))


@router.get("/{name}")
def get_policy(name: NameInPath, stores: StoresDep) -> PolicyVersion:
    """Return a policy version."""
    return stores.catalog.policy(name)


def _versions(stores: Stores, name: str, **page: Any) -> Page[PolicyVersion]:
    slug = stores.catalog.policy(name).definition.slug
    return stores.overview.policy_results(stores.catalog.policies(slug=slug, **page))


add_version_routes(router, PolicyVersion, "policy", _versions, lambda stores: stores.catalog.change_policy)
