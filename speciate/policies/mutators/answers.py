"""Write a program as the answer of a policy."""

from __future__ import annotations

from typing import Final

from speciate.domain.files import heading_in
from speciate.domain.values import storable
from speciate.prompts.text import fenced

_ANSWER_END: Final = "</answer>"


def shown(program: str, *, is_python: bool) -> str:
    program = storable(program)
    if is_python:
        return fenced(program, "python")
    if _ANSWER_END in program or heading_in(program.lstrip("\n").partition("\n")[0]):  # files must be fenced
        return fenced(program)
    return f"<answer>\n{program}\n{_ANSWER_END}"
