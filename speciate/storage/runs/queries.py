"""Read the records of a run: rollouts, advice and events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.errors import NotFoundError
from speciate.domain.event import EventKind
from speciate.domain.policy import PromptFormat
from speciate.domain.rollout import Prompt
from speciate.schema.base import Page
from speciate.schema.candidates import (
    AdviceRecord,
    ExportedRollout,
    RolloutAnswer,
    RolloutDetail,
    RolloutRecord,
)
from speciate.schema.runs import EventRecord
from speciate.storage import cursors
from speciate.storage.candidates.queries import CandidateQueries
from speciate.storage.database import reading, with_retries
from speciate.storage.runs.advice import read_page
from speciate.storage.runs.context import load_context

_ROLLOUT = (
    "id, run_id, policy_id, batch, role, prompt_digest, seed, prompt_tokens, completion_tokens, reasoning_tokens,"
    " latency_s, finish_reason, mean_logprob, answers, reason, advice, author, model, created_at"
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


@dataclass
class RunQueries(CandidateQueries):
    """Reads the records of runs and of their candidates."""

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

    def export_rollouts(self, run_id: UUID) -> Iterator[ExportedRollout]:
        """Stream every rollout of a run with its texts, tokens and answers, in the order of the requests."""
        last = [-1, 0]
        with reading(self._engine) as connection:
            batches = connection.execute(_BATCHES, {"id": run_id})
            numbers = {row.batch: range(row.first, row.first + row.n) for row in batches}
        while True:
            with reading(self._engine) as connection:
                rows = connection.execute(_ROLLOUTS, {"id": run_id, "batch": last[0], "ord": last[1]}).all()
                wanted = [number for batch in {row.batch for row in rows} for number in numbers.get(batch, ())]
                answers = self.answers(connection, run_id, wanted)
            for row in rows:
                yield _exported(row, tuple(answers.get(row.id, ())))
            if not rows:
                return
            last = [rows[-1].batch, rows[-1].ord]


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
