"""Routes for the results of a run (events, candidates, archive, …), and for candidates and rollouts by id."""

from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from service.api.schemas import CandidateDiff, CandidateId, Name, RolloutId, RunId
from service.api.unlocks import StateFilter, state_of
from service.dependencies import AppStateDep, Cursor, Limit, StoresDep
from service.diffs import unified_diff
from service.responses import attached_json_lines, json_lines_response
from service.streams import EVENT_STREAM
from service.strict_json import StrictRoute
from speciate.domain.candidate import CandidateStatus
from speciate.domain.errors import invalid_field
from speciate.domain.policy import PolicyRole
from speciate.domain.target import ClaimState
from speciate.schema.base import Page
from speciate.schema.candidates import (
    AdviceRecord,
    ArchiveCell,
    CandidateDetail,
    CandidateRecord,
    RolloutDetail,
    RolloutRecord,
)
from speciate.schema.runs import EventRecord, RankedCandidate
from speciate.schema.unlocks import UnlockRecord
from speciate.storage import cursors
from speciate.storage.candidates.listing import CandidateFilter
from speciate.storage.stores import Stores

router = APIRouter(prefix="/v1/runs/{run_id}", tags=["run results"], route_class=StrictRoute)
by_id = APIRouter(prefix="/v1", tags=["run results"], route_class=StrictRoute)

After = Annotated[int, Query(ge=0, lt=2**63, description="Sequence number of the last event to skip.")]
LastEventId = Annotated[str | None, Header(description="`id` of the last event received. Overrides `after`.")]


@router.get(
    "/events",
    response_model=Page[EventRecord],
    responses={200: {"content": {EVENT_STREAM: {"schema": {"type": "string"}}}, "description": "A page or a stream."}},
)
async def list_events(
    request: Request,
    run_id: RunId,
    app_state: AppStateDep,
    stores: StoresDep,
    after: After = 0,
    limit: Limit = 500,
    cursor: Cursor = None,
    last_event_id: LastEventId = None,
) -> Page[EventRecord] | Response:
    """Return the events of a run in order.

    With `Accept: text/event-stream`, events arrive as they happen: `id` is the sequence number of the event, `event`
    its kind and `data` the event as JSON. `Last-Event-ID` resumes without loss or repetition. Comments keep a silent
    connection open. `event: end` follows the last event of a run.
    """
    if EVENT_STREAM in request.headers.get("accept", ""):
        return await app_state.hub.watch(run_id, _position(last_event_id, after))
    start = cursors.decode(cursor, [int])[0] if cursor else after
    return await to_thread.run_sync(_events, stores, run_id, start, limit)


def _events(stores: Stores, run_id: RunId, after: int, limit: int) -> Page[EventRecord]:
    events = stores.queries.events(run_id, after=after, limit=limit + 1)
    return cursors.page(events, limit, lambda event: event, lambda event: [event.seq])


def _position(last_event_id: str | None, after: int) -> int:
    if not last_event_id:
        return after
    if not (last_event_id.isascii() and last_event_id.isdecimal() and len(last_event_id) < 19):
        raise invalid_field("The stream position", "Last-Event-ID", "expected the id of an event, which is a number")
    return int(last_event_id)


