"""Display runs, their best candidate and their front in notebooks. Text from models and users is escaped."""

from collections.abc import Iterable, Sequence
from html import escape
from importlib import import_module
from typing import Any, Final

from speciate import schema
from speciate.domain.errors import ConfigurationError
from speciate.domain.numbers import short_number
from speciate.domain.objective import ObjectiveRole
from speciate.domain.problem import Problem
from speciate.schema.runs import RankedCandidate, RunRecord

_MAX_ROWS: Final = 100


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


def candidate_html(problem: Problem, candidate: schema.candidates.CandidateDetail) -> str:
    rewards = candidate.rewards or {}
    vector = tuple(rewards[name] for name in problem.space.names)
    values = [
        (o.directed, short_number(rewards[o.name]), "" if o.role is ObjectiveRole.OBJECTIVE else o.role.value)
        for o in problem.objectives
    ]
    targets = []
    for i, target in enumerate(problem.targets):
        missing = "; ".join(map(str, problem.ranking.missing(i, vector)))
        state = "met" if target.name in candidate.targets else missing or "not met"
        targets.append((f"{target.name}{' (unlocks)' if target.unlock else ''}", target.rule, state))
    programs = "".join(
        f"<details open><summary>{escape(name)}</summary><pre>{escape(text)}</pre></details>"
        for name, text in problem.files_in(candidate.program).items()
    )
    head = f"<p><b>Candidate {candidate.number:,}</b> of run {escape(str(candidate.run_id))}</p>"
    tables = _table(("reward", "value", "role"), values) + _table(("target", "rule", "state"), targets)
    return head + tables + programs


class Front(tuple[RankedCandidate, ...]):
    """The Pareto front, best candidate first; a notebook shows it as a table."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        names = list(self[0].rewards) if self else []
        rows = [
            (str(each.number), *(short_number(value) for value in each.rewards.values()), ", ".join(each.targets))
            for each in self[:_MAX_ROWS]
        ]
        more = f"<p>The first {_MAX_ROWS} of {len(self):,}.</p>" if len(self) > _MAX_ROWS else ""
        return _table(("candidate", *names, "meets"), rows) + more


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


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th scope='col'>{escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _count(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
