"""Entrants of tournaments: a policy or ensemble for each role, with a strategy."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, NamedTuple, Self

from pydantic import Field, StringConstraints, model_validator

from speciate.domain.ensemble import MAX_POLICIES, PolicyChoice
from speciate.domain.run import EngineOptions
from speciate.domain.values import Slug, Value, canonical_json

Named = Annotated[str, StringConstraints(min_length=1, max_length=200)]
"""Id, ``slug`` (the newest version) or ``slug@version``; stored declarations hold only ``slug@version``."""


Seed = Annotated[int, Field(ge=0, lt=2**63, strict=True)]
"""Seed of a run or of a training."""


class Member(Value):
    """A policy of an ensemble, with its weight among the others."""

    policy: Named
    weight: float = Field(default=1.0, gt=0, le=1e6)


class Search(NamedTuple):
    """How an entrant searches with its policy; entrants of equal search differ in policies and batches alone."""

    strategy: str
    options: str
    """Options of the strategy as canonical JSON."""
    mutator: str | None
    """Mutators with their weights; None if the policy changes its own parents."""

    def __str__(self) -> str:
        options = "" if self.options == "{}" else f" {self.options}"
        return f"{self.strategy}{options}" + (f", mutator {self.mutator}" if self.mutator else "")


class Entrant(EngineOptions):
    omitted_at_default: ClassVar[frozenset[str]] = frozenset(
        {"policies", "mutators", "choice", "duplicate_of", "method", "training_seed", "engine", "engine_options"}
    )

    name: Slug
    """Name in the report."""
    policy: Named
    """Proposing policy, the first one of an ensemble. The input may be names with weights."""
    mutator: Named | None = None
    """Policy that changes parents, likewise; None is ``policy``."""
    policies: tuple[Member, ...] = Field(default=(), max_length=MAX_POLICIES)
    """All proposers of an ensemble, otherwise empty."""
    mutators: tuple[Member, ...] = Field(default=(), max_length=MAX_POLICIES)
    """All mutators of an ensemble, otherwise empty."""
    choice: PolicyChoice = PolicyChoice.WEIGHTS
    """How the next policy of an ensemble is chosen."""
    against: Slug | None = None
    """Entrant to compare with; None is the tournament's baseline."""
    duplicate_of: Slug | None = None
    """Entrant that this one repeats with other seeds, to see how often a null is rejected; its other fields are copied
    from it."""
    method: Slug | None = None
    """Training method of the policy; entrants of one method are its training runs."""
    training_seed: Seed | None = None
    """Seed of the training run. Methods with the same training seeds are compared in pairs."""

    @model_validator(mode="before")
    @classmethod
    def _one_budget(cls, values: Any) -> Any:
        if isinstance(values, dict) and "budget" in values:
            raise ValueError("an entrant has no budget of its own: expected one 'budget', the tournament's, for all")
        return values

    @model_validator(mode="before")
    @classmethod
    def _expand_weights(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        spread = dict(values)
        for role, members in (("policy", "policies"), ("mutator", "mutators")):
            if isinstance(weights := spread.get(role), dict):
                if not weights:
                    raise ValueError(f"{role} is empty: expected a name, or names with weights")
                spread[role] = next(iter(weights))
                if len(weights) > 1:
                    spread[members] = [{"policy": name, "weight": weight} for name, weight in weights.items()]
        return spread

    @model_validator(mode="after")
    def _ensemble_is_consistent(self) -> Self:
        for first, several in ((self.policy, self.policies), (self.mutator, self.mutators)):
            if several and (len(several) < 2 or several[0].policy != first):
                raise ValueError("an ensemble has at least two policies, and 'policy' or 'mutator' names its first")
        if self.choice is PolicyChoice.UCB and not self.policies and not self.mutators:
            raise ValueError("choice 'ucb' chooses between several policies: expected at least two")
        return self

    @model_validator(mode="after")
    def _training_run_is_complete(self) -> Self:
        if (self.method is None) != (self.training_seed is None):
            raise ValueError("'method' and 'training_seed' are declared together: expected both or neither")
        if self.method is not None and self.policies:
            raise ValueError("an ensemble is not a training run: expected one policy, or no 'method'")
        return self

    def played(self) -> dict[str, Any]:
        """Return what the runs depend on: all but names and comparisons."""
        return self.model_dump(mode="json", exclude={"name", "against", "duplicate_of", "method", "training_seed"})

    @property
    def search(self) -> Search:
        return Search(self.searched_by, canonical_json(self.search_options), self.role_labels()[1])

    def repeats(self, other: "Entrant") -> bool:
        """Return True if it is the other entrant, or another training run of its method that is searched alike."""
        return self.name == other.name or (
            self.method is not None and self.method == other.method and self.search == other.search
        )

    @property
    def policy_names(self) -> tuple[str, ...]:
        """Every policy of the entrant once: proposers, then mutators."""
        proposers = [member.policy for member in self.policies] or [self.policy]
        mutators = [member.policy for member in self.mutators] or ([self.mutator] if self.mutator else [])
        return tuple(dict.fromkeys([*proposers, *mutators]))

    def role_labels(self) -> tuple[str, str | None]:
        return (_label(self.policies) or self.policy), (_label(self.mutators) or self.mutator)


def _label(members: Sequence[Member]) -> str:
    equal = len({member.weight for member in members}) == 1
    return " + ".join(m.policy if equal else f"{m.policy}={m.weight:g}" for m in members)
