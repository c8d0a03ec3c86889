"""Records of problems, their versions and sets."""

from datetime import datetime
from uuid import UUID

from speciate.domain.problem import Problem, ProblemKind
from speciate.schema.base import HideableRecord, Record
from speciate.schema.results import RunResult


class ProblemSummary(HideableRecord):
    """A problem version in a list."""

    id: UUID
    slug: str
    version: int
    title: str
    kind: ProblemKind
    attested: bool = False
    """True if external evaluators submit its rewards."""
    objectives: tuple[str, ...]
    targets: tuple[str, ...]
    digest: str
    created_at: datetime
    result: RunResult | None = None
    """The best result of its runs; only in lists, and None there before the first."""


class ProblemVersion(HideableRecord):
    """A problem version as submitted. A new version inherits no unlocks."""

    id: UUID
    version: int
    digest: str
    evaluator_digest: str
    created_at: datetime
    definition: Problem
    note: str = ""
    """What the check of the seed program found about noise; only in the answer to the submission."""


class ProblemSet(Record):
    """A named, frozen list of problem versions."""

    id: UUID
    slug: str
    title: str
    created_at: datetime
    problems: tuple[ProblemSummary, ...]
