"""Prompts for small models: what to do in a few sentences, and only the code that may change.

Models of some hundred million parameters lose the request in a page of rewards, targets and rules, and copy protected
code with mistakes; a prompt that begins with its subject makes them write an essay about it. They see the code that may
change, the first paragraph of the description, the rewards in one line, and the form of the answer last.

With the style ``prefilled`` the completion continues a code block that begins with the first line of the function to
write. The prompt ends with that line, and the client sends it again in the begin of the reply: without a line break at
its end, because models write the indentation of the next line together with it.

With the style ``scaffolded`` a policy with several answers writes only their bodies: the sampler writes what stands
between two of them, in training, in the engine and by continued requests.
"""

import ast
import re
import textwrap
from collections.abc import Sequence
from copy import copy
from typing import Final

from speciate.domain.candidate import Individual
from speciate.domain.numbers import short_number
from speciate.domain.objective import ObjectiveRole
from speciate.domain.policy import Policy, PolicyRole, PromptStyle
from speciate.domain.problem import Problem
from speciate.domain.rollout import Prompt
from speciate.domain.values import storable
from speciate.prompts.evolve_blocks import blocks_or_none, contents_of
from speciate.prompts.failures import headline
from speciate.prompts.fences import SEPARATOR
from speciate.prompts.python_source import defined_names, is_text, statements
from speciate.prompts.render import secret_objectives
from speciate.prompts.text import bounded, fenced

_SYSTEM: Final = "You write Python code. Answer with one Python code block and nothing else, without explanations."
_FENCE: Final = "```python"
_BEGIN: Final = re.compile(r" It begins with `(.*)`\.$")
CLOSING: Final = "\n```"
"""End of a code block."""
_AFTER_FUNCTION: Final = ("\ndef ", "\nprint(", "\n# ")
"""Begins of what small models write after a function, until the limit of tokens; some servers take four stops."""
_MOST_TASK_CHARS: Final = 700
_MOST_FAILURE_CHARS: Final = 200
_MOST_REWARDS: Final = 4
_MOST_NAMES: Final = 8
_MOST_EXAMPLES: Final = 3
_MOST_CALL_CHARS: Final = 200


def takes_compact(problem: Problem) -> bool:
    """Return True if a problem's candidates are single Python programs, which compact prompts ask for."""
    return problem.is_python and not problem.many_files


def opening_of(policy: Policy, prompt: Prompt) -> str:
    """Return the begin of the reply that the policy does not write; a stored prompt is known by its first part."""
    if not policy.prompt_style.opens_reply or prompt.system != _SYSTEM:
        return ""
    line = _BEGIN.search(prompt.user)
    return f"{_FENCE}\n{line[1] if line else ''}"


def turns_of(policy: Policy, prompt: Prompt, role: PolicyRole) -> int:
    """Return the requests of one reply: with a scaffold each answer continues those before it."""
    scaffolded = policy.prompt_style is PromptStyle.SCAFFOLDED and opening_of(policy, prompt) != ""
    return policy.answers_for(role) if scaffolded else 1


def between_answers(opening: str) -> str:
    """Return what a scaffold writes between two answers: the form that the prompt shows."""
    line = opening.removeprefix(f"{_FENCE}\n")
    return f"\n\n{line}" if line else f"{CLOSING}\n{SEPARATOR}\n{_FENCE}\n"


def stops_of(opening: str) -> tuple[str, ...]:
    return (CLOSING,) if opening == f"{_FENCE}\n" else (CLOSING, *_AFTER_FUNCTION)


def ended_answers(reply: str, opening: str) -> list[tuple[int, int]]:
    """Return begin and end of the answers in a reply, which begins with its opening, up to what ends each of them.

    With a function in the opening, every answer defines it: a block with usage or output is none, and further
    functions end it. The last answer may lack an end and is then not in the list.
    """
    head, parenthesis, _ = opening.removeprefix(f"{_FENCE}\n").partition("(")
    if not parenthesis:
        places = [match.start() for match in re.compile(CLOSING).finditer(reply, len(opening))]
        return list(zip([len(_FENCE), *places[1::2]], places[::2], strict=False))
    begins = [match.start() for match in re.finditer(rf"(?m)^{re.escape(head)}\(", reply)]
    stops = re.compile("|".join(map(re.escape, (*stops_of(opening), f"\n{SEPARATOR}\n"))))
    ends = [(begin, stops.search(reply, begin)) for begin in begins]
    return [(begin, end.start()) for begin, end in ends if end is not None]


def until_stop(text: str, opening: str, answers: int) -> str:
    """Return a completion up to the end of its last answer, which endpoints leave out and local sampling does not."""
    ended = ended_answers(opening + text, opening) if opening else []
    return text[: ended[answers - 1][1] - len(opening)] if len(ended) >= answers else text


def with_opening(text: str, problem: Problem, policy: Policy, parent: str | None) -> str:
    """Return a completion with its opening, unless the endpoint began a block of its own; of a set, its answers."""
    if not policy.prompt_style.opens_reply or not takes_compact(problem):
        return text
    opening = f"{_FENCE}\n{_first_line(problem, parent or problem.seed_program)}"
    reply = text if text.lstrip().startswith(CLOSING.strip()) else opening + text
    if policy.answers_per_rollout == 1 or opening == f"{_FENCE}\n":
        return reply
    ended = ended_answers(f"{reply}\n{SEPARATOR}\n", opening)
    return f"\n{SEPARATOR}\n".join(f"{_FENCE}\n{reply[begin:end]}{CLOSING}" for begin, end in ended) or reply


