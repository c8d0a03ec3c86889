"""Score a batch: leave out what was seen before, evaluate the rest, find its places in the archive."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from speciate.domain.candidate import Evaluation, Failure, FailureKind, Proposal
from speciate.ports.evaluator import EvaluatorClient
from speciate.ports.records.candidates import CandidateDetail
from speciate.ports.work import (
    CandidateOutcome,
    Commit,
    Confirmation,
    Duplicate,
    EvaluatedBatch,
    Lease,
    RunContext,
    WorkStore,
)
from speciate.runs.novelty import NearDuplicate, Neighbours, shape_of
from speciate.runs.payloads import read_proposals
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
    shapes = [None if p.failure is not None else shape_of(context, p.program) for p in proposals]
    readable = [proposal.program_hash for proposal in proposals if proposal.failure is None]
    duplicates = work.duplicates(lease.run_id, readable, [shape for shape in shapes if shape is not None])
    fresh = _fresh(proposals, shapes, duplicates)
    refused = _refused(context, work, {first + i: proposals[i] for i in fresh}, first)
    fresh = [i for i in fresh if proposals[i].program_hash not in refused]
    results, sources = _scores(lease, work, evaluator, {first + i: proposals[i] for i in fresh})
    outcomes = _outcomes(context, proposals, shapes, first, dict(zip(fresh, results, strict=True)), duplicates, refused)
    outcomes = [replace(o, reused_from=sources.get(number)) for number, o in enumerate(outcomes, start=first)]
    strategy = build_strategy(context.spec.strategy, context.spec.strategy_options)
    evaluated = [
        Evaluated(first + i, proposals[i].island, proposals[i].program, rewards)
        for i, result in zip(fresh, results, strict=True)
        if (rewards := result.rewards) is not None
    ]
    placements = strategy.place(StoredPopulation(work, context, lease), evaluated) if evaluated else ()
    return work.record_evaluations(lease, EvaluatedBatch(tuple(outcomes), tuple(placements)))


def _scores(
    lease: Lease, work: WorkStore, evaluator: EvaluatorClient, fresh: Mapping[int, Proposal]
) -> tuple[list[Evaluation], dict[int, str]]:
    """Score programs, in order of number; those that another run has scored are not evaluated.

    Returns:
        One result for each, and by number which candidates the results of other runs are from.
    """
    context = work.context(lease.run_id)
    reused = work.results(lease.run_id, [proposal.program_hash for proposal in fresh.values()], evaluator.tier)
    unknown = {number: proposal for number, proposal in fresh.items() if proposal.program_hash not in reused}
    evaluations = evaluator.evaluate(
        context.problem,
        [proposal.program for proposal in unknown.values()],
        seeds=[evaluation_seed(context, number) for number in unknown],
        timeout_s=work.seconds_left(lease.run_id),
    )
    new = dict(zip(unknown, evaluations, strict=True))
    old = {number: reused[proposal.program_hash] for number, proposal in fresh.items() if number not in new}
    results = [new[number] if number in new else old[number].evaluation for number in fresh]
    return _in_scale(context, results), {number: found.source for number, found in old.items()}


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


def _fresh(
    proposals: Sequence[Proposal], shapes: Sequence[str | None], duplicates: Mapping[str, Duplicate]
) -> list[int]:
    """Return the positions of programs that neither the run nor the batch has seen before."""
    seen = set(duplicates)
    fresh = []
    for i, proposal in enumerate(proposals):
        names = _names(proposal, shapes[i])
        if proposal.failure is None and seen.isdisjoint(names):
            seen.update(names)
            fresh.append(i)
    return fresh


def _refused(
    context: RunContext, work: WorkStore, fresh: Mapping[int, Proposal], first: int
) -> dict[str, NearDuplicate]:
    """Return, by hash, the programs that are too much like earlier ones of the run or the batch."""
    neighbours = Neighbours(context, work, {proposal.island for proposal in fresh.values()}, first)
    refused = {}
    for number, proposal in fresh.items():
        if likeness := neighbours.nearest(proposal.program):
            refused[proposal.program_hash] = likeness
        else:
            neighbours.add(number, proposal.program)
    return refused


def _outcomes(
    context: RunContext,
    proposals: Sequence[Proposal],
    shapes: Sequence[str | None],
    first: int,
    results: Mapping[int, Evaluation],
    duplicates: Mapping[str, Duplicate],
    refused: Mapping[str, NearDuplicate],
) -> list[CandidateOutcome]:
    known: dict[str, Duplicate | NearDuplicate] = {**duplicates, **refused}
    outcomes = []
    for i, (proposal, shape) in enumerate(zip(proposals, shapes, strict=True)):
        names = _names(proposal, shape)
        if proposal.failure is not None:
            outcomes.append(CandidateOutcome(proposal, Evaluation(failure=proposal.failure)))
        elif i in results:
            targets = _targets(context, results[i])
            outcomes.append(CandidateOutcome(proposal, results[i], targets=targets, shape=shape))
            known |= dict.fromkeys(names, Duplicate(first + i, results[i], targets))
        else:
            earlier = next(known[name] for name in names if name in known)
            outcomes.append(_repeated(proposal, earlier))
            # One that was refused may have come in other words again, in the same batch.
            known = dict.fromkeys(names, earlier) | known
    return outcomes


def _repeated(proposal: Proposal, earlier: Duplicate | NearDuplicate) -> CandidateOutcome:
    """Return what becomes of a program that is not evaluated: its duplicate's rewards, or a rejection."""
    if isinstance(earlier, NearDuplicate):
        return CandidateOutcome(proposal, Evaluation(failure=earlier.failure()), duplicate_of=earlier.number)
    return CandidateOutcome(proposal, earlier.evaluation, duplicate_of=earlier.number, targets=earlier.targets)


def _names(proposal: Proposal, shape: str | None) -> list[str]:
    """Return the names by which a program is known again: its text's, and its tree's where trees are compared."""
    return [proposal.program_hash] if shape is None else [proposal.program_hash, shape]


def _targets(context: RunContext, result: Evaluation) -> int:
    if result.rewards is None:
        return 0
    return context.problem.targets_met(result.rewards, stopped_at=result.stopped_at)


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


def recheck(context: RunContext, candidate: CandidateDetail, evaluator: EvaluatorClient) -> Evaluation:
    """Score a candidate's program once more.

    Raises:
        EvaluatorUnavailableError: The evaluator itself cannot work.
    """
    seed = evaluation_seed(context, candidate.number)
    (found,) = evaluator.evaluate(context.problem, [candidate.program], seeds=[seed])
    return found


def evaluation_seed(context: RunContext, number: int, repeat: int = 0) -> int:
    """Return the seed of an evaluation, below 2**31.

    Args:
        context: What never changes about the run.
        number: Run-wide number of the candidate.
        repeat: 0 for the first evaluation, 1, 2, … for its confirmations.
    """
    text = f"{context.spec.seed}:{context.problem.digest}:{number}:{repeat}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1
