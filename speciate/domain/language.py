"""Candidates that are not Python: a source file, a command that builds it, and a command that runs it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from speciate.domain.values import NO_NUL, FileName, Value

Argument = Annotated[str, StringConstraints(min_length=1, max_length=1000, pattern=NO_NUL)]


class Exchange(StrEnum):
    """How a program reads its input and writes its answer."""

    TEXT = "text"
    """The one argument, a text, on standard input; the answer is standard output without white space at its end."""
    JSON = "json"
    """The arguments as one line of JSON, a list, on standard input; the answer is standard output, read as JSON."""


class Language(Value):
    """How programs of a problem are built and run. Both commands run inside the sandbox, in the candidate's folder.

    Attributes:
        name: Name for people and prompts, such as ``C++``.
        file: Name of the file that the program is written to.
        build: Command that is run once for each candidate; empty for none.
        run: Command that is run once for each call.
        build_s: Seconds that building may take.
        exchange: How input and answer travel.
    """

    name: str = Field(min_length=1, max_length=40)
    file: FileName
    build: tuple[Argument, ...] = Field(default=(), max_length=64)
    run: tuple[Argument, ...] = Field(min_length=1, max_length=64)
    build_s: float = Field(default=20.0, gt=0, le=600)
    exchange: Exchange = Exchange.TEXT

    @property
    def labels(self) -> frozenset[str]:
        """What a model may call the language where it writes a program: its name, or the ending of its files."""
        return frozenset({self.name.lower(), self.file.rpartition(".")[2].lower()})
