"""Check the EVOLVE-BLOCK marks of a program and report mistakes as errors of its problem."""

from __future__ import annotations

from speciate.domain.errors import FieldError
from speciate.prompts.evolve_blocks import MarkerError, find_blocks


def marker_field_errors(program: str, *, where: str) -> list[FieldError]:
    """Return what is wrong with the marks of a program; a program without marks evolves as a whole and is right.

    Args:
        program: Program text.
        where: Path that the error carries.
    """
    try:
        find_blocks(program)
    except MarkerError as error:
        return [FieldError(error.message, where, line=error.line)]
    return []
