"""Read the files of a foreign directory and its folders, and nothing outside it."""

import os
import posixpath
import re
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Final

from speciate.domain.errors import FieldError, InvalidInputError, NotFoundError
from speciate.domain.files import PYTHON_MAIN
from speciate.domain.values import FILE_PATH
from speciate.problems.loader import FILE_NAME as DEFINITION
from speciate.problems.lockfile import UnreadableError
from speciate.problems.siblings import read_data, read_sibling

SCRIPT: Final = "speciate_evaluate.py"
ADAPTER: Final = "speciate_adapter.py"

RESERVED: Final = (DEFINITION, SCRIPT, ADAPTER, PYTHON_MAIN)
"""Names of the files that an import writes, and of a candidate in the folder of the evaluator."""
_MAX_ENTRIES: Final = 1000
_MAX_DEPTH: Final = 8
_MAX_PATH: Final = 160
_MAX_ALL_BYTES: Final = 8 << 20
"""Bytes of all files together: the definition is one request to the service."""
# Files about the problem that are not part of it; configurations of other systems may contain API keys.
_CONFIGURATION: Final = re.compile(r"(?i).*\.ya?ml|\.env.*")
_ABOUT: Final = re.compile(
    r"(?i).*\.(md|rst|ipynb|lock|sh|png|jpe?g|gif|svg|pdf)|requirements.*\.txt|licen[cs]e.*|pyproject\.toml|dockerfile"
)
_SOLUTION: Final = re.compile(r"(?i)(best|evolved|solutions?|checkpoints?|outputs?|results?)([_.-].*)?|.*[_-]best\..*")
_DESCRIBES: Final = "describes the problem but is not part of it"
_NOT_A_NAME: Final = (
    "has a name that is not allowed for files of a problem: use ASCII letters, digits, dots, hyphens, underscores"
)
_CONFIGURES: Final = "configures another system and may hold keys"
_SOLVES: Final = "may contain published solutions, and the evaluator does not name it"
INCLUDABLE: Final = frozenset({_DESCRIBES, _CONFIGURES, _SOLVES})
"""Reasons for leaving out a file that the user can overrule."""


