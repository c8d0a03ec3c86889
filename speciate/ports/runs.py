"""Port to stored runs, as far as starting a run needs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol
from uuid import UUID

from speciate.domain.labels import Labels
from speciate.domain.run import RunSpec
from speciate.domain.seeds import SeedProgram
from speciate.ports.work import Commit
from speciate.schema.policies import RunPolicies
from speciate.schema.problems import ProblemVersion
from speciate.schema.runs import RankedCandidate, RunRecord, SourceRun


class RunPrograms(Protocol):
    """Programs of stored runs."""

    def front(self, run_id: UUID, limit: int = ...) -> tuple[RankedCandidate, ...]:
        """Return the Pareto front of a run, best first."""
        ...

    def programs(self, run_id: UUID, numbers: Sequence[int]) -> Mapping[int, str]:
        """Return programs by candidate number; those that retention deleted are empty."""
        ...


class RunStore(Protocol):
    """Stores new runs, and reads the runs that they take seed programs from."""

    def get(self, run_id: UUID) -> RunRecord:
        """Return a run; raises ``NotFoundError`` for an unknown one."""
        ...

    def queries(self) -> RunPrograms:
        """Return the queries of the same database."""
        ...

    def launch(
        self,
        problem: ProblemVersion,
        policies: RunPolicies,
        spec: RunSpec,
        *,
        labels: Labels,
        idempotency_key: str | None,
        request_digest: str,
        seeds: Sequence[SeedProgram],
        sources: Sequence[SourceRun],
    ) -> tuple[UUID, bool, Commit | None]:
        """Create and start a run in one transaction.

        Returns:
            The run's ID, True if the run is new, and the commit to publish; None if an earlier attempt made it.
        """
        ...
