"""What an engine outside the service is told, and what its requests change."""

from collections.abc import Mapping, Sequence
from operator import mul
from typing import Final

from speciate.domain.objective import ObjectiveRole
from speciate.domain.problem import Problem
from speciate.domain.reward import RewardSpace
from speciate.domain.rollout import Prompt
from speciate.prompts.render import secret_objectives

MAX_ATTEMPTS: Final = 3
"""Sessions of a run that may lapse before the run fails."""


def ends_of(problem: Problem) -> dict[str, dict[str, float]]:
    """Return the worse end ``low`` and the better end ``high`` of each objective, and the ``limit`` of constraints."""
    ends: dict[str, dict[str, float]] = {}
    for objective in _visible(problem).objectives:
        if objective.role is ObjectiveRole.CONSTRAINT:
            ends[objective.name] = {"limit": float(objective.limit or 0.0)}
        elif objective.role is ObjectiveRole.OBJECTIVE:
            ends[objective.name] = {"low": objective.worst, "high": objective.best}
    return ends


def score_of(problem: Problem, rewards: Mapping[str, float]) -> float:
    """Return the scalar that engines maximize, of raw rewards by objective.

    It is the declared weighted sum of the normalized objectives, or without weights their mean, at least 0 each and not
    bounded above; a tenth of it if a constraint is violated. What the engine must not select on does not count.
    """
    space = _visible(problem)
    shares = [objective.share(rewards[objective.name]) for objective in space.selected]
    weights = space.weight_vector(problem.weights)
    score = sum(max(0.0, share) for share in shares) / max(len(shares), 1)
    if weights is not None:
        score = max(0.0, sum(map(mul, weights, shares)))
    limits = (o for o in space.objectives if o.role is ObjectiveRole.CONSTRAINT)
    return score / 10 if any(o.beats(o.limit, rewards[o.name]) for o in limits) else score


def _visible(problem: Problem) -> RewardSpace:
    secret = secret_objectives(problem)
    return RewardSpace(tuple(objective for objective in problem.objectives if objective.name not in secret))


def prompt_of(messages: Sequence[tuple[str, str]]) -> Prompt:
    """Return the prompt that the roles and texts of a chat amount to."""
    system = "\n\n".join(text for role, text in messages if role in ("system", "developer"))
    turns = [(role, text) for role, text in messages if role not in ("system", "developer")]
    if len(turns) == 1:
        return Prompt(system, turns[0][1])
    return Prompt(system, "\n\n".join(f"{role.capitalize()}:\n{text}" for role, text in turns))
