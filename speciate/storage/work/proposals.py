"""Take proposals and hints from outside the service, and hand out prompts (ADR 38)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from speciate.domain.candidate import Failure
from speciate.domain.errors import ConflictError
from speciate.domain.policy import PolicyRole
from speciate.domain.problem import OUTPUT, Problem
from speciate.domain.rollout import Prompt
from speciate.domain.run import RunState
from speciate.domain.values import digest_of, storable
from speciate.ids import uuid7
from speciate.ports.work import Commit, RunContext, WeightedPolicy, WorkStore
from speciate.prompts.failures import cause_of, note_text
from speciate.prompts.render import summary_text
from speciate.runs import ledger, stopping
from speciate.runs.external_proposals import (
    ReadProposal,
    StoredAsk,
    admit,
    ask_record,
    flaw_of,
    next_step,
    plan_asks,
    read_proposal,
    require_open,
    standing_text,
    without_secrets,
)
from speciate.runs.lanes import EXTERNAL_LANE
from speciate.schema.candidates import CandidateDetail
from speciate.schema.proposals import (
    AskRecord,
    ProposalReceipt,
    ProposalRecord,
    ProposalState,
    ProposedCandidate,
    ReceiptStatus,
)
from speciate.search.strategy import Selection
from speciate.storage import tables
from speciate.storage.candidates import population
from speciate.storage.candidates.insert import insert_rollouts
from speciate.storage.candidates.rows import columns_except, to_row
from speciate.storage.database import ScopedStore, reading, with_new_id
from speciate.storage.idempotency import claim_key, scoped_key
from speciate.storage.runs.advice import insert_hint
from speciate.storage.runs.context import record_proposer
from speciate.storage.runs.locking import lock_progress
from speciate.storage.runs.queries import RunQueries
from speciate.storage.statements import Statements
from speciate.storage.work.effects import write_change

SQL = Statements(__file__)
_ANSWERS = {ReceiptStatus.ACCEPTED, ReceiptStatus.DUPLICATE}
"""Of a receipt for an answer after which its prompt takes no other."""
_ASKED = columns_except(tables.runs.asks, "run_id", "created_at")


@dataclass
class Proposals(ScopedStore):
    """Takes proposals of agents and people, and hands out the prompts that the run's own policies would receive."""

    work: WorkStore
    queries: RunQueries

    def ask(
        self, run_id: UUID, policy: WeightedPolicy, *, count: int, author: str, parents: Sequence[int] = ()
    ) -> tuple[AskRecord, ...] | None:
        """Return prompts and store what their answers will inherit; None while the run evaluates its seed programs.

        ``policy`` determines the form of the answers. ``parents`` are the candidates to change; by default the latest
        candidate of the ``author`` if it failed and no prompt has shown it, then those that the run's strategy selects.

        Raises:
            ConflictError: The run takes no proposals now, or has no evaluation left.
            InvalidInputError: A parent does not exist.
        """
        run = self._rows(SQL.run_state, {"id": run_id, "author": author})[0]
        context = self.work.context(run_id)
        self._require_independent(run_id, policy if context.waits_for_proposals else None)
        require_open(run_id, RunState(run.state), run.reason)
        if context.seed_programs and not run.evaluations:
            return None
        if run.evaluations_left == 0:
            raise ConflictError(
                f"the budget of run {run_id} leaves no evaluations, besides those in flight.",
                remedy="Wait for their results.",
            )
        asks = plan_asks(
            context,
            self.work,
            policy.policy,
            [uuid7() for _ in range(count)],
            batch=run.batches,
            hinted=run.hinted,
            parents=parents,
            own=run.own,
        )
        rows = [to_row(_ASKED, ask.shown, ask.shown.prompt, ask.selection, ask, id=str(ask.id)) for ask in asks]
        self._execute(SQL.insert_asks, {"run_id": run_id, "asks": rows})
        return tuple(ask_record(context, ask) for ask in asks)

    @with_new_id
    def propose(
        self,
        request_id: UUID,
        run_id: UUID,
        policy: WeightedPolicy,
        sent: Sequence[ProposedCandidate],
        *,
        author: str,
        idempotency_key: str | None = None,
    ) -> tuple[tuple[ProposalReceipt, ...], Commit | None]:
        """Add proposals to a run, in order, as far as its budget allows; the commit is None if none was added.

        ``author`` is the name of the token. A repeated idempotency key returns the receipts of the first request;
        ``ConflictError`` if that differed, or the run takes no proposals now.
        """
        context = self.work.context(run_id)
        # Before the transaction, which must not wait for a second connection.
        self._require_independent(run_id, policy if context.waits_for_proposals else None)
        proposals, duplicates = self._read(context, policy, sent, author)
        with self._engine.begin() as connection:
            locked = lock_progress(connection, run_id)
            if idempotency_key is not None:
                key = scoped_key(self._home, f"proposals {run_id} {idempotency_key}")
                digest = digest_of([policy.policy_id.hex, [repr(each) for each in sent]])
                first_id = claim_key(connection, key, digest, request_id)
                # Stored, too, if this is the repetition after a lost answer.
                stored = connection.execute(SQL.receipts, {"id": first_id}).scalar_one_or_none()
                if stored is not None:
                    return tuple(ProposalReceipt.model_validate(each) for each in stored), None
            require_open(run_id, locked.progress.state, locked.progress.reason)
            if stopping.out_of_time(locked.progress, context):
                raise ConflictError(f"run {run_id} takes no proposals: its budget of seconds is spent.")
            answered = self._answered(connection, run_id, sent)
            read = [answered[i] or proposal for i, proposal in enumerate(proposals)]
            admission = admit(context, locked, request_id, read, duplicates)
            commit = None
            for ordinal, rollouts in admission.rollouts.items():
                insert_rollouts(connection, context, request_id, ordinal, rollouts)
            if admission.rollouts:
                if policy.policy_id != context.proposer_id:
                    record_proposer(connection, run_id, policy.policy_id)
                commit = write_change(connection, locked)
            for i, each in enumerate(sent):
                own = [receipt for receipt in admission.receipts if receipt.index == i]
                if each.ask is not None and not answered[i] and {receipt.status for receipt in own} & _ANSWERS:
                    answer = {"digest": _digest(each), "receipts": [receipt.model_dump(mode="json") for receipt in own]}
                    connection.execute(SQL.insert_receipts, {"id": each.ask, "run_id": run_id, "receipts": answer})
            if idempotency_key is not None:
                receipts = [receipt.model_dump(mode="json") for receipt in admission.receipts]
                connection.execute(SQL.insert_receipts, {"id": request_id, "run_id": run_id, "receipts": receipts})
        return admission.receipts, commit

    def _answered(
        self, connection: Connection, run_id: UUID, sent: Sequence[ProposedCandidate]
    ) -> list[tuple[ProposalReceipt, ...] | str]:
        """Return, for each proposal to a prompt that has an answer, its receipts if it is the same, else the refusal.

        What answers no prompt, or is the first answer, has an empty one. An answer that was rejected does not count.
        """
        ids = [each.ask for each in sent]
        rows = connection.execute(SQL.ask_answers, {"run_id": run_id, "ids": [id_ for id_ in ids if id_ is not None]})
        stored = {row.id: row.answer for row in rows}
        answered: list[tuple[ProposalReceipt, ...] | str] = []
        for i, each in enumerate(sent):
            earlier = stored.get(each.ask)
            if each.ask is not None and each.ask in ids[:i]:
                answered.append(f"prompt {each.ask} has another answer in this request: ask for a prompt for each")
            elif earlier is None:
                answered.append("")
            elif earlier["digest"] == _digest(each):
                receipts = map(ProposalReceipt.model_validate, earlier["receipts"])
                answered.append(tuple(receipt.model_copy(update={"index": i}) for receipt in receipts))
            else:
                number = earlier["receipts"][0]["number"]
                answered.append(
                    f"prompt {each.ask} is answered by candidate {number} already: ask again, or name parents instead"
                )
        return answered

    def _read(
        self, context: RunContext, policy: WeightedPolicy, sent: Sequence[ProposedCandidate], author: str
    ) -> tuple[list[ReadProposal | str], dict[str, int]]:
        """Return each proposal as read, or why it is refused, and the run's candidates by program hash."""
        with reading(self._engine) as connection:
            ids = [each.ask for each in sent if each.ask is not None]
            rows = connection.execute(SQL.asks, {"run_id": context.run_id, "ids": ids}) if ids else ()
            asks = {row.id: _stored_ask(row) for row in rows}
            numbers = [number for each in sent for number in (*each.parents, *each.inspirations)]
            for shown in (ask.selection for ask in asks.values()):
                numbers += [*shown.parents, *shown.inspirations]
            if asks and (best := population.standing(connection, context.run_id).best) is not None:
                numbers.append(best)  # a prompt shows it, too
            members = population.members(connection, context.run_id, numbers)
        proposals = [read_proposal(context, policy, each, author, asks, members) for each in sent]
        hashes = [child.program_hash for each in proposals if not isinstance(each, str) for child in each.children]
        with reading(self._engine) as connection:
            duplicates = population.duplicates(connection, context.run_id, hashes, ())
        return proposals, {program_hash: twin.number for program_hash, twin in duplicates.items()}

    @with_new_id
    def hint(self, hint_id: UUID, run_id: UUID, text: str, *, author: str) -> tuple[int, Commit]:
        """Add a hint for the run's prompts; return its number among the run's advice, and the commit to publish."""
        context = self.work.context(run_id)
        self._require_independent(run_id)
        with self._engine.begin() as connection:
            locked = lock_progress(connection, run_id)
            stored: int | None = connection.execute(SQL.receipts, {"id": hint_id}).scalar_one_or_none()
            if stored is not None:
                return stored, write_change(connection, locked)
            if locked.progress.state.ended:
                raise ConflictError(f"run {run_id} takes no hints: it is {locked.progress.state.value}.")
            advice = ledger.apply_advice(locked, context, storable(text), author)
            connection.execute(SQL.insert_receipts, {"id": hint_id, "run_id": run_id, "receipts": advice.number})
            insert_hint(connection, run_id, advice, author)
            return advice.number, write_change(connection, locked)

    def _require_independent(self, run_id: UUID, proposer: WeightedPolicy | None = None) -> None:
        """Reject what is sent to a run of a tournament or campaign, except by the ``proposer`` that is its entrant."""
        row = self._rows(SQL.independent, {"id": run_id})[0]
        if not row.own and (proposer is None or proposer.policy_id != row.policy_id):
            raise ConflictError(
                f"run {run_id} belongs to a tournament or campaign and takes proposals of its entrant only.",
                remedy="Start a run of its own.",
            )

    def result(self, run_id: UUID, number: int) -> ProposalRecord | None:
        """Return the result of a candidate, proposed or not; None if the run never assigned the number."""
        row = self._rows(SQL.result, {"run_id": run_id, "number": number})[0]
        if number > row.numbers:
            return None
        ended, context, flaw = RunState(row.state).ended, self.work.context(run_id), ""
        if row.candidate_id is None:
            state = ProposalState.DISCARDED if ended else ProposalState.PENDING
            record = ProposalRecord(number=number, state=state, ahead=row.ahead or 0)
        else:
            candidate, claims = self.queries.candidate(row.candidate_id), row.confirmed or {}
            problem, first = context.problem, next(iter(candidate.parents), 0)
            members = self.work.members(run_id, [number, first])
            member = members[number]
            flaw = flaw_of(problem, member, members.get(first))
            best = None if row.best_number is None else (row.best_number, row.best, row.best_targets)
            standing = standing_text(context.problem, candidate, best)
            if not ended:
                candidate = without_secrets(candidate, context.problem)
            common = {"rewards", "scalar", "targets", "refuted", "duplicate_of", "failure", "failure_reason"}
            record = ProposalRecord(
                **candidate.model_dump(include=common),
                failure_detail=_detail(candidate, context.problem),
                number=number,
                state=ProposalState.FAILED if candidate.rewards is None else ProposalState.EVALUATED,
                candidate_id=candidate.id,
                confirming=() if ended else tuple(row.confirming),
                confirmed=tuple(sorted(name for name, first in claims.items() if first == number)),
                confirmed_by={name: claims[name] for name in candidate.targets if claims.get(name, number) != number},
                summary=summary_text(problem, member),
                feedback={
                    n: note_text(t, problem, member.program) for n, t in candidate.artifacts.items() if n != OUTPUT
                },
                elite=row.elite,
                best=row.best_number == number,
                standing=standing,
            )
        of_run = (RunState(row.state), row.reason, row.evaluations_left, context.problem, row.reached)
        return record.model_copy(update={"next": next_step(record, *of_run, flaw)})

    def unsettled(self, run_id: UUID, limit: int = 100) -> tuple[ProposalRecord, ...]:
        """Return the proposals of a run that wait for an evaluation, or whose targets are being confirmed."""
        keys = {"run_id": run_id, "lane": EXTERNAL_LANE, "limit": limit}
        records = (self.result(run_id, number) for (number,) in self._rows(SQL.unsettled, keys))
        return tuple(record for record in records if record is not None)


def _detail(candidate: CandidateDetail, problem: Problem) -> str | None:
    """Return what a proposer needs of a failure's text: of a traceback, the message and its place in the program."""
    if (kind := candidate.failure) is None:
        return None
    failure = Failure(kind, candidate.failure_reason or "", candidate.failure_detail or "")
    cause = cause_of(failure, problem, candidate.program)
    return "\n".join(filter(None, (cause.message, cause.place)))


def _digest(sent: ProposedCandidate) -> str:
    return digest_of([sent.program, sent.completion])


def _stored_ask(row: Any) -> StoredAsk:
    selection = Selection(PolicyRole(row.role), row.island, tuple(row.parents), tuple(row.inspirations))
    return StoredAsk(selection, Prompt(row.system, row.user), row.seed, row.advice)
