"""Runs: states, specification and counters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, ClassVar, Final

from pydantic import Field, JsonValue

from speciate.domain.budget import Budget
from speciate.domain.documented import Documented
from speciate.domain.ensemble import PolicyChoice
from speciate.domain.errors import ConflictError
from speciate.domain.guidance import Guidance
from speciate.domain.learning import Learning
from speciate.domain.novelty import Novelty
from speciate.domain.values import Value


class RunState(StrEnum):
    """States of a run."""

    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """True if the state is final."""
        return self in _ENDED


_ENDED: Final = frozenset({RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED})

_TRANSITIONS: Final[dict[RunState, frozenset[RunState]]] = {
    RunState.CREATED: frozenset({RunState.RUNNING, RunState.CANCELLED}),
    RunState.RUNNING: frozenset({RunState.PAUSED, RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED}),
    RunState.PAUSED: frozenset({RunState.RUNNING, RunState.COMPLETED, RunState.CANCELLED}),
}


def sources_of(state: RunState) -> frozenset[RunState]:
    """Return the states from which a run may move to ``state``."""
    return frozenset(source for source, goals in _TRANSITIONS.items() if state in goals)


def transition_error(run: str, source: RunState, goal: RunState) -> ConflictError:
    """Return the error for a forbidden transition. Its message lists the allowed ones."""
    allowed = " or ".join(sorted(_TRANSITIONS.get(source, frozenset())))
    why = f"only {allowed}" if allowed else "it has ended"
    return ConflictError(f"run {run} is {source.value} and cannot become {goal.value}: {why}.")


class RunSpec(Value):
    """Specification of a run."""

    omitted_at_default: ClassVar[frozenset[str]] = frozenset({"guidance", "policy_discount", "keep_tokens", "learning"})

    strategy: str = Field(default="vector_evolution", max_length=80)
    """Key of ``speciate.search.strategies.STRATEGIES``."""
    strategy_options: dict[str, JsonValue] = Field(default_factory=dict)
    """Options of the strategy, validated by its config model."""
    budget: Budget
    """Limits of the run."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Seed of every random choice of the run."""
    lanes: int = Field(default=4, ge=1, le=1024)
    """Batches in flight at once. With 1 the run can be replayed exactly."""
    batch: int = Field(default=16, ge=1, le=256)
    """Answers to request in one work unit."""
    samples_per_prompt: int = Field(default=4, ge=1, le=256)
    """Answers sampled for one prompt; a batch holds ``batch / samples_per_prompt`` prompts."""
    stop_on_unlock: bool = False
    """True to complete the run when its unlock is confirmed."""
    stop_on_plateau: int | None = Field(default=None, ge=1, le=10**12, strict=True)
    """Evaluations without an improvement of the archive after which the run completes; None (default) spends the whole
    budget."""
    reuse_results: bool = False
    """True to share evaluation results with other runs of the project that use the same evaluator."""
    policy_choice: PolicyChoice = PolicyChoice.WEIGHTS
    """Rule that chooses among several policies of a role."""
    policy_discount: float = Field(default=1.0, gt=0, le=1)
    """Factor by which each batch reduces the weight of older answers for ``ucb``; 1 (default) keeps their full
    weight."""
    novelty: Novelty = Novelty()
    """Rules for duplicates and near-duplicates."""
    guidance: Guidance | None = None
    """Rules for the advice that the run writes for its own prompts; None (default) writes none."""
    keep_tokens: bool = False
    """True to store the id and the log-probability of every token that the policies write."""
    learning: Learning | None = None
    """Rules for the training of the run's policy on its own completions; None (default) trains nothing."""

    @property
    def keeps_tokens(self) -> bool:
        """True if the run stores tokens, for users or to learn from them."""
        return self.keep_tokens or self.learning is not None


@dataclass(frozen=True, slots=True)
class Display:
    """Display of a counter on the command line and the dashboard."""

    label: str
    """Name that stands beside the number."""
    of_candidates: bool = True
    """True if it counts candidates."""
    share: bool = False
    """True if pages add its share of all candidates."""
    optional: bool = False
    """True if it is left out while it is zero."""


class RunCounters(Documented):
    """Counters that the commits of a run's work increase.

    This is their only declaration: the database columns, the API and SDK record, the command line and the dashboard
    derive from it (ADR 33).
    """

    evaluated: Annotated[int, Display("evaluated")] = 0
    """Candidates with rewards, duplicates included."""
    failed: Annotated[int, Display("failed", share=True)] = 0
    """Candidates without rewards, rejected near-duplicates included."""
    duplicates: Annotated[int, Display("duplicates")] = 0
    """Candidates that took the result of an earlier one with the same program."""
    reused: Annotated[int, Display("reused", optional=True)] = 0
    """Candidates that took a result of another run."""
    improvements: Annotated[int, Display("improvements", share=True)] = 0
    """Candidates that improved the archive when they were evaluated."""
    rollouts: Annotated[int, Display("completions", of_candidates=False)] = 0
    """Completions that the policies returned."""
    estimated_tokens: Annotated[int, Display("estimated tokens", of_candidates=False, optional=True)] = 0
    """Tokens that endpoints did not report: each byte counts as one, and a lost request most."""

    def displayed(self) -> Iterator[tuple[str, Display, int]]:
        """Yield the name, display and value of every counter to show."""
        for name, field in RunCounters.model_fields.items():
            (display,) = (item for item in field.metadata if isinstance(item, Display))
            value = getattr(self, name)
            if value or not display.optional:
                yield name, display, value
