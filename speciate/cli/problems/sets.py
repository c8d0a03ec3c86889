"""``speciate sets``: create and list frozen lists of problem versions."""

from __future__ import annotations

from typing import Annotated

import typer

from speciate.cli import output
from speciate.cli.common import AsJson, Limit, client, command_group, examples, first_records

app = command_group()


@app.command("create", epilog=examples("speciate sets create physics relativistic-energy planck-radiation@1"))
def create(
    ctx: typer.Context,
    slug: Annotated[str, typer.Argument(metavar="NAME", help="Name of the set; cannot be reused.")],
    problems: Annotated[list[str], typer.Argument(metavar="PROBLEM...", help="Problems: name, name@version or id.")],
    title: Annotated[str, typer.Option(help="Title, one line.")] = "",
    as_json: AsJson = False,
) -> None:
    """Create a frozen list of problem versions."""
    with client(ctx) as service:
        created = service.problem_sets.create(slug, problems, title=title)
    output.print_result(
        created, f"{created.slug}: {', '.join(f'{p.slug}@{p.version}' for p in created.problems)}", as_json=as_json
    )


@app.command("list", epilog=examples("speciate sets list"))
def list_(ctx: typer.Context, limit: Limit = 50, as_json: AsJson = False) -> None:
    """List problem sets, newest first."""
    with client(ctx) as service:
        found = first_records(ctx, service.problem_sets.list(), limit)
    output.print_records(
        found,
        ("set", ">problems", "title"),
        lambda s: (s.slug, len(s.problems), s.title),
        empty="There are no problem sets yet: speciate sets create --help",
        as_json=as_json,
    )


@app.command("show", epilog=examples("speciate sets show physics --json"))
def show(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="SET", help="Set name or id.")],
    as_json: AsJson = False,
) -> None:
    """List the problems of a set in order."""
    with client(ctx) as service:
        found = service.problem_sets.get(name)
    if as_json:
        output.print_json(found)
        return
    rows = [(f"{p.slug}@{p.version}", p.kind.value, p.title) for p in found.problems]
    output.print_table(("problem", "kind", "title"), rows, empty="The set is empty.")
