"""``speciate sets``: add bundled sets, create and list frozen lists of problem versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from speciate.cli import output
from speciate.cli.common import Limit, client, command, command_group, first_records
from speciate.domain.errors import ConflictError, InvalidInputError, NotFoundError

if TYPE_CHECKING:
    from speciate.client import Client
    from speciate.schema.problems import ProblemSet

app = command_group()


@command(app, "create", "speciate sets create physics relativistic-energy planck-radiation@1")
def create(
    slug: Annotated[str, typer.Argument(metavar="NAME", help="Name of the set; cannot be reused.")],
    problems: Annotated[list[str], typer.Argument(metavar="PROBLEM...", help="Problems: name, name@version or id.")],
    title: Annotated[str, typer.Option(help="Title, one line.")] = "",
) -> None:
    """Create a frozen list of problem versions."""
    created = client().problem_sets.create(slug, problems, title=title)
    output.print_result(created, f"{created.slug}: {', '.join(f'{p.slug}@{p.version}' for p in created.problems)}")


@command(app, "add", "speciate sets add frontier-math")
def add(
    name: Annotated[str, typer.Argument(metavar="SET", help="Name of a bundled problem set.")],
    no_check: Annotated[bool, typer.Option("--no-check", help="Do not score the seed programs first.")] = False,
) -> None:
    """Add the problems of a bundled set, and create the set. Adding it again changes nothing."""
    from rich.progress import track

    from speciate.problems.loader import bundled_sets, load_problem

    sets = bundled_sets()
    if name not in sets:
        raise InvalidInputError(f"no problem set {name!r} is bundled.", remedy=f"Bundled sets: {', '.join(sets)}.")
    definitions = [load_problem(path) for path in sets[name].problems.values()]
    console = output.console(stderr=True)
    service = client()
    steps = track(definitions, f"Adding {name}", console=console, disable=not console.is_terminal)
    added = [service.problems.submit(definition, check=not no_check)[0] for definition in steps]
    other = ConflictError(
        f"the set {name!r} holds other versions of these problems.",
        remedy="Create one with another name: speciate sets create NAME PROBLEM…",
    )
    ids = [str(version.id) for version in added]
    problem_set = get_or_create(service, name, ids, title=sets[name].title, other=other)
    output.print_result(problem_set, f"{problem_set.slug}: {output.pluralize(len(problem_set.problems), 'problem')}")


def get_or_create(service: Client, slug: str, ids: list[str], *, title: str, other: ConflictError) -> ProblemSet:
    """Return the set of these problem versions; raise ``other`` if the set of this name holds others."""
    try:
        problem_set = service.problem_sets.get(slug)
    except NotFoundError:
        return service.problem_sets.create(slug, ids, title=title)
    if [str(problem.id) for problem in problem_set.problems] != ids:
        raise other
    return problem_set


@command(app, "list", "speciate sets list")
def list_(limit: Limit = 50) -> None:
    """List problem sets, newest first."""
    problem_sets = first_records(client().problem_sets.list(), limit)
    output.print_records(
        problem_sets,
        ("set", ">problems", "title"),
        lambda s: (s.slug, len(s.problems), s.title),
        empty="There are no problem sets yet: speciate sets create --help",
    )


@command(app, "show", "speciate sets show physics --json")
def show(name: Annotated[str, typer.Argument(metavar="SET", help="Set name or id.")]) -> None:
    """List the problems of a set in order."""
    problem_set = client().problem_sets.get(name)
    output.exit_with_json(problem_set)
    rows = [(f"{p.slug}@{p.version}", p.kind.value, p.title) for p in problem_set.problems]
    output.print_table(("problem", "kind", "title"), rows, empty="The set is empty.")
