"""The prompt that asks a policy for children of chosen parents, or for a first program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from speciate.domain.candidate import Member
from speciate.domain.policy import EditFormat, Policy, PolicyRole
from speciate.domain.problem import Problem, ProblemKind
from speciate.domain.rollout import Prompt
from speciate.domain.values import storable
from speciate.prompts.codecs import codec_of
from speciate.prompts.hostile import fenced
from speciate.prompts.instructions import system_text
from speciate.prompts.render import artifacts_text, failure_text, missing_text, problem_text, rewards_text

MAX_USER_CHARS: Final = 120_000
"""Length above which further programs are left out, the least useful first; the parent is always shown whole."""

_CHANGES: Final = (
    "Improve the program where its rewards are weakest, without losing what it is good at.",
    "Change the one thing that holds the program back most.",
    "Try a different idea inside the program and keep what works.",
    "Make one bold change that could reach the target.",
    "Combine what the programs above are good at.",
)
_PROPOSALS: Final = (
    "Write a program that solves the problem.",
    "Write a simple program that is surely valid, then make it good.",
    "Write a program that follows an uncommon idea.",
)


def build_prompt(
    problem: Problem,
    role: PolicyRole,
    parents: Sequence[Member],
    inspirations: Sequence[Member],
    policy: Policy,
    rng: np.random.Generator,
    goal: Sequence[float] | None = None,
) -> Prompt:
    """Build the prompt for one selection.

    The stable part comes first (form of the answer, then the problem), so that a server's prefix cache holds it for a
    whole run; inspirations, further parents, the parent with its feedback and the request follow, in rising order of
    what a model attends to.

    Args:
        problem: The problem.
        role: From scratch, or a change of ``parents[0]``.
        parents: First the one to change, then those to recombine with it.
        inspirations: Further programs to show, most useful first.
        policy: Who is asked, in which edit format and for how many answers.
        rng: Draws the wording of the request and the order of the inspirations.
        goal: Shape (k,): a weighting of the rewards that the answer should aim for, summing to 1.

    Raises:
        InvalidInputError: The policy's codec cannot write this problem.
    """
    if policy.codec is not None:
        parent = parents[0] if parents and role is PolicyRole.MUTATE else None
        text = codec_of(policy.codec).prompt(problem, answers=policy.answers_for(role), parent=parent, goal=goal)
        return Prompt(system="", user=text)
    template = problem.seed_program if role is PolicyRole.PROPOSE and not parents else ""
    tail = _parent_parts(problem, parents) if parents else _template_parts(problem, template)
    tail += ["## Request", _request(problem, role, policy, rng)]
    if goal is not None:
        weights = ", ".join(f"{o.name} {w:.2f}" for o, w in zip(problem.space.selected, goal, strict=True))
        tail.append(f"This time the rewards count with these weights: {weights}.")
    head = problem_text(problem)
    room = MAX_USER_CHARS - len(head) - sum(map(len, tail))
    shown = _fitting([_member(problem, "Program", member) for member in (*parents[1:], *inspirations)], room)
    if shown:
        order = rng.permutation(len(shown))
        shown = ["## Other programs found so far", *(shown[i] for i in order)]
    with_base = bool(parents or template)
    return Prompt(
        system=storable(system_text(problem, policy, with_base=with_base)),
        user=storable("\n\n".join([head, *shown, *tail])),
    )


def _parent_parts(problem: Problem, parents: Sequence[Member]) -> list[str]:
    feedback = artifacts_text(parents[0])
    parts = ["## The program to change", _member(problem, "Program", parents[0])]
    return [*parts, f"Feedback from its evaluation:\n{feedback}"] if feedback else parts


def _template_parts(problem: Problem, template: str) -> list[str]:
    return ["## A first program to start from", fenced(template, _label(problem))] if template else []


def _member(problem: Problem, title: str, member: Member) -> str:
    parts = [f"### {title} {member.number}"]
    if member.rewards is not None:
        parts += [rewards_text(problem, member.rewards), missing_text(problem, member.rewards)]
    if member.failure is not None:
        parts.append(failure_text(member.failure))
    return "\n".join([*parts, fenced(member.program, _label(problem))])


def _label(problem: Problem) -> str:
    if problem.language is not None:
        return problem.language.name.lower()
    return "" if problem.kind is ProblemKind.DATA else "python"


def _fitting(parts: list[str], room: int) -> list[str]:
    kept: list[str] = []
    for part in parts:
        room -= len(part)
        if room < 0:
            break
        kept.append(part)
    return kept


def _request(problem: Problem, role: PolicyRole, policy: Policy, rng: np.random.Generator) -> str:
    texts = _PROPOSALS if role is PolicyRole.PROPOSE else _CHANGES
    text = texts[int(rng.integers(len(texts)))]
    if problem.kind is ProblemKind.DATA:
        text = text.replace("program", "document")
    edits = policy.edit_format is EditFormat.DIFF and role is PolicyRole.MUTATE
    return f"{text} Answer in the form given at the top{': edits of the program to change' if edits else ''}."