def compact_prompt(
    problem: Problem, parent: Individual | None, policy: Policy, request: str, causes: Sequence[str] = ()
) -> Prompt:
    """Return a short prompt for a single Python program; without ``parent`` it starts from the seed program, if any."""
    base = parent.program if parent is not None else problem.seed_program
    code = _changeable(base)
    line = _first_line(problem, base) if policy.prompt_style.opens_reply else ""
    room = max(_MOST_TASK_CHARS, policy.prompt_tokens // 2)
    parts = [
        f"Change this Python code:\n{fenced(bounded(code, room), 'python')}" if code else "Write Python code.",
        f"What it is for: {_task(problem)}",
        "" if parent is None else _result(problem, parent),
        f"Avoid what failed before: {bounded(causes[0], _MOST_FAILURE_CHARS)}" if causes else "",
        _examples(problem),
        _existing(base, code),
        f"{request} {_form(problem, code, policy, line)}{f' It begins with `{line}`.' if line else ''}",
    ]
    return Prompt(system=_SYSTEM, user=storable("\n\n".join(part for part in parts if part)))


def _changeable(program: str) -> str:
    blocks = blocks_or_none(program)
    return contents_of(program, blocks)[0].strip("\n") + "\n" if len(blocks) == 1 else program


def _first_line(problem: Problem, base: str) -> str:
    """Return the first line of the function to write: the only one of a program, or the one in the description."""
    if not base:
        call = re.search(rf"\b{problem.entry_point}\([\w, ]*\)", problem.description)
        return f"def {call[0]}:" if call else ""
    nodes = [node for node in statements(textwrap.dedent(_changeable(base))) if not is_text(node)]
    if len(nodes) != 1 or not isinstance(nodes[0], ast.FunctionDef) or nodes[0].decorator_list:
        return ""
    head = copy(nodes[0])
    head.body = [ast.Pass()]
    return ast.unparse(head).partition("\n")[0]


def _existing(program: str, code: str) -> str:
    """Return the names that the code may use and must not define, because they stand outside of the marked region."""
    names = sorted(defined_names(program) - defined_names(code))[:_MOST_NAMES]
    return f"These exist already, do not define them: {', '.join(names)}." if names else ""


def _task(problem: Problem) -> str:
    return bounded(" ".join(problem.description.strip().split("\n\n", 1)[0].split()), _MOST_TASK_CHARS)


def _result(problem: Problem, parent: Individual) -> str:
    if parent.failure is not None:
        return bounded(f"It fails: {headline(parent.failure, problem)}", _MOST_FAILURE_CHARS)
    if parent.rewards is None:
        return ""
    shown = problem.measured_names(parent.stopped_at) - secret_objectives(problem)
    objectives = [
        f"{objective.name} = {short_number(value)} ({objective.comparative} is better)"
        for objective, value in zip(problem.objectives, parent.rewards, strict=True)
        if objective.role is not ObjectiveRole.RECORD and objective.name in shown
    ]
    return f"It scores {', '.join(objectives[:_MOST_REWARDS])}." if objectives else ""


def _examples(problem: Problem) -> str:
    public = [case for case in problem.cases if not case.hidden][:_MOST_EXAMPLES] if problem.is_python else []
    calls = [f"{problem.entry_point}({', '.join(map(repr, case.input))}) == {case.expected!r}" for case in public]
    return "\n".join(["Examples:", *(bounded(call, _MOST_CALL_CHARS) for call in calls)]) if calls else ""


def _form(problem: Problem, code: str, policy: Policy, line: str) -> str:
    """Return the form of the answer; the functions keep their names, by which the evaluator calls them."""
    if policy.answers_per_rollout > 1 and line:
        return _versions(line, policy.answers_per_rollout, _task(problem))
    names = sorted(defined_names(code))[:_MOST_NAMES] or [problem.entry_point]
    goal = f"that defines {' and '.join(names)}"
    if policy.answers_per_rollout > 1:
        programs = f"{policy.answers_per_rollout} different programs, each {goal}"
        return f"Give {programs}, each in a ```python block, separated by a line with only ---."
    return f"Write the complete new code {goal}, in one ```python block."


def _versions(line: str, count: int, task: str) -> str:
    """Return the request for several versions of a function, with an example that opens each of them.

    The task comes last: small models continue what they read last, and would write the example again.
    """
    parameter = re.search(r"\(\*{0,2}(\w+)", line)
    number = parameter[1] if parameter else "21"
    bodies = (f"2 * {number}", f"{number} + {number}", f"{number} * 4 // 2")[:count]
    example = "\n\n".join(f"{line}\n    return {body}" for body in bodies)
    return (
        f"Write {count} different versions of the function, one below the other in one ```python block. An example of"
        f" the form, {len(bodies)} versions that double a number:\n{fenced(example, 'python')}\nNow write {count}"
        f" versions for this task: {task}"
    )
