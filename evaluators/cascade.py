"""Run the stages of an evaluation cascade. Each stage measures objectives and decides whether the next one runs."""

from collections.abc import Callable

from speciate.domain.candidate import Evaluation, Failure
from speciate.domain.problem import Problem
from speciate.domain.stage import CascadeStage

STOPPED = "stopped"
"""Name of the artifact with the reason why the cascade stopped."""

StageRewards = tuple[float, ...]
"""Rewards of one stage, in the order of its objectives."""


def run_cascade(
    problem: Problem, measure: Callable[[CascadeStage], StageRewards | Failure], program: str = ""
) -> Evaluation:
    """Measure stage after stage until one fails, its rule rejects the candidate, or an external stage follows.

    A failure after the first stage stops the cascade and is feedback, unless the evaluator fails on the seed program:
    then it is broken. Other programs may have caused its exception. The caller adds the tier and the usage.
    """
    measured: dict[str, float] = {}
    for step in problem.cascade:
        if step.external:
            break
        rewards = measure(step)
        if isinstance(rewards, Failure):
            broken = rewards.by_evaluator and program == problem.seed_program
            if not measured or broken or rewards.lost:
                return Evaluation(failure=rewards)
            why = f"stage {step.name!r}: {rewards.kind}: {rewards.detail or rewards.reason}"
            return Evaluation(problem.padded(measured), stopped_at=step.name, artifacts={STOPPED: why})
        measured |= zip((objective.name for objective in step.objectives), rewards, strict=True)
        following = problem.cascade[problem.cascade.index(step) + 1 :]
        if following and step.needs is not None and not step.needs.holds(problem.padded(measured)):
            why = f"stage {step.name!r} needs {step.needs.text}"
            return Evaluation(problem.padded(measured), stopped_at=following[0].name, artifacts={STOPPED: why})
    return Evaluation(problem.padded(measured))
