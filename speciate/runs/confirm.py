"""Evaluate a candidate again before a target it reached counts."""

from __future__ import annotations

from speciate.ports.evaluator import EvaluatorClient
from speciate.ports.work import Commit, Confirmation, Lease, WorkStore
from speciate.runs.seeds import evaluation_seed


def confirm(lease: Lease, work: WorkStore, evaluator: EvaluatorClient) -> Commit | None:
    """Repeat an evaluation as often as the problem asks, with fresh seeds; every repeat must meet the target.

    Returns:
        The commit, or None when the lease was lost.

    Raises:
        EvaluatorUnavailableError: The evaluator itself cannot work.
    """
    context = work.context(lease.run_id)
    problem = context.problem
    number, target = int(lease.payload["number"]), int(lease.payload["target"])
    program = work.members(lease.run_id, [number])[number].program
    repeats = range(1, problem.confirmations + 1)
    results = evaluator.evaluate(
        problem, [program] * len(repeats), seeds=[evaluation_seed(context, number, i) for i in repeats]
    )
    missed = [
        f"repeat {i}: {result.rewards if result.failure is None else result.failure.kind.value}"
        for i, result in zip(repeats, results, strict=True)
        if result.rewards is None or not problem.targets_met(result.rewards, stopped_at=result.stopped_at) >> target & 1
    ]
    return work.record_confirmation(lease, Confirmation(number, target, holds=not missed, detail="; ".join(missed)))
