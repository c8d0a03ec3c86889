"""``speciate audit``: the log of requests that changed something."""

from typing import Annotated

import typer

from speciate.cli import output
from speciate.cli.common import Limit, client, command, command_group, first_records

app = command_group()


@command(app, "audit", "speciate audit", "speciate audit --everything --json | jq .principal")
def audit_command(
    everything: Annotated[
        bool, typer.Option("--everything", help="Include all projects and rejected requests.")
    ] = False,
    limit: Limit = 50,
) -> None:
    """List requests that changed something in the project, newest first."""
    entries = first_records(client().audit(everything=everything), limit)
    output.print_records(
        entries,
        ("time (UTC)", "principal", "project", "action", "object", ">status", "from"),
        lambda a: (f"{a.at:%Y-%m-%d %H:%M:%S}", a.principal, a.project, a.action, a.object, a.status, a.address),
        empty="No changes were requested yet.",
    )
