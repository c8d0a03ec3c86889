"""Programming languages of candidates other than Python: a source file, a build command and a run command."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from speciate.domain.values import NO_NUL, FileName, Value

Argument = Annotated[str, StringConstraints(min_length=1, max_length=1000, pattern=NO_NUL)]


class Exchange(StrEnum):
    """Format of a program's input and output."""

    TEXT = "text"
    """Input: the single argument, a text, on standard input. Output: standard output without trailing white space."""
    JSON = "json"
    """Input: the arguments as a JSON list on one line of standard input. Output: standard output, parsed as JSON."""


class Language(Value):
    """Build and run commands of a problem's programs. Both run inside the sandbox, in the candidate's folder."""

    name: str = Field(min_length=1, max_length=40, description="Name for people and prompts.", examples=["C++"])
    file: FileName = Field(description="File name of the program.", examples=["main.cpp"])
    build: tuple[Argument, ...] = Field(
        default=(),
        max_length=64,
        description="Command that runs once per candidate; empty for none.",
        examples=[["g++", "-O2", "-o", "program", "main.cpp"]],
    )
    run: tuple[Argument, ...] = Field(
        default=(),
        max_length=64,
        description="Command that runs once per call. Kind `in_process` has none: its script runs programs.",
        examples=[["./program"]],
    )
    build_s: float = Field(default=20.0, gt=0, le=600, description="Seconds that the build may take.", examples=[60.0])
    exchange: Exchange = Field(
        default=Exchange.TEXT,
        description="`text`: one text argument on standard input; `json`: all arguments as a JSON list on one line.",
        examples=["json"],
    )

    @property
    def labels(self) -> frozenset[str]:
        """Labels of code fences in this language: its name and its file extension."""
        return frozenset({self.name.lower(), self.file.rpartition(".")[2].lower()})
