"""Evaluate the programs of a batch, and repeat evaluations."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import Self

import numpy as np

from speciate.domain.candidate import Candidate, Evaluation, Failure, FailureKind, Individual, Proposal, Repeat
from speciate.domain.data_files import content_of
from speciate.domain.errors import EvaluatorUnavailableError
from speciate.domain.policy import PolicyRole
from speciate.domain.problem import BEST_FILE, Problem
from speciate.domain.target import TargetSet
from speciate.ports.evaluator import EvaluatorClient
from speciate.ports.reporting import name_evaluations
from speciate.ports.work import CarriedOutput, FinalValue, Lease, RunContext, WorkStore
from speciate.runs.novelty import NearDuplicate, Neighbours, shape_of
from speciate.runs.payloads import read_proposals
from speciate.schema.candidates import CandidateDetail

_NOTE = "answer"
"""Name of the feedback that says what reading changed in an answer."""
_OWN_SEED = -1
"""Trial of a program that a policy wrote again: its seed is shared with no other program."""
_MAX_DISTANCE = 1e100
"""Range widths that a reward may lie outside its declared range. Sums and products of such numbers are finite."""


@dataclass(frozen=True, slots=True)
class ProgramBatch:
    """The proposals of an ``evaluate`` unit, and which of them are new programs."""

    context: RunContext
    first: int  # number of the first candidate
    proposals: Sequence[Proposal]
    # Digests of their syntax trees; None for rejected proposals and where trees are not compared.
    shapes: Sequence[str | None]
    # By digest of a text or tree, the earlier candidate of the run with that program, or to which that program is too
    # similar.
    repeated: Mapping[str, Candidate | NearDuplicate]
    # Programs to evaluate, by number: neither the run nor the batch has seen them or similar ones before, or rewards
    # are noisy and this is one more trial.
    new: Mapping[int, Proposal]

    @classmethod
    def read(cls, lease: Lease, context: RunContext, work: WorkStore) -> Self:
        """Read the batch of a unit, and compare its programs with those of the run."""
        proposals, first = read_proposals(lease.payload), int(lease.payload["first"])
        shapes = [None if p.failure is not None else p.shape or shape_of(context, p.program) for p in proposals]
        hashes = [p.program_hash for p in proposals if p.failure is None]
        duplicates = work.duplicates(context.run_id, hashes, [shape for shape in shapes if shape is not None])
        failed = {digest for digest, candidate in duplicates.items() if candidate.evaluation.rewards is None}
        seen, new, trials = set(duplicates), {}, {}
        for number, (proposal, shape) in enumerate(zip(proposals, shapes, strict=True), start=first):
            digests = _digests(proposal, shape)
            if proposal.failure is None and seen.isdisjoint(digests):
                new[number] = proposal
            elif context.problem.is_noisy and proposal.failure is None and failed.isdisjoint(digests):
                # Another evaluation tells more of the program.
                trial = proposal.trial if proposal.role is PolicyRole.REPEAT else _OWN_SEED
                trials[number] = proposals[number - first] = replace(proposal, trial=trial)
            seen.update(digests if proposal.failure is None else ())
        near = _near_duplicates(context, work, new, first)
        wanted = {number: p for number, p in sorted((new | trials).items()) if p.program_hash not in near}
        return cls(context, first, proposals, shapes, {**duplicates, **near}, wanted)

    def candidates(self, results: Mapping[int, Evaluation], sources: Mapping[int, str]) -> tuple[Candidate, ...]:
        """Return the candidate of every proposal.

        ``sources`` holds ``run/number`` of the candidate of another run whose result is reused, by number.
        """
        earlier = dict(self.repeated)
        candidates = []
        for number, (proposal, shape) in enumerate(zip(self.proposals, self.shapes, strict=True), start=self.first):
            digests = _digests(proposal, shape)
            if proposal.failure is not None:
                candidate = Candidate(number, proposal, Evaluation(failure=proposal.failure))
            elif (result := results.get(number)) is not None:
                targets, source = _targets(self.context, result), sources.get(number)
                if proposal.note:
                    result = replace(result, artifacts={**result.artifacts, _NOTE: proposal.note})
                candidate = Candidate(number, proposal, result, targets=targets, shape=shape, reused_from=source)
                if self.context.problem.is_noisy:
                    same = next((earlier[digest] for digest in digests if digest in earlier), candidate)
                    original = None if same is candidate else same.number
                    # What is known of a program from all of its evaluations decides its targets.
                    candidate = replace(candidate, targets=0, duplicate_of=original)
                    earlier = dict.fromkeys(digests, candidate if original is None else same) | earlier
                else:
                    earlier |= dict.fromkeys(digests, candidate)
            else:
                same = next(earlier[digest] for digest in digests if digest in earlier)
                candidate = _repeated(number, proposal, same)
                # A rejected near-duplicate may occur again in the batch, with another text and the same tree.
                earlier = dict.fromkeys(digests, same) | earlier
            candidates.append(candidate)
        return tuple(candidates)

    def original(self, number: int) -> int | None:
        """Return the earlier candidate of the run with the program of a candidate, or None."""
        digests = _digests(self.proposals[number - self.first], self.shapes[number - self.first])
        return next((self.repeated[digest].number for digest in digests if digest in self.repeated), None)


def _digests(proposal: Proposal, shape: str | None) -> list[str]:
    """Return the digests that identify a program: of its text, and of its tree if trees are compared."""
    return [proposal.program_hash] if shape is None else [proposal.program_hash, shape]


def _near_duplicates(
    context: RunContext, work: WorkStore, new: Mapping[int, Proposal], first: int
) -> dict[str, NearDuplicate]:
    """Return, by hash, the programs that are too similar to earlier ones of the run or the batch.

    Seeds do not count, nor polished programs, which are like their parents.
    """
    neighbours = Neighbours(context, work, {proposal.island for proposal in new.values()}, first)
    rejected, exempt = {}, (PolicyRole.SEED, PolicyRole.REPEAT, PolicyRole.POLISH)
    for number, proposal in new.items():
        if proposal.role not in exempt and (near := neighbours.nearest(proposal.program)):
            rejected[proposal.program_hash] = near
        else:
            neighbours.add(number, proposal.program)
    return rejected


def _repeated(number: int, proposal: Proposal, earlier: Candidate | NearDuplicate) -> Candidate:
    if isinstance(earlier, NearDuplicate):
        return Candidate(number, proposal, Evaluation(failure=earlier.failure()), duplicate_of=earlier.number)
    targets = earlier.targets & ~earlier.refuted
    return Candidate(number, proposal, earlier.evaluation, duplicate_of=earlier.number, targets=targets)


def _targets(context: RunContext, result: Evaluation) -> TargetSet:
    rewards = result.rewards
    return 0 if rewards is None else context.problem.targets_met(rewards, stopped_at=result.stopped_at)


def evaluate_programs(
    lease: Lease, batch: ProgramBatch, work: WorkStore, evaluator: EvaluatorClient
) -> tuple[dict[int, Evaluation], dict[int, str]]:
    """Return the results of a batch's programs by number, and for each result of another run its source, by number."""
    context, new = batch.context, batch.new
    reusable = work.results(lease.run_id, [proposal.program_hash for proposal in new.values()], evaluator.tier)
    reused = {number: reusable[p.program_hash] for number, p in new.items() if p.program_hash in reusable}
    originals = {number: batch.original(number) for number in new if number not in reused}
    starts = dict[int | None, CarriedOutput | None].fromkeys(originals.values())
    if context.problem.carry is not None:  # all trials of a program start from the same output
        starts = {original: work.carried(lease.run_id, original) for original in starts}
    results = {number: result for number, (_, result) in reused.items()}
    for carried in dict.fromkeys(starts.values()):
        programs = {i: new[i].program for i, original in originals.items() if starts[original] == carried}
        seeds = [evaluation_seed(context, number, trial=new[number].trial) for number in programs]
        name_evaluations(dict(zip(zip(programs.values(), seeds, strict=True), programs, strict=True)))
        problem, left_s = with_output(context.problem, carried), work.seconds_left(lease.run_id)
        evaluations = evaluator.evaluate(problem, list(programs.values()), seeds=seeds, timeout_s=left_s)
        source = None if carried is None else carried.number
        results |= {i: replace(one, carried_from=source) for i, one in zip(programs, evaluations, strict=True)}
    return reject_out_of_scale(context.problem, results), {number: source for number, (source, _) in reused.items()}


