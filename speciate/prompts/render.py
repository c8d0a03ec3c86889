"""Render problems, rewards, failures and feedback as prompt text: bounded, named, and fenced if untrusted."""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from speciate.domain.candidate import Failure, Individual
from speciate.domain.capabilities import CALLABLE
from speciate.domain.language import Exchange, Language
from speciate.domain.limits import Limits
from speciate.domain.numbers import distinct_numbers, short_number
from speciate.domain.objective import Objective, ObjectiveRole
from speciate.domain.problem import BEST_FILE, OUTPUT, Problem, ProblemKind
from speciate.domain.values import MAX_PROGRAM_BYTES
from speciate.prompts.evolve_blocks import blocks_or_none, contents_of, lines_of, with_contents
from speciate.prompts.failures import cause_of, note_text
from speciate.prompts.text import bounded, fenced, printable

MAX_ARTIFACT_CHARS: Final = 2000
MAX_ARTIFACTS_CHARS: Final = 6000
_LEAST_DIGITS: Final = 6
_MAX_REWARDS: Final = 40
_MAX_TARGETS: Final = 8
_MAX_CASES: Final = 8
_MAX_CASE_CHARS: Final = 400
_MAX_LABEL_CHARS: Final = 40
_NO_LABEL: Final = re.compile(r"[^\w .-]")
_TEXTS: Final = ("Markdown", "Text")  # read, such as prompts, and not run
_NOT_SHOWN: Final = "on data that is not shown"
_SPARE_DIGITS: Final = 2
"""Digits of a reward beyond those of the targets, so that progress between two targets is visible."""


def problem_text(
    problem: Problem,
    confirmed: Mapping[str, int] | None = None,
    *,
    examples: bool = True,
    description_chars: int | None = None,
) -> str:
    """Return the part of a prompt that is the same until another target of the run is ``confirmed``, by a candidate."""
    secret = secret_objectives(problem)
    several, shown = len(problem.space.selected) > 1, problem.objectives[: 2 * _MAX_REWARDS]
    rewards = [_objective_line(o, secret=o.name in secret, by_range=several) for o in shown]
    targets = [
        f"- {t.name}{' (unlocks the problem)' if t.unlock else ''}: {t.rule}"
        + (f" — {t.description}" if t.description else "")
        for t in problem.targets
    ]
    description = problem.description.strip()
    if description_chars is not None:
        description = bounded(description, description_chars)
    if problem.is_noisy:
        rewards.append("Evaluations of one program differ; good programs are evaluated several times.")
    parts = [f"# Problem: {problem.title}", description, "## Rewards", "\n".join(rewards), _ranking_text(problem)]
    parts += ["## Targets", "\n".join(targets), _confirmed_text(problem, confirmed or {}), _confirmations(problem)]
    parts += [_setting(problem), _frame(problem)]
    parts.append(_examples(problem) if examples else "")
    return "\n\n".join(part for part in parts if part)


def secret_objectives(problem: Problem) -> frozenset[str]:
    """Return the objectives whose values prompts omit: held-out ones, and those that depend on hidden cases only."""
    if problem.kind is not ProblemKind.CASES:
        return frozenset(objective.name for objective in problem.objectives if objective.held_out)
    first = problem.objectives[0].name
    public = {case.reward or first for case in problem.cases if not case.hidden}
    return frozenset({case.reward or first for case in problem.cases if case.hidden} - public)


def rewards_text(problem: Problem, member: Individual) -> str:
    """Return the rewards of a program in one line; of many components, those furthest from their best end."""
    shown = problem.measured_names(member.stopped_at) - secret_objectives(problem)
    public = [(o, value) for o, value in zip(problem.objectives, member.vector, strict=True) if o.name in shown]
    some = public
    if len(public) > _MAX_REWARDS:
        some = sorted(public, key=lambda item: item[0].share(item[1]))[:_MAX_REWARDS]
    texts = [f"{o.name} = {value_text(problem, member, o, value)}{_violation(o, value)}" for o, value in some]
    if len(some) < len(public):
        texts.append(f"… and {len(public) - _MAX_REWARDS} more, closer to their best end")
    return ", ".join(texts)


