"""``speciate tournament``: declare head-to-head comparisons, follow them, read their reports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from speciate.cli import output
from speciate.cli.common import AsJson, Limit, client, command_group, examples, first_records, invalid_option
from speciate.domain.errors import FieldError, InvalidInputError

if TYPE_CHECKING:
    from speciate.ports.records.declarations import TournamentRecord

app = command_group("Tournaments: which policy is better, and whether chance could have done it.")

Name = Annotated[str, typer.Argument(metavar="TOURNAMENT", help="Name or id.")]
Reason = Annotated[str | None, typer.Option(help="Why; it is kept with the tournament.")]

_METRIC, _STOPPING, _STRATEGY = "solve_rate", "fixed", "vector_evolution"


@app.command(
    "create",
    epilog=examples(
        "speciate tournament create mazes --set maze-test --policy maze-grpo --policy maze-vpo --budget 90 --seeds 8",
        "speciate tournament create two --problem a --problem b -p base -p new --mutator program-mutator -b 500",
        "speciate tournament create --file tournament.toml",
    ),
)
def create(
    ctx: typer.Context,
    slug: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Name; it can never be used again.")] = None,
    policy: Annotated[
        list[str] | None, typer.Option("--policy", "-p", help="A policy; repeatable, the baseline first.")
    ] = None,
    problem: Annotated[list[str] | None, typer.Option(help="A problem; repeatable.")] = None,
    problem_set: Annotated[list[str] | None, typer.Option("--set", help="All problems of a set; repeatable.")] = None,
    mutator: Annotated[str | None, typer.Option(help="Adds a cell in which it changes everybody's parents.")] = None,
    strategy: Annotated[
        str, typer.Option("--strategy", "-s", help="Search of the evolved cells; islands need budgets of hundreds.")
    ] = _STRATEGY,
    seeds: Annotated[int, typer.Option(help="How many seeds for each problem; 8 are 0 to 7.", min=1, max=1000)] = 8,
    budget: Annotated[int | None, typer.Option("--budget", "-b", help="Evaluations of each run.")] = None,
    tokens: Annotated[int | None, typer.Option(help="Tokens of each run, as well.")] = None,
    metric: Annotated[str, typer.Option(help="solve_rate or log_ert.")] = _METRIC,
    stopping: Annotated[str, typer.Option(help="fixed, or e_process: ends as soon as all is decided.")] = _STOPPING,
    target: Annotated[str | None, typer.Option(help="Target that counts; by default the one that unlocks.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="A whole declaration as TOML or JSON, instead of the flags.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Declare a tournament; it begins at once and can never be declared otherwise.

    The flags make the standard head-to-head: every policy with independent answers (best_of_n), evolving by itself and,
    with --mutator, evolving by a common mutator. In each of these cells the policies are compared with the first one.
    """
    if file is not None:
        _refuse_more(ctx)
        declaration = _read(file)
    else:
        from speciate.domain.tournament import head_to_head

        if slug is None or budget is None or len(policy or []) < 2 or not (problem or problem_set):
            raise InvalidInputError(
                "a tournament needs a NAME, a --budget, problems (--problem or --set) and at least two --policy.",
                remedy="Or declare it in a file: --file tournament.toml.",
            )
        entrants, baseline = head_to_head(policy or [], mutator=mutator, strategy=strategy)
        declaration = {
            "slug": slug,
            "problems": [*(problem or []), *(f"set:{name}" for name in problem_set or [])],
            "entrants": [entrant.model_dump(mode="json") for entrant in entrants],
            "baseline": baseline,
            "seeds": list(range(seeds)),
            "budget": {"evaluations": budget, **({} if tokens is None else {"tokens": tokens})},
            "metric": metric,
            "stopping": stopping,
            "target": target,
        }
    with client(ctx) as service:
        made = service.tournaments.create(declaration)
    if as_json:
        output.print_json(made)
        return
    output.print_line(f"{made.slug}: {output.pluralize(made.planned, 'run')}")
    if why := made.declaration.too_few(len(made.declaration.problems)):
        output.print_note(f"warning: {why}.")
    output.print_note(f"Watch it with: speciate tournament watch {made.slug}")


