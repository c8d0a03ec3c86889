"""Take proposals and hints from outside the service, and hand out prompts (ADR 38)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from speciate.domain.candidate import Individual, Proposal
from speciate.domain.errors import ConflictError
from speciate.domain.policy import PolicyRole
from speciate.domain.problem import Problem
from speciate.domain.rollout import Prompt, Rollout
from speciate.domain.run import RunState
from speciate.domain.values import digest_of, storable
from speciate.ids import uuid7
from speciate.ports.work import Commit, ProposedBatch, RunContext, WeightedPolicy, WorkStore
from speciate.prompts.render import secret_objectives
from speciate.runs import ledger
from speciate.runs.progress import Effects, RunProgress
from speciate.runs.proposals import Ask, SentProposal, StoredAsk, plan_asks, read_sent
from speciate.schema.candidates import CandidateDetail
from speciate.schema.proposals import (
    AskRecord,
    ProposalReceipt,
    ProposalRecord,
    ProposalState,
    ReceiptStatus,
    ShownProgram,
)
from speciate.search.strategies import build_strategy
from speciate.search.strategy import Selection
from speciate.storage.candidates import population
from speciate.storage.candidates.insert import insert_rollouts
from speciate.storage.database import ScopedStore, reading, with_retries
from speciate.storage.idempotency import claim_key, scoped_key
from speciate.storage.runs.advice import insert_hint
from speciate.storage.runs.context import record_proposer
from speciate.storage.runs.progress import LockedProgress, lock_progress
from speciate.storage.runs.queries import RunQueries
from speciate.storage.work.effects import write_effects

_STATE = sa.text(
    "SELECT state, reason, batches, evaluations, advice <> '{}'::jsonb AS hinted FROM run_progress WHERE run_id = :id"
)
_OWN = sa.text("SELECT own FROM runs WHERE id = :id")
_CACHED: Final = 4096
_KEEP_ASKS = sa.text(
    'INSERT INTO asks (id, run_id, role, island, parents, inspirations, system, "user", seed, advice)'
    ' SELECT a.id, :run_id, a.role, a.island, a.parents, a.inspirations, a.system, a."user", a.seed, a.advice'
    " FROM jsonb_to_recordset(:asks) AS a(id uuid, role text, island int, parents bigint[], inspirations bigint[],"
    ' system text, "user" text, seed bigint, advice bigint)'
).bindparams(sa.bindparam("asks", type_=JSONB))
_ASKS = sa.text("SELECT * FROM asks WHERE run_id = :run_id AND id = ANY(:ids)")
_KEEP_ANSWER = sa.text("INSERT INTO proposal_answers (id, run_id, answer) VALUES (:id, :run_id, :answer)").bindparams(
    sa.bindparam("answer", type_=JSONB)
)
_ANSWER = sa.text("SELECT answer FROM proposal_answers WHERE id = :id")
_RESULT = sa.text(
    "SELECT g.state, g.numbers, g.best_number = :number AS best,"
    " (SELECT c.id FROM candidates c WHERE c.run_id = g.run_id AND c.number = :number) AS candidate_id,"
    " EXISTS (SELECT FROM elites e WHERE e.run_id = g.run_id AND e.number = :number) AS elite,"
    " ARRAY(SELECT c.target FROM claims c WHERE c.run_id = g.run_id AND c.number = :number AND c.state = 'confirmed'"
    " ORDER BY c.target) AS confirmed,"
    " EXISTS (SELECT FROM claims c WHERE c.run_id = g.run_id AND c.number = :number AND c.state = 'pending') AS pending"
    " FROM run_progress g WHERE g.run_id = :run_id"
)


@dataclass
class Proposals(ScopedStore):
    """Takes proposals of agents and people, and hands out the prompts that the run's own policies would receive."""

    work: WorkStore
    queries: RunQueries
    retry_for_s: float = field(default=5.0, kw_only=True)
    own: dict[UUID, bool] = field(default_factory=dict, kw_only=True, repr=False)
    """Cache: True for runs that no tournament or campaign started, which never changes."""

    def ask(
        self, run_id: UUID, policy: WeightedPolicy, *, count: int, parents: Sequence[int] = ()
    ) -> tuple[AskRecord, ...] | None:
        """Return prompts and keep what their answers will inherit; None while the run evaluates its seed programs.

        Args:
            run_id: A running run.
            policy: Policy of the proposer; it determines the form of the answers.
            count: Number of prompts.
            parents: Numbers of the programs to change; the run's strategy selects them by default.

        Raises:
            ConflictError: The run takes no proposals now.
            InvalidInputError: A parent does not exist.
        """
        with reading(self._engine) as connection:
            state = connection.execute(_STATE, {"id": run_id}).one()
        self._require_open(run_id, state.state, state.reason)
        context = self.work.context(run_id)
        if context.seed_programs and not state.evaluations:
            return None
        ids = [uuid7() for _ in range(count)]
        asks = plan_asks(
            context,
            self.work,
            policy.policy,
            ids,
            batch=state.batches,
            hinted=state.hinted,
            parents=parents,
        )
        self._keep(run_id, asks)
        return tuple(_ask_record(context, ask) for ask in asks)

    @with_retries
    def _keep(self, run_id: UUID, asks: Sequence[Ask]) -> None:
        rows = [
            {
                "id": str(ask.id),
                "role": ask.selection.role.value,
                "island": ask.selection.island,
                "parents": list(ask.selection.parents),
                "inspirations": list(ask.selection.inspirations),
                "system": storable(ask.shown.prompt.system),
                "user": storable(ask.shown.prompt.user),
                "seed": ask.seed,
                "advice": ask.shown.advice,
            }
            for ask in asks
        ]
        with self._engine.begin() as connection:
            connection.execute(_KEEP_ASKS, {"run_id": run_id, "asks": rows})

    def propose(
        self,
        run_id: UUID,
        policy: WeightedPolicy,
        sent: Sequence[SentProposal],
        *,
        author: str,
        idempotency_key: str | None = None,
    ) -> tuple[tuple[ProposalReceipt, ...], Commit | None]:
        """Add proposals to a run, in order, as far as its budget allows.

        Args:
            run_id: A running run.
            policy: Policy in whose name they are made.
            sent: The proposals.
            author: Name of the token.
            idempotency_key: A repeated key returns the receipts of the first request.

        Returns:
            The receipts in order, and the commit to publish; None if nothing was added.

        Raises:
            ConflictError: The run takes no proposals now, or the key belongs to another request.
        """
        # The id is drawn outside the retried transaction, so that a repetition finds what it stored before.
        return self._propose(uuid7(), run_id, policy, sent, author, idempotency_key)

    @with_retries
    def _propose(
        self,
        request_id: UUID,
        run_id: UUID,
        policy: WeightedPolicy,
        sent: Sequence[SentProposal],
        author: str,
        idempotency_key: str | None,
    ) -> tuple[tuple[ProposalReceipt, ...], Commit | None]:
        context = self.work.context(run_id)
        self._require_own(run_id)  # before the transaction, which must not wait for a second connection
        read = self._read(context, policy, sent, author)
        with self._engine.begin() as connection:
            locked = lock_progress(connection, run_id)
            if idempotency_key is not None:
                key = scoped_key(self._home, f"{run_id}/proposals/{idempotency_key}")
                digest = digest_of([policy.policy_id.hex, [repr(one) for one in sent]])
                held = claim_key(connection, key, digest, request_id)
                if held != request_id:
                    stored = connection.execute(_ANSWER, {"id": held}).scalar_one()
                    return tuple(ProposalReceipt.model_validate(one) for one in stored), None
            self._require_open(run_id, locked.progress.state, locked.progress.reason)
            if ledger.out_of_time(locked.progress, context):
                raise ConflictError(f"run {run_id} takes no proposals: its budget of seconds is spent.")
            receipts, commit = _add(connection, context, locked, request_id, policy, sent, read)
            if idempotency_key is not None:
                answer = [receipt.model_dump(mode="json") for receipt in receipts]
                connection.execute(_KEEP_ANSWER, {"id": request_id, "run_id": run_id, "answer": answer})
        return receipts, commit

    def _read(
        self, context: RunContext, policy: WeightedPolicy, sent: Sequence[SentProposal], author: str
    ) -> list[_ReadProposal | str]:
        """Return each proposal as read, or why it is refused."""
        wanted = [one.ask for one in sent if one.ask is not None]
        asks: dict[UUID, StoredAsk] = {}
        with reading(self._engine) as connection:
            if wanted:
                rows = connection.execute(_ASKS, {"run_id": context.run_id, "ids": wanted})
                asks = {row.id: _stored_ask(row) for row in rows}
            numbers = [number for one in sent for number in (*one.parents, *one.inspirations)]
            numbers += [number for ask in asks.values() for number in ask.selection.parents]
            members = population.members(connection, context.run_id, numbers)
        read = [self._read_one(context, policy, one, author, asks, members) for one in sent]
        hashes = [child.program_hash for one in read if not isinstance(one, str) for child in one.children]
        with reading(self._engine) as connection:
            known = population.duplicates(connection, context.run_id, hashes, ())
        return [
            one if isinstance(one, str) else replace(one, known={name: twin.number for name, twin in known.items()})
            for one in read
        ]

    def _read_one(
        self,
        context: RunContext,
        policy: WeightedPolicy,
        sent: SentProposal,
        author: str,
        asks: Mapping[UUID, StoredAsk],
        members: Mapping[int, Individual],
    ) -> _ReadProposal | str:
        if sent.ask is not None:
            if (answered := asks.get(sent.ask)) is None:
                return f"the run has no prompt {sent.ask}"
        else:
            missing = [number for number in (*sent.parents, *sent.inspirations) if number not in members]
            if missing:
                return f"the run has no candidate {missing[0]}, or it is not evaluated yet"
            role = PolicyRole.MUTATE if sent.parents else PolicyRole.PROPOSE
            island = members[sent.parents[0]].island if sent.parents else 0
            answered = StoredAsk(Selection(role, island, sent.parents, sent.inspirations))
        parents = answered.selection.parents
        parent = members.get(parents[0]) if parents else None
        rollout, children = read_sent(sent, answered, context, policy.policy, policy.policy_id, parent, 0, author)
        return _ReadProposal(rollout, tuple(children))

    @with_retries
    def hint(self, run_id: UUID, text: str, *, author: str) -> tuple[int, Commit]:
        """Add a hint for the run's prompts; return its number among the run's advice, and the commit to publish.

        Raises:
            ConflictError: The run has ended.
        """
        context = self.work.context(run_id)
        self._require_own(run_id)
        with self._engine.begin() as connection:
            locked = lock_progress(connection, run_id)
            if locked.progress.state.ended:
                raise ConflictError(f"run {run_id} takes no hints: it is {locked.progress.state.value}.")
            advice, effects = ledger.apply_advice(locked.progress, context, storable(text), author)
            insert_hint(connection, run_id, advice, author)
            return advice.number, write_effects(connection, locked, effects)

    def _require_open(self, run_id: UUID, state: str, reason: str | None) -> None:
        self._require_own(run_id)
        if state != RunState.RUNNING:
            why = f" ({reason})" if reason else ""
            paused = state == RunState.PAUSED
            raise ConflictError(
                f"run {run_id} takes no proposals: it is {RunState(state).value}{why}.",
                remedy="Resume it first." if paused else "Start another run, such as one of policy 'external'.",
            )

    def _require_own(self, run_id: UUID) -> None:
        own = self.own.get(run_id)
        if own is None:
            with reading(self._engine) as connection:
                own = bool(connection.execute(_OWN, {"id": run_id}).scalar_one())
            if len(self.own) >= _CACHED:
                self.own.clear()
            self.own[run_id] = own
        if not own:
            raise ConflictError(
                f"run {run_id} belongs to a tournament or campaign and takes neither proposals nor hints.",
                remedy="Start a run of its own.",
            )

    @with_retries
    def result(self, run_id: UUID, number: int) -> ProposalRecord | None:
        """Return the result of a candidate, proposed or not; None if the run never assigned the number."""
        with reading(self._engine) as connection:
            row = connection.execute(_RESULT, {"run_id": run_id, "number": number}).one()
        if number > row.numbers:
            return None
        if row.candidate_id is None:
            ended = RunState(row.state).ended
            return ProposalRecord(number=number, state=ProposalState.DISCARDED if ended else ProposalState.PENDING)
        found = self.queries.candidate(row.candidate_id)
        if not RunState(row.state).ended:
            found = _withheld(found, self.work.context(run_id).problem)
        settled = ProposalState.FAILED if found.rewards is None else ProposalState.EVALUATED
        return ProposalRecord(
            **found.model_dump(
                include={
                    *("rewards", "scalar", "targets", "refuted", "duplicate_of"),
                    *("failure", "failure_reason", "failure_detail"),
                }
            ),
            number=number,
            state=ProposalState.PENDING if row.pending and not RunState(row.state).ended else settled,
            candidate_id=found.id,
            confirmed=tuple(row.confirmed),
            feedback=found.artifacts,
            elite=row.elite,
            best=bool(row.best),
        )


