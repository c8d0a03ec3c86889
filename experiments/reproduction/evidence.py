"""Store the outcome of an arm of the reproduction in a few kilobytes of JSON.

The file of an arm and seed holds what the report needs of a million answers: the first answer that met each target,
the number of answers that did, and the curves. The report is a function of these files alone, so it can be generated
again, and extended from another machine, without training.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from experiments.reproduction.answers import AnswerPool
from experiments.reproduction.arms import CONTROL_SEEDS, METHODS, TaskPlan, TrainingArm
from experiments.reproduction.estimators import expected_best_at_k
from speciate.domain.errors import InvalidInputError
from speciate.domain.problem import Problem
from speciate.domain.rule import parse_rule
from speciate.policies.manifest import Manifest
from speciate.tournaments.statistics.estimators import best_at_k, diversity
from speciate.training.tasks import GENERATED, Split

Bools = NDArray[np.bool_]
Mode = Literal["independent", "evolved", "base_mutates"]

MODES: Final[tuple[Mode, ...]] = ("independent", "evolved", "base_mutates")
"""Modes of sampling: independent answers; evolved by the policy itself; proposed by it and mutated by the base."""

KS: Final = (1, 2, 3, 5, 8, 10, 15, 20, 30, 45, 60, 90)
"""Numbers of answers at which curves are stored."""

_WEIGHTINGS: Final = 200
_DIGITS: Final = 6


class EvidenceRecord(BaseModel):
    """A record that is stored as JSON; unknown fields are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class TargetHits(EvidenceRecord):
    """Targets met. Lists have one entry for each (target, problem), ordered by target.

    Attributes:
        first: Index of the first answer that met the target; -1 without one.
        cost: Completion tokens up to and including that answer; -1 without one.
        hits: Number of answers that met it.
    """

    first: tuple[int, ...]
    cost: tuple[int, ...]
    hits: tuple[int, ...]

    def within(self, answers: int) -> Bools:
        """Return which targets were met within some answers."""
        first = np.array(self.first)
        return (first >= 0) & (first < answers)

    def within_tokens(self, tokens: int) -> Bools:
        """Return which were met at the cost of some tokens for each problem."""
        cost = np.array(self.cost)
        return (cost >= 0) & (cost <= tokens)


class Measured(EvidenceRecord):
    """Statistics of independent answers, as means over problems.

    Attributes:
        best: best@k of the mean reward at ``KS``.
        weighted: E_w[best@k] over 200 weightings w ~ Dir(1), at ``KS``.
        diversity: Mean pairwise distance of reward vectors, of all answers.
        diversity_valid: The same over answers with a reward above 0.
        entropy: Entropy per token in nats: mean −log-probability.
        repeats: Share of answers that repeat an earlier one.
        tokens: Completion tokens of the first 30 answers to a problem.
    """

    best: tuple[float, ...]
    weighted: tuple[float, ...]
    diversity: float
    diversity_valid: float
    entropy: float
    repeats: float
    tokens: float


class ArmOutcome(EvidenceRecord):
    """Outcome of one arm and training seed.

    Attributes:
        task: Key of ``GENERATED``.
        arm: Name of the arm.
        seed: Training seed.
        start: Number of the first held-out problem.
        problems: Number of problems.
        answers: Answers to each.
        steps: Updates of the training.
        weights: Digest of the checkpoint's weights.
        data: Digest of the training problems.
        writer: Program that wrote the rollouts of the training; None for a base.
        versions: Versions of the packages of the training.
        measured: Statistics of independent answers.
        met: Targets met, by mode.
    """

    task: str
    arm: str
    seed: int
    start: int
    problems: int
    answers: Annotated[int, Field(ge=max(KS))]
    steps: int
    weights: str
    data: str
    writer: Literal["the engine", "the generator", "transformers"] | None
    versions: Mapping[str, str]
    measured: Measured
    met: Mapping[Mode, TargetHits]