@app.command("list", epilog=examples("speciate tournament list", "speciate tournament list --state running --json"))
def list_(
    ctx: typer.Context,
    state: Annotated[str | None, typer.Option(help="Only running, paused, completed or cancelled ones.")] = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """List tournaments, newest first."""
    with client(ctx) as service:
        found = first_records(ctx, service.tournaments.list(state=state), limit)
    if as_json:
        for record in found:
            output.print_json(record)
        return
    rows = [
        (t.slug, t.state.value, len(t.declaration.entrants), len(t.schedule.problems), f"{t.ended:,} of {t.planned:,}",
         t.declaration.title)
        for t in found
    ]  # fmt: skip
    empty = output.empty_message("tournaments", "speciate tournament create --help", state=state)
    output.print_table(("tournament", "state", ">entrants", ">problems", ">runs ended", "title"), rows, empty=empty)


@app.command("show", epilog=examples("speciate tournament show mazes", "speciate tournament show mazes --json"))
def show(ctx: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Show what was declared and how far it is."""
    with client(ctx) as service:
        found = service.tournaments.get(name)
    if as_json:
        output.print_json(found)
        return
    declared = found.declaration
    output.print_fields(
        (
            ("tournament", found.slug),
            ("id", found.id),
            ("title", declared.title),
            ("state", _state(found)),
            ("runs", f"{found.ended:,} ended, {found.started:,} started, {found.planned:,} planned"),
            ("declaration", f"sha256 {found.digest}"),
            ("problems", f"{len(found.schedule.problems):,}"),
            ("seeds", ", ".join(map(str, found.schedule.seeds))),
            ("entrants", "\n".join(f"{e.name}: {e.policy}, {e.strategy}" for e in declared.entrants)),
            ("compared", "\n".join(f"{a} with {b}" for a, b in declared.comparisons)),
            ("amendments", "\n".join(f"{a.extension.reason} (after {a.ended_runs:,} runs)" for a in found.amendments)),
            ("created", output.format_time(found.created_at)),
            ("finished", output.format_time(found.finished_at)),
        )
    )


@app.command("watch", epilog=examples("speciate tournament watch mazes", "speciate tournament watch mazes --json"))
def watch(ctx: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Watch until it ends or is paused; the exit code is 1 when it was cancelled or paused."""
    from speciate.cli.tournament_report import follow

    with client(ctx) as service:
        raise typer.Exit(follow(service, name, as_json=as_json))


@app.command("report", epilog=examples("speciate tournament report mazes", "speciate tournament report mazes --json"))
def report(
    ctx: typer.Context,
    name: Name,
    rows: Annotated[int, typer.Option("--rows", "-n", help="Show at most this many rows of a table.", min=1)] = 40,
    as_json: AsJson = False,
) -> None:
    """Show who is better, by how much, and what is not known."""
    from speciate.cli.tournament_report import show_report

    with client(ctx) as service:
        found = service.tournaments.report(name)
    if as_json:
        output.print_json(found)
    else:
        show_report(found, rows)


@app.command(
    "export",
    epilog=examples(
        "speciate tournament export mazes --out mazes.html", "speciate tournament export mazes --format parquet"
    ),
)
def export(
    ctx: typer.Context,
    name: Name,
    out: Annotated[Path | None, typer.Option("--out", help="File to make; its end says the format.")] = None,
    kind: Annotated[
        str | None,
        typer.Option("--format", help="html (all), json (all), csv (unlock matrix), jsonl or parquet (every run)."),
    ] = None,
) -> None:
    """Write the report as one self-contained HTML file or as JSON, its matrix as CSV, or all runs as a table.

    Parquet needs the extra: pip install 'speciate[parquet]'.
    """
    from speciate.cli.tournament_report import FORMATS, write

    if out is None and kind is None:
        raise invalid_option("--out", "and --format are both missing: expected a file, a format or both")
    chosen = kind or (out.suffix.removeprefix(".") if out else "")
    if chosen not in FORMATS:
        expected = ", ".join(FORMATS)
        raise (
            invalid_option("--format", f"is {kind!r}: expected {expected}")
            if kind
            else invalid_option(
                "--out", f"is {str(out)!r}: expected a name that ends in .{expected.replace(', ', ', .')}"
            )
        )
    path = out or Path(f"{name}.{chosen}")
    with client(ctx) as service:
        write(service, name, path, chosen)
    output.print_line(f"{path}")


@app.command("pause", epilog=examples("speciate tournament pause mazes --reason 'the endpoint moves'"))
def pause(ctx: typer.Context, name: Name, reason: Reason = None, as_json: AsJson = False) -> None:
    """Start no more runs, and pause those under way."""
    with client(ctx) as service:
        _tell(service.tournaments.pause(name, reason), as_json=as_json)


@app.command("resume", epilog=examples("speciate tournament resume mazes"))
def resume(ctx: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Go on."""
    with client(ctx) as service:
        _tell(service.tournaments.resume(name), as_json=as_json)


@app.command("extend", epilog=examples("speciate tournament extend mazes --reason 'more power' --problem maze-207"))
def extend(
    ctx: typer.Context,
    name: Name,
    reason: Annotated[str, typer.Option(help="Why; it is shown in the report.")],
    problem: Annotated[list[str] | None, typer.Option(help="A problem to add; repeatable.")] = None,
    problem_set: Annotated[list[str] | None, typer.Option("--set", help="All problems of a set; repeatable.")] = None,
    seed: Annotated[list[int] | None, typer.Option(help="A seed to add; repeatable.")] = None,
    as_json: AsJson = False,
) -> None:
    """Add problems or seeds for all entrants; the report shows it as an amendment."""
    problems = [*(problem or []), *(f"set:{each}" for each in problem_set or [])]
    with client(ctx) as service:
        _tell(service.tournaments.extend(name, reason=reason, problems=problems, seeds=seed or []), as_json=as_json)


@app.command("cancel", epilog=examples("speciate tournament cancel mazes"))
def cancel(ctx: typer.Context, name: Name, reason: Reason = None, as_json: AsJson = False) -> None:
    """End it; runs under way are cancelled, what has ended stays."""
    with client(ctx) as service:
        _tell(service.tournaments.cancel(name, reason), as_json=as_json)


def _state(found: TournamentRecord) -> str:
    return found.state.value + (f": {found.reason}" if found.reason else "")


def _tell(found: TournamentRecord, *, as_json: bool) -> None:
    if as_json:
        output.print_json(found)
    else:
        output.print_line(f"{found.slug} is {_state(found)} ({found.ended:,} of {found.planned:,} runs ended)")


def _refuse_more(ctx: typer.Context) -> None:
    """Refuse flags beside a file: it declares everything, and they would be passed over in silence."""
    for parameter in ctx.command.params:
        name = str(parameter.name)
        source = ctx.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE" and name not in {"file", "as_json"}:
            told = parameter.opts[0] if parameter.opts[0].startswith("-") else "NAME"
            raise InvalidInputError(
                f"--file declares everything, and {told} was given as well.",
                remedy="Write it into the file, or leave --file out.",
            )


def _read(path: Path) -> dict[str, Any]:
    import json
    import tomllib

    try:
        text = path.read_text(encoding="utf-8")
        found: Any = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:
        flaw = FieldError(str(error), file=str(path))
        raise InvalidInputError(f"The declaration cannot be read: {flaw}", flaws=(flaw,)) from None
    if not isinstance(found, dict):
        raise invalid_option("--file", f"{path} holds no table: expected slug, problems, entrants, …")
    return found
