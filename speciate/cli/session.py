"""What all commands share: options, the group that turns errors into exit codes, and the way to the service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from uuid import UUID

import typer
from typer.core import TyperGroup

from speciate.cli.exits import Exit, exit_of
from speciate.cli.output import print_error
from speciate.domain.errors import Flaw, InvalidInputError, SpeciateError

if TYPE_CHECKING:
    from speciate.client import Client

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON: one document, or one line for each item of a list.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="Show at most this many.")]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="Id of the run, as `speciate runs list` shows it.")]

DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Data directory of the `speciate up` that runs.")]

URL_FLAG: Final = "url"


class Group(TyperGroup):
    """A group of commands whose errors are printed once, without a traceback, and become an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except SpeciateError as error:
            print_error(error)
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
    return Client(flags.get(URL_FLAG))


def as_id(text: str) -> UUID:
    """Return an id.

    Raises:
        InvalidInputError: The text is none.
    """
    try:
        return UUID(text)
    except ValueError:
        raise _refuse("RUN", f"is {text!r}: expected an id, as `speciate runs list` shows it") from None


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
    flaw = Flaw(message, where=option)
    return InvalidInputError(f"The option is not valid: {flaw}", flaws=(flaw,))
