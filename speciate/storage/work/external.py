"""Store external evaluations: requests of parked units, leases of external evaluators, and their results (ADR 38)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.candidate import ATTESTED, Evaluation, Failure, FailureKind
from speciate.domain.problem import Problem
from speciate.domain.reward import InvalidRewardsError
from speciate.domain.values import storable
from speciate.ids import uuid7
from speciate.ports.work import Commit, EvaluationRequest, Lease
from speciate.runs.external_evaluation import (
    MAX_EXTERNAL_ATTEMPTS,
    ExternalResult,
    attest,
    evaluation_json,
    measured_rewards,
    read_evaluation,
)
from speciate.schema.evaluations import (
    Acceptance,
    LeasedEvaluation,
    RenewedLease,
    SubmittedEvaluation,
    WaitingEvaluations,
)
from speciate.storage.database import ScopedStore, with_retries
from speciate.storage.lookup import read_stored
from speciate.storage.statements import Statements
from speciate.storage.work.effects import work_ref

SQL = Statements(__file__)


def park_unit(
    connection: sa.Connection, lease: Lease, requests: Sequence[EvaluationRequest], capabilities: Sequence[str]
) -> bool:
    """Store the requests of a unit and set it aside; False if its lease is lost. The run's progress must be locked."""
    rows = [
        {
            "id": str(uuid7()),
            "number": request.number,
            "program": "" if request.result else request.program,
            "program_hash": request.program_hash,
            "seed": request.seed,
            "measured": None if request.measured is None else evaluation_json(request.measured),
            "result": None if request.result is None else evaluation_json(request.result),
        }
        for request in requests
    ]
    keys = {"id": lease.work_id, "token": lease.token, "rows": rows, "capabilities": list(capabilities)}
    return connection.execute(SQL.park, keys).one_or_none() is not None


def read_external_results(connection: sa.Connection, work_id: UUID) -> dict[tuple[str, int], Evaluation]:
    """Return the results of a unit by program hash and seed."""
    rows = connection.execute(SQL.results, {"id": work_id})
    return {(row.program_hash, row.seed): read_evaluation(row.result) for row in rows}


@dataclass(frozen=True, slots=True)
class Submission:
    """A result that an external evaluator reports for an evaluation under a lease."""

    id: UUID
    lease: UUID
    result: ExternalResult


