"""``speciate run`` and ``speciate strategies``: start a run, list the strategies it may use."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from speciate.cli import output
from speciate.cli.best_program import check_out_options, require_free
from speciate.cli.common import (
    LogTo,
    NoOut,
    OutDirectory,
    Yes,
    client,
    command,
    command_group,
    confirm,
    confirm_budget,
    runs_locally,
)
from speciate.cli.errors import ExitCode
from speciate.cli.model_options import add_options
from speciate.domain.capabilities import evaluator_command
from speciate.domain.errors import InvalidInputError, SpeciateError
from speciate.domain.learning import MIN_GROUP
from speciate.domain.policy import MUTATOR
from speciate.domain.run import RunSpec

if TYPE_CHECKING:
    from speciate.client import Client, RunHandle
    from speciate.domain.problem import Problem
    from speciate.schema.estimates import RunEstimate

app = command_group()

_WEIGHTS: Final = "NAME[=WEIGHT]"

# Options that runs and campaigns share.
Policies = Annotated[
    list[str],
    typer.Option("--policy", "-p", metavar=_WEIGHTS, help="Proposing policy: name, name@version or id; repeatable."),
]
Mutators = Annotated[
    list[str] | None, typer.Option("--mutator", metavar=_WEIGHTS, help="Policy that mutates parents; repeatable.")
]
IdempotencyKey = Annotated[str | None, typer.Option(help="Key that makes a repeated request return the same object.")]
Estimate = Annotated[
    bool,
    typer.Option("--estimate", help="First estimate calls, tokens, dollars and seconds, and ask whether to start."),
]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Watch until the end or a pause.")]


@command(
    app,
    "run",
    "speciate run circle-packing-26 --policy mutator --budget 2000 --watch",
    "speciate run circle-packing-26 -p qwen --strategy best_of_n --tokens 2000000 --seed 7 --stop-on-unlock",
    "speciate run my-problem -p base --mutator qwen -s islands_map_elites --option islands=4 --seconds 600 --json",
    "speciate run my-problem -p base -b 2000 --name 'four islands, second try' --tag baseline --tag sweep:3",
    "speciate run my-problem -p qwen -b 2000 --seed-from 0198c0de-7f00-7000-8000-000000000001:best",
    "speciate run my-problem -p qwen -b 2000 --seeds ./programs",
    "speciate run maze-test-0 --policy maze-base -b 5000 --learn vector_max_at_k --learn-option groups=4 --watch",
    "speciate run my-problem -p qwen -b 2000 --watch --log trackio:my-project",
    "speciate run my-problem -p qwen --dollars 5 --watch --estimate",
)
@add_options(RunSpec)
def run_command(
    *,
    problem: Annotated[str, typer.Argument(metavar="PROBLEM", help="Name, name@version or id; or a directory to add.")],
    policy: Policies,
    mutator: Mutators = None,
    options: dict[str, Any],
    seeds: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Start from the programs in this folder, one per file, instead of the problem's seed program.",
        ),
    ] = None,
    seed_from: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RUN[:front[=N]|:best]",
            help="Start from the Pareto front, the best N of it or the best candidate of a run of the same problem;"
            " repeatable.",
        ),
    ] = None,
    name: Annotated[str, typer.Option(help="Display name, one line.")] = "",
    tag: Annotated[list[str] | None, typer.Option(help="Tag for grouping runs; repeatable.")] = None,
    note: Annotated[str, typer.Option(help="Free-text note.")] = "",
    idempotency_key: IdempotencyKey = None,
    estimate: Estimate = False,
    yes: Yes = False,
    watch: Watch = False,
    out: OutDirectory = None,
    no_out: NoOut = False,
    log: LogTo = None,
) -> None:
    """Start a run of one or several policies on a problem, within a budget.

    At least one of --budget, --tokens, --seconds and --dollars is required. With --watch, the command prints the best
    candidate and writes its program; exit code 0: completed with a confirmed unlock, 9: completed without one, 10:
    paused, 1: failed or cancelled. Without a service, the command executes the run itself: it watches it, and Ctrl-C
    pauses it. With --json, prints the run and, with --watch, its events, one per line.
    """
    limits = options.get("budget", {})
    if not limits:
        raise InvalidInputError(
            "the run has no budget.", remedy="Set --budget N, --tokens N, --seconds S or --dollars D."
        )
    watch = watch or is_executed_here(options)  # nothing would execute the run after the command
    if out is not None:
        if not watch:
            raise InvalidInputError("--out needs --watch.", remedy="Later: speciate best RUN --out DIR.")
        require_free(out, None)
    check_out_options(out, no_out=no_out, watch=watch)
    tracker = None
    if log is not None:
        from speciate.cli.runs.tracking import load_tracker

        if not watch:
            raise InvalidInputError("--log needs --watch.", remedy="Later: speciate runs watch RUN --log TRACKER.")
        tracker = load_tracker(log)
    confirm_budget(limits, yes=yes)
    service = client()
    problem = _added(service, problem)
    spec = {
        "policy": parse_policies(policy, "--policy"),
        "mutator": parse_policies(mutator, "--mutator") if mutator else None,
        "seeds": read_seeds(seeds),
        "seed_from": [_source(service, text) for text in seed_from or ()],
        **complete_learning(options),
    }
    if estimate:
        confirm_estimate(service.runs.estimate(problem, **spec), yes=yes)
    run = service.runs.create(
        problem, name=name, tags=tag or (), note=note, idempotency_key=idempotency_key, estimate=estimate, **spec
    )
    if output.wants_json():
        output.print_json(run.record)
    elif not watch:
        output.print_line(run.id)
        output.print_note(f"Page: {run.url}\nWatch it with: {output.command_line('runs watch', run.id)}")
    _print_notes(run)
    if watch:
        from speciate.cli.runs.watch import watch_started

        raise typer.Exit(watch_started(service, run, out, write=not no_out, tracker=tracker))


def complete_learning(options: dict[str, Any]) -> dict[str, Any]:
    """Return options of a run or a campaign with as many answers per prompt as a group needs, if it learns."""
    if "learning" not in options:
        return options
    if "estimator" not in options["learning"]:
        raise InvalidInputError("--learn-option needs --learn.", remedy="Add --learn vector_max_at_k.")
    return {"samples_per_prompt": MIN_GROUP, **options}


def confirm_estimate(estimate: RunEstimate, *, yes: bool) -> None:
    """Print an estimate, and end the command unless its run is to start; where nobody can be asked it is not."""
    if output.wants_json():
        output.print_json(estimate)
    else:
        output.print_estimate(estimate)
    if not yes and not sys.stdout.isatty():
        output.print_note("Nothing was started. --yes starts the run.")
        raise typer.Exit(ExitCode.OK)
    confirm("Start the run?", yes=yes)


def _added(service: Client, problem: str) -> str:
    """Return the name of a problem, or the id of the one in a directory, which is added."""
    from speciate.problems.loader import FILE_NAME, load_problem

    if "/" in problem or os.path.isfile(f"{problem}/{FILE_NAME}"):  # noqa: PTH113 - False where nobody may look
        problem = str(service.problems.add(load_problem(Path(problem)), check=True).id)
    if service.in_process:
        from speciate.evolution.task import check_evaluated

        check_evaluated(service, service.problems.get(problem).definition)
    return problem


def is_executed_here(options: dict[str, Any]) -> bool:
    local = runs_locally()
    if local and "learning" in options:
        raise InvalidInputError(
            "a run with --learn needs a service with a learn worker.",
            remedy="Start `speciate up --learn` in another terminal.",
        )
    if local and options.get("engine") is not None:
        raise InvalidInputError(
            "a run with --engine needs a service, on which `speciate engines run` leases it.",
            remedy="Start `speciate up` in another terminal.",
        )
    return local


def _print_notes(run: RunHandle) -> None:
    """Note what a run waits for, and that random edits rarely build in other languages than Python."""
    if run.record.external:
        output.print_note("It waits for proposals; see `speciate runs ask --help` and `speciate runs propose --help`.")
    if run.record.engine_command:
        output.print_note(f"It waits for its engine: {run.record.engine_command}")
    with suppress(SpeciateError):  # the run has started
        problem = run.problem().definition
        note_evaluators(problem)
        if run.record.policy == MUTATOR and (language := problem.language) is not None:
            output.print_note(
                f"{MUTATOR} knows the syntax of Python only: most of its programs in {language.name} may not build."
                " A model gets further."
            )


def note_evaluators(problem: Problem) -> None:
    if problem.external_stage is not None:
        output.print_note(f"It waits for evaluators: {evaluator_command(problem.slug, problem.capabilities)}")


def read_seeds(folder: Path | None) -> dict[str, str]:
    if folder is None:
        return {}
    try:
        files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
        programs = {path.name: path.read_text(encoding="utf-8-sig") for path in files}
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"--seeds {folder}: a file is not UTF-8 text: {error}.") from None
    except OSError as error:
        raise InvalidInputError(f"--seeds {error.filename}: {error.strerror}.") from None
    if not programs:
        raise InvalidInputError(f"--seeds {folder}: the folder holds no program.", remedy="Put one program per file.")
    return programs


def _source(service: Client, text: str) -> str:
    """Return a source of seed programs with the complete id of its run."""
    run, colon, take = text.partition(":")
    return f"{service.runs.get(run).id}{colon}{take}"


def parse_policies(named: list[str], option: str) -> str | dict[str, float]:
    """Parse policies given as ``NAME`` or ``NAME=WEIGHT``: a single name, or a weight for each of several names."""
    pairs = [name.partition("=") for name in named]
    if len(pairs) == 1 and not pairs[0][1]:
        return named[0]
    try:
        weights = {name: float(weight) if equals else 1.0 for name, equals, weight in pairs}
    except ValueError:
        raise InvalidInputError(
            f"{option} {' '.join(named)}: expected NAME or NAME=WEIGHT, a positive number."
        ) from None
    if len(weights) < len(named):
        raise InvalidInputError(f"{option} {' '.join(named)}: a policy is repeated.")
    return weights


@command(app, "strategies", "speciate strategies", "speciate strategies --json")
def strategies_command() -> None:
    """List the search strategies and their options."""
    strategies = client().strategies()
    if output.wants_json():
        for strategy in strategies:
            output.print_json(strategy)
        return
    for strategy in strategies:
        output.print_line(strategy.name, style="bold")
        if strategy.description:
            output.print_line(f"  {strategy.description}")
        for name, schema in strategy.options.get("properties", {}).items():
            output.print_line(f"  --option {name}={schema.get('default')}  {schema.get('description', '')}".rstrip())
