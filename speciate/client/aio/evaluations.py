"""Client group for external evaluators."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID, uuid4

from speciate.client.aio.transport import AsyncResourceClient
from speciate.client.calls import get_list, post
from speciate.schema.base import Page
from speciate.schema.evaluations import LeasedEvaluation, RenewedLease, SubmittedEvaluation, WaitingEvaluations

_PATH: Final = "/v1/evaluations"
_MOST_LEASES: Final = 1000  # of one request


class AsyncEvaluationsClient(AsyncResourceClient):
    """Leases and results of external evaluators; ``EvaluationWorker`` is a ready loop over them."""

    async def acquire(
        self,
        *,
        problem: str | UUID | None = None,
        run: str | UUID | None = None,
        capabilities: Iterable[str] = (),
        count: int = 1,
        wait_s: float = 0.0,
        lease_s: float = 60.0,
    ) -> tuple[LeasedEvaluation, ...]:
        """Lease candidates that wait for an evaluation, oldest first.

        Args:
            problem: Limit to a problem version, by id or name.
            run: Limit to a run, by id.
            capabilities: What this machine offers; candidates of problems that need more are left out.
            count: Maximum number, at most 256.
            wait_s: Seconds to wait for the first one, at most 30.
            lease_s: Seconds until the leases lapse without ``renew``.
        """
        body = {
            "problem": problem and str(problem),
            "run": run and str(run),
            "capabilities": list(capabilities),
            "count": count,
            "wait_s": wait_s,
            "lease_s": lease_s,
        }
        call = post(f"{_PATH}:acquire", Page[LeasedEvaluation], body, timeout_s=wait_s + 30)
        return (await self._transport.send(call)).items

    async def waiting(
        self, *, problem: str | UUID | None = None, run: str | UUID | None = None
    ) -> tuple[WaitingEvaluations, ...]:
        """Count the candidates that wait for an evaluator, by problem version and the capabilities they need."""
        return await self._transport.send(get_list(f"{_PATH}:waiting", WaitingEvaluations, problem=problem, run=run))

    async def renew(
        self, evaluations: Iterable[LeasedEvaluation], *, lease_s: float = 60.0
    ) -> tuple[RenewedLease, ...]:
        """Renew leases; one without ``lease_until`` in the result is lost. Zero seconds give the candidates back."""
        leases = [{"id": str(one.id), "lease": str(one.lease)} for one in evaluations]
        renewed: list[RenewedLease] = []
        for start in range(0, len(leases), _MOST_LEASES):
            body = {"leases": leases[start : start + _MOST_LEASES], "lease_s": lease_s}
            call = post(f"{_PATH}:heartbeat", Page[RenewedLease], body, idempotency_key=str(uuid4()))
            renewed.extend((await self._transport.send(call)).items)
        return tuple(renewed)

    async def submit_all(self, results: Sequence[Mapping[str, Any]]) -> tuple[SubmittedEvaluation, ...]:
        """Submit results as the REST API takes them, and return what became of each, in order."""
        body = {"results": [dict(result) for result in results]}
        # Submissions are booked once, so that a repetition after a broken connection is safe.
        call = post(f"{_PATH}:submit", Page[SubmittedEvaluation], body, idempotency_key=str(uuid4()))
        return (await self._transport.send(call)).items