@dataclass
class ExternalEvaluations(ScopedStore):
    """Leases candidates to external evaluators and stores their results."""

    def __post_init__(self) -> None:
        self._problem = lru_cache(maxsize=256)(lambda id_: read_stored(Problem, self._value(SQL.problem, {"id": id_})))

    @with_retries
    def acquire(
        self,
        *,
        count: int,
        lease_s: float,
        holder: str,
        capabilities: Sequence[str] = (),
        problem_id: UUID | None = None,
        run_id: UUID | None = None,
    ) -> tuple[LeasedEvaluation, ...]:
        """Lease candidates that wait for an evaluation, oldest first, to the token named ``holder``.

        Problems that need more than the ``capabilities`` of the evaluator's machine are left out.
        """
        binds = {
            "count": count,
            "lease_s": lease_s,
            "holder": holder,
            "capabilities": list(capabilities),
            "problem": problem_id,
            "run": run_id,
            "project": self._home,
            "most": MAX_EXTERNAL_ATTEMPTS,
        }
        with self._engine.begin() as connection:
            rows = sorted(connection.execute(SQL.acquire, binds).all(), key=lambda row: str(row.id))
            of_runs = {
                row.id: row for row in connection.execute(SQL.problems_of_runs, {"runs": [*{r.run_id for r in rows}]})
            }
        return tuple(self._leased(row, of_runs[row.run_id]) for row in rows)

    def unleased(self, *, problem_id: UUID | None = None, run_id: UUID | None = None) -> tuple[WaitingEvaluations, ...]:
        """Return the candidates that wait for an evaluator, by problem version and needed capabilities."""
        binds = {"project": self._home, "problem": problem_id, "run": run_id}
        return tuple(WaitingEvaluations.model_validate(row._mapping) for row in self._rows(SQL.unleased, binds))

    def _leased(self, row: sa.Row[Any], of_run: sa.Row[Any]) -> LeasedEvaluation:
        problem = self._problem(of_run.problem_id)
        stage = problem.external_stage
        assert stage is not None  # noqa: S101 - only such problems have rows
        measured = None if row.measured is None else read_evaluation(row.measured)
        values = {
            "lease": row.lease_token,
            "problem_id": of_run.problem_id,
            "problem": of_run.name,
            "files": dict(sorted(problem.files_in(row.program).items(), key=lambda each: each[0] != problem.main_file)),
            "objectives": tuple(objective.name for objective in stage.objectives),
            "measured": {} if measured is None else measured_rewards(problem, measured),
        }
        return LeasedEvaluation.model_validate({**row._asdict(), **values})

    @with_retries
    def renew(self, leases: Sequence[tuple[UUID, UUID]], lease_s: float) -> tuple[RenewedLease, ...]:
        """Renew leases, given as ids and lease tokens. Zero seconds give the candidates back."""
        rows = [{"id": str(id_), "lease": str(lease)} for id_, lease in leases]
        with self._engine.begin() as connection:
            renewed = connection.execute(SQL.renew, {"leases": rows, "lease_s": lease_s, "project": self._home})
            until = {row.id: row.lease_until for row in renewed}
        return tuple(RenewedLease(id=id_, lease_until=until.get(id_)) for id_, _ in leases)

    @with_retries
    def submit(
        self, submissions: Sequence[Submission], *, by: str
    ) -> tuple[tuple[SubmittedEvaluation, ...], tuple[Commit, ...]]:
        """Store results, each once; an equal one with the same lease changes nothing, another one is refused.

        ``by`` is the name of the token, which the scores carry. Returns what became of each result, in order, and the
        commits to publish.
        """
        ids = [submission.id for submission in submissions]
        with self._engine.begin() as connection:
            rows = connection.execute(SQL.lock_evaluations, {"ids": ids, "project": self._home})
            locked = {row.id: row for row in rows}
            results: dict[UUID, Evaluation] = {}
            outcomes = tuple(self._judge(each, locked.get(each.id), results, by) for each in submissions)
            commits = _store(connection, results, [*{locked[id_].work_id for id_ in results}])
        return outcomes, commits

    def _judge(
        self, submission: Submission, row: sa.Row[Any] | None, results: dict[UUID, Evaluation], by: str
    ) -> SubmittedEvaluation:
        reason = ""
        if row is None:
            reason = "there is no such evaluation"
        elif (failure := submission.result.failure) is not None and failure.reserved:
            reason = f"the reason {failure.reason!r} is reserved for the service"
        elif row.lease_token != submission.lease:
            reason = "the lease belongs to another evaluator, or it lapsed and the candidate was leased again"
        elif row.state == "leased" and row.unit != "parked":
            reason = "its run has ended"
        else:
            measured = None if row.measured is None else read_evaluation(row.measured)
            booked = results.get(row.id) if row.result is None else read_evaluation(row.result)
            try:
                result = attest(self._problem(row.problem_id), measured, _storable(submission.result), by)
                if booked is None:
                    results[row.id] = result
                elif result != booked:
                    reason = "another result was booked with this lease before, and stays"
            except InvalidRewardsError as error:
                reason = str(error)
        status = Acceptance.REFUSED if reason else Acceptance.BOOKED
        return SubmittedEvaluation(id=submission.id, status=status, reason=reason)

    @with_retries
    def fail_lapsed(self) -> tuple[Commit, ...]:
        """Fail the candidates whose leases lapsed too often, and return the commits to publish."""
        detail = f"the external evaluation lost its evaluator {MAX_EXTERNAL_ATTEMPTS} times"
        failure = Failure(FailureKind.CRASHED, "worker_lost", detail)
        with self._engine.begin() as connection:
            rows = connection.execute(SQL.lapsed, {"most": MAX_EXTERNAL_ATTEMPTS}).all()
            results = {row.id: Evaluation(failure=failure, tier=ATTESTED) for row in rows}
            return _store(connection, results, [*{row.work_id for row in rows}])


def _store(connection: sa.Connection, results: dict[UUID, Evaluation], units: list[UUID]) -> tuple[Commit, ...]:
    """Store results and make the units ready that wait for no more."""
    if not results:
        return ()
    connection.execute(SQL.lock_units, {"units": units})
    rows = [{"id": str(id_), "result": evaluation_json(result)} for id_, result in results.items()]
    connection.execute(SQL.store_results, {"results": rows})
    return tuple(
        Commit(row.run_id, dispatch=(work_ref(row),))
        for row in connection.execute(SQL.make_ready, {"units": units}).all()
        if row.state == "running"
    )


def _storable(result: ExternalResult) -> ExternalResult:
    texts = {storable(name): storable(text) for name, text in result.feedback.items()}
    failure = result.failure
    if failure is not None:
        failure = Failure(failure.kind, storable(failure.reason), storable(failure.detail))
    return ExternalResult(result.rewards, failure, texts, result.wall_s)
