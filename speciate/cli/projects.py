"""``speciate projects``: namespaces with quotas."""

from typing import Annotated, Final

import typer

from speciate.cli import output
from speciate.cli.common import Limit, client, command, command_group, first_records
from speciate.client import arguments
from speciate.domain.errors import InvalidInputError

app = command_group()

ProjectName = Annotated[str, typer.Argument(metavar="PROJECT", help="Name of the project.")]
_FIELDS: Final = {"runs": "concurrent_runs", "evaluations": "evaluations_per_day", "tokens": "tokens_per_day"}


@command(app, "create", "speciate projects create lab --title 'The lab' --runs 20 --evaluations 1000000")
def create(
    slug: Annotated[str, typer.Argument(metavar="NAME", help="Name in lower case, with hyphens; cannot be reused.")],
    title: Annotated[str, typer.Option(help="Title, one line.")] = "",
    runs: Annotated[int | None, typer.Option(min=0, help="Maximum concurrent runs.")] = None,
    evaluations: Annotated[int | None, typer.Option(min=0, help="Maximum evaluations per day (UTC).")] = None,
    tokens: Annotated[int | None, typer.Option(min=0, help="Maximum policy tokens per day (UTC).")] = None,
) -> None:
    """Create a project; quotas that are not set are unlimited."""
    limits = arguments.quota(concurrent_runs=runs, evaluations_per_day=evaluations, tokens_per_day=tokens)
    created = client().projects.create(slug, title=title, quota=limits)
    output.print_result(
        created, f"Created {created.slug}. Next: speciate --project {created.slug} tokens create NAME --scope submit"
    )


@command(app, "list", "speciate projects list")
def list_(limit: Limit = 50) -> None:
    """List projects, oldest first."""
    projects = first_records(client().projects.list(), limit)
    output.print_records(
        projects,
        ("project", ">concurrent runs", ">evaluations/day", ">tokens/day", "title"),
        lambda p: (p.slug, *(_limit(getattr(p.quota, field)) for field in _FIELDS.values()), p.title),
    )


@command(app, "show", "speciate projects show lab")
def show(name: ProjectName) -> None:
    """Show a project and how much of its quotas is used."""
    project = client().projects.get(name)
    output.exit_with_json(project)
    used = project.used
    output.print_fields(
        ("project", project.slug),
        ("title", project.title),
        ("concurrent runs", f"{used.concurrent_runs:,} of {_limit(project.quota.concurrent_runs)}"),
        ("evaluations today", f"{used.evaluations:,} of {_limit(project.quota.evaluations_per_day)}"),
        ("tokens today", f"{used.tokens:,} of {_limit(project.quota.tokens_per_day)}"),
        ("day resets", f"{used.resets_at:%Y-%m-%d %H:%M} UTC"),
    )


@command(app, "quota", "speciate projects quota lab --runs 20", "speciate projects quota lab --unlimited tokens")
def quota(
    name: ProjectName,
    runs: Annotated[int | None, typer.Option(min=0, help="Maximum concurrent runs.")] = None,
    evaluations: Annotated[int | None, typer.Option(min=0, help="Maximum evaluations per day (UTC).")] = None,
    tokens: Annotated[int | None, typer.Option(min=0, help="Maximum policy tokens per day (UTC).")] = None,
    unlimited: Annotated[
        list[str] | None, typer.Option(metavar="QUOTA", help="Remove a limit: runs, evaluations or tokens; repeatable.")
    ] = None,
) -> None:
    """Change quotas of a project.

    Quotas that are not given keep their value. Runs in progress continue.
    """
    limits = _new_limits({"runs": runs, "evaluations": evaluations, "tokens": tokens}, unlimited or [])
    changed = client().projects.limit(name, arguments.quota(**limits))
    now = ", ".join(f"{what} {_limit(getattr(changed.quota, field))}" for what, field in _FIELDS.items())
    output.print_result(changed, f"{changed.slug}: {now}")


def _new_limits(values: dict[str, int | None], removed: list[str]) -> dict[str, int | None]:
    for name in removed:
        if name not in _FIELDS:
            raise InvalidInputError(f"--unlimited {name}: expected {', '.join(_FIELDS)}.")
        if values[name] is not None:
            raise InvalidInputError(f"--{name} and --unlimited {name} exclude each other.")
    limits = {_FIELDS[name]: value for name, value in values.items() if value is not None or name in removed}
    if not limits:
        raise InvalidInputError(
            "no quota is given.", remedy="Set --runs, --evaluations, --tokens or --unlimited QUOTA."
        )
    return limits


def _limit(value: int | None) -> str:
    return "unlimited" if value is None else f"{value:,}"
