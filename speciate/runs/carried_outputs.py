"""Hand each candidate the output of the run's best candidate so far: ``carry = "best"`` of a problem (ADR 49)."""

from __future__ import annotations

from typing import Final

from speciate.domain.candidate import Evaluation, Failure, FailureKind
from speciate.domain.problem import BEST_FILE, Problem
from speciate.ports.work import CarriedOutput

OUTPUT_DELETED: Final = "carried_output_deleted"
"""Reason of a repeated evaluation whose start is gone."""


def with_output(problem: Problem, carried: CarriedOutput | None) -> Problem:
    """Return the problem with the carried output as the data file ``best.json``."""
    if carried is None:
        return problem
    return problem.model_copy(update={"data_files": {**problem.data_files, BEST_FILE: carried.output}})


def output_deleted(number: int) -> Evaluation:
    """Return the result of repeating an evaluation that started from an output which retention has deleted."""
    detail = (
        f"candidate {number}, from whose output it started, has no output any more: texts of ended runs are deleted"
    )
    return Evaluation(failure=Failure(FailureKind.REJECTED, OUTPUT_DELETED, detail))
