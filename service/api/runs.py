"""Routes for runs: start, list, read, label, steer, archive and delete. Also the list of strategies."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Header, Query, Response

from service.api.schemas import IdempotencyKey, Name, RunId, RunSubmission, SteeringRequest, VisibilityFilter
from service.dependencies import Cursor, Limit, StoresDep
from service.strict_json import StrictRoute
from speciate.domain.errors import PreconditionFailedError
from speciate.domain.labels import Labels, Relabelling, RunName, Tags
from speciate.domain.run import RunSpec, RunState
from speciate.domain.seeds import SeedRequest
from speciate.domain.visibility import Visibility, VisibilityChange
from speciate.messaging.active import active_evaluations
from speciate.policies import asks_singly
from speciate.ports.runs import NewRun
from speciate.ports.work import Commit
from speciate.runs import estimate
from speciate.runs.run_policies import problem_and_policies
from speciate.runs.start import prepare_run, start_run
from speciate.schema.base import Page
from speciate.schema.estimates import RunEstimate
from speciate.schema.runs import ActiveEvaluation, RunOrder, RunRecord, StrategyRecord
from speciate.search.strategies import STRATEGIES
from speciate.storage.runs.records import ALL_RUNS
from speciate.storage.runs.store import PostgresRunStore
from speciate.storage.stores import Stores

router = APIRouter(prefix="/v1/runs", tags=["runs"], route_class=StrictRoute)
strategies = APIRouter(prefix="/v1/strategies", tags=["runs"], route_class=StrictRoute)

IfMatch = Annotated[str | None, Header(description="Change the run only if it still has this ETag, else 412.")]
IfNoneMatch = Annotated[str | None, Header(description="Respond 304 if the run still has this ETag.")]


def etag(run: RunRecord) -> str:
    """Return the tag of a run's committed state, which running seconds and reserved tokens do not change."""
    return _tag(run.revision, run.state)


def matches(header: str, tag: str) -> bool:
    tags = [each.strip().removeprefix("W/") for each in header.split(",")]
    return "*" in tags or tag in tags


def store_if_match(header: str | None, runs: PostgresRunStore) -> PostgresRunStore:
    """Return a store whose changes require that the run still matches ``If-Match``.

    Its changes raise ``PreconditionFailedError`` if the run does not match.
    """
    if header is None:
        return runs

    def require(revision: int, state: RunState) -> None:
        if not matches(header, tag := _tag(revision, state)):
            raise PreconditionFailedError(
                f"the run has changed since it was read; its ETag is now {tag}.",
                remedy="Read the run again before changing it.",
            )

    return replace(runs, require=require)


def _tag(revision: int, state: RunState) -> str:
    return f'"{revision}-{state.value}"'


async def _change_of_run(
    run_id: RunId, stores: StoresDep, response: Response, if_match: IfMatch = None
) -> Callable[[Callable[[PostgresRunStore], Commit]], RunRecord]:
    """Return a function that changes the run of the path, if it still has the given ETag, and returns the run."""

    def apply(change: Callable[[PostgresRunStore], Commit]) -> RunRecord:
        stores.signals.committed(change(store_if_match(if_match, stores.runs)))
        return _current(run_id, stores, response)

    return apply


ChangeDep = Annotated[Callable[[Callable[[PostgresRunStore], Commit]], RunRecord], Depends(_change_of_run)]


@router.get("")
def list_runs(
    stores: StoresDep,
    problem: Annotated[Name | None, Query(description="Limit to a problem version.")] = None,
    policy: Annotated[Name | None, Query(description="Limit to a policy version.")] = None,
    state: Annotated[RunState | None, Query(description="Limit to a state.")] = None,
    tag: Annotated[Tags, Query(description="Limit to runs with this tag. Repeat it to require several.")] = (),
    name: Annotated[RunName, Query(description="Limit to names that contain this text, ignoring case.")] = "",
    group: Annotated[
        Name,
        Query(
            description="`all`, `own` for those that no tournament or campaign started, or the name of a tournament or"
            " campaign for its runs."
        ),
    ] = ALL_RUNS,
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
        state=state, tags=tag, name=name or None, group=group, order=sort, reverse=reverse, visibility=visibility,
        limit=limit, cursor=cursor,
    )  # fmt: skip


@router.post("", status_code=202)
def create_run(
    body: RunSubmission, stores: StoresDep, response: Response, idempotency_key: IdempotencyKey = None
) -> RunRecord:
    """Start a run. Send an `Idempotency-Key` to make it safe to repeat the request after a lost response."""
    run_id = start_submitted(body, stores, idempotency_key)
    response.headers["Location"] = f"/v1/runs/{run_id}"
    return _current(run_id, stores, response)


