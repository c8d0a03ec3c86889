"""Candidates by id: the program, what it changed, and where it comes from."""

from __future__ import annotations

from fastapi import APIRouter

from service.api.schemas import CandidateId, DiffAnswer
from service.dependencies import Limit, StoresDep
from service.diffs import unified
from speciate.ports.records.base import Page
from speciate.ports.records.candidates import CandidateDetail, CandidateRecord

router = APIRouter(prefix="/v1/candidates", tags=["run records"])


@router.get("/{candidate_id}")
def get_candidate(candidate_id: CandidateId, stores: StoresDep) -> CandidateDetail:
    """Read a candidate with its texts."""
    return stores.queries.candidate(candidate_id)


@router.get("/{candidate_id}/diff")
def get_diff(candidate_id: CandidateId, stores: StoresDep) -> DiffAnswer:
    """Read what a candidate changed in its first parent, as a unified diff."""
    candidate = stores.queries.candidate(candidate_id)
    parent = stores.queries.candidate_of(candidate.run_id, candidate.parents[0]) if candidate.parents else None
    diff = unified(
        "" if parent is None else parent.program,
        candidate.program,
        before="nothing" if parent is None else f"candidate {parent.number}",
        after=f"candidate {candidate.number}",
    )
    return DiffAnswer(
        run_id=candidate.run_id,
        number=candidate.number,
        parent=None if parent is None else parent.number,
        minimal=diff.minimal,
        diff=diff.text,
    )


@router.get("/{candidate_id}/lineage")
def get_lineage(candidate_id: CandidateId, stores: StoresDep, limit: Limit = 100) -> Page[CandidateRecord]:
    """Read a candidate's nearest ancestors without their texts, newest first."""
    return Page[CandidateRecord](items=stores.queries.ancestors(stores.queries.candidate(candidate_id), limit))
