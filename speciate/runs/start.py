"""Create a run and start it, exactly once for each idempotency key."""

from uuid import UUID

from speciate.domain.labels import NO_LABELS, Labels
from speciate.domain.run import RunSpec
from speciate.domain.seeds import NO_SEEDS, SeedRequest
from speciate.ports.runs import NewRun, RunStore
from speciate.ports.work import CommitListener
from speciate.runs.checks import check_run
from speciate.runs.seeds import accepted_seeds, read_seeds, read_sources
from speciate.schema.policies import RunPolicies
from speciate.schema.problems import ProblemVersion
from speciate.telemetry.logs import add_log_context


def prepare_run(
    store: RunStore,
    *,
    problem: ProblemVersion,
    policies: RunPolicies,
    spec: RunSpec,
    labels: Labels = NO_LABELS,
    idempotency_key: str | None = None,
    request_digest: str = "",
    seeds: SeedRequest = NO_SEEDS,
) -> NewRun:
    """Return a run to start. Arguments and errors are those of ``check_run``, ``read_seeds`` and ``NewRun``."""
    check_run(problem, policies, spec)
    return NewRun(
        problem,
        policies,
        spec,
        labels,
        idempotency_key=idempotency_key,
        request_digest=request_digest,
        seeds=accepted_seeds(problem.definition, spec, read_seeds(store, problem, seeds)),
        sources=tuple(read_sources(store, seeds)),
    )


def start_run(store: RunStore, signals: CommitListener, run: NewRun) -> tuple[UUID, bool]:
    """Create a run and start it; return its id, and True if it is new.

    A repeated idempotency key returns the run of the first request; ``ConflictError`` if that differed.
    """
    run_id, new, commit = store.launch(run)
    if new:
        add_log_context(run=str(run_id))
    if commit is not None:
        signals.committed(commit)
    return run_id, new
