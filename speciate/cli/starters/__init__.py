"""Small problems that work, one directory for each kind, for ``speciate problems init``."""

from __future__ import annotations

import re
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Final

from speciate.domain.errors import ConflictError, InvalidInputError

_SUFFIX: Final = ".txt"


class StarterKind(StrEnum):
    """The kinds of problems; the same words as ``speciate.domain.problem.ProblemKind``, which takes long to load."""

    CASES = "cases"
    EVALUATOR = "evaluator"
    DATA = "data"


def write_starter(directory: Path, kind: StarterKind) -> list[Path]:
    """Write the starting problem of a kind and return the files.

    Raises:
        ConflictError: The directory holds something, or cannot be written.
        InvalidInputError: Its name makes no problem name.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", directory.absolute().name.lower()).strip("-")[:80].strip("-")
    if not slug:
        raise InvalidInputError(f"{directory} makes no name for a problem.", remedy="Use letters or digits.")
    written = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise ConflictError(f"{directory} is not empty.", remedy="Name a directory that does not exist yet.")
        for source in sorted(files(__package__).joinpath(kind.value).iterdir(), key=lambda entry: entry.name):
            path = directory / source.name.removesuffix(_SUFFIX)
            path.write_text(source.read_text(encoding="utf-8").replace("@SLUG@", slug), encoding="utf-8")
            written.append(path)
    except OSError as error:
        raise ConflictError(f"{error.filename or directory} cannot be written: {error.strerror}.") from None
    return written
