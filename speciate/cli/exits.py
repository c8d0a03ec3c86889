"""What the exit code of a command means."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from speciate.domain import errors


class Exit(IntEnum):
    """The exit codes; ``docs/reference/cli.md`` lists them for users."""

    OK = 0
    FAILED = 1
    """It was done and the outcome is bad: a check failed, a watched run failed or was paused."""
    USAGE = 2
    """The command line cannot be read."""
    UNREACHABLE = 3
    """The service, a server or a policy's endpoint does not answer, or was asked too often."""
    INVALID = 4
    """A value or a file is not valid, or too large."""
    NOT_FOUND = 5
    CONFLICT = 6
    """The present state, or the project's quota, does not allow it."""
    NOT_ALLOWED = 7
    """No token, a wrong one, or one that does not allow this."""
    CONFIGURATION = 8
    """The installation or its settings do not fit together."""
    INTERRUPTED = 130
    """Ctrl-C."""


_CODES: Final[tuple[tuple[type[errors.SpeciateError], Exit], ...]] = (
    (errors.InvalidInputError, Exit.INVALID),
    (errors.TooLargeError, Exit.INVALID),
    (errors.NotFoundError, Exit.NOT_FOUND),
    (errors.ConflictError, Exit.CONFLICT),
    (errors.ReplayError, Exit.CONFLICT),  # 1 is for a replay that was done and differs
    (errors.NotAllowedError, Exit.NOT_ALLOWED),
    (errors.UnavailableError, Exit.UNREACHABLE),
    (errors.TooManyRequestsError, Exit.UNREACHABLE),
    (errors.ConfigurationError, Exit.CONFIGURATION),
)


def exit_of(error: errors.SpeciateError) -> Exit:
    """Return the exit code for an error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), Exit.FAILED)
