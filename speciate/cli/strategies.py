"""``speciate strategies``: how parents are chosen and children kept."""

from __future__ import annotations

import typer

from speciate.cli import output
from speciate.cli.session import AsJson, client


def strategies_command(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the strategies and their options."""
    with client(ctx) as service:
        found = service.strategies()
    if as_json:
        for strategy in found:
            output.json_line(strategy)
        return
    for strategy in found:
        output.say(strategy.name, style="bold")
        if strategy.description:
            output.say(f"  {strategy.description}")
        for name, schema in strategy.options.get("properties", {}).items():
            output.say(f"  --option {name}={schema.get('default')}  {schema.get('description', '')}".rstrip())
