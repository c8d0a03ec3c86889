"""The port to runs: making them and steering them."""

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
"""The policies of all roles of a run where one of them has several; otherwise empty."""

NO_ENSEMBLES: Final[Ensembles] = MappingProxyType({})
NO_LABELS: Final = Labels()


class RunStore(Protocol):
    """Creates runs and moves them from state to state."""

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
        """Store a run that does nothing yet; with a key that was used before, return the run of then.

        ``policy`` and ``mutator`` are the first ones of their ensembles. ``granted`` are the evaluations that it may
        spend until a campaign grants more; None is its whole budget.

        Returns:
            The run's id, and whether it is new.

        Raises:
            ConflictError: The key was used for another request.
        """
        ...

    def start(self, run_id: UUID) -> Commit:
        """Begin a created run; raises as ``pause`` does."""
        ...

    def pause(self, run_id: UUID, reason: str | None = None, *, fault: bool = False) -> Commit:
        """Stop handing out work.

        Args:
            run_id: The run.
            reason: Why.
            fault: Whether nobody asked for it, so that webhooks are told.

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

    def grant(self, run_id: UUID, granted: int) -> Commit:
        """Let a campaign's run spend up to so many evaluations in all; said again, it changes nothing.

        Raises:
            NotFoundError: There is no such run.
        """
        ...

    def close(self, run_id: UUID, reason: str) -> Commit:
        """Complete a run that waits for a grant which will not come; raises as ``pause`` does."""
        ...

    def label(self, run_id: UUID, change: Relabelling) -> Commit:
        """Change what people call it; allowed at any time, also after its end.

        Raises:
            NotFoundError: There is no such run.
            InvalidInputError: It would have too many tags.
        """
        ...

    def get(self, run_id: UUID) -> RunRecord:
        """Return a run.

        Raises:
            NotFoundError: There is none.
        """
        ...
