"""Guidance prompts: request a piece of advice, parse it, and show it in later prompts."""

from collections.abc import Iterator, Sequence
from typing import Final

from speciate.domain.candidate import Individual
from speciate.domain.guidance import MAX_ADVICE_CHARS, NO_ADVICE, Advice
from speciate.domain.policy import Policy
from speciate.domain.problem import Problem
from speciate.domain.rollout import Prompt, TemplateName
from speciate.domain.values import storable
from speciate.prompts.instructions import system_values
from speciate.prompts.mutation import individual_text
from speciate.prompts.parse import after_reasoning
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
    """Build the prompt for a new piece of advice from the template ``guidance``.

    The prompt has at most ``policy.prompt_tokens`` tokens. Failed programs are dropped first, from the last one, then
    improved ones, then the problem's examples; finally the middle of the remaining text is cut.
    """
    values = system_values(problem, policy, with_base=True) | {
        "form": _FORM,
        "advice": "\n\n".join(
            _with_results(piece, marked=piece.number == parent.number != NO_ADVICE)
            for piece in sorted(pieces, key=lambda piece: -piece.gain.mean)
        ),
    }
    template = template_of(problem, TemplateName.GUIDANCE)
    prompt = Prompt("", "")
    for candidates in _reduced(problem, improved, failed):
        prompt = Prompt(system="", user=storable(fill(template, values | candidates)))
        if prompt_tokens(prompt) <= policy.prompt_tokens:
            break
    return clipped(prompt, policy.prompt_tokens)


def read_advice(completion: str) -> str:
    head, closing, _ = after_reasoning(completion).rpartition(_CLOSING)
    _, opening, text = head.rpartition(_OPENING)
    return printable(text).strip()[:MAX_ADVICE_CHARS].rstrip() if opening and closing else ""


def advice_text(advice: Advice) -> str:
    """Return a piece as prompts show it: fenced, because it is a model's text."""
    return fenced(advice.text) if advice.text else ""


def _reduced(
    problem: Problem, improved: Sequence[Individual], failed: Sequence[Individual]
) -> Iterator[dict[str, str]]:
    candidates = [*improved, *failed]
    for count in range(len(candidates), -1, -1):
        texts = [individual_text(problem, member, _MAX_PROGRAM_CHARS) for member in candidates[:count]]
        yield {
            "problem": problem_text(problem),
            "improved": "\n\n".join(texts[: len(improved)]),
            "failed": "\n\n".join(texts[len(improved) :]),
        }
    yield {"problem": problem_text(problem, examples=False), "improved": "", "failed": ""}


def _with_results(piece: Advice, *, marked: bool) -> str:
    gain = piece.gain
    name = "No advice" if piece.number == NO_ADVICE else f"Advice {piece.number}"
    tried = "Not tried yet."
    if gain.late_judged:
        late = gain.late_won / gain.late_judged
        tried = f"Success rate of its latest answers: {late:.0%}. Answers in total: {gain.judged}."
    heading = f"### {name}{' (the one to improve on)' if marked else ''}\n{tried}"
    return f"{heading}\n{fenced(piece.text)}" if piece.text else heading
