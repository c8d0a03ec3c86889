"""``speciate tokens``: create, list and revoke API tokens."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final
from uuid import UUID

import typer

from speciate.cli import output
from speciate.cli.common import Limit, client, command, command_group, first_records, invalid_argument
from speciate.domain.access import Scope

if TYPE_CHECKING:
    from speciate.schema.projects import TokenRecord

app = command_group()

_LIFETIME: Final = re.compile(r"([1-9][0-9]{0,5})([hd])")
_UNITS: Final = {"h": "hours", "d": "days"}


@command(
    app,
    "create",
    "speciate tokens create alice --scope submit --expires 90d",
    "speciate --project lab tokens create ci",
)
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Owner or purpose of the token.")],
    scope: Annotated[
        Scope,
        typer.Option(
            help="Permissions: propose reads and proposes candidates, evaluate only leases and scores them,"
            " submit does all of that and starts runs, admin administers the project."
        ),
    ] = Scope.READ,
    expires: Annotated[
        str | None, typer.Option(help="Lifetime in hours or days, such as 12h or 90d.", show_default="unlimited")
    ] = None,
) -> None:
    """Create a token for the project.

    The token is printed once, alone on standard output; the service stores only its hash.
    """
    end = None
    if expires is not None:
        if (match := _LIFETIME.fullmatch(expires)) is None:
            raise invalid_argument("--expires", f"is {expires!r}: expected hours or days, such as 12h or 90d")
        end = datetime.now(UTC) + timedelta(**{_UNITS[match[2]]: int(match[1])})
    created = client().tokens.create(name, scope, expires_at=end)
    output.exit_with_json(created)
    output.print_line(created.token)
    until = "" if created.expires_at is None else f", until {output.format_time(created.expires_at)}"
    token = f"Token for {created.name}, scope {created.scope.value}, project {created.project}{until}"
    output.print_note(f"{token}. It cannot be shown again.")


@command(app, "list", "speciate tokens list")
def list_(limit: Limit = 50) -> None:
    """List the tokens of the project, newest first."""
    tokens = first_records(client().tokens.list(), limit)
    output.print_records(
        tokens,
        ("id", "name", "token", "scope", "state", "last used", "created"),
        lambda t: (t.id, t.name, t.prefix + "…", t.scope.value, _state(t),
                   output.format_time(t.last_used_at) or "never", output.format_time(t.created_at)),
        empty="The project has no tokens yet: speciate tokens create --help",
    )  # fmt: skip


@command(app, "revoke", "speciate tokens revoke 019a…")
def revoke(
    token: Annotated[UUID, typer.Argument(metavar="TOKEN", help="Token id; see `speciate tokens list`.")],
) -> None:
    """Revoke a token, from its next request on."""
    revoked = client().tokens.revoke(token)
    output.print_result(revoked, f"Revoked {revoked.prefix}… of {revoked.name}.")


def _state(token: TokenRecord) -> str:
    if token.revoked_at is not None:
        return f"revoked {output.format_time(token.revoked_at)}"
    if token.expires_at is None:
        return "valid"
    return f"{'expired' if token.expires_at <= datetime.now(UTC) else 'until'} {output.format_time(token.expires_at)}"
