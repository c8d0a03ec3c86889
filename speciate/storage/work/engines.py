"""Lease runs to the runners of engines, and book what the engines ask of the model."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.charge import Charge
from speciate.domain.errors import BudgetSpentError, ConflictError, UnavailableError
from speciate.domain.rollout import Rollout
from speciate.domain.run import RunState
from speciate.ids import uuid7
from speciate.ports.work import Commit, RunContext, WorkStore
from speciate.runs import ledger, stopping
from speciate.runs.engines import MAX_ATTEMPTS, ends_of
from speciate.schema.engines import EngineLease, EngineOutcome, EngineSession
from speciate.storage.candidates.insert import insert_rollouts
from speciate.storage.database import ScopedStore, guarded, with_new_id, with_retries
from speciate.storage.lookup import require_row
from speciate.storage.runs.locking import LockedRun, lock_progress
from speciate.storage.statements import Statements
from speciate.storage.work.effects import write_change

SQL = Statements(__file__)


@dataclass(slots=True)
class Reservation:
    """Tokens reserved for a request of the model; further attempts extend them."""

    request_id: UUID
    tokens: int
    ordinal: int
    """Ordinal of its batch, unique in the run."""


@dataclass
class EngineSessions(ScopedStore):
    """Sessions of engines: each is the right to propose the candidates of one run until its lease lapses."""

    work: WorkStore

    def acquire(
        self,
        *,
        holder: str,
        lease_s: float,
        engines: Sequence[str] = (),
        versions: Mapping[str, str],
        tournament_id: UUID | None = None,
        run_id: UUID | None = None,
    ) -> tuple[EngineSession | None, tuple[Commit, ...]]:
        """Lease the oldest run that waits for an engine, if any, to the token named ``holder``.

        A run whose sessions lapsed too often fails. The commits are to be published.
        """
        binds = {"project": self._home, "engines": list(engines), "run": run_id, "tournament": tournament_id}
        commits: list[Commit] = []
        for row in self._rows(SQL.waiting, binds):
            with guarded(f"engine of run {row.id}"):
                session, commit = self._begin(self.work.context(row.id), row.problem, holder, versions, lease_s)
                commits += [] if commit is None else [commit]
                if session is not None:
                    return session, tuple(commits)
        return None, tuple(commits)

    @with_retries
    def _begin(
        self, context: RunContext, name: str, holder: str, versions: Mapping[str, str], lease_s: float
    ) -> tuple[EngineSession | None, Commit | None]:
        run_id, engine = context.run_id, context.spec.engine or ""
        with self._engine.begin() as connection:
            locked = lock_progress(connection, run_id)
            earlier = connection.execute(SQL.earlier, {"run_id": run_id}).all()
            unfinished = [row for row in earlier if row.state == "open"]
            offered = locked.progress.state is RunState.RUNNING and locked.progress.stopping is None
            if not offered or any(row.held for row in unfinished):
                return None, None
            for row in unfinished:
                self._close(connection, locked, context, row.id, row.reserved_tokens, EngineOutcome.LAPSED)
            if len(earlier) >= MAX_ATTEMPTS:
                stopping.fail(locked, f"engine {engine} lost its runner {len(earlier)} times")
                return None, write_change(connection, locked)
            id_, attempt = uuid7(), len(earlier) + 1
            keys = {"id": id_, "run_id": run_id, "attempt": attempt, "holder": holder, "lease_s": lease_s}
            lease_until = connection.execute(SQL.begin, {**keys, "version": versions.get(engine, "")}).scalar_one()
            commit = write_change(connection, locked) if earlier else None
        problem, spec = context.problem, context.spec
        session = EngineSession(
            id=id_, run_id=run_id, attempt=attempt, lease_until=lease_until, engine=engine,
            engine_options=spec.engine_options, seed=spec.seed, evaluations=spec.budget.evaluations,
            evaluations_left=locked.progress.evaluations_left(spec.budget), tokens=spec.budget.tokens,
            model=context.proposer.model or context.proposer.slug, problem=name, title=problem.title,
            description=problem.description, seed_program=problem.seed_program, objectives=ends_of(problem),
            language="python" if problem.language is None else problem.language.name,
        )  # fmt: skip
        return session, commit

    def context(self, session_id: UUID) -> RunContext:
        """Return the run of a session; raises ``NotFoundError``."""
        run_id = self._value(SQL.run_of, {"id": session_id, "project": self._home})
        return self.work.context(require_row(run_id, f"engine session {session_id}"))

    def require_open(self, session_id: UUID) -> None:
        """Raise ``ConflictError`` if a session has ended or another runner has taken its run."""
        row = self._row(SQL.session, {"id": session_id})
        if row is None or row.state != "open":
            raise _ended(session_id, "unknown" if row is None else row.state)

    def evaluations_left(self, context: RunContext) -> int | None:
        """Return the evaluations that the budget of a run leaves besides those in flight; None without a limit."""
        left: int | None = self._value(SQL.evaluations_left, {"run_id": context.run_id})
        return left

    @with_retries
    def renew(self, session_id: UUID, lease_s: float) -> EngineLease:
        """Renew the lease of a session, unless its run does not run."""
        context = self.context(session_id)
        with self._engine.begin() as connection:
            progress = lock_progress(connection, context.run_id).progress
            left = progress.evaluations_left(context.spec.budget)
            if progress.state is not RunState.RUNNING:
                why = f"the run is {progress.state.value}" + (f": {progress.reason}" if progress.reason else "")
                return EngineLease(lease_until=None, evaluations_left=left, reason=why)
            until = connection.execute(SQL.renew, {"id": session_id, "lease_s": lease_s}).scalar_one_or_none()
        return EngineLease(
            lease_until=until, evaluations_left=left, reason="" if until else "another runner has the run"
        )

    @with_new_id
    def reserve(self, request_id: UUID, session_id: UUID, context: RunContext, tokens: int) -> Reservation:
        """Reserve the tokens of a request of the model.

        Raises:
            BudgetSpentError: The run has ended, or its budget does not hold the request.
            ConflictError: The session has ended, or the run is paused.
            UnavailableError: Requests in flight hold the rest of the budget.
        """
        with self._engine.begin() as connection:
            locked = lock_progress(connection, context.run_id)
            row = connection.execute(SQL.session, {"id": session_id}).one()
            if row.state != "open":
                raise _ended(session_id, row.state)
            if str(request_id) in row.requests:
                return Reservation(request_id, tokens, row.requests[str(request_id)])
            require_running(context, locked.progress.state)
            evaluations_left = locked.progress.evaluations_left(context.spec.budget)
            settled = locked.progress.model_copy(update={"reserved_tokens": 0})
            if evaluations_left == 0 or not settled.affords(context, tokens):
                raise BudgetSpentError(f"the budget of run {context.run_id} does not hold another request.")
            if not locked.progress.affords(context, tokens):  # others give back what they do not use
                raise UnavailableError("requests in flight hold the rest of the budget.")
            reservation = Reservation(request_id, tokens, locked.progress.batches)
            locked.progress.reserved_tokens += tokens
            locked.progress.batches += 1
            connection.execute(SQL.reserve, {"id": session_id, **asdict(reservation)})
            locked.save(connection)
            return reservation

    @with_retries
    def extend(self, session_id: UUID, context: RunContext, reservation: Reservation, tokens: int) -> bool:
        """Add the tokens of another attempt to a reservation; False if the budget does not hold them."""
        with self._engine.begin() as connection:
            locked = lock_progress(connection, context.run_id)
            if not locked.progress.affords(context, tokens):
                return False
            if not connection.execute(SQL.extend, {"id": session_id, **asdict(reservation), "tokens": tokens}).rowcount:
                return False  # the session has ended
            locked.progress.reserved_tokens += tokens
            locked.save(connection)
            reservation.tokens += tokens
            return True

    @with_retries
    def book(
        self, session_id: UUID, context: RunContext, reservation: Reservation, rollouts: Sequence[Rollout], lost: Charge
    ) -> Commit | None:
        """Book a request of the model in place of its reservation: its answers, and what was ``lost`` without one."""
        with self._engine.begin() as connection:
            locked = lock_progress(connection, context.run_id)
            if not connection.execute(SQL.book, {"id": session_id, **asdict(reservation)}).rowcount:
                return None  # it is booked, or the session has ended, which charged the reservation
            ledger.settle(locked.progress, context, reservation.tokens, rollouts)
            ledger.charge(locked.progress, lost)
            insert_rollouts(connection, context, reservation.request_id, reservation.ordinal, [*enumerate(rollouts)])
            return write_change(connection, locked)

    @with_retries
    def end(
        self,
        session_id: UUID,
        outcome: EngineOutcome,
        reason: str,
        *,
        processor_s: float = 0.0,
        refused: Mapping[str, int],
    ) -> Commit | None:
        """End a session and, unless it is released, its run. Ending it again changes nothing."""
        context = self.context(session_id)
        with self._engine.begin() as connection:
            locked = lock_progress(connection, context.run_id)
            row = connection.execute(SQL.session, {"id": session_id}).one()
            if row.state != "open":
                return None
            more = {"reason": reason, "processor_s": processor_s, "refused": dict(refused)}
            self._close(connection, locked, context, session_id, row.reserved_tokens, outcome, **more)
            if outcome is EngineOutcome.FINISHED:
                stopping.complete_proposed(locked, context, reason)
            elif outcome is EngineOutcome.FAILED and not locked.progress.state.ended:
                stopping.fail(locked, reason)
            return write_change(connection, locked)

    def _close(
        self,
        connection: sa.Connection,
        locked: LockedRun,
        context: RunContext,
        session_id: UUID,
        reserved_tokens: int,
        outcome: EngineOutcome,
        **more: object,
    ) -> None:
        """End a session; requests in flight may have used all that they had reserved."""
        locked.progress.reserved_tokens -= reserved_tokens
        ledger.charge(locked.progress, ledger.most_of(locked.progress, context, 0, reserved_tokens))
        values = {"reason": "", "processor_s": 0.0, "refused": {}, **more}
        connection.execute(SQL.end, {"id": session_id, "state": outcome.value, **values})


def require_running(context: RunContext, state: RunState) -> None:
    """Raise ``BudgetSpentError`` for a run that has ended, ``ConflictError`` for one that is paused."""
    if state.ended:
        raise BudgetSpentError(f"run {context.run_id} is {state.value}.")
    if state is not RunState.RUNNING:
        raise ConflictError(f"run {context.run_id} is {state.value}.", remedy="Resume it first.")


def _ended(session_id: UUID, state: str) -> ConflictError:
    return ConflictError(f"engine session {session_id} is {state}.", remedy="Acquire the run again.")
