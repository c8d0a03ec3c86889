"""Runs: starting, listing and reading them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query, Response

from service.api.etags import IfMatch, IfNoneMatch, etag, matching, names
from service.api.schemas import Name, RunId, RunSubmission
from service.dependencies import Cursor, Limit, StoresDep
from service.responses import serialize_in_thread
from service.strict_json import StrictRoute
from speciate.domain.labels import Relabelling, RunName, Tags
from speciate.domain.run import RunState
from speciate.domain.values import WORD
from speciate.policies import can_advise
from speciate.ports.records.base import Page
from speciate.ports.records.runs import RunRecord
from speciate.runs.declarations import policies_of
from speciate.runs.steer import label_run, start_run

router = APIRouter(prefix="/v1/runs", tags=["runs"], route_class=StrictRoute)

IdempotencyKey = Annotated[
    str | None,
    Header(
        pattern=WORD,
        description="The same request with the same key again answers the same run; another one is refused.",
    ),
]


@router.get("")
@serialize_in_thread
def list_runs(
    stores: StoresDep,
    problem: Annotated[Name | None, Query(description="runs on this problem version")] = None,
    policy: Annotated[Name | None, Query(description="runs of this policy version")] = None,
    state: RunState | None = None,
    tag: Annotated[Tags, Query(description="runs that have this tag; given several times, all of them")] = (),
    name: Annotated[RunName, Query(description="runs with this text in their name, in capitals or not")] = "",
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[RunRecord]:
    """List runs, newest first."""
    return stores.runs.list(
        problem_id=None if problem is None else stores.catalog.problem(problem).id,
        policy_id=None if policy is None else stores.catalog.policy(policy).id,
        state=state,
        tags=tag,
        name=name or None,
        limit=limit,
        cursor=cursor,
    )


@router.post("", status_code=202)
def create_run(
    body: RunSubmission, stores: StoresDep, response: Response, idempotency_key: IdempotencyKey = None
) -> RunRecord:
    """Start a run. Send an ``Idempotency-Key`` so that repeating a request that got no answer starts no second run."""
    problem = stores.catalog.problem(body.problem)
    policy, mutator, ensembles = policies_of(body.policy.items(), (body.mutator or {}).items(), stores.catalog)
    run_id, _ = start_run(
        stores.runs,
        stores.signals,
        problem=problem,
        policy=policy,
        mutator=mutator,
        spec=body.spec(),
        ensembles=ensembles,
        labels=body.labels(),
        idempotency_key=idempotency_key,
        can_advise=can_advise,
    )
    run = stores.runs.get(run_id)
    response.headers["Location"] = f"/v1/runs/{run_id}"
    response.headers["ETag"] = etag(run)
    return run


@router.get("/{run_id}", response_model=RunRecord, responses={304: {"description": "It is as If-None-Match says."}})
def get_run(run_id: RunId, stores: StoresDep, if_none_match: IfNoneMatch = None) -> Response:
    """Read a run with its progress."""
    run = stores.runs.get(run_id)
    headers = {"ETag": etag(run), "Cache-Control": "no-cache"}
    if if_none_match is not None and names(if_none_match, etag(run)):
        return Response(status_code=304, headers=headers)
    return Response(run.model_dump_json(), headers=headers, media_type="application/json")


@router.patch("/{run_id}")
def label(
    run_id: RunId, body: Relabelling, stores: StoresDep, response: Response, if_match: IfMatch = None
) -> RunRecord:
    """Change what people call a run: name, tags and note, at any time. Nothing of them changes what it does."""
    stores.runs.get(run_id)  # of this project
    label_run(matching(if_match, stores.runs), stores.signals, run_id, body)
    run = stores.runs.get(run_id)
    response.headers["ETag"] = etag(run)
    return run
