"""Findings: the results of the checks of ``speciate doctor``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum

from speciate.domain.errors import SpeciateError


class Status(StrEnum):
    """Severity of a finding."""

    GOOD = "good"
    WARNING = "warning"
    """Speciate works, with a limitation."""
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of a check."""

    name: str
    status: Status
    detail: str
    remedy: str = ""
    """How to fix it; empty for a good finding."""

    def as_json(self) -> dict[str, str]:
        return {name: str(value) for name, value in asdict(self).items()}


def run_check(name: str, check: Callable[[], str]) -> Finding:
    """Return the detail that a check returns as a good finding, or the error that it raises as a bad one."""
    try:
        return Finding(name, Status.GOOD, check())
    except SpeciateError as error:
        return error_finding(name, Status.BAD, error)


def error_finding(name: str, status: Status, error: SpeciateError) -> Finding:
    remedy = error.remedy or ""
    return Finding(name, status, str(error).removesuffix(remedy).strip(), remedy)
