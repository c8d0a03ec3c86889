"""Render problems, rewards, failures and feedback as prompt text: bounded, named, and fenced if untrusted."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from pydantic import JsonValue

from speciate.domain.candidate import Failure, Individual
from speciate.domain.language import Exchange, Language
from speciate.domain.numbers import short_number
from speciate.domain.objective import Direction, Objective, ObjectiveRole
from speciate.domain.problem import BEST_FILE, Problem, ProblemKind
from speciate.domain.rule import NUMBER, parse_rule
from speciate.domain.target import Target
from speciate.prompts.text import bounded, fenced, printable

MAX_ARTIFACT_CHARS: Final = 2000
MAX_ARTIFACTS_CHARS: Final = 6000
_MAX_REWARDS: Final = 40
_MAX_TARGETS: Final = 8
_MAX_CASES: Final = 8
_MAX_CASE_CHARS: Final = 400
_COMPARISON: Final = re.compile(rf"([A-Za-z_]\w*)\s*(?:>=|<=|==|!=|>|<)\s*{NUMBER}", re.ASCII)
_NEGATION: Final = re.compile(r"\bnot\b")


def problem_text(problem: Problem, *, examples: bool = True, description_chars: int | None = None) -> str:
    """Return the part of a prompt that is the same for a whole run: task, rewards, targets, limits, examples.

    Args:
        problem: The problem.
        examples: True to include the visible cases.
        description_chars: Length beyond which the middle of the description is cut; None for no limit.
    """
    secret = secret_objectives(problem)
    rewards = [_objective_line(o) for o in problem.objectives if o.name not in secret][: 2 * _MAX_REWARDS]
    targets = [
        f"- {t.name}{' (this one unlocks the problem)' if t.unlock else ''}: {t.rule}"
        + (f" — {t.description}" if t.description else "")
        for t in problem.targets
    ]
    description = problem.description.strip()
    if description_chars is not None:
        description = bounded(description, description_chars)
    parts = [f"# Problem: {problem.title}", description, "## Rewards", "\n".join(rewards)]
    parts += ["## Targets", "\n".join(targets), _setting(problem), _examples(problem) if examples else ""]
    return "\n\n".join(part for part in parts if part)


def secret_objectives(problem: Problem) -> frozenset[str]:
    """Return the objectives that only hidden cases count towards: their values would reveal those cases."""
    if problem.kind is not ProblemKind.CASES:
        return frozenset()
    first = problem.objectives[0].name
    shown = {case.reward or first for case in problem.cases if not case.hidden}
    return frozenset({case.reward or first for case in problem.cases if case.hidden} - shown)


def rewards_text(problem: Problem, rewards: Sequence[float]) -> str:
    """Return a raw reward vector of shape (d,) with names; of many components, those furthest from their best end."""
    secret = secret_objectives(problem)
    shown = [(o, value) for o, value in zip(problem.objectives, rewards, strict=True) if o.name not in secret]
    lines = [
        f"- {o.name} = {short_number(value)}{_status(o, value)}" for o, value in sorted(shown, key=_gap)[:_MAX_REWARDS]
    ]
    if len(shown) <= _MAX_REWARDS:
        lines = [f"- {o.name} = {short_number(value)}{_status(o, value)}" for o, value in shown]
    else:
        lines.append(f"- … and {len(shown) - _MAX_REWARDS} more, closer to their best end")
    return "\n".join(lines)


def missing_text(problem: Problem, member: Individual) -> str:
    """Return the targets that a scored program meets, those refuted, and the conditions missing for each other one.

    The unlock target comes first. Unmeasured stages, from ``stopped_at`` on, meet no target. Targets that depend on
    hidden cases are omitted, except the unlock target.
    """
    rewards = member.rewards or ()
    secret = secret_objectives(problem)
    met = problem.targets_met(rewards, stopped_at=member.stopped_at)
    refuted = met & member.refuted
    mask = met & ~refuted
    ordered = sorted(enumerate(problem.targets), key=lambda pair: not pair[1].unlock)
    known = [(i, target) for i, target in ordered if target.unlock or not problem.rules[i].uses & secret]
    lines = _met_line([target for i, target in known if mask >> i & 1])
    lines += [
        f"Does not meet the {_name(target)} reliably: {problem.ranking.refutation(i, rewards, member.repeats, secret)}."
        for i, target in known
        if refuted >> i & 1
    ]
    unmet = [target for i, target in known if not met >> i & 1]
    lines += [_lacking(problem, target, rewards) for target in unmet[:_MAX_TARGETS]]
    if len(unmet) > _MAX_TARGETS:
        lines.append(f"Further targets not met: {len(unmet) - _MAX_TARGETS}.")
    return "\n".join(lines)


def _met_line(met: Sequence[Target]) -> list[str]:
    if not met:
        return []
    listed = ", the ".join(f"{_name(target)} ({target.rule})" for target in met[:_MAX_TARGETS])
    more = f" and {len(met) - _MAX_TARGETS} more targets" if len(met) > _MAX_TARGETS else ""
    return [f"Meets the {listed}{more}."]


def _name(target: Target) -> str:
    return f"{'unlock ' if target.unlock else ''}target {target.name}"


def _lacking(problem: Problem, target: Target, rewards: Sequence[float]) -> str:
    if _NEGATION.search(target.rule):
        return f"Does not meet the {_name(target)}: {target.rule}."
    names, secret = problem.space.names, secret_objectives(problem)
    open_ones = [
        f"{found[0]} (now {short_number(rewards[names.index(found[1])])})"
        for found in _COMPARISON.finditer(target.rule)
        if found[1] not in secret and not _comparison(found[0], names).holds(rewards)
    ]
    infeasible = problem.ranking.violations(rewards) and _comparison(target.rule, names).holds(rewards)
    rest = "the violated constraints" if infeasible else target.rule
    return f"Still missing for the {_name(target)}: {'; '.join(open_ones) or rest}."


# Every program shown is checked against the same few comparisons.
_comparison: Final = lru_cache(maxsize=1024)(parse_rule)


def failure_text(failure: Failure) -> str:
    """Return the failure of a program as text."""
    head = f"It failed: {failure.kind.value} ({_one_line(failure.reason)})."
    return head if not failure.detail else f"{head}\n{fenced(bounded(printable(failure.detail), MAX_ARTIFACT_CHARS))}"


def artifact_texts(member: Individual) -> tuple[str, ...]:
    """Return the feedback on a program by name, each text and the total bounded."""
    parts: list[str] = []
    left = MAX_ARTIFACTS_CHARS
    for name, text in sorted(member.artifacts.items()):
        if text.strip() and left > 0:
            shown = bounded(printable(text), min(left, MAX_ARTIFACT_CHARS))
            left -= len(shown)
            parts.append(f"{_one_line(name)}:\n{fenced(shown)}")
    return tuple(parts)


def _one_line(name: str) -> str:
    # In kind 'in_process' the candidate can choose these names, and they are not fenced.
    return bounded(printable(name), 80).replace("\n", " ")


def _objective_line(objective: Objective) -> str:
    low, high = (short_number(end) for end in objective.range)
    match objective.role:
        case ObjectiveRole.OBJECTIVE:
            rule = f"{objective.direction.value}, typically {low} to {high}"
        case ObjectiveRole.CONSTRAINT:
            bound = "at most" if objective.direction is Direction.MINIMIZE else "at least"
            rule = f"constraint, must be {bound} {short_number(objective.limit)}"
        case ObjectiveRole.RECORD:
            rule = "only recorded"
    return f"- {objective.name} ({rule}){f': {objective.description}' if objective.description else ''}"


def _status(objective: Objective, value: float) -> str:
    maximised = objective.direction is Direction.MAXIMIZE
    match objective.role:
        case ObjectiveRole.OBJECTIVE:
            low, high = objective.range
            return f" ({objective.direction.value}, {short_number(low)} to {short_number(high)})"
        case ObjectiveRole.CONSTRAINT:
            met = value >= objective.limit if maximised else value <= objective.limit
            sign = ">=" if maximised else "<="
            return f" ({'met' if met else 'VIOLATED'}: must be {sign} {short_number(objective.limit)})"
        case ObjectiveRole.RECORD:
            return " (only recorded)"


def _gap(item: tuple[Objective, float]) -> float:
    objective, value = item
    low, high = objective.range
    share = (value - low) / (high - low)
    return share if objective.direction is Direction.MAXIMIZE else 1.0 - share


def _setting(problem: Problem) -> str:
    if problem.kind is ProblemKind.DATA:
        return ""
    entry = f"The program must define the function {problem.entry_point}. " if problem.kind is ProblemKind.CASES else ""
    if problem.language is not None:
        entry = _language(problem.language, called=problem.kind is not ProblemKind.IN_PROCESS)
    if problem.many_files:
        role = "is run" if problem.language is not None else "is called and imports the others"
        entry += f"A program is a set of files, each under a heading; {problem.main_file} {role}. "
    if problem.carry is not None:
        first = "" if BEST_FILE in problem.data_files else " Before the first one the file does not exist."
        entry += f"The file data/{BEST_FILE} holds the output of the best candidate so far: start from it.{first} "
    limits = problem.limits
    use = f"{short_number(limits.wall_s)} seconds and {limits.memory_bytes >> 20} MiB of memory"
    return f"{entry}Each evaluation may take {use}."


def _language(language: Language, *, called: bool) -> str:
    if not called:
        return f"Programs are written in {language.name}, stored as {language.file}. The evaluator runs them. "
    built = f"built with `{' '.join(language.build)}` and " if language.build else ""
    spoken = {
        Exchange.TEXT: "It reads a text from standard input and writes its answer to standard output.",
        Exchange.JSON: "It reads its arguments as a JSON list on one line and writes its answer as JSON.",
    }
    return (
        f"Programs are written in {language.name}, stored as {language.file}, {built}run with"
        f" `{' '.join(language.run)}` for every input. {spoken[language.exchange]} "
    )


def _examples(problem: Problem) -> str:
    shown = [case for case in problem.cases if not case.hidden][:_MAX_CASES]
    language = problem.language
    called = problem.entry_point if language is None else "input "
    written = _json if language is not None and language.exchange is Exchange.JSON else repr
    lines = [
        f"- {called}({bounded(', '.join(map(written, case.input)), _MAX_CASE_CHARS)})"
        f" -> {bounded(written(case.expected), _MAX_CASE_CHARS)}"
        for case in shown
    ]
    return "\n".join(["## Examples", "", *lines]) if lines else ""


def _json(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)
