"""Access control: token scopes and project quotas."""

from enum import StrEnum
from typing import Final

from pydantic import Field

from speciate.domain.values import Value

DEFAULT_PROJECT: Final = "default"
"""Slug of the project that every installation has."""

TOKEN_PREFIX: Final = "spc_"  # noqa: S105 - lets secret scanners recognise tokens


class Scope(StrEnum):
    READ = "read"
    """Read everything of the project."""
    PROPOSE = "propose"
    """Read, and propose candidates to runs."""
    EVALUATE = "evaluate"
    """Lease candidates and submit their rewards; nothing else, not even reading."""
    SUBMIT = "submit"
    """All of the above, and create and steer problems, policies and runs."""
    ADMIN = "admin"
    """All of the above, and administer the project."""

    def includes(self, other: "Scope") -> bool:
        return other in _GRANTS[self]


_GRANTS: Final = {
    Scope.READ: {Scope.READ},
    Scope.PROPOSE: {Scope.READ, Scope.PROPOSE},
    Scope.EVALUATE: {Scope.EVALUATE},
    Scope.SUBMIT: {*Scope} - {Scope.ADMIN},
    Scope.ADMIN: {*Scope},
}


class Quota(Value):
    """Limits of a project; None is no limit. Days begin at midnight UTC."""

    concurrent_runs: int | None = Field(default=None, ge=0, le=10**6)
    """Runs under way at the same time."""
    evaluations_per_day: int | None = Field(default=None, ge=0, le=10**15)
    """Evaluations declared per day."""
    tokens_per_day: int | None = Field(default=None, ge=0, le=10**18)
    """Policy tokens declared per day."""
