"""Build the prompt for children of selected parents, or for a first program."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from speciate.domain.candidate import FailureKind, Individual
from speciate.domain.policy import EditFormat, Policy, PolicyRole
from speciate.domain.problem import Problem
from speciate.domain.rollout import Prompt, TemplateName
from speciate.domain.values import storable
from speciate.prompts.codecs import codec_of
from speciate.prompts.compact import compact_prompt, takes_compact
from speciate.prompts.failures import cause_of, lines_text
from speciate.prompts.instructions import system_values
from speciate.prompts.render import (
    MAX_ARTIFACT_CHARS,
    artifact_texts,
    blocks_text,
    failure_text,
    label_of,
    missing_text,
    next_target,
    noun_of,
    problem_text,
    rewards_text,
    used_text,
)
from speciate.prompts.state import UNKNOWN, SearchState, attempt_lines, goal_text, rest_text, state_text
from speciate.prompts.template import default_template, fill, requests, template_of, uses
from speciate.prompts.text import bounded, clipped, fenced, prompt_tokens, token_bound

_MIN_CHARS: Final = 400
"""Minimum length of a cut program or description, as ``token_bound`` counts it."""
_CUT_NOTE_CHARS: Final = 64
_ADDED: Final = ("$best", "$state", "What was tried last:\n$history", "Why recent programs failed:\n$failures")
"""Ends of a template of a user that does not place these values."""


def build_prompt(
    problem: Problem,
    role: PolicyRole,
    parents: Sequence[Individual],
    inspirations: Sequence[Individual],
    policy: Policy,
    rng: np.random.Generator,
    advice: str = "",
    state: SearchState = UNKNOWN,
) -> Prompt:
    """Build the prompt for one selection.

    What many prompts share comes first, so that a server's prefix cache holds it: the form of the answer and the
    problem for the whole run, then the parent with its feedback, which other prompts change as well.

    A prompt has at most ``policy.prompt_tokens`` tokens by ``token_bound``. Until it fits, the parts ``_OMITTED`` are
    dropped, then the problem's examples; then the middle of the program to change, of the description and of the prompt
    are cut. A policy with the style ``compact`` or ``prefilled`` gets ``compact_prompt`` for problems that take it.

    ``parents[0]`` is the program to change, the others are those to recombine with it; inspirations come most useful
    first.
    """
    if policy.codec is not None:
        parent = parents[0] if parents and role is PolicyRole.MUTATE else None
        text = codec_of(policy.codec).prompt(problem, answers=policy.answers_for(role), parent=parent)
        return Prompt(system="", user=text)
    writer = _Writer(problem, role, parents[0] if parents else None, policy, advice, state)
    if policy.prompt_style.is_compact and takes_compact(problem):
        wordings = writer.requests(others=False, form="compact_")
        request = wordings[int(rng.integers(len(wordings)))]
        parent = parents[0] if parents else None
        return clipped(compact_prompt(problem, parent, policy, request, state.causes), policy.prompt_tokens)
    beside = writer.beside(parents[1:], inspirations)
    content = _PromptParts(
        problem=problem_text(problem, state.confirmed),
        # A measured time would differ when the run is replayed; what proposers outside receive is not.
        parent=individual_text(problem, parents[0], timed=policy.is_external) if parents else "",
        best=tuple(individual_text(problem, each, timed=policy.is_external) for each in writer.best),
        others=tuple(individual_text(problem, each, aims=False) for each in beside),
        attempts=attempt_lines(problem, state.attempts, state.best),
        feedback=artifact_texts(problem, parents[0]) if parents else (),
        # The request for a repair names its failure.
        causes=() if writer.wordings is TemplateName.REPAIR_REQUESTS else state.causes,
    )
    content = _fitting(writer, content, policy.prompt_tokens)
    wordings = writer.requests(others=bool(content.best) or writer.is_outdone_by(beside[: len(content.others)]))
    request = wordings[int(rng.integers(len(wordings)))]
    if content.others:
        order = rng.permutation(len(content.others))
        content = replace(content, others=tuple(content.others[i] for i in order))
    return clipped(writer.prompt(content, request), policy.prompt_tokens)


@dataclass(frozen=True, slots=True)
class _PromptParts:
    problem: str
    parent: str
    best: tuple[str, ...]
    """The best program, unless it is the one to change or to start from."""
    others: tuple[str, ...]
    attempts: tuple[str, ...]
    feedback: tuple[str, ...]
    causes: tuple[str, ...]


_OMITTED: Final = ("others", "attempts", "best", "feedback", "causes")
"""Parts of which a prompt that is too long omits the last elements, in this order."""


class _Writer:
    def __init__(
        self,
        problem: Problem,
        role: PolicyRole,
        parent: Individual | None,
        policy: Policy,
        advice: str,
        state: SearchState,
    ) -> None:
        self.problem, self.parent, self._advice, self._state = problem, parent, advice, state
        program = problem.seed_program if role is PolicyRole.PROPOSE and parent is None else ""
        scored = state.seed is not None and program == state.seed.program
        self._seed = state.seed if scored else Individual(0, program, None) if program else None
        self._shown = {each.number for each in (parent, self._seed) if each}
        self.best = [state.best] if state.best and state.best.number not in self._shown else []
        self._edits = policy.edit_format is EditFormat.DIFF and role is PolicyRole.MUTATE
        self.wordings = TemplateName.PROPOSE_REQUESTS if role is PolicyRole.PROPOSE else TemplateName.CHANGE_REQUESTS
        if role is not PolicyRole.PROPOSE and parent is not None and parent.failure is not None:
            self.wordings = TemplateName.REPAIR_REQUESTS
        values = system_values(problem, policy, with_base=parent is not None or program != "")
        self.shortened = partial(problem_text, problem, state.confirmed, examples=False)
        self._system = fill(template_of(problem, TemplateName.SYSTEM), values)

    def beside(self, parents: Sequence[Individual], inspirations: Sequence[Individual]) -> list[Individual]:
        """Return the programs to show beside the best one, which takes the place of the last inspiration."""
        shown = {each.number for each in self.best}
        others = [each for each in (*parents, *inspirations) if each.number not in shown]
        return others[: max(len(parents), len(parents) + len(inspirations) - len(shown))]

    def is_outdone_by(self, others: Sequence[Individual]) -> bool:
        """Return True if some program is better in a reward than the one to change."""
        old, gains = self.parent and self.parent.rewards, self.problem.space.gains
        return any(not old or (each.rewards and gains(each.rewards, old)) for each in others)

    def requests(self, *, others: bool, form: str = "") -> list[str]:
        """Return the possible requests: the problem's own, or the default ones; models may be trained with those."""
        word = noun_of(self.problem)
        values = {"candidate": word, "others": f"{word}s" if others else ""}
        values["rewards"] = "rewards" if len(self.problem.space.selected) > 1 else ""
        if self.parent is not None and self.parent.failure is not None:
            cause = cause_of(self.parent.failure, self.problem, self.parent.program)
            kind = self.parent.failure.kind
            values["failure"] = cause.summary or f"{kind.value}, as shown above"
            values["slow"] = values["failure"] if kind is FailureKind.TIMEOUT else ""
        elif self.parent is not None and self.parent.rewards is not None:
            best = self._state.best or self.parent
            values["target"] = next_target(self.problem, (best, self.parent), self._state.confirmed)
            values["rest"] = "" if values["target"] else rest_text(self.problem, best)
            values["further"] = "" if values["target"] or values["rest"] else goal_text(self.problem, best)
        # An unchecked template may hold no request.
        own, default = self.problem.prompts.get(self.wordings, ""), default_template(f"{form}{self.wordings}")
        return requests(own, values) or requests(default, values)

    def prompt(self, content: _PromptParts, request: str) -> Prompt:
        form = f"Answer in the form given above{': edits of the program to change' if self._edits else ''}."
        shown = self._shown.union(each.number for each in self.best if content.best)
        values = {
            "problem": content.problem,
            "others": "\n\n".join(content.others),
            "seed": individual_text(self.problem, self._seed) if self._seed else "",
            "parent": content.parent,
            "best": "".join(content.best),
            "feedback": "\n".join(content.feedback),
            "state": state_text(self.problem, self._state, shown, self.parent),
            "history": lines_text(content.attempts),
            "failures": lines_text(content.causes),
            "advice": self._advice,
            "request": f"{request} {form}",
        }
        template = template_of(self.problem, TemplateName.PROPOSE if self.parent is None else TemplateName.CHANGE)
        template = "\n\n".join([template, *(text for text in _ADDED if not uses(template, text.rpartition("$")[2]))])
        return Prompt(system=storable(self._system), user=storable(fill(template, values)))

    def tokens(self, content: _PromptParts) -> int:
        wordings = self.requests(others=bool(content.others or content.best))
        return prompt_tokens(self.prompt(content, max(wordings, key=token_bound)))