def violations_text(problem: Problem, rewards: Sequence[float] | None, stopped_at: str | None = None) -> str:
    """Return which constraints raw rewards violate, as far as they were measured; empty if there are none."""
    measured = problem.measured_names(stopped_at)
    violated = [each for each in problem.ranking.violations(rewards) if each.name in measured] if rewards else []
    secret = secret_objectives(problem)
    texts = [f"{each.name} {each.sign} {short_number(each.limit, 12)}" for each in violated if each.name not in secret]
    text = ", ".join([*texts, *[f"a limit {_NOT_SHOWN}"][: len(violated) - len(texts)]])
    return text and f"violates {text}"


def summary_text(problem: Problem, member: Individual) -> str:
    """Return the rewards of a program, its processor time and what the next target lacks; empty if it failed."""
    if member.rewards is None:
        return ""
    lacking = missing_text(problem, member, all_states=False)
    return f"{rewards_text(problem, member)}{used_text(problem, member.cpu_s)}{lacking and f'. {lacking}'}"


def value_text(problem: Problem, member: Individual, objective: Objective, value: float) -> str:
    """Return a reward with as many digits as tell the targets of its objective apart, and two more."""
    if objective.name in member.unmeasured:
        return "–"
    tokens = [token for rule in problem.rules for token in rule.tokens]
    limits = [limit for word, _, limit in zip(tokens, tokens[1:], tokens[2:], strict=False) if word == objective.name]
    digits = (len(re.sub(r"[eE].*|\D", "", limit).lstrip("0")) + _SPARE_DIGITS for limit in limits)
    near = [limit for limit in (*map(float, limits), objective.limit) if limit != value]
    apart = (distinct_numbers(value, limit)[0] for limit in near)
    return max(short_number(value, max(_LEAST_DIGITS, *digits, 0)), *apart, key=len)


def missing_text(problem: Problem, member: Individual, *, all_states: bool = True) -> str:
    """Return the targets met and refuted, in ``all_states``, and those unmet, the unlock first, with what it lacks."""
    rewards, secret = member.rewards or (), secret_objectives(problem)
    met, refuted, unmet = _targets_by_state(problem, member)
    names = [target.name for target in problem.targets]
    lines = [f"Meets: {_listed([names[i] for i in met])}."] if met and all_states else []
    lines += [
        f"Does not meet {names[i]} reliably: {problem.ranking.refutation(i, rewards, member.repeats, secret)}."
        for i in refuted
        if all_states
    ]
    for first in unmet[:1]:
        lacking = (*problem.ranking.missing(first, rewards), *problem.ranking.violations(rewards))
        shown = [each for each in lacking if each.name not in secret]
        texts = [*dict.fromkeys(f"{each.name} {each.sign} {short_number(each.limit, 12)}" for each in shown)]
        texts += [f"more {_NOT_SHOWN}"] if len(shown) < len(lacking) else []
        unsure = problem.is_noisy and member.stopped_at is None
        missing = "; ".join(texts) or ("certainty, by one standard error" if unsure else problem.targets[first].rule)
        lines.append(f"Misses: {_listed([f'{names[first]} (missing: {missing})', *(names[i] for i in unmet[1:])])}.")
    return " ".join(lines)


def next_target(problem: Problem, members: Sequence[Individual], confirmed: Mapping[str, int]) -> str:
    """Return the first target, in words, that the run has not confirmed and none of some programs meets, or nothing."""
    met = {i for member in members for i in _targets_by_state(problem, member)[0]}
    rest = [target for i, target in enumerate(problem.targets) if i not in met and target.name not in confirmed]
    first = next(iter(sorted(rest, key=lambda target: not target.unlock)), None)
    return "" if first is None else f"{'unlock ' if first.unlock else ''}target {first.name}"


def used_text(problem: Problem, cpu_s: float) -> str:
    """Return the processor time that a program used, if it is a considerable part of the limit."""
    most = min(problem.limits.cpu_s, problem.limits.cores * problem.limits.wall_s)
    return f" (used {cpu_s:.3g} of {most:g} s)" if problem.is_python and 10 * cpu_s > most else ""


def _targets_by_state(problem: Problem, member: Individual) -> tuple[list[int], list[int], list[int]]:
    met = problem.targets_met(member.rewards or (), stopped_at=member.stopped_at)
    if problem.is_noisy:  # the mean does not decide, but the bound (``search.noise``)
        met &= member.targets | member.refuted
    order = sorted(range(len(problem.targets)), key=lambda i: not problem.targets[i].unlock)
    reached = [i for i in order if met >> i & 1]
    return (
        [i for i in reached if not member.refuted >> i & 1],
        [i for i in reached if member.refuted >> i & 1],
        [i for i in order if not met >> i & 1],
    )


