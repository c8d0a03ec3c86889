"""Build the prompt for children of selected parents, or for a first program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from speciate.domain.candidate import Individual
from speciate.domain.policy import EditFormat, Policy, PolicyRole
from speciate.domain.problem import Problem, ProblemKind
from speciate.domain.rollout import Prompt, TemplateName
from speciate.domain.values import storable
from speciate.prompts.codecs import codec_of
from speciate.prompts.compact import compact_prompt, takes_compact
from speciate.prompts.evolve_blocks import blocks_or_none, lines_of
from speciate.prompts.failures import causes_text
from speciate.prompts.instructions import system_values
from speciate.prompts.render import artifact_texts, failure_text, missing_text, next_target, problem_text, rewards_text
from speciate.prompts.template import default_template, fill, requests, template_of, uses
from speciate.prompts.text import bounded, clipped, fenced, prompt_tokens, token_bound

_MIN_CHARS: Final = 400
"""Minimum length of a cut program or description."""
_CUT_NOTE_CHARS: Final = 64
_FAILURES: Final = "Why recent programs failed:\n$failures"
"""End of a template of a user that does not place ``$failures``."""


def build_prompt(
    problem: Problem,
    role: PolicyRole,
    parents: Sequence[Individual],
    inspirations: Sequence[Individual],
    policy: Policy,
    rng: np.random.Generator,
    goal: Sequence[float] | None = None,
    advice: str = "",
    causes: Sequence[str] = (),
) -> Prompt:
    """Build the prompt for one selection.

    What many prompts share comes first, so that a server's prefix cache holds it: the form of the answer and the
    problem for the whole run, then the parent with its feedback, which other prompts change as well. Further programs,
    of which only the lines that may change are shown, the causes of recent failures and the request follow. The wording
    comes from the templates, the problem's own if it has any.

    A prompt has at most ``policy.prompt_tokens`` tokens by ``token_bound``. Until it fits, these parts are dropped or
    cut in this order: inspirations from the last one; further parents from the last one; feedback texts, last name
    first; causes of failures, the rarest first; the problem's examples; the middle of the program to change; the middle
    of the description; the middle of the prompt.

    A policy with the style ``compact`` or ``prefilled`` gets ``compact_prompt`` for problems that take it.

    ``parents[0]`` is the program to change, the others are those to recombine with it; inspirations come most useful
    first, causes (``frequent_causes``) most frequent first. ``goal`` (k,) is a weighting of the rewards to aim for,
    summing to 1.
    """
    if policy.codec is not None:
        parent = parents[0] if parents and role is PolicyRole.MUTATE else None
        text = codec_of(policy.codec).prompt(problem, answers=policy.answers_for(role), parent=parent, goal=goal)
        return Prompt(system="", user=text)
    writer = _Writer(problem, role, parents[0] if parents else None, policy, goal, advice)
    if policy.prompt_style.is_compact and takes_compact(problem):
        wordings = writer.requests(_PromptParts("", (), "", (), ()))
        request = wordings[int(rng.integers(len(wordings)))]
        parent = parents[0] if parents else None
        return clipped(compact_prompt(problem, parent, policy, request, causes), policy.prompt_tokens)
    content = _PromptParts(
        problem=problem_text(problem),
        others=tuple(
            individual_text(problem, member, changeable=writer.shows_whole) for member in (*parents[1:], *inspirations)
        ),
        parent=individual_text(problem, parents[0]) if parents else "",
        feedback=artifact_texts(parents[0]) if parents else (),
        causes=tuple(causes),
    )
    content = _fitting(writer, content, policy.prompt_tokens)
    wordings = writer.requests(content)
    request = wordings[int(rng.integers(len(wordings)))]
    if content.others:
        order = rng.permutation(len(content.others))
        content = replace(content, others=tuple(content.others[i] for i in order))
    return clipped(writer.prompt(content, request), policy.prompt_tokens)


@dataclass(frozen=True, slots=True)
class _PromptParts:
    problem: str
    others: tuple[str, ...]
    """Further programs, most useful first."""
    parent: str
    """The program to change, or empty."""
    feedback: tuple[str, ...]
    causes: tuple[str, ...]


class _Writer:
    def __init__(
        self,
        problem: Problem,
        role: PolicyRole,
        parent: Individual | None,
        policy: Policy,
        goal: Sequence[float] | None,
        advice: str,
    ) -> None:
        self.problem, self.parent, self._advice = problem, parent, advice
        self._seed = problem.seed_program if role is PolicyRole.PROPOSE and parent is None else ""
        self._edits = policy.edit_format is EditFormat.DIFF and role is PolicyRole.MUTATE
        self._goal = "" if goal is None else _goal(problem, goal)
        self._wordings = TemplateName.PROPOSE_REQUESTS if role is PolicyRole.PROPOSE else TemplateName.CHANGE_REQUESTS
        if role is not PolicyRole.PROPOSE and parent is not None and parent.failure is not None:
            self._wordings = TemplateName.REPAIR_REQUESTS
        self.shows_whole = parent is not None or self._seed != ""
        values = system_values(problem, policy, with_base=self.shows_whole)
        self._system = fill(template_of(problem, TemplateName.SYSTEM), values)

    def requests(self, content: _PromptParts) -> list[str]:
        word = "document" if self.problem.kind is ProblemKind.DATA else "program"
        values = {"candidate": word, "others": f"{word}s" if content.others else ""}
        values["target"] = "" if self.parent is None else next_target(self.problem, self.parent)
        # An unchecked template may hold no request.
        return requests(template_of(self.problem, self._wordings), values) or requests(
            default_template(self._wordings), values
        )

    def prompt(self, content: _PromptParts, request: str) -> Prompt:
        form = f"Answer in the form given above{': edits of the program to change' if self._edits else ''}."
        values = {
            "problem": content.problem,
            "others": "\n\n".join(content.others),
            "seed": fenced(self._seed, _label(self.problem)) if self._seed else "",
            "parent": content.parent,
            "feedback": "\n".join(content.feedback),
            "failures": causes_text(content.causes),
            "advice": self._advice,
            "request": f"{request} {form}{self._goal}",
        }
        name = TemplateName.PROPOSE if self.parent is None else TemplateName.CHANGE
        template = template_of(self.problem, name)
        user = fill(template if uses(template, "failures") else f"{template}\n\n{_FAILURES}", values)
        return Prompt(system=storable(self._system), user=storable(user))

    def tokens(self, content: _PromptParts) -> int:
        """Return the token bound of the prompt with its longest possible request."""
        return prompt_tokens(self.prompt(content, max(self.requests(content), key=token_bound)))


def _fitting(writer: _Writer, content: _PromptParts, most: int) -> _PromptParts:
    """Drop or cut parts until the prompt has at most ``most`` tokens, or no part can shrink."""
    over = 0
    for less in _reduced(writer.problem, content):
        if (over := writer.tokens(less) - most) <= 0:
            return less
        content = less
    if writer.parent is not None:
        chars = _cut(writer.parent.program, over)
        content = replace(content, parent=individual_text(writer.problem, writer.parent, chars))
        over = writer.tokens(content) - most
    if over > 0:
        chars = _cut(writer.problem.description, over)
        content = replace(content, problem=problem_text(writer.problem, examples=False, description_chars=chars))
    return content


def _reduced(problem: Problem, content: _PromptParts) -> Iterator[_PromptParts]:
    """Yield all parts, then the rest after each omission."""
    yield content
    while content.others:
        content = replace(content, others=content.others[:-1])
        yield content
    while content.feedback:
        content = replace(content, feedback=content.feedback[:-1])
        yield content
    while content.causes:
        content = replace(content, causes=content.causes[:-1])
        yield content
    yield replace(content, problem=problem_text(problem, examples=False))


def _cut(text: str, over: int) -> int:
    # A character has at least one byte, so cutting this many characters suffices.
    return max(_MIN_CHARS, len(text) - over - _CUT_NOTE_CHARS)


def _goal(problem: Problem, goal: Sequence[float]) -> str:
    weights = ", ".join(f"{o.name} {w:.2f}" for o, w in zip(problem.space.selected, goal, strict=True))
    return f"\n\nFor this answer, weight the rewards as follows: {weights}."


def individual_text(
    problem: Problem, member: Individual, most_chars: int | None = None, *, changeable: bool = False
) -> str:
    """Return a program with its rewards and unmet targets, or its failure.

    The middle of a program over ``most_chars`` is cut. With ``changeable`` only the lines between marks and the marks
    are shown, if it has any.
    """
    program = member.program if most_chars is None else bounded(member.program, most_chars)
    blocks = blocks_or_none(program) if changeable and not problem.many_files else ()
    if blocks:
        lines = lines_of(program)
        program = "".join("".join(lines[block.start - 1 : block.end]) for block in blocks)
    parts = [f"### Program {member.number}{' (only the lines that may change)' if blocks else ''}"]
    if member.rewards is not None:
        parts.append(rewards_text(problem, member.rewards))
        if member.stopped_at is not None:
            parts.append(f"Not measured from stage {member.stopped_at} on: worst values are shown instead.")
        parts.append(missing_text(problem, member))
    if member.failure is not None:
        parts.append(failure_text(problem, member.failure))
    return "\n".join([*parts, fenced(program, _label(problem))])


def _label(problem: Problem) -> str:
    if problem.language is not None:
        return problem.language.fence
    return "" if problem.kind is ProblemKind.DATA else "python"
