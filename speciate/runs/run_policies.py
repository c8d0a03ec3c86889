"""Look up the problem and the policies of a run by their names."""

from collections.abc import Iterable
from typing import Protocol

from speciate.domain.errors import NotFoundError
from speciate.domain.policy import PolicyRole
from speciate.schema.policies import PolicyVersion, RunPolicies, WeightedPolicyVersion
from speciate.schema.problems import ProblemSet, ProblemVersion

WeightedNames = Iterable[tuple[str, float]]


class Versions(Protocol):
    """Lookup of versions by name; raises ``NotFoundError`` for an unknown name."""

    def problem(self, name: str) -> ProblemVersion: ...

    def problem_set(self, name: str) -> ProblemSet: ...

    def policy(self, name: str) -> PolicyVersion: ...


def policies_of(proposers: WeightedNames, mutators: WeightedNames, versions: Versions) -> RunPolicies:
    """Return the policies of a run by names with weights; raises ``NotFoundError`` for an unknown policy."""
    members_of = {
        role: [WeightedPolicyVersion(version=versions.policy(name), weight=weight) for name, weight in names]
        for role, names in ((PolicyRole.PROPOSE, proposers), (PolicyRole.MUTATE, mutators))
    }
    several = any(len(members) > 1 for members in members_of.values())
    mutating = members_of[PolicyRole.MUTATE]
    return RunPolicies(
        members_of[PolicyRole.PROPOSE][0].version,
        mutating[0].version if mutating else None,
        {role: members for role, members in members_of.items() if several and members},
    )


def problem_and_policies(
    problem: str, proposers: WeightedNames, mutators: WeightedNames, versions: Versions
) -> tuple[ProblemVersion, RunPolicies]:
    """Return the problem and the policies of a run; the ``NotFoundError`` names an unknown problem and policy alike."""
    try:
        version = versions.problem(problem)
    except NotFoundError as unknown:
        try:
            policies_of(proposers, mutators, versions)
        except NotFoundError as error:
            raise NotFoundError(f"{unknown} Moreover, {error}") from None
        raise
    return version, policies_of(proposers, mutators, versions)
