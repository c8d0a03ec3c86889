"""Port to a learner, which takes one training step from groups of completions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from speciate.domain.learning import Learning
from speciate.domain.policy import Policy
from speciate.domain.rollout import Prompt


@dataclass(frozen=True, slots=True)
class LearningRollout:
    token_ids: tuple[int, ...]  # its T tokens
    # Log-probability of each under the version that wrote it, before temperature and top-p; shape (T,).
    logprobs: tuple[float, ...]
    # Normalised rewards of its answers in [0, 1], shape (answers, k), higher is better; zeros for failures.
    rewards: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class LearningGroup:
    prompt: Prompt
    rollouts: tuple[LearningRollout, ...]
    age: int  # steps between the version that wrote them and the parent of this step
    weights: tuple[float, ...] | None = None  # declared weights of the k rewards; None for equal ones


@dataclass(frozen=True, slots=True)
class LearningTask:
    """A step to take. The result depends on nothing else."""

    learning: Learning  # options of the run
    seed: int  # seed of all randomness
    step: int  # steps taken before
    base: Policy  # the policy that the run began with
    parent: Policy  # the version to change
    slug: str  # name of the versions that the run writes
    groups: tuple[LearningGroup, ...]  # the groups; those of different problems may differ in the number k of rewards


@dataclass(frozen=True, slots=True)
class LearnedCheckpoint:
    model: str  # name under which a server finds it
    digest: str  # SHA-256 of its weights
    options: Mapping[str, str | bool]  # options of the client to set, such as the path of an adapter
    seconds: float  # duration of the step
    # Measurements: ``reward``, ``best``, ``entropy``, ``kl``, ``age``, ``truncated``, ``loss``, and ``gap`` if a group
    # is of the parent itself.
    metrics: Mapping[str, float]


class Learner(Protocol):
    def step(self, task: LearningTask) -> LearnedCheckpoint:
        """Take a step and write its checkpoint. A repeated task gives the same checkpoint.

        Raises:
            LearningError: The step cannot be taken, now or later; the run goes on without learning.
            UnavailableError: The disk is full; the step may succeed later.
        """
