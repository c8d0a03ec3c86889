"""Read ``problem.toml`` and the files beside it.

``problem.toml`` holds the fields of ``speciate.domain.problem.Problem``. ``seed`` (instead of ``seed_program``),
``evaluator``, ``cases``, ``files`` and ``data_files`` may name files in the same directory, and ``prompts`` files in
its folder ``prompts``.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from speciate.domain.errors import FieldError, NotFoundError, invalid
from speciate.domain.files import EVALUATOR
from speciate.domain.problem import Problem
from speciate.domain.unstorable import TOO_MANY_DIGITS
from speciate.domain.validation import shorten
from speciate.problems.definition import examine, label_of
from speciate.problems.lockfile import UnreadableError
from speciate.problems.siblings import DataReader, Reader, Siblings, read_data, read_sibling
from speciate.problems.toml_places import limit_error, line_of, toml_places

FILE_NAME: Final = "problem.toml"

_BUNDLED: Final = Path(__file__).parent / "bundled"
_KNOWN: Final = (*Problem.model_fields, "seed")
_OPENED: Final = re.compile(r"""=\s*(\'\'\'|\"\"\")(.*?)\r?$""")
_MANY_DIGITS: Final = re.compile(r"(?<![\d_])\d[\d_]{4300}")
_INDEX: Final = re.compile(r"\d{1,9}")
_TOML_PLACE: Final = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")

_BARE_TEXT: Final = re.compile(r"[\w.-]+\s*=\s*[^\W\d][^\"'\[{=]*")


def bundled() -> dict[str, Path]:
    return {path.parent.name: path.parent for path in sorted(_BUNDLED.glob(f"*/{FILE_NAME}"))}


@dataclass(frozen=True, slots=True)
class BundledSet:
    title: str
    problems: Mapping[str, Path]
    """Directories of its problems by slug, in order."""


def bundled_sets() -> dict[str, BundledSet]:
    sets = {}
    for path in sorted(_BUNDLED.glob("sets/*/set.toml")):
        declared = tomllib.loads(path.read_text(encoding="utf-8"))
        problems = {slug: path.parent / slug for slug in declared["problems"]}
        sets[path.parent.name] = BundledSet(declared["title"], problems)
    return sets


def known_problems() -> dict[str, Path]:
    return bundled() | {slug: path for each in bundled_sets().values() for slug, path in each.problems.items()}


def load_problem(path: Path) -> Problem:
    """Return the problem in a directory; errors name files and lines."""
    try:
        definition = path / FILE_NAME if path.is_dir() else path
        exists = definition.is_file()
    except OSError as error:  # no permission, or the name is too long
        raise NotFoundError(
            f"{path} cannot be read: {error.strerror}.",
            remedy=f"Name a directory with a {FILE_NAME} that you may read.",
        ) from error
    if not exists:
        raise NotFoundError(
            f"there is no {definition}: expected a directory with a {FILE_NAME}.",
            remedy="'speciate problems init DIR' writes one to start from.",
        )
    try:
        text = read_sibling(definition.parent, definition.name)
    except UnreadableError as error:
        raise invalid(f"the problem in {definition.parent}", [FieldError(str(error), file=definition.name)]) from error
    parent = definition.parent

    def read(name: str) -> str:
        above = parent.resolve().parent  # bundled problems share files in the folder above theirs
        is_shared = above.is_relative_to(_BUNDLED) and not (parent / name).exists()
        return read_sibling(above if is_shared else parent, name)

    return _parse(text, read, definition.name, f"the problem in {parent}", partial(read_data, parent))


def with_own_names(text: str, problem: Problem, path: Path) -> str:
    """Return a text about the programs of a directory's problem with the author's file names, not the sandbox's."""
    definition = path / FILE_NAME if path.is_dir() else path
    raw = tomllib.loads(read_sibling(definition.parent, definition.name))
    files = {EVALUATOR: raw.get("evaluator"), problem.main_file: raw.get("seed")}
    own = {name: file for name, file in files.items() if isinstance(file, str) and "\n" not in file}
    names = "|".join(map(re.escape, own))
    return re.sub(rf"(?<![\w./-])(?:{names})(?!\w)", lambda match: own.get(match[0], ""), text)


def parse_problem(text: str, files: Mapping[str, str], *, file: str = FILE_NAME) -> Problem:
    """Return the problem of a TOML text and the texts of its files, by name; errors call the definition ``file``."""

    def read(name: str) -> str:
        if name not in files:
            raise UnreadableError(f"there is no file {name!r} beside {file}")
        return files[name]

    return _parse(text, read, file, "the problem")


def _parse(text: str, read: Reader, file: str, name: str, read_data: DataReader | None = None) -> Problem:
    if (over := limit_error(text)) is not None:
        raise invalid(name, [replace(over, file=file)])
    try:
        raw = tomllib.loads(text)
        places = toml_places(text)
    except tomllib.TOMLDecodeError as error:
        raise invalid(name, [_syntax_field_error(str(error), text, file)]) from error
    except ValueError as error:  # tomllib passes on errors of int(), without a place
        digits = _MANY_DIGITS.search(text)
        line = text.count("\n", 0, digits.start()) + 1 if digits else None
        raise invalid(name, [FieldError(TOO_MANY_DIGITS, file=file, line=line)]) from error
    siblings = Siblings({key: value for key, value in raw.items() if key in _KNOWN}, read, read_data)
    problem, mistakes = examine(siblings.definition)
    if siblings.field_errors:
        # Checks across fields would report the unreadable parts a second time.
        mistakes = [f for f in mistakes if f.where.partition(".")[0] not in ("", "kind", "cases")]
    unknown = [
        FieldError(f"unknown key {key!r}: expected one of {', '.join(_KNOWN)}", key) for key in raw if key not in _KNOWN
    ]
    field_errors = [*unknown, *siblings.field_errors, *map(siblings.place, mistakes)]
    if problem is None or field_errors:
        labelled = [replace(f, label=f.label or label_of(f.where, raw)) for f in field_errors]
        placed = [f if f.file else _placed(f, line_of(places, _path(f.where)), text, file) for f in labelled]
        raise invalid(name, sorted(placed, key=lambda f: (f.file != file, f.file or "", f.line or 0)))
    return problem


def _syntax_field_error(message: str, text: str, file: str) -> FieldError:
    place = _TOML_PLACE.search(message)
    line, column = (int(place[1]), int(place[2])) if place and place[1] else (text.count("\n") + 1, None)
    written = text.split("\n")[line - 1].strip() if column else ""
    hint = f", in {shorten(written)}" if written else ""
    hint += ": write texts in quotes" if _BARE_TEXT.fullmatch(written) else ""
    return FieldError(f"is not valid TOML: {_TOML_PLACE.sub('', message)}{hint}", file=file, line=line, column=column)


def _placed(field_error: FieldError, key_line: int, text: str, file: str) -> FieldError:
    """Return an error with its line in the TOML: the line of its key, or a line in the text that begins there."""
    opened = None
    if field_error.line is not None:  # computed only here: there may be thousands of other errors
        opened = _OPENED.search(text.split("\n")[key_line - 1])
    if field_error.line is None or opened is None:
        return replace(field_error, file=file, line=key_line, column=None)
    # A line break right after the quotes is not part of the text.
    return replace(field_error, file=file, line=key_line + field_error.line - (0 if opened[2] == "" else 1))


def _path(where: str) -> tuple[str | int, ...]:
    return tuple(int(part) if _INDEX.fullmatch(part) else part for part in where.split("."))
