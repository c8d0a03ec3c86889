"""What a run has found so far, as prompts show it: the best program, the evaluations left, and what was tried."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from speciate.domain.candidate import Individual
from speciate.domain.objective import ObjectiveRole
from speciate.domain.problem import BEST_FILE, OUTPUT, Problem
from speciate.domain.reward import rounded
from speciate.prompts.failures import headline
from speciate.prompts.parse import after_reasoning
from speciate.prompts.python_source import is_program
from speciate.prompts.render import blocks_text, precise, secret_objectives
from speciate.prompts.text import printable

_MOST_CHARS: Final = 120
_HEAD_CHARS: Final = 60
"""Of an output that candidates start from."""
_MOST_CHANGES: Final = 3
_MOST_VALUES: Final = 6
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
    """Evaluations left of the budget; None without a limit."""
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
        f"{o.name} = {precise(problem, o.name, value)}"
        for o, value in zip(problem.objectives, member.vector, strict=True)
        if o.role is ObjectiveRole.OBJECTIVE and o.name not in secret_objectives(problem)
    ]
    return ", ".join(values[:_MOST_VALUES])


def attempt_lines(problem: Problem, attempts: Sequence[Attempt], best: Individual | None = None) -> tuple[str, ...]:
    """Return one line for each attempt: what it changed, and the difference of its rewards from those of the parent.

    Of one that only repeats the rewards of another attempt or the ``best`` candidate, as with its output, name that.
    """
    members = [*([best] if best else []), *(attempt.child for attempt in attempts)]
    rewards = {each.number: each.rewards for each in members}
    firsts = {rounded(r).tobytes(): number for number, r in sorted(rewards.items(), reverse=True) if r is not None}
    lines = ((each, _change(problem, each), _outcome(problem, each, firsts)) for each in attempts)
    return tuple(f"#{each.child.number} {change}: {outcome}" for each, change, outcome in lines)


def _scored(problem: Problem, member: Individual, shown: Collection[int]) -> str:
    values = objectives_text(problem, member) if member.rewards else "which failed"
    return f"program {member.number}{'' if member.number in shown else f', {values}'}"


def _change(problem: Problem, attempt: Attempt) -> str:
    words = words_of(attempt.completion)
    if attempt.parent is None:
        return f"from scratch{words and f', {words}'}"
    old, new = (Counter(blocks_text(problem, each.program).split("\n")) for each in (attempt.parent, attempt.child))
    lines = max((old - new).total(), (new - old).total())
    return f"from #{attempt.parent.number}, {words or f'{lines} lines changed'}"


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
    if parent is None or parent.rewards is None or child.rewards is None:
        return objectives_text(problem, child)
    changes = [
        f"{o.name} {new - old:+.3g}"
        for o, old, new in zip(problem.objectives, *rounded([parent.rewards, child.rewards]).tolist(), strict=True)
        if new != old and o.role is not ObjectiveRole.RECORD and o.name not in secret_objectives(problem)
    ]
    return ", ".join(changes[:_MOST_CHANGES]) or "no change of the rewards"


def _short(text: str) -> str:
    return text if len(text) <= _MOST_CHARS else f"{text[: _MOST_CHARS - 1]}…"
