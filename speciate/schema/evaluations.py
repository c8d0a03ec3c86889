"""Records of external evaluations: leased candidates and what became of submitted results."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from speciate.schema.base import Record


class LeasedEvaluation(Record):
    """A candidate that an external evaluator has leased.

    Attributes:
        id: Id of the evaluation.
        lease: Token of the lease; a result is booked only with it.
        lease_until: Time at which the evaluation is offered to others, unless a heartbeat renews the lease.
        attempt: Number of this lease, counted from 1.
        run_id: The run.
        number: Number of the candidate in the run.
        problem_id: The problem version.
        problem: Its name, ``slug@version``.
        program: The candidate: untrusted text from a model.
        files: Its files by name; one file for most problems.
        seed: Seed of the evaluation, below 2**31.
        objectives: Names of the rewards to submit.
        measured: Rewards of the sandboxed stages by objective; empty if there are none.
    """

    id: UUID
    lease: UUID
    lease_until: datetime
    attempt: int
    run_id: UUID
    number: int
    problem_id: UUID
    problem: str
    program: str
    files: dict[str, str]
    seed: int
    objectives: tuple[str, ...]
    measured: dict[str, float]


class WaitingEvaluations(Record):
    """Candidates of one problem version that wait for an evaluator.

    Attributes:
        problem: The problem version, ``slug@version``.
        capabilities: What an evaluator must offer to get them.
        waiting: Number of candidates.
    """

    problem: str
    capabilities: tuple[str, ...]
    waiting: int


class Acceptance(StrEnum):
    """Outcomes of a submitted result."""

    BOOKED = "booked"
    """It counts, now or since an earlier submission with the same lease."""
    REFUSED = "refused"
    """It does not count; ``reason`` says why."""


class SubmittedEvaluation(Record):
    """Outcome of one submitted result.

    Attributes:
        id: Id of the evaluation.
        status: ``booked`` or ``refused``.
        reason: Why it was refused; empty otherwise.
    """

    id: UUID
    status: Acceptance
    reason: str = ""


class RenewedLease(Record):
    """Outcome of a heartbeat for one lease.

    Attributes:
        id: Id of the evaluation.
        lease_until: New end of the lease; None if it is lost: stop the evaluation, another one counts.
    """

    id: UUID
    lease_until: datetime | None
