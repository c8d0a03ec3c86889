"""Evaluate batches of candidates, confirm reached targets, and repeat single evaluations."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import Self

import numpy as np

from speciate.domain.candidate import Evaluation, Failure, FailureKind, Individual, Proposal, Repeat
from speciate.domain.policy import PolicyRole
from speciate.domain.problem import Problem
from speciate.ports.evaluator import EvaluatorClient
from speciate.ports.reporting import name_evaluations
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
from speciate.runs.carried_outputs import output_deleted, with_output
from speciate.runs.novelty import NearDuplicate, Neighbours, shape_of
from speciate.runs.payloads import read_confirmations, read_proposals
from speciate.runs.silent_failure import remedy_in, reported_error, silent_failure
from speciate.runs.stored_population import StoredPopulation
from speciate.schema.candidates import CandidateDetail
from speciate.search.strategies import build_strategy
from speciate.search.strategy import Placement
from speciate.search.targets import place_candidates

_MAX_DISTANCE = 1e100
"""Range widths that a reward may lie outside its declared range. Sums and products of such numbers are finite."""


@dataclass(frozen=True, slots=True)
class _ProposalBatch:
    """The proposals of a lease.

    Attributes:
        context: The run.
        first: Number of the first candidate.
        proposals: Proposals in order.
        shapes: Digests of their syntax trees; None for rejected proposals and where trees are not compared.
    """

    context: RunContext
    first: int
    proposals: Sequence[Proposal]
    shapes: Sequence[str | None]

    @classmethod
    def of(cls, lease: Lease, context: RunContext) -> Self:
        """Read the batch from a lease."""
        proposals = read_proposals(lease.payload)
        shapes = [None if p.failure is not None else p.shape or shape_of(context, p.program) for p in proposals]
        return cls(context, int(lease.payload["first"]), proposals, shapes)

    def names(self, i: int) -> list[str]:
        """Return the digests that identify program i: of its text, and of its tree if trees are compared."""
        shape, digest = self.shapes[i], self.proposals[i].program_hash
        return [digest] if shape is None else [digest, shape]

    def known(self, work: WorkStore) -> dict[str, Duplicate]:
        """Return the earlier candidates of the run with the same programs, by digest."""
        hashes = [p.program_hash for p in self.proposals if p.failure is None]
        return work.duplicates(self.context.run_id, hashes, [shape for shape in self.shapes if shape is not None])

    def new(self, known: Mapping[str, Duplicate]) -> dict[int, Proposal]:
        """Return the programs that neither the run nor the batch has seen before, by number."""
        seen = set(known)
        found = {}
        for i, proposal in enumerate(self.proposals):
            names = self.names(i)
            if proposal.failure is None and seen.isdisjoint(names):
                seen.update(names)
                found[self.first + i] = proposal
        return found


def evaluate(lease: Lease, work: WorkStore, evaluator: EvaluatorClient) -> Commit | None:
    """Evaluate the new programs of a batch and request their places in the archive.

    Returns:
        The commit, or None if the lease was lost.

    Raises:
        EvaluatorUnavailableError: The evaluator does not work.
    """
    context = work.context(lease.run_id)
    batch = _ProposalBatch.of(lease, context)
    known = batch.known(work)
    new = batch.new(known)
    near = _near_duplicates(context, work, new, batch.first)
    new = {number: proposal for number, proposal in new.items() if proposal.program_hash not in near}
    results, sources = _results(lease, work, evaluator, new)
    outcomes = _outcomes(batch, results, {**known, **near})
    outcomes = [replace(o, reused_from=sources.get(number)) for number, o in enumerate(outcomes, start=batch.first)]
    placements = _placements(StoredPopulation(work, context, lease.ordinal), context, new, results)
    return work.commit_evaluations(lease, EvaluatedBatch(tuple(outcomes), placements))


def _placements(
    view: StoredPopulation, context: RunContext, new: Mapping[int, Proposal], results: Mapping[int, Evaluation]
) -> tuple[Placement, ...]:
    evaluated = [
        Individual(
            number, proposal.program, rewards, island=proposal.island, targets=_targets(context, results[number])
        )
        for number, proposal in new.items()
        if (rewards := results[number].rewards) is not None
    ]
    strategy = build_strategy(context.spec.strategy, context.spec.strategy_options)
    return place_candidates(strategy, view, evaluated) if evaluated else ()


def _results(
    lease: Lease, work: WorkStore, evaluator: EvaluatorClient, new: Mapping[int, Proposal]
) -> tuple[dict[int, Evaluation], dict[int, str]]:
    """Evaluate programs unless another run has evaluated them.

    Returns:
        Results by number, and the source of each reused result by number.
    """
    context = work.context(lease.run_id)
    reusable = work.results(lease.run_id, [proposal.program_hash for proposal in new.values()], evaluator.tier)
    reused = {number: reusable[p.program_hash] for number, p in new.items() if p.program_hash in reusable}
    programs = {number: proposal.program for number, proposal in new.items() if number not in reused}
    carried = work.carried(lease.run_id) if context.problem.carry is not None else None
    seeds = [evaluation_seed(context, number) for number in programs]
    name_evaluations(dict(zip(seeds, programs, strict=True)))
    evaluations = evaluator.evaluate(
        with_output(context.problem, carried),
        list(programs.values()),
        seeds=seeds,
        timeout_s=work.seconds_left(lease.run_id),
    )
    if carried is not None:
        evaluations = [replace(evaluation, carried_from=carried.number) for evaluation in evaluations]
    results = dict(zip(programs, evaluations, strict=True))
    results |= {number: found.evaluation for number, found in reused.items()}
    return reject_out_of_scale(context.problem, results), {number: found.source for number, found in reused.items()}


def reject_out_of_scale(problem: Problem, results: Mapping[int, Evaluation]) -> dict[int, Evaluation]:
    """Fail candidates whose rewards overflow after normalization by the declared ranges: they cannot be ranked."""
    scored = {number: result.rewards for number, result in results.items() if result.rewards is not None}
    checked = dict(results)
    if scored:
        distances = np.abs(problem.space.normalise(list(scored.values()))).max(axis=1)
        for number, distance in zip(scored, distances.tolist(), strict=True):
            if not distance <= _MAX_DISTANCE:
                detail = (
                    f"a reward lies {distance:.3g} range widths outside its declared range:"
                    f" expected at most {_MAX_DISTANCE:.0e}"
                )
                failure = Failure(FailureKind.INVALID_OUTPUT, "rewards_out_of_scale", detail)
                checked[number] = replace(results[number], rewards=None, failure=failure)
    return checked


def _near_duplicates(
    context: RunContext, work: WorkStore, new: Mapping[int, Proposal], first: int
) -> dict[str, NearDuplicate]:
    """Return, by hash, the programs that are too similar to earlier ones of the run or the batch, except seeds."""
    neighbours = Neighbours(context, work, {proposal.island for proposal in new.values()}, first)
    found = {}
    for number, proposal in new.items():
        if proposal.role is not PolicyRole.SEED and (near := neighbours.nearest(proposal.program)):
            found[proposal.program_hash] = near
        else:
            neighbours.add(number, proposal.program)
    return found


def _outcomes(
    batch: _ProposalBatch, results: Mapping[int, Evaluation], known: Mapping[str, Duplicate | NearDuplicate]
) -> list[CandidateOutcome]:
    known = dict(known)
    outcomes = []
    for i, proposal in enumerate(batch.proposals):
        names, number = batch.names(i), batch.first + i
        if proposal.failure is not None:
            outcomes.append(CandidateOutcome(proposal, Evaluation(failure=proposal.failure)))
        elif number in results:
            targets = _targets(batch.context, results[number])
            outcomes.append(CandidateOutcome(proposal, results[number], targets=targets, shape=batch.shapes[i]))
            known |= dict.fromkeys(names, Duplicate(number, results[number], targets))
        else:
            earlier = next(known[name] for name in names if name in known)
            outcomes.append(_repeated(proposal, earlier))
            # A rejected near-duplicate may occur again in the batch, with another text and the same tree.
            known = dict.fromkeys(names, earlier) | known
    return outcomes


def _repeated(proposal: Proposal, earlier: Duplicate | NearDuplicate) -> CandidateOutcome:
    """Return the outcome of a program that is not evaluated: the rewards of its duplicate, or a rejection."""
    if isinstance(earlier, NearDuplicate):
        return CandidateOutcome(proposal, Evaluation(failure=earlier.failure()), duplicate_of=earlier.number)
    return CandidateOutcome(proposal, earlier.evaluation, duplicate_of=earlier.number, targets=earlier.targets)


def _targets(context: RunContext, result: Evaluation) -> int:
    if result.rewards is None:
        return 0
    return context.problem.targets_met(result.rewards, stopped_at=result.stopped_at)


def confirm(lease: Lease, work: WorkStore, evaluator: EvaluatorClient) -> Commit | None:
    """Repeat an evaluation, each time with another seed. A target holds if every repeat meets it.

    Repeats that an earlier confirmation of the candidate measured decide its other targets too.

    Returns:
        The commit, or None if the lease was lost.

    Raises:
        EvaluatorUnavailableError: The evaluator does not work.
    """
    context = work.context(lease.run_id)
    problem = context.problem
    number, targets = read_confirmations(lease.payload)[0]
    member = work.members(lease.run_id, [number])[number]
    if member.repeats and not problem.stages:  # the seeds are the same; a repeat that stopped at a stage has no values
        measured = member.repeats
        masks = [0 if isinstance(repeat, str) else problem.targets_met(repeat) for repeat in measured]
    else:
        results = _repeated_results(lease, work, evaluator, member)
        measured = tuple(map(_repeat, results))
        masks = [_targets(context, result) for result in results]
    met = reduce(and_, masks)
    refuted = {i: problem.ranking.refutation(i, member.rewards or (), measured) for i in targets if not met >> i & 1}
    confirmed = [i for i in targets if i not in refuted]
    return work.commit_confirmation(lease, Confirmation(number, confirmed, refuted, measured))


def _repeated_results(
    lease: Lease, work: WorkStore, evaluator: EvaluatorClient, member: Individual
) -> list[Evaluation]:
    context, number = work.context(lease.run_id), member.number
    problem = context.problem
    carried = work.carried(lease.run_id, number) if problem.carry is not None else None
    seeds = [evaluation_seed(context, number, i) for i in range(1, problem.confirmations + 1)]
    name_evaluations(dict.fromkeys(seeds, number))
    return evaluator.evaluate(with_output(problem, carried), [member.program] * len(seeds), seeds=seeds)


def _repeat(result: Evaluation) -> Repeat:
    if result.rewards is None:
        return "failure" if result.failure is None else f"{result.failure.kind.value} ({result.failure.reason})"
    return result.rewards if result.stopped_at is None else f"stopped at stage {result.stopped_at}"


def replay_evaluation(
    context: RunContext, candidate: CandidateDetail, work: WorkStore, evaluator: EvaluatorClient
) -> Evaluation:
    """Evaluate a candidate again with the seed and the start of its first evaluation. The run does not change.

    Raises:
        EvaluatorUnavailableError: The evaluator does not work.
    """
    seed = evaluation_seed(context, candidate.number)
    carried = None
    if candidate.carried_from is not None:
        carried = work.carried(context.run_id, candidate.number)
        if carried is None:
            return output_deleted(candidate.carried_from)
    (found,) = evaluator.evaluate(with_output(context.problem, carried), [candidate.program], seeds=[seed])
    return found if carried is None else replace(found, carried_from=carried.number)


def evaluation_seed(context: RunContext, number: int, repeat: int = 0) -> int:
    """Return the seed of an evaluation, below 2**31. It depends on the run's seed and problem (ADR 27).

    Args:
        context: The run.
        number: Run-wide number of the candidate.
        repeat: 0 for the first evaluation; 1, 2, … for its confirmations.
    """
    text = f"{context.spec.seed}:{context.problem.digest}:{number}:{repeat}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1


def describe_seed_failure(problem: Problem, evaluation: Evaluation) -> str | None:
    """Return why a seed program has no usable rewards, with all details as untrusted text, or None if it has."""
    if (failure := evaluation.failure) is None:
        silent = silent_failure(problem, evaluation)
        return None if silent is None else f"The seed program cannot be scored: {silent.describe()}"
    failing = "the evaluator fails on the seed program" if failure.by_evaluator else "the seed program fails"
    lines = [f"The definition is valid, but {failing}: {failure.kind.value} ({failure.reason})", failure.detail.strip()]
    lines += [f"--- {name}\n{text.strip()}" for name, text in evaluation.artifacts.items()]
    if failure.by_evaluator and (known := reported_error({"detail": failure.detail}, evaluation.tier)) is not None:
        lines.append(remedy_in(problem, known))
    return "\n".join(filter(None, lines))