def _listed(names: Sequence[str]) -> str:
    text = ", ".join(names[:_MAX_TARGETS])
    return f"{text} and {len(names) - _MAX_TARGETS} more" if len(names) > _MAX_TARGETS else text


def _confirmed_text(problem: Problem, confirmed: Mapping[str, int]) -> str:
    done = [f"{target.name} #{confirmed[target.name]}" for target in problem.targets if target.name in confirmed]
    rest = [target.name for target in problem.targets if target.name not in confirmed]
    return f"Confirmed in this run: {_listed(done)}. Open: {_listed(rest) or 'none'}." if done else ""


def _ranking_text(problem: Problem) -> str:
    """Return what makes a program the best one; see ``domain.ranking``."""
    orders = ["constraints"] if any(o.role is ObjectiveRole.CONSTRAINT for o in problem.objectives) else []
    orders += ["unlock target", *(["targets met"] if len(problem.targets) > 1 else [])]
    first, *others = problem.space.selected
    if problem.weight_vector is not None:
        weights, secret = zip(problem.space.selected, problem.weight_vector, strict=True), secret_objectives(problem)
        terms = [f"{short_number(weight, 3)} {o.name}" for o, weight in weights if o.name not in secret]
        orders.append(f"sum of {_listed(terms)}, in shares of the ranges")
    elif others:
        orders += ["nearness to the next", "objective furthest from the best end of its range"]
    else:
        orders.append(f"{first.comparative} {first.name}")
    return f"Best by: {', '.join(orders)}."


def failure_text(problem: Problem, failure: Failure, program: str, most_chars: int = MAX_ARTIFACT_CHARS) -> str:
    """Return a failure as text: of a traceback, the message and the last line of the program that may change."""
    head = f"It failed: {failure.kind.value} ({_label(failure.reason)})."
    cause = cause_of(failure, problem, program)
    detail = "\n".join(filter(None, (bounded(cause.message, most_chars), cause.place)))
    return f"{head}\n{fenced(detail)}" if detail else head


def artifact_texts(problem: Problem, member: Individual) -> tuple[str, ...]:
    parts: list[str] = []
    left = MAX_ARTIFACTS_CHARS
    for name, text in sorted(member.artifacts.items()):
        if text.strip() and left > 0 and not (name == OUTPUT and problem.carry is not None):
            excerpt = bounded(printable(note_text(text, problem, member.program)), min(left, MAX_ARTIFACT_CHARS))
            left -= len(excerpt)
            parts.append(f"{_label(name)}:\n{fenced(excerpt)}")
    return tuple(parts)


def _label(name: str) -> str:
    # In kind 'in_process' the candidate can choose these names, and they are not fenced.
    return " ".join(_NO_LABEL.sub(" ", name).split())[:_MAX_LABEL_CHARS]


def _objective_line(objective: Objective, *, secret: bool, by_range: bool) -> str:
    low, high = (short_number(end) for end in objective.range)
    match objective.role:
        case ObjectiveRole.OBJECTIVE:
            rule = objective.direction.value
            if by_range or not objective.estimated:
                kind, note = ("scale", ", a guess: no bound") if objective.estimated else ("typically", "")
                rule += f", {kind} {low} to {high}{note}"
        case ObjectiveRole.CONSTRAINT:
            bound = "at least" if objective.maximized else "at most"
            rule = f"constraint: {bound} {short_number(objective.limit, 12)}"
        case ObjectiveRole.RECORD:
            rule = "only recorded"
    rule = _NOT_SHOWN if secret else rule
    return f"- {objective.name} ({rule}){f': {objective.description}' if objective.description else ''}"


def _violation(objective: Objective, value: float) -> str:
    if objective.role is not ObjectiveRole.CONSTRAINT or not objective.beats(objective.limit, value):
        return ""
    return f" (VIOLATED: must be {objective.bound} {short_number(objective.limit, 12)})"


def _setting(problem: Problem) -> str:
    if problem.kind is ProblemKind.DATA:
        return ""
    entry = f"The program must define the function {problem.entry_point}. " if problem.kind is ProblemKind.CASES else ""
    if problem.language is not None:
        entry = _language(problem.language, noun_of(problem), called=problem.kind is not ProblemKind.IN_PROCESS)
    if problem.many_files:
        role = "is run" if problem.language is not None else "is called and imports the others"
        entry += f"A program is a set of files, each under a heading; {problem.main_file} {role}. "
    if problem.carry is not None:
        first = "" if BEST_FILE in problem.data_files else " Before the first one the file does not exist."
        entry += f"The file data/{BEST_FILE} holds the output of the best candidate so far: start from it.{first} "
    return f"{entry}{_limits_text(problem)}"


