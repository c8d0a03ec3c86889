"""What a run has found so far, as prompts show it: the best program, the evaluations left, and what was tried."""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from speciate.domain.candidate import Individual
from speciate.domain.objective import ObjectiveRole
from speciate.domain.problem import BEST_FILE, OUTPUT, Problem
from speciate.domain.reward import rounded
from speciate.domain.target import TargetSet
from speciate.prompts.failures import headline
from speciate.prompts.parse import SEVERAL, after_reasoning
from speciate.prompts.python_source import is_program
from speciate.prompts.render import blocks_text, next_target, secret_objectives, value_text, violations_text
from speciate.prompts.text import printable

_MOST_CHARS: Final = 120
_HEAD_CHARS: Final = 60
"""Of an output that candidates start from."""
_MOST_CHANGES: Final = 3
_MOST_VALUES: Final = 6
_OUTPUTS: Final = ("stderr", "traceback", "failure")
_EXCEPTION: Final = re.compile(r"(?m)^[\w.]*(?:Error|Exception)\b.*$")
_REASON: Final = re.compile(r"(?i)(?:error|reason|message|feedback)s?$")
_EMPTY: Final = frozenset({"", "none", "null"})
_BLOCK: Final = re.compile(r"(?ms)^[ \t]*```.*?^[ \t]*```[ \t]*$")
_ANSWER: Final = re.compile(r"(?m)^[ \t]*(?:```|~~~|<{5,9}|<answer|---|# === file:)")
"""Begin of a program or an edit in an answer."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A candidate with what it changed."""

    child: Individual
    parent: Individual | None
    completion: str = ""  # the answer that it was read from, or what its author said of it
    before: Individual | None = None  # the best feasible program before it


@dataclass(frozen=True, slots=True)
class SearchState:
    """A run's state when a prompt is built."""

    best: Individual | None = None  # the best feasible program by the run's own ranking
    seed: Individual | None = None  # the first seed program
    left: int | None = None  # evaluations left besides those in flight and the answer's; None without a limit
    attempts: tuple[Attempt, ...] = ()  # the latest candidates, newest first
    causes: tuple[str, ...] = ()  # causes of recent failures (``frequent_causes``), most frequent first
    confirmed: Mapping[str, int] = field(default_factory=dict)  # the candidates that confirmed a target, by its name


UNKNOWN: Final = SearchState()


def state_text(problem: Problem, state: SearchState, shown: Collection[int], parent: Individual | None = None) -> str:
    """Return the numbers of the search, and why the ``parent`` is changed and not the best program.

    The rewards of programs whose numbers are ``shown`` stand elsewhere.
    """
    members = {"Best": state.best, "Seed": state.seed}
    lines = [f"{title}: {_scored(problem, member, shown)}." for title, member in members.items() if member]
    if parent is not None and parent.rewards and state.best is not None and parent.number != state.best.number:
        lines.append(f"Program {parent.number} is changed, not the best: {_advantage(problem, parent, state.best)}.")
    if state.best is None and any(attempt.child.rewards for attempt in state.attempts):
        lines.append("No program fulfils all constraints yet.")
    if state.left is not None:
        lines.append(f"Evaluations left after this answer: {state.left}.")
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
    """Return what ranks a program before the best one, when all targets are met."""
    if rest := next_target(problem, [best], {}):
        return f"a program that meets {rest}, too, ranks before it"
    if len(problem.space.selected) == 1:
        return f"{objectives_text(problem, best)} ({problem.space.selected[0].comparative} is better)"
    if problem.weight_vector is not None:
        return "the weighted sum decides"
    if any(o.estimated for o in problem.space.selected):  # a guessed end is none to aim at
        return objectives_text(problem, best)
    weakest = problem.space.selected[int(problem.space.normalise([best.vector])[0].argmin())].name
    hidden = weakest in secret_objectives(problem)
    return f"{'the weakest objective' if hidden else weakest} is the furthest from the best end of its range"


def rest_text(problem: Problem, best: Individual) -> str:
    """Return what can still improve if all deciding rewards are at the best ends of declared ranges; else nothing."""
    values = [*zip(problem.objectives, best.vector, strict=True)]
    spent = all(o.share(value) == 1 and not o.estimated for o, value in values if o in problem.space.selected)
    if not spent or next_target(problem, [best], {}):
        return ""
    for o, value in values:
        if o.role is ObjectiveRole.RECORD and o.name not in secret_objectives(problem) and o.share(value) < 1:
            return f"a {o.comparative} {o.name}"
    return "a simpler or faster program"


