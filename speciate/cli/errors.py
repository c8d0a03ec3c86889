"""Exit codes of the commands, and how an error is printed."""

import re
from enum import IntEnum
from typing import Final

from speciate.cli.output import command_line, print_note
from speciate.domain import errors
from speciate.domain.suggestions import did_you_mean


class ExitCode(IntEnum):
    """Exit codes; ``docs/reference/cli.md`` lists them for users."""

    OK = 0
    FAILED = 1
    """The command completed with a bad result: a check failed, or what it watched failed or was cancelled."""
    USAGE = 2
    """Invalid command line."""
    UNREACHABLE = 3
    """The service, a server or a policy endpoint does not respond, or limits the request rate."""
    INVALID = 4
    """A value or file is invalid or too large."""
    NOT_FOUND = 5
    CONFLICT = 6
    """The current state or a project quota does not allow the operation."""
    NOT_ALLOWED = 7
    """The token is missing, invalid or lacks the scope."""
    CONFIGURATION = 8
    """The installation or its settings are inconsistent."""
    NOT_UNLOCKED = 9
    """The watched run completed without a confirmed unlock."""
    PAUSED = 10
    """The watched run, tournament or campaign is paused."""
    INTERRUPTED = 130
    """Ctrl-C."""


_CODES: Final[tuple[tuple[type[errors.SpeciateError], ExitCode], ...]] = (
    (errors.InvalidInputError, ExitCode.INVALID),
    (errors.TooLargeError, ExitCode.INVALID),
    (errors.NotFoundError, ExitCode.NOT_FOUND),
    (errors.ConflictError, ExitCode.CONFLICT),
    (errors.ReplayError, ExitCode.CONFLICT),  # 1 means that the replay ran and differs
    (errors.NotAllowedError, ExitCode.NOT_ALLOWED),
    (errors.UnavailableError, ExitCode.UNREACHABLE),
    (errors.ConfigurationError, ExitCode.CONFIGURATION),
)

_MISSING: Final = re.compile(
    r"there is no (problem set|problem|policy|run|candidate|tournament|campaign|webhook)\b(?: '([^']*)')?"
)
_LISTS: Final = {"problem set": "sets list", "policy": "policies list", "candidate": "candidates list RUN"}
"""Commands whose noun does not end with the object and an s."""


def exit_code(error: errors.SpeciateError) -> ExitCode:
    return next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.FAILED)


def print_error(error: errors.SpeciateError) -> None:
    """Print an error once on standard error, with every field error."""
    if isinstance(error, errors.NotFoundError):
        error = add_remedy(error)
    message, field_errors = str(error), error.field_errors if isinstance(error, errors.InvalidInputError) else ()
    details = [str(field_error) for field_error in field_errors]
    if len(details) > 1:
        # The message quotes the first error and counts the others: list all of them instead.
        message = message.partition(f": {details[0]}")[0] + ":"
    lines = [f"error: {message}", *(f"  {line}" for line in details if len(details) > 1 or line not in message)]
    for line in lines:
        print_note(line)


def add_remedy(error: errors.NotFoundError) -> errors.NotFoundError:
    """Add the command that lists what exists, unless the error already has a remedy or names another kind of object."""
    missing = _MISSING.match(str(error))
    if missing is None or error.remedy is not None:
        return error
    what, name = missing[1], missing[2] or ""
    remedy = f"See `{command_line(_LISTS.get(what, f'{what}s list'))}`."
    if what == "problem":
        from speciate.problems.loader import known_problems

        slug, bundled = name.partition("@")[0], known_problems()
        # The service suggests what was added to it, such as another version of the problem.
        if slug in bundled and f"mean {slug!r}" not in str(error):
            remedy = f"It is bundled with Speciate: add it with `{command_line('problems add', slug)}`."
        elif "Did you mean" not in str(error) and (near := did_you_mean(slug, bundled)):
            remedy = f"{near} Add bundled problems with `{command_line('problems add NAME')}`."
    return errors.NotFoundError(str(error), remedy=remedy)
