"""The declared experiment in two sizes: ``gpu`` for one H100, ``cpu`` for two cores (docs/evidence/real-model.md)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from speciate.domain.policy import PromptStyle
from speciate.training.config import TrainConfig, WarmUpConfig
from speciate.training.reward_batch import EstimatorConfig

TASK: Final = "python-choices"
BASE: Final = "base"
SET: Final = 3
"""Answers of a set."""
LABELS: Final = {
    BASE: "warmed base",
    "grpo": "GRPO",
    "vpo": "VPO",
    "multi_rlvr": "Multi-RLVR",
    "vector_max_at_k": "Vector Max-at-K",
}
SETS: Final = ("vpo", "multi_rlvr")
"""Arms whose policies write sets."""
PRIMARY: Final = ("vpo", "grpo")
WITHIN: Final = 30
"""Answers within which a target counts in the primary comparison."""


@dataclass(frozen=True, slots=True)
class Job:
    """A training with its evaluation, or the evaluation of the base."""

    arm: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.arm}-{self.seed}"


@dataclass(frozen=True, slots=True)
class Plan:
    """Size of the experiment."""

    name: str
    runs: dict[str, int]
    """Training seeds of each arm, 0, 1, …"""
    prompts: int
    """Prompts of an update."""
    sets: int
    """Sets for each prompt; arms with single answers write three times as many rollouts."""
    steps: int
    max_tokens: int
    """Longest answer in tokens."""
    kl: float
    bfloat16: bool
    problems: int
    """Held-out problems."""
    answers: int
    """Answers to each, a multiple of three."""
    both_forms: bool
    """Ask every policy for single answers and for sets, not only as it was trained."""
    at_once: int
    """Trainings at the same time."""
    groups_at_once: int
    """Groups of one pass, so that trainings at the same time fit into a GPU; 0 for what fits into memory."""
    warm_up: WarmUpConfig

    def config(self, arm: str, seed: int) -> TrainConfig:
        """Return the recipe of a training."""
        m = SET if arm in SETS else 1
        return TrainConfig(
            arm,
            seed=seed,
            steps=self.steps,
            prompts=self.prompts,
            group=self.sets * SET // m,
            problems=400,
            learning_rate=3e-4,
            kl=self.kl,
            mutation_share=0.0,
            temperature=1.0,
            estimator=EstimatorConfig(kappa=8 if arm == "vector_max_at_k" else None),
            save_every=2,
            lora_rank=16,
            bfloat16=self.bfloat16,
            micro_batch=self.groups_at_once * self.sets * SET // m,
            max_prompt_tokens=320,
            max_tokens=m * self.max_tokens,
            prompt_style=PromptStyle.SCAFFOLDED,
        )

    def jobs(self) -> Iterator[Job]:
        """Yield the jobs: seeds outermost, so that an interrupted experiment is balanced."""
        yield Job(BASE, 0)
        for seed in range(max(self.runs.values())):
            yield from (Job(arm, seed) for arm, runs in self.runs.items() if seed < runs)


PLANS: Final = {
    "gpu": Plan(
        name="gpu",
        runs={"vpo": 5, "grpo": 5, "multi_rlvr": 2, "vector_max_at_k": 2},
        prompts=24,
        sets=8,
        steps=40,
        max_tokens=64,
        kl=1e-3,
        bfloat16=True,
        problems=100,
        answers=66,
        both_forms=True,
        at_once=7,
        groups_at_once=1,
        warm_up=WarmUpConfig(
            demonstrations=True, gate=0.9, steps=200, every=50, batch=64, learning_rate=2e-5, problems=1600, held_out=50
        ),
    ),
    "cpu": Plan(
        name="cpu",
        runs={"vpo": 5, "grpo": 5},
        prompts=4,
        sets=8,
        steps=24,
        max_tokens=40,
        kl=0.0,
        bfloat16=True,
        problems=60,
        answers=33,
        both_forms=False,
        at_once=2,
        groups_at_once=0,
        warm_up=WarmUpConfig(
            demonstrations=True, gate=0.9, steps=60, every=15, batch=32, pairs=4, learning_rate=1e-4, problems=240,
            held_out=24,
        ),
    ),
}  # fmt: skip
