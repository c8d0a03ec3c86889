"""Records of external evaluations: leased candidates and what became of submitted results."""

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from speciate.schema.base import Record


class LeasedEvaluation(Record):
    """A candidate that an external evaluator has leased."""

    id: UUID
    lease: UUID
    """Token of the lease; a result is booked only with it."""
    lease_until: datetime
    """Time at which the evaluation is offered to others, unless a heartbeat renews the lease."""
    attempt: int
    """Number of this lease, counted from 1."""
    run_id: UUID
    number: int
    """Number of the candidate in the run."""
    problem_id: UUID
    problem: str
    """Its name, ``slug@version``."""
    program: str
    """The candidate: untrusted text from a model."""
    files: dict[str, str]
    """Its files by name; one file for most problems."""
    seed: int
    """Seed of the evaluation, below 2**31."""
    objectives: tuple[str, ...]
    """Names of the rewards to submit."""
    measured: dict[str, float]
    """Rewards of the sandboxed stages by objective; empty if there are none."""


class WaitingEvaluations(Record):
    """Candidates of one problem version that wait for an evaluator."""

    problem: str
    """The problem version, ``slug@version``."""
    capabilities: tuple[str, ...]
    """What an evaluator must offer to get them."""
    waiting: int


class Acceptance(StrEnum):
    BOOKED = "booked"
    """It counts, now or since an earlier submission with the same lease."""
    REFUSED = "refused"
    """It does not count; ``reason`` says why."""


class SubmittedEvaluation(Record):
    id: UUID
    status: Acceptance
    reason: str = ""
    """Why it was refused; empty otherwise."""


class RenewedLease(Record):
    """Outcome of a heartbeat for one lease."""

    id: UUID
    lease_until: datetime | None
    """New end of the lease; None if it is lost: stop the evaluation, another one counts."""
