"""Replay a stored run: take completions from the database, repeat everything else, and compare the events."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING
from uuid import UUID

import typer

from speciate.cli import output
from speciate.cli.common import PROJECT_FLAG, URL_FLAG, DataDir, RunId, global_options
from speciate.cli.errors import ExitCode
from speciate.domain.errors import ReplayError

if TYPE_CHECKING:
    from speciate.ports.evaluator import EvaluatorClient
    from speciate.runs.replay import RecordedCompletion, ReplayReport
    from speciate.storage.stores import Stores


def replay_command(run_id: RunId, data_dir: DataDir = None) -> None:
    """Repeat every decision and evaluation of a run with its recorded completions, and compare the events.

    Requires a run with one lane and no budget of seconds, whose events have only one possible order. Connects to the
    servers of the running service, or to SPECIATE_DATABASE_URL and SPECIATE_REDIS_URL, and executes the run in a schema
    of its own of that database, which it drops. Exits with 1 if the events differ.
    """
    from evaluators.evaluator_factory import open_evaluator
    from speciate.client.run_names import is_whole_id
    from speciate.local.engine import local_client
    from speciate.local.servers import connected_stores
    from speciate.settings import load_settings

    flags = global_options()
    settings = load_settings(data_dir=data_dir, url=flags.get(URL_FLAG))
    with (
        connected_stores(data_dir) as stores,
        closing(open_evaluator(settings.sandbox, settings)) as evaluator,
        output.console(stderr=True).status("Replaying …"),
    ):
        if not is_whole_id(run_id):
            with local_client(settings, project=flags.get(PROJECT_FLAG), warm=False) as service:
                run_id = str(service.runs.get(run_id).id)
        report = replay_run(stores, UUID(run_id), evaluator)
    said = f"Identical: {report.events:,} events." if report.identical else f"Different: {report.describe()}"
    output.print_result({"identical": report.identical, "events": report.events, "difference": report.describe()}, said)
    if not report.identical:
        raise typer.Exit(ExitCode.FAILED)


def replay_run(stores: Stores, run_id: UUID, evaluator: EvaluatorClient) -> ReplayReport:
    """Repeat every decision and evaluation of a run, and compare the events."""
    from speciate.policies import build_client
    from speciate.runs.replay import replay
    from speciate.storage.work.scratch import all_events, scratch_store

    context = stores.work.context(run_id)
    events = all_events(stores.queries, run_id)  # first: its batches must be among the completions read below
    if (pruned_at := stores.runs.get(run_id).pruned_at) is not None:
        raise ReplayError(
            f"run {run_id} was pruned on {pruned_at:%Y-%m-%d}: its completions are deleted.",
            remedy="Restore an earlier backup into another database to replay it.",
        )
    recorded = _recorded(stores, run_id)
    with scratch_store(stores.direct) as store:
        return replay(context, recorded, events, store=store, evaluator=evaluator, client_for=build_client)


def _recorded(stores: Stores, run_id: UUID) -> list[RecordedCompletion]:
    from speciate.domain.rollout import Completion
    from speciate.runs.replay import RecordedCompletion

    return [
        RecordedCompletion(
            rollout.prompt_digest,
            rollout.seed,
            Completion(rollout.completion, rollout.completion_tokens, rollout.finish_reason, rollout.mean_logprob),
            rollout.prompt_tokens,
            rollout.cost,
        )
        for rollout in stores.queries.recorded(run_id)
    ]