def _withheld(candidate: CandidateDetail, problem: Problem) -> CandidateDetail:
    """Return a candidate without the rewards that its author must not select on."""
    secret = secret_objectives(problem)
    if not secret or candidate.rewards is None:
        return candidate
    vector = tuple(candidate.rewards.values())
    repeats = [each if isinstance(each, str) else tuple(each.values()) for each in candidate.repeats]
    refuted = {
        target.name: problem.ranking.refutation(i, vector, repeats, secret)
        for i, target in enumerate(problem.targets)
        if target.name in candidate.refuted
    }
    rewards = {name: value for name, value in candidate.rewards.items() if name not in secret}
    return candidate.model_copy(update={"rewards": rewards, "refuted": refuted})


@dataclass(frozen=True, slots=True)
class _ReadProposal:
    """A proposal as read.

    Attributes:
        rollout: Its completion.
        children: Its programs, rejected ones included.
        known: Numbers of the run's candidates by program hash.
    """

    rollout: Rollout
    children: tuple[Proposal, ...]
    known: Mapping[str, int] = field(default_factory=dict)


def _add(
    connection: sa.Connection,
    context: RunContext,
    locked: LockedProgress,
    request_id: UUID,
    policy: WeightedPolicy,
    sent: Sequence[SentProposal],
    read: Sequence[_ReadProposal | str],
) -> tuple[tuple[ProposalReceipt, ...], Commit | None]:
    progress, budget = locked.progress, context.spec.budget
    islands = build_strategy(context.spec.strategy, context.spec.strategy_options).islands
    receipts: list[ProposalReceipt] = []
    effects, taken = Effects(), 0
    batch = _Batch()
    evaluations, tokens = progress.evaluations_left(budget), progress.spent().tokens_left(budget)
    dollars = progress.spent().dollars_left(budget, context.token_price)
    for index, (one, made) in enumerate(zip(sent, read, strict=True)):
        refusal = made if isinstance(made, str) else _unaffordable(made, one.cost, evaluations, tokens, dollars)
        if refusal or isinstance(made, str):
            receipts.append(ProposalReceipt(index=index, status=ReceiptStatus.REFUSED, reason=refusal))
            continue
        evaluations = None if evaluations is None else evaluations - len(made.children)
        tokens = None if tokens is None else tokens - made.rollout.tokens
        dollars = None if dollars is None else dollars - one.cost
        first = progress.numbers + len(batch.proposals) + 1
        receipts += [_receipt(index, first + i, child, made.known) for i, child in enumerate(made.children)]
        island = (first + request_id.int) % islands
        batch.add(made, taken, island)
        batch.cost += one.cost
        taken += 1
        if len(batch.proposals) >= context.spec.batch:
            batch.flush(connection, context, progress, effects, request_id)
            batch = _Batch()
    if batch.proposals:
        batch.flush(connection, context, progress, effects, request_id)
    if not taken:
        return tuple(receipts), None
    if policy.policy_id != context.proposer_id:
        record_proposer(connection, context.run_id, policy.policy_id)
    return tuple(receipts), write_effects(connection, locked, effects)


