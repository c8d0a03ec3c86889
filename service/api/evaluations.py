"""Routes for external evaluators: lease candidates, keep the leases, submit rewards (ADR 38)."""

from functools import partial
from typing import Annotated, Final, Self
from uuid import UUID

from anyio import to_thread
from fastapi import APIRouter, Query, Request
from pydantic import Field, StringConstraints, model_validator

from service.api.proposals import attempts
from service.api.schemas import Name
from service.dependencies import StoresDep
from service.principal import PrincipalDep
from service.strict_json import StrictRoute
from speciate.domain.candidate import MAX_FEEDBACK, MAX_TEXT, MAX_TEXTS, Failure, FailureKind
from speciate.domain.errors import invalid_field
from speciate.domain.values import Identifier, Value
from speciate.runs.external_evaluation import ExternalResult
from speciate.schema.base import Page
from speciate.schema.evaluations import LeasedEvaluation, RenewedLease, SubmittedEvaluation, WaitingEvaluations
from speciate.storage.work.external import Submission

router = APIRouter(prefix="/v1", tags=["evaluations"], route_class=StrictRoute)

MAX_LEASE_S: Final = 86_400.0

_Reward = Annotated[float, Field(strict=True, allow_inf_nan=False)]
_Text = Annotated[str, StringConstraints(max_length=MAX_TEXT)]


class AcquireRequest(Value):
    """Candidates to lease."""

    problem: Name | None = None
    """Id or name of a problem version; all problems with external evaluation by default."""
    run: UUID | None = None
    """Limit to a run."""
    capabilities: tuple[Identifier, ...] = Field(default=(), max_length=64)
    """What this evaluator's machine offers, such as ``gpu``. Candidates of problems that need more are left out."""
    count: int = Field(default=1, ge=1, le=256)
    """Maximum number of candidates."""
    wait_s: float = Field(default=0.0, ge=0, le=30)
    """Seconds to wait for the first candidate."""
    lease_s: float = Field(default=60.0, ge=1, le=MAX_LEASE_S)
    """Seconds until the leases lapse without a heartbeat."""


class HeldLease(Value):
    id: UUID
    lease: UUID


class HeartbeatRequest(Value):
    """Leases to renew."""

    leases: tuple[HeldLease, ...] = Field(min_length=1, max_length=1000)
    lease_s: float = Field(default=60.0, ge=0, le=MAX_LEASE_S)
    """Seconds until they lapse; 0 gives the candidates back."""


class ReportedFailure(Value):
    """Why a candidate has no rewards."""

    kind: FailureKind
    reason: Identifier = "external"
    """Short machine-readable reason, counted per run."""
    detail: _Text = ""
    """Text for people and prompts."""


class ReportedEvaluation(HeldLease):
    """The result of one evaluation: either ``rewards`` or ``failure``."""

    rewards: dict[Identifier, _Reward | None] | None = Field(default=None, max_length=512)
    """Rewards by objective, in the author's units; null for a record that was not measured."""
    failure: ReportedFailure | None = None
    """Why there are none."""
    feedback: dict[Identifier, _Text] = Field(default_factory=dict, max_length=MAX_TEXTS)
    """Named texts that later prompts show, 256 KiB in all."""
    wall_s: float = Field(default=0.0, ge=0, le=1e9)
    """Duration in seconds."""

    @model_validator(mode="after")
    def _one_result(self) -> Self:
        if (self.rewards is None) == (self.failure is None):
            raise ValueError("expected either 'rewards' or 'failure'")
        if sum(map(len, self.feedback.values())) > MAX_FEEDBACK:
            raise ValueError(f"feedback is longer than {MAX_FEEDBACK} characters")
        return self

    def submission(self) -> Submission:
        report = self.failure
        failure = None if report is None else Failure(report.kind, report.reason, report.detail)
        return Submission(self.id, self.lease, ExternalResult(self.rewards, failure, self.feedback, self.wall_s))


class SubmitRequest(Value):
    results: tuple[ReportedEvaluation, ...] = Field(min_length=1, max_length=1000)
    """The results; each is booked or refused on its own."""


@router.get("/evaluations:waiting")
def list_waiting_evaluations(
    stores: StoresDep,
    problem: Annotated[Name | None, Query(description="Limit to a problem version.")] = None,
    run: Annotated[UUID | None, Query(description="Limit to a run.")] = None,
) -> Page[WaitingEvaluations]:
    """List how many candidates wait for an external evaluator, by problem version and the capabilities they need."""
    problem_id = None if problem is None else stores.catalog.problem(problem).id
    return Page[WaitingEvaluations](items=stores.evaluations.unleased(problem_id=problem_id, run_id=run))


@router.post("/evaluations:acquire")
async def acquire_evaluations(
    body: AcquireRequest, request: Request, stores: StoresDep, principal: PrincipalDep
) -> Page[LeasedEvaluation]:
    """Lease candidates that wait for an external evaluation, oldest first.

    The list is empty if none arrives within `wait_s` seconds. Keep a lease with `evaluations:heartbeat`; candidates of
    lapsed leases are offered again.
    """
    name = body.problem
    if body.run is not None:  # a run of another project does not exist
        run = await to_thread.run_sync(stores.runs.get, body.run)
        name = name or str(run.problem_id)
    problem = None if name is None else await to_thread.run_sync(stores.catalog.problem, name)
    if problem is not None and problem.definition.external_stage is None:
        message = f"has kind {problem.definition.kind.value!r} and no external evaluation: the service evaluates it"
        raise invalid_field(f"Problem {problem.definition.slug}@{problem.version}", "problem", message)
    lease = partial(
        stores.evaluations.acquire,
        count=body.count,
        lease_s=body.lease_s,
        holder=principal.name,
        capabilities=body.capabilities,
        problem_id=None if problem is None else problem.id,
        run_id=body.run,
    )
    async for leases in attempts(lease, request, body.wait_s):
        if leases:
            return Page[LeasedEvaluation](items=leases)
    return Page[LeasedEvaluation](items=())


@router.post("/evaluations:heartbeat")
def renew_evaluations(body: HeartbeatRequest, stores: StoresDep) -> Page[RenewedLease]:
    """Renew the leases of candidates. A lease without `lease_until` in the answer is lost: stop its evaluation."""
    leases = [(each.id, each.lease) for each in body.leases]
    return Page[RenewedLease](items=stores.evaluations.renew(leases, body.lease_s))


@router.post("/evaluations:submit")
def submit_evaluations(body: SubmitRequest, stores: StoresDep, principal: PrincipalDep) -> Page[SubmittedEvaluation]:
    """Submit the results of evaluations. Each is booked once; repeating a request changes nothing.

    A refused result has a `reason`: a lease that another evaluator holds or that has another result, an ended run, a
    reward that is missing, unknown or better than the better end of its declared range, a failure with a reason that
    only the service gives (`worker_lost`, `batch_deadline`, `invalid_rewards`, `evaluator_…`). The candidate stays
    leased, so submit a failure in its place or give it back; the reason `refused_rewards` blames the evaluator, and
    pauses a run at its seed.
    """
    outcomes, commits = stores.evaluations.submit([one.submission() for one in body.results], by=principal.name)
    for commit in commits:
        stores.signals.committed(commit)
    return Page[SubmittedEvaluation](items=outcomes)