def with_output(problem: Problem, carried: CarriedOutput | None) -> Problem:
    """Return the problem with the carried output as the data file ``best.json`` (``carry = "best"``, ADR 49)."""
    if carried is None:
        return problem
    best = content_of(carried.output.encode())  # a text like the beginning of binary data is no mistake
    return problem.model_copy(update={"data_files": {**problem.data_files, BEST_FILE: best}})


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


def repeat_evaluation(
    context: RunContext, work: WorkStore, evaluator: EvaluatorClient, member: Individual
) -> tuple[tuple[Repeat, ...], TargetSet]:
    """Evaluate a candidate ``Problem.confirmations`` times, each time with another seed.

    What an earlier confirmation of the candidate measured decides its other targets, too: the seeds would be the same.

    Returns:
        What the repeats measured, and the targets that all of them meet.
    """
    problem, number = context.problem, member.number
    if member.repeats and not problem.stages:  # a repeat that stopped at a stage has no values
        met = [0 if isinstance(repeat, str) else problem.targets_met(repeat) for repeat in member.repeats]
        return member.repeats, reduce(and_, met)
    seeds = [evaluation_seed(context, number, i) for i in range(1, problem.confirmations + 1)]
    results = _evaluate_again(context, work, evaluator, member, seeds)
    return tuple(map(_repeat, results)), reduce(and_, (_targets(context, result) for result in results))


