"""Replaying a candidate: its program is scored again with the seed of its first evaluation. Nothing is booked."""

from __future__ import annotations

from speciate.domain.candidate import Evaluation
from speciate.ports.evaluator import EvaluatorClient
from speciate.ports.records.candidates import CandidateDetail
from speciate.ports.work import RunContext
from speciate.runs.seeds import evaluation_seed


def recheck(context: RunContext, candidate: CandidateDetail, evaluator: EvaluatorClient) -> Evaluation:
    """Score a candidate's program once more.

    Raises:
        EvaluatorUnavailableError: The evaluator itself cannot work.
    """
    seed = evaluation_seed(context, candidate.number)
    (found,) = evaluator.evaluate(context.problem, [candidate.program], seeds=[seed])
    return found
