"""Findings: the results of the checks of ``speciate doctor``."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from speciate.domain.errors import SpeciateError
from speciate.egress.sealing import VARIABLE
from speciate.settings import Settings


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


def judged(name: str, detail: str, remedy: str = "") -> Finding:
    """Return a good finding, or a warning if there is a remedy."""
    return Finding(name, Status.WARNING if remedy else Status.GOOD, detail, remedy)


def run_check(name: str, check: Callable[[Settings], Finding], settings: Settings) -> Finding:
    """Return the finding of a check, or the error that it raises as a bad one."""
    try:
        return check(settings)
    except SpeciateError as error:
        return error_finding(name, Status.BAD, error)


def error_finding(name: str, status: Status, error: SpeciateError) -> Finding:
    remedy = error.remedy or ""
    return Finding(name, status, str(error).removesuffix(remedy).strip(), remedy)


def secret_key_finding(opens: int, no_key: int, other_key: int, *, of: str) -> Finding:
    """Return what a secret key, named ``of``, decrypts: counts of secrets that it opens, that need one, or another."""
    if not no_key + other_key:
        detail = f"decrypts all {opens} sealed secrets" if opens else "no sealed secrets yet"
        return Finding("secret key", Status.GOOD, detail)
    if no_key:
        detail = f"{of} is not set, but {no_key} sealed secrets require it"
        remedy = f"Set {VARIABLE} or {VARIABLE}_FILE to that key for all API, generate and control processes."
    else:
        detail = f"{of} does not decrypt {other_key} of {opens + other_key} sealed secrets"
        remedy = f"Append the key that sealed them ({VARIABLE}=new,old), then run `speciate secrets renew`."
    again = " If that key is lost, add the policy keys again, and remove and re-create the webhooks."
    return Finding("secret key", Status.BAD, f"{detail} (policy keys, webhook secrets)", remedy + again)
