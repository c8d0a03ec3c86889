"""The marks around the part of a program that evolves: ``EVOLVE-BLOCK-START`` and ``EVOLVE-BLOCK-END`` comments."""

from __future__ import annotations

from typing import Final

from speciate.domain.errors import Flaw

START: Final = "EVOLVE-BLOCK-START"
END: Final = "EVOLVE-BLOCK-END"


def marker_flaws(program: str, *, where: str) -> list[Flaw]:
    """Return what is wrong with the marks of a program; a program without marks evolves as a whole and is right.

    Args:
        program: Program text.
        where: Path that the flaws carry.
    """
    flaws: list[Flaw] = []
    opened: int | None = None

    def refuse(line: int, message: str) -> None:
        flaws.append(Flaw(message, where, line=line))

    for line, text in enumerate(program.splitlines(), start=1):
        match text.count(START), text.count(END):
            case 0, 0:
                continue
            case 1, 0 if opened is None:
                opened = line
            case 1, 0:
                refuse(line, f"{START} inside the block opened on line {opened}: expected {END} first")
            case 0, 1 if opened is not None:
                opened = None
            case 0, 1:
                refuse(line, f"{END} without a {START} before it")
            case _:
                refuse(line, f"several marks on one line: expected {START} and {END} on lines of their own")
    if opened is not None:
        refuse(opened, f"{START} is never closed: expected {END} after it")
    return flaws
