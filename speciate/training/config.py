"""Configuration of a reinforcement run, without importing torch."""

from dataclasses import field, replace
from typing import Annotated, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from pydantic.dataclasses import dataclass

from speciate.domain.errors import InvalidInputError
from speciate.domain.learning import LearningEstimator
from speciate.domain.policy import PromptStyle
from speciate.domain.suggestions import did_you_mean
from speciate.training.advantages import ESTIMATORS
from speciate.training.reward_batch import FINITE, EstimatorConfig


@dataclass(frozen=True, config=FINITE)
class WarmUpConfig:
    """Configuration of the supervised warm-up, which teaches a language model the form of sets before a training."""

    demonstrations: bool = False
    """Use the task's reference programs first; by default the answers are the model's own readable ones."""
    gate: Annotated[float, Field(gt=0, le=1)] = 0.8
    """Share of the slots of sets for held-out problems that must be readable; the warm-up ends as soon as it is."""
    steps: PositiveInt = 200
    """Most updates."""
    every: PositiveInt = 20
    """Updates between two measurements, each with a checkpoint."""
    batch: PositiveInt = 16
    """Sequences of an update, half of them single answers and half sets."""
    pairs: PositiveInt = 1
    """Single answers to each problem, and as many sets; all of them are in one update, which reads a prompt once."""
    learning_rate: PositiveFloat = 2e-5
    """Constant, AdamW, all weights."""
    problems: PositiveInt = 240
    """Training problems that examples are made of."""
    held_out: PositiveInt = 20
    """Further training problems, for the gate."""

    def __post_init__(self) -> None:
        if self.batch % (2 * self.pairs):
            raise InvalidInputError(f"warm_up.batch = {self.batch}: expected a multiple of 2 × warm_up.pairs.")


@dataclass(frozen=True, config=FINITE)
class TrainConfig:
    """Configuration of a reinforcement run; ``tiny`` and ``paper`` return whole recipes."""

    method: str
    """Key of ``ESTIMATORS``."""
    seed: int = 0
    """Seed of all randomness."""
    steps: PositiveInt = 150
    """Updates."""
    prompts: PositiveInt = 32
    """Prompts of a batch."""
    group: Annotated[int, Field(ge=2)] = 8
    """G, rollouts of each prompt, which are compared."""
    problems: PositiveInt = 2400
    """Training problems, drawn at random."""
    learning_rate: PositiveFloat = 3e-4
    """Constant, AdamW."""
    kl: NonNegativeFloat = 1e-3
    """Weight of the KL divergence from the base on answers from scratch."""
    mutation_share: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """Share of the prompts that ask for a change of one of the policy's own earlier answers."""
    mutation_kl: NonNegativeFloat = 0.5
    """Weight of the KL divergence on those: they must not drift, or evolution loses its operator."""
    remembered: PositiveInt = 256
    """Problems whose answers are kept as parents."""
    unsolved_only: bool = False
    """Draw no problem again, nor its answers, whose targets have all been met, each by some answer: training on what is
    solved costs diversity (arXiv 2606.15455). For objectives that are maximized from 0 to 1."""
    updates: PositiveInt = 1
    """Updates per batch of rollouts. With one, ratios are 1 and clipping has no effect."""
    micro_batch: NonNegativeInt = 0
    """Rollouts of one forward pass; memory grows with it. 0 takes the whole batch on a GPU, and on a CPU as many groups
    as half of its memory holds, or its cache if a pass cannot process a group's prompt once."""
    temperature: PositiveFloat = 1.0
    """Softmax temperature of the rollouts."""
    estimator: EstimatorConfig = field(default_factory=EstimatorConfig)
    """Configuration of the estimator."""
    clip: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """ε of PPO: ratios outside 1 ± ε have no gradient in the direction away from 1."""
    save_every: PositiveInt = 10
    """Steps between checkpoints; an interrupted run resumes from the last one."""
    lora_rank: NonNegativeInt = 0
    """Rank of a LoRA adapter; 0 trains all weights."""
    use_vllm: bool = False
    """True to have vLLM write the rollouts (needs a GPU and the ``vllm`` package)."""
    bfloat16: bool | None = None
    """Compute in bfloat16, with weights and gradients in float32; None: on a GPU only. Newer CPUs are faster, too."""
    max_prompt_tokens: int = 4096
    """Longest prompt of English tasks; longer ones are refused."""
    max_tokens: PositiveInt = 1024
    """Longest completion of English tasks; tiny tasks define their own."""
    prompt_style: PromptStyle = PromptStyle.STANDARD
    """Prompts of English tasks: standard ones, or those for small models."""
    warm_up: WarmUpConfig | None = None
    """Supervised warm-up on the form of sets."""

    def __post_init__(self) -> None:
        if self.method not in ESTIMATORS:
            raise InvalidInputError(
                f"no method is called {self.method!r}.",
                remedy=did_you_mean(self.method, ESTIMATORS) or f"Methods: {', '.join(ESTIMATORS)}.",
            )
        if self.problems < self.prompts:
            raise InvalidInputError(f"problems = {self.problems}: fewer than the {self.prompts} prompts of a batch.")
        at_once = self.micro_batch or self.batch
        if self.batch % at_once or at_once % self.group:
            raise InvalidInputError(
                f"micro_batch = {self.micro_batch}: expected a divisor of {self.batch} and a multiple of {self.group}."
            )
        if at_once % self.updates:
            raise InvalidInputError(f"updates = {self.updates}: expected a divisor of a pass's {at_once} rollouts.")

    @classmethod
    def tiny(cls, method: str, task: str, *, seed: int = 0) -> Self:
        """Return the recipe for tiny policies, which a laptop trains in a quarter of an hour.

        Routes are longer than step functions, so the maze has smaller batches. Changing a route is learnt by
        supervision alone: with mutation prompts in the batches, GRPO and VPO both get worse at their own objective.
        A checkpoint after every step costs 2 % of the time, and an interrupted run loses nothing.
        """
        prompts, share = (32, 0.0) if task.startswith("maze") else (48, 1 / 3)
        return cls(method, seed=seed, prompts=prompts, mutation_share=share, save_every=1)

    @classmethod
    def paper(cls, method: str, *, seed: int = 0) -> Self:
        """Return the recipe of arXiv 2605.22817, appendix on training.

        Its two updates of a batch and its dual clip of 3.0 are left out: a batch is used once.
        """
        return cls(method, seed=seed, prompts=128, learning_rate=1e-6, mutation_share=0.0, micro_batch=8, save_every=25)

    def to_change(self) -> Self:
        """Return this configuration for a mutator, which changes others' candidates (docs/adr/0026-mutators.md).

        Nine of ten prompts ask for changes; the tenth supplies parents. A mutator may drift further from the base than
        a policy that also proposes, and larger groups compare more ways to change a parent.
        """
        group = max(self.group, 24)
        micro_batch = self.micro_batch // self.group * group
        return replace(self, group=group, micro_batch=micro_batch, mutation_share=0.9, mutation_kl=0.1)

    @property
    def batch(self) -> int:
        return self.prompts * self.group

    @property
    def multi_answer(self) -> bool:
        return LearningEstimator(self.method).takes_sets
