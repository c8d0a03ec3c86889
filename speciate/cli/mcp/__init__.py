"""``speciate mcp``: let coding agents take part in searches through the Model Context Protocol."""

import os
from typing import Annotated

import typer

from speciate.cli import output
from speciate.cli.common import PROJECT_FLAG, URL_FLAG, command, command_group, global_options
from speciate.domain.errors import ConfigurationError
from speciate.local_ports import listening

app = command_group()


@command(
    app,
    "mcp",
    "claude mcp add speciate -- speciate mcp",
    "speciate --url https://search.example.org mcp",
    "speciate mcp --http 8765    # for clients of streamable HTTP, at http://127.0.0.1:8765/mcp",
    has_json=False,
)
def mcp_command(
    http: Annotated[
        int | None,
        typer.Option(metavar="PORT", min=1, max=65535, help="Serve streamable HTTP on this port of 127.0.0.1."),
    ] = None,
) -> None:
    """Serve tools to a coding agent through the Model Context Protocol.

    It speaks on standard input and output, or with --http over streamable HTTP. The agent lists problems, starts or
    joins runs, asks for prompts, proposes programs and reads results. It acts with SPECIATE_TOKEN: a token with scope
    propose lets it join runs, submit also lets it start them.

    With --http, every program of this machine that can reach the port acts with that token.
    """
    os.environ["PYDANTIC_ERRORS_INCLUDE_URL"] = "0"  # of wrong arguments: an address helps no model
    try:
        from speciate.cli.mcp.tools import build_server
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] not in {"mcp", "mcp_types"}:
            raise
        raise ConfigurationError(
            "The MCP server needs the package mcp.", remedy="Install it: pip install 'speciate[mcp]'."
        ) from None
    flags = global_options()
    server = build_server(flags.get(URL_FLAG), flags.get(PROJECT_FLAG))
    if http is None:
        server.run("stdio")
    else:
        listening("127.0.0.1", http, "the MCP server", option="--http").close()
        output.print_note(f"Serving MCP at http://127.0.0.1:{http}/mcp. Ctrl-C stops.")
        server.run("streamable-http", host="127.0.0.1", port=http)
