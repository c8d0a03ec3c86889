"""Read the files beside a ``problem.toml`` into the definition: seed, evaluator, cases, templates, further files.

The definition may also contain each of them itself.
"""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from speciate.domain.data_files import BINARY, content_of
from speciate.domain.errors import FieldError
from speciate.domain.files import FilesError, text_of
from speciate.domain.unstorable import MAX_VALUES, TOO_MANY_DIGITS, values_within
from speciate.domain.validation import shorten
from speciate.problems.lockfile import UnreadableError, locked_requirements

MAX_FILE_BYTES: Final = 16 << 20

TEMPLATE_FOLDER: Final = "prompts"
TEMPLATE_SUFFIX: Final = ".txt"

PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_. -]*")
PLAIN_PATH: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_. -]*(/[A-Za-z0-9_][A-Za-z0-9_. -]*)*/?")
"""How a definition can name files, and data files or folders."""

Reader = Callable[[str], str]
"""Function that returns the text of a file by name, or raises ``UnreadableError``."""

DataReader = Callable[[str], dict[str, str]]
"""Function that returns the contents of a data file, or of all in a folder, by path, or raises ``UnreadableError``."""


class Siblings:
    """The definition as JSON values with the texts of the named files, and the errors of those files."""

    def __init__(self, raw: dict[str, Any], read: Reader, read_data: DataReader | None = None) -> None:
        self.field_errors: list[FieldError] = []
        self._read = read
        self._read_data = read_data or (lambda name: {name: read(name)})
        self._raw = raw
        self._files: dict[str, str] = {}
        self._case_lines: list[int] = []
        self.definition = {key: value for key, value in raw.items() if key not in _FILE_KEYS}
        if "seed" in raw and "seed_program" in raw:
            self._reject("is given beside seed: expected one of them", "seed_program")
        for key, (field, load) in _FILE_KEYS.items():
            if key in raw and (value := load(self, raw[key])) is not None:
                self.definition[field] = value

    def _reject(self, message: str, where: str) -> None:
        self.field_errors.append(FieldError(message, where))

    def place(self, field_error: FieldError) -> FieldError:
        """Return an error with the file and lines that it refers to."""
        head, _, rest = field_error.where.partition(".")
        if field_error.file is not None:
            return field_error
        match head:
            case "seed_program" if f"seed.{rest}" in self._files:
                return replace(field_error, where="seed", file=self._files[f"seed.{rest}"])
            case "seed_program" if "seed" in self._raw:
                # Only errors with a line concern the program itself.
                where = f"seed.{rest}" if rest else "seed"
                return replace(
                    field_error, where=where, file=None if field_error.line is None else self._files.get("seed")
                )
            case "evaluator" if field_error.line is not None and head in self._files:
                return replace(field_error, file=self._files[head])
            case "prompts" if field_error.where in self._files:
                return replace(field_error, file=self._files[field_error.where])
            case "cases" if rest and head in self._files:
                return replace(field_error, file=self._files[head], line=self._case_lines[int(rest.partition(".")[0])])
            case _:
                return field_error

    def text(self, key: str, name: object, folder: str | None = None) -> str | None:
        """Return the content of a named file, beside the definition or in a folder, or None after noting the error."""
        if not isinstance(name, str) or not PLAIN_NAME.fullmatch(name):
            expected = f"expected the name of a file in the same directory{_INLINE.get(key, '')}"
            self._reject(f"is {shorten(name)}: {expected}", key)
            return None
        try:
            path = name if folder is None else f"{folder}/{name}"
            text = self._read(path)
        except UnreadableError as error:
            self._reject(str(error), key)
            return None
        self._files[key] = path
        return text

    def seed(self, names: object) -> str | None:
        """Return the seed program: one file by name, or several by a list of names or a table of texts."""
        if not isinstance(names, list | dict):
            return self.text("seed", names)
        if self._raw.get("many_files") is not True:
            one = "expected the name of a file in the same directory, or many_files = true beside it"
            self._reject(f"has several files: {one}", "seed")
            return None
        texts = names if isinstance(names, dict) else {str(n): self.text(f"seed.{n}", n) for n in names}
        if not all(isinstance(text, str) for text in texts.values()):
            if isinstance(names, dict):
                self._reject("expected texts by name of the file", "seed")
            return None
        try:
            return text_of({str(name): str(text) for name, text in texts.items()})
        except FilesError as error:
            self._reject(error.message, "seed")
            return None

    def script(self, script: object) -> str | None:
        """Return the evaluator: a text of several lines is the script itself, one line is the name of its file."""
        return script if isinstance(script, str) and "\n" in script else self.text("evaluator", script)

    def contents(self, key: str, names: object) -> object:
        """Return the contents of files from a list of files and folders; a table contains them."""
        if isinstance(names, dict):
            return names
        if not isinstance(names, list):
            expected = "a list of files in the same directory, or a table of texts by name"
            self._reject(f"is {shorten(names)}: expected {expected}", key)
            return None
        read, contents = self._read_data if key == "data_files" else self._read_file, dict[str, str]()
        for i, name in enumerate(names):
            if not isinstance(name, str) or not PLAIN_PATH.fullmatch(name):
                expected = "expected the path of a file or folder in the same directory"
                self._reject(f"is {shorten(name)}: {expected}", f"{key}.{i}")
                continue
            try:
                contents |= read(name)
            except UnreadableError as error:
                self._reject(str(error), f"{key}.{i}")
        return contents

    def _read_file(self, name: str) -> dict[str, str]:
        """Return a text, as an editor shows it; what is none, as of data files."""
        with suppress(UnreadableError):
            text = self._read(name)
            if "\0" not in text and not text.startswith(BINARY):
                return {name: text}
        return self._read_data(name)

    def packages(self, value: object) -> object:
        """Return the packages in a named lock file; a list holds them itself."""
        if not isinstance(value, str):
            return value
        text = self.text("requirements", value)
        if text is None:
            return None
        try:
            return locked_requirements(value, text)
        except UnreadableError as error:
            self._reject(str(error), "requirements")
            return None

    def templates(self, names: object) -> object:
        """Return the templates from a list of file names in the folder ``prompts``; a table contains the texts."""
        if not isinstance(names, list):
            return self.contents(TEMPLATE_FOLDER, names)
        files = {str(name).removesuffix(TEMPLATE_SUFFIX): name for name in names}
        texts = {part: self.text(f"prompts.{part}", name, TEMPLATE_FOLDER) for part, name in files.items()}
        return {part: text for part, text in texts.items() if text is not None}

    def cases(self, cases: object) -> list[Any] | None:
        """Return the cases in a named JSON file and record their lines; an array of tables holds them itself."""
        if isinstance(cases, list) or (text := self.text("cases", cases)) is None:
            return cases if isinstance(cases, list) else None
        name = str(cases)
        if not values_within(text, MAX_VALUES):
            self.field_errors.append(FieldError(f"holds more than {MAX_VALUES} values", "cases", file=name, line=1))
            return None
        try:
            values = json.loads(text)
            if isinstance(values, list):
                self._case_lines = _element_lines(text)
                return values
            problem = FieldError("expected a JSON list of cases", "cases", file=name, line=1)
        except json.JSONDecodeError as error:
            problem = FieldError(f"is not valid JSON: {error.msg}", "cases", name, error.lineno, error.colno)
        except RecursionError as error:
            problem = FieldError(f"is not valid JSON: {error}", "cases", name, 1)
        except ValueError:
            problem = FieldError(TOO_MANY_DIGITS, "cases", name, 1)
        self.field_errors.append(problem)
        return None


