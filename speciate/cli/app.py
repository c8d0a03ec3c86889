"""The commands put together."""

from __future__ import annotations

from typing import Annotated

import typer

from speciate.cli import (
    cache,
    campaign,
    candidates,
    policies,
    problem_sets,
    problems,
    projects,
    runs,
    secrets,
    tokens,
    tournament,
    webhooks,
)
from speciate.cli.audit import audit_command
from speciate.cli.demo import demo_command
from speciate.cli.doctor import doctor_command
from speciate.cli.run import RUN_EXAMPLES, run_command
from speciate.cli.serve import SERVE_EXAMPLES, serve_command
from speciate.cli.session import PROJECT_FLAG, URL_FLAG, Group, examples
from speciate.cli.strategies import strategies_command
from speciate.cli.train import TRAIN_EXAMPLES, train_command
from speciate.cli.unlocks import UNLOCKS_EXAMPLES, unlocks_command
from speciate.cli.up import migrate_command, up_command

app = typer.Typer(
    name="speciate",
    cls=Group,
    help="Evolutionary search with language models on vector rewards, and a record of what each policy unlocks.",
    epilog=examples(
        "speciate problems add circle-packing-26",
        "speciate policies add program-mutator --kind program_mutator",
        "speciate run circle-packing-26 --policy program-mutator --budget 2000 --watch",
    ),
    no_args_is_help=True,
    rich_markup_mode="rich",
    # An error of ours is printed by the group; anything else is a defect, and its traceback must not show secrets.
    pretty_exceptions_enable=False,
)

UP_EXAMPLES = examples(
    "speciate up", "speciate up --port 9000 --data-dir ./data", "SPECIATE_TOKEN=… speciate up --host 0.0.0.0"
)

# One line a command. Its module may import at its top only what is quick to load: every start pays for it.
app.command("demo", epilog=examples("speciate demo", "speciate demo --scale 0.2 --data-dir ./data"))(demo_command)
app.command("up", epilog=UP_EXAMPLES)(up_command)
app.command("serve", epilog=SERVE_EXAMPLES)(serve_command)
app.command("migrate", epilog=examples("SPECIATE_DATABASE_URL=postgresql://… speciate migrate"))(migrate_command)
app.command("run", epilog=RUN_EXAMPLES)(run_command)
app.command("unlocks", epilog=UNLOCKS_EXAMPLES)(unlocks_command)
app.command("strategies", epilog=examples("speciate strategies", "speciate strategies --json"))(strategies_command)
app.command("doctor", epilog=examples("speciate doctor", "speciate doctor --json | jq .checks"))(doctor_command)
app.command("train", epilog=TRAIN_EXAMPLES)(train_command)
app.add_typer(problems.app, name="problems")
app.add_typer(problem_sets.app, name="sets")
app.add_typer(policies.app, name="policies")
app.add_typer(runs.app, name="runs")
app.add_typer(candidates.app, name="candidates")
app.add_typer(tournament.app, name="tournament")
app.add_typer(campaign.app, name="campaign")
app.add_typer(webhooks.app, name="webhooks")
app.add_typer(secrets.app, name="secrets")
app.add_typer(cache.app, name="cache")
app.add_typer(tokens.app, name="tokens")
app.add_typer(projects.app, name="projects")
app.command("audit", epilog=examples("speciate audit", "speciate audit --everything --json | jq .who"))(audit_command)


def _version(wanted: bool) -> None:
    if wanted:
        from speciate import __version__

        typer.echo(f"speciate {__version__}")
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    url: Annotated[
        str | None, typer.Option("--url", help="Address of the service.", show_default="SPECIATE_URL, or this machine")
    ] = None,
    project: Annotated[
        str | None,
        typer.Option("--project", help="Project to work in.", show_default="SPECIATE_PROJECT, or the token's own"),
    ] = None,
    version: Annotated[  # noqa: ARG001
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Remember the options that come before the command. A token comes from SPECIATE_TOKEN only, never from here."""
    ctx.obj = {URL_FLAG: url, PROJECT_FLAG: project}
