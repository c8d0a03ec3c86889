"""``speciate evolve``: from a program and an evaluator to a better program, with one command."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from shlex import join, quote
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from speciate.cli import output
from speciate.cli.best_program import FACTS, check_out_options, find_best_program, remove_others, require_free
from speciate.cli.common import (
    PROJECT_FLAG,
    URL_FLAG,
    DataDir,
    LogTo,
    NoOut,
    OutDirectory,
    Yes,
    command,
    command_group,
    confirm_budget,
    drop_none,
    global_options,
)
from speciate.cli.errors import ExitCode
from speciate.cli.model_options import add_options
from speciate.cli.problems.importing import Limits, Maximize, Minimize, Requirements, Targets
from speciate.cli.runs.start import Estimate, confirm_estimate, note_evaluators, parse_policies
from speciate.domain.run import RunSpec

if TYPE_CHECKING:
    from speciate.evolution.task import Evolution
    from speciate.schema.estimates import RunEstimate

app = command_group()

_MOST_OF_FRONT: Final = 20


@command(
    app,
    "evolve",
    "speciate evolve circle-packing-26 -n 500",
    "speciate evolve initial_program.py evaluator.py --model openai/gpt-5-mini -n 100",
    "speciate evolve my-problem/ --agent 'claude -p' --dollars 5 --out better",
    "speciate evolve my-problem/ --model openai/gpt-5-mini --dollars 5 --estimate",
    "speciate evolve initial_program.py evaluator.py --minimize loss --target 'loss <= 0.1'",
)
@add_options(RunSpec, without=("budget.evaluations", "learning", "learning.estimator", "engine", "engine_options"))
def evolve_command(
    *,
    program: Annotated[
        str | None,
        typer.Argument(metavar="PROGRAM", help="Program to improve, directory with both, or bundled problem."),
    ] = None,
    evaluator: Annotated[
        Path | None, typer.Argument(metavar="[EVALUATOR]", help="Python file with evaluate(program_path).")
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL[=WEIGHT]",
            help="PROVIDER/NAME, such as ollama/qwen3, or an address; repeatable. Without one, edits are random.",
        ),
    ] = None,
    agent: Annotated[
        list[str] | None, typer.Option(metavar="COMMAND", help="Coding agent, such as 'claude -p'; repeatable.")
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Longest completion of the models, reasoning included.", show_default="mostly 16384"),
    ] = None,
    policy: Annotated[list[str] | None, typer.Option("--policy", "-p", help="Registered policy; repeatable.")] = None,
    evaluations: Annotated[
        int | None,
        typer.Option(
            "--evaluations", "-n", "--budget", "-b", min=1, help="Candidates to evaluate.", show_default="100"
        ),
    ] = None,
    maximize: Maximize = None,
    minimize: Minimize = None,
    target: Targets = None,
    config: Annotated[Path | None, typer.Option(help="OpenEvolve's config.yaml.")] = None,
    name: Annotated[str | None, typer.Option(metavar="SLUG", help="Name of the problem.")] = None,
    include: Annotated[
        list[str] | None, typer.Option(metavar="PATTERN", help="Files to take although they are left out; repeatable.")
    ] = None,
    wall_s: Annotated[float | None, typer.Option(min=0.1, help="Seconds for one evaluation.")] = None,
    memory_mb: Annotated[int | None, typer.Option(min=1, help="Memory for one evaluation, in MiB.")] = None,
    limit: Limits = None,
    requirement: Requirements = None,
    anyway: Annotated[bool, typer.Option("--anyway", help="Accept a seed program without a positive score.")] = False,
    options: dict[str, Any],
    new: Annotated[bool, typer.Option("--new", help="Start anew instead of continuing a paused run.")] = False,
    dashboard: Annotated[bool, typer.Option("--dashboard", help="Serve the dashboard meanwhile.")] = False,
    estimate: Estimate = False,
    yes: Yes = False,
    out: OutDirectory = None,
    no_out: NoOut = False,
    log: LogTo = None,
    data_dir: DataDir = None,
) -> None:
    """Improve a program: score it, search for better ones, write the best.

    No service is needed: this process executes the run, and the data directory keeps it. With `speciate up` on that
    directory, or `--url`, the service executes it. Ctrl-C pauses; the same command continues. Exit code 0: completed;
    9: completed, but a --target is not met; 10: paused; 130: paused by Ctrl-C; 1: failed.
    """
    check_out_options(out, no_out=no_out)
    if out is not None and not (out / FACTS).is_file():  # a paused run may have written it
        require_free(out, None)
    limits = drop_none(evaluations=evaluations) | options.pop("budget", {})
    confirm_budget(limits, yes=yes)
    from speciate.cli.runs.tracking import load_tracker
    from speciate.cli.runs.watch import watch_started
    from speciate.evolution.task import Task, evolving
    from speciate.settings import load_settings

    tracker = load_tracker(log)
    scoring = output.console(stderr=True).status("Starting …")

    def announce(limit_s: float) -> None:
        text = f"Scoring the seed program, up to {limit_s:g} s, more while this machine is busy …"
        scoring.update(text)
        if not scoring.console.is_terminal:
            output.print_note(text)

    def confirm(estimate: RunEstimate) -> None:
        scoring.stop()
        confirm_estimate(estimate, yes=yes)

    problem = drop_none(
        maximize=maximize, minimize=minimize, targets=target, config=config, name=name, include=include
    ) | {"wall_s": wall_s, "memory_mb": memory_mb, "anyway": anyway}
    problem |= {"limits": limit or (), "requirements": requirement or ()}
    flags = global_options()
    settings = load_settings(data_dir=data_dir, url=flags.get(URL_FLAG))
    usual = settings.data_dir == load_settings().data_dir
    place = "" if usual else f"SPECIATE_DATA_DIR={quote(str(settings.data_dir))} "
    output.invocation.set(place + output.invocation.get())
    task = Task(
        program=program,
        evaluator=evaluator,
        problem=problem,
        models=model or (),
        agents=agent or (),
        sampling={"max_tokens": max_tokens},
        policies=parse_policies(policy, "--policy") if policy else None,
        spec={**options, "budget": limits},
        check_place=lambda: None if out is None else require_free(out, None),
        anew=new,
        announce=announce,
        invocation=output.invocation.get(),
        confirm=confirm if estimate else None,
    )
    evolution = None
    try:
        with scoring, evolving(task, settings, project=flags.get(PROJECT_FLAG), dashboard=dashboard) as evolution:
            scoring.stop()
            if output.wants_json():
                output.print_json(evolution.run.record)
            else:
                _introduce(evolution, dashboard=dashboard, at_random=not (model or agent or policy))
            code = watch_started(evolution.client, evolution.run, out, write=not no_out, tracker=tracker)
            if not (no_out or (output.wants_json() and out is None)):
                _write_front(evolution, out, program if evaluator is not None else None)
    except KeyboardInterrupt:
        if evolution is None:
            output.print_note("No run was started: the seed program was not scored yet.")
        elif evolution.client.in_process:
            output.print_note("The same command continues the run, too.")
        raise
    raise typer.Exit(ExitCode.OK if code is ExitCode.NOT_UNLOCKED and not target else code)


def _introduce(evolution: Evolution, *, dashboard: bool, at_random: bool) -> None:
    from speciate.compat.naming import UNPROMPTED

    problem = evolution.problem
    note_evaluators(problem.problem)
    for note in problem.notes:
        if not (at_random and note == UNPROMPTED):
            output.print_note(f"note: {note}")
    if seed := problem.seed:
        shown = (f"{each.directed} {output.format_number(seed[each.name])}" for each in problem.problem.space.selected)
        mean = ", mean of its evaluations" if problem.problem.stochastic else ""
        output.print_line(f"seed program{mean}: {', '.join(shown)}")
    if at_random:
        output.print_line("No model: programs are changed at random. Pass --model or --agent for one that reads them.")
    if evolution.continues:
        output.print_line("Continues the paused run of the same inputs; --new starts anew.")
    if dashboard:
        output.print_line(f"Dashboard: {evolution.run.url}")


def _write_front(evolution: Evolution, out: Path | None, program: str | None) -> None:
    """Write the trade-offs beside the best program, and say how to go on from it in place of ``program``."""
    run = evolution.run
    if run.record.best is None:
        return
    best = find_best_program(evolution.client, run)
    folder = out or best.default_directory
    ranked = (on_front := run.front())[:_MOST_OF_FRONT]
    remove_others(folder / "front", run.id, on_front)
    for each in ranked if len(ranked) > 1 else ():
        replace(best, ranked=each, candidate=run.candidate(each.number)).write(folder / "front" / str(each.number))
    if output.wants_json():
        return
    if len(ranked) > 1:
        output.print_line(f"{output.pluralize(len(ranked), 'trade-off')} in {folder / 'front'}")
    if program in sys.argv and len(best.files) == 1 and run.record.state.ended and (folder / FACTS).is_file():
        words = iter(sys.argv[1:])
        # The directory of --out is taken, and the next run is another one anyway.
        arguments = [word for word in words if word not in ("--new", "--out") or (word == "--out" and not next(words))]
        arguments = [word for word in arguments if not word.startswith("--out=")]
        arguments[arguments.index(program)] = str(folder / next(iter(best.files)))
        output.print_note(f"Go on from it with: {join(['speciate', *arguments])}")
