"""Problem sets: named, frozen lists of problem versions."""

from __future__ import annotations

from fastapi import APIRouter, Response

from service.api.schemas import NameInPath, ProblemSetSubmission
from service.dependencies import Cursor, Limit, StoresDep
from service.strict_json import StrictRoute
from speciate.domain.errors import FieldError, InvalidInputError
from speciate.ports.records.base import Page
from speciate.ports.records.problems import ProblemSet

router = APIRouter(prefix="/v1/problem-sets", tags=["problems"], route_class=StrictRoute)


@router.get("")
def list_problem_sets(stores: StoresDep, limit: Limit = 100, cursor: Cursor = None) -> Page[ProblemSet]:
    """List problem sets, newest first."""
    return stores.catalog.problem_sets(limit=limit, cursor=cursor)


@router.post("", status_code=201)
def create_problem_set(body: ProblemSetSubmission, stores: StoresDep, response: Response) -> ProblemSet:
    """Freeze a list of problem versions under a name; a name that is taken is refused with 409."""
    members = stores.catalog.problem_ids(body.problems)
    first = {member: i for i, member in reversed(list(enumerate(members)))}
    if repeated := [i for i, member in enumerate(members) if first[member] < i]:
        flaws = tuple(
            FieldError("names a problem version that is in the list already", f"problems.{i}") for i in repeated
        )
        raise InvalidInputError(f"The set is not valid: {flaws[0]}.", flaws=flaws)
    made = stores.catalog.add_problem_set(body.slug, body.title, members)
    response.headers["Location"] = f"/v1/problem-sets/{made.slug}"
    return made


@router.get("/{name}")
def get_problem_set(name: NameInPath, stores: StoresDep) -> ProblemSet:
    """Read a problem set by id or slug."""
    return stores.catalog.problem_set(name)
