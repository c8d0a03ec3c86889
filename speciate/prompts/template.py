"""Prompt templates: their placeholders, defaults, validation and substitution.

A placeholder is ``$name``, and ``$$`` is a dollar sign. Substitution is one pass, so untrusted values are never read as
templates. Blank lines divide a template into parts. A part whose placeholders are all empty is dropped, together with a
heading right above it.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.resources import files
from string import Template
from typing import Final

from speciate.domain.errors import FieldError
from speciate.domain.problem import Problem
from speciate.domain.rollout import TemplateName

REQUIRED: Final[Mapping[TemplateName, tuple[str, ...]]] = {
    TemplateName.SYSTEM: ("form", "caution"),
    TemplateName.PROPOSE: ("problem", "request"),
    TemplateName.CHANGE: ("problem", "parent", "request"),
    TemplateName.GUIDANCE: ("problem", "form", "caution"),
}
"""Required placeholders of a template."""

_ALONE: Final = frozenset({"further", "rest", "slow"})
"""Placeholders whose lines suit a state in which the other lines do not."""
_INLINE: Final = frozenset({"candidates", "caution", "count", "protected", "request", "state"})
"""Placeholders that may stand within a line: their values bring no fences."""
_BLANK_LINES: Final = re.compile(r"\n(?:[ \t]*\n)+")
_FENCE: Final = re.compile(r"(?m)^[ \t]*(?:```|~~~)")


@lru_cache
def default_template(name: str) -> str:
    return files("speciate.prompts").joinpath("templates", f"{name}.txt").read_text("utf-8")


def placeholders_of(name: TemplateName) -> tuple[str, ...]:
    return tuple(Template(default_template(name)).get_identifiers())


def template_of(problem: Problem, name: TemplateName) -> str:
    return problem.prompts.get(name) or default_template(name)


def fill(template: str, values: Mapping[str, str]) -> str:
    """Return the template with its values; unknown placeholders stay unchanged."""
    parts = [
        Template(part).safe_substitute(values)
        for part, names in _parts(template)
        if not names or any(values.get(name, "") for name in names)
    ]
    return "\n\n".join(parts)


def uses(template: str, placeholder: str) -> bool:
    return placeholder in Template(template).get_identifiers()


def requests(template: str, values: Mapping[str, str]) -> list[str]:
    """Return the requests of a template, one per line, without those that have an empty placeholder.

    With a value of ``_ALONE`` only the lines that use it are returned, if there are any.
    """
    lines = [(line.strip(), Template(line).get_identifiers()) for line in template.split("\n") if line.strip()]
    lines = [(line, names) for line, names in lines if all(values.get(name, "") for name in names)]
    alone = [line for line, names in lines if not _ALONE.isdisjoint(names)]
    return [Template(line).safe_substitute(values) for line in alone or [line for line, _ in lines]]


def template_field_errors(name: TemplateName, text: str, *, where: str) -> list[FieldError]:
    placeholders = list(_placeholders(text))
    mistakes = ((line, _placeholder_mistake(name, text, placeholder, line)) for placeholder, line in placeholders)
    field_errors = [FieldError(mistake, where, line=line) for line, mistake in mistakes if mistake]
    present = {placeholder for placeholder, _ in placeholders}
    lacking = [placeholder for placeholder in REQUIRED.get(name, ()) if placeholder not in present]
    field_errors += [FieldError(f"${placeholder} is missing", where, line=1) for placeholder in lacking]
    if name not in REQUIRED and not requests(text, {"candidate": "program", "failure": "error"}):
        missing = "has no request without $others, $rewards and $target: expected at least one, one per line"
        field_errors.append(FieldError(missing, where, line=1))
    return field_errors


def _placeholder_mistake(name: TemplateName, text: str, placeholder: str | None, line: int) -> str | None:
    names = placeholders_of(name)
    if placeholder is None:
        return "a lone '$': write '$$' for a dollar sign"
    if placeholder not in names:
        return f"unknown placeholder ${placeholder}: expected one of {', '.join(f'${each}' for each in names)}"
    if name in REQUIRED and placeholder not in _INLINE and (wrong := _out_of_place(text, placeholder, line)):
        return f"${placeholder} {wrong}: its value brings its own fences"
    return None


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
    """Yield each placeholder with its line, from 1; None for a lone dollar sign."""
    for match in Template.pattern.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        if match["invalid"] is not None:
            yield None, line
        elif match["escaped"] is None:
            yield match["named"] or match["braced"], line


def _out_of_place(text: str, name: str, line: int) -> str | None:
    lines = text.split("\n")
    if lines[line - 1].strip() not in (f"${name}", f"${{{name}}}"):
        return "needs a line of its own"
    return "stands inside a fence" if len(_FENCE.findall("\n".join(lines[: line - 1]))) % 2 else None