def _fitting(writer: _Writer, content: _PromptParts, most: int) -> _PromptParts:
    """Drop or cut parts until the prompt has at most ``most`` tokens, or no part can shrink."""
    over = 0
    for less in _reduced(writer, content):
        if (over := writer.tokens(less) - most) <= 0:
            return less
        content = less
    if writer.parent is not None:
        chars = _cut(blocks_text(writer.problem, writer.parent.program), over)
        content = replace(content, parent=individual_text(writer.problem, writer.parent, chars))
        over = writer.tokens(content) - most
    if over > 0:
        chars = _cut(writer.problem.description, over)
        content = replace(content, problem=writer.shortened(description_chars=chars))
    return content


def _reduced(writer: _Writer, content: _PromptParts) -> Iterator[_PromptParts]:
    yield content
    for name in _OMITTED:
        while texts := getattr(content, name):
            content = replace(content, **{name: texts[:-1]})
            yield content
    yield replace(content, problem=writer.shortened())


def _cut(text: str, over: int) -> int:
    # A character has at least one byte, so cutting this many characters suffices.
    return max(_MIN_CHARS * len(text) // max(1, token_bound(text)), len(text) - over - _CUT_NOTE_CHARS)


def individual_text(
    problem: Problem, member: Individual, most_chars: int | None = None, *, aims: bool = True, timed: bool = False
) -> str:
    """Return the lines of a program that may change, at most ``most_chars``, with rewards and, if asked, ``aims``.

    If ``timed``, its processor time is named, too.
    """
    program = blocks_text(problem, member.program)
    program = program if most_chars is None else bounded(program, most_chars)
    parts = [f"### Program {member.number}"] if member.number else []
    if member.rewards is not None:
        several = f" (mean of {member.evaluations} evaluations)" if member.evaluations > 1 else ""
        parts.append(rewards_text(problem, member) + several + used_text(problem, member.cpu_s if timed else 0.0))
        if member.stopped_at is not None:
            parts.append(f"Not measured from stage {member.stopped_at} on.")
        parts += [missing_text(problem, member)] if aims else []
    if member.failure is not None:
        chars = MAX_ARTIFACT_CHARS if most_chars is None else min(MAX_ARTIFACT_CHARS, max(_MIN_CHARS, most_chars))
        parts.append(failure_text(problem, member.failure, member.program, chars))
    return "\n".join([*parts, fenced(program, label_of(problem))])