@router.get("/candidates")
def list_run_candidates(
    run_id: RunId,
    stores: StoresDep,
    status: Annotated[CandidateStatus | None, Query(description="Limit to an outcome.")] = None,
    island: Annotated[int | None, Query(ge=0, lt=2**31, description="Limit to an island.")] = None,
    role: Annotated[PolicyRole | None, Query(description="Limit to candidates generated in this role.")] = None,
    policy: Annotated[Name | None, Query(description="Limit to candidates of a policy version.")] = None,
    target: Annotated[
        str | None,
        Query(max_length=80, description="Limit to candidates that meet a target, confirmed or not, or `any` target."),
    ] = None,
    rule: Annotated[
        str | None,
        Query(max_length=2000, description="Limit to candidates that satisfy a rule such as `gain >= 5 and cost < 9`."),
    ] = None,
    elite: Annotated[bool, Query(description="Limit to the current elites of the archive.")] = False,
    sort: Annotated[
        str | None,
        Query(
            max_length=80,
            description="Sort key. `number`: newest first. A reward name or `scalar`: best first, ties by number,"
            " candidates without a value last.",
        ),
    ] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[CandidateRecord]:
    """List the candidates of a run without their texts, newest first by default."""
    filters = CandidateFilter(
        status=status, island=island, role=role, target=target, rule=rule, elite=elite, sort=sort,
        policy_id=None if policy is None else stores.catalog.policy(policy).id,
    )  # fmt: skip
    return stores.queries.candidates(run_id, filters, limit=limit, cursor=cursor)


@router.get("/candidates/{number}")
def get_run_candidate(
    run_id: RunId,
    number: Annotated[int, Path(ge=1, lt=2**63, description="Number of the candidate in its run.")],
    stores: StoresDep,
) -> CandidateDetail:
    """Return the candidate with this number, including its texts."""
    return stores.queries.candidate_of(run_id, number)


@router.get("/front")
def get_run_front(run_id: RunId, stores: StoresDep) -> Page[RankedCandidate]:
    """Return the Pareto front of the run, best candidate first."""
    return Page[RankedCandidate](items=stores.queries.front(run_id))


@router.get("/archive")
def get_run_archive(run_id: RunId, stores: StoresDep) -> Page[ArchiveCell]:
    """Return the elite of every cell, by island and cell."""
    return Page[ArchiveCell](items=stores.queries.archive(run_id))


@router.get("/rollouts")
def list_run_rollouts(
    run_id: RunId, stores: StoresDep, limit: Limit = 100, cursor: Cursor = None
) -> Page[RolloutRecord]:
    """List the rollouts of a run without their texts, newest first."""
    return stores.queries.rollouts(run_id, limit=limit, cursor=cursor)


@router.get("/guidance")
def list_run_guidance(
    run_id: RunId, stores: StoresDep, limit: Limit = 100, cursor: Cursor = None
) -> Page[AdviceRecord]:
    """List the advice that the run wrote for its own prompts, newest first, with its effect."""
    return stores.queries.advice(run_id, limit=limit, cursor=cursor)


@router.get("/unlocks")
def list_run_unlocks(
    run_id: RunId,
    stores: StoresDep,
    state: StateFilter = ClaimState.CONFIRMED,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[UnlockRecord]:
    """List the targets that the run reached, cheapest first."""
    stores.runs.get(run_id)
    return stores.unlocks.list(run_id=run_id, state=state_of(state), limit=limit, cursor=cursor)


@router.get("/export", response_class=StreamingResponse, responses=json_lines_response("A candidate per line."))
def export_run(run_id: RunId, stores: StoresDep) -> StreamingResponse:
    """Stream every candidate with its texts as JSON Lines, by number."""
    stores.runs.get(run_id)  # raise 404 before the response begins
    return attached_json_lines(f"run-{run_id}", stores.queries.export(run_id))


@router.get("/rollouts/export", response_class=StreamingResponse, responses=json_lines_response("A rollout per line."))
def export_run_rollouts(run_id: RunId, stores: StoresDep) -> StreamingResponse:
    """Stream every rollout with prompt, completion, known tokens and the rewards of its answers as JSON Lines."""
    stores.runs.get(run_id)  # raise 404 before the response begins
    return attached_json_lines(f"rollouts-{run_id}", stores.queries.export_rollouts(run_id))


@by_id.get("/candidates/{candidate_id}")
def get_candidate(candidate_id: CandidateId, stores: StoresDep) -> CandidateDetail:
    """Return a candidate with its texts."""
    return stores.queries.candidate(candidate_id)


@by_id.get("/candidates/{candidate_id}/diff")
def get_candidate_diff(candidate_id: CandidateId, stores: StoresDep) -> CandidateDiff:
    """Return the changes of a candidate relative to its first parent, as a unified diff."""
    candidate = stores.queries.candidate(candidate_id)
    parent = stores.queries.candidate_of(candidate.run_id, candidate.parents[0]) if candidate.parents else None
    diff = unified_diff(
        "" if parent is None else parent.program,
        candidate.program,
        before="nothing" if parent is None else f"candidate {parent.number}",
        after=f"candidate {candidate.number}",
    )
    return CandidateDiff(
        run_id=candidate.run_id,
        number=candidate.number,
        parent=None if parent is None else parent.number,
        minimal=diff.minimal,
        diff=diff.text,
    )


@by_id.get("/candidates/{candidate_id}/lineage")
def get_candidate_lineage(candidate_id: CandidateId, stores: StoresDep, limit: Limit = 100) -> Page[CandidateRecord]:
    """Return the nearest ancestors of a candidate without their texts, newest first."""
    return Page[CandidateRecord](items=stores.queries.ancestors(stores.queries.candidate(candidate_id), limit))


@by_id.get("/rollouts/{rollout_id}")
def get_rollout(rollout_id: RolloutId, stores: StoresDep) -> RolloutDetail:
    """Return a rollout with its prompt and completion."""
    return stores.queries.rollout(rollout_id)
