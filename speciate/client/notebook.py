"""Display runs in notebooks. Text from models and users is escaped."""

from collections.abc import Iterable
from html import escape
from importlib import import_module
from typing import Any

from speciate import schema
from speciate.domain.errors import ConfigurationError
from speciate.domain.numbers import short_number
from speciate.schema.runs import RunRecord


def progress(record: RunRecord) -> str:
    parts = [
        f"{_count(spent)} of {_count(limit)} {unit}" for unit, spent, limit in record.spending if limit is not None
    ]
    return ", ".join(parts)


def html(record: RunRecord) -> str:
    rows = [
        ("run", str(record.id)),
        *((("name", record.name),) if record.name else ()),
        *((("tags", " ".join(record.tags)),) if record.tags else ()),
        ("problem", f"{record.problem}@{record.problem_version}"),
        ("policy", f"{record.policy}@{record.policy_version}"),
        ("strategy", record.spec.searched_by),
        ("state", record.state.value + (f": {record.reason}" if record.reason else "")),
        ("spent", progress(record)),
        *(
            (f"best {name}", short_number(value))
            for name, value in (record.best.rewards if record.best else {}).items()
        ),
        ("reached", ", ".join(record.reached) or "nothing yet"),
        *((("alarm", record.alarm),) if record.alarm else ()),
    ]
    cells = "".join(f"<tr><th scope='row'>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    return f"<table>{cells}</table>"


def rows(candidates: Iterable[schema.candidates.CandidateRecord]) -> list[dict[str, Any]]:
    """Return candidates by number, with a key ``reward.NAME`` for each objective."""
    ordered = sorted(candidates, key=lambda candidate: candidate.number)
    return [
        each.model_dump(mode="python", exclude={"rewards"})
        | {f"reward.{name}": value for name, value in (each.rewards or {}).items()}
        for each in ordered
    ]


def frame(table: list[dict[str, Any]]) -> Any:
    try:
        pandas = import_module("pandas")
    except ImportError as error:
        raise ConfigurationError("to_pandas() needs pandas.", remedy="Install it with `pip install pandas`.") from error
    columns = [*schema.candidates.CandidateRecord.model_fields.keys() - {"rewards"}] if not table else None
    return pandas.DataFrame(table, columns=columns)


def _count(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
