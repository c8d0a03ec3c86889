"""What a run has found so far, as prompts show it: the best program, the evaluations left, and what was tried."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from speciate.domain.candidate import Individual
from speciate.domain.numbers import short_number
from speciate.domain.objective import Direction, ObjectiveRole
from speciate.domain.problem import BEST_FILE, OUTPUT, Problem
from speciate.domain.reward import rounded
from speciate.prompts.failures import headline
from speciate.prompts.parse import after_reasoning
from speciate.prompts.python_source import is_program
from speciate.prompts.render import blocks_text, secret_objectives, value_text
from speciate.prompts.text import printable

_MOST_CHARS: Final = 120
_HEAD_CHARS: Final = 60
"""Of an output that candidates start from."""
_MOST_CHANGES: Final = 3
_MOST_VALUES: Final = 6
_REASON: Final = re.compile(r"(?i)(?:error|reason|message|feedback)s?$")
_EMPTY: Final = frozenset({"", "none", "null"})
_ANSWER: Final = re.compile(r"(?m)^[ \t]*(?:```|~~~|<{5,9}|<answer|---|# === file:)")
"""Begin of a program or an edit in an answer."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A candidate with what it changed."""

    child: Individual
    parent: Individual | None
    completion: str = ""
    """The answer that it was read from, or what its author said of it."""


@dataclass(frozen=True, slots=True)
class SearchState:
    """A run's state when a prompt is built."""

    best: Individual | None = None
    """The best feasible program by the run's own ranking."""
    seed: Individual | None = None
    """The first seed program."""
    left: int | None = None
    """Evaluations left besides those in flight; None without a limit."""
    attempts: tuple[Attempt, ...] = ()
    """The latest candidates, newest first."""
    causes: tuple[str, ...] = ()
    """Causes of recent failures (``frequent_causes``), most frequent first."""


UNKNOWN: Final = SearchState()


def state_text(problem: Problem, state: SearchState, shown: Collection[int]) -> str:
    """Return the numbers of the search; the rewards of programs whose numbers are ``shown`` stand elsewhere."""
    members = {"Best": state.best, "Seed": state.seed}
    lines = [f"{title}: {_scored(problem, member, shown)}." for title, member in members.items() if member]
    if state.best is None and state.attempts:
        lines.append("No program fulfils all constraints yet.")
    if state.left is not None:
        lines.append(f"Evaluations left: {state.left}.")
    if problem.carry is not None and state.best is not None and (output := state.best.artifacts.get(OUTPUT)):
        # So that the form is known; a backtick would end the quotation.
        head = printable(" ".join(output.split())).replace("`", "")[:_HEAD_CHARS]
        lines.append(f"data/{BEST_FILE} begins with `{head}`.")
    return " ".join(lines)


def objectives_text(problem: Problem, member: Individual) -> str:
    """Return the values of a program's first objectives, those of role ``objective`` only."""
    values = [
        f"{o.name} = {value_text(problem, member, o, value)}"
        for o, value in zip(problem.objectives, member.vector, strict=True)
        if o.role is ObjectiveRole.OBJECTIVE and o.name not in secret_objectives(problem)
    ]
    return ", ".join(values[:_MOST_VALUES])


def goal_text(problem: Problem, best: Individual) -> str:
    """Return what ranks a program before the best one, which meets all targets."""
    first, *others = problem.space.selected
    if not others:
        better = "higher" if first.direction is Direction.MAXIMIZE else "lower"
        return f"{objectives_text(problem, best)} ({better} is better)"
    if problem.weight_vector is None:
        weakest = problem.space.selected[int(problem.space.normalise([best.vector])[0].argmin())].name
        now = "" if weakest in secret_objectives(problem) else f", now {weakest}"
        return f"the objective furthest from the best end of its range decides{now}"
    weights = zip(problem.space.selected, problem.weight_vector, strict=True)
    terms = [f"{short_number(w, 3)} {o.name}" for o, w in weights if o.name not in secret_objectives(problem)]
    return f"the sum of {', '.join(terms[:_MOST_VALUES])} decides, each in shares of its range"


def attempt_lines(problem: Problem, attempts: Sequence[Attempt], best: Individual | None = None) -> tuple[str, ...]:
    """Return what attempts changed, and the difference of their rewards from those of the parent; a line per outcome.

    Of one that only repeats the rewards of another attempt or the ``best`` candidate, as with its output, name that.
    """
    members = [*([best] if best else []), *(attempt.child for attempt in attempts)]
    rewards = {each.number: each.rewards for each in members}
    firsts = {rounded(r).tobytes(): number for number, r in sorted(rewards.items(), reverse=True) if r is not None}
    alike: dict[str, list[str]] = {}
    for each in attempts:
        alike.setdefault(_outcome(problem, each, firsts), []).append(f"#{each.child.number} {_change(problem, each)}")
    return tuple(f"{'; '.join(changes)}: {outcome}" for outcome, changes in alike.items())


def _scored(problem: Problem, member: Individual, shown: Collection[int]) -> str:
    values = objectives_text(problem, member) if member.rewards else "which failed"
    return f"program {member.number}{'' if member.number in shown else f', {values}'}"


def _change(problem: Problem, attempt: Attempt) -> str:
    words = words_of(attempt.completion)
    if attempt.parent is None:
        return f"from scratch{words and f', {words}'}"
    old, new = (Counter(blocks_text(problem, each.program).split("\n")) for each in (attempt.parent, attempt.child))
    lines = max((old - new).total(), (new - old).total())
    words = words or (f"{lines} line{'s' * (lines != 1)} changed" if attempt.child.program else "no program")
    return f"from #{attempt.parent.number}, {words}"


def words_of(completion: str) -> str:
    """Return the first paragraph that an answer has in front of its program, in one line; empty if there is none."""
    text = after_reasoning(completion).strip()
    mark = _ANSWER.search(text)
    paragraph = text[: mark.start() if mark else None].strip().partition("\n\n")[0]
    return "" if mark is None and is_program(text) else _short(printable(" ".join(paragraph.split()))).rstrip(":. ")


def _outcome(problem: Problem, attempt: Attempt, firsts: Mapping[bytes, int]) -> str:
    child, parent = attempt.child, attempt.parent
    if child.failure is not None:
        return f"failed, {_short(headline(child.failure, problem, placed=False))}"
    first = firsts[rounded(child.vector).tobytes()]
    if first not in {child.number, 0 if parent is None else parent.number}:
        return f"the rewards of #{first} again"
    reason = _reason(child)
    if parent is None or parent.rewards is None or child.rewards is None:
        return objectives_text(problem, child) + reason
    changes = [
        f"{o.name} not measured" if o.name in child.unmeasured else f"{o.name} {new - old:+.3g} ({o.verdict(new, old)})"
        for o, old, new in zip(problem.objectives, *rounded([parent.rewards, child.rewards]).tolist(), strict=True)
        if new != old and o.role is not ObjectiveRole.RECORD and o.name not in secret_objectives(problem)
    ]
    return (", ".join(changes[:_MOST_CHANGES]) or "no change of the rewards") + reason


def _reason(member: Individual) -> str:
    """Return what the evaluator said of a program that it scored, in one line."""
    texts = (" ".join(text.split()) for name, text in sorted(member.artifacts.items()) if _REASON.search(name))
    return next((f": {_short(printable(text))}" for text in texts if text.lower() not in _EMPTY), "")


def _short(text: str) -> str:
    return text if len(text) <= _MOST_CHARS else f"{text[: _MOST_CHARS - 1]}…"
