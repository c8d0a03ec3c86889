"""What an engine outside the service is told, and what its requests change."""

from collections.abc import Sequence
from typing import Final

from speciate.domain.objective import ObjectiveRole
from speciate.domain.problem import Problem
from speciate.domain.rollout import Prompt

MAX_ATTEMPTS: Final = 3
"""Sessions of a run that may lapse before the run fails."""


def ends_of(problem: Problem) -> dict[str, dict[str, float]]:
    """Return the worse end ``low`` and the better end ``high`` of each objective, and the ``limit`` of constraints."""
    ends: dict[str, dict[str, float]] = {}
    for objective in problem.objectives:
        if objective.role is ObjectiveRole.CONSTRAINT:
            ends[objective.name] = {"limit": float(objective.limit or 0.0)}
        elif objective.role is ObjectiveRole.OBJECTIVE:
            ends[objective.name] = {"low": objective.worst, "high": objective.best}
    return ends


def score_of(problem: Problem, rewards: Sequence[float]) -> float:
    """Return the scalar that engines maximize, of raw rewards of shape (d,).

    It is the declared weighted sum of the normalized objectives, or without weights their mean, at least 0 each and not
    bounded above; a tenth of it if a constraint is violated.
    """
    ends = ends_of(problem)
    parts = [
        max(0.0, (value - ends[name]["low"]) / (ends[name]["high"] - ends[name]["low"]))
        for name, value in zip(problem.space.names, rewards, strict=True)
        if "low" in ends.get(name, ())
    ]
    weighted = problem.scalarize(rewards)
    score = max(0.0, weighted) if weighted is not None else sum(parts) / max(len(parts), 1)
    return score / 10 if problem.space.violation([list(rewards)])[0] > 0 else score


def prompt_of(messages: Sequence[tuple[str, str]]) -> Prompt:
    """Return the prompt that the roles and texts of a chat amount to."""
    system = "\n\n".join(text for role, text in messages if role in ("system", "developer"))
    turns = [(role, text) for role, text in messages if role not in ("system", "developer")]
    if len(turns) == 1:
        return Prompt(system, turns[0][1])
    return Prompt(system, "\n\n".join(f"{role.capitalize()}:\n{text}" for role, text in turns))
