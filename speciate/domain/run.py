"""A run: one problem, one policy (or several to propose and to mutate), one strategy, one budget, one seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, ClassVar, Final

from pydantic import BaseModel, Field, JsonValue

from speciate.domain.budget import Budget
from speciate.domain.ensemble import PolicyChoice
from speciate.domain.errors import ConflictError
from speciate.domain.guidance import Guidance
from speciate.domain.novelty import Novelty
from speciate.domain.values import Value


class RunState(StrEnum):
    """Where a run is in its life."""

    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Whether nothing will change any more."""
        return self in _ENDED


_ENDED: Final = frozenset({RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED})

_MOVES: Final[dict[RunState, frozenset[RunState]]] = {
    RunState.CREATED: frozenset({RunState.RUNNING, RunState.CANCELLED}),
    RunState.RUNNING: frozenset({RunState.PAUSED, RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED}),
    RunState.PAUSED: frozenset({RunState.RUNNING, RunState.COMPLETED, RunState.CANCELLED}),
}


def sources_of(state: RunState) -> frozenset[RunState]:
    """Return the states from which a run may move to ``state``."""
    return frozenset(source for source, goals in _MOVES.items() if state in goals)


def refuse_move(run: str, source: RunState, goal: RunState) -> ConflictError:
    """Return the error for a move that is not allowed; the message says which ones are."""
    allowed = " or ".join(sorted(_MOVES.get(source, frozenset())))
    why = f"only {allowed}" if allowed else "it has ended"
    return ConflictError(f"run {run} is {source.value} and cannot become {goal.value}: {why}.")


class RunSpec(Value):
    """What defines a run's course.

    Attributes:
        strategy: Key of ``speciate.search.strategies.STRATEGIES``.
        strategy_options: Options of the strategy, checked by its own config model.
        budget: What it may spend.
        seed: Seed of every random choice of the run.
        lanes: Batches in flight at once; one lane makes a run replayable.
        batch: Answers asked for in one unit of work.
        samples_per_prompt: Answers drawn for one prompt; a batch holds ``batch / samples_per_prompt`` prompts.
        stop_on_unlock: Whether the run completes when its unlock is confirmed.
        stop_on_plateau: Evaluations in a row without an improvement of the archive after which the run completes; None,
            the default, lets it spend its budget.
        reuse_results: Whether a program that another such run has evaluated by the same evaluator gets its rewards.
        policy_choice: How the next policy is chosen where a role has several.
        policy_discount: What a batch leaves of the weight that older answers have for the choice ``ucb``; 1, the
            default, leaves all of it.
        novelty: Which programs are not evaluated again, or not at all.
        guidance: How the run writes advice for its own prompts; None, the default, writes none.
    """

    omitted_at_default: ClassVar[frozenset[str]] = frozenset({"guidance", "policy_discount"})

    strategy: str = Field(default="islands_map_elites", max_length=80)
    strategy_options: dict[str, JsonValue] = Field(default_factory=dict)
    budget: Budget
    seed: int = Field(default=0, ge=0, lt=2**63)
    lanes: int = Field(default=4, ge=1, le=1024)
    batch: int = Field(default=16, ge=1, le=256)
    samples_per_prompt: int = Field(default=4, ge=1, le=256)
    stop_on_unlock: bool = False
    stop_on_plateau: int | None = Field(default=None, ge=1, le=10**12, strict=True)
    reuse_results: bool = False
    policy_choice: PolicyChoice = PolicyChoice.WEIGHTS
    policy_discount: float = Field(default=1.0, gt=0, le=1)
    novelty: Novelty = Novelty()
    guidance: Guidance | None = None


@dataclass(frozen=True, slots=True)
class Display:
    """How the command line and the dashboard show a counter.

    Attributes:
        label: Name that stands beside the number.
        of_candidates: True if it counts candidates.
        share: True if pages add its share of all candidates.
        optional: True if it is left out while it is zero.
    """

    label: str
    of_candidates: bool = True
    share: bool = False
    optional: bool = False


class RunCounters(BaseModel):
    """Counters that the commits of a run's work increase.

    This is their only declaration: the database columns, the API and SDK record, the command line and the dashboard
    derive from it (ADR 33).
    """

    evaluated: Annotated[int, Display("evaluated")] = Field(
        default=0, description="Candidates with rewards, duplicates included."
    )
    failed: Annotated[int, Display("failed", share=True)] = Field(
        default=0, description="Candidates without rewards, rejected near-duplicates included."
    )
    duplicates: Annotated[int, Display("duplicates")] = Field(
        default=0, description="Candidates that took the result of an earlier one with the same program."
    )
    reused: Annotated[int, Display("reused", optional=True)] = Field(
        default=0, description="Candidates that took a result of another run."
    )
    improvements: Annotated[int, Display("improvements", share=True)] = Field(
        default=0, description="Candidates that improved the archive when they were evaluated."
    )
    rollouts: Annotated[int, Display("completions", of_candidates=False)] = Field(
        default=0, description="Completions that the policies returned."
    )

    def displayed(self) -> Iterator[tuple[str, Display, int]]:
        """Yield the name, display and value of every counter to show."""
        for name, field in RunCounters.model_fields.items():
            (display,) = (item for item in field.metadata if isinstance(item, Display))
            value = getattr(self, name)
            if value or not display.optional:
                yield name, display, value
