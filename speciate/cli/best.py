"""``speciate best``: print or write the best program of a run, or all programs of its Pareto front."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from speciate.cli import output
from speciate.cli.best_program import BestProgram, find_best_program, remove_others
from speciate.cli.candidates import top
from speciate.cli.common import Limit, RunId, client, command, command_group, first_records

app = command_group()


@command(
    app,
    "best",
    "speciate best RUN > best.py",
    "speciate best RUN --out answer",
    "speciate best RUN --front",
    "speciate best RUN --front --out front",
)
def best_command(
    run_id: RunId,
    front: Annotated[bool, typer.Option("--front", help="All candidates of the Pareto front, best first.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Directory for program and best.json; with --front one per number."),
    ] = None,
    limit: Limit = 20,
) -> None:
    """Print or write the best program of a run, or its Pareto front.

    Standard output has only the program, standard error its rewards. --front lists the Pareto front, and with --out
    writes each program. With --json, prints the content of best.json and the program.
    """
    if front and out is None and not output.wants_json():
        top(run_id, limit)
        return
    service = client()
    run = service.runs.get(run_id)
    best = find_best_program(service, run)
    programs = [best]
    if front:
        on_front = run.front()
        ranked = first_records(on_front, limit)
        programs = [replace(best, ranked=each, candidate=run.candidate(each.number)) for each in ranked]
        if out:
            remove_others(out, run.id, on_front)
    for program in programs:
        _deliver(program, out / str(program.ranked.number) if out and front else out)


def _deliver(program: BestProgram, directory: Path | None) -> None:
    written = None if directory is None else program.write(directory)
    if output.wants_json():
        output.print_json(program.facts | {"program": program.candidate.program})
    elif written is not None:
        output.print_line(written)
    else:
        program.print_program()
        program.print_facts(None, stderr=True)
