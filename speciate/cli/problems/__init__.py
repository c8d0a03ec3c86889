"""``speciate problems``: create, check, add and list problems."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from speciate.cli import output
from speciate.cli.common import Limit, RunId, client, command, command_group, first_records
from speciate.cli.errors import ExitCode
from speciate.cli.problems.importing import IMPORT_EXAMPLES, import_command
from speciate.cli.visibility import Listed, add_visibility_commands, filter_value, hidden_fields, marked
from speciate.domain.errors import ConflictError, InvalidInputError, NotFoundError
from speciate.domain.suggestions import did_you_mean
from speciate.domain.visibility import Visibility
from speciate.problems.template import SCHEMA, TemplateKind, write_template

if TYPE_CHECKING:
    from speciate.client import Client
    from speciate.schema.problems import ProblemVersion

app = command_group()

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="Directory with a problem.toml.")]


@command(
    app,
    "init",
    "speciate problems init my-problem",
    "speciate problems init my-problem --language cpp",
    "speciate problems init my-problem --kind data",
)
def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory to create.")],
    kind: Annotated[TemplateKind, typer.Option(help="Kind of candidate and of scoring.")] = TemplateKind.EVALUATOR,
    language: Annotated[
        str | None,
        typer.Option(help="Language of the seed program: python, c, cpp, javascript or rust.", show_default="python"),
    ] = None,
) -> None:
    """Create a small working problem to start from."""
    write = partial(write_template, kind=kind, language=language)
    _write_files(write, directory, f"Next: {output.command_line('problems check', directory)}")


@command(app, "check", "speciate problems check my-problem", "speciate problems check my-problem --json")
def check(
    directory: Directory,
    repeats: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=1000,
            help="Further evaluations of the seed program, which measure noise.",
            show_default="4 within half a minute",
        ),
    ] = None,
) -> None:
    """Validate a problem, score its seed program and measure how much its evaluations differ, without a service."""
    from speciate.cli.problems.check import measure_noise, score_seed
    from speciate.problems.loader import load_problem

    problem = load_problem(directory)
    result, noise = score_seed(problem, directory), None
    if result.evaluation is not None and not result.failed and problem.external_stage is None:
        noise = measure_noise(problem, result.evaluation, repeats)
    if output.wants_json():
        output.print_json(result.as_json(problem) | {"noise": None if noise is None else noise.as_json(problem)})
    else:
        result.show(problem)
        if noise is not None:
            noise.show(problem)
    if result.failed:
        raise typer.Exit(ExitCode.FAILED)


@command(
    app,
    "add",
    "speciate problems add circle-packing-26",
    "speciate problems add ./my-problem",
    "speciate problems add --bundled",
)
def add(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[DIR|SLUG]...", help="Problem directories, or names of bundled problems."),
    ] = None,
    bundled: Annotated[bool, typer.Option("--bundled", help="Add all bundled problems.")] = False,
    no_check: Annotated[bool, typer.Option("--no-check", help="Do not score the seed program first.")] = False,
) -> None:
    """Score the seed programs of problems on a worker, then add the problems to the service.

    An unchanged definition keeps its version; a changed one becomes the next version.
    """
    from speciate.problems.loader import bundled as bundled_problems
    from speciate.problems.loader import known_problems, load_problem, with_own_names

    bundled_by_name = bundled_problems()
    everything = known_problems()
    paths = [*(bundled_by_name.values() if bundled else ()), *(_directory(name, everything) for name in names or [])]
    if not paths:
        raise InvalidInputError(
            "no problem is given.",
            remedy=f"Name a directory or a bundled problem ({', '.join(bundled_by_name)}), or pass --bundled.",
        )
    # Load all before submitting the first: an invalid definition then submits nothing.
    definitions = [load_problem(path) for path in paths]
    service = client()
    for path, definition in zip(paths, definitions, strict=True):
        scoring = f"Scoring the seed program of {definition.slug} on a worker …"
        with nullcontext() if no_check else output.console(stderr=True).status(scoring):
            try:
                version, new = service.problems.submit(definition, check=not no_check)
            except InvalidInputError as error:
                if not error.field_errors:
                    error.args = (with_own_names(str(error), definition, path),)
                raise
        output.print_result(version, f"{definition.slug}@{version.version}  {definition.title}")
        if version.note:
            output.print_note(version.note)
        if not new:
            _note_unchanged(service, version)


@command(app, "schema", "speciate problems schema > my-problem/problem.schema.json", has_json=False)
def schema() -> None:
    """Print the JSON schema of problem.toml, for editors.

    Its first line then names the schema: #:schema ./problem.schema.json
    """
    output.print_text(SCHEMA.read_text(encoding="utf-8"))


command(app, "import", *IMPORT_EXAMPLES)(import_command)


@command(
    app,
    "list",
    "speciate problems list",
    "speciate problems list circle-packing-26 --json",
    "speciate problems list --bundled",
)
def list_(
    slug: Annotated[str | None, typer.Argument(help="Only the versions of this problem.")] = None,
    bundled: Annotated[bool, typer.Option("--bundled", help="List the bundled problems instead.")] = False,
    visibility: Listed = Visibility.VISIBLE,
    limit: Limit = 50,
) -> None:
    """List problem versions, newest first."""
    if bundled:
        if (slug, visibility, limit) != (None, Visibility.VISIBLE, 50):
            raise InvalidInputError("--bundled lists all bundled problems: omit name, --visibility and --limit.")
        _list_bundled()
        return
    problems = first_records(client().problems.list(slug, visibility=visibility), limit)
    output.print_records(
        problems,
        ("problem", "best", "kind", "objectives", "targets", "title"),
        lambda p: (
            marked(f"{p.slug}@{p.version}", p),
            output.format_result(p.result),
            p.kind.value,
            ", ".join(p.objectives),
            ", ".join(p.targets),
            p.title,
        ),
        empty=output.empty_message(
            "problems", "speciate problems add --bundled", name=slug, visibility=filter_value(visibility)
        ),
    )


@command(app, "show", "speciate problems show circle-packing-26", "speciate problems show sorting@2")
def show(name: Annotated[str, typer.Argument(metavar="PROBLEM", help="Name, name@version or id.")]) -> None:
    """Show a problem version."""
    version = client().problems.get(name)
    output.exit_with_json(version)
    problem = version.definition
    output.print_fields(
        ("problem", f"{problem.slug}@{version.version}"),
        ("title", problem.title),
        ("id", version.id),
        ("kind", problem.kind.value),
        ("digest", version.digest),
        ("source", problem.source.strip()),
        *hidden_fields(version),
    )
    output.print_line()
    rows = [
        (o.name, o.aim, o.role.value, f"{o.range[0]:g} … {o.range[1]:g}", o.description) for o in problem.objectives
    ]
    output.print_table(("objective", "direction", "role", "range", "meaning"), rows, empty="no objectives")
    output.print_line()
    targets = [(t.name, "unlock" if t.unlock else "", t.rule, t.description) for t in problem.targets]
    output.print_table(("target", "", "rule", "meaning"), targets, empty="no targets")
    if problem.description.strip():
        output.print_line()
        output.print_text(problem.description.strip())


@command(app, "prompt", "speciate problems prompt ./my-problem", "speciate problems prompt sorting@2")
def prompt(
    name: Annotated[str, typer.Argument(metavar="DIR|PROBLEM", help="Directory, or name, name@version or id.")],
    diff: Annotated[bool, typer.Option("--diff", help="Show the prompt for a policy that answers with diffs.")] = False,
    answers: Annotated[int, typer.Option(help="Answers per completion.", min=1)] = 1,
    seed: Annotated[int, typer.Option(help="Random seed for the wording of the prompt.", min=0)] = 0,
) -> None:
    """Show example prompts for a problem, with the scores of its seed program as measured on this machine.

    A directory needs no running service.
    """
    from speciate.cli.problems.prompts import example_prompts, seed_of
    from speciate.problems.loader import load_problem

    problem = load_problem(Path(name)) if _exists(Path(name)) else client().problems.get(name).definition
    prompts = example_prompts(problem, seed_of(problem), diff=diff, answers=answers, seed=seed)
    output.exit_with_json({role: {"system": each.system, "user": each.user} for role, each in prompts.items()})
    for role, rendered in prompts.items():
        output.print_line(f"──── {role}: system")
        output.print_text(rendered.system)
        output.print_line(f"──── {role}: user")
        output.print_text(rendered.user)


@command(
    app,
    "export",
    "speciate problems export verifiers:./circle-packing-env circle-packing-26",
    "speciate problems export verifiers:./my-env ./my-problem",
)
def export(
    target: Annotated[str, typer.Argument(metavar="verifiers:DIR", help="Format, and the directory to create.")],
    name: Annotated[
        str, typer.Argument(metavar="DIR|PROBLEM", help="Directory, bundled problem, or name, name@version or id.")
    ],
) -> None:
    """Write a problem as a package for another system: an environment for Prime Intellect's verifiers.

    The package scores completions with Speciate's sandboxed evaluator. A directory or bundled problem needs no running
    service.
    """
    from speciate.compat.verifiers import write_verifiers
    from speciate.problems.loader import known_problems, load_problem

    kind, _, folder = target.partition(":")
    if kind != "verifiers" or not folder:
        raise InvalidInputError(f"cannot export to {target!r}.", remedy="Expected verifiers:DIR.")
    path = Path(name) if _exists(Path(name)) else known_problems().get(name)
    problem = client().problems.get(name).definition if path is None else load_problem(path)
    hint = f"Next: pip install -e {quote(folder)}"
    _write_files(lambda directory: write_verifiers(problem, directory), Path(folder), hint)


@command(app, "save", "speciate problems save RUN my-problem")
def save(run_id: RunId, directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory to create.")]) -> None:
    """Write the problem of a run as a directory, with estimated ranges widened to the values that the run has seen."""
    from speciate.problems.writing import problem_texts, with_ranges_of, write

    run = client().runs.get(run_id)
    problem = with_ranges_of(run.problem().definition, [cell.elite.rewards for cell in run.archive()])
    check, add = (output.command_line(f"problems {verb}", directory) for verb in ("check", "add"))
    _write_files(lambda folder: write(problem_texts(problem), folder), directory, f"Next: {check}, then {add}")


@command(app, "templates", "speciate problems templates my-problem")
def templates(directory: Directory) -> None:
    """Write the default prompt templates into a problem directory, for editing."""
    from speciate.cli.problems.prompts import TEMPLATE_FILES, write_templates

    names = ", ".join(f'"{name}"' for name in TEMPLATE_FILES)
    hint = f"Keep the ones you edit and list them at the top of problem.toml: prompts = [{names}]"
    _write_files(write_templates, directory, hint)


def _write_files(write: Callable[[Path], Sequence[Path]], directory: Path, hint: str) -> None:
    try:
        written = write(directory)
    except OSError as error:
        raise ConflictError(f"{error.filename or directory} cannot be written: {error.strerror}.") from None
    output.print_result({"files": [str(path) for path in written]}, "\n".join(map(str, [*written, hint])))


def _note_unchanged(service: Client, version: ProblemVersion) -> None:
    slug = version.definition.slug
    note = f"{slug}@{version.version} is unchanged."
    newest = next(iter(service.problems.list(slug))).version
    if newest != version.version:
        # After reverting a change, the bare name would still mean the changed version.
        note += (
            f" {slug} means the newest version, {slug}@{newest}, which is not what this folder holds;"
            f" run {slug}@{version.version} for this one."
        )
    output.print_note(note)


def _directory(name: str, problems: dict[str, Path]) -> Path:
    # A directory takes precedence over a bundled problem of the same name.
    path = Path(name)
    if _exists(path):
        return path
    if name not in problems:
        raise NotFoundError(
            f"{name!r} is neither a directory nor a bundled problem.",
            remedy=did_you_mean(name, problems) or f"Bundled problems: {', '.join(problems)}.",
        )
    return problems[name]


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return True  # loading it reports the reason


def _list_bundled() -> None:
    from speciate.problems.loader import known_problems, load_problem

    problems = [load_problem(path) for path in known_problems().values()]
    if output.wants_json():
        for problem in problems:
            output.print_json({"slug": problem.slug, "title": problem.title, "source": problem.source})
        return
    rows = [(p.slug, p.title, next(t.rule for t in p.targets if t.unlock)) for p in problems]
    output.print_table(("problem", "title", "unlock rule"), rows, empty="No problem is bundled.")


add_visibility_commands(
    app, "problems", "problem versions, or all versions of a name", "sorting@2", "{0.slug}@{0.version}"
)
