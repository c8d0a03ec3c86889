"""Check the EVOLVE-BLOCK marks of a program and report mistakes as errors of its problem."""

from __future__ import annotations

from speciate.domain.errors import FieldError
from speciate.prompts.evolve_blocks import MarkerError, find_blocks, has_stray_marker


def marker_field_errors(program: str, *, where: str) -> list[FieldError]:
    try:
        find_blocks(program)
    except MarkerError as error:
        return [FieldError(error.message, where, line=error.line)]
    return []


def stray_marker_note(program: str) -> str:
    if not has_stray_marker(program):
        return ""
    return (
        "the seed program contains EVOLVE-BLOCK-START, but on no line that holds only this mark and a comment sign:"
        " nothing is protected"
    )