@dataclass
class _Batch:
    """Proposals that one unit evaluates.

    Attributes:
        rollouts: Their rollouts, with their positions in the request.
        proposals: Their programs.
        cost: What they cost, in US dollars.
    """

    rollouts: list[tuple[int, Rollout]] = field(default_factory=list)
    proposals: list[Proposal] = field(default_factory=list)
    cost: float = 0.0

    def add(self, made: _ReadProposal, position: int, island: int) -> None:
        """Add a proposal. Programs from scratch are spread over the islands."""
        self.rollouts.append((position, made.rollout))
        scratch = made.rollout.role is PolicyRole.PROPOSE
        self.proposals += [
            replace(child, rollout=position, island=island if scratch else child.island) for child in made.children
        ]

    def flush(
        self,
        connection: sa.Connection,
        context: RunContext,
        progress: RunProgress,
        effects: Effects,
        request_id: UUID,
    ) -> None:
        """Insert the rollouts and record the batch."""
        insert_rollouts(connection, context, request_id, progress.batches, self.rollouts)
        batch = ProposedBatch(tuple(rollout for _, rollout in self.rollouts), tuple(self.proposals))
        ledger.record_external_batch(progress, effects, batch, self.cost)


def _unaffordable(
    made: _ReadProposal, cost: float, evaluations: int | None, tokens: int | None, dollars: float | None
) -> str:
    if evaluations is not None and len(made.children) > evaluations:
        return f"the run's budget leaves {evaluations:,} evaluations, besides those in flight"
    if tokens is not None and made.rollout.tokens > tokens:
        return f"the run's budget leaves {tokens:,} tokens"
    if dollars is not None and cost > dollars:
        return f"the run's budget leaves ${dollars:,.4g}"
    return ""


