"""Policies: versioned, never changed; asked only by workers, and here to see whether they answer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Query, Response

from service.api.schemas import NameInPath, PingAnswer, PolicySubmission
from service.dependencies import Cursor, Limit, Parts, PartsDep, PlaneDep
from service.principal import PrincipalDep
from service.strict_json import StrictRoute
from speciate.domain.errors import Flaw, ForbiddenError, InvalidInputError
from speciate.domain.policy import Policy
from speciate.domain.values import SLUG
from speciate.outward.network import Network
from speciate.outward.transport import check_url
from speciate.policies import Surroundings, build_client
from speciate.ports.policy import Identifying, PolicyClient
from speciate.ports.records import Page, PolicyVersion
from speciate.storage.plane import Plane

router = APIRouter(prefix="/v1/policies", tags=["policies"], route_class=StrictRoute)


@router.get("")
def list_policies(
    plane: PlaneDep,
    slug: Annotated[str | None, Query(max_length=80, pattern=SLUG, description="of this policy only")] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[PolicyVersion]:
    """List policy versions, newest first."""
    return plane.catalog.policies(slug=slug, limit=limit, cursor=cursor)


@router.post("", status_code=201, responses={200: {"model": PolicyVersion, "description": "It was there already."}})
async def add_policy(
    body: PolicySubmission, parts: PartsDep, plane: PlaneDep, principal: PrincipalDep, response: Response
) -> PolicyVersion:
    """Register a policy; the same registration again is the same version, and other weights are another one.

    Its endpoint is asked which models and adapters it serves, unless ``check`` is false; 503 says what is amiss. Only
    the operator names a variable of the workers (``api_key_env``): anybody else sends the key itself.
    """
    if (variable := body.definition.api_key_env) is not None and not principal.all_projects:
        # Its value is the operator's, and goes to whatever address the definition names.
        raise ForbiddenError(
            f"definition.api_key_env: the key in {variable} belongs to whoever runs the workers, and only the"
            " operator's token may have it sent to an endpoint.",
            remedy="Send a key of your own as 'api_key', or ask the operator to register the policy in your project.",
        )
    # A slow name server may hold those threads that wait for policies, not those that answer requests.
    await to_thread.run_sync(_check_address, body.definition, parts.settings.network, limiter=parts.pings)
    policy = await to_thread.run_sync(_checked, body, parts, limiter=parts.pings)
    version, new = await to_thread.run_sync(_add, body, policy, plane)
    response.status_code = 201 if new else 200
    response.headers["Location"] = f"/v1/policies/{version.id}"
    return version


@router.post("/{name}:ping")
async def ping_policy(name: NameInPath, parts: PartsDep, plane: PlaneDep) -> PingAnswer:
    """Ask a policy for a sign of life; 503 says why it cannot be used."""
    version = await to_thread.run_sync(plane.catalog.policy, name)
    begun = time.monotonic()
    message = await to_thread.run_sync(_ping, version.definition, _surroundings(parts), limiter=parts.pings)
    return PingAnswer(
        policy=version.definition.slug,
        version=version.version,
        message=message,
        seconds=round(time.monotonic() - begun, 3),
    )


@router.get("/{name}")
def get_policy(name: NameInPath, plane: PlaneDep) -> PolicyVersion:
    """Read a policy version."""
    return plane.catalog.policy(name)


@router.get("/{name}/versions")
def list_versions(name: NameInPath, plane: PlaneDep, limit: Limit = 100, cursor: Cursor = None) -> Page[PolicyVersion]:
    """List the versions of a policy, newest first."""
    slug = plane.catalog.policy(name).definition.slug
    return plane.catalog.policies(slug=slug, limit=limit, cursor=cursor)


def _check_address(policy: Policy, network: Network) -> None:
    if policy.base_url is not None and (wrong := check_url(policy.base_url, network)) is not None:
        flaw = Flaw(wrong, where="definition.base_url")
        raise InvalidInputError(f"The policy is not valid: {flaw}", flaws=(flaw,))


def _checked(body: PolicySubmission, parts: Parts) -> Policy:
    """Return the policy as its endpoint serves it; its client knows which options and which endpoint the kind needs."""
    policy, surroundings = body.definition, _surroundings(parts)
    if (given := body.api_key) is not None:
        policy = policy.model_copy(update={"api_key_id": parts.plane.policy_keys.new_id()})
        # Not stored yet: only what is registered has a key.
        surroundings = replace(surroundings, key_of=lambda _: given.get_secret_value())
    with _opened(policy, surroundings) as client:
        return client.identified() if body.check and isinstance(client, Identifying) else policy


def _add(body: PolicySubmission, policy: Policy, plane: Plane) -> tuple[PolicyVersion, bool]:
    version, new = plane.catalog.add_policy(policy)
    if body.api_key is not None and (kept := version.definition.api_key_id) is not None:
        # Cut off before this, the version has no key: sending the same again stores it.
        plane.policy_keys.store(kept, body.api_key.get_secret_value())
    return version, new


def _surroundings(parts: Parts) -> Surroundings:
    return Surroundings(parts.settings.network, parts.plane.policy_keys.open)


def _ping(policy: Policy, surroundings: Surroundings) -> str:
    with _opened(policy, surroundings) as client:
        return client.ping()


@contextmanager
def _opened(policy: Policy, surroundings: Surroundings) -> Iterator[PolicyClient]:
    client = build_client(policy, surroundings)
    # Some hold connections, and then close them like a file.
    with client if isinstance(client, AbstractContextManager) else nullcontext():
        yield client
