"""Routes for candidates and rollouts by id."""

from __future__ import annotations

from fastapi import APIRouter

from service.api.schemas import CandidateDiff, CandidateId, RolloutId
from service.dependencies import Limit, StoresDep
from service.diffs import unified_diff
from speciate.schema.base import Page
from speciate.schema.candidates import CandidateDetail, CandidateRecord, RolloutDetail

router = APIRouter(prefix="/v1", tags=["run results"])


@router.get("/candidates/{candidate_id}")
def get_candidate(candidate_id: CandidateId, stores: StoresDep) -> CandidateDetail:
    """Return a candidate with its texts."""
    return stores.queries.candidate(candidate_id)


@router.get("/candidates/{candidate_id}/diff")
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


@router.get("/candidates/{candidate_id}/lineage")
def get_candidate_lineage(candidate_id: CandidateId, stores: StoresDep, limit: Limit = 100) -> Page[CandidateRecord]:
    """Return the nearest ancestors of a candidate without their texts, newest first."""
    return Page[CandidateRecord](items=stores.queries.ancestors(stores.queries.candidate(candidate_id), limit))


@router.get("/rollouts/{rollout_id}")
def get_rollout(rollout_id: RolloutId, stores: StoresDep) -> RolloutDetail:
    """Return a rollout with its prompt and completion."""
    return stores.queries.rollout(rollout_id)
