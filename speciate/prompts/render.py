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
from speciate.prompts.failures import cause_of
from speciate.prompts.text import bounded, fenced, printable

MAX_ARTIFACT_CHARS: Final = 2000
MAX_ARTIFACTS_CHARS: Final = 6000
_MAX_REWARDS: Final = 40
_MAX_TARGETS: Final = 8
_MAX_CASES: Final = 8
_MAX_CASE_CHARS: Final = 400
_COMPARISON: Final = re.compile(rf"([A-Za-z_]\w*)\s*(?:>=|<=|==|!=|>|<)\s*{NUMBER}", re.ASCII)
_NEGATION: Final = re.compile(r"\bnot\b")
_NOT_SHOWN: Final = "measured on data that is not shown"


def problem_text(problem: Problem, *, examples: bool = True, description_chars: int | None = None) -> str:
    """Return the part of a prompt that is the same for a whole run: task, rewards, targets, limits, examples."""
    secret = secret_objectives(problem)
    rewards = [_objective_line(o, secret=o.name in secret) for o in problem.objectives][: 2 * _MAX_REWARDS]
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
    """Return the objectives whose values prompts omit: held-out ones, and those that depend on hidden cases only."""
    if problem.kind is not ProblemKind.CASES:
        return frozenset(objective.name for objective in problem.objectives if objective.held_out)
    first = problem.objectives[0].name
    public = {case.reward or first for case in problem.cases if not case.hidden}
    return frozenset({case.reward or first for case in problem.cases if case.hidden} - public)


def rewards_text(problem: Problem, rewards: Sequence[float]) -> str:
    """Return a raw reward vector of shape (d,) with names; of many components, those furthest from their best end."""
    secret = secret_objectives(problem)
    public = [(o, value) for o, value in zip(problem.objectives, rewards, strict=True) if o.name not in secret]
    some = public if len(public) <= _MAX_REWARDS else sorted(public, key=_gap)[:_MAX_REWARDS]
    lines = [f"- {o.name} = {short_number(value)}{_status(o, value)}" for o, value in some]
    if len(some) < len(public):
        lines.append(f"- … and {len(public) - _MAX_REWARDS} more, closer to their best end")
    return "\n".join(lines)


def missing_text(problem: Problem, member: Individual) -> str:
    """Return the targets that a scored program meets, those refuted, and the conditions missing for each other one.

    The unlock target comes first. Unmeasured stages, from ``stopped_at`` on, meet no target. Targets that depend on
    hidden cases are omitted, except the unlock target.
    """
    rewards, secret = member.rewards or (), secret_objectives(problem)
    met, refuted, unmet = _targets_by_state(problem, member)
    lines = _met_line([problem.targets[i] for i in met])
    lines += [
        f"Does not meet the {_name(problem.targets[i])} reliably:"
        f" {problem.ranking.refutation(i, rewards, member.repeats, secret)}."
        for i in refuted
    ]
    lines += [_lacking(problem, problem.targets[i], rewards) for i in unmet[:_MAX_TARGETS]]
    if len(unmet) > _MAX_TARGETS:
        lines.append(f"Further targets not met: {len(unmet) - _MAX_TARGETS}.")
    return "\n".join(lines)


def next_target(problem: Problem, member: Individual) -> str:
    """Return the first unmet or refuted target of a program in words; empty if it meets all, or failed."""
    if member.rewards is None:
        return ""
    _, refuted, unmet = _targets_by_state(problem, member)
    return next((_name(problem.targets[i]) for i in (*refuted, *unmet)), "")