class ControlOutcome(EvidenceRecord):
    """Independent answers of one arm and training seed by ways of sampling.

    Attributes:
        task: Key of ``GENERATED``.
        arm: Name of the arm.
        seed: Training seed.
        start: Number of the first held-out problem.
        problems: Number of problems.
        answers: Answers to each.
        weights: Digest of the checkpoint's weights.
        met: Targets met, by name of the ``SamplingControl``.
        best: Mean reward of a single answer, by the same name.
        tokens: Completion tokens of the first 30 answers to a problem, by the same name.
    """

    task: str
    arm: str
    seed: int
    start: int
    problems: int
    answers: int
    weights: str
    met: Mapping[str, TargetHits]
    best: Mapping[str, float]
    tokens: Mapping[str, float]


_Outcome = TypeVar("_Outcome", ArmOutcome, ControlOutcome)


@dataclass(frozen=True)
class Evidence:
    """A folder of outcomes."""

    folder: Path

    def path(self, plan: TaskPlan, arm: TrainingArm, seed: int) -> Path:
        """Return where an outcome lies."""
        return self.folder / f"{plan.task}-{arm.name}-{seed}.json"

    def has(self, plan: TaskPlan, arm: TrainingArm, seed: int) -> bool:
        """Tell whether an outcome is there."""
        return self.path(plan, arm, seed).is_file()

    def has_controls(self, plan: TaskPlan, arm: TrainingArm, seed: int) -> bool:
        """Return True if the ways of sampling an arm are stored, or are no part of the plan."""
        sampled = plan in METHODS.values() and arm.name in plan.arms and seed in CONTROL_SEEDS[plan.task]
        return not sampled or self.control_path(plan, arm, seed).is_file()

    def control_path(self, plan: TaskPlan, arm: TrainingArm, seed: int) -> Path:
        """Return where the outcome of the controls lies."""
        return self.folder / "controls" / self.path(plan, arm, seed).name

    def keep(self, plan: TaskPlan, arm: TrainingArm, outcome: ArmOutcome | ControlOutcome) -> None:
        """Write an outcome."""
        place = self.path if isinstance(outcome, ArmOutcome) else self.control_path
        path = place(plan, arm, outcome.seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        fields = outcome.model_dump(mode="json")
        lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in fields.items())
        path.write_text(f"{{\n{lines}\n}}\n", "utf-8")

    def read(self, plan: TaskPlan, arm: TrainingArm, seed: int) -> ArmOutcome | None:
        """Return an outcome, or None without one.

        Raises:
            InvalidInputError: The file cannot be read, or is about other problems.
        """
        return _read(self.path(plan, arm, seed), ArmOutcome, plan, arm, seed)

    def read_controls(self, plan: TaskPlan, arm: TrainingArm, seed: int) -> ControlOutcome | None:
        """Return the outcome of the controls, or None without one; raises as ``read`` does."""
        return _read(self.control_path(plan, arm, seed), ControlOutcome, plan, arm, seed)


def _read(path: Path, kind: type[_Outcome], plan: TaskPlan, arm: TrainingArm, seed: int) -> _Outcome | None:
    if not path.is_file():
        return None
    try:
        outcome = kind.model_validate_json(path.read_bytes())
    except ValueError as error:
        raise InvalidInputError(f"the outcome {path} cannot be read: {error}") from error
    asked = (outcome.task, outcome.arm, outcome.seed, outcome.start, outcome.problems, outcome.answers)
    if asked != (plan.task, arm.name, seed, plan.start, plan.problems, plan.answers):
        raise InvalidInputError(
            f"the outcome {path} is about other problems than the plan.",
            remedy="Remove it, and evaluate the policy again.",
        )
    return outcome


def outcome_of(
    plan: TaskPlan, arm: TrainingArm, seed: int, manifest: Manifest, weights: str, pools: Mapping[Mode, AnswerPool]
) -> ArmOutcome:
    """Return the outcome of an arm.

    Args:
        plan: The task.
        arm: The arm.
        seed: Training seed.
        manifest: Manifest of the checkpoint.
        weights: Digest of its weights.
        pools: Answers of each mode, shapes (N, n, …).
    """
    return ArmOutcome(
        task=plan.task,
        arm=arm.name,
        seed=seed,
        start=plan.start,
        problems=plan.problems,
        answers=plan.answers,
        steps=manifest.steps,
        weights=weights,
        data=manifest.data_digest,
        writer=None if arm.method == "base" else _writer(manifest),
        versions=manifest.versions,
        measured=_measured(pools["independent"]),
        met={mode: _met(plan, pool) for mode, pool in pools.items()},
    )


