"""Routes for proposers outside the service: prompts, proposals, their results, and hints (ADR 38)."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Annotated, Final, TypeVar
from uuid import UUID

from anyio import to_thread
from fastapi import APIRouter, Path, Query, Request
from pydantic import Field, StringConstraints

from service.api.schemas import IdempotencyKey, Name, RunId
from service.dependencies import StoresDep
from service.principal import PrincipalDep
from service.strict_json import StrictRoute
from speciate.domain.errors import ConflictError, InvalidInputError, NotFoundError
from speciate.domain.guidance import MAX_ADVICE_CHARS
from speciate.domain.policy import EXTERNAL
from speciate.domain.values import Value
from speciate.domain.visibility import require_visible
from speciate.ports.work import WeightedPolicy
from speciate.runs.external_proposals import check_hint
from speciate.schema.base import Page
from speciate.schema.candidates import AdviceRecord
from speciate.schema.proposals import AskRecord, Numbers, ProposalReceipt, ProposalRecord, ProposedCandidate
from speciate.storage.stores import Stores

router = APIRouter(prefix="/v1/runs", tags=["proposals"], route_class=StrictRoute)
results = APIRouter(prefix="/v1/runs", tags=["proposals"], route_class=StrictRoute)

_POLL_S: Final = 1.0
T = TypeVar("T")


class ProposeRequest(Value):
    """Proposals for a run."""

    proposals: tuple[ProposedCandidate, ...] = Field(min_length=1, max_length=256)
    """The proposals; each is added or refused on its own."""
    policy: Name | None = None
    """Policy of kind `external` in whose name they are made: by default that of the run, else `external`."""


class AskRequest(Value):
    """Prompts to receive."""

    count: int = Field(default=1, ge=1, le=64)
    wait_s: float = Field(default=20.0, ge=0, le=60)
    """Seconds to wait for the evaluation of the seed programs."""
    parents: Numbers = ()
    """Numbers of the candidates to change; by default the service selects them."""
    policy: Name | None = None
    """Policy of kind `external` that will answer; see `ProposeRequest`."""


class HintRequest(Value):
    """A hint for the prompts of a run."""

    text: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_ADVICE_CHARS)]


@router.post("/{run_id}/proposals", name="propose")
def propose(
    run_id: RunId,
    body: ProposeRequest,
    stores: StoresDep,
    principal: PrincipalDep,
    idempotency_key: IdempotencyKey = None,
) -> Page[ProposalReceipt]:
    """Propose candidates to a running run of any policy.

    Each becomes a candidate like those of the run's own policies: it costs an evaluation, also as a duplicate or if it
    cannot be read, and enters archive, unlock record and events. The receipts say what became of each. Send an
    `Idempotency-Key` to make it safe to repeat the request.
    """
    receipts, commit = stores.proposals.propose(
        run_id,
        proposer(stores, run_id, body.policy),
        body.proposals,
        author=principal.name,
        idempotency_key=idempotency_key,
    )
    if commit is not None:
        stores.signals.committed(commit)
    return Page[ProposalReceipt](items=receipts)


@router.post("/{run_id}:ask", name="ask_run")
async def ask(
    run_id: RunId, body: AskRequest, request: Request, stores: StoresDep, principal: PrincipalDep
) -> Page[AskRecord]:
    """Return prompts as the policies of the run receive them, so that any model or agent can answer.

    If the latest candidate of the token's holder failed and no prompt has shown it, the first prompt asks to repair it.
    A program from scratch is asked for only before the first feasible candidate.

    Send the answer to `POST /v1/runs/{run_id}/proposals` with the token `ask`. A run that has just started evaluates
    its seed programs first: the request waits for them, and its refusal says what they wait for.
    """
    policy = await to_thread.run_sync(proposer, stores, run_id, body.policy)
    prepare = partial(
        stores.proposals.ask, run_id, policy, count=body.count, author=principal.name, parents=body.parents
    )
    async for prompts in attempts(prepare, request, body.wait_s):
        if prompts is not None:
            return Page[AskRecord](items=prompts)
    reason = (await to_thread.run_sync(stores.runs.get, run_id)).reason
    why = f" ({reason})" if reason else ""
    raise ConflictError(f"run {run_id} has not evaluated its seed programs yet{why}.", remedy="Ask again later.")


@router.post("/{run_id}/guidance", name="hint_run", status_code=201)
def hint(run_id: RunId, body: HintRequest, stores: StoresDep, principal: PrincipalDep) -> AdviceRecord:
    """Add a hint for the policies of a run.

    Prompts for changes show it as often as its success justifies, beside the advice that the run writes itself.
    """
    check_hint(stores.work.context(run_id))
    number, commit = stores.proposals.hint(run_id, body.text, author=principal.name)
    stores.signals.committed(commit)
    return AdviceRecord(number=number, author=principal.name, text=body.text, judged=0, won=0, lives=True)


@results.get("/{run_id}/proposals", name="list_proposals")
def unsettled(run_id: RunId, stores: StoresDep) -> Page[ProposalRecord]:
    """List at most 100 proposals that wait for their evaluation, or whose targets are being confirmed."""
    stores.runs.get(run_id)
    return Page[ProposalRecord](items=stores.proposals.unsettled(run_id))


@results.get("/{run_id}/proposals/{number}", name="get_proposal")
async def result(
    run_id: RunId,
    number: Annotated[int, Path(ge=1, lt=2**62, description="Number of the candidate, from its receipt.")],
    request: Request,
    stores: StoresDep,
    wait: Annotated[float, Query(ge=0, le=60, description="Seconds to wait for the result.")] = 0.0,
    settled: Annotated[bool, Query(description="Wait for repeated evaluations, too.")] = True,
) -> ProposalRecord:
    """Return the result of a proposal: rewards, feedback, targets, and what to do next.

    It is `pending` until the candidate is evaluated. With `settled`, `wait` also waits until the targets in
    `confirming` are confirmed or refuted.
    """
    record = None
    async for record in attempts(partial(stores.proposals.result, run_id, number), request, wait):
        if record is None or record.waited_for(settled=settled):
            break
    if record is None:
        raise NotFoundError(f"there is no candidate {number} in run {run_id}.")
    return record


async def attempts(attempt: Callable[[], T], request: Request, wait_s: float) -> AsyncIterator[T]:
    """Yield the results of calls until the time is over or the client leaves: one at least."""
    deadline, pause_s = time.monotonic() + wait_s, _POLL_S / 32
    while True:
        yield await to_thread.run_sync(attempt)
        if (left := deadline - time.monotonic()) <= 0:
            return
        await asyncio.sleep(min(pause_s, left))
        if await request.is_disconnected():  # a dead evaluator must not lease what another one waits for
            return
        pause_s = min(1.5 * pause_s, _POLL_S)


def proposer(stores: Stores, run_id: UUID, name: str | None) -> WeightedPolicy:
    """Return the policy in whose name proposals are made.

    Raises:
        NotFoundError: The run or the policy does not exist.
        ConflictError: The policy is archived or deleted, or an engine proposes in this run.
        InvalidInputError: It is not external.
    """
    context = stores.work.context(run_id)
    if context.spec.engine is not None:
        raise ConflictError(
            f"run {run_id} takes the proposals of engine {context.spec.engine!r} only.",
            remedy="Start a run of policy 'external' instead.",
        )
    if name is None and context.proposer.is_external:
        return WeightedPolicy(context.proposer, context.proposer_id)
    version = stores.catalog.policy(name or EXTERNAL)
    require_visible(f"policy {version.name}", version)
    if not version.definition.is_external:
        raise InvalidInputError(
            f"policy {version.name} is of kind {version.definition.kind!r}, which the service asks itself.",
            remedy=f"Propose in the name of {EXTERNAL!r} or of a policy registered with --kind {EXTERNAL}.",
        )
    return WeightedPolicy(version.definition, version.id)
