"""Port to a learner, which takes one training step from groups of completions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from speciate.domain.learning import Learning
from speciate.domain.policy import Policy
from speciate.domain.rollout import Prompt


@dataclass(frozen=True, slots=True)
class LearningRollout:
    """A completion to learn from.

    Attributes:
        token_ids: Its T tokens.
        logprobs: Log-probability of each under the version that wrote it, before temperature and top-p; shape (T,).
        rewards: Normalised rewards of its answers in [0, 1], shape (answers, k), higher is better; zeros for failures.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    rewards: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class LearningGroup:
    """All completions of one prompt.

    Attributes:
        prompt: The prompt.
        rollouts: Its completions.
        age: Steps between the version that wrote them and the parent of this step.
        weights: Declared weights of the k rewards; None for equal ones.
    """

    prompt: Prompt
    rollouts: tuple[LearningRollout, ...]
    age: int
    weights: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class LearningTask:
    """A step to take. The result depends on nothing else.

    Attributes:
        learning: Options of the run.
        seed: Seed of all randomness.
        step: Steps taken before.
        base: The policy that the run began with.
        parent: The version to change.
        slug: Name of the versions that the run writes.
        groups: The groups; those of different problems may differ in the number k of rewards.
    """

    learning: Learning
    seed: int
    step: int
    base: Policy
    parent: Policy
    slug: str
    groups: tuple[LearningGroup, ...]


@dataclass(frozen=True, slots=True)
class LearnedCheckpoint:
    """Result of a step: a checkpoint that is on disk.

    Attributes:
        model: Name under which a server finds it.
        digest: SHA-256 of its weights.
        options: Options of the client to set, such as the path of an adapter.
        seconds: Duration of the step.
        metrics: Measurements: ``reward``, ``best``, ``entropy``, ``kl``, ``age``, ``truncated``, ``loss``, and
            ``gap`` if a group is of the parent itself.
    """

    model: str
    digest: str
    options: Mapping[str, str | bool]
    seconds: float
    metrics: Mapping[str, float]


class Learner(Protocol):
    """Takes training steps."""

    def step(self, task: LearningTask) -> LearnedCheckpoint:
        """Take a step and write its checkpoint. A repeated task gives the same checkpoint.

        Raises:
            LearningError: The step cannot be taken, now or later; the run goes on without learning.
            UnavailableError: The disk is full; the step may succeed later.
        """