def _targets_by_state(problem: Problem, member: Individual) -> tuple[list[int], list[int], list[int]]:
    secret = secret_objectives(problem)
    met = problem.targets_met(member.rewards or (), stopped_at=member.stopped_at)
    order = sorted(range(len(problem.targets)), key=lambda i: not problem.targets[i].unlock)
    public = [i for i in order if problem.targets[i].unlock or not problem.rules[i].uses & secret]
    reached = [i for i in public if met >> i & 1]
    return (
        [i for i in reached if not member.refuted >> i & 1],
        [i for i in reached if member.refuted >> i & 1],
        [i for i in public if not met >> i & 1],
    )


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
        f"{comparison[0]} (now {short_number(rewards[names.index(comparison[1])])})"
        for comparison in _COMPARISON.finditer(target.rule)
        if comparison[1] not in secret and not _comparison(comparison[0], names).holds(rewards)
    ]
    rule = _comparison(target.rule, names)
    rest = f"what is {_NOT_SHOWN}" if rule.uses & secret else target.rule
    if problem.ranking.violations(rewards) and rule.holds(rewards):
        rest = "the violated constraints"
    return f"Still missing for the {_name(target)}: {'; '.join(open_ones) or rest}."


# Every program shown is checked against the same few comparisons.
_comparison: Final = lru_cache(maxsize=1024)(parse_rule)


def failure_text(problem: Problem, failure: Failure) -> str:
    """Return the failure of a program as text: of a traceback, the message and the last line of the program."""
    head = f"It failed: {failure.kind.value} ({_one_line(failure.reason)})."
    cause = cause_of(failure, problem)
    detail = "\n".join(filter(None, (bounded(cause.message, MAX_ARTIFACT_CHARS), cause.place)))
    return f"{head}\n{fenced(detail)}" if detail else head


def artifact_texts(member: Individual) -> tuple[str, ...]:
    parts: list[str] = []
    left = MAX_ARTIFACTS_CHARS
    for name, text in sorted(member.artifacts.items()):
        if text.strip() and left > 0:
            excerpt = bounded(printable(text), min(left, MAX_ARTIFACT_CHARS))
            left -= len(excerpt)
            parts.append(f"{_one_line(name)}:\n{fenced(excerpt)}")
    return tuple(parts)


def _one_line(name: str) -> str:
    # In kind 'in_process' the candidate can choose these names, and they are not fenced.
    return bounded(printable(name), 80).replace("\n", " ")


def _objective_line(objective: Objective, *, secret: bool) -> str:
    low, high = (short_number(end) for end in objective.range)
    match objective.role:
        case ObjectiveRole.OBJECTIVE:
            rule = f"{objective.direction.value}, typically {low} to {high}"
        case ObjectiveRole.CONSTRAINT:
            bound = "at most" if objective.direction is Direction.MINIMIZE else "at least"
            rule = f"constraint, must be {bound} {short_number(objective.limit)}"
        case ObjectiveRole.RECORD:
            rule = "only recorded"
    rule = _NOT_SHOWN if secret else rule
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
    return f"{entry}{_limits_text(problem)}"


def _limits_text(problem: Problem) -> str:
    limits = problem.limits
    cores = f" on {limits.cores} cores" if limits.cores > 1 else ""
    measured = " (`time.process_time()`)" if problem.is_python else " for each call"
    return (
        f"Each evaluation may use {limits.memory_bytes >> 20} MiB of memory and {_seconds(limits.cpu_s)} of processor"
        f" time{cores}{measured}, and may last {_seconds(limits.wall_s)}, not counting waits for a processor that"
        " others use."
    )


def _seconds(amount: float) -> str:
    return f"{short_number(amount)} second{'' if amount == 1 else 's'}"


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
    cases = [case for case in problem.cases if not case.hidden][:_MAX_CASES]
    language = problem.language
    called = problem.entry_point if language is None else "input "
    written = _json if language is not None and language.exchange is Exchange.JSON else repr
    lines = [
        f"- {called}({bounded(', '.join(map(written, case.input)), _MAX_CASE_CHARS)})"
        f" -> {bounded(written(case.expected), _MAX_CASE_CHARS)}"
        for case in cases
    ]
    return "\n".join(["## Examples", "", *lines]) if lines else ""


def _json(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)
