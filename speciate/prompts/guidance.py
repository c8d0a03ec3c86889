"""Advice for changes: the prompt that asks for a piece of it, and how one is read and shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from speciate.domain.candidate import Individual
from speciate.domain.guidance import MAX_ADVICE_CHARS, NO_ADVICE, Advice
from speciate.domain.policy import Policy
from speciate.domain.problem import Problem
from speciate.domain.rollout import Prompt, TemplateName
from speciate.domain.values import storable
from speciate.prompts.instructions import system_values
from speciate.prompts.mutation import member_text
from speciate.prompts.parse import after_thoughts
from speciate.prompts.render import problem_text
from speciate.prompts.template import fill, template_of
from speciate.prompts.text import clipped, fenced, printable, prompt_tokens

_MAX_PROGRAM_CHARS: Final = 2000
_OPENING, _CLOSING = "<advice>", "</advice>"
_FORM: Final = f"""Answer with the advice alone, in at most {MAX_ADVICE_CHARS} characters, between two tags:
{_OPENING}
the advice
{_CLOSING}"""


def guidance_prompt(
    problem: Problem,
    policy: Policy,
    pieces: Sequence[Advice],
    parent: Advice,
    improved: Sequence[Individual],
    failed: Sequence[Individual],
) -> Prompt:
    """Build the prompt that asks for a piece of advice, by the template ``guidance``.

    At most ``policy.prompt_tokens`` long: the programs that failed are left out first, the last one first, then those
    that improved, then the problem's examples; at last the middle of whatever is there is cut out.

    Args:
        problem: The problem.
        policy: Who is asked.
        pieces: The advice there is, no advice among it.
        parent: The piece to improve on; no advice where a new idea is asked for.
        improved: Programs that took a place in the archive, most useful first.
        failed: Programs that failed, most useful first.
    """
    values = system_values(problem, policy, with_base=True) | {
        "form": _FORM,
        "advice": "\n\n".join(
            _standing(piece, marked=piece.number == parent.number != NO_ADVICE)
            for piece in sorted(pieces, key=lambda piece: -piece.gain.mean)
        ),
    }
    template = template_of(problem, TemplateName.GUIDANCE)
    prompt = Prompt("", "")
    for shown in _less_and_less(problem, improved, failed):
        prompt = Prompt(system="", user=storable(fill(template, values | shown)))
        if prompt_tokens(prompt) <= policy.prompt_tokens:
            break
    return clipped(prompt, policy.prompt_tokens)


def read_advice(completion: str) -> str:
    """Return the advice in a completion as it may be stored and shown; empty where there is none."""
    head, closing, _ = after_thoughts(completion).rpartition(_CLOSING)
    _, opening, text = head.rpartition(_OPENING)
    return printable(text).strip()[:MAX_ADVICE_CHARS].rstrip() if opening and closing else ""


def advice_text(advice: Advice) -> str:
    """Return a piece as a prompt carries it: data in a fence, whatever a model wrote."""
    return fenced(advice.text) if advice.text else ""


def _less_and_less(
    problem: Problem, improved: Sequence[Individual], failed: Sequence[Individual]
) -> Iterator[dict[str, str]]:
    shown = [*improved, *failed]
    for count in range(len(shown), -1, -1):
        texts = [member_text(problem, member, _MAX_PROGRAM_CHARS) for member in shown[:count]]
        yield {
            "problem": problem_text(problem),
            "improved": "\n\n".join(texts[: len(improved)]),
            "failed": "\n\n".join(texts[len(improved) :]),
        }
    yield {"problem": problem_text(problem, examples=False), "improved": "", "failed": ""}


def _standing(piece: Advice, *, marked: bool) -> str:
    """Return a piece with what it led to."""
    gain = piece.gain
    name = "No advice" if piece.number == NO_ADVICE else f"Advice {piece.number}"
    tried = "Not tried yet."
    if gain.late_judged:
        late = gain.late_won / gain.late_judged
        tried = f"Of its latest answers {late:.0%} came among the best; answers in all: {gain.judged}."
    heading = f"### {name}{' (the one to improve on)' if marked else ''}\n{tried}"
    return f"{heading}\n{fenced(piece.text)}" if piece.text else heading
