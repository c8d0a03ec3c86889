"""New runs, and the port to stored runs that starting one needs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from speciate.domain.labels import NO_LABELS, Labels
from speciate.domain.run import RunSpec
from speciate.domain.seeds import SeedProgram
from speciate.ports.work import Commit, RunContext, WeightedPolicy
from speciate.schema.estimates import ObservedRun, RunEstimate
from speciate.schema.policies import RunPolicies
from speciate.schema.problems import ProblemVersion
from speciate.schema.runs import RankedCandidate, RunRecord, SourceRun


@dataclass(frozen=True, slots=True)
class NewRun:
    problem: ProblemVersion
    policies: RunPolicies
    spec: RunSpec
    labels: Labels = NO_LABELS
    # Evaluations that the run may spend until a campaign grants more; None allows the whole budget.
    granted: int | None = None
    idempotency_key: str | None = None
    request_digest: str = ""  # digest of the request as it was sent, for its key: names may have newer versions later
    seeds: tuple[SeedProgram, ...] = ()
    sources: tuple[SourceRun, ...] = ()  # runs of the seed programs
    estimate: RunEstimate | None = None  # what its user was told that it will spend

    @property
    def mutator_id(self) -> UUID | None:
        return self.policies.mutator.id if self.policies.mutator else None

    @property
    def policy_ids(self) -> set[UUID | None]:
        members = (share.version.id for shares in self.policies.ensembles.values() for share in shares)
        return {self.policies.policy.id, self.mutator_id, *members}

    def context(self, run_id: UUID, project: UUID) -> RunContext:
        """Return the context, as a store does once the run is stored."""
        policy, mutator = self.policies.policy, self.policies.mutator
        ensembles = {
            role: tuple(WeightedPolicy(share.version.definition, share.version.id, share.weight) for share in shares)
            for role, shares in self.policies.ensembles.items()
        }
        return RunContext(
            run_id=run_id,
            project_id=project,
            problem=self.problem.definition,
            proposer=policy.definition,
            proposer_id=policy.id,
            spec=self.spec,
            mutator=None if mutator is None else mutator.definition,
            mutator_id=self.mutator_id,
            ensembles=ensembles,
            seeds=self.seeds,
            proposer_version=policy.version,
        )


class RunPrograms(Protocol):
    def front(self, run_id: UUID, limit: int = ...) -> tuple[RankedCandidate, ...]:
        """Return the Pareto front of a run, best first."""

    def programs(self, run_id: UUID, numbers: Sequence[int]) -> Mapping[int, str]:
        """Return programs by candidate number; those that retention deleted are empty."""


class RunStore(Protocol):
    """Stores new runs, and reads the runs that they take seed programs from."""

    def get(self, run_id: UUID) -> RunRecord:
        """Return a run; raises ``NotFoundError`` for an unknown one."""

    def queries(self) -> RunPrograms:
        """Return the queries of the same database."""

    def observed(self, problem: str, strategy: str, policy_id: UUID) -> Sequence[ObservedRun]:
        """Return what the answers of a policy cost in at most ten runs: those most like a new one, newest first.

        ``problem`` is the slug; all of them share as much with the new run (``ObservedRun.alike``).
        """

    def launch(self, new: NewRun) -> tuple[UUID, bool, Commit | None]:
        """Create and start a run in one transaction; return its id, and True if it is new.

        The commit is None if an earlier attempt made it.
        """
