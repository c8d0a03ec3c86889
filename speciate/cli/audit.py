"""``speciate audit``: who asked for what."""

from __future__ import annotations

from typing import Annotated

import typer

from speciate.cli import output
from speciate.cli.session import AsJson, Limit, client, listed


def audit_command(
    ctx: typer.Context,
    everything: Annotated[
        bool, typer.Option("--everything", help="Of all projects, and of whoever was refused.")
    ] = False,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """Show who asked for what in the project, newest first: requests that were no reads."""
    with client(ctx) as service:
        found = listed(ctx, service.audit(everything=everything), limit)
    if as_json:
        for record in found:
            output.json_line(record)
        return
    rows = [(f"{a.at:%Y-%m-%d %H:%M:%S}", a.who, a.project, a.action, a.object, a.status, a.address) for a in found]
    columns = ("when (UTC)", "who", "project", "action", "object", ">status", "from")
    output.table(columns, rows, empty="Nothing has been asked for yet but to read.")
