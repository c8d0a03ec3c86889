"""The command tree of ``speciate``."""

from __future__ import annotations

from typing import Annotated

import typer

from speciate.cli import campaign, candidates, policies, problems, projects, runs, tokens, tournament, webhooks
from speciate.cli.backup import BACKUP_EXAMPLES, RESTORE_EXAMPLES, backup_command, restore_command
from speciate.cli.common import PROJECT_FLAG, URL_FLAG, CommandGroup, examples
from speciate.cli.demo import demo_command
from speciate.cli.doctor import doctor_command
from speciate.cli.maintenance import PRUNE_EXAMPLES, cache_app, prune_command, secrets_app
from speciate.cli.problems import sets
from speciate.cli.projects import audit_command
from speciate.cli.runs.start import RUN_EXAMPLES, run_command, strategies_command
from speciate.cli.serve import SERVE_EXAMPLES, serve_command
from speciate.cli.train import TRAIN_EXAMPLES, train_command
from speciate.cli.unlocks import UNLOCKS_EXAMPLES, unlocks_command
from speciate.cli.up import migrate_command, up_command

app = typer.Typer(
    name="speciate",
    cls=CommandGroup,
    help="Evolutionary search with language models on vector rewards, with a record of what each policy unlocks.",
    epilog=examples(
        "speciate problems add circle-packing-26",
        "speciate policies add program-mutator --kind program_mutator",
        "speciate run circle-packing-26 --policy program-mutator --budget 2000 --watch",
    ),
    no_args_is_help=True,
    rich_markup_mode="markdown",
    # The group prints expected errors. Any other exception is a defect, and its traceback must not show secrets.
    pretty_exceptions_enable=False,
)

UP_EXAMPLES = examples(
    "speciate up", "speciate up --port 9000 --data-dir ./data", "SPECIATE_TOKEN=… speciate up --host 0.0.0.0"
)

# Every start imports these modules: they import anything slow inside the command.
app.command("demo", epilog=examples("speciate demo", "speciate demo --scale 0.2 --data-dir ./data"))(demo_command)
app.command("up", epilog=UP_EXAMPLES)(up_command)
app.command("serve", epilog=SERVE_EXAMPLES)(serve_command)
app.command("migrate", epilog=examples("SPECIATE_DATABASE_URL=postgresql://… speciate migrate"))(migrate_command)
app.command("run", epilog=RUN_EXAMPLES)(run_command)
app.command("unlocks", epilog=UNLOCKS_EXAMPLES)(unlocks_command)
app.command("strategies", epilog=examples("speciate strategies", "speciate strategies --json"))(strategies_command)
app.command("doctor", epilog=examples("speciate doctor", "speciate doctor --json | jq .checks"))(doctor_command)
app.command("backup", epilog=BACKUP_EXAMPLES)(backup_command)
app.command("restore", epilog=RESTORE_EXAMPLES)(restore_command)
app.command("prune", epilog=PRUNE_EXAMPLES)(prune_command)
app.command("train", epilog=TRAIN_EXAMPLES)(train_command)
app.add_typer(problems.app, name="problems")
app.add_typer(sets.app, name="sets")
app.add_typer(policies.app, name="policies")
app.add_typer(runs.app, name="runs")
app.add_typer(candidates.app, name="candidates")
app.add_typer(tournament.app, name="tournament")
app.add_typer(campaign.app, name="campaign")
app.add_typer(webhooks.app, name="webhooks")
app.add_typer(secrets_app, name="secrets")
app.add_typer(cache_app, name="cache")
app.add_typer(tokens.app, name="tokens")
app.add_typer(projects.app, name="projects")
app.command("audit", epilog=examples("speciate audit", "speciate audit --everything --json | jq .principal"))(
    audit_command
)


def _version(wanted: bool) -> None:
    if wanted:
        from speciate import __version__

        typer.echo(f"speciate {__version__}")
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    url: Annotated[
        str | None, typer.Option("--url", help="URL of the service.", show_default="SPECIATE_URL, or this machine")
    ] = None,
    project: Annotated[
        str | None,
        typer.Option("--project", help="Project to use.", show_default="SPECIATE_PROJECT, or the token's project"),
    ] = None,
    version: Annotated[  # noqa: ARG001
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Store the global options. Tokens come only from SPECIATE_TOKEN: arguments show in process lists."""
    ctx.obj = {URL_FLAG: url, PROJECT_FLAG: project}
