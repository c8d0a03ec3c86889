"""Policies: versioned, never changed; asked only by workers, and here to see whether they answer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Query, Response

from service.api.schemas import NameInPath, PingAnswer, PolicySubmission
from service.dependencies import Cursor, Limit, PartsDep, PlaneDep
from service.strict_json import StrictRoute
from speciate.domain.policy import Policy
from speciate.domain.values import SLUG
from speciate.policies import build_client
from speciate.ports.policy import Identifying, PolicyClient
from speciate.ports.records import Page, PolicyVersion

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
async def add_policy(body: PolicySubmission, parts: PartsDep, response: Response) -> PolicyVersion:
    """Register a policy; the same registration again is the same version, and other weights are another one.

    Its endpoint is asked which models and adapters it serves, unless ``check`` is false; 503 says what is amiss.
    """
    definition = await to_thread.run_sync(_checked, body.definition, body.check, limiter=parts.pings)
    version, new = await to_thread.run_sync(parts.plane.catalog.add_policy, definition)
    response.status_code = 201 if new else 200
    response.headers["Location"] = f"/v1/policies/{version.id}"
    return version


@router.post("/{name}:ping")
async def ping_policy(name: NameInPath, parts: PartsDep) -> PingAnswer:
    """Ask a policy for a sign of life; 503 says why it cannot be used."""
    version = await to_thread.run_sync(parts.plane.catalog.policy, name)
    begun = time.monotonic()
    message = await to_thread.run_sync(_ping, version.definition, limiter=parts.pings)
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


def _checked(policy: Policy, check: bool) -> Policy:
    # Its client knows which options and which endpoint the kind needs.
    with _opened(policy) as client:
        return client.identified() if check and isinstance(client, Identifying) else policy


def _ping(policy: Policy) -> str:
    with _opened(policy) as client:
        return client.ping()


@contextmanager
def _opened(policy: Policy) -> Iterator[PolicyClient]:
    client = build_client(policy)
    # Some hold connections, and then close them like a file.
    with client if isinstance(client, AbstractContextManager) else nullcontext():
        yield client
