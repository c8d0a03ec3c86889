"""Read plain text files of a foreign directory, and nothing outside it."""

from __future__ import annotations

import re
import stat
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from speciate.domain.errors import FieldError, InvalidInputError, NotFoundError
from speciate.domain.files import PYTHON_MAIN
from speciate.domain.values import FILE_NAME
from speciate.problems.loader import FILE_NAME as DEFINITION
from speciate.problems.siblings import UnreadableError, read_sibling

SCRIPT: Final = "speciate_evaluate.py"
ADAPTER: Final = "speciate_adapter.py"

_TAKEN: Final = (DEFINITION, SCRIPT, ADAPTER, PYTHON_MAIN)
_MAX_ENTRIES: Final = 1000
_MAX_NAME: Final = 80
# Files about the problem that are not part of it; configurations of other systems may contain API keys.
_ABOUT: Final = re.compile(r"(?i).*\.(md|rst|ya?ml|ipynb|lock|sh)|requirements.*\.txt|licen[cs]e.*|pyproject\.toml")


def read_folder(
    folder: Path, needed: Sequence[str], *, without: Sequence[str] = ()
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the texts of a directory's files by name, and the reason for each file left out.

    Args:
        folder: The directory.
        needed: Required files.
        without: Files that configure the other system's search.

    Raises:
        NotFoundError: The directory or a required file does not exist.
        InvalidInputError: A required file cannot be used, a file has a reserved name, or there are too many files.
    """
    try:
        entries = list(islice(folder.iterdir(), _MAX_ENTRIES + 1))
    except OSError as error:
        raise NotFoundError(
            f"{folder} cannot be read: {error.strerror}.", remedy=f"Name a directory with {' and '.join(needed)}."
        ) from None
    names = sorted(path.name for path in entries)
    if missing := [name for name in needed if name not in names]:
        raise NotFoundError(
            f"{folder} contains no {missing[0]}.", remedy=f"Name a directory with {' and '.join(needed)}."
        )
    if len(entries) > _MAX_ENTRIES:
        raise refused(folder, FieldError(f"holds more than {_MAX_ENTRIES} files: expected those of one problem"))
    if taken := [name for name in names if name in _TAKEN]:
        raise refused(folder, FieldError("has a name that is reserved in imported problems: rename it", file=taken[0]))
    texts: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for name in names:
        if name.startswith((".", "__pycache__")) or name in without:
            continue
        try:
            texts[name] = read_plain(folder, name) if name in needed else _read_further(folder, name)
        except UnreadableError as error:
            if name in needed:
                raise refused(folder, FieldError(str(error), file=name)) from None
            left_out[name] = str(error)
    return texts, left_out


def read_plain(folder: Path, name: str) -> str:
    """Return the text of a file.

    Raises:
        UnreadableError: It is not a regular text file, or it is too large.
    """
    try:
        mode = (folder / name).lstat().st_mode
    except OSError as error:
        raise UnreadableError(f"cannot be read: {error.strerror}") from None
    if stat.S_ISLNK(mode):
        raise UnreadableError("is a link: expected the file itself")
    if not stat.S_ISREG(mode):
        raise UnreadableError("is a folder" if stat.S_ISDIR(mode) else "is not a regular file")
    try:
        return read_sibling(folder, name)
    except UnreadableError as error:
        raise UnreadableError(str(error).removeprefix(f"{name!r} ")) from None


def refused(folder: Path, field_error: FieldError) -> InvalidInputError:
    """Return the error for a directory that cannot be imported."""
    return InvalidInputError(f"{folder} cannot be imported: {field_error}.", field_errors=(field_error,))


def _read_further(folder: Path, name: str) -> str:
    if _ABOUT.fullmatch(name):
        raise UnreadableError("describes the problem but is not part of it")
    if not re.fullmatch(FILE_NAME, name) or len(name) > _MAX_NAME:
        raise UnreadableError("has a name that is not allowed for files of a problem")
    return read_plain(folder, name)
