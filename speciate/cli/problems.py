"""``speciate problems``: write, check and submit problems, and see those that are there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from speciate.cli import output
from speciate.cli.exits import Exit
from speciate.cli.session import AsJson, Limit, client, examples, listed, noun
from speciate.compat import FORMATS
from speciate.domain.errors import ConflictError, InvalidInputError, NotFoundError

if TYPE_CHECKING:
    from speciate.client import Client
    from speciate.domain.problem import Problem
    from speciate.ports.records.problems import ProblemVersion

app = noun("Problems: what is to be solved, how it is scored, and what counts as unlocking it.")

_SOURCES = "|".join(("task:NAME", *(f"{name}:DIR" for name in FORMATS)))

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="Directory with a problem.toml.")]


@app.command("init", epilog=examples("speciate problems init my-problem"))
def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory to make.")], as_json: AsJson = False
) -> None:
    """Write a small problem that works, to start from."""
    from speciate.problems.template import write_template

    try:
        written = [str(path) for path in write_template(directory)]
    except OSError as error:
        raise ConflictError(f"{error.filename or directory} cannot be written: {error.strerror}.") from None
    if as_json:
        output.json_line({"files": written})
        return
    for path in written:
        output.say(path)
    output.say(f"Next: speciate problems check {directory}")


@app.command(
    "check", epilog=examples("speciate problems check my-problem", "speciate problems check my-problem --json")
)
def check(directory: Directory, as_json: AsJson = False) -> None:
    """Read a problem and score its seed program once, without a service."""
    from speciate.cli.checking import score_seed
    from speciate.problems.loader import load_problem

    problem = load_problem(directory)
    result = score_seed(problem)
    if as_json:
        output.json_line(result.as_json(problem))
    else:
        result.show(problem)
    if result.failed:
        raise typer.Exit(Exit.FAILED)


@app.command(
    "add",
    epilog=examples(
        "speciate problems add circle-packing-26",
        "speciate problems add ./my-problem",
        "speciate problems add --bundled",
    ),
)
def add(
    ctx: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[DIR|SLUG]...", help="Directories, or names of bundled problems.")
    ] = None,
    bundled: Annotated[bool, typer.Option("--bundled", help="Submit every bundled problem.")] = False,
    as_json: AsJson = False,
) -> None:
    """Submit problems. The same definition again is the same version; a changed one is the next version."""
    from speciate.problems.loader import bundled as bundled_problems
    from speciate.problems.loader import load_problem

    known = bundled_problems()
    paths = [*(known.values() if bundled else ()), *(_directory(name, known) for name in names or [])]
    if not paths:
        raise InvalidInputError(
            "there is nothing to add.",
            remedy=f"Name a directory or a bundled problem ({', '.join(known)}), or --bundled.",
        )
    # All are read before the first is sent: a mistake in the last one leaves nothing half done.
    definitions = [load_problem(path) for path in paths]
    with client(ctx) as service:
        for definition in definitions:
            version, new = service.problems.submit(definition)
            if as_json:
                output.json_line(version)
            else:
                output.say(f"{definition.slug}@{version.version}  {definition.title}")
            if not new:
                _tell_known(service, version)


@app.command(
    "import",
    epilog=examples(
        "speciate problems import task:maze --split test --count 200",
        "speciate problems import task:musique --data ./musique --split test --count 50 --into musique-dev",
        "speciate problems import openevolve:./circle_packing",
        "speciate problems import shinka:./tours --reward length:min --reward spread:max --into ./my-tours",
    ),
)
def import_(
    ctx: typer.Context,
    source: Annotated[str, typer.Argument(metavar=_SOURCES, help="A task, or a directory of another system.")],
    split: Annotated[str, typer.Option(help="train or test: no problem is in both.")] = "test",
    count: Annotated[int, typer.Option(help="How many problems.", min=1, max=10_000)] = 100,
    start: Annotated[int, typer.Option(help="Number of the first one.", min=0)] = 0,
    data: Annotated[Path | None, typer.Option(help="Folder with the files of a task that reads a dataset.")] = None,
    reward: Annotated[
        list[str] | None,
        typer.Option(
            help="A metric of a directory's evaluator and which way is better, name:max or name:min; once for each.",
            show_default="combined_score:max",
        ),
    ] = None,
    into: Annotated[
        str | None,
        typer.Option(
            help="Name of the set to make of a task; directory to write another system's problem into.",
            show_default="TASK-SPLIT-START-END; NAME-problem",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Submit the problems of a task as a set, or make a problem of a directory that OpenEvolve or ShinkaEvolve uses.

    A task again adds nothing and answers the same set. Of a directory nothing is submitted: it is written down as an
    ordinary problem, to look through and to change.
    """
    from speciate.cli.importing import import_folder, import_task

    kind, _, name = source.partition(":")
    if kind not in ("task", *FORMATS) or not name:
        kinds = ", ".join(("task:NAME", *(f"{known}:DIR" for known in FORMATS)))
        raise InvalidInputError(f"cannot import {source!r}.", remedy=f"What can be: {kinds}.")
    if kind in FORMATS:
        imported = import_folder(kind, Path(name), reward or [], None if into is None else Path(into))
        if as_json:
            output.json_line(imported.as_json())
        else:
            imported.show()
        return
    if reward:
        raise InvalidInputError("the rewards of a task are its own.", remedy="Leave out --reward.")
    with client(ctx) as service:
        made = import_task(service, name, split, count, start=start, data=data, into=into)
    if as_json:
        output.json_line(made)
    else:
        many = output.many(len(made.problems), "problem")
        output.say(f"{made.slug}: {many}, {made.problems[0].slug} to {made.problems[-1].slug}")


