"""``speciate tournaments``: declare head-to-head comparisons, and read and export their reports."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from pydantic import ValidationError

from speciate.cli import lifecycle, output
from speciate.cli.common import Yes, client, command, command_group, confirm, confirm_budget, context, invalid_argument
from speciate.cli.errors import ExitCode
from speciate.cli.export import replaced_file
from speciate.cli.model_options import add_options
from speciate.domain.declaration import DeclarationState
from speciate.domain.errors import FieldError, InvalidInputError
from speciate.domain.run import BUNDLED_ENGINES, SearchOptions
from speciate.domain.suggestions import did_you_mean
from speciate.domain.tournament import Tournament
from speciate.domain.validation import validation_message

if TYPE_CHECKING:
    from speciate.client import Client
    from speciate.schema.declarations import TournamentRecord

app = command_group()


def _row(record: TournamentRecord) -> tuple[object, ...]:
    entrants, problems = len(record.declaration.entrants), len(record.schedule.problems)
    ended = f"{record.ended:,} of {record.planned:,}"
    return record.slug, lifecycle.state_of(record), entrants, problems, ended, record.declaration.title


VIEW: Final = lifecycle.DeclarationView["TournamentRecord"](
    noun="tournament",
    results="tournaments report",
    columns=("tournament", "state", ">entrants", ">problems", ">runs ended", "title"),
    row=_row,
    progress=lambda record: f"{record.ended:,} of {record.planned:,} runs ended",
    milestone=lambda record: 100 * record.ended // max(record.planned, 1),
)

lifecycle.add_lifecycle_commands(app, VIEW, "mazes")

_OPTIONS: Final = ("budget.evaluations", "budget.tokens", "budget.dollars", "metric", "stopping", "target")


@command(
    app,
    "create",
    "speciate tournaments create mazes --set maze-test --policy maze-grpo --policy maze-vpo --budget 90 --seeds 8",
    "speciate tournaments create runs --set s -b 90 --method grpo=grpo-0,grpo-1 --method vpo=vpo-0,vpo-1",
    "speciate tournaments create two --problem a --problem b -p base -p new --mutator mutator -b 500",
    "speciate tournaments create --file tournament.toml",
)
@add_options(Tournament, only=_OPTIONS)
def create(
    *,
    slug: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Name; it cannot be used again.")] = None,
    policy: Annotated[
        list[str] | None, typer.Option("--policy", "-p", help="A policy; repeatable, the baseline first.")
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            metavar="NAME=POLICY[:SEED],…",
            help="A training method with a policy per training run (seeds default to 0, 1, …), instead of --policy;"
            " repeatable, the baseline first.",
        ),
    ] = None,
    problem: lifecycle.Problems = None,
    problem_set: lifecycle.ProblemSets = None,
    mutator: Annotated[str | None, typer.Option(help="Common mutator of an additional group of entrants.")] = None,
    strategy: Annotated[
        str,
        typer.Option(
            "--strategy",
            "-s",
            help="Strategy of the evolved groups; islands need large budgets, and best_of_n leaves these groups out.",
        ),
    ] = SearchOptions.model_fields["strategy"].default,
    seeds: Annotated[int, typer.Option(help="Number of seeds for each problem: 8 means 0 to 7.", min=1, max=1000)] = 8,
    options: dict[str, Any],
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Complete declaration as TOML or JSON, instead of the options.")
    ] = None,
    yes: Yes = False,
) -> None:
    """Declare a tournament. It starts at once and is immutable.

    The options declare the standard head-to-head: every policy with independent answers (best_of_n), with evolution
    and, with --mutator, with evolution by a common mutator. In each group the policies are compared with the first one.

    That is a statement about these checkpoints. To compare training methods, declare several training runs of each with
    --method. Methods with equal seeds are compared in pairs.
    """
    if file is not None:
        _refuse_other_options()
        declaration = _read(file)
    else:
        if policy and method:
            raise InvalidInputError(
                "--policy and --method exclude each other.", remedy="Declare both in a file: --file tournament.toml."
            )
        compared = max(len(policy or []), len(method or []))
        limited = "evaluations" in options.get("budget", {})
        if slug is None or not limited or compared < 2 or not (problem or problem_set):
            raise InvalidInputError(
                "NAME, --budget, a problem (--problem or --set) and at least two --policy or --method are required.",
                remedy="Add them, or declare the tournament in a file: --file tournament.toml.",
            )
        declaration = {
            "slug": slug,
            "problems": lifecycle.problem_names(problem, problem_set),
            **_head_to_head(policy or [], method or [], mutator, strategy),
            "seeds": list(range(seeds)),
            **options,
        }
    limits = declaration.get("budget")
    confirm_budget(limits if isinstance(limits, dict) else {}, yes=yes)
    service = client()
    if why := _undecidable(service, declaration):
        confirm(f"{why}. Start anyway?", yes=yes)
    created = service.tournaments.create(declaration)
    output.exit_with_json(created)
    if created.ended or created.state is not DeclarationState.RUNNING:
        output.print_line(f"{created.slug} exists already: {lifecycle.state_of(created)}")
        return
    output.print_line(f"{created.slug}: {output.pluralize(created.planned, 'run')}")
    engines = {each.engine: each.engine_command for each in created.declaration.entrants if each.engine}
    for engine, command_line in engines.items():
        question = "" if engine in BUNDLED_ENGINES else did_you_mean(engine, BUNDLED_ENGINES) or ""
        output.print_note(f"It waits for engine {engine!r}. {question}".rstrip())
        output.print_note(f"Start it with: {command_line}")
    if created.declaration.method_groups:
        from speciate.tournaments.report.methods import methods_power

        for sentence in methods_power(created.declaration):
            output.print_note(f"{sentence}.")
    output.print_note(f"Watch it with: {output.command_line('tournaments watch', created.slug)}")


def _undecidable(service: Client, declaration: dict[str, Any]) -> str:
    """Return why the tournament cannot decide any comparison; empty if it can, or if the service will reject it."""
    from speciate.runs.declarations import SET_PREFIX
    from speciate.tournaments.report.methods import methods_doubt

    try:
        declared = Tournament.model_validate(declaration)
    except ValidationError:
        return ""
    if declared.method_groups:
        return methods_doubt(declared)
    sets = [name.removeprefix(SET_PREFIX) for name in declared.problems if name.startswith(SET_PREFIX)]
    members = sum(len(service.problem_sets.get(name).problems) for name in sets)
    return declared.too_few(len(declared.problems) - len(sets) + members)


@command(app, "show", "speciate tournaments show mazes", "speciate tournaments show mazes --json")
def show(name: lifecycle.Name) -> None:
    """Show the declaration and the progress."""
    from speciate.tournaments.rendering.tables import entrant_text

    tournament = client().tournaments.get(name)
    output.exit_with_json(tournament)
    declared = tournament.declaration
    output.print_fields(
        ("tournament", tournament.slug),
        ("id", tournament.id),
        ("title", declared.title),
        ("state", lifecycle.state_of(tournament)),
        ("runs", f"{tournament.ended:,} ended, {tournament.started:,} started, {tournament.planned:,} planned"),
        ("declaration", f"sha256 {tournament.digest}"),
        ("problems", f"{len(tournament.schedule.problems):,}"),
        ("seeds", ", ".join(map(str, tournament.schedule.seeds))),
        ("entrants", "\n".join(f"{each.name}: {entrant_text(each, declared.baseline)}" for each in declared.entrants)),
        ("compared", "\n".join(f"{a} with {b}" for a, b in declared.comparisons)),
        ("amendments", "\n".join(f"{a.extension.reason} (after {a.ended_runs:,} runs)" for a in tournament.amendments)),
        ("created", output.format_time(tournament.created_at)),
        ("finished", output.format_time(tournament.finished_at)),
    )


@command(app, "report", "speciate tournaments report mazes", "speciate tournaments report mazes --full --rows 400")
def report(
    name: lifecycle.Name,
    full: Annotated[bool, typer.Option("--full", help="Every table, with the tests behind it.")] = False,
    rows: Annotated[int, typer.Option("--rows", "-n", help="Maximum number of rows of a table.", min=1)] = 40,
) -> None:
    """Show which policies are better, by how much, and what is undecided.

    --json prints the full report.
    """
    from speciate.cli.tournament_report import show_report

    report = client().tournaments.report(name)
    output.exit_with_json(report)
    show_report(report, rows, full=full)


@command(
    app,
    "export",
    "speciate tournaments export mazes --out mazes.html",
    "speciate tournaments export mazes --format parquet",
    has_json=False,
)
def export(
    name: lifecycle.Name,
    out: Annotated[Path | None, typer.Option("--out", help="File to write; its suffix selects the format.")] = None,
    kind: Annotated[
        str | None,
        typer.Option("--format", help="html (all), json (all), csv (unlock matrix), jsonl or parquet (every run)."),
    ] = None,
    bundle: Annotated[
        Path | None, typer.Option("--bundle", help="Write all of an ended tournament as this signed ZIP file instead.")
    ] = None,
) -> None:
    """Write the report as one self-contained HTML file or as JSON, its matrix as CSV, or all runs as a table.

    A bundle holds the declaration, the versions, every run and the report; `speciate tournaments verify` checks it.
    Parquet needs the extra: pip install 'speciate[parquet]'.
    """
    from speciate.cli.tournament_report import FORMATS, write

    if bundle is not None:
        if out or kind:
            raise invalid_argument("--bundle", "excludes --out and --format: expected only the file to write")
        with client() as service, replaced_file(bundle) as part:
            part.write_bytes(service.tournaments.bundle(name))
        output.print_line(f"{bundle}")
        return
    if out is None and kind is None:
        raise invalid_argument("--out", "and --format are both missing: expected a file, a format or both")
    file_format = kind or (out.suffix.removeprefix(".") if out else "")
    if kind and kind not in FORMATS:
        raise invalid_argument("--format", f"is {kind!r}: expected {', '.join(FORMATS)}")
    if file_format not in FORMATS:
        raise invalid_argument("--out", f"is {str(out)!r}: expected a name that ends in .{', .'.join(FORMATS)}")
    path = out or Path(f"{name}.{file_format}")
    service = client()
    write(service, name, path, file_format)
    output.print_line(f"{path}")


@command(app, "verify", "speciate tournaments verify mazes.zip", "speciate tournaments verify mazes.zip --key 1f0c…")
def verify(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="File that `tournaments export --bundle` wrote.")],
    key: Annotated[
        str | None,
        typer.Option(help="Public key of the service that must have signed it, as GET /v1/signing-key says."),
    ] = None,
) -> None:
    """Check a bundle without a service: signature, digests, declaration and plan; and compute its report again."""
    from speciate.tournaments.bundle import verify as verify_bundle

    try:
        with bundle.open("rb") as file:
            verification = verify_bundle(file, key)
    except OSError as error:
        raise invalid_argument("BUNDLE", f"{bundle} cannot be read: {error.strerror}") from None
    if output.wants_json():
        output.print_json(verification)
    else:
        for name, faults in verification.faults.items():
            output.print_line(f"{name}: {'FAILED' if faults else 'passed'}")
            for fault in faults:
                output.print_line(f"  {fault}.")
        if (manifest := verification.manifest) is not None:
            output.print_note(f"declaration {manifest.declaration}, signed by {manifest.public_key}")
    if not verification.passed:
        raise typer.Exit(ExitCode.FAILED)


@command(app, "extend", "speciate tournaments extend mazes --reason 'more power' --problem maze-test-207")
def extend(
    name: lifecycle.Name,
    reason: Annotated[str, typer.Option(help="Reason, shown in the report.")],
    problem: lifecycle.Problems = None,
    problem_set: lifecycle.ProblemSets = None,
    seed: Annotated[list[int] | None, typer.Option(help="A seed to add; repeatable.")] = None,
) -> None:
    """Add problems or seeds for all entrants. The report shows them as an amendment."""
    problems = lifecycle.problem_names(problem, problem_set)
    VIEW.print_state(client().tournaments.extend(name, reason=reason, problems=problems, seeds=seed or []))


def _head_to_head(policies: list[str], methods: list[str], mutator: str | None, strategy: str) -> dict[str, Any]:
    from speciate.tournaments.head_to_head import head_to_head, methods_head_to_head

    runs = dict(map(_training_runs, methods))
    if len(runs) < len(methods):
        raise invalid_argument("--method", "names a method twice: expected all its policies in one --method")
    try:
        if methods:
            entrants, baseline = methods_head_to_head(runs, mutator=mutator, strategy=strategy)
        else:
            entrants, baseline = head_to_head(policies, mutator=mutator, strategy=strategy)
    except ValidationError as error:
        detail = error.errors()[0]
        message = f"{detail['input']!r}: {validation_message(detail)}"
        raise invalid_argument("--method" if methods else "--policy", message) from None
    return {"entrants": [entrant.model_dump(mode="json") for entrant in entrants], "baseline": baseline}


def _training_runs(option: str) -> tuple[str, list[tuple[str, int]]]:
    """Parse ``NAME=POLICY[:SEED],…``; a policy without a seed has its position as seed."""
    method, _, names = option.partition("=")
    parts = [name.strip().partition(":") for name in names.split(",")]
    if not method.strip() or not all(policy and bool(colon) == seed.isdecimal() for policy, colon, seed in parts):
        raise invalid_argument("--method", f"is {option!r}: expected NAME=POLICY[:SEED],…, such as vpo=vpo-0,vpo-1")
    return method.strip(), [(policy, int(seed) if seed else i) for i, (policy, _, seed) in enumerate(parts)]


def _refuse_other_options() -> None:
    for parameter in context().command.params:
        name = str(parameter.name)
        source = context().get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE" and name not in {"file", "yes", "as_json"}:
            option = parameter.opts[0] if parameter.opts[0].startswith("-") else "NAME"
            raise InvalidInputError(
                f"--file and {option} exclude each other: the file declares everything.",
                remedy="Write it into the file, or omit --file.",
            )


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        values: Any = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:
        field_error = FieldError(str(error), file=str(path))
        raise InvalidInputError(f"The declaration cannot be read: {field_error}", field_errors=(field_error,)) from None
    if not isinstance(values, dict):
        raise invalid_argument("--file", f"{path} is not a table: expected slug, problems, entrants, …")
    return values
