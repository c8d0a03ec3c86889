"""Commands that runs, problems and policies share: archive, delete and restore; and the filter of their lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from speciate.cli import output
from speciate.cli.common import Yes, client, command, confirm
from speciate.domain.visibility import Hideable, Visibility, VisibilityChange, visibility_of

if TYPE_CHECKING:
    from speciate.schema.base import HideableRecord

Listed = Annotated[Visibility, typer.Option("--visibility", help="List visible, archived or deleted ones, or all.")]
Names = Annotated[list[str], typer.Argument(metavar="NAME", help="Ids, or names as `show` accepts them.")]

_HELP: Final = {
    VisibilityChange.ARCHIVE: "Archive {}. Lists hide them and new work cannot use them; records still count them.",
    VisibilityChange.DELETE: "Delete {}. They count nowhere, and can be restored until they are purged.",
    VisibilityChange.RESTORE: "Restore {}: undo the deletion, else the archiving.",
}


def filter_value(visibility: Visibility) -> str | None:
    return None if visibility is Visibility.VISIBLE else visibility.value


def marked(text: str, item: Hideable) -> str:
    """Return a text with a mark if the object is archived or deleted."""
    state = visibility_of(item)
    return text if state is Visibility.VISIBLE else f"{text} ({state.value})"


def hidden_fields(record: HideableRecord) -> tuple[tuple[str, str], ...]:
    """Return the times of archiving and deletion for ``show``; empty texts if there are none."""
    return (("archived", output.format_time(record.archived_at)), ("deleted", output.format_time(record.deleted_at)))


def add_visibility_commands(app: typer.Typer, noun: str, objects: str, example: str, name: str) -> None:
    """Add ``archive``, ``delete`` and ``restore`` to the app of a noun; ``name`` is a format string for a record."""

    def perform(names: Iterable[str], verb: VisibilityChange) -> None:
        change = getattr(getattr(client(), noun), verb.value)
        for changed in map(change, names):
            for record in changed if isinstance(changed, tuple) else (changed.record,):
                output.print_result(record, f"{name.format(record)} is {visibility_of(record).value}.")

    def archive(names: Names) -> None:
        perform(names, VisibilityChange.ARCHIVE)

    def delete(names: Names, yes: Yes = False) -> None:
        confirm(f"Delete {' '.join(names)}?", yes=yes)
        perform(names, VisibilityChange.DELETE)

    def restore(names: Names) -> None:
        perform(names, VisibilityChange.RESTORE)

    commands: tuple[Callable[..., None], ...] = (archive, delete, restore)
    for verb, function in zip(VisibilityChange, commands, strict=True):
        command(app, verb.value, f"speciate {noun} {verb.value} {example}", help=_HELP[verb].format(objects))(function)
