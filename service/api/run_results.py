"""What a run has produced: candidates, archive, front, completions, reached targets, and all of it as a file."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import StreamingResponse

from service.api.schemas import Name, RunId
from service.api.unlocks import StateFilter, state_of
from service.dependencies import Cursor, Limit, StoresDep
from service.responses import JSON_LINES, json_lines, serialize_in_thread
from speciate.domain.candidate import CandidateStatus
from speciate.domain.policy import PolicyRole
from speciate.domain.target import ClaimState
from speciate.ports.records.base import Page
from speciate.ports.records.candidates import AdviceRecord, CandidateDetail, CandidateRecord, EliteRecord, RolloutRecord
from speciate.ports.records.unlocks import UnlockRecord
from speciate.storage.candidates.listing import CandidateFilter

router = APIRouter(prefix="/v1/runs/{run_id}", tags=["run records"])


@router.get("/candidates")
@serialize_in_thread
def list_candidates(
    run_id: RunId,
    stores: StoresDep,
    status: CandidateStatus | None = None,
    island: Annotated[int | None, Query(ge=0, lt=2**31)] = None,
    role: Annotated[PolicyRole | None, Query(description="what a policy was asked to do for it")] = None,
    policy: Annotated[Name | None, Query(description="this policy version was asked for it")] = None,
    target: Annotated[
        str | None,
        Query(max_length=80, description="its rewards meet this target, confirmed or not; `any`: one of the targets"),
    ] = None,
    rule: Annotated[
        str | None,
        Query(max_length=2000, description="its rewards meet a rule as targets have, such as `gain >= 5 and cost < 9`"),
    ] = None,
    elite: Annotated[bool, Query(description="it holds a cell of the archive now")] = False,
    sort: Annotated[
        str | None,
        Query(
            max_length=80,
            description="`number`: newest first; the name of a reward, or `scalar`: best first, among equals the"
            " earliest first, those without one last",
        ),
    ] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[CandidateRecord]:
    """List a run's candidates without their texts, newest first unless `sort` says otherwise."""
    wanted = CandidateFilter(
        status=status,
        island=island,
        role=role,
        policy_id=None if policy is None else stores.catalog.policy(policy).id,
        target=target,
        rule=rule,
        elite=elite,
        sort=sort,
    )
    return stores.queries.candidates(run_id, wanted, limit=limit, cursor=cursor)


@router.get("/candidates/{number}")
def get_candidate(run_id: RunId, number: Annotated[int, Path(ge=1, lt=2**63)], stores: StoresDep) -> CandidateDetail:
    """Read the candidate of a run that has a number, with its texts."""
    return stores.queries.candidate_of(run_id, number)


@router.get("/front")
def get_front(run_id: RunId, stores: StoresDep) -> Page[EliteRecord]:
    """Read the elites that no other elite dominates, best first by the first objective."""
    return Page[EliteRecord](items=stores.queries.front(run_id))


@router.get("/archive")
@serialize_in_thread
def get_archive(run_id: RunId, stores: StoresDep) -> Page[EliteRecord]:
    """Read the holder of every cell, by island and cell."""
    return Page[EliteRecord](items=stores.queries.archive(run_id))


@router.get("/rollouts")
def list_rollouts(run_id: RunId, stores: StoresDep, limit: Limit = 100, cursor: Cursor = None) -> Page[RolloutRecord]:
    """List a run's completions without their texts, newest first."""
    return stores.queries.rollouts(run_id, limit=limit, cursor=cursor)


@router.get("/guidance")
def list_guidance(run_id: RunId, stores: StoresDep, limit: Limit = 100, cursor: Cursor = None) -> Page[AdviceRecord]:
    """List the advice that a run wrote for its own prompts, newest first, with what it led to."""
    return stores.queries.advice(run_id, limit=limit, cursor=cursor)


@router.get("/unlocks")
def list_unlocks(
    run_id: RunId,
    stores: StoresDep,
    state: StateFilter = ClaimState.CONFIRMED,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[UnlockRecord]:
    """List the targets that a run reached, the cheapest first."""
    stores.runs.get(run_id)
    return stores.unlocks.list(run_id=run_id, state=state_of(state), limit=limit, cursor=cursor)


@router.get(
    "/export",
    response_class=StreamingResponse,
    responses={200: {"content": {JSON_LINES: {"schema": {"type": "string"}}}, "description": "One candidate a line."}},
)
def export(run_id: RunId, stores: StoresDep) -> StreamingResponse:
    """Stream every candidate with its texts as JSON Lines, in order of number."""
    stores.runs.get(run_id)  # an unknown run is refused before the answer begins
    headers = {"Content-Disposition": f'attachment; filename="run-{run_id}.jsonl"'}
    return StreamingResponse(json_lines(stores.queries.export(run_id)), media_type=JSON_LINES, headers=headers)
