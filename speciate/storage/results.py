"""Results that runs share: which candidate a program's rewards can be read from, for every evaluator and tier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from speciate.domain.candidate import Evaluation
from speciate.ports.work import CandidateOutcome, ReusedResult, RunContext
from speciate.storage.tables import DEFAULT_PROJECT_ID, results

_READ: Final = sa.text(
    "SELECT x.program_hash, c.run_id, c.number, c.rewards, c.tier, c.artifacts FROM results x"
    " JOIN candidates c ON c.run_id = x.run_id AND c.number = x.number"
    # Between the two steps of retention the texts of a candidate are gone, and it is still here.
    " WHERE x.evaluator_digest = :digest AND x.tier = :tier AND x.program_hash = ANY(:hashes) AND c.program <> ''"
)


def read_results(
    connection: sa.Connection, context: RunContext, hashes: Sequence[str], tier: str
) -> dict[str, ReusedResult]:
    """Return the results that are kept of some programs, by program hash."""
    keys = {"digest": _evaluator(context), "tier": tier, "hashes": list(hashes)}
    return {
        row.program_hash: ReusedResult(
            f"{row.run_id}/{row.number}",
            Evaluation(tuple(row.rewards), tier=row.tier, artifacts=row.artifacts),
        )
        for row in connection.execute(_READ, keys)
    }


def keep_results(
    connection: sa.Connection, context: RunContext, first: int, outcomes: Sequence[CandidateOutcome]
) -> None:
    """Keep what a batch found out. A failure is not kept, of a later stage neither: it may have been the machine's."""
    rows = [
        {
            "evaluator_digest": _evaluator(context),
            "tier": outcome.evaluation.tier,
            "program_hash": outcome.proposal.program_hash,
            "run_id": context.run_id,
            "number": first + i,
        }
        for i, outcome in enumerate(outcomes)
        if is_kept(outcome)
    ]
    if rows:
        # In one order everywhere, so that two runs that find the same programs cannot wait for each other.
        rows.sort(key=lambda row: str(row["program_hash"]))
        connection.execute(insert(results).values(rows).on_conflict_do_nothing())


def _evaluator(context: RunContext) -> str:
    """Return the evaluator as results are kept under it: whose project it is, but for the one that all runs were in."""
    project, digest = context.project_id, context.problem.evaluator_digest
    return digest if project in {None, DEFAULT_PROJECT_ID} else f"{project}/{digest}"


def is_kept(outcome: CandidateOutcome) -> bool:
    """Tell whether an outcome is a whole result of its own."""
    evaluation = outcome.evaluation
    whole = evaluation.rewards is not None and evaluation.stopped_at is None
    return whole and outcome.duplicate_of is None and outcome.reused_from is None
