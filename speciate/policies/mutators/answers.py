"""Write programs as the answers of a policy."""

from collections.abc import Sequence
from typing import Final

from speciate.domain.files import heading_in
from speciate.domain.rollout import Completion
from speciate.domain.values import storable
from speciate.prompts.fences import SEPARATOR, unfenced
from speciate.prompts.text import fenced

_TAG: Final = "answer>"


def answered(programs: Sequence[str], count: int, *, is_python: bool) -> tuple[Completion, ...]:
    texts = [shown(program, is_python=is_python) for program in programs]
    starts = range(0, len(texts), count)
    return tuple(Completion(f"\n{SEPARATOR}\n".join(texts[start : start + count])) for start in starts)


def shown(program: str, *, is_python: bool) -> str:
    program = storable(program)
    if is_python:
        return fenced(program, "python")
    if _TAG in program or unfenced(program) != program or heading_in(program.lstrip("\n").partition("\n")[0]):
        return fenced(program)  # as files must be
    return f"<{_TAG}\n{program}</{_TAG}"
