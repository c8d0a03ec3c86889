"""Routes for runners of engines: lease runs, let their policies answer, evaluate programs (ADR 65)."""

from dataclasses import replace
from functools import partial
from typing import Annotated, Final, Literal
from uuid import UUID

import numpy as np
from anyio import to_thread
from fastapi import APIRouter, Header, Path, Request
from pydantic import Field, StringConstraints

from service.api.proposals import attempts
from service.api.schemas import Name
from service.dependencies import AppState, AppStateDep, StoresDep
from service.principal import PrincipalDep
from service.strict_json import StrictRoute
from speciate.domain.charge import Charge
from speciate.domain.errors import BudgetSpentError, ConflictError, InvalidInputError, PolicyUnavailableError
from speciate.domain.policy import PolicyRole
from speciate.domain.rollout import Rollout
from speciate.domain.values import MAX_PROGRAM_BYTES, WORD, Identifier, Slug, Value, text_digest
from speciate.ports.policy import SampleRequest
from speciate.ports.work import RunContext, WeightedPolicy
from speciate.runs.engines import prompt_of, score_of
from speciate.schema.base import Page
from speciate.schema.engines import EngineEvaluation, EngineLease, EngineOutcome, EngineSession, ModelAnswer
from speciate.schema.proposals import ProposalRecord, ProposalState, ProposedCandidate
from speciate.storage.stores import Stores
from speciate.storage.work.engines import require_running

router = APIRouter(prefix="/v1", tags=["engines"], route_class=StrictRoute)

_MAX_LEASE_S: Final = 3600.0
_MAX_CHAT: Final = 4 << 20

SessionId = Annotated[UUID, Path(description="Id of the session.")]
RequiredKey = Annotated[
    str, Header(pattern=WORD, max_length=200, description="Repeating a request with the same key costs nothing more.")
]


class AcquireRequest(Value):
    """Runs to lease."""

    engines: tuple[Slug, ...] = Field(default=(), max_length=100)
    """Engines that the runner can start; all by default."""
    tournament: Name | None = None
    """Limit to a tournament."""
    run: UUID | None = None
    """Limit to a run."""
    versions: dict[Slug, Annotated[str, StringConstraints(max_length=200)]] = Field(default_factory=dict)
    """Versions of the engines, for the record."""
    wait_s: float = Field(default=0.0, ge=0, le=30)
    """Seconds to wait for a run."""
    lease_s: float = Field(default=60.0, ge=1, le=_MAX_LEASE_S)
    """Seconds until the lease lapses without a renewal."""


class RenewRequest(Value):
    lease_s: float = Field(default=60.0, ge=1, le=_MAX_LEASE_S)


class Message(Value):
    """A message of a chat."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str = Field(max_length=_MAX_CHAT)


class CompletionRequest(Value):
    """A chat that the policy of the run answers with its own sampling parameters."""

    messages: tuple[Message, ...] = Field(min_length=1, max_length=1000)
    n: int = Field(default=1, ge=1, le=64)
    """Number of answers."""


class EvaluationRequest(Value):
    """A program to evaluate."""

    program: str = Field(max_length=MAX_PROGRAM_BYTES)
    """The whole program."""
    wait_s: float = Field(default=20.0, ge=0, le=60)
    """Seconds to wait for the result."""


class EndRequest(Value):
    """How a session ended."""

    outcome: Literal["finished", "failed", "released"]
    reason: str = Field(default="", max_length=20_000)
    processor_s: float = Field(default=0.0, ge=0, le=1e12)
    """Processor seconds of the engine's processes."""
    refused: dict[Identifier, Annotated[int, Field(ge=0, le=10**12)]] = Field(default_factory=dict, max_length=32)
    """Number of requests of the engine that its runner refused, by kind."""


@router.post("/engine-sessions:acquire")
async def acquire_engine_session(
    body: AcquireRequest, request: Request, stores: StoresDep, principal: PrincipalDep
) -> Page[EngineSession]:
    """Lease the oldest run that waits for an engine; the list is empty if none does within `wait_s` seconds."""
    if body.run is not None:  # a run of another project does not exist
        await to_thread.run_sync(stores.runs.get, body.run)
    tournament = None
    if body.tournament is not None:
        tournament = (await to_thread.run_sync(stores.tournaments.get, body.tournament)).id
    lease = partial(
        stores.engines.acquire,
        holder=principal.name,
        lease_s=body.lease_s,
        engines=body.engines,
        versions=body.versions,
        tournament_id=tournament,
        run_id=body.run,
    )
    async for session, commits in attempts(lease, request, body.wait_s):
        for commit in commits:
            stores.signals.committed(commit)
        if session is not None:
            return Page[EngineSession](items=(session,))
    return Page[EngineSession](items=())


@router.post("/engine-sessions/{session_id}:renew")
def renew_engine_session(session_id: SessionId, body: RenewRequest, stores: StoresDep) -> EngineLease:
    """Renew the lease of a session; without `lease_until` in the answer, stop the engine."""
    return stores.engines.renew(session_id, body.lease_s)


