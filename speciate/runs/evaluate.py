"""Score a batch: leave out what was seen before, evaluate the rest, find its places in the archive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from speciate.domain.candidate import Evaluation, Failure, FailureKind, Proposal
from speciate.ports.evaluator import EvaluatorClient
from speciate.ports.work import Commit, EvaluatedBatch, Lease, Outcome, RunContext, Twin, WorkStore
from speciate.runs.payloads import read_proposals
from speciate.runs.seeds import evaluation_seed
from speciate.runs.view import StoredPopulation
from speciate.search.strategies import build_strategy
from speciate.search.strategy import Evaluated


def evaluate(lease: Lease, work: WorkStore, evaluator: EvaluatorClient) -> Commit | None:
    """Score one batch.

    Returns:
        The commit, or None when the lease was lost.

    Raises:
        EvaluatorUnavailableError: The evaluator itself cannot work.
    """
    context = work.context(lease.run_id)
    proposals = read_proposals(lease.payload)
    first = int(lease.payload["first"])
    readable = [proposal.program_hash for proposal in proposals if proposal.failure is None]
    twins = work.twins(lease.run_id, readable)
    fresh = _fresh(proposals, twins)
    results = evaluator.evaluate(
        context.problem,
        [proposals[i].program for i in fresh],
        seeds=[evaluation_seed(context.spec.seed, first + i) for i in fresh],
        timeout_s=work.seconds_left(lease.run_id),
    )
    results = _in_scale(context, results)
    outcomes = _outcomes(context, proposals, first, dict(zip(fresh, results, strict=True)), twins)
    strategy = build_strategy(context.spec.strategy, context.spec.strategy_options)
    evaluated = [
        Evaluated(first + i, proposals[i].island, proposals[i].program, rewards)
        for i, result in zip(fresh, results, strict=True)
        if (rewards := result.rewards) is not None
    ]
    placements = strategy.place(StoredPopulation(work, context, lease), evaluated) if evaluated else ()
    return work.settle(lease, EvaluatedBatch(tuple(outcomes), tuple(placements)))


def _in_scale(context: RunContext, results: Sequence[Evaluation]) -> list[Evaluation]:
    """Refuse finite rewards that are not finite on the scale of their declared ranges: nothing can rank them."""
    scored = [(i, result.rewards) for i, result in enumerate(results) if result.rewards is not None]
    checked = list(results)
    if scored:
        points = context.problem.space.normalise([rewards for _, rewards in scored])
        for (i, _), far in zip(scored, np.abs(points).max(axis=1).tolist(), strict=True):
            if not far <= _FARTHEST:
                detail = (
                    f"a reward lies {far:.3g} ranges away from its declared range: expected at most {_FARTHEST:.0e}"
                )
                failure = Failure(FailureKind.INVALID_OUTPUT, "rewards_out_of_scale", detail)
                checked[i] = replace(results[i], rewards=None, failure=failure)
    return checked


_FARTHEST = 1e100
"""Ranges that a reward may lie away from its own: sums and products of such numbers are still finite."""


def _fresh(proposals: Sequence[Proposal], twins: dict[str, Twin]) -> list[int]:
    """Return the positions of programs that neither the run nor the batch has seen before."""
    seen = set(twins)
    fresh = []
    for i, proposal in enumerate(proposals):
        if proposal.failure is None and proposal.program_hash not in seen:
            seen.add(proposal.program_hash)
            fresh.append(i)
    return fresh


def _outcomes(
    context: RunContext,
    proposals: Sequence[Proposal],
    first: int,
    results: dict[int, Evaluation],
    twins: dict[str, Twin],
) -> list[Outcome]:
    known = dict(twins)
    outcomes = []
    for i, proposal in enumerate(proposals):
        if proposal.failure is not None:
            outcomes.append(Outcome(proposal, Evaluation(failure=proposal.failure)))
        elif i in results:
            targets = _targets(context, results[i])
            outcomes.append(Outcome(proposal, results[i], targets=targets))
            known[proposal.program_hash] = Twin(first + i, results[i], targets)
        else:
            twin = known[proposal.program_hash]
            outcomes.append(Outcome(proposal, twin.evaluation, duplicate_of=twin.number, targets=twin.targets))
    return outcomes


def _targets(context: RunContext, result: Evaluation) -> int:
    if result.rewards is None:
        return 0
    return context.problem.targets_met(result.rewards, stopped_at=result.stopped_at)
