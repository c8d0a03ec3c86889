"""Port to runs: create, start, pause, resume, cancel and label them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol
from uuid import UUID

from speciate.domain.labels import Labels, Relabelling
from speciate.domain.policy import PolicyRole
from speciate.domain.run import RunSpec
from speciate.ports.records.policies import PolicyVersion, WeightedPolicyVersion
from speciate.ports.records.problems import ProblemVersion
from speciate.ports.records.runs import RunRecord
from speciate.ports.work import Commit

Ensembles = Mapping[PolicyRole, Sequence[WeightedPolicyVersion]]
"""Policies by role, if a role of the run has several; otherwise empty."""

NO_ENSEMBLES: Final[Ensembles] = MappingProxyType({})
NO_LABELS: Final = Labels()


class RunStore(Protocol):
    """Creates runs and changes their state."""

    def create(
        self,
        problem: ProblemVersion,
        policy: PolicyVersion,
        mutator: PolicyVersion | None,
        spec: RunSpec,
        *,
        ensembles: Ensembles = NO_ENSEMBLES,
        labels: Labels = NO_LABELS,
        granted: int | None = None,
        idempotency_key: str | None = None,
    ) -> tuple[UUID, bool]:
        """Create a run in state ``created``. A repeated idempotency key returns the run of the first request.

        Args:
            problem: The problem version.
            policy: The proposing policy, the first one of an ensemble.
            mutator: The mutating policy, the first one of an ensemble.
            spec: Strategy, budget, seed and further options.
            ensembles: Policies by role, if a role has several.
            labels: Name, tags and note.
            granted: Evaluations that the run may spend until a campaign grants more; None allows the whole budget.
            idempotency_key: Key of the request.

        Returns:
            The run's ID, and True if the run is new.

        Raises:
            ConflictError: The key belongs to a different request.
        """
        ...

    def start(self, run_id: UUID) -> Commit:
        """Start a created run. Raises as ``pause`` does."""
        ...

    def pause(self, run_id: UUID, reason: str | None = None, *, fault: bool = False) -> Commit:
        """Stop dispatching work.

        Args:
            run_id: The run.
            reason: Explanation for users.
            fault: True if a failure caused the pause. Webhooks then report it.

        Raises:
            NotFoundError: The run does not exist.
            ConflictError: The run's state does not allow it.
        """
        ...

    def resume(self, run_id: UUID) -> Commit:
        """Dispatch work again. Raises as ``pause`` does."""
        ...

    def cancel(self, run_id: UUID, reason: str | None = None) -> Commit:
        """End the run. Raises as ``pause`` does."""
        ...

    def grant(self, run_id: UUID, granted: int) -> Commit:
        """Raise a campaign run's limit to ``granted`` evaluations in total. Idempotent.

        Raises:
            NotFoundError: The run does not exist.
        """
        ...

    def close(self, run_id: UUID, reason: str) -> Commit:
        """Complete a run that waits for a further grant. Raises as ``pause`` does."""
        ...

    def label(self, run_id: UUID, change: Relabelling) -> Commit:
        """Change name, tags or note, in any state.

        Raises:
            NotFoundError: The run does not exist.
            InvalidInputError: The run would have too many tags.
        """
        ...

    def get(self, run_id: UUID) -> RunRecord:
        """Return a run.

        Raises:
            NotFoundError: The run does not exist.
        """
        ...
