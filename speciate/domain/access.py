"""Projects, what tokens look like, and quotas."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from speciate.domain.values import Value

DEFAULT_PROJECT: Final = "default"
"""The project that is there from the beginning."""

TOKEN_PREFIX: Final = "spc_"  # noqa: S105 - what tokens begin with, so that scanners for secrets know them


class Quota(Value):
    """What a project may use; None is no limit. Days begin at midnight UTC.

    Attributes:
        concurrent_runs: Runs that are under way at once.
        evaluations_per_day: Evaluations of whatever is declared on one day.
        tokens_per_day: Policy tokens of the same.
    """

    concurrent_runs: int | None = Field(default=None, ge=0, le=10**6)
    evaluations_per_day: int | None = Field(default=None, ge=0, le=10**15)
    tokens_per_day: int | None = Field(default=None, ge=0, le=10**18)
