"""Read the results of tournaments: reports from the summaries of ended runs, and every planned run for export."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import fmean
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np
import sqlalchemy as sa

from speciate.domain.arrays import FloatArray
from speciate.domain.errors import ConflictError
from speciate.domain.policy import Policy
from speciate.schema.declarations import TournamentRecord, TournamentRun
from speciate.storage.database import Store, reading, with_retries
from speciate.storage.declarations.summaries import versions_by_name
from speciate.storage.lookup import attested_sql, read_stored
from speciate.storage.statements import Statements
from speciate.tournaments import bundle
from speciate.tournaments.bundle import BundledPolicy, Declared, Versions
from speciate.tournaments.report.build import make_matrix, make_standings
from speciate.tournaments.report.measures import Execution
from speciate.tournaments.report.models import Matrix, ProblemFacts, Report, Standings
from speciate.tournaments.report.results import STATES, Results, last_line, missing_reason, plan_axes
from speciate.tournaments.report.run_summary import RUN_NUMBERS, budgets

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SQL = Statements(__file__, attested=attested_sql(""))
_HEADER_BYTES: Final = 20
_NUMBER: Final = np.dtype([("bytes", ">i4"), ("value", ">f8")])
_CHUNK: Final = 100_000
_EXPORT_CHUNK: Final = 2000


class TournamentResults(Store):
    def standings(self, record: TournamentRecord) -> Standings:
        return make_standings(record.schedule, record.amendments, self.read(record))

    def matrix(self, record: TournamentRecord) -> Matrix:
        """Return the successes by problem and entrant."""
        return make_matrix(record.schedule, self.read(record))

    def report(self, record: TournamentRecord) -> Report:
        return self._versions(record).report(record.schedule, record.amendments, self.read(record))

    def runs(self, record: TournamentRecord) -> Iterator[TournamentRun]:
        """Yield every planned run with its results, in the order of the plan, without holding them all."""
        entrants = {each.name: (each.searched_by, *each.role_labels()) for each in record.declaration.entrants}
        curve = slice(len(RUN_NUMBERS), len(RUN_NUMBERS) + len(budgets(record.declaration)))
        return (_run(record.slug, row, curve, *entrants[row.entrant]) for row in self._planned(record))

    def write_bundle(self, record: TournamentRecord, file: BinaryIO, key: Ed25519PrivateKey) -> None:
        """Write a tournament as a signed bundle; ``ConflictError`` unless it has ended."""
        if not record.state.ended:
            raise ConflictError(
                f"tournament {record.slug!r} is {record.state}, and a bundle holds final results.",
                remedy="Export it when it has ended, or cancel it.",
            )
        declaration = record.declaration.stored_json()
        declared = Declared(declaration=declaration, digest=record.digest, amendments=record.amendments)
        runs = (
            (*row[:-2], last_line(row.reason), *("" if math.isnan(each) else repr(each) for each in row.numbers or ()))
            for row in self._planned(record)
        )
        bundle.write(file, declared, self._versions(record), runs, key)

    def _planned(self, record: TournamentRecord) -> Iterator[sa.Row[Any]]:
        last, width = 0, len(Results.columns(record.declaration))
        while rows := self._rows(SQL.runs, {"id": record.id, "last": last, "limit": _EXPORT_CHUNK, "width": width}):
            yield from rows
            last = rows[-1].ord

    @with_retries
    def read(self, record: TournamentRecord) -> Results:
        """Return the results of all ended runs."""
        schedule = record.schedule
        results, axes = Results.empty(schedule), plan_axes(schedule)
        keys = {"id": record.id, "now": record.revision, "width": len(Results.columns(record.declaration))}
        with reading(self._engine) as connection:
            parts = [
                connection.execute(SQL.ended, {**keys, "first": first, "most": _CHUNK}).one()
                for first in range(0, results.state.size, _CHUNK)
            ]
            missing = connection.execute(SQL.reasons, keys).all()
        for part in parts:
            if part.numbers is not None:
                states = np.array([STATES[state] for state in part.states], dtype=np.int8)
                names = zip(axes, (part.problems, part.seeds, part.entrants), strict=True)
                at = tuple(np.array([axis[name] for name in column], dtype=np.int64) for axis, column in names)
                results.fill(at, states, _unpacked(part.numbers, len(states)))
        for row in missing:
            p, s, e = (axis[name] for axis, name in zip(axes, (row.problem, row.seed, row.entrant), strict=True))
            results.reasons[p, s, e] = missing_reason(row.state, row.reason)
        return results

    def _versions(self, record: TournamentRecord) -> Versions:
        schedule = record.schedule
        names = [name for entrant in schedule.declared.entrants for name in entrant.policy_names]
        problems = self._rows(SQL.problems, {"id": record.id, **versions_by_name(schedule.problems)})
        policies = self._rows(SQL.policies, {"id": record.id, **versions_by_name(names)})
        executions = {row.entrant: row for row in self._rows(SQL.executions, {"id": record.id})}
        return Versions(
            problems={row.name: _problem_facts(row, schedule.declared.target) for row in problems},
            policies={
                row.name: BundledPolicy(digest=row.digest, definition=read_stored(Policy, row.definition).hashed())
                for row in policies
            },
            executions=tuple(
                Execution.model_validate(executions[entrant.name]._asdict())
                for entrant in record.declaration.entrants
                if entrant.name in executions
            ),
        )


def _unpacked(raw: bytes, rows: int) -> FloatArray:
    """Decode arrays of one length as ``array_send`` encodes them; shape (rows, width)."""
    table = np.frombuffer(raw, dtype=np.uint8).reshape(rows, -1)[:, _HEADER_BYTES:]
    numbers: FloatArray = np.ascontiguousarray(table).view(_NUMBER)["value"].astype(np.float64)
    return numbers


def _problem_facts(row: sa.Row[Any], target: str | None) -> ProblemFacts:
    unlock = next(each["name"] for each in row.targets if each["unlock"])
    return ProblemFacts.model_validate({**row._asdict(), "target": target or unlock})


def _run(slug: str, row: sa.Row[Any], curve: slice, strategy: str, policy: str, mutator: str | None) -> TournamentRun:
    numbers = dict(zip(RUN_NUMBERS, row.numbers or (), strict=False))
    numbers |= {"score_margin": row.numbers[-1], "area": fmean(row.numbers[curve])} if row.numbers else {}
    return TournamentRun.model_validate(
        row._asdict()
        | {
            "tournament": slug,
            "number": row.ord,
            "policy": policy,
            "mutator": mutator,
            "strategy": strategy,
            "state": row.state or ("planned" if row.run_id is None else "started"),
            **{name: None if math.isnan(value) else value for name, value in numbers.items()},
        }
    )
