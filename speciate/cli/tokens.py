"""``speciate tokens``: who may use the service."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final

import typer

from speciate.cli import output
from speciate.cli.common import AsJson, Limit, client, command_group, examples, first_records
from speciate.domain.access import Scope
from speciate.domain.errors import FieldError, InvalidInputError

if TYPE_CHECKING:
    from speciate.ports.records.projects import TokenRecord

app = command_group("Tokens of a project: who may read, submit or administer.")

_SPAN: Final = re.compile(r"([1-9][0-9]{0,5})([hd])")
_UNITS: Final = {"h": "hours", "d": "days"}


@app.command(
    "create",
    epilog=examples(
        "speciate tokens create alice --scope submit --expires 90d", "speciate --project lab tokens create ci"
    ),
)
def create(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose it is, or what for.")],
    scope: Annotated[Scope, typer.Option(help="What it may do; each one includes those before it.")] = Scope.READ,
    expires: Annotated[
        str | None, typer.Option(help="After how long it ends, such as 12h or 90d; by default never.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a token of the project. It is printed once, alone on standard output, and kept nowhere."""
    end = None if expires is None else datetime.now(UTC) + _span(expires)
    with client(ctx) as service:
        made = service.tokens.create(name, scope, expires_at=end)
    if as_json:
        output.print_json(made)
        return
    output.print_line(made.token)
    until = "" if made.expires_at is None else f", until {output.format_time(made.expires_at)}"
    told = f"For {made.name}, scope {made.scope.value}, project {made.project}{until}. It cannot be shown again."
    output.print_note(told)


@app.command("list", epilog=examples("speciate tokens list"))
def list_(ctx: typer.Context, limit: Limit = 50, as_json: AsJson = False) -> None:
    """List the project's tokens, newest first."""
    with client(ctx) as service:
        found = first_records(ctx, service.tokens.list(), limit)
    if as_json:
        for record in found:
            output.print_json(record)
        return
    rows = [
        (
            t.id,
            t.name,
            t.prefix + "…",
            t.scope.value,
            _state(t),
            output.format_time(t.last_used_at) or "never",
            output.format_time(t.created_at),
        )
        for t in found
    ]
    columns = ("id", "name", "token", "scope", "state", "last used", "made")
    output.print_table(columns, rows, empty="The project has no tokens yet: speciate tokens create --help")


@app.command("revoke", epilog=examples("speciate tokens revoke 019a…"))
def revoke(
    ctx: typer.Context,
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="Id, as `speciate tokens list` shows it.")],
    as_json: AsJson = False,
) -> None:
    """Revoke a token: the next request with it is refused."""
    with client(ctx) as service:
        revoked = service.tokens.revoke(token)
    if as_json:
        output.print_json(revoked)
    else:
        output.print_line(f"{revoked.prefix}… of {revoked.name} is revoked.")


def _span(text: str) -> timedelta:
    match = _SPAN.fullmatch(text)
    if match is None:
        flaw = FieldError(f"is {text!r}: expected hours or days, such as 12h or 90d", where="--expires")
        raise InvalidInputError(f"The option is not valid: {flaw}", flaws=(flaw,))
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def _state(token: TokenRecord) -> str:
    if token.revoked_at is not None:
        return f"revoked {output.format_time(token.revoked_at)}"
    if token.expires_at is None:
        return "valid"
    return f"{'ended' if token.expires_at <= datetime.now(UTC) else 'until'} {output.format_time(token.expires_at)}"
