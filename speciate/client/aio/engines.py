"""Client group for runners of engines."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID, uuid4

from speciate.client.aio.transport import AsyncResourceClient
from speciate.client.calls import LONG_TIMEOUT_S, post
from speciate.schema.base import Page
from speciate.schema.engines import EngineEvaluation, EngineLease, EngineOutcome, EngineSession, ModelAnswer

_PATH: Final = "/v1/engine-sessions"
_WAIT_S: Final = 20.0


class AsyncEnginesClient(AsyncResourceClient):
    """Runs that wait for an engine, and what the engine asks for; ``speciate engines run`` is a ready loop over it."""

    async def acquire(
        self,
        *,
        engines: Iterable[str] = (),
        tournament: str | UUID | None = None,
        run: str | UUID | None = None,
        versions: Mapping[str, str] | None = None,
        wait_s: float = 0.0,
        lease_s: float = 60.0,
    ) -> EngineSession | None:
        """Lease the oldest run that waits for an engine; None if there is none.

        Args:
            engines: Names of the engines that this machine can start; all by default.
            tournament: Limit to a tournament, by id or name.
            run: Limit to a run, by id.
            versions: Versions of the engines by name, for the record.
            wait_s: Seconds to wait for a run, at most 30.
            lease_s: Seconds until the lease lapses without ``renew``.
        """
        body = {
            "engines": list(engines),
            "tournament": tournament and str(tournament),
            "run": run and str(run),
            "versions": dict(versions or {}),
            "wait_s": wait_s,
            "lease_s": lease_s,
        }
        call = post(f"{_PATH}:acquire", Page[EngineSession], body, timeout_s=wait_s + 30)
        return next(iter((await self._transport.send(call)).items), None)

    async def renew(self, session: UUID, *, lease_s: float = 60.0) -> EngineLease:
        """Renew the lease of a session."""
        call = post(f"{_PATH}/{session}:renew", EngineLease, {"lease_s": lease_s}, idempotency_key=str(uuid4()))
        return await self._transport.send(call)

    async def complete(self, session: UUID, messages: Sequence[Mapping[str, str]], *, n: int = 1) -> ModelAnswer:
        """Let the run's policy answer the messages of a chat, each with ``role`` and ``content``.

        Raises:
            BudgetSpentError: The budget does not hold another request.
            ConflictError: The session has ended, or its lease is lost.
            PolicyUnavailableError: The policy gave no usable answer.
        """
        body = {"messages": [dict(message) for message in messages], "n": n}
        call = post(f"{_PATH}/{session}/completions", ModelAnswer, body, timeout_s=24 * LONG_TIMEOUT_S)
        return await self._transport.send(call)

    async def evaluate(self, session: UUID, program: str, *, key: str = "") -> EngineEvaluation:
        """Evaluate a program and wait for its result. Calls with the same ``key`` cost one evaluation.

        Raises:
            BudgetSpentError: The budget does not hold another evaluation.
            ConflictError: The session has ended, or its lease is lost.
        """
        key = key or str(uuid4())
        body = {"program": program, "wait_s": _WAIT_S}
        while True:
            call = post(
                f"{_PATH}/{session}/evaluations", EngineEvaluation, body, idempotency_key=key, timeout_s=_WAIT_S + 30
            )
            result = await self._transport.send(call)
            if not result.pending:
                return result

    async def end(
        self,
        session: UUID,
        outcome: EngineOutcome | str,
        reason: str = "",
        *,
        processor_s: float = 0.0,
        refused: Mapping[str, int] | None = None,
    ) -> None:
        """End a session; see ``EngineOutcome``.

        Args:
            session: Id of the session.
            outcome: ``finished``, ``failed`` or ``released``.
            reason: Why, in words.
            processor_s: Processor seconds of the engine's processes.
            refused: Number of refused requests by kind, such as ``score``.
        """
        body = {"outcome": str(outcome), "reason": reason, "processor_s": processor_s, "refused": dict(refused or {})}
        await self._transport.send(post(f"{_PATH}/{session}:end", EngineLease, body, idempotency_key=str(uuid4())))
