"""``speciate engines``: install engines and run them on runs that wait for one."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from speciate.cli import output
from speciate.cli.common import DataDir, client, command, command_group
from speciate.cli.errors import ExitCode
from speciate.client.run_names import is_whole_id
from speciate.domain.errors import ConfigurationError, InvalidInputError
from speciate.engines.check import check
from speciate.engines.installation import BUNDLED, Engine, from_command, install, installed
from speciate.engines.launch import missing_containment
from speciate.engines.runner import EngineRunner
from speciate.schema.engines import EngineOutcome, EngineSession
from speciate.settings import load_settings

app = command_group()

Command = Annotated[
    str | None,
    typer.Option(
        "--command", metavar="COMMAND", help="Command of an engine that is not bundled; {run}: path of its run.json."
    ),
]
Readable = Annotated[
    list[Path] | None, typer.Option("--readable", metavar="PATH", help="Path that the engine may read. Repeatable.")
]


@command(app, "list", "speciate engines list")
def list_(data_dir: DataDir = None) -> None:
    """List the engines that come with Speciate, and the versions that are installed."""
    folder = load_settings(data_dir=data_dir).data_dir
    rows = [
        {"name": name, "version": getattr(installed(name, folder), "version", None), "summary": bundled.summary}
        for name, bundled in BUNDLED.items()
    ]
    output.print_records(
        rows, ("engine", "installed", "summary"), lambda row: (row["name"], row["version"], row["summary"]),
    )  # fmt: skip


@command(app, "install", "speciate engines install openevolve", has_json=False)
def install_(
    name: Annotated[str, typer.Argument(metavar="ENGINE", help="Name of a bundled engine.")], data_dir: DataDir = None
) -> None:
    """Install a bundled engine with pip, into an environment of its own."""
    if (engine := install(name, load_settings(data_dir=data_dir).data_dir)) is not None:
        output.print_line(f"{name} {engine.version}")


@command(
    app, "check", "speciate engines check openevolve", 'speciate engines check mine --command "python my_engine.py"'
)
def check_(
    name: Annotated[str, typer.Argument(metavar="ENGINE", help="Name of the engine.")],
    command: Command = None,
    readable: Readable = None,
    limit_s: Annotated[float, typer.Option("--limit", min=1, help="Seconds for each of its two attempts.")] = 120.0,
    data_dir: DataDir = None,
) -> None:
    """Test an engine on a toy problem, without a service: it runs, is killed, and starts again.

    The exit code is 1 if it breaks a rule.
    """
    (engine,) = _engines([name], command, readable, data_dir).values()
    rules = check(name, engine, limit_s)
    output.print_records(
        rules, ("passed", "rule", "remedy"), lambda r: ("yes" if r["passed"] else "NO", r["rule"], r["remedy"]),
    )  # fmt: skip
    if not all(rule["passed"] for rule in rules):
        raise typer.Exit(ExitCode.FAILED)


@command(
    app,
    "run",
    "speciate engines run",
    "speciate engines run openevolve gepa --tournament engines --slots 4 --idle 60",
    'speciate engines run mine --command "python my_engine.py" --version 1.2',
)
def run_(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="ENGINE", help="Engines to run.", show_default="all bundled ones that are installed"),
    ] = None,
    command: Command = None,
    version: Annotated[str, typer.Option(help="Version of that engine, for the record.")] = "",
    readable: Readable = None,
    tournament: Annotated[str | None, typer.Option("--tournament", help="Limit to a tournament.")] = None,
    run: Annotated[str | None, typer.Option("--run", help="Limit to a run: id or name.")] = None,
    slots: Annotated[int, typer.Option(min=1, max=64, help="Engines at the same time.")] = 1,
    limit_s: Annotated[
        float, typer.Option("--limit", min=1, help="Seconds of one attempt; then the run has failed.")
    ] = 14_400.0,
    idle: Annotated[
        float | None, typer.Option(min=0, help="End after this many seconds without a run.", show_default="never")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Run engines on the runs of tournaments that wait for them.

    Each engine runs in a folder of its own, without a token of the service, and reaches two addresses: a model and an
    evaluator, which the service books. What it keeps there it finds again if it is started again.

    Ctrl-C or SIGTERM gives unfinished runs back.
    """

    def report(session: EngineSession, outcome: EngineOutcome, reason: str) -> None:
        record = {"run": str(session.run_id), "engine": session.engine, "outcome": outcome, "reason": reason}
        what = f"{session.engine} on {session.problem}, seed {session.seed}, run {session.run_id}"
        output.print_result(record, f"{what}: {outcome}{reason and f': {reason}'}")

    engines = _engines(names, command, readable, data_dir, version)
    if missing := missing_containment():
        output.print_note(missing)
    if data_dir is not None:  # its service, too
        os.environ["SPECIATE_DATA_DIR"] = str(data_dir)
    service = client()
    service.ready()  # later it may be away for a while
    run = run if run is None or is_whole_id(run) else str(service.runs.get(run).id)
    folder = load_settings(data_dir=data_dir).data_dir / "engines" / "runs"
    runner = EngineRunner(service, engines, folder, tournament, run, slots, limit_s, idle, report=report)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: runner.stopping.set())
    output.print_note(f"Running {', '.join(engines)}. Ctrl-C stops and gives unfinished runs back.")
    runner.run_until_idle()


def _engines(
    names: list[str] | None, command: str | None, readable: list[Path] | None, data_dir: Path | None, version: str = ""
) -> dict[str, Engine]:
    if command is not None:
        if not names or len(names) != 1:
            raise InvalidInputError("--command starts one engine: give the name that its runs have.")
        return {names[0]: from_command(command, version, tuple(readable or ()))}
    if version:
        raise InvalidInputError("--version is of the engine that --command starts.", remedy="Omit it.")
    folder = load_settings(data_dir=data_dir).data_dir
    engines = {name: installed(name, folder) for name in names or BUNDLED}
    if names and (missing := [name for name, engine in engines.items() if engine is None]):
        remedy = f"Run: {output.command_line('engines install', missing[0], '--data-dir', folder)}"
        raise ConfigurationError(f"{missing[0]} is not installed.", remedy=remedy)
    paths = [str(path.absolute()) for path in readable or ()]
    return {name: replace(each, readable=(*each.readable, *paths)) for name, each in engines.items() if each}
