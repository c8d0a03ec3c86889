"""Read the rows of a dataset's files strictly; errors name file, line and field."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from speciate.domain.errors import ConfigurationError, FieldError, InvalidInputError
from speciate.domain.problem import Problem
from speciate.domain.validation import validation_message
from speciate.domain.values import storable

_BATCH_ROWS: Final = 64


@dataclass(frozen=True, slots=True)
class DatasetRow:
    """One row of a dataset's file, with checked access to its values by paths such as ``paragraphs.0.title``."""

    file: str
    number: int
    """Line in a ``.jsonl`` file, else the row, counted from 1."""
    values: Mapping[str, object]

    def value(self, path: str) -> object:
        node: object = self.values
        for step in path.split("."):
            if isinstance(node, Mapping) and step in node:
                node = node[step]
            elif isinstance(node, list) and step.isdigit() and int(step) < len(node):
                node = node[int(step)]
            else:
                raise self.refusal(path, "it is missing")
        return node

    def text(self, path: str, most: int = 20_000, *, empty: bool = False) -> str:
        value = self.value(path)
        if not isinstance(value, str) or not (value.strip() or empty):
            raise self.refusal(path, f"expected a text, got {_kind(value)}")
        if len(value) > most:
            raise self.refusal(path, f"{len(value)} characters: expected at most {most}")
        return storable(value)

    def texts(self, path: str, least: int, most: int) -> list[str]:
        return [self.text(f"{path}.{i}") for i in range(self.length(path, least, most))]

    def whole(self, path: str) -> int:
        value = self.value(path)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.refusal(path, f"expected a whole number, got {_kind(value)}")
        return value

    def length(self, path: str, least: int, most: int) -> int:
        value = self.value(path)
        if not isinstance(value, list):
            raise self.refusal(path, f"expected a list, got {_kind(value)}")
        if not least <= len(value) <= most:
            raise self.refusal(path, f"{len(value)} entries: expected {least} to {most}")
        return len(value)

    def problem(self, definition: Mapping[str, object]) -> Problem:
        try:
            return Problem.model_validate(definition)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise self.refusal(place or "problem", f"invalid problem: {validation_message(first)}") from None

    def refusal(self, path: str, message: str) -> InvalidInputError:
        field_error = FieldError(message, where=path, file=self.file, line=self.number)
        return InvalidInputError(f"{field_error}.", field_errors=(field_error,))


def strict_json(text: str | bytes) -> Any:
    try:
        return json.loads(text, parse_constant=_finite, parse_float=_finite)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_rows(path: Path) -> Iterator[DatasetRow]:
    """Yield the rows of a ``.jsonl``, ``.json`` (one list) or ``.parquet`` file."""
    readers = {".parquet": _parquet, ".json": _list}
    number = 0
    try:
        for number, values in readers.get(path.suffix, _lines)(path):
            row = DatasetRow(path.name, number, values if isinstance(values, dict) else {})
            if row.values is not values:
                raise row.refusal("", f"expected an object, got {_kind(values)}")
            yield row
    except json.JSONDecodeError as error:
        field_error = FieldError(f"no JSON: {error.msg}", file=path.name, line=error.lineno, column=error.colno)
        raise InvalidInputError(f"{field_error}.", field_errors=(field_error,)) from None
    except (ValueError, OSError) as error:
        field_error = FieldError(f"after row {number}: {error}" if number else str(error), file=path.name)
        raise InvalidInputError(f"{field_error}.", field_errors=(field_error,)) from None


def files_of(task: str, folder: Path, names: str, pattern: str) -> list[Path]:
    """Return the files in a folder, at any depth, whose paths match a regular expression, in order."""
    files = [path for path in sorted(folder.rglob("*")) if re.search(pattern, path.relative_to(folder).as_posix())]
    if not files:
        raise InvalidInputError(
            f"{folder} contains no files of task {task!r}.",
            remedy=f"Expected: {names} (sources: docs/howto/train-on-your-data.md).",
        )
    return files


def _lines(path: Path) -> Iterator[tuple[int, object]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    yield number, strict_json(line)
                except json.JSONDecodeError as error:
                    error.lineno = number
                    raise


def _list(path: Path) -> Iterator[tuple[int, object]]:
    values = strict_json(path.read_bytes())
    if not isinstance(values, list):
        raise ValueError(f"expected a list of rows, got {_kind(values)}")  # noqa: TRY004 - of the file, not of a caller
    yield from enumerate(values, 1)


def _parquet(path: Path) -> Iterator[tuple[int, object]]:
    try:
        from pyarrow import parquet
    except ImportError:
        raise ConfigurationError(
            f"{path.name} is a Parquet file, and pyarrow is not installed.", remedy="pip install 'speciate[train]'."
        ) from None
    number = 0
    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=_BATCH_ROWS):
            for values in batch.to_pylist():
                number += 1
                yield number, values


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text} is not a JSON number")
    return value


def _kind(value: object) -> str:
    return "an empty text" if isinstance(value, str) else f"{type(value).__name__} {value!r}"[:60]
