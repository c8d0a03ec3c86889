"""Campaigns: many problems, one policy, one budget of evaluations that goes where a new target is likeliest."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from functools import cached_property
from typing import Final, Self

from pydantic import Field, JsonValue, model_validator

from speciate.domain.budget import Budget
from speciate.domain.ensemble import PolicyChoice, PolicyWeights
from speciate.domain.entrant import Named
from speciate.domain.errors import ConflictError
from speciate.domain.run import RunSpec
from speciate.domain.tournament import Seed
from speciate.domain.values import Slug, Value, digest_of

MOST_SLICES: Final = 20_000
"""Most slices of a campaign: each is a decision that is kept."""


class CampaignState(StrEnum):
    """What the campaign asks of its runs."""

    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


_MOVES: Final[dict[CampaignState, frozenset[CampaignState]]] = {
    CampaignState.RUNNING: frozenset({CampaignState.PAUSED, CampaignState.CANCELLED}),
    CampaignState.PAUSED: frozenset({CampaignState.RUNNING, CampaignState.CANCELLED}),
}


def check_move(slug: str, source: CampaignState, goal: CampaignState) -> None:
    """Let people only make moves that a campaign allows; control alone completes it.

    Raises:
        ConflictError: This one is not; the message says which ones are.
    """
    allowed = _MOVES.get(source, frozenset())
    if goal not in allowed:
        why = f"only {' or '.join(sorted(allowed))}" if allowed else "it has ended"
        raise ConflictError(f"campaign {slug!r} is {source.value} and cannot become {goal.value}: {why}.")


class Mode(StrEnum):
    """Who gets the evaluations."""

    ADAPTIVE = "adaptive"
    """Slice by slice the problem where the next evaluation reaches a new target with the highest probability."""
    FIXED = "fixed"
    """Every problem the same share, to within one evaluation; what one leaves over is spent by nobody."""


class Campaign(Value):
    """A declaration. A problem whose unlock is confirmed takes no more evaluations.

    Attributes:
        slug: Name; it can never be used again.
        title: One line for people.
        problems: What is to be solved, without repetition.
        policy: Who is asked: one policy, or several with weights.
        mutator: Another policy that changes parents, or several; None is the same one.
        policy_choice: How the next policy is chosen where a role has several.
        strategy: Key of ``speciate.search.strategies.STRATEGIES``.
        strategy_options: Its options.
        batch: Answers asked for in one unit of work.
        samples_per_prompt: Answers drawn for one prompt.
        evaluations: Budget of all problems together.
        mode: Who gets them.
        slice: Evaluations that a problem is given at a time (adaptive).
        parallel: Problems that are given evaluations at once; each run has one lane, so this is also its units of work.
        seed: Seed of every run, and of the order among equals.
    """

    slug: Slug
    title: str = Field(default="", max_length=200)
    problems: tuple[Named, ...] = Field(min_length=1, max_length=10_000)
    policy: PolicyWeights
    mutator: PolicyWeights | None = None
    policy_choice: PolicyChoice = PolicyChoice.WEIGHTS
    strategy: str = Field(default="islands_map_elites", max_length=80)
    strategy_options: dict[str, JsonValue] = Field(default_factory=dict)
    batch: int = Field(default=16, ge=1, le=256)
    samples_per_prompt: int = Field(default=4, ge=1, le=256)
    evaluations: int = Field(ge=1, le=10**12, strict=True)
    mode: Mode = Mode.ADAPTIVE
    slice: int = Field(default=32, ge=1, le=10**6, strict=True)
    parallel: int = Field(default=8, ge=1, le=256, strict=True)
    seed: Seed = 0

    @model_validator(mode="after")
    def _no_problem_twice(self) -> Self:
        if (most := Counter(self.problems).most_common(1)) and most[0][1] > 1:
            raise ValueError(f"problem {most[0][0]!r} is named twice: expected each once")
        return self

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the declaration; fields that came later have no part in it while they are at their defaults."""
        return digest_of(self.stored_json())

    @property
    def least(self) -> int:
        """Evaluations that give every problem something: a slice each, or one evaluation each when shares are fixed."""
        return len(self.problems) * (self.slice if self.mode is Mode.ADAPTIVE else 1)

    @property
    def slices(self) -> int:
        """Most slices that there will be, but for those that a solved problem leaves over."""
        return -(-self.evaluations // self.slice) if self.mode is Mode.ADAPTIVE else len(self.problems)

    def spec(self) -> RunSpec:
        """Return what defines the course of each run; what it may spend by and by is granted to it."""
        return RunSpec(
            strategy=self.strategy,
            strategy_options=self.strategy_options,
            budget=Budget(evaluations=self.evaluations),
            seed=self.seed,
            lanes=1,  # a run depends on its seed and its grants alone
            batch=self.batch,
            samples_per_prompt=self.samples_per_prompt,
            stop_on_unlock=True,
            policy_choice=self.policy_choice,
        )
