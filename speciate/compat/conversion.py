"""Turn another system's directory into a problem, with what its user chooses and what its evaluator returned."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from speciate.compat.draft import MEAN, Draft, DraftRewards, problem_of
from speciate.compat.measuring import NUMBER_ADVICE, Score, measure
from speciate.compat.rewards import SCORE, directions_of, rewards_of
from speciate.domain.errors import InvalidInputError, RuleError
from speciate.domain.limits import Limits
from speciate.domain.objective import Objective, ObjectiveRole
from speciate.domain.problem import Problem
from speciate.domain.rule import parse_rule
from speciate.domain.target import Target
from speciate.domain.values import MAX_SLUG, SLUG

_MAX_NAME: Final = 80


@dataclass(frozen=True, slots=True)
class Converted:
    """The problem that a directory amounts to, and what its user should know about it."""

    problem: Problem
    files: Mapping[str, str] = field(default_factory=dict)
    """Files of the problem by name; empty if it was declared, and so nothing was evaluated. Likewise the rest."""
    seed: Mapping[str, float] = field(default_factory=dict)
    artifacts: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Reason for each file that is not part of the problem, by name."""

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self.remarks, *(f"{path} is left out: it {reason}" for path, reason in self.left_out.items()))


def adjusted(
    draft: Draft,
    *,
    slug: str | None = None,
    wall_s: float | None = None,
    memory_mb: int | None = None,
    limits: Sequence[str] = (),
    requirements: Sequence[str] = (),
) -> Draft:
    """Return the directory with the options of the command line; None and nothing keep what it says."""
    if slug is not None and (len(slug) > MAX_SLUG or not re.fullmatch(SLUG, slug)):
        raise InvalidInputError(
            f"invalid slug {slug!r}.", remedy=f"Pass lower-case words joined by hyphens, at most {MAX_SLUG} characters."
        )
    if slug is not None:
        draft = replace(draft, slug=slug, title=slug.replace("-", " ").capitalize())
    if requirements:
        draft = replace(draft, packages=replace(draft.packages, demanded=tuple(requirements)))
    return replace(
        draft,
        wall_s=draft.wall_s if wall_s is None else wall_s,
        memory_bytes=draft.memory_bytes if memory_mb is None else memory_mb << 20,
        limits=_limits_in(limits),
    )


def _limits_in(options: Sequence[str]) -> dict[str, float]:
    limits: dict[str, float] = {}
    for text in options:
        name, _, value = text.partition("=")
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if name not in Limits.model_fields or not math.isfinite(number):
            names = ", ".join(Limits.model_fields)
            raise InvalidInputError(f"--limit is {text!r}.", remedy=f"Pass NAME=NUMBER with one of {names}.")
        limits[name] = int(number) if number.is_integer() else number
    return limits


def convert(
    draft: Draft,
    score: Score | None,
    *,
    maximize: Sequence[str] = (),
    minimize: Sequence[str] = (),
    targets: Sequence[str] = (),
    anyway: bool = False,
) -> Converted:
    """Return the problem with the directions and targets that the user names, else those of the other system.

    Names of the rewards become known when the evaluator scores the seed program; see ``measure``. No score: a trial's.
    """
    directions = directions_of(maximize, minimize)
    if score is None:
        return Converted(draft.trial())
    draft, seed, noise, artifacts = measure(draft, score, anyway=anyway)
    remarks = [*draft.remarks]
    for name in directions or (SCORE,):
        if name not in seed and name in artifacts:
            raise InvalidInputError(
                f"{name} is {artifacts[name].strip()[:200]}: expected a finite number.", remedy=NUMBER_ADVICE
            )
    objectives = rewards_of(draft, directions, seed, targets)
    # A record, such as the time that an evaluation takes, decides nothing; the mean of all is one that does.
    counted = {o.name for o in objectives if o.role is not ObjectiveRole.RECORD or o.name == MEAN}
    noise = {name: deviation for name, deviation in noise.items() if name in counted}
    rewards = DraftRewards(objectives, seed, noise, _targets(targets, objectives))
    if noise:
        remarks.append(f"evaluations differ in {', '.join(sorted(noise))}: a target counts after three confirmations")
    if rewards.weights and not directions:
        remarks.append(
            f"no metric has a declared direction: runs maximize the mean of {', '.join(rewards.weights)}, as OpenEvolve"
            " does. If one of them is a loss, pass --minimize NAME or --maximize NAME for each objective"
        )
    files = draft.texts(rewards)
    problem = problem_of(files)
    if not targets and len(problem.space.selected) > 1:
        remarks.append(f"the target, as none is named: {problem.targets[0].rule}")
    met = problem.targets_met([seed[name] for name in problem.space.names])
    remarks += [f"the seed program already meets {t.rule}" for i, t in enumerate(problem.targets) if met >> i & 1]
    return Converted(problem, files, dict(seed), artifacts, tuple(remarks), draft.left_out)


def _targets(rules: Sequence[str], objectives: Sequence[Objective]) -> list[Target]:
    """Return a target for each rule, and if there are several one that needs them all, which unlocks the problem."""
    names = [objective.name for objective in objectives]
    for rule in rules:
        try:
            parse_rule(rule, names)
        except RuleError as error:
            raise InvalidInputError(
                f"target {rule!r}: {error}.",
                remedy=f'Pass rules such as "{names[0]} >= 1"; the evaluator returned {", ".join(names)}.',
            ) from None
    named: dict[str, str] = {}
    for rule in dict.fromkeys(rules):
        name = re.sub(r"\W+", "_", rule, flags=re.ASCII).strip("_")[: _MAX_NAME - 3]
        named[name if name not in named else f"{name}_{len(named)}"] = rule
    if len(named) > 1:
        named["all_targets"] = " and ".join(f"({rule})" for rule in named.values())
    return [Target(name=name, rule=rule, unlock=name == [*named][-1]) for name, rule in named.items()]
