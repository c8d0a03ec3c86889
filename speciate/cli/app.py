"""The command tree of ``speciate``. Only the module of the invoked command is imported."""

from functools import cached_property
from importlib import import_module
from shlex import quote
from typing import Annotated, Any, Final

import typer
import typer.main
from typer.core import TyperCommand

from speciate.cli.common import PROJECT_FLAG, URL_FLAG, CommandGroup, examples
from speciate.cli.output import invocation

COMMANDS: Final = {
    "evolve": ("evolve", "Improve a program: score it, search for better ones, write the best."),
    "demo": ("demo", "Run the whole service on example problems, in about three minutes."),
    "up": ("up", "Run the whole service until Ctrl-C: database, cache, API and workers."),
    "serve": (
        "serve",
        "Serve small policies (LLaMA or Qwen2, up to about 150 million parameters) on the CPU until Ctrl-C.",
    ),
    "migrate": ("up", "Upgrade the schema of the database at SPECIATE_DATABASE_URL."),
    "run": ("runs.start", "Start a run of one or several policies on a problem, within a budget."),
    "evaluate": ("evaluate", "Evaluate candidates on this machine with a command of your own."),
    "mcp": ("mcp", "Serve tools to a coding agent through the Model Context Protocol."),
    "best": ("best", "Print or write the best program of a run, or its Pareto front."),
    "unlocks": ("unlocks", "List confirmed unlocks with the policy, strategy and effort."),
    "strategies": ("runs.start", "List the search strategies and their options."),
    "doctor": ("doctor", "Check the installation and print a fix for each problem found."),
    "docs": ("docs", "Open the documentation in a browser and print its address."),
    "backup": ("backup", "Back up the whole database to a file, while the service runs."),
    "restore": ("backup", "Restore a backup into an empty database, and upgrade its schema."),
    "prune": (
        "maintenance",
        "Delete programs, prompts and completions of old cancelled or failed runs, and expired audit log entries.",
    ),
    "train": ("train", "Train a policy by reinforcement learning."),
    "audit": ("audit", "List requests that changed something in the project, newest first."),
    "problems": ("problems", "Create, check, add and list problems."),
    "sets": ("problems.sets", "Create and list problem sets: named, frozen lists of problem versions."),
    "models": ("models", "Download open-weight models for `speciate serve`."),
    "policies": ("policies", "Register policies and check their endpoints."),
    "runs": ("runs", "List, control and export runs."),
    "candidates": ("candidates", "List, show and compare the candidates of a run."),
    "tournaments": ("tournaments", "Tournaments: which policy is better, and whether the difference could be chance."),
    "campaigns": ("campaigns", "Campaigns: many problems, one budget, spent where a new target is likeliest."),
    "engines": ("engines", "Run engines of others in tournaments: OpenEvolve, ShinkaEvolve, GEPA, or your own."),
    "webhooks": ("webhooks", "Send unlocks, ends of runs and alarms to HTTP endpoints."),
    "secrets": ("maintenance", "Re-encrypt stored secrets: policy keys and webhook secrets."),
    "tokens": ("tokens", "Create, list and revoke API tokens of a project."),
    "projects": ("projects", "Create and list projects, and set their quotas."),
}
"""Module and summary of every command and noun. The help of ``speciate`` shows the summary without an import."""


class LazyCommand(TyperCommand):
    """A command or noun whose module is imported when it is invoked or completed."""

    @cached_property
    def command(self) -> Any:
        module, _ = COMMANDS[str(self.name)]
        command: Any = typer.main.get_command(import_module(f"speciate.cli.{module}").app)
        command = getattr(command, "commands", {}).get(self.name, command)
        command.help = command.help or self.help
        return command

    def make_context(self, *args: Any, **options: Any) -> Any:
        return self.command.make_context(*args, **options)


class _Root(CommandGroup):
    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands.update({name: LazyCommand(name, help=summary) for name, (_, summary) in COMMANDS.items()})

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command. Nouns are plural; the singular is a hidden alias."""
        name, *rest = args
        if name == "run" and rest and not any(each.startswith(("-p", "--policy")) for each in rest):
            # ``run`` itself starts a run and needs a policy: ``run list`` without one means ``runs list``.
            runs: Any = self.commands["runs"]
            name = "runs" if rest[0] in runs.command.commands else name
        elif name not in self.commands:
            plural = f"{name[:-1]}ies" if name.endswith("y") else f"{name}s"
            name = plural if plural in self.commands else name
        return super().resolve_command(ctx, [name, *rest])


app = typer.Typer(
    name="speciate",
    cls=_Root,
    help="Evolutionary search with language models on vector rewards, with a record of what each policy unlocks.",
    epilog=examples(
        "speciate evolve circle-packing-26 --evaluations 500",
        "speciate evolve initial_program.py evaluator.py --model openai/gpt-5-mini",
    ),
    no_args_is_help=True,
    rich_markup_mode="markdown",
    # The group prints expected errors. Any other exception is a defect, and its traceback must not show secrets.
    pretty_exceptions_enable=False,
)


def _version(requested: bool) -> None:
    if requested:
        from speciate import __version__

        typer.echo(f"speciate {__version__}")
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    url: Annotated[
        str | None, typer.Option(help="URL of the service.", show_default="SPECIATE_URL, or this machine")
    ] = None,
    project: Annotated[
        str | None, typer.Option(help="Project to use.", show_default="SPECIATE_PROJECT, or the token's project")
    ] = None,
    version: Annotated[  # noqa: ARG001
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Store the global options. Tokens come only from SPECIATE_TOKEN: arguments show in process lists."""
    ctx.obj = {URL_FLAG: url, PROJECT_FLAG: project}
    flags = (f"--{name}={quote(value)}" for name, value in ctx.obj.items() if value is not None)
    invocation.set(" ".join(["speciate", *flags]))
