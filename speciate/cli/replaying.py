"""Replaying a stored run: its completions from the database, everything else made again."""

from __future__ import annotations

from uuid import UUID

from speciate.domain.errors import ReplayError
from speciate.domain.event import Event, EventKind
from speciate.domain.rollout import Completion
from speciate.policies import build_client
from speciate.ports.evaluator import EvaluatorClient
from speciate.runs.replay import RecordedCompletion, ReplayReport, replay
from speciate.storage.stores import Stores
from speciate.storage.work.memory import MemoryWorkStore


def replay_run(stores: Stores, run_id: UUID, evaluator: EvaluatorClient) -> ReplayReport:
    """Make every choice and every evaluation of a run again, and compare the events.

    Raises:
        NotFoundError: There is no such run.
        ReplayError: It was pruned, or has several lanes or a budget of seconds.
    """
    context = stores.work.context(run_id)
    events = _events(stores, run_id)  # first: of a run under way no batch may be among them that is not recorded below
    if (pruned_at := stores.runs.get(run_id).pruned_at) is not None:
        raise ReplayError(
            f"run {run_id} was pruned on {pruned_at:%Y-%m-%d}: its completions are gone, its record is not.",
            remedy="Restore a backup from before into another database to replay it.",
        )
    return replay(
        context,
        _recorded(stores, run_id),
        events,
        store=MemoryWorkStore(),
        evaluator=evaluator,
        client_for=build_client,
    )


def _recorded(stores: Stores, run_id: UUID) -> list[RecordedCompletion]:
    return [
        RecordedCompletion(
            rollout.prompt_digest,
            rollout.seed,
            Completion(rollout.completion, rollout.completion_tokens, rollout.finish_reason, rollout.mean_logprob),
            rollout.prompt_tokens,
        )
        for rollout in stores.queries.recorded(run_id)
    ]


def _events(stores: Stores, run_id: UUID) -> list[Event]:
    events: list[Event] = []
    while page := stores.queries.events(run_id, after=len(events)):
        events.extend(Event(EventKind(record.kind), record.data) for record in page)
    return events
