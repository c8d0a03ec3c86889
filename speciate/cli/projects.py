"""``speciate projects``: namespaces with quotas."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from speciate.cli import output
from speciate.cli.common import AsJson, Limit, client, command_group, examples, first_records
from speciate.domain.errors import InvalidInputError

app = command_group("Projects: whose problems, policies and runs are kept apart, and what each may use.")

Name = Annotated[str, typer.Argument(metavar="PROJECT", help="Name of the project.")]
_FIELDS: Final = {"runs": "concurrent_runs", "evaluations": "evaluations_per_day", "tokens": "tokens_per_day"}


@app.command(
    "create", epilog=examples("speciate projects create lab --title 'The lab' --runs 20 --evaluations 1000000")
)
def create(
    ctx: typer.Context,
    slug: Annotated[str, typer.Argument(metavar="NAME", help="Lower-case words joined by hyphens; never used again.")],
    title: Annotated[str, typer.Option(help="One line for people.")] = "",
    runs: Annotated[int | None, typer.Option(min=0, help="Runs under way at once.")] = None,
    evaluations: Annotated[int | None, typer.Option(min=0, help="Evaluations a day.")] = None,
    tokens: Annotated[int | None, typer.Option(min=0, help="Policy tokens a day.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a project; without limits it may use any amount."""
    from speciate.client import arguments

    limits = arguments.quota(concurrent_runs=runs, evaluations_per_day=evaluations, tokens_per_day=tokens)
    with client(ctx) as service:
        made = service.projects.create(slug, title=title, quota=limits)
    if as_json:
        output.print_json(made)
    else:
        output.print_line(f"{made.slug} is there: speciate --project {made.slug} tokens create NAME --scope submit")


@app.command("list", epilog=examples("speciate projects list"))
def list_(ctx: typer.Context, limit: Limit = 50, as_json: AsJson = False) -> None:
    """List projects, the oldest first."""
    with client(ctx) as service:
        found = first_records(ctx, service.projects.list(), limit)
    if as_json:
        for record in found:
            output.print_json(record)
        return
    rows = [(p.slug, *(_limit(getattr(p.quota, field)) for field in _FIELDS.values()), p.title) for p in found]
    output.print_table(("project", ">runs at once", ">evaluations a day", ">tokens a day", "title"), rows, empty="")


@app.command("show", epilog=examples("speciate projects show lab"))
def show(ctx: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Show a project with what counts towards its quotas."""
    with client(ctx) as service:
        found = service.projects.get(name)
    if as_json:
        output.print_json(found)
        return
    used = found.used
    output.print_fields(
        (
            ("project", found.slug),
            ("title", found.title),
            ("runs under way", f"{used.concurrent_runs:,} of {_limit(found.quota.concurrent_runs)}"),
            ("evaluations today", f"{used.evaluations:,} of {_limit(found.quota.evaluations_per_day)}"),
            ("tokens today", f"{used.tokens:,} of {_limit(found.quota.tokens_per_day)}"),
            ("day ends", f"{used.resets_at:%Y-%m-%d %H:%M} UTC"),
        )
    )


@app.command(
    "quota", epilog=examples("speciate projects quota lab --runs 20", "speciate projects quota lab --unlimited tokens")
)
def quota(
    ctx: typer.Context,
    name: Name,
    runs: Annotated[int | None, typer.Option(min=0, help="Runs under way at once.")] = None,
    evaluations: Annotated[int | None, typer.Option(min=0, help="Evaluations a day.")] = None,
    tokens: Annotated[int | None, typer.Option(min=0, help="Policy tokens a day.")] = None,
    unlimited: Annotated[
        list[str] | None, typer.Option(metavar="WHAT", help="Take a limit away: runs, evaluations or tokens.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Set limits of a project; those that are not named stay. What has begun goes on."""
    from speciate.client import arguments

    given = {"runs": runs, "evaluations": evaluations, "tokens": tokens}
    freed = unlimited or []
    if unknown := [what for what in freed if what not in _FIELDS]:
        raise InvalidInputError(f"--unlimited {unknown[0]}: expected {', '.join(_FIELDS)}.")
    if both := [what for what in freed if given[what] is not None]:
        raise InvalidInputError(f"--{both[0]} and --unlimited {both[0]}: give one of them.")
    limits: dict[str, int | None] = {_FIELDS[what]: value for what, value in given.items() if value is not None}
    limits |= {_FIELDS[what]: None for what in freed}
    if not limits:
        raise InvalidInputError(
            "no limit is named.", remedy="Give --runs, --evaluations, --tokens or --unlimited WHAT."
        )
    with client(ctx) as service:
        changed = service.projects.limit(name, arguments.quota(**limits))
    if as_json:
        output.print_json(changed)
    else:
        now = ", ".join(f"{what} {_limit(getattr(changed.quota, field))}" for what, field in _FIELDS.items())
        output.print_line(f"{changed.slug}: {now}")


def _limit(value: int | None) -> str:
    return "any" if value is None else f"{value:,}"


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
        found = first_records(ctx, service.audit(everything=everything), limit)
    if as_json:
        for record in found:
            output.print_json(record)
        return
    rows = [(f"{a.at:%Y-%m-%d %H:%M:%S}", a.who, a.project, a.action, a.object, a.status, a.address) for a in found]
    columns = ("when (UTC)", "who", "project", "action", "object", ">status", "from")
    output.print_table(columns, rows, empty="Nothing has been asked for yet but to read.")
