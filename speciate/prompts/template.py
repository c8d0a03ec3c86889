"""Templates of prompts: which there are, what their placeholders stand for, and how they are filled.

A placeholder is ``$name``, and ``$$`` is a dollar sign. A template is filled in one pass: what is put in, which may be
hostile, is never read as a template. Blank lines divide a template into parts. A part whose placeholders all come out
empty is left out, together with a heading right above it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.resources import files
from string import Template
from typing import Final

from speciate.domain.errors import FieldError
from speciate.domain.problem import Problem
from speciate.domain.rollout import TemplateName

PLACEHOLDERS: Final[Mapping[TemplateName, Mapping[str, str]]] = {
    TemplateName.SYSTEM: {
        "candidates": "the kind of candidate, such as: Python programs",
        "form": "the answer format",
        "count": "the number of answers, if more than one",
        "protected": "what must not change, if the program has marked regions",
        "caution": "quoted texts are data, not instructions",
    },
    TemplateName.PROPOSE: {
        "problem": "title, description, rewards, targets, limits and visible examples",
        "others": "further programs with rewards and gaps",
        "seed": "the seed program, if any",
        "request": "one of the requests, and the weighting to aim for, if any",
    },
    TemplateName.CHANGE: {
        "problem": "title, description, rewards, targets, limits and visible examples",
        "others": "further programs with rewards and gaps",
        "parent": "the program to change with rewards and gaps, or why it failed",
        "feedback": "texts from its evaluation",
        "advice": "advice of the run, with `guidance`",
        "request": "one of the requests, and the weighting to aim for, if any",
    },
    TemplateName.PROPOSE_REQUESTS: {"candidate": "program or document"},
    TemplateName.CHANGE_REQUESTS: {
        "candidate": "program or document",
        "others": "programs or documents; a line with it is drawn only if others are shown",
    },
    TemplateName.GUIDANCE: {
        "problem": "title, description, rewards, targets, limits and visible examples",
        "candidates": "the kind of candidate, such as: Python programs",
        "improved": "the latest programs that entered the archive",
        "failed": "the latest failed programs",
        "advice": "existing advice with its success",
        "form": "the answer format",
        "caution": "quoted texts are data, not instructions",
    },
}
"""What every placeholder of every template stands for."""

REQUIRED: Final[Mapping[TemplateName, tuple[str, ...]]] = {
    TemplateName.SYSTEM: ("form", "caution"),
    TemplateName.PROPOSE: ("problem", "request"),
    TemplateName.CHANGE: ("problem", "parent", "request"),
    TemplateName.GUIDANCE: ("problem", "form", "caution"),
}
"""Placeholders that a template must hold."""

_BLOCKS: Final = frozenset({"problem", "others", "seed", "parent", "feedback", "form", "advice", "improved", "failed"})
_BLANK_LINES: Final = re.compile(r"\n(?:[ \t]*\n)+")
_FENCE: Final = re.compile(r"(?m)^[ \t]*(?:```|~~~)")


@lru_cache
def default_template(name: TemplateName) -> str:
    """Return the template that problems without one of their own use; it comes with the package."""
    return files("speciate.prompts").joinpath("templates", f"{name.value}.txt").read_text("utf-8")


def template_of(problem: Problem, name: TemplateName) -> str:
    """Return the problem's own template, or the default one."""
    return problem.prompts.get(name) or default_template(name)


def fill(template: str, values: Mapping[str, str]) -> str:
    """Return the template with the values in place; an unknown placeholder stays as it stands."""
    parts = [
        Template(part).safe_substitute(values)
        for part, names in _parts(template)
        if not names or any(values.get(name, "") for name in names)
    ]
    return "\n\n".join(parts)


def uses(template: str, placeholder: str) -> bool:
    """Tell whether a template holds a placeholder."""
    return placeholder in Template(template).get_identifiers()


def requests(template: str, values: Mapping[str, str]) -> list[str]:
    """Return the requests of a template, one a line, without those of which a placeholder comes out empty."""
    lines = [(line.strip(), Template(line).get_identifiers()) for line in template.split("\n") if line.strip()]
    return [
        Template(line).safe_substitute(values) for line, names in lines if all(values.get(name, "") for name in names)
    ]


def template_flaws(name: TemplateName, text: str, *, where: str) -> list[FieldError]:
    """Return what is wrong with a template that somebody wrote.

    Args:
        name: What it is for.
        text: The template.
        where: Path that the flaws carry.
    """
    known = PLACEHOLDERS[name]
    flaws: list[FieldError] = []
    for found, line in _placeholders(text):
        if found is None:
            flaws.append(FieldError("a lone '$': write '$$' for a dollar sign", where, line=line))
        elif found not in known:
            expected = ", ".join(f"${placeholder}" for placeholder in known)
            flaws.append(FieldError(f"unknown placeholder ${found}: expected one of {expected}", where, line=line))
        elif name in REQUIRED and found in _BLOCKS and (wrong := _out_of_place(text, found, line)):
            flaws.append(FieldError(f"${found} {wrong}: what it stands for brings its own fences", where, line=line))
    present = {found for found, _ in _placeholders(text)}
    flaws += [
        FieldError(f"${missing} is missing: it stands for {known[missing]}", where, line=1)
        for missing in REQUIRED.get(name, ())
        if missing not in present
    ]
    if name not in REQUIRED and not requests(text, {"candidate": "program"}):
        flaws.append(
            FieldError("holds no request that always fits: expected one a line, without $others", where, line=1)
        )
    return flaws


@lru_cache(maxsize=64)
def _parts(template: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the parts of a template with the names of their placeholders; a heading belongs to what follows it."""
    parts: list[str] = []
    heading = ""
    for part in _BLANK_LINES.split(template.strip()):
        if part.startswith("#") and "\n" not in part and "$" not in part:
            parts += [heading] if heading else []
            heading = part
        else:
            parts.append(f"{heading}\n\n{part}" if heading else part)
            heading = ""
    parts += [heading] if heading else []
    return tuple((part, tuple(Template(part).get_identifiers())) for part in parts if part)


def _placeholders(text: str) -> Iterator[tuple[str | None, int]]:
    """Yield each placeholder with its line, counted from 1; None for a dollar sign that begins none."""
    for found in Template.pattern.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        if found["invalid"] is not None:
            yield None, line
        elif found["escaped"] is None:
            yield found["named"] or found["braced"], line


def _out_of_place(text: str, name: str, line: int) -> str | None:
    lines = text.split("\n")
    if lines[line - 1].strip() not in (f"${name}", f"${{{name}}}"):
        return "needs a line of its own"
    before = "\n".join(lines[: line - 1])
    return "stands inside a fence" if len(_FENCE.findall(before)) % 2 else None
