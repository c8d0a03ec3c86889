"""Starting and steering runs."""

from __future__ import annotations

from uuid import UUID

from speciate.domain.errors import ConflictError
from speciate.domain.run import RunSpec, RunState
from speciate.ports.records import PolicyVersion, ProblemVersion
from speciate.ports.runs import RunStore
from speciate.ports.work import Signals
from speciate.prompts.codecs import codec_of
from speciate.search.strategies import build_strategy


def check_run(problem: ProblemVersion, policy: PolicyVersion, mutator: PolicyVersion | None, spec: RunSpec) -> None:
    """Let a run go on only if it can work.

    Raises:
        InvalidInputError: The strategy or one of its options is not valid, or a codec cannot write the problem.
    """
    build_strategy(spec.strategy, spec.strategy_options)
    for asked in (policy, mutator):
        if asked is not None and asked.definition.codec is not None:
            codec_of(asked.definition.codec).prompt(problem.definition, answers=1)


def start_run(
    store: RunStore,
    signals: Signals,
    *,
    problem: ProblemVersion,
    policy: PolicyVersion,
    mutator: PolicyVersion | None,
    spec: RunSpec,
    idempotency_key: str | None = None,
) -> tuple[UUID, bool]:
    """Create a run and begin it; with an idempotency key that was used before, return the run of then.

    Returns:
        The run's id, and whether it is new.

    Raises:
        InvalidInputError: The strategy or one of its options is not valid, or a codec cannot write the problem.
        ConflictError: The key was used for another request.
    """
    check_run(problem, policy, mutator, spec)
    run_id, new = store.create(problem, policy, mutator, spec, idempotency_key=idempotency_key)
    # A first request may have been cut off between the two steps: the repetition begins the run.
    if new or store.get(run_id).state is RunState.CREATED:
        try:
            signals.committed(store.start(run_id))
        except ConflictError:
            # Whoever sent the same key may have begun it meanwhile; that is what was asked for.
            if store.get(run_id).state is RunState.CREATED:
                raise
    return run_id, new


def pause_run(store: RunStore, signals: Signals, run_id: UUID, reason: str | None = None) -> None:
    """Stop handing out a run's work; what is in flight is still booked."""
    signals.committed(store.pause(run_id, reason))


def resume_run(store: RunStore, signals: Signals, run_id: UUID) -> None:
    """Hand out a paused run's work again."""
    signals.committed(store.resume(run_id))


def cancel_run(store: RunStore, signals: Signals, run_id: UUID, reason: str | None = None) -> None:
    """End a run; what is in flight is thrown away, what was committed stays."""
    signals.committed(store.cancel(run_id, reason))
