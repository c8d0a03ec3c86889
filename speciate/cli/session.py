"""What all commands share: options, the group that turns errors into exit codes, and the way to the service."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar
from uuid import UUID

import typer
from typer.core import TyperGroup

from speciate.cli.exits import Exit, exit_of
from speciate.cli.output import aside, print_error
from speciate.cli.remedies import with_remedy
from speciate.domain.errors import FieldError, InvalidInputError, NotFoundError, SpeciateError, UnavailableError

if TYPE_CHECKING:
    from speciate.client import Client, RunHandle

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON: one document, or one line for each item of a list.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="Show at most this many.")]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="Id of a run, or its first or last characters (6 or more).")]

DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Data directory of the `speciate up` that runs.")]

URL_FLAG: Final = "url"
PROJECT_FLAG: Final = "project"

_PART: Final = re.compile(r"[0-9a-fA-F][0-9a-fA-F-]{5,30}")

PATIENCE_S: Final = 60.0
"""How long something that is followed may not be read, as while the service restarts."""

_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.5, 5.0

T = TypeVar("T")


class Group(TyperGroup):
    """A group of commands whose errors are printed once, without a traceback, and become an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except SpeciateError as error:
            print_error(with_remedy(error) if isinstance(error, NotFoundError) else error)
            raise typer.Exit(exit_of(error)) from None
        except KeyboardInterrupt:
            raise typer.Exit(Exit.INTERRUPTED) from None


def noun(help_text: str) -> typer.Typer:
    """Return the app for the commands of one noun."""
    return typer.Typer(help=help_text, no_args_is_help=True, rich_markup_mode="rich")


def examples(*lines: str) -> str:
    """Return the end of a help text that shows how a command is used."""
    return "\n\n".join(("Examples:", *lines))


def client(ctx: typer.Context) -> Client:
    """Return a client for the service that ``--url`` or the settings name; the caller closes it."""
    from speciate.client import Client

    flags: dict[str, Any] = ctx.find_root().obj or {}
    return Client(flags.get(URL_FLAG), project=flags.get(PROJECT_FLAG))


def look_again(read: Callable[[], T]) -> T:
    """Read again what is followed: a service that restarts ends no watching of days. Raises what ``read`` does."""
    deadline, delay_s = time.monotonic() + PATIENCE_S, _FIRST_DELAY_S
    while True:
        try:
            return read()
        except UnavailableError:
            if time.monotonic() + delay_s > deadline:
                raise
        time.sleep(delay_s)
        delay_s = min(2 * delay_s, _LONGEST_DELAY_S)


def as_run_id(text: str) -> UUID:
    """Return the id of a run.

    Raises:
        NotFoundError: The text is none, so that no run can have it.
    """
    try:
        return UUID(text)
    except ValueError:
        raise NotFoundError(f"there is no run {text!r}.") from None


def find_run(service: Client, name: str) -> RunHandle:
    """Return the run with an id, or the only one whose id begins or ends so: pages show the last characters.

    Raises:
        InvalidInputError: The ids of several runs begin or end so.
        NotFoundError: There is no such run.
    """
    if not _PART.fullmatch(name):
        return service.runs.get(as_run_id(name))
    part = name.lower()
    matching = (run for run in service.runs.list() if str(run.id).startswith(part) or str(run.id).endswith(part))
    found = list(islice(matching, 2))
    if len(found) > 1:
        raise _refuse("RUN", f"is {name!r}, with which the ids of several runs begin or end: expected more of one")
    if not found:
        raise NotFoundError(f"there is no run {name!r}.")
    return found[0]


def listed(ctx: typer.Context, records: Iterable[T], limit: int) -> list[T]:
    """Return the first records of a list; where there are more, the command says so when it ends."""
    found = list(islice(records, limit + 1))
    if len(found) > limit:
        more(ctx, limit)
    return found[:limit]


def more(ctx: typer.Context, limit: int) -> None:
    """Say, below what the command prints and on standard error, that its limit left something out."""
    told = f"… and more: --limit {10 * limit}"
    ctx.call_on_close(partial(aside, told))


def key_values(pairs: list[str] | None, option: str) -> dict[str, Any]:
    """Return ``key=value`` pairs as JSON values; what is not JSON is a text.

    Raises:
        InvalidInputError: A pair has no ``=``, or a number is NaN or infinite.
    """
    values: dict[str, Any] = {}
    for pair in pairs or []:
        key, sign, text = pair.partition("=")
        if not sign or not key:
            raise _refuse(option, f"is {pair!r}: expected key=value")
        try:
            values[key] = json.loads(text, parse_constant=_refuse_constant)
        except json.JSONDecodeError:
            values[key] = text
        except _ConstantError:
            raise _refuse(option, f"{key} is {text}: expected a finite number") from None
    return values


class _ConstantError(Exception):
    pass


def _refuse_constant(_: str) -> Any:
    raise _ConstantError


def _refuse(option: str, message: str) -> InvalidInputError:
    flaw = FieldError(message, where=option)
    return InvalidInputError(f"The option is not valid: {flaw}", flaws=(flaw,))
