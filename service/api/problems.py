"""Problems: versioned, never changed."""

from __future__ import annotations

from fastapi import APIRouter, Response

from service.api.schemas import NameInPath, ProblemSubmission
from service.dependencies import Cursor, Limit, StoresDep
from service.strict_json import LargeRoute
from speciate.domain.problem import Problem
from speciate.ports.records.base import Page
from speciate.ports.records.problems import ProblemSummary, ProblemVersion
from speciate.ports.records.unlocks import ObjectiveRecord, ProblemUnlocks
from speciate.problems.definition import parse_definition
from speciate.problems.loader import parse_problem

router = APIRouter(prefix="/v1/problems", tags=["problems"], route_class=LargeRoute)


@router.get("")
def list_problems(stores: StoresDep, limit: Limit = 100, cursor: Cursor = None) -> Page[ProblemSummary]:
    """List problem versions, newest first."""
    return stores.catalog.problems(limit=limit, cursor=cursor)


@router.post("", status_code=201, responses={200: {"model": ProblemVersion, "description": "It was there already."}})
def add_problem(body: ProblemSubmission, stores: StoresDep, response: Response) -> ProblemVersion:
    """Submit a problem; the same definition again is the same version.

    Flaws of a submitted ``problem.toml`` come with file, line and what was expected.
    """
    problem = _read(body)
    version, new = stores.catalog.add_problem(problem)
    response.status_code = 201 if new else 200
    response.headers["Location"] = f"/v1/problems/{version.id}"
    return version


@router.get("/{name}")
def get_problem(name: NameInPath, stores: StoresDep) -> ProblemVersion:
    """Read a problem version."""
    return stores.catalog.problem(name)


@router.get("/{name}/versions")
def list_versions(
    name: NameInPath, stores: StoresDep, limit: Limit = 100, cursor: Cursor = None
) -> Page[ProblemSummary]:
    """List the versions of a problem, newest first."""
    slug = stores.catalog.problem(name).definition.slug
    return stores.catalog.problems(slug=slug, limit=limit, cursor=cursor)


@router.get("/{name}/unlocks")
def problem_unlocks(name: NameInPath, stores: StoresDep) -> ProblemUnlocks:
    """Who unlocked this version first, who alone, and who never, with how much was tried. No other version counts."""
    return stores.unlocks.of_problem(stores.catalog.problem(name))


@router.get("/{name}/records")
def problem_records(name: NameInPath, stores: StoresDep) -> Page[ObjectiveRecord]:
    """Read the history of records: candidates better in an objective than every earlier one, the newest first."""
    return Page[ObjectiveRecord](items=stores.unlocks.records(stores.catalog.problem(name)))


def _read(body: ProblemSubmission) -> Problem:
    if body.toml is not None:
        return parse_problem(body.toml, body.files, file=body.file)
    return parse_definition(body.definition or {})
