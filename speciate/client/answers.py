"""The best candidate and the front of a run as notebooks show them. Text from models and users is escaped."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from speciate.domain.numbers import short_number
from speciate.domain.objective import ObjectiveRole
from speciate.domain.problem import Problem
from speciate.schema.candidates import CandidateDetail
from speciate.schema.runs import RankedCandidate

_MAX_ROWS: Final = 100


def candidate_html(problem: Problem, candidate: CandidateDetail) -> str:
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


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th scope='col'>{escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"