def _limits_text(problem: Problem) -> str:
    limits, noun = problem.limits, noun_of(problem)
    elsewhere = problem.attested and not problem.stages and limits == Limits()  # which bind nobody
    if noun == "text" or elsewhere:  # a text is read, and nothing in it runs
        return f"A {noun} has up to {MAX_PROGRAM_BYTES >> 10} KiB."
    cpu_s = min(limits.cpu_s, limits.cores * limits.wall_s)
    clock = " (`time.process_time()`)" if problem.is_python else " for each call"
    cores = "one core" if limits.cores == 1 else f"{limits.cores} cores"
    parts = [cores, f"{_seconds(cpu_s)} of processor time{clock}", f"{limits.memory_bytes >> 20} MiB of memory"]
    if cpu_s == limits.wall_s:
        parts[1] += " and in all"
    else:
        parts.append(f"{_seconds(limits.wall_s)} in all without waits for a processor")
    measured_here = not problem.attested or any(each.startswith(CALLABLE) for each in problem.capabilities)
    if problem.is_python and measured_here:
        libraries = {name.partition(".")[0] for name in problem.preload} | {"numpy", "scipy"}
        packages = problem.requirements or sorted(libraries - sys.stdlib_module_names)
        parts.insert(0, f"Python {sys.version_info.major}.{sys.version_info.minor} with {', '.join(packages)}")
    if not problem.attested and problem.image is None:
        parts.append(f"up to {limits.processes} processes" if problem.kind is ProblemKind.IN_PROCESS else "one process")
    return f"Each evaluation has {'; '.join(parts)}; programs up to {MAX_PROGRAM_BYTES >> 10} KiB."


def _confirmations(problem: Problem) -> str:
    if not problem.confirmations:
        return ""
    again = "a second evaluation" if problem.confirmations == 1 else f"all {problem.confirmations} repeated evaluations"
    steady = ": fix your seeds, and leave time to spare" if noun_of(problem) == "program" else ""
    return f"A target counts only if {again} with another seed confirm{'s' * (problem.confirmations == 1)} it{steady}."


def _frame(problem: Problem) -> str:
    """Return the seed program without the content of its blocks, so that other parts of a prompt show blocks alone."""
    blocks = () if problem.many_files else blocks_or_none(problem.seed_program)
    if not blocks:
        return ""
    around = with_contents(problem.seed_program, blocks, ["…\n"] * len(blocks))
    return f"## The fixed text around the block{'s' * (len(blocks) > 1)}\n\n{fenced(around, label_of(problem))}"


def blocks_text(problem: Problem, program: str) -> str:
    """Return the text of a program that may change, without the markers of a single block; all of it without blocks."""
    blocks = () if problem.many_files else blocks_or_none(program)
    if len(blocks) == 1:
        return contents_of(program, blocks)[0].rstrip("\n") + "\n"
    lines = lines_of(program)
    return "".join("".join(lines[block.start - 1 : block.end]) for block in blocks) or program


def label_of(problem: Problem) -> str:
    if problem.language is not None:
        return problem.language.fence
    return "" if problem.kind is ProblemKind.DATA else "python"


def noun_of(problem: Problem) -> str:
    """Return what prompts call a candidate."""
    if problem.kind is ProblemKind.DATA:
        return "document"
    language = problem.language
    return "text" if language is not None and not language.run and language.name in _TEXTS else "program"


def _seconds(amount: float) -> str:
    return f"{short_number(amount)} second{'' if amount == 1 else 's'}"


def _language(language: Language, noun: str, *, called: bool) -> str:
    if noun == "text":
        return f"The evaluator reads the text, stored as {language.file}. "
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
    written = partial(json.dumps, ensure_ascii=False) if language and language.exchange is Exchange.JSON else repr
    lines = [
        f"- {called}({bounded(', '.join(map(written, case.input)), _MAX_CASE_CHARS)})"
        f" -> {bounded(written(case.expected), _MAX_CASE_CHARS)}"
        for case in cases
    ]
    tolerance = max((case.tolerance for case in cases), default=0.0)
    equal = [f"Numbers may differ by {short_number(tolerance)}.", ""] if tolerance else []
    return "\n".join(["## Examples", "", *equal, *lines]) if lines else ""
