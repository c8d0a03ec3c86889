"""Campaigns: one policy, many problems and one budget of evaluations, spent where a new target is likeliest."""

from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import Field, model_validator

from speciate.domain.budget import Budget
from speciate.domain.declaration import Declaration, DeclarationKind
from speciate.domain.documented import Flag
from speciate.domain.ensemble import PolicyWeights
from speciate.domain.entrant import Seed
from speciate.domain.learning import LearningScope
from speciate.domain.run import PolicyOptions, RunSpec

MAX_SLICES: Final = 20_000
"""Most slices of a campaign; every slice is stored as a decision."""


WAITS_FOR_GRANT: Final = "waiting for its campaign to grant more evaluations"
"""Reason of a run that is paused between two grants of its campaign."""


def waits_for_grant(reason: str | None) -> bool:
    """Return True for the reason of a run that is paused between two grants of its campaign."""
    return reason == WAITS_FOR_GRANT


class AllocationMode(StrEnum):
    """Rule that divides the budget among the problems."""

    ADAPTIVE = "adaptive"
    """Give each slice to the problem whose next evaluation is likeliest to reach a new target."""
    FIXED = "fixed"
    """Give every problem the same share, to within one evaluation; what a problem does not use stays unspent."""


class Campaign(PolicyOptions, Declaration):
    """A declared campaign. A problem whose unlock is confirmed receives no more evaluations."""

    kind: ClassVar[DeclarationKind] = DeclarationKind.CAMPAIGN
    omitted_at_default: ClassVar[frozenset[str]] = frozenset({"learning", "learning_scope"})

    policy: PolicyWeights
    """Policy that proposes: one, or several with weights."""
    mutator: PolicyWeights | None = None
    """Policy that changes parents, likewise; None is ``policy``."""
    evaluations: Annotated[int, Flag("--budget", "--evaluations", "-b")] = Field(ge=1, le=10**12, strict=True)
    """Evaluations of all problems together."""
    mode: AllocationMode = AllocationMode.ADAPTIVE
    """Adaptive: each slice goes where a new target is likeliest. Fixed: an equal share for every problem."""
    slice: int = Field(default=32, ge=1, le=10**6, strict=True)
    """Evaluations granted to a problem at a time; best a multiple of the batch."""
    parallel: int = Field(default=8, ge=1, le=256, strict=True)
    """Problems with an open slice; each run has one lane, so this also bounds the work units in flight."""
    seed: Seed = 0
    """Seed of every run and of tie-breaking."""
    learning_scope: Annotated[LearningScope, Flag("--learn-scope")] = LearningScope.CAMPAIGN
    """campaign: all runs share a learner, one problem at a time; run: every run trains a policy of its own."""

    @model_validator(mode="before")
    @classmethod
    def _serve_one_at_a_time(cls, fields: Any) -> Any:
        learns = isinstance(fields, dict) and fields.get("learning") is not None
        alone = learns and fields.get("learning_scope", LearningScope.CAMPAIGN) == LearningScope.CAMPAIGN
        return {"parallel": 1, **fields} if alone else fields

    @model_validator(mode="after")
    def _check_learning(self) -> Self:
        if self.shares_learner and self.parallel > 1:
            raise ValueError(
                f"parallel: expected 1, not {self.parallel}, where all runs share a learner; learning_scope 'run'"
                " trains a policy for each problem"
            )
        return self

    @property
    def shares_learner(self) -> bool:
        """True if the runs train one policy, each from where the run before it ended."""
        return self.learning is not None and self.learning_scope is LearningScope.CAMPAIGN

    @property
    def min_evaluations(self) -> int:
        """Smallest valid budget: one slice for each problem, or one evaluation each in fixed mode."""
        return len(self.problems) * (self.slice if self.mode is AllocationMode.ADAPTIVE else 1)

    @property
    def slices(self) -> int:
        """Number of slices expected, without those that solved problems return."""
        adaptive = self.mode is AllocationMode.ADAPTIVE
        return -(-self.evaluations // self.slice) if adaptive else len(self.problems)

    @property
    def grant(self) -> int:
        """Evaluations that every run may count on."""
        return self.slice if self.mode is AllocationMode.ADAPTIVE else self.evaluations // len(self.problems)

    def spec(self, evaluations: int | None = None) -> RunSpec:
        """Return the options of a run; ``evaluations`` are all by default."""
        # One lane: a run depends on its seed and its grants alone.
        budget = Budget(evaluations=evaluations or self.evaluations)
        return RunSpec(**self.common(PolicyOptions), budget=budget, lanes=1, stop_on_unlock=True)
