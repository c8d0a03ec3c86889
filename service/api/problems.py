"""Routes for problems and problem sets."""

from fastapi import APIRouter, Response
from fastapi.responses import FileResponse

from service.api.schemas import NameInPath, ProblemSetSubmission, ProblemSubmission, VisibilityFilter
from service.dependencies import AppStateDep, Cursor, Limit, StoresDep
from service.strict_json import LargeRoute, StrictRoute
from speciate.domain.errors import FieldError, InvalidInputError
from speciate.domain.visibility import Visibility, VisibilityChange
from speciate.problems.definition import parse_definition
from speciate.problems.loader import parse_problem
from speciate.problems.template import SCHEMA
from speciate.schema.base import Page
from speciate.schema.problems import ProblemSet, ProblemSummary, ProblemVersion
from speciate.schema.unlocks import ObjectiveRecord, ProblemUnlocks

router = APIRouter(prefix="/v1/problems", tags=["problems"], route_class=LargeRoute)
problem_sets = APIRouter(prefix="/v1/problem-sets", tags=["problems"], route_class=StrictRoute)
schemas = APIRouter(prefix="/v1/schemas", tags=["problems"], route_class=StrictRoute)
"""Routes without authentication."""


@schemas.get("/problem.json", response_class=FileResponse)
def get_problem_schema() -> FileResponse:
    """Return the JSON schema of `problem.toml`, for editors."""
    return FileResponse(SCHEMA, media_type="application/schema+json")


@router.get("")
def list_problems(
    stores: StoresDep, visibility: VisibilityFilter = Visibility.VISIBLE, limit: Limit = 100, cursor: Cursor = None
) -> Page[ProblemSummary]:
    """List problem versions, newest first."""
    return stores.overview.problem_results(stores.catalog.problems(visibility=visibility, limit=limit, cursor=cursor))


@router.post(
    "", status_code=201, responses={200: {"model": ProblemVersion, "description": "This version exists already."}}
)
def add_problem(
    body: ProblemSubmission, app_state: AppStateDep, stores: StoresDep, response: Response
) -> ProblemVersion:
    """Submit a problem. Submitting the same definition again returns the same version.

    Errors in a submitted `problem.toml` name the file, the line and the expected value. With `check`, a worker scores
    the seed program before a new version is stored: a failure is a 422 with the reason, no result in time a 503.
    """
    if body.toml is not None:
        problem = parse_problem(body.toml, body.files, file=body.file)
    else:
        problem = parse_definition(body.definition or {})
    version, new = app_state.add_problem(problem, stores, check=body.check)
    response.status_code = 201 if new else 200
    response.headers["Location"] = f"/v1/problems/{version.id}"
    return version


@router.get("/{name}")
def get_problem(name: NameInPath, stores: StoresDep) -> ProblemVersion:
    """Return a problem version."""
    return stores.catalog.problem(name)


@router.get("/{name}/versions")
def list_problem_versions(
    name: NameInPath,
    stores: StoresDep,
    visibility: VisibilityFilter = Visibility.VISIBLE,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[ProblemSummary]:
    """List the versions of a problem, newest first."""
    slug = stores.catalog.problem(name).definition.slug
    return stores.overview.problem_results(
        stores.catalog.problems(slug=slug, visibility=visibility, limit=limit, cursor=cursor)
    )


@router.get("/{name}/unlocks")
def get_problem_unlocks(name: NameInPath, stores: StoresDep) -> ProblemUnlocks:
    """Return which policies unlocked this version first, alone or never, with the attempts made.

    Other versions of the problem do not count.
    """
    return stores.unlocks.of_problem(stores.catalog.problem(name))


@router.get("/{name}/records")
def get_problem_records(name: NameInPath, stores: StoresDep) -> Page[ObjectiveRecord]:
    """Return the record history: candidates that improved on all earlier ones, newest first by objective."""
    return Page[ObjectiveRecord](items=stores.unlocks.records(stores.catalog.problem(name)))


@router.post("/{name}:archive")
def archive_problem(name: NameInPath, stores: StoresDep) -> Page[ProblemSummary]:
    """Archive a problem version, or all versions of a slug.

    Lists hide it and new work cannot use it; records still count it.
    """
    return Page[ProblemSummary](items=stores.catalog.change_problem(name, VisibilityChange.ARCHIVE))


@router.delete("/{name}")
def delete_problem(name: NameInPath, stores: StoresDep) -> Page[ProblemSummary]:
    """Delete a problem version, or all versions of a slug.

    It counts nowhere, and can be restored until it is purged.
    """
    return Page[ProblemSummary](items=stores.catalog.change_problem(name, VisibilityChange.DELETE))


@router.post("/{name}:restore")
def restore_problem(name: NameInPath, stores: StoresDep) -> Page[ProblemSummary]:
    """Restore a problem version, or all versions of a slug: undo the deletion, else the archiving."""
    return Page[ProblemSummary](items=stores.catalog.change_problem(name, VisibilityChange.RESTORE))


@problem_sets.get("")
def list_problem_sets(stores: StoresDep, limit: Limit = 100, cursor: Cursor = None) -> Page[ProblemSet]:
    """List problem sets, newest first."""
    return stores.catalog.problem_sets(limit=limit, cursor=cursor)


@problem_sets.post("", status_code=201)
def create_problem_set(body: ProblemSetSubmission, stores: StoresDep, response: Response) -> ProblemSet:
    """Freeze a list of problem versions under a name. A name that is taken gives 409."""
    members = stores.catalog.problem_ids(body.problems)
    first = {member: i for i, member in reversed(list(enumerate(members)))}
    if repeated := [i for i, member in enumerate(members) if first[member] < i]:
        field_errors = tuple(FieldError("repeats a problem version of the list", f"problems.{i}") for i in repeated)
        raise InvalidInputError(f"The problem set is not valid: {field_errors[0]}.", field_errors=field_errors)
    created = stores.catalog.add_problem_set(body.slug, body.title, members)
    response.headers["Location"] = f"/v1/problem-sets/{created.slug}"
    return created


@problem_sets.get("/{name}")
def get_problem_set(name: NameInPath, stores: StoresDep) -> ProblemSet:
    """Return a problem set by id or slug."""
    return stores.catalog.problem_set(name)
