"""What commands print: tables for people, JSON for programs, errors on standard error.

Text from models and users is hostile: it passes through ``clean`` and never through Rich's markup.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from speciate.domain.errors import InvalidInputError, SpeciateError

if TYPE_CHECKING:
    from pydantic import BaseModel

PLAIN_WIDTH: Final = 1000
"""Width of output that is not a terminal: nothing is wrapped or cut."""

# Control characters but tab and line feed (ESC would start a terminal sequence), and those that turn text around.
_HOSTILE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069]")


_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def clean(text: object) -> str:
    """Return a text without what could steer a terminal or show itself as something else."""
    return _HOSTILE.sub("\ufffd", str(text).replace("\r\n", "\n"))


def console(*, stderr: bool = False) -> Console:
    """Return a console for the present output; it writes no escape codes unless that is a terminal."""
    stream = sys.stderr if stderr else sys.stdout
    terminal = stream.isatty()
    return Console(
        file=stream,
        force_terminal=terminal,
        no_color=None if terminal else True,
        width=None if terminal else PLAIN_WIDTH,
        markup=False,
        emoji=False,
        highlight=False,
    )


def say(text: object = "", *, style: str | None = None) -> None:
    """Print a line."""
    # Text objects know no markup; soft wrap leaves long lines to the terminal.
    console().print(Text(clean(text), style=style or ""), soft_wrap=True)


def aside(text: object) -> None:
    """Print a remark on standard error, where no pipe takes it for a result; a command in it is never broken in two."""
    console(stderr=True).print(Text(clean(text)), soft_wrap=True)


def raw(text: str) -> None:
    """Print a text from a model or user as it is, but for what ``clean`` takes out."""
    sys.stdout.write(clean(text))
    if not text.endswith("\n"):
        sys.stdout.write("\n")


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """Print rows under columns; a column whose name begins with ``>`` is aligned to the right.

    Args:
        columns: Names of the columns.
        rows: Cells, in the order of the columns; None is an empty cell.
        empty: What is said when there are no rows.
    """
    out = console()
    made = Table(box=None, pad_edge=False, header_style="bold" if out.is_terminal else "", show_edge=False)
    cells = [["" if cell is None else clean(cell) for cell in row] for row in rows]
    for i, name in enumerate(columns):
        made.add_column(
            name.removeprefix(">"),
            justify="right" if name.startswith(">") else "left",
            no_wrap=not out.is_terminal,
            # Whatever does not fit goes on below; an id, which is there to be copied, stays whole.
            overflow="fold",
            min_width=max((len(row[i]) for row in cells if _ID.search(row[i])), default=None),
        )
    for row in cells:
        made.add_row(*map(Text, row))
    if made.row_count == 0:
        aside(empty)
        return
    if out.is_terminal:
        out.print(made, crop=False)
        return
    with out.capture() as captured:
        out.print(made)
    for line in captured.get().splitlines():
        sys.stdout.write(line.rstrip() + "\n")


def nothing(what: str, hint: str, **filters: object) -> str:
    """Return what is said of an empty list: that nothing matches the filters, or, without any, how to begin."""
    given = ", ".join(f"{name} {value}" for name, value in filters.items() if value is not None)
    return f"No {what} match {clean(given)}." if given else f"There are no {what} yet: {hint}"


def facts(pairs: Iterable[tuple[str, object]]) -> None:
    """Print names with their values, one a line; values that are None or empty are left out."""
    shown = [(name, clean(value)) for name, value in pairs if value is not None and value != ""]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        line = Text(name.ljust(width + 2), style="bold").append(
            value.replace("\n", "\n" + " " * (width + 2)), style="not bold"
        )
        console().print(line, soft_wrap=True)


def json_line(value: BaseModel | Any) -> None:
    """Print a record or JSON value as one line."""
    import json

    dump = getattr(value, "model_dump", None)
    values = value if dump is None else dump(mode="json")
    sys.stdout.write(json.dumps(values, allow_nan=False) + "\n")
    sys.stdout.flush()  # whoever reads a pipe is told of an event when it happens


def number(value: float | None) -> str:
    """Return a number for people; nothing for None."""
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def many(count: int, one: str, more: str = "") -> str:
    """Return a number of things, with the word for one of them or for several, by default with an s."""
    return f"{count:,} {one if count == 1 else more or one + 's'}"


def rewards(values: dict[str, float] | None) -> str:
    """Return rewards by name in one line."""
    return "  ".join(f"{name}={value:.6g}" for name, value in (values or {}).items())


def moment(at: Any) -> str:
    """Return a time as the user's clock shows it, with its zone: the dashboards show UTC."""
    return "" if at is None else f"{at.astimezone():%Y-%m-%d %H:%M:%S %Z}"


def print_error(error: SpeciateError) -> None:
    """Print an error once, with the place of every flaw."""
    message, flaws = str(error), error.flaws if isinstance(error, InvalidInputError) else ()
    told = [str(flaw) for flaw in flaws]
    if len(told) > 1:
        # The message of a definition shows the first flaw and counts the rest; here all of them follow.
        message = message.partition(f": {told[0]}")[0] + ":"
    lines = [f"error: {message}", *(f"  {line}" for line in told if len(told) > 1 or line not in message)]
    for line in lines:
        aside(line)
