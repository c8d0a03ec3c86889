"""Read the records of a run: rollouts, advice and events."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from pydantic import BaseModel

from speciate.domain.policy import PromptFormat
from speciate.domain.rollout import Prompt
from speciate.schema.base import Page
from speciate.schema.candidates import AdviceRecord, ExportedRollout, RolloutAnswer, RolloutDetail, RolloutRecord
from speciate.schema.runs import EventRecord
from speciate.storage import cursors
from speciate.storage.candidates.queries import CandidateQueries
from speciate.storage.database import reading, with_retries
from speciate.storage.lookup import require_row
from speciate.storage.runs.advice import read_page
from speciate.storage.runs.context import load_context
from speciate.storage.statements import Statements
from speciate.storage.tables.candidates import rollouts


def _columns(kind: type[BaseModel]) -> str:
    return ", ".join(f"r.{name}" for name in kind.model_fields if name in rollouts.c)


SQL = Statements(
    __file__, record=_columns(RolloutRecord), detail=_columns(RolloutDetail), export=_columns(ExportedRollout)
)


@dataclass
class RunQueries(CandidateQueries):
    """Reads the records of runs and of their candidates."""

    @with_retries
    def rollouts(self, run_id: UUID, *, limit: int = 100, cursor: str | None = None) -> Page[RolloutRecord]:
        after = cursors.decode(cursor, [int, int]) if cursor else [2**62, 0]
        with reading(self._engine) as connection:
            load_context(connection, run_id)
            binds = {"run_id": run_id, "batch": after[0], "ord": after[1], "limit": limit + 1}
            rows = connection.execute(SQL.rollouts, binds).all()
        return cursors.page(
            rows, limit, lambda row: RolloutRecord.model_validate(row._asdict()), lambda row: [row.batch, row.ord]
        )

    @with_retries
    def advice(self, run_id: UUID, *, limit: int = 100, cursor: str | None = None) -> Page[AdviceRecord]:
        """Return the advice of a run, newest first; ``NO_ADVICE`` is the last."""
        before = cursors.decode(cursor, [int])[0] if cursor else 2**62
        with reading(self._engine) as connection:
            hinted = bool(connection.execute(SQL.has_advice, {"id": run_id}).scalar())
            if not hinted and load_context(connection, run_id).spec.guidance is None:
                return Page[AdviceRecord](items=())
            records = read_page(connection, run_id, before, limit + 1)
        return cursors.page(records, limit, lambda record: record, lambda record: [record.number])

    def recorded(self, run_id: UUID) -> tuple[RolloutDetail, ...]:
        """Return every rollout of a run with its texts, in the order of the requests."""
        return tuple(RolloutDetail.model_validate(row._asdict()) for row in self._rows(SQL.recorded, {"id": run_id}))

    def rollout(self, rollout_id: UUID) -> RolloutDetail:
        """Return a rollout with prompt and completion; raises ``NotFoundError`` for an unknown one."""
        row = require_row(self._row(SQL.rollout, {"id": rollout_id}), f"rollout {rollout_id}")
        return RolloutDetail.model_validate(row._asdict())

    def events(self, run_id: UUID, *, after: int = 0, limit: int = 500) -> tuple[EventRecord, ...]:
        """Return at most ``limit`` events with a sequence number above ``after``, in order."""
        rows = self._rows(SQL.events, {"id": run_id, "after": after, "limit": limit})
        # The columns have these types; validating each document costs more than the query.
        return tuple(EventRecord.model_construct(**row._asdict()) for row in rows)

    def learning_steps(self, run_id: UUID, *, limit: int = 10_000) -> tuple[dict[str, Any], ...]:
        """Return the data of the newest ``limit`` training steps of a run, oldest first."""
        return tuple(row[0] for row in reversed(self._rows(SQL.learning_steps, {"id": run_id, "limit": limit})))

    def export_rollouts(self, run_id: UUID) -> Iterator[ExportedRollout]:
        last = [-1, 0]
        numbers = {row.batch: range(row.first, row.first + row.size) for row in self._rows(SQL.batches, {"id": run_id})}
        while True:
            with reading(self._engine) as connection:
                rows = connection.execute(SQL.exported, {"id": run_id, "batch": last[0], "ord": last[1]}).all()
                candidates = [number for batch in {row.batch for row in rows} for number in numbers.get(batch, ())]
                answers = self.answers(connection, run_id, candidates)
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
