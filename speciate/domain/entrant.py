"""Entrants of a tournament: who proposes, who changes, and how they search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, JsonValue, StringConstraints, model_validator

from speciate.domain.ensemble import MAX_POLICIES, PolicyChoice
from speciate.domain.values import Slug, Value

Named = Annotated[str, StringConstraints(min_length=1, max_length=200)]
"""Id, ``slug`` (the newest version) or ``slug@version``; a stored declaration holds only ``slug@version``."""


class Member(Value):
    """A policy of an ensemble, with its weight among the others."""

    policy: Named
    weight: float = Field(default=1.0, gt=0, le=1e6)


class Entrant(Value):
    """One competitor: who proposes, who changes, and how they search.

    Attributes:
        name: Name in the report.
        policy: Policy that is asked for programs; the first one of several. May be given as names with weights.
        mutator: Another policy that changes parents, given alike; None is the same one.
        policies: All that are asked for programs, where they are several; otherwise empty.
        mutators: All that change parents, where they are several; otherwise empty.
        choice: How the next policy is chosen where a role has several.
        strategy: Key of ``speciate.search.strategies.STRATEGIES``.
        strategy_options: Its options.
        batch: Answers asked for in one unit of work.
        samples_per_prompt: Answers drawn for one prompt.
        against: Entrant that it is compared with; None is the tournament's baseline.
    """

    omitted_at_default: ClassVar[frozenset[str]] = frozenset({"policies", "mutators", "choice"})

    name: Slug
    policy: Named
    mutator: Named | None = None
    policies: tuple[Member, ...] = Field(default=(), max_length=MAX_POLICIES)
    mutators: tuple[Member, ...] = Field(default=(), max_length=MAX_POLICIES)
    choice: PolicyChoice = PolicyChoice.WEIGHTS
    strategy: str = Field(default="islands_map_elites", max_length=80)
    strategy_options: dict[str, JsonValue] = Field(default_factory=dict)
    batch: int = Field(default=16, ge=1, le=256)
    samples_per_prompt: int = Field(default=4, ge=1, le=256)
    against: Slug | None = None

    @model_validator(mode="before")
    @classmethod
    def _one_budget(cls, values: Any) -> Any:
        if isinstance(values, dict) and "budget" in values:
            raise ValueError("an entrant has no budget of its own: expected one 'budget', the tournament's, for all")
        return values

    @model_validator(mode="before")
    @classmethod
    def _several(cls, values: Any) -> Any:
        """Take names with weights where a name is expected, as runs do."""
        if not isinstance(values, dict):
            return values
        spread = dict(values)
        for role, all_of_it in (("policy", "policies"), ("mutator", "mutators")):
            if isinstance(given := spread.get(role), dict):
                if not given:
                    raise ValueError(f"{role} names nobody: expected a name, or names with weights")
                spread[role] = next(iter(given))
                if len(given) > 1:
                    spread[all_of_it] = [{"policy": name, "weight": weight} for name, weight in given.items()]
        return spread

    @model_validator(mode="after")
    def _first_of_several(self) -> Self:
        for first, several in ((self.policy, self.policies), (self.mutator, self.mutators)):
            if several and (len(several) < 2 or several[0].policy != first):
                raise ValueError("an ensemble has at least two policies, and 'policy' or 'mutator' names its first")
        if self.choice is PolicyChoice.UCB and not self.policies and not self.mutators:
            raise ValueError("choice 'ucb' chooses between several policies: expected at least two")
        return self

    @property
    def asked(self) -> tuple[str, ...]:
        """Every policy that takes part, once: those that propose, then those that change."""
        proposers = [member.policy for member in self.policies] or [self.policy]
        mutators = [member.policy for member in self.mutators] or ([self.mutator] if self.mutator else [])
        return tuple(dict.fromkeys([*proposers, *mutators]))

    @property
    def ensemble(self) -> bool:
        """Whether a role has several policies."""
        return bool(self.policies or self.mutators)

    def told(self) -> tuple[str, str | None]:
        """Return who proposes and who changes, as one reads it."""
        return (_mixture(self.policies) or self.policy), (_mixture(self.mutators) or self.mutator)


def _mixture(members: Sequence[Member]) -> str:
    equal = len({member.weight for member in members}) == 1
    return " + ".join(m.policy if equal else f"{m.policy}={m.weight:g}" for m in members)
