"""Routes for runs: start, list, read, label, steer, archive and delete. Also the list of strategies."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated

from fastapi import APIRouter, Header, Query, Response

from service.api.etags import IfMatch, IfNoneMatch, etag, matches, store_if_match
from service.api.schemas import Name, RunId, RunSubmission, SteeringRequest
from service.api.visibility import VisibilityFilter, add_visibility_routes
from service.dependencies import Cursor, Limit, StoresDep
from service.responses import serialize_in_thread
from service.strict_json import StrictRoute
from speciate.domain.labels import Relabelling, RunName, Tags
from speciate.domain.run import RunState
from speciate.domain.values import WORD
from speciate.domain.visibility import Visibility, VisibilityChange
from speciate.messaging.active import active_evaluations
from speciate.policies import can_advise
from speciate.runs.declarations import problem_and_policies
from speciate.runs.start import start_run
from speciate.schema.base import Page
from speciate.schema.runs import ActiveEvaluation, RunOrder, RunRecord, StrategyRecord
from speciate.search.strategies import STRATEGIES

router = APIRouter(prefix="/v1/runs", tags=["runs"], route_class=StrictRoute)
strategies = APIRouter(prefix="/v1/strategies", tags=["runs"])

IdempotencyKey = Annotated[
    str | None,
    Header(
        pattern=WORD,
        description="Repeating a request with the same key returns the object created first."
        " A different request with the same key gives 409.",
    ),
]


@router.get("")
@serialize_in_thread
def list_runs(
    stores: StoresDep,
    problem: Annotated[Name | None, Query(description="Limit to a problem version.")] = None,
    policy: Annotated[Name | None, Query(description="Limit to a policy version.")] = None,
    state: Annotated[RunState | None, Query(description="Limit to a state.")] = None,
    tag: Annotated[Tags, Query(description="Limit to runs with this tag. Repeat it to require several.")] = (),
    name: Annotated[RunName, Query(description="Limit to names that contain this text, ignoring case.")] = "",
    sort: Annotated[
        RunOrder,
        Query(
            description="Order. Names are listed from A to Z, active states first, times and amounts from the largest;"
            " `best` compares the best candidates: the unlock target met, then most targets, then the hardest."
            " Runs that tie are listed newest first."
        ),
    ] = RunOrder.STARTED,
    reverse: Annotated[bool, Query(description="List in the opposite order.")] = False,
    visibility: VisibilityFilter = Visibility.VISIBLE,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[RunRecord]:
    """List runs, newest first by default."""
    return stores.runs.list(
        problem_id=None if problem is None else stores.catalog.problem(problem).id,
        policy_id=None if policy is None else stores.catalog.policy(policy).id,
        state=state,
        tags=tag,
        name=name or None,
        order=sort,
        reverse=reverse,
        visibility=visibility,
        limit=limit,
        cursor=cursor,
    )


@router.post("", status_code=202)
def create_run(
    body: RunSubmission, stores: StoresDep, response: Response, idempotency_key: IdempotencyKey = None
) -> RunRecord:
    """Start a run. Send an `Idempotency-Key` to make it safe to repeat the request after a lost response."""
    problem, policies = problem_and_policies(
        body.problem, body.policy.items(), (body.mutator or {}).items(), stores.catalog
    )
    run_id, _ = start_run(
        stores.runs,
        stores.signals,
        problem=problem,
        policies=policies,
        spec=body.spec(),
        labels=body.labels(),
        idempotency_key=idempotency_key,
        request_digest=body.digest,
        can_advise=can_advise,
        seeds=body.seed_request(),
    )
    response.headers["Location"] = f"/v1/runs/{run_id}"
    return _current(run_id, stores, response)


@router.get("/{run_id}", response_model=RunRecord, responses={304: {"description": "The ETag still matches."}})
def get_run(run_id: RunId, stores: StoresDep, if_none_match: IfNoneMatch = None) -> Response:
    """Return a run with its progress."""
    run = stores.runs.get(run_id)
    headers = {"ETag": etag(run), "Cache-Control": "no-cache"}
    if if_none_match is not None and matches(if_none_match, etag(run)):
        return Response(status_code=304, headers=headers)
    return Response(run.model_dump_json(), headers=headers, media_type="application/json")


@router.get("/{run_id}/evaluations")
@serialize_in_thread
def list_active_evaluations(run_id: RunId, stores: StoresDep) -> Page[ActiveEvaluation]:
    """List the evaluations in progress that last long: their candidates, worker, seconds and last text of progress.

    One appears when it reports a text, or after a third of `lease_s`. The texts are untrusted.
    """
    stores.runs.get(run_id)
    return Page(items=active_evaluations(stores.redis, run_id))


# Every change reads the run first, so that a run of another project gives 404.
@router.patch("/{run_id}", name="label_run")
def label(
    run_id: RunId, body: Relabelling, stores: StoresDep, response: Response, if_match: IfMatch = None
) -> RunRecord:
    """Change name, tags or note of a run, in any state. Labels do not affect the search."""
    stores.runs.get(run_id)
    stores.signals.committed(store_if_match(if_match, stores.runs).label(run_id, body))
    return _current(run_id, stores, response)


@router.post("/{run_id}:pause", name="pause_run")
def pause(
    run_id: RunId, stores: StoresDep, response: Response, body: SteeringRequest | None = None, if_match: IfMatch = None
) -> RunRecord:
    """Pause a run. Work in flight still counts."""
    stores.runs.get(run_id)
    runs, reason = store_if_match(if_match, stores.runs), body.reason if body else None
    stores.signals.committed(runs.pause(run_id, reason))
    return _current(run_id, stores, response)


@router.post("/{run_id}:resume", name="resume_run")
def resume(run_id: RunId, stores: StoresDep, response: Response, if_match: IfMatch = None) -> RunRecord:
    """Resume a paused run."""
    stores.runs.get(run_id)
    stores.signals.committed(store_if_match(if_match, stores.runs).resume(run_id))
    return _current(run_id, stores, response)


@router.post("/{run_id}:cancel", name="cancel_run")
def cancel(
    run_id: RunId, stores: StoresDep, response: Response, body: SteeringRequest | None = None, if_match: IfMatch = None
) -> RunRecord:
    """Cancel a run. Work in flight is discarded; committed results stay."""
    stores.runs.get(run_id)
    runs, reason = store_if_match(if_match, stores.runs), body.reason if body else None
    stores.signals.committed(runs.cancel(run_id, reason))
    return _current(run_id, stores, response)


def _change_visibility(change: VisibilityChange) -> Callable[..., RunRecord]:
    def endpoint(run_id: RunId, stores: StoresDep, response: Response, if_match: IfMatch = None) -> RunRecord:
        stores.runs.get(run_id)
        stores.signals.committed(store_if_match(if_match, stores.runs).change_visibility(run_id, change))
        return _current(run_id, stores, response)

    return endpoint


add_visibility_routes(router, "/{run_id}", "run", "an ended run", _change_visibility)


@strategies.get("")
def list_strategies() -> Page[StrategyRecord]:
    """List the strategies with the JSON schemas of their options."""
    return _strategies()


@cache
def _strategies() -> Page[StrategyRecord]:
    return Page[StrategyRecord](
        items=tuple(
            StrategyRecord(
                name=name,
                description=(strategy.__doc__ or "").strip().partition("\n")[0],
                options=strategy.Config.model_json_schema(),
            )
            for name, strategy in STRATEGIES.items()
        )
    )


def _current(run_id: RunId, stores: StoresDep, response: Response) -> RunRecord:
    run = stores.runs.get(run_id)
    response.headers["ETag"] = etag(run)
    return run
