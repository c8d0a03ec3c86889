"""The order in which charts and tables show the objectives of a problem."""

from collections.abc import Sequence

from speciate.domain.objective import Objective
from speciate.domain.problem import Problem


def by_importance(problem: Problem) -> list[Objective]:
    """Return all objectives: those that the unlock rule compares, those of the other rules, then the rest.

    Objectives of rules are in the order of the rules' texts, others as declared.
    """
    rules = sorted(zip(problem.targets, problem.rules, strict=True), key=lambda pair: not pair[0].unlock)
    named = dict.fromkeys(word for _, rule in rules for word in rule.tokens if word in rule.uses)
    rank = {name: i for i, name in enumerate(named)}
    return sorted(problem.objectives, key=lambda objective: rank.get(objective.name, len(rank)))


def shared_objectives(problems: Sequence[Problem]) -> list[Objective]:
    """Return the objectives that all problems declare with the same direction, by importance to the first problem."""
    if not problems:
        return []
    others = [{o.name: o.direction for o in problem.objectives} for problem in problems[1:]]
    return [o for o in by_importance(problems[0]) if all(other.get(o.name) is o.direction for other in others)]
