"""Runs: states, specification and counters."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import BaseModel, Field, JsonValue, model_validator

from speciate.domain.budget import Budget
from speciate.domain.documented import Documented, Flag
from speciate.domain.ensemble import PolicyChoice
from speciate.domain.errors import ConflictError
from speciate.domain.guidance import Guidance
from speciate.domain.learning import Learning
from speciate.domain.novelty import Novelty
from speciate.domain.values import Slug, Value


class RunState(StrEnum):
    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self in _ENDED


_ENDED: Final = frozenset({RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED})

_TRANSITIONS: Final[dict[RunState, frozenset[RunState]]] = {
    RunState.CREATED: frozenset({RunState.RUNNING, RunState.CANCELLED}),
    RunState.RUNNING: frozenset({RunState.PAUSED, RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED}),
    RunState.PAUSED: frozenset({RunState.RUNNING, RunState.COMPLETED, RunState.CANCELLED}),
}


def sources_of(state: RunState) -> frozenset[RunState]:
    return frozenset(source for source, goals in _TRANSITIONS.items() if state in goals)


def transition_error(run: str, source: RunState, goal: RunState) -> ConflictError:
    """Return the error for a forbidden transition. Its message lists the allowed ones."""
    allowed = " or ".join(sorted(_TRANSITIONS.get(source, frozenset())))
    why = f"only {allowed}" if allowed else "it has ended"
    return ConflictError(f"run {run} is {source.value} and cannot become {goal.value}: {why}.")


class SearchOptions(Value):
    """Options of everything that searches: runs, campaigns and entrants of tournaments."""

    strategy: Annotated[str, Flag("--strategy", "-s")] = Field(default="vector_evolution", max_length=80)
    """Search strategy; `speciate strategies` lists them with their options."""
    strategy_options: Annotated[dict[str, JsonValue], Flag("--option", "-o")] = Field(default_factory=dict)
    """Options of the strategy."""
    batch: int = Field(default=16, ge=1, le=256)
    """Answers requested in one work unit."""
    samples_per_prompt: int = Field(default=4, ge=1, le=256)
    """Answers sampled for one prompt; a batch holds ``batch / samples_per_prompt`` prompts."""

    def common(self, part: type[BaseModel]) -> dict[str, Any]:
        """Return the fields that ``part`` declares, for another class that has them."""
        return {name: getattr(self, name) for name in part.model_fields}


BUNDLED_ENGINES: Final = ("openevolve", "shinka-evolve", "gepa", "independent-sampling", "sequential-sampling")
"""Engines that come with Speciate; another one needs a command."""


class EngineOptions(SearchOptions):
    """Options of runs and entrants whose candidates another program proposes."""

    engine: Annotated[Slug | None, Flag("--engine")] = None
    """Engine that proposes all candidates in place of the strategy, with the policy as its model; `speciate engines
    run` starts it."""
    engine_options: Annotated[dict[str, JsonValue], Flag("--engine-option")] = Field(default_factory=dict)
    """Options of the engine."""

    @property
    def searched_by(self) -> str:
        """Name of what searches, in records and tables: the strategy, or ``engine:NAME``."""
        return self.strategy if self.engine is None else f"engine:{self.engine}"

    @property
    def engine_command(self) -> str:
        """Command that runs the engine on what waits for it; empty without an engine."""
        own = "" if self.engine in BUNDLED_ENGINES else ' --command "python …"'
        return "" if self.engine is None else f"speciate engines run {self.engine}{own}"

    @property
    def search_options(self) -> dict[str, JsonValue]:
        """Options of what searches."""
        return self.strategy_options if self.engine is None else self.engine_options

    @model_validator(mode="after")
    def _options_belong_to_engine(self) -> Self:
        if self.engine_options and self.engine is None:
            raise ValueError("'engine_options' without 'engine': expected the name of an engine, or no options")
        return self


class PolicyOptions(SearchOptions):
    """Options that runs and campaigns share, and entrants of tournaments lack or spell differently."""

    # Entrants of tournaments are compared by what their policies write, so nothing is polished by default there.
    strategy: Annotated[str, Flag("--strategy", "-s")] = Field(default="adaptive_evolution", max_length=80)
    """Search strategy; `speciate strategies` lists them with their options."""
    policy_choice: Annotated[PolicyChoice, Flag("--choice")] = PolicyChoice.WEIGHTS
    """How the next of several policies is chosen: by weight, or by success (ucb)."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Seed of every random choice."""
    learning: Annotated[Learning | None, Flag("--learn-option")] = None
    """Training of the policy on its own completions."""