@app.command(
    "list",
    epilog=examples(
        "speciate problems list", "speciate problems list circle-packing-26 --json", "speciate problems list --bundled"
    ),
)
def list_(
    ctx: typer.Context,
    slug: Annotated[str | None, typer.Argument(help="Only the versions of this problem.")] = None,
    bundled: Annotated[bool, typer.Option("--bundled", help="Those that come with Speciate, added or not.")] = False,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List problem versions, newest first."""
    if bundled:
        _list_bundled(as_json)
        return
    with client(ctx) as service:
        found = listed(ctx, service.problems.list(slug), limit)
        if as_json:
            for record in found:
                output.json_line(record)
            return
        rows = [
            (f"{p.slug}@{p.version}", p.kind.value, ", ".join(p.objectives), ", ".join(p.targets), p.title)
            for p in found
        ]
    empty = output.nothing("problems", "speciate problems add --bundled", name=slug)
    output.table(("problem", "kind", "objectives", "targets", "title"), rows, empty=empty)


@app.command("show", epilog=examples("speciate problems show circle-packing-26", "speciate problems show sorting@2"))
def show(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="PROBLEM", help="Name, name@version or id.")],
    as_json: AsJson = False,
) -> None:
    """Show a problem version."""
    with client(ctx) as service:
        version = service.problems.get(name)
    if as_json:
        output.json_line(version)
    else:
        _show(version)


@app.command("prompt", epilog=examples("speciate problems prompt ./my-problem", "speciate problems prompt sorting@2"))
def prompt(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="DIR|PROBLEM", help="Directory, or name, name@version or id.")],
    diff: Annotated[bool, typer.Option("--diff", help="As for a policy that sends diffs.")] = False,
    answers: Annotated[int, typer.Option(help="As for a policy with so many answers in one completion.", min=1)] = 1,
    seed: Annotated[int, typer.Option(help="Draws the wording of the request.", min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """Show what a policy is asked; of a directory, without a service."""
    from speciate.cli.prompting import example_prompts
    from speciate.problems.loader import load_problem

    if _is_there(Path(name)):
        problem = load_problem(Path(name))
    else:
        with client(ctx) as service:
            problem = service.problems.get(name).definition
    shown = example_prompts(problem, diff=diff, answers=answers, seed=seed)
    if as_json:
        output.json_line({role: {"system": made.system, "user": made.user} for role, made in shown.items()})
        return
    for role, made in shown.items():
        output.say(f"──── {role}: system")
        output.raw(made.system)
        output.say(f"──── {role}: user")
        output.raw(made.user)


@app.command("templates", epilog=examples("speciate problems templates my-problem"))
def templates(directory: Directory, as_json: AsJson = False) -> None:
    """Write the default templates of prompts into the folder prompts of a problem, to change them."""
    from speciate.cli.prompting import write_templates

    try:
        written = write_templates(directory)
    except OSError as error:
        raise ConflictError(f"{error.filename or directory} cannot be written: {error.strerror}.") from None
    if as_json:
        output.json_line({"files": [str(path) for path in written]})
        return
    for path in written:
        output.say(path)
    names = ", ".join(f'"{path.name}"' for path in written)
    output.say(f"Keep those that you change, and name them at the top of problem.toml: prompts = [{names}]")


def _tell_known(service: Client, version: ProblemVersion) -> None:
    slug = version.definition.slug
    told = f"{slug}@{version.version} was there already: nothing has changed."
    newest = next(iter(service.problems.list(slug))).version
    if newest != version.version:
        # Whoever takes a change back would go on with it: a name alone is the newest version.
        told += f" {slug} alone means {slug}@{newest}, the newest; write {slug}@{version.version} for this one."
    output.aside(told)


def _directory(name: str, known: dict[str, Path]) -> Path:
    # A directory of that name wins over a bundled problem: what lies there is what the user sees.
    path = Path(name)
    if _is_there(path):
        return path
    if name not in known:
        raise NotFoundError(
            f"there is neither a directory nor a bundled problem {name!r}.", remedy=f"Bundled: {', '.join(known)}."
        )
    return known[name]


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return True  # reading it will say why it cannot be looked for


def _show(version: ProblemVersion) -> None:
    problem: Problem = version.definition
    output.facts(
        (
            ("problem", f"{problem.slug}@{version.version}"),
            ("title", problem.title),
            ("id", version.id),
            ("kind", problem.kind.value),
            ("digest", version.digest),
            ("source", problem.source.strip()),
        )
    )
    output.say()
    rows = [
        (o.name, o.direction.value, o.role.value, f"{o.range[0]:g} … {o.range[1]:g}", o.description)
        for o in problem.objectives
    ]
    output.table(("objective", "direction", "role", "range", "meaning"), rows, empty="no objectives")
    output.say()
    targets = [(t.name, "unlock" if t.unlock else "", t.rule, t.description) for t in problem.targets]
    output.table(("target", "", "rule", "meaning"), targets, empty="no targets")
    if problem.description.strip():
        output.say()
        output.raw(problem.description.strip())


def _list_bundled(as_json: bool) -> None:
    from speciate.problems.loader import bundled, load_problem

    problems = [load_problem(path) for path in bundled().values()]
    if as_json:
        for problem in problems:
            output.json_line({"slug": problem.slug, "title": problem.title, "source": problem.source})
        return
    rows = [(p.slug, p.title, next(t.rule for t in p.targets if t.unlock)) for p in problems]
    output.table(("problem", "title", "unlocked by"), rows, empty="none")
