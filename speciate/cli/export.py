"""Write records to JSON Lines, CSV or Parquet files, atomically."""

import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final, Union, get_args, get_origin

from speciate.domain.errors import ConfigurationError, ConflictError
from speciate.domain.values import spreadsheet_text
from speciate.schema.base import Record

_CHUNK_ROWS: Final = 10_000


def write_records(path: Path, kind: str, model: type[Record], records: Iterable[Record]) -> None:
    """Write records of one model as a table, replacing an existing file atomically."""
    with replaced_file(path) as part:
        WRITERS[kind](part, model, iter(records))


@contextmanager
def replaced_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same directory that replaces ``path`` at the end."""
    part = path.parent / f"{path.name}.part"
    try:
        if path.is_dir():  # before the records are read
            raise ConflictError(f"{path} cannot be written: it is a directory.")
        yield part
        os.replace(part, path)  # noqa: PTH105
    except OSError as error:
        raise ConflictError(f"{path} cannot be written: {error.strerror}.") from None
    finally:
        with suppress(OSError):  # none was written
            part.unlink()


def _json_lines(path: Path, _: type[Record], records: Iterator[Record]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(record.model_dump_json() + "\n" for record in records)


def _csv(path: Path, model: type[Record], records: Iterator[Record]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(model.model_fields)
        rows.writerows([_cell(value) for value in record.model_dump(mode="json").values()] for record in records)


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return _text(value)
    return spreadsheet_text(value) if isinstance(value, str) else value


def _parquet(path: Path, model: type[Record], records: Iterator[Record]) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ConfigurationError(
            "writing Parquet requires pyarrow, which is not installed.",
            remedy="Run `pip install 'speciate[parquet]'`, or choose another format.",
        ) from None
    types = {bool: pa.bool_(), int: pa.int64(), float: pa.float64()}
    fields = [(name, types.get(_plain(field.annotation), pa.string())) for name, field in model.model_fields.items()]
    schema = pa.schema(fields)
    texts = {name for name, kind in fields if kind == pa.string()}
    with pq.ParquetWriter(path, schema) as writer:
        while chunk := list(islice(records, _CHUNK_ROWS)):
            dumped = [record.model_dump(mode="json") for record in chunk]
            rows = [{k: _text(v) if k in texts else v for k, v in row.items()} for row in dumped]
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))


def _plain(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, type(int | None)):
        (kind,) = (each for each in get_args(annotation) if each is not type(None))
        return kind
    return annotation


def _text(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    return " + ".join(each if isinstance(each, str) else json.dumps(each) for each in value)


WRITERS: Final[dict[str, Callable[[Path, type[Record], Iterator[Record]], None]]] = {
    "jsonl": _json_lines,
    "csv": _csv,
    "parquet": _parquet,
}
"""Writer by file name extension."""