class RunSpec(PolicyOptions, EngineOptions):
    """Specification of a run."""

    # The only declaration of a run's options: the command line, the forms of the dashboard and the OpenAPI document
    # derive from it. A field that the first version did not have belongs in ``omitted_at_default``.

    omitted_at_default: ClassVar[frozenset[str]] = frozenset(
        {"guidance", "policy_discount", "keep_tokens", "learning", "final_evaluations", "engine", "engine_options"}
    )

    budget: Budget
    """Limits of the run; none is exceeded."""
    policy_discount: Annotated[float, Flag("--discount")] = Field(default=1.0, gt=0, le=1)
    """Factor by which each batch reduces the weight of older answers for ``ucb``; 1 keeps their full weight."""
    lanes: int = Field(default=4, ge=1, le=1024)
    """Batches in flight at once. With 1 the run can be replayed exactly."""
    stop_on_unlock: bool = False
    """Complete the run when its unlock is confirmed."""
    stop_on_plateau: Annotated[int | None, Flag(metavar="EVALUATIONS")] = Field(
        default=None, ge=1, le=10**12, strict=True
    )
    """Complete the run after this many evaluations without an improvement of the archive."""
    reuse_results: bool = False
    """Share evaluation results of equal programs with other runs of the project that set this."""
    final_evaluations: int = Field(default=5, ge=0, le=100)
    """If rewards are noisy: evaluations of the best program after the end, besides the budget, for its value."""
    keep_tokens: bool = False
    """Store the id and the log-probability of every token that the policies write, for trainers."""
    novelty: Novelty = Novelty()
    """Duplicates and near-duplicates."""
    guidance: Guidance | None = None
    """Advice that the run writes for its own prompts; None writes none."""

    @property
    def changed_options(self) -> dict[str, JsonValue]:
        """Options that differ from their defaults, by dotted path, and the first of a part that is off by default."""
        changed: dict[str, JsonValue] = {}
        for name, field in type(self).model_fields.items():
            value, default = getattr(self, name), field.get_default(call_default_factory=True)
            if isinstance(value, BaseModel):
                first = [*value.model_dump(mode="json").items()][: default is None]
                value = dict(first) | value.model_dump(mode="json", exclude_defaults=True)
            if isinstance(value, dict):
                changed |= {f"{name}.{part}": each for part, each in value.items()}
            elif value != default:
                changed[name] = value
        return changed

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
    """Candidates whose program an earlier one had: they took its result, or with noisy rewards were one more trial."""
    reused: Annotated[int, Display("reused", optional=True)] = 0
    """Candidates that took a result of another run."""
    polished: Annotated[int, Display("polished", share=True, optional=True)] = 0
    """Candidates whose numbers the service itself changed, without asking a policy."""
    improvements: Annotated[int, Display("improvements", share=True)] = 0
    """Candidates that improved the archive when they were evaluated."""
    rollouts: Annotated[int, Display("completions", of_candidates=False)] = 0
    """Completions that the policies returned."""
    estimated_tokens: Annotated[int, Display("estimated tokens", of_candidates=False, optional=True)] = 0
    """Tokens that endpoints did not report: each byte counts as one, and a lost request most."""

    def displayed(self) -> Iterator[tuple[str, Display, int]]:
        for name, field in RunCounters.model_fields.items():
            (display,) = (item for item in field.metadata if isinstance(item, Display))
            value = getattr(self, name)
            if value or not display.optional:
                yield name, display, value