@router.post(":estimate")
def estimate_run(body: RunSubmission, stores: StoresDep) -> RunEstimate:
    """Estimate what a run would spend, without starting it; the body is that of the request that starts it."""
    return estimate.estimate_run(stores.runs, _prepared(body, stores), asks_singly)


def start_submitted(body: RunSubmission, stores: Stores, idempotency_key: str | None) -> UUID:
    """Start a run as a request or a form describes it. Raises as ``prepare_run`` and ``start_run`` do."""
    run = _prepared(body, stores, idempotency_key)
    if body.estimate:
        run = replace(run, estimate=estimate.estimate_run(stores.runs, run, asks_singly))
    return start_run(stores.runs, stores.signals, run)[0]


def _prepared(body: RunSubmission, stores: Stores, idempotency_key: str | None = None) -> NewRun:
    problem, policies = problem_and_policies(
        body.problem, body.policy.items(), (body.mutator or {}).items(), stores.catalog
    )
    return prepare_run(
        stores.runs,
        problem=problem,
        policies=policies,
        spec=body.part(RunSpec),
        labels=body.part(Labels),
        idempotency_key=idempotency_key,
        request_digest=body.digest,
        seeds=body.part(SeedRequest),
    )


@router.get("/{run_id}", response_model=RunRecord, responses={304: {"description": "The ETag still matches."}})
def get_run(run_id: RunId, stores: StoresDep, if_none_match: IfNoneMatch = None) -> Response:
    """Return a run with its progress."""
    run = stores.runs.get(run_id)
    headers = {"ETag": etag(run), "Cache-Control": "no-cache"}
    if if_none_match is not None and matches(if_none_match, etag(run)):
        return Response(status_code=304, headers=headers)
    return Response(run.model_dump_json(), headers=headers, media_type="application/json")


@router.get("/{run_id}/evaluations")
def list_active_evaluations(run_id: RunId, stores: StoresDep) -> Page[ActiveEvaluation]:
    """List the evaluations in progress that last long: their candidates, worker, seconds and last text of progress.

    One appears when it reports a text, or after a third of `lease_s`. The texts are untrusted.
    """
    stores.runs.get(run_id)
    return Page(items=active_evaluations(stores.redis, run_id))


@router.patch("/{run_id}", name="label_run")
def label(run_id: RunId, body: Relabelling, apply: ChangeDep) -> RunRecord:
    """Change name, tags or note of a run, in any state. Labels do not affect the search."""
    return apply(lambda runs: runs.label(run_id, body))


@router.post("/{run_id}:pause", name="pause_run")
def pause(run_id: RunId, apply: ChangeDep, body: SteeringRequest | None = None) -> RunRecord:
    """Pause a run. Work in flight still counts."""
    return apply(lambda runs: runs.pause(run_id, body.reason if body else None))


@router.post("/{run_id}:resume", name="resume_run")
def resume(run_id: RunId, apply: ChangeDep) -> RunRecord:
    """Resume a paused run."""
    return apply(lambda runs: runs.resume(run_id))


@router.post("/{run_id}:cancel", name="cancel_run")
def cancel(run_id: RunId, apply: ChangeDep, body: SteeringRequest | None = None) -> RunRecord:
    """Cancel a run. Work in flight is discarded; committed results stay."""
    return apply(lambda runs: runs.cancel(run_id, body.reason if body else None))


@router.post("/{run_id}:archive")
def archive_run(run_id: RunId, apply: ChangeDep) -> RunRecord:
    """Archive an ended run. Lists hide it and new work cannot use it; records still count it."""
    return apply(lambda runs: runs.change_visibility(run_id, VisibilityChange.ARCHIVE))


@router.delete("/{run_id}")
def delete_run(run_id: RunId, apply: ChangeDep) -> RunRecord:
    """Delete an ended run. It counts nowhere, and can be restored until it is purged."""
    return apply(lambda runs: runs.change_visibility(run_id, VisibilityChange.DELETE))


@router.post("/{run_id}:restore")
def restore_run(run_id: RunId, apply: ChangeDep) -> RunRecord:
    """Restore an ended run: undo the deletion, else the archiving."""
    return apply(lambda runs: runs.change_visibility(run_id, VisibilityChange.RESTORE))


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


def _current(run_id: RunId, stores: Stores, response: Response) -> RunRecord:
    run = stores.runs.get(run_id)
    response.headers["ETag"] = etag(run)
    return run