def attempt_lines(problem: Problem, attempts: Sequence[Attempt], best: Individual | None = None) -> tuple[str, ...]:
    """Return what attempts changed, and the rewards that differ from the parent's, beside the best; a line per outcome.

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
    values = ", ".join(filter(None, (values, violations_text(problem, member.rewards, member.stopped_at))))
    return f"program {member.number}{'' if member.number in shown else f', {values}'}"


def _named(problem: Problem, targets: TargetSet) -> list[str]:
    return [target.name for i, target in enumerate(problem.targets) if targets >> i & 1]


def _advantage(problem: Problem, member: Individual, best: Individual) -> str:
    """Return what a program has before the best one, in words."""
    more, secret = member.targets & ~best.targets, secret_objectives(problem)
    met = [f"it meets {name}" for name in _named(problem, more)]
    better = [f"its {name} is better" for name in problem.space.gains(member.vector, best.vector) if name not in secret]
    return [*met, *better, "for variety"][0]


def _change(problem: Problem, attempt: Attempt) -> str:
    words = words_of(attempt.completion, last=attempt.child.artifacts.get("answer", "").startswith(SEVERAL))
    if attempt.parent is None:
        return f"from scratch{words and f', {words}'}"
    old, new = (Counter(blocks_text(problem, each.program).split("\n")) for each in (attempt.parent, attempt.child))
    lines = max((old - new).total(), (new - old).total())
    words = words or (f"{lines} line{'s' * (lines != 1)} changed" if attempt.child.program else "no program")
    return f"from #{attempt.parent.number}, {words}"


def words_of(completion: str, *, last: bool = False) -> str:
    """Return the first paragraph that an answer has in front of its program, in one line; empty if there is none.

    With ``last`` that is the first one after its last block but one. One that ends in a colon only leads to others.
    """
    text = after_reasoning(completion).strip()
    text = _BLOCK.split(text)[-2] + "```" if last and len(_BLOCK.findall(text)) > 1 else text
    mark = _ANSWER.search(text)
    parts = [each.strip() for each in text[: mark.start() if mark else None].split("\n\n") if each.strip()]
    ideas = [p for p in parts if not p.endswith((":", ":**"))] or [p for p in parts if not p.startswith("Here")]
    idea = "" if not ideas or (mark is None and is_program(text)) else ideas[0]
    return _short(printable(" ".join(idea.split()))).rstrip(":. ")


def _outcome(problem: Problem, attempt: Attempt, firsts: Mapping[bytes, int]) -> str:
    child, parent = attempt.child, attempt.parent
    if child.failure is not None:
        return f"failed, {_short(headline(child.failure, problem, child.program))}"
    if child.duplicate_of is not None:
        return f"repeats #{child.duplicate_of}"
    first = firsts[rounded(child.vector).tobytes()]
    if first not in {child.number, 0 if parent is None else parent.number}:
        return f"the rewards of #{first} again"
    before, violated = attempt.before, violations_text(problem, child.rewards, child.stopped_at)
    measured = problem.measured_names(child.stopped_at)
    more = child.targets & ~(before.targets if before else 0) & ~(parent.targets if parent else 0)
    base = before if parent is None or parent.rewards is None else parent
    vectors = [(before or child).vector, *rounded([(base or child).vector, child.vector]).tolist(), child.vector]
    changes = [
        f"{o.name} {value_text(problem, child, o, value)}"
        # A feasible program's constraints tell nothing.
        + (f" (best before {value_text(problem, before, o, best)})" if before and o in problem.space.selected else "")
        for o, best, old, new, value in zip(problem.objectives, *vectors, strict=True)
        if (new != old or base is None) and o.aim and o.name not in secret_objectives(problem) and o.name in measured
    ]
    text = ", ".join(changes[:_MOST_CHANGES]) or "no change of the rewards"
    text += "" if before or violated or child.stopped_at else " (first feasible)"
    stopped = f"stopped before stage {child.stopped_at}" if child.stopped_at else ""
    meets = f"meets {', '.join(_named(problem, more))}" if more else ""
    return ", ".join(filter(None, (text, violated, meets, stopped))) + _reason(child)


def _reason(member: Individual) -> str:
    """Return what the evaluator said of a program that it scored, in one line."""
    named = (
        text for name, text in sorted(member.artifacts.items()) if _REASON.search(name) or text.startswith(SEVERAL)
    )
    outputs = "\n".join(member.artifacts.get(name, "") for name in _OUTPUTS)  # of an evaluator that catches exceptions
    texts = (" ".join(text.split()) for text in (*named, *_EXCEPTION.findall(outputs)[-1:]))
    return next((f": {_short(printable(text))}" for text in texts if text.lower() not in _EMPTY), "")


def _short(text: str) -> str:
    return text if len(text) <= _MOST_CHARS else f"{text[: _MOST_CHARS - 1]}…"
