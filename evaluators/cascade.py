"""Run the stages of an evaluation cascade. Each stage measures objectives and decides whether the next one runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from speciate.domain.candidate import NOT_THE_PROGRAMS_FAULT, Failure
from speciate.domain.problem import Problem
from speciate.domain.stage import CascadeStage

STOPPED = "stopped"
"""Name of the artifact with the reason why the cascade stopped."""

StageRewards = Mapping[str, float]
"""Rewards of one stage, by objective."""


@dataclass(frozen=True, slots=True)
class CascadeResult:
    """Result of a cascade.

    Attributes:
        rewards: Shape (d,), declared order; None if the first stage failed.
        stopped_at: First stage without rewards; None if the cascade measured all objectives.
        artifacts: Reason for stopping, as feedback.
    """

    rewards: tuple[float, ...] | None
    failure: Failure | None = None
    stopped_at: str | None = None
    artifacts: dict[str, str] = field(default_factory=dict)


def run_cascade(problem: Problem, measure: Callable[[CascadeStage], StageRewards | Failure]) -> CascadeResult:
    """Measure stage after stage until one fails, its rule rejects the candidate, or an external stage follows."""
    known: dict[str, float] = {}
    for step in problem.cascade:
        if step.external:
            break
        found = measure(step)
        if isinstance(found, Failure):
            if not known or found.reason in NOT_THE_PROGRAMS_FAULT:
                return CascadeResult(None, failure=found)
            return _stopped(
                problem, known, step.name, f"stage {step.name!r}: {found.kind}: {found.detail or found.reason}"
            )
        known |= found
        following = problem.cascade[problem.cascade.index(step) + 1 :]
        if following and step.needs is not None and not step.needs.holds(problem.padded(known)):
            return _stopped(problem, known, following[0].name, f"stage {step.name!r} needs {step.needs.text}")
    return CascadeResult(problem.padded(known))


def _stopped(problem: Problem, known: StageRewards, stage: str, why: str) -> CascadeResult:
    return CascadeResult(problem.padded(known), stopped_at=stage, artifacts={STOPPED: why})