_INLINE: Final = {
    "seed": ", or a list of such names; a text stands in seed_program",
    "evaluator": ", or a script of several lines",
    "cases": ", or an array of cases",
}


_FILE_KEYS: Final[dict[str, tuple[str, Callable[[Siblings, object], Any]]]] = {
    "seed": ("seed_program", Siblings.seed),
    "evaluator": ("evaluator", Siblings.script),
    "cases": ("cases", Siblings.cases),
    "files": ("files", lambda parts, names: parts.contents("files", names)),
    "prompts": ("prompts", Siblings.templates),
    "data_files": ("data_files", lambda parts, names: parts.contents("data_files", names)),
    "requirements": ("requirements", Siblings.packages),
}


def _element_lines(text: str) -> list[int]:
    decoder, blank = json.JSONDecoder(), re.compile(r"[\s,]*")
    lines: list[int] = []
    line, counted, at = 1, 0, text.index("[") + 1
    while True:
        skipped = blank.match(text, at)
        at = skipped.end() if skipped else at
        if text[at] == "]":
            return lines
        # Count from the previous element: counting from the beginning takes a minute for ten thousand cases.
        line, counted = line + text.count("\n", counted, at), at
        lines.append(line)
        _, at = decoder.raw_decode(text, at)


def read_sibling(directory: Path, name: str) -> str:
    """Return the text of a file in a directory; ``UnreadableError`` if it is outside, too large or not text."""
    try:
        # A byte order mark is no part of the text; editors of Windows write one.
        return _bytes_within(directory, name).decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise UnreadableError(f"{name!r} is not UTF-8 text (byte {error.start})") from error


def read_data(directory: Path, name: str) -> dict[str, str]:
    top = directory / name
    names = [name]
    if top.is_dir():
        paths = (path.relative_to(directory) for path in sorted(top.rglob("*")) if not path.is_dir())
        names = [path.as_posix() for path in paths if not any(part.startswith(".") for part in path.parts)]
    return {each: content_of(_bytes_within(directory, each)) for each in names}


def _bytes_within(directory: Path, name: str) -> bytes:
    try:
        path = (directory / name).resolve()
        if not path.is_relative_to(directory.resolve()):
            raise UnreadableError(f"{name!r} leads out of the directory: expected a file inside it")
        if not path.is_file():
            raise UnreadableError(f"there is no file {name!r} in {directory}")
        if path.stat().st_size > MAX_FILE_BYTES:
            raise UnreadableError(f"{name!r} is over {MAX_FILE_BYTES} bytes")
        return path.read_bytes()
    except OSError as error:
        raise UnreadableError(f"{name!r} cannot be read: {error.strerror}") from error
    except RuntimeError as error:  # from ``resolve``, before Python 3.13
        raise UnreadableError(f"{name!r} is a link to itself") from error
