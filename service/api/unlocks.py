"""Route for unlocks: reached targets, with the policy and the cost."""

from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query

from service.api.schemas import Name
from service.dependencies import Cursor, Limit, StoresDep
from service.strict_json import StrictRoute
from speciate.domain.target import ClaimState
from speciate.schema.base import Page
from speciate.schema.unlocks import UnlockRecord

router = APIRouter(prefix="/v1/unlocks", tags=["unlocks"], route_class=StrictRoute)

StateFilter = Annotated[
    ClaimState | Literal["any"], Query(description="State of the claims. Only confirmed claims count as reached.")
]


def state_of(state: StateFilter) -> ClaimState | None:
    return state if isinstance(state, ClaimState) else None


@router.get("")
def list_unlocks(
    stores: StoresDep,
    run: Annotated[UUID | None, Query(description="Limit to a run.")] = None,
    problem: Annotated[Name | None, Query(description="Limit to a problem version.")] = None,
    policy: Annotated[Name | None, Query(description="Limit to a policy version.")] = None,
    strategy: Annotated[str | None, Query(max_length=80, description="Limit to a strategy.")] = None,
    first: Annotated[
        bool, Query(description="Only the first confirmed claim per problem, target, policy (versions) and strategy.")
    ] = False,
    unlocks_only: Annotated[bool, Query(description="Omit targets that do not unlock.")] = False,
    state: StateFilter = ClaimState.CONFIRMED,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[UnlockRecord]:
    """List reached targets, not only unlocks (`unlocks_only`): newest run first, cheapest first within a run."""
    return stores.unlocks.list(
        run_id=None if run is None else stores.runs.get(run).id,
        problem_id=None if problem is None else stores.catalog.problem(problem).id,
        policy_id=None if policy is None else stores.catalog.policy(policy).id,
        strategy=strategy, first_only=first, unlocks_only=unlocks_only, state=state_of(state), limit=limit,
        cursor=cursor,
    )  # fmt: skip
