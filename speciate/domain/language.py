"""Programming languages of candidates other than Python: a source file, a build command and a run command."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from speciate.domain.errors import InvalidFieldError
from speciate.domain.known_languages import KNOWN, known_language, programs_of
from speciate.domain.values import NO_NUL, FileName, Value

Argument = Annotated[str, StringConstraints(min_length=1, max_length=1000, pattern=NO_NUL)]


class Exchange(StrEnum):
    """Format of a program's input and output."""

    TEXT = "text"
    """Input: the single argument, a text, on standard input. Output: standard output without trailing white space."""
    JSON = "json"
    """Input: the arguments as a JSON list on one line of standard input. Output: standard output, parsed as JSON."""


class Language(Value):
    """Build and run commands of a problem's programs. Both run inside the sandbox, in the candidate's folder.

    In a definition the name of a known language stands for its file and commands, which the problem then holds.
    """

    omitted_at_default: ClassVar[frozenset[str]] = frozenset({"build_memory_bytes", "build_bytes"})

    name: str = Field(min_length=1, max_length=40, examples=["C++"])
    """Name for people and prompts."""
    file: FileName = Field(examples=["main.cpp"])
    """File name of the program. Optional for a known language."""
    build: tuple[Argument, ...] = Field(
        default=(), max_length=64, examples=[["g++", "-O2", "-o", "program", "main.cpp"]]
    )
    """Command that compiles a candidate; empty for none. Optional for a known language."""
    run: tuple[Argument, ...] = Field(default=(), max_length=64, examples=[["./program"]])
    """Command that runs once per call. Optional for a known language; none for kind `in_process`."""
    build_s: float = Field(default=20.0, gt=0, le=600, examples=[60.0])
    """Seconds that the build may take."""
    build_memory_bytes: int = Field(default=2 << 30, ge=64 << 20, le=1 << 40, examples=[4 << 30])
    """Resident memory of the build."""
    build_bytes: int = Field(default=32 << 20, ge=1 << 10, le=256 << 20, examples=[64 << 20])
    """Size of all built files."""
    exchange: Exchange = Field(default=Exchange.TEXT, examples=["json"])
    """`text`: one text argument on standard input; `json`: all arguments as a JSON list on one line."""

    @property
    def fence(self) -> str:
        preset = known_language(self.name)
        return self.name.lower() if preset is None else preset.labels[0]

    @property
    def labels(self) -> frozenset[str]:
        """Labels of code fences in this language: the usual ones, its name and its file extension."""
        preset = known_language(self.name)
        usual = () if preset is None else preset.labels
        return frozenset({*usual, self.name.lower(), self.file.rpartition(".")[2].lower()})

    @property
    def programs(self) -> tuple[str, ...]:
        """Programs that a machine must have: those of the commands that are not built."""
        return programs_of(self.build, self.run)


def complete_language(definition: Any, *, runs: bool) -> Any:
    """Return a definition's language with what it leaves out of a known one; a run command stands for itself.

    The definition is the name of a known language, the fields of a language, or a language. ``runs`` is True if the
    problem runs programs by commands, False if its script does.
    """
    fields = {"name": definition} if isinstance(definition, str) else definition
    if not isinstance(fields, Mapping) or not isinstance(fields.get("name"), str):
        return definition
    preset = known_language(fields["name"])
    if "run" in fields:
        return definition if preset is None or "file" in fields else {**fields, "file": preset.file}
    if preset is None and isinstance(definition, str):
        raise InvalidFieldError(
            "language",
            f"language {definition!r} is unknown: expected one of {', '.join(KNOWN)}, or a table with `name`, `file`"
            " and `run`; without `language` and `image`, programs are Python",
        )
    if preset is None:
        return definition
    file = str(fields.get("file", preset.file))
    commands = {"build": preset.build, "run": preset.run} if runs else {}
    filled = {key: tuple(word.replace("{file}", file) for word in words) for key, words in commands.items()}
    return {**filled, **fields, "name": preset.name, "file": file}


def _by_name(definition: Any) -> Any:
    return complete_language(definition, runs=True) if isinstance(definition, str) else definition


LanguageOrName = Annotated[Language, BeforeValidator(_by_name, json_schema_input_type=Language | Literal[tuple(KNOWN)])]
"""A language, or in definitions the name of a known one."""