@router.post("/engine-sessions/{session_id}:end")
def end_engine_session(session_id: SessionId, body: EndRequest, stores: StoresDep) -> EngineLease:
    """Submit the end of a session and, unless it is `released`, its run. Repeating the request changes nothing."""
    outcome = EngineOutcome(body.outcome)
    reason = body.reason or f"the engine has {outcome.value}"
    commit = stores.engines.end(session_id, outcome, reason, processor_s=body.processor_s, refused=body.refused)
    if commit is not None:
        stores.signals.committed(commit)
    return EngineLease(lease_until=None, reason=reason)


@router.post("/engine-sessions/{session_id}/completions")
async def complete_for_engine(
    session_id: SessionId, body: CompletionRequest, app_state: AppStateDep, stores: StoresDep
) -> ModelAnswer:
    """Return what the policy of the run answers to a chat.

    Prompt and answers are kept with the run, and their tokens count towards its budget. Once the budget does not hold
    another request or evaluation, the status is 410; while requests in flight hold the rest of it, 503.
    """
    ask = partial(_complete, session_id, body, app_state, stores)
    return await to_thread.run_sync(ask, limiter=app_state.model_requests)


def _complete(session_id: UUID, body: CompletionRequest, app_state: AppState, stores: Stores) -> ModelAnswer:
    context = stores.engines.context(session_id)
    client = app_state.clients(context.proposer)
    prompt = prompt_of([(message.role, message.content) for message in body.messages])
    request = SampleRequest(prompt, PolicyRole.PROPOSE, body.n, 0, problem=context.problem)
    reservation = stores.engines.reserve(session_id, context, client.token_ceiling(request))
    key = [context.spec.seed, int(context.problem.digest, 16), reservation.ordinal]
    seed = int(np.random.default_rng(key).integers(2**31))
    rollouts: list[Rollout] = []
    lost = Charge()
    try:
        more = partial(stores.engines.extend, session_id, context, reservation)
        request = replace(request, seed=seed, reserve=more)
        result = client.sample([request])[0]
        rollouts = [
            Rollout(
                PolicyRole.PROPOSE,
                prompt,
                completion,
                seed,
                prompt_tokens=0 if i else result.prompt_tokens,
                latency_s=result.latency_s,
                estimated_tokens=0 if i else result.estimated_tokens,
                cost=result.cost_of_each,
            )
            for i, completion in enumerate(result.completions)
        ]
    except PolicyUnavailableError as error:
        lost = error.spent
        raise
    finally:
        commit = stores.engines.book(session_id, context, reservation, rollouts, lost)
        if commit is not None:
            stores.signals.committed(commit)
    return ModelAnswer(
        completions=tuple(completion.text for completion in result.completions),
        prompt_tokens=result.prompt_tokens,
        completion_tokens=result.tokens - result.prompt_tokens,
        finish_reason=result.completions[-1].finish_reason if result.completions else "stop",
    )


@router.post("/engine-sessions/{session_id}/evaluations")
async def evaluate_for_engine(
    session_id: SessionId,
    body: EvaluationRequest,
    request: Request,
    stores: StoresDep,
    principal: PrincipalDep,
    idempotency_key: RequiredKey,
) -> EngineEvaluation:
    """Evaluate a program as a candidate of the run.

    It is `pending` if the result takes longer than `wait_s` seconds: repeat the request with the same
    `Idempotency-Key`, which costs nothing more. The seed program has the result of the run's first candidate and costs
    nothing. Once the budget holds no further evaluation, the status is 410.
    """
    context = await to_thread.run_sync(stores.engines.context, session_id)
    number = await to_thread.run_sync(
        _propose, session_id, context, body.program, idempotency_key, stores, principal.name
    )
    async for record in attempts(partial(stores.proposals.result, context.run_id, number), request, body.wait_s):
        if record is not None and record.state is not ProposalState.PENDING:
            return await to_thread.run_sync(_evaluation, context, record, stores)
    return EngineEvaluation(number=number, pending=True)


def _propose(session_id: UUID, context: RunContext, program: str, key: str, stores: Stores, author: str) -> int:
    """Return the number of the candidate that a program is."""
    if context.seed_programs and program.strip() == context.seed_programs[0].program.strip():
        return 1
    if not program.strip():
        raise InvalidInputError("the program is empty: expected the whole text of a program.")
    stores.engines.require_open(session_id)
    try:
        receipts, commit = stores.proposals.propose(
            context.run_id,
            WeightedPolicy(context.proposer, context.proposer_id),
            [ProposedCandidate(program=program, model=context.spec.engine)],
            author=author,
            idempotency_key=f"engine {key} {text_digest(program)}",
        )
    except ConflictError:
        require_running(context, stores.runs.get(context.run_id).state)
        raise
    if commit is not None:
        stores.signals.committed(commit)
    if receipts[0].number is None:
        raise BudgetSpentError(f"{receipts[0].reason}.")
    return receipts[0].number


def _evaluation(context: RunContext, record: ProposalRecord, stores: Stores) -> EngineEvaluation:
    left = stores.engines.evaluations_left(context)
    if record.candidate_id is None:  # its run ended before it was evaluated
        raise BudgetSpentError(f"run {context.run_id} ended before it evaluated candidate {record.number}.")
    score = 0.0 if record.rewards is None else score_of(context.problem, record.rewards)
    shared = {"number", "rewards", "failure", "failure_detail", "feedback", "duplicate_of"}
    return EngineEvaluation(**record.model_dump(include=shared), score=score, evaluations_left=left)