def _writer(manifest: Manifest) -> Literal["the engine", "the generator", "transformers"]:
    if (engine := manifest.config.get("use_engine")) is None:  # an option until tiny policies took the generator, too
        return "the generator"
    return "the engine" if engine else "transformers"


def control_outcome_of(
    plan: TaskPlan, arm: TrainingArm, seed: int, weights: str, pools: Mapping[str, AnswerPool]
) -> ControlOutcome:
    """Return the outcome of the controls of an arm; arguments as of ``outcome_of``, with pools by way of sampling."""
    return ControlOutcome(
        task=plan.task,
        arm=arm.name,
        seed=seed,
        start=plan.start,
        problems=plan.problems,
        answers=plan.answers,
        weights=weights,
        met={name: _met(plan, pool) for name, pool in pools.items()},
        best={name: round(float(pool.rewards.mean()), _DIGITS) for name, pool in pools.items()},
        tokens={name: round(_tokens(pool), _DIGITS) for name, pool in pools.items()},
    )


def problems_of(plan: TaskPlan) -> list[Problem]:
    """Return the held-out problems of a plan."""
    return list(GENERATED[plan.task].problems(Split.TEST, plan.problems, start=plan.start))


def hits_of(plan: TaskPlan, pool: AnswerPool, target: str) -> Bools:
    """Return True for each answer that meets a target, shape (N, n)."""
    (problem,) = GENERATED[plan.task].problems(Split.TEST, 1, start=plan.start)
    rule = parse_rule(next(t.rule for t in problem.targets if t.name == target), problem.space.names)
    flat = pool.rewards.reshape(-1, pool.rewards.shape[2])
    return np.array([rule.holds(tuple(row)) for row in flat]).reshape(pool.rewards.shape[:2])


def _met(plan: TaskPlan, pool: AnswerPool) -> TargetHits:
    hits = np.concatenate([hits_of(plan, pool, target) for target in plan.targets])  # (targets × N, n)
    spent = np.tile(np.cumsum(pool.tokens, axis=1), (len(plan.targets), 1))
    first = np.where(hits.any(axis=1), hits.argmax(axis=1), -1)
    cost = np.where(first >= 0, np.take_along_axis(spent, first[:, None].clip(0), axis=1)[:, 0], -1)
    return TargetHits(first=tuple(first.tolist()), cost=tuple(cost.tolist()), hits=tuple(hits.sum(axis=1).tolist()))


def _measured(pool: AnswerPool) -> Measured:
    weights = np.random.default_rng(0).dirichlet(np.ones(pool.rewards.shape[2]), (1, _WEIGHTINGS))[0]
    weighted = np.mean([expected_best_at_k(rewards, KS, weights) for rewards in pool.rewards], axis=0)
    spread = [diversity(rewards, rewards.max(axis=1) > 0) for rewards in pool.rewards]
    return Measured(
        best=_rounded(best_at_k(pool.rewards.mean(axis=2), KS).mean(axis=0)),
        weighted=_rounded(weighted),
        diversity=_mean([every for every, _ in spread]),
        diversity_valid=_mean([valid for _, valid in spread]),
        entropy=round(float(np.average(pool.surprise, weights=pool.tokens)), _DIGITS),
        repeats=round(float(pool.repeated.mean()), _DIGITS),
        tokens=round(_tokens(pool), _DIGITS),
    )


def _tokens(pool: AnswerPool) -> float:
    return float(pool.tokens[:, :30].sum(axis=1).mean())


def _rounded(values: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(round(float(value), _DIGITS) for value in values)


def _mean(values: list[float]) -> float:
    return round(float(np.nanmean(values)), _DIGITS)