def read_folder(
    folder: Path,
    needed: Sequence[str],
    *,
    without: Sequence[str] = (),
    evaluator: str | None = None,
    include: Sequence[str] = (),
    alone: bool = False,
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the contents of a directory's files by path, as for data files of a problem, and why others are left out.

    Args:
        needed: Paths of required files, which must be texts.
        without: Files that configure the other system's search.
        evaluator: Path of the evaluator, by default the last of ``needed``. Documents and published solutions are left
            out unless its text names them.
        include: Patterns of files and folders that are taken in any case.
        alone: Take only files and folders that the evaluator names, itself or in modules that it names: a user's folder
            holds much that neither candidates nor models should see.
    """
    files, left_out, remaining = _read_needed(folder, needed), dict[str, str](), _MAX_ALL_BYTES
    named = files[evaluator or needed[-1]]
    patterns = _Patterns(include, _named_beside(folder, named) if alone else None)
    for path in _walk(folder, named, needed, patterns, left_out):
        included = patterns.match(path)
        if path in needed:
            continue
        if path in without and not included:
            if path in named:
                left_out[path] = _CONFIGURES
            continue
        try:
            files[path] = _read_further(folder, path, None if included else named, remaining)
            remaining -= len(files[path])
        except UnreadableError as error:
            if included:
                raise refused(folder, error, path) from None
            left_out[path] = str(error)
    if unused := patterns.unused:
        raise NotFoundError(f"--include {unused[0]!r} matches no file in {folder}.", remedy="Name paths within it.")
    return files, left_out


def _read_needed(folder: Path, needed: Sequence[str]) -> dict[str, str]:
    if missing := [name for name in needed if not os.path.lexists(folder / name)]:
        described = f"{folder} contains no {missing[0]}." if folder.is_dir() else f"{folder} is not a directory."
        raise NotFoundError(described, remedy=f"Name a directory with {' and '.join(needed)}.")
    texts = {}
    for name in needed:
        try:
            texts[name] = read_plain(folder, name)
        except UnreadableError as error:
            raise refused(folder, error, name) from None
    return texts


def _named_beside(folder: Path, text: str) -> set[str]:
    """Return the names in a folder that an evaluator names, or a module that it names."""
    names, texts, named = {each.name for each in folder.iterdir() if each.name[0] != "."}, [text], set[str]()
    while texts:
        text = texts.pop()
        for name in [name for name in names - named if _names(text, name)]:
            named.add(name)
            for path in (folder / name, *(folder / name).rglob("*.py")):
                if path.suffix == ".py":
                    with suppress(UnreadableError):
                        texts.append(read_plain(folder, path.relative_to(folder).as_posix()))
    return named


class _Patterns:
    """Patterns of files to include: a path, a folder with all that is in it, or a glob of paths or of names."""

    def __init__(self, patterns: Sequence[str], only: Collection[str] | None) -> None:
        self.unused = [*patterns]
        self._only = only  # names in the folder itself
        self._patterns = {pattern: "*" if pattern == "." else posixpath.normpath(pattern) for pattern in patterns}

    def match(self, path: str) -> bool:
        places = [path, *(str(parent) for parent in PurePosixPath(path).parents), path.rpartition("/")[2]]
        hits = [p for p, plain in self._patterns.items() if any(fnmatchcase(place, plain) for place in places)]
        self.unused = [pattern for pattern in self.unused if pattern not in hits]
        return bool(hits)

    def omit(self, path: str) -> bool:
        """Return True for what is neither included nor among the only names to take."""
        if self._only is None or path.partition("/")[0] in self._only:
            return False
        return not self.match(path) and not self.lead_into(path)

    def lead_into(self, folder: str) -> bool:
        parts = folder.split("/")
        return any(all(map(fnmatchcase, parts, plain.split("/"))) for plain in self._patterns.values())


def path_within(folder: Path, path: str, option: str) -> str:
    """Return a path within a directory, given from there or from the working directory."""
    top = Path(os.path.abspath(folder))  # noqa: PTH100  # links are refused later, so they are not resolved
    for place in (top / path, Path(path)):
        whole = Path(os.path.abspath(place))  # noqa: PTH100
        if whole.is_relative_to(top) and os.path.lexists(whole):
            relative = whole.relative_to(top).as_posix()
            if not re.fullmatch(FILE_PATH, relative):
                raise refused(folder, _NOT_A_NAME, relative)
            return relative
    raise NotFoundError(
        f"{option} is {path}: {folder} contains no such file.", remedy="Name a directory with both files."
    )


def read_plain(folder: Path, name: str) -> str:
    """Return the text of a file; ``UnreadableError`` if it is not a regular text file, or too large."""
    _require_plain(folder, name)
    try:
        return read_sibling(folder, name)
    except UnreadableError as error:
        raise UnreadableError(str(error).removeprefix(f"{name!r} ")) from None


def optional_text(folder: Path, name: str) -> str:
    """Return the text of a file, or an empty one if it cannot be read."""
    try:
        return read_plain(folder, name)
    except UnreadableError:
        return ""


def refused(folder: Path, message: object, file: str | None = None, where: str = "") -> InvalidInputError:
    field_error = FieldError(str(message), where, file=file)
    return InvalidInputError(f"{folder} cannot be imported: {field_error}.", field_errors=(field_error,))


def _walk(
    folder: Path, named: str, needed: Sequence[str], patterns: _Patterns, left_out: dict[str, str]
) -> Iterator[str]:
    """Yield the paths of all files but hidden ones, and note the folders that are left out."""
    pending, count = [folder], 0
    while pending:
        try:
            entries = sorted(pending.pop(0).iterdir())
        except OSError as error:
            left_out[Path(str(error.filename)).name] = f"cannot be read: {error.strerror}"
            continue
        for entry in entries:
            path = entry.relative_to(folder).as_posix()
            if patterns.omit(path):
                continue
            count += 1
            if count > _MAX_ENTRIES:
                raise refused(folder, f"holds more than {_MAX_ENTRIES} files: expected those of one problem")
            if path in RESERVED and path != needed[0]:
                raise refused(folder, "has a name that is reserved in imported problems: rename it", path)
            if entry.name.startswith((".", "__pycache__")):
                continue
            wanted = patterns.lead_into(path) or any(name.startswith(f"{path}/") for name in needed)
            too_deep = f"is nested more than {_MAX_DEPTH} deep" if path.count("/") >= _MAX_DEPTH else None
            if entry.is_symlink() or not entry.is_dir():
                yield path
            elif not wanted and (reason := too_deep or _why_hidden(path, named)):
                left_out[path] = reason
            else:
                pending.append(entry)


def _why_hidden(path: str, named: str) -> str | None:
    """Return the reason for hiding a published solution from candidates, or None if the evaluator names it."""
    name = path.rpartition("/")[2]
    return _SOLVES if _SOLUTION.fullmatch(name) and not _names(named, name) else None


def _names(text: str, name: str) -> bool:
    """Return True if an evaluator names a file, with or without its suffix."""
    return re.search(rf"(?<![\w.]){re.escape(name.partition('.')[0])}(?!\w)", text) is not None


def _require_plain(folder: Path, name: str) -> None:
    try:
        mode = (folder / name).lstat().st_mode
    except OSError as error:
        raise UnreadableError(f"cannot be read: {error.strerror}") from None
    if stat.S_ISLNK(mode):
        raise UnreadableError("is a link: expected the file itself")
    if not stat.S_ISREG(mode):
        raise UnreadableError("is a folder" if stat.S_ISDIR(mode) else "is not a regular file")


def _read_further(folder: Path, path: str, named: str | None, limit: int) -> str:
    """Return the content of a file; ``named`` is the evaluator, which decides about some, or None to take any."""
    name = path.rpartition("/")[2]
    if named is not None:
        if _CONFIGURATION.fullmatch(name):
            raise UnreadableError(_CONFIGURES)
        if _ABOUT.fullmatch(name) and name not in named:
            raise UnreadableError(_DESCRIBES)
        if reason := _why_hidden(path, named):
            raise UnreadableError(reason)
    if not re.fullmatch(FILE_PATH, path) or len(path) > _MAX_PATH:
        raise UnreadableError(_NOT_A_NAME)
    _require_plain(folder, path)
    try:
        content = read_data(folder, path)[path]
    except UnreadableError as error:
        raise UnreadableError(str(error).removeprefix(f"{path!r} ")) from None
    if len(content) > limit:
        raise UnreadableError(f"exceeds {_MAX_ALL_BYTES >> 20} MiB together with the other files")
    return content