def _receipt(index: int, number: int, child: Proposal, known: Mapping[str, int]) -> ProposalReceipt:
    if child.failure is not None:
        reason = f"{child.failure.reason}: {child.failure.detail}"
        return ProposalReceipt(index=index, number=number, status=ReceiptStatus.REJECTED, reason=reason)
    twin = known.get(child.program_hash)
    status = ReceiptStatus.ACCEPTED if twin is None else ReceiptStatus.DUPLICATE
    return ProposalReceipt(index=index, number=number, status=status, duplicate_of=twin)


def _stored_ask(row: sa.Row[Any]) -> StoredAsk:
    selection = Selection(PolicyRole(row.role), row.island, tuple(row.parents), tuple(row.inspirations))
    return StoredAsk(selection, Prompt(row.system, row.user), row.seed, row.advice)


def _ask_record(context: RunContext, ask: Ask) -> AskRecord:
    return AskRecord(
        ask=ask.id,
        run_id=context.run_id,
        role=ask.selection.role,
        parents=tuple(_shown(context.problem, one) for one in ask.shown.parents),
        inspirations=tuple(_shown(context.problem, one) for one in ask.shown.inspirations),
        system=ask.shown.prompt.system,
        user=ask.shown.prompt.user,
        seed=ask.seed,
        seed_program=context.problem.seed_program,
    )


def _shown(problem: Problem, one: Individual) -> ShownProgram:
    failure, names, secret = one.failure, problem.space.names, secret_objectives(problem)
    rewards = None if one.rewards is None else dict(zip(names, one.rewards, strict=True))
    return ShownProgram(
        number=one.number,
        program=one.program,
        rewards=rewards and {name: value for name, value in rewards.items() if name not in secret},
        failure=None if failure is None else f"{failure.kind.value}: {failure.detail or failure.reason}",
        feedback=dict(one.artifacts),
    )
