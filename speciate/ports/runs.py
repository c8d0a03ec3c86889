"""The port to runs: making them and steering them."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from speciate.domain.run import RunSpec
from speciate.ports.records import PolicyVersion, ProblemVersion, RunRecord
from speciate.ports.work import Commit


class RunStore(Protocol):
    """Creates runs and moves them from state to state."""

    def create(
        self,
        problem: ProblemVersion,
        policy: PolicyVersion,
        mutator: PolicyVersion | None,
        spec: RunSpec,
        *,
        idempotency_key: str | None = None,
    ) -> tuple[UUID, bool]:
        """Store a run that does nothing yet; with a key that was used before, return the run of then.

        Returns:
            The run's id, and whether it is new.

        Raises:
            ConflictError: The key was used for another request.
        """
        ...

    def start(self, run_id: UUID) -> Commit:
        """Begin a created run; raises as ``pause`` does."""
        ...

    def pause(self, run_id: UUID, reason: str | None = None) -> Commit:
        """Stop handing out work.

        Raises:
            NotFoundError: There is no such run.
            ConflictError: Its state does not allow it.
        """
        ...

    def resume(self, run_id: UUID) -> Commit:
        """Hand out work again; raises as ``pause`` does."""
        ...

    def cancel(self, run_id: UUID, reason: str | None = None) -> Commit:
        """End it; raises as ``pause`` does."""
        ...

    def get(self, run_id: UUID) -> RunRecord:
        """Return a run.

        Raises:
            NotFoundError: There is none.
        """
        ...