def final_value(context: RunContext, work: WorkStore, evaluator: EvaluatorClient, member: Individual) -> FinalValue:
    """Evaluate the best candidate ``final_evaluations`` times, with seeds that no earlier evaluation had."""
    problem, number, count = context.problem, member.number, context.spec.final_evaluations
    seeds = [evaluation_seed(context, number, problem.confirmations + i) for i in range(1, count + 1)]
    evaluations = _evaluate_again(context, work, evaluator, member, seeds)
    results = reject_out_of_scale(problem, dict(enumerate(evaluations))).values()
    rewards = np.array([result.rewards for result in results if result.rewards is not None])
    mean = tuple(rewards.mean(axis=0).tolist()) if len(rewards) else ()
    margin = ()
    if len(rewards) > 1:
        from scipy.special import stdtrit  # imported here: every process loads this module, and few runs are noisy

        error = rewards.std(axis=0, ddof=1) / math.sqrt(len(rewards))
        margin = tuple((float(stdtrit(len(rewards) - 1, 0.975)) * error).tolist())
    return FinalValue(number, len(rewards), mean, margin, failed=count - len(rewards))


def _evaluate_again(
    context: RunContext, work: WorkStore, evaluator: EvaluatorClient, member: Individual, seeds: Sequence[int]
) -> list[Evaluation]:
    """Raises ``EvaluatorUnavailableError`` also if an evaluation was lost, which says nothing about the candidate."""
    carried = work.carried(context.run_id, member.number) if context.problem.carry is not None else None
    name_evaluations({(member.program, seed): member.number for seed in seeds})
    results = evaluator.evaluate(with_output(context.problem, carried), [member.program] * len(seeds), seeds=seeds)
    for result in results:
        if result.failure is not None and result.failure.lost:
            reason = f"a repeated evaluation of candidate {member.number} was lost ({result.failure.reason})"
            raise EvaluatorUnavailableError(f"{reason}; resume to try again")
    return results


def _repeat(result: Evaluation) -> Repeat:
    if result.rewards is None:
        return "failure" if result.failure is None else f"{result.failure.kind.value} ({result.failure.reason})"
    return result.rewards if result.stopped_at is None else f"stopped at stage {result.stopped_at}"


def replay_evaluation(
    context: RunContext, candidate: CandidateDetail, work: WorkStore, evaluator: EvaluatorClient
) -> Evaluation:
    """Evaluate a candidate again with the seed and the start of its first evaluation. The run does not change."""
    seed = evaluation_seed(context, candidate.number, trial=candidate.trial)
    carried = None
    if candidate.carried_from is not None:
        carried = work.carried(context.run_id, candidate.number)
        if carried is None:
            start = f"candidate {candidate.carried_from}, from whose output it started"
            detail = f"{start}, has no output any more: texts of ended runs are deleted"
            return Evaluation(failure=Failure(FailureKind.REJECTED, "carried_output_deleted", detail))
    (result,) = evaluator.evaluate(with_output(context.problem, carried), [candidate.program], seeds=[seed])
    return result if carried is None else replace(result, carried_from=carried.number)


def evaluation_seed(context: RunContext, number: int, repeat: int = 0, trial: int = 0) -> int:
    """Return the seed of an evaluation, below 2**31. It depends on the run's seed and problem (ADR 27).

    ``repeat`` is 0 for the evaluation of a candidate and 1, 2, … for its confirmations. Of problems with noise, all
    programs share the seed of each ``trial`` from 0 (common random numbers): their rewards differ by what they do.
    """
    shared = context.problem.is_noisy and not repeat and trial >= 0
    of = f"trial {trial}" if shared else f"{number}:{repeat}"
    text = f"{context.spec.seed}:{context.problem.digest}:{of}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1
