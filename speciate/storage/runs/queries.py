"""Read the records of a run: candidates, front, archive, rollouts, advice and events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.errors import NotFoundError
from speciate.domain.event import EventKind
from speciate.domain.policy import PromptFormat
from speciate.domain.rollout import Prompt
from speciate.runs.payloads import read_proposals
from speciate.schema.base import Page
from speciate.schema.candidates import (
    AdviceRecord,
    CandidateDetail,
    CandidateRecord,
    EliteRecord,
    ExportedCandidate,
    ExportedRollout,
    RolloutAnswer,
    RolloutDetail,
    RolloutRecord,
    WaitingCandidate,
)
from speciate.schema.runs import EventRecord, RankedCandidate
from speciate.storage import cursors
from speciate.storage.candidates.columns import ColumnReader
from speciate.storage.candidates.listing import NO_FILTER, CandidateFilter, listing
from speciate.storage.candidates.population import read_repeats
from speciate.storage.database import Store, reading, with_retries
from speciate.storage.runs.advice import read_page
from speciate.storage.runs.context import ScoringSchema, load_context, load_scoring_schema

_LIGHT = (
    "id, run_id, number, status, role, policy_id, rollout_id, island, parents, inspirations, rewards, scalar, targets,"
    " refuted, repeats, failure, failure_reason, duplicate_of, program_hash, tier, wall_s, cpu_s, memory_bytes,"
    " stopped_at, reused_from, attested_by, environment, carried_from, origin, created_at"
)
_ADVICE = "(SELECT r.advice FROM rollouts r WHERE r.id = rollout_id) AS advice"
_ROLLOUT = (
    "id, run_id, policy_id, batch, role, prompt_digest, seed, prompt_tokens, completion_tokens, reasoning_tokens,"
    " latency_s, finish_reason, mean_logprob, answers, reason, advice, author, model, created_at"
)

# Parents have lower numbers than their children, so the ancestor with the highest number is visited next, and the query
# reads no more candidates than it returns.
_ANCESTORS = sa.text(
    "WITH RECURSIVE line (step, number, waiting) AS ("
    " SELECT 0, CAST(NULL AS bigint), parents FROM candidates WHERE id = :id"
    " UNION ALL"
    " SELECT step + 1, c.number, ARRAY(SELECT DISTINCT n FROM unnest(waiting || c.parents) n WHERE n < c.number)"
    " FROM line JOIN candidates c ON c.run_id = :run_id AND c.number = (SELECT max(n) FROM unnest(waiting) n)"
    f" WHERE step < :limit) SELECT {_LIGHT}, {_ADVICE} FROM candidates"
    " WHERE run_id = :run_id AND number IN (SELECT number FROM line) ORDER BY number DESC"
)

_HINTED = sa.text("SELECT advice <> '{}'::jsonb FROM run_progress WHERE run_id = :id")
_BATCHES = sa.text(
    "SELECT (data ->> 'batch')::bigint AS batch, (data ->> 'first')::bigint AS first, (data ->> 'proposals')::int AS n"
    f" FROM events WHERE run_id = :id AND kind = '{EventKind.BATCH_PROPOSED.value}'"
)
_ROLLOUTS = sa.text(
    "SELECT r.*, coalesce(t.system, '') AS system, coalesce(t.\"user\", '') AS \"user\","
    " p.slug || '@' || p.version AS problem, a.slug || '@' || a.version AS policy,"
    " a.definition ->> 'prompt_format' AS prompt_format"
    " FROM rollouts r JOIN runs u ON u.id = r.run_id JOIN problems p ON p.id = u.problem_id"
    " JOIN policies a ON a.id = r.policy_id LEFT JOIN prompts t ON t.digest = r.prompt_digest"
    " WHERE r.run_id = :id AND (r.batch, r.ord) > (:batch, :ord) ORDER BY r.batch, r.ord LIMIT 200"
)
_ANSWERS = sa.text(
    "SELECT rollout_id, number, rewards, scalar, targets, refuted, repeats, failure, failure_reason, duplicate_of"
    " FROM candidates WHERE run_id = :id AND number = ANY(:numbers) AND rollout_id IS NOT NULL ORDER BY number"
)
_RANKED = sa.text(
    "SELECT id, number, rewards, scalar, targets & ~refuted AS met FROM candidates WHERE run_id = :id"
    " AND number = ANY(:numbers)"
)

_WAITING = sa.text(
    "SELECT state, payload, (payload ->> 'first')::bigint AS first FROM work"
    " WHERE run_id = :run_id AND kind = 'evaluate' AND state IN ('ready', 'leased', 'parked')"
    " AND :number - (payload ->> 'first')::bigint BETWEEN 0 AND jsonb_array_length(payload -> 'proposals') - 1"
)


@dataclass
class RunQueries(Store):
    """Reads the records of runs."""

    def __post_init__(self) -> None:
        self._measures = lru_cache(maxsize=2048)(self._load_measures)

    @with_retries
    def candidates(
        self, run_id: UUID, chosen: CandidateFilter = NO_FILTER, *, limit: int = 100, cursor: str | None = None
    ) -> Page[CandidateRecord]:
        """Return candidates of a run by filter and order.

        Raises:
            InvalidInputError: See ``listing.listing``.
            NotFoundError: No such run exists.
        """
        measures = self._measures(run_id)
        listed = listing(chosen, measures, cursor)
        query = (
            f"SELECT {_LIGHT}, {_ADVICE}, {listed.best} AS best FROM candidates WHERE run_id = :run_id{listed.where}"
            f" ORDER BY {listed.order} LIMIT :limit"
        )
        with reading(self._engine) as connection:
            rows = connection.execute(sa.text(query), {**listed.binds, "run_id": run_id, "limit": limit + 1}).all()
        return cursors.page(rows, limit, lambda row: CandidateRecord(**_candidate(measures, row)), listed.cursor)

    @with_retries
    def candidate(self, candidate_id: UUID) -> CandidateDetail:
        """Return a candidate with its texts.

        Raises:
            NotFoundError: No such candidate exists.
        """
        return self._detail("id = :id", {"id": candidate_id}, f"candidate {candidate_id}")

    @with_retries
    def candidate_of(self, run_id: UUID, number: int) -> CandidateDetail:
        """Return a candidate by run and number; raises as ``candidate`` does."""
        keys = {"run_id": run_id, "number": number}
        return self._detail("run_id = :run_id AND number = :number", keys, f"candidate {number} in run {run_id}")

    @with_retries
    def waiting_candidate(self, run_id: UUID, number: int) -> WaitingCandidate | None:
        """Return a candidate whose batch waits for its evaluation or is evaluated, or None."""
        with reading(self._engine) as connection:
            row = connection.execute(_WAITING, {"run_id": run_id, "number": number}).one_or_none()
        if row is None:
            return None
        proposals = read_proposals(row.payload)
        found = proposals[number - row.first]
        return WaitingCandidate(
            number=number,
            leased=row.state == "leased",
            external=row.state == "parked",
            batch=(row.first, row.first + len(proposals) - 1),
            role=found.role,
            island=found.island,
            parents=found.parents,
            program=found.program,
        )

    @with_retries
    def ancestors(self, candidate: CandidateRecord, limit: int) -> tuple[CandidateRecord, ...]:
        """Return at most ``limit`` distinct ancestors of a candidate, newest first."""
        measures = self._measures(candidate.run_id)
        binds = {"id": candidate.id, "run_id": candidate.run_id, "limit": limit}
        with reading(self._engine) as connection:
            rows = connection.execute(_ANCESTORS, binds).all()
        return tuple(CandidateRecord(**_candidate(measures, row)) for row in rows)

    @with_retries
    def front(self, run_id: UUID, limit: int = 1000) -> tuple[RankedCandidate, ...]:
        """Return at most ``limit`` candidates of the Pareto front, best first; feasible ones only, if there are any.

        Raises:
            NotFoundError: No such run exists.
        """
        measures = self._measures(run_id)
        columns = ColumnReader(self._engine).columns(run_id, len(measures.space.objectives))
        binds = {"id": run_id, "numbers": columns.number[columns.front(measures.space)].tolist()}
        with reading(self._engine) as connection:
            rows = connection.execute(_RANKED, binds).all()
        rows = sorted(rows, key=lambda row: (measures.ranking.merit(row.rewards, row.met), -row.number), reverse=True)
        return tuple(measures.ranked(row) for row in rows[:limit])

    @with_retries
    def programs(self, run_id: UUID, numbers: Sequence[int]) -> dict[int, str]:
        """Return the programs of candidates by number; those that retention deleted are empty."""
        query = sa.text("SELECT number, program FROM candidates WHERE run_id = :id AND number = ANY(:numbers)")
        with reading(self._engine) as connection:
            rows = connection.execute(query, {"id": run_id, "numbers": list(numbers)})
            return {row.number: row.program for row in rows}

    @with_retries
    def archive(self, run_id: UUID) -> tuple[EliteRecord, ...]:
        """Return the elite of every cell, by island and cell."""
        query = sa.text(
            "SELECT e.island, e.cell, e.number, e.fitness, e.rewards, c.id, c.targets & ~c.refuted AS met"
            " FROM elites e JOIN candidates c"
            " ON c.run_id = e.run_id AND c.number = e.number WHERE e.run_id = :id ORDER BY e.island, e.cell"
        )
        measures = self._measures(run_id)
        with reading(self._engine) as connection:
            return tuple(
                EliteRecord(
                    island=row.island,
                    cell=row.cell,
                    number=row.number,
                    candidate_id=row.id,
                    fitness=row.fitness,
                    rewards=measures.by_name(row.rewards),
                    targets=measures.named(row.met),
                )
                for row in connection.execute(query, {"id": run_id})
            )

    @with_retries
    def rollouts(self, run_id: UUID, *, limit: int = 100, cursor: str | None = None) -> Page[RolloutRecord]:
        """Return the rollouts of a run, newest first."""
        after = cursors.decode(cursor, [int, int]) if cursor else [2**62, 0]
        query = sa.text(
            f"SELECT ord, {_ROLLOUT} FROM rollouts WHERE run_id = :run_id AND (batch, ord) < (:batch, :ord)"
            " ORDER BY batch DESC, ord DESC LIMIT :limit"
        )
        with reading(self._engine) as connection:
            load_context(connection, run_id)
            binds = {"run_id": run_id, "batch": after[0], "ord": after[1], "limit": limit + 1}
            rows = connection.execute(query, binds).all()
        return cursors.page(
            rows, limit, lambda row: RolloutRecord.model_validate(row._asdict()), lambda row: [row.batch, row.ord]
        )

    @with_retries
    def advice(self, run_id: UUID, *, limit: int = 100, cursor: str | None = None) -> Page[AdviceRecord]:
        """Return the advice of a run, newest first; ``NO_ADVICE`` is the last."""
        before = cursors.decode(cursor, [int])[0] if cursor else 2**62
        with reading(self._engine) as connection:
            hinted = bool(connection.execute(_HINTED, {"id": run_id}).scalar())
            if not hinted and load_context(connection, run_id).spec.guidance is None:
                return Page[AdviceRecord](items=())
            records = read_page(connection, run_id, before, limit + 1)
        return cursors.page(records, limit, lambda record: record, lambda record: [record.number])

    @with_retries
    def recorded(self, run_id: UUID) -> tuple[RolloutDetail, ...]:
        """Return every rollout of a run with its texts, in the order of the requests."""
        query = sa.text(
            'SELECT r.*, p.system, p."user" FROM rollouts r JOIN prompts p ON p.digest = r.prompt_digest'
            " WHERE r.run_id = :id ORDER BY r.batch, r.ord"
        )
        with reading(self._engine) as connection:
            return tuple(
                RolloutDetail.model_validate(row._asdict()) for row in connection.execute(query, {"id": run_id})
            )

    @with_retries
    def rollout(self, rollout_id: UUID) -> RolloutDetail:
        """Return a rollout with prompt and completion.

        Raises:
            NotFoundError: No such rollout exists.
        """
        query = sa.text(
            "SELECT r.*, coalesce(p.system, '') AS system, coalesce(p.\"user\", '(pruned)') AS \"user\" FROM rollouts r"
            " LEFT JOIN prompts p ON p.digest = r.prompt_digest WHERE r.id = :id"
        )
        with reading(self._engine) as connection:
            row = connection.execute(query, {"id": rollout_id}).one_or_none()
        if row is None:
            raise NotFoundError(f"there is no rollout {rollout_id}.")
        return RolloutDetail.model_validate(row._asdict())

    @with_retries
    def events(self, run_id: UUID, *, after: int = 0, limit: int = 500) -> tuple[EventRecord, ...]:
        """Return at most ``limit`` events with a sequence number above ``after``, in order."""
        query = sa.text(
            "SELECT run_id, seq, kind, data, at FROM events WHERE run_id = :id AND seq > :after"
            " ORDER BY seq LIMIT :limit"
        )
        with reading(self._engine) as connection:
            rows = connection.execute(query, {"id": run_id, "after": after, "limit": limit})
            # The columns have these types; validating each document costs more than the query.
            return tuple(EventRecord.model_construct(**row._asdict()) for row in rows)

    @with_retries
    def learning_steps(self, run_id: UUID, *, limit: int = 10_000) -> tuple[dict[str, Any], ...]:
        """Return the data of the newest ``limit`` training steps of a run, oldest first."""
        query = sa.text(
            "SELECT data FROM events WHERE run_id = :id AND kind = 'learning.step' ORDER BY seq DESC LIMIT :limit"
        )
        with reading(self._engine) as connection:
            found = connection.execute(query, {"id": run_id, "limit": limit}).scalars().all()
        return tuple(reversed(found))

    def export(self, run_id: UUID) -> Iterator[ExportedCandidate]:
        """Stream every candidate of a run with its texts, by number."""
        last = 0
        labels = sa.text("SELECT name AS run_name, tags AS run_tags FROM runs WHERE id = :id")
        with reading(self._engine) as connection:
            run_labels = connection.execute(labels, {"id": run_id}).mappings().one()
        query = sa.text(
            f"SELECT *, {_ADVICE} FROM candidates WHERE run_id = :id AND number > :last ORDER BY number LIMIT 200"
        )
        measures = self._measures(run_id)
        while True:
            with reading(self._engine) as connection:
                rows = connection.execute(query, {"id": run_id, "last": last}).all()
            for row in rows:
                yield ExportedCandidate(**_whole(measures, row), **run_labels)
            if not rows:
                return
            last = rows[-1].number

    def export_rollouts(self, run_id: UUID) -> Iterator[ExportedRollout]:
        """Stream every rollout of a run with its texts, tokens and answers, in the order of the requests."""
        measures, last = self._measures(run_id), [-1, 0]
        with reading(self._engine) as connection:
            batches = connection.execute(_BATCHES, {"id": run_id})
            numbers = {row.batch: range(row.first, row.first + row.n) for row in batches}
        while True:
            with reading(self._engine) as connection:
                rows = connection.execute(_ROLLOUTS, {"id": run_id, "batch": last[0], "ord": last[1]}).all()
                wanted = [number for batch in {row.batch for row in rows} for number in numbers.get(batch, ())]
                answers: dict[UUID, list[RolloutAnswer]] = {}
                for row in connection.execute(_ANSWERS, {"id": run_id, "numbers": wanted}):
                    values = _candidate(measures, row)
                    answers.setdefault(row.rollout_id, []).append(
                        RolloutAnswer.model_validate({name: values[name] for name in RolloutAnswer.model_fields})
                    )
            for row in rows:
                yield _exported(row, tuple(answers.get(row.id, ())))
            if not rows:
                return
            last = [rows[-1].batch, rows[-1].ord]

    def _detail(self, where: str, keys: Mapping[str, Any], what: str) -> CandidateDetail:
        with reading(self._engine) as connection:
            row = connection.execute(sa.text(f"SELECT *, {_ADVICE} FROM candidates WHERE {where}"), keys).one_or_none()
        if row is None:
            raise NotFoundError(f"there is no {what}.")
        return CandidateDetail(**_whole(self._measures(row.run_id), row))

    def _load_measures(self, run_id: UUID) -> ScoringSchema:
        with reading(self._engine) as connection:
            return load_scoring_schema(connection, run_id)


def _exported(row: sa.Row[Any], answers: tuple[RolloutAnswer, ...]) -> ExportedRollout:
    prompt, completion = Prompt(row.system, row.user), row.completion
    chat = row.prompt_format != PromptFormat.COMPLETION
    return ExportedRollout.model_validate(
        {
            **row._mapping,
            "prompt": prompt.messages() if chat else prompt.text(),
            "completion": [{"role": "assistant", "content": completion}] if chat else completion,
            "answers": answers,
        }
    )


def _whole(measures: ScoringSchema, row: sa.Row[Any]) -> dict[str, Any]:
    texts = {"program": row.program, "failure_detail": row.failure_detail, "artifacts": row.artifacts}
    return {**_candidate(measures, row), **texts}


def _candidate(measures: ScoringSchema, row: sa.Row[Any]) -> dict[str, Any]:
    values = {name: value for name, value in row._asdict().items() if name in CandidateRecord.model_fields}
    repeats = read_repeats(row.repeats)
    return {
        **values,
        "rewards": None if row.rewards is None else measures.by_name(row.rewards),
        "targets": measures.named(row.targets & ~row.refuted),
        "refuted": measures.refutations(row.refuted, row.rewards, repeats),
        "repeats": tuple(each if isinstance(each, str) else measures.by_name(each) for each in repeats),
    }
