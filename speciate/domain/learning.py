"""Learning from search: options of a run that trains its own policy, and the lineage of the versions that it writes."""

from enum import StrEnum
from typing import Annotated, ClassVar, Final

from pydantic import Field

from speciate.domain.documented import Documented, Flag
from speciate.domain.values import Value

_SLUG_CHARACTERS: Final = 60
MIN_GROUP: Final = 8
"""Fewest completions of a prompt that learning compares."""

ROUNDING: Final = 1e-12
"""Share of the largest number up to which differences are rounding errors; a group without others teaches nothing.

VPO leaves out groups with a standard deviation below 1e-6 (arXiv 2605.22817). Here rewards are float64 on a scale that
may be far wider than the values of a group: late in a search, small differences are all that is left to learn from."""


class LearningEstimator(StrEnum):
    """Advantage estimators for runs: keys of ``speciate.training.advantages.ESTIMATORS``."""

    GRPO = "grpo"
    GDPO = "gdpo"
    MAXRL = "maxrl"
    MAX_AT_K = "max_at_k"
    RANDOM_WEIGHTING = "random_weighting"
    MULTI_RLVR = "multi_rlvr"
    VPO = "vpo"
    VECTOR_MAX_AT_K = "vector_max_at_k"
    ENTROPIC = "entropic"
    PKPO = "pkpo"

    @property
    def takes_sets(self) -> bool:
        """True if a completion may hold several answers."""
        return self in {LearningEstimator.VPO, LearningEstimator.MULTI_RLVR}


class LearningScope(StrEnum):
    """Runs of a campaign that share a learner."""

    CAMPAIGN = "campaign"
    """All: each run begins with the version and the waiting groups of the run before it."""
    RUN = "run"
    """None: every run begins with the declared policy."""


class Learning(Value):
    """Options of a run that trains its policy."""

    estimator: Annotated[LearningEstimator, Flag("--learn", metavar="ESTIMATOR")] = LearningEstimator.VECTOR_MAX_AT_K
    """Train the policy on its own completions with this advantage estimator."""
    groups: int = Field(default=8, ge=1, le=1024, strict=True)
    """Groups of a step. A group is all completions of one prompt."""
    kappa: int | None = Field(default=None, ge=1, le=255, strict=True)
    """κ of the estimators of E[max of κ answers]; None is half the group, at most 8."""
    draws: int = Field(default=100, ge=1, le=10_000, strict=True)
    """K, random weightings of the vector estimators."""
    learning_rate: float = Field(default=3e-4, gt=0, le=1)
    """Of AdamW, constant."""
    kl: float = Field(default=1e-3, ge=0, le=100)
    """Weight of the KL divergence from the policy that the run began with."""
    lora_rank: int = Field(default=0, ge=0, le=1024, strict=True)
    """Rank of a LoRA adapter, for servers that load adapters; 0 trains all weights."""
    steps: int = Field(default=1000, ge=1, le=1_000_000, strict=True)
    """Most steps; then the run goes on with its last version."""
    staleness: int = Field(default=1, ge=0, le=1000, strict=True)
    """Steps by which a completion's version may be older than the version that learns from it."""

    @property
    def min_group(self) -> int:
        """Fewest completions of a prompt to learn from: a best of κ leaves one more out."""
        return max(MIN_GROUP, (self.kappa or 0) + 1)


def learned_slug(base: str, owner: str) -> str:
    """Return the name of learned versions: the base's with the end of the id of their run or campaign, hexadecimal."""
    return f"{base[:_SLUG_CHARACTERS].rstrip('-')}-{owner[-12:]}"


class Lineage(Value):
    """Origin of a policy version that a run learned."""

    omitted_at_default: ClassVar[frozenset[str]] = frozenset({"campaign"})

    base: str = Field(max_length=200)
    """Policy version that the run began with, as ``slug@version``."""
    parent: str = Field(max_length=200)
    """Version that the step changed."""
    run: str = Field(max_length=36)
    """Id of the run that took the step."""
    step: int = Field(ge=1)
    """Number of the step, from 1."""
    estimator: LearningEstimator
    """Advantage estimator."""
    groups: int = Field(ge=1)
    """Groups of the step."""
    campaign: str | None = Field(default=None, max_length=80)
    """Name of the campaign whose runs share the learner; None for a run that learns alone."""


class LearningCounters(Documented):
    """What a run's learning has come to: the part of its state that records show as it is."""

    step: int = 0
    """Steps that led to the version in use, with those of earlier runs of a campaign that learns over its runs."""
    taken: int = 0
    """Steps that the run itself took."""
    campaign: str | None = None
    """Name of that campaign; None for a run that learns alone."""
    busy: bool = False
    """True while a step is in flight or waits for a learn worker."""
    ended: str | None = None
    """Why the run learns no further; None while it does."""
    seen: int = 0
    """Groups of completions so far."""
    used: int = 0
    """Groups that steps learned from."""
    flat: int = 0
    """Groups whose completions all earned the same."""
    stale: int = 0
    """Groups older than the allowed staleness."""
    dropped: int = 0
    """Groups that are too small, that lost their evaluator, or that no further step needed."""
    received: int = 0
    """Groups from the run before it in the campaign; they are not among those seen."""
    passed: int = 0
    """Groups that waited when the run's turn ended, to the run after it."""
    tokens: int = 0
    """Tokens of all steps, which the run's tokens include."""
    seconds: float = 0.0
    """Seconds of all steps."""
