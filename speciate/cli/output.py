"""Command output: tables for people, JSON for programs, notes and errors on standard error.

Text from models and users is untrusted: it passes through ``sanitize`` and never through Rich markup.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from shlex import join
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeVar

import typer

from speciate.domain.numbers import short_number

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import Console, JustifyMethod
    from rich.progress import Progress

    from speciate.schema.estimates import RunEstimate
    from speciate.schema.results import RunResult
    from speciate.schema.runs import LearningRecord, RunRecord
    from speciate.schema.unlocks import UnlockRecord

T = TypeVar("T")
_json_wanted: ContextVar[bool] = ContextVar("json", default=False)
invocation: Final[ContextVar[str]] = ContextVar("invocation", default="speciate")
"""How printed commands begin, so that they find the runs of the command in progress."""

LEARNING_WAITS: Final = "a step is in flight, or waits for a learn worker (`speciate up --learn`)"
PLAIN_WIDTH: Final = 1000
"""Width of output that is not a terminal: wide enough never to wrap or truncate."""

# Control characters except tab and line feed (ESC starts a terminal sequence), and bidirectional overrides.
_UNSAFE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069]")
_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def wants_json() -> bool:
    """Return True if the command in progress was given --json."""
    return _json_wanted.get()


def request_json(*, wanted: bool) -> None:
    _json_wanted.set(wanted)


def command_line(command: str, *arguments: object) -> str:
    """Return a command of ``speciate`` to print, with its arguments in quotes where they need them."""
    return f"{invocation.get()} {command} {join(map(str, arguments))}".rstrip()


def sanitize(text: object) -> str:
    """Replace characters that could control a terminal or disguise text."""
    return _UNSAFE.sub("\ufffd", str(text).replace("\r\n", "\n"))


def console(*, stderr: bool = False) -> Console:
    """Return a console for the current standard output or error; it writes escape codes only to a terminal."""
    from rich.console import Console

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


def _write(line: str, stream: TextIO | None = None) -> None:
    # Flushed, so that the reader of a pipe receives each line at once.
    out = stream or sys.stdout
    out.write(line + "\n")
    out.flush()


def print_line(text: object = "", *, style: str | None = None) -> None:
    """Print a line; only a terminal shows the style. Line breaks are left to the terminal."""
    if style is None or not sys.stdout.isatty():
        _write(sanitize(text))
        return
    from rich.text import Text

    console().print(Text(sanitize(text), style=style), soft_wrap=True)


def print_note(text: object) -> None:
    """Print a note on standard error, without line breaks, so that a command in it can be copied."""
    _write(sanitize(text), sys.stderr)


def print_text(text: str) -> None:
    """Print text from a model or user unformatted, after ``sanitize``."""
    sys.stdout.write(sanitize(text))
    if not text.endswith("\n"):
        sys.stdout.write("\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str = "") -> None:
    """Print a table, or the note ``empty`` if it has no rows. A column name with the prefix ``>`` is right-aligned."""
    cells = [["" if value is None else sanitize(value) for value in row] for row in rows]
    if not cells:
        print_note(empty)
        return
    if not sys.stdout.isatty():
        _print_plain(columns, cells)
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for i, name in enumerate(columns):
        # Long cells wrap, except ids: they are there to be copied.
        id_width = max((len(row[i]) for row in cells if _ID.search(row[i])), default=None)
        justify: JustifyMethod = "right" if name.startswith(">") else "left"
        table.add_column(name.removeprefix(">"), justify=justify, overflow="fold", min_width=id_width)
    for row in cells:
        table.add_row(*map(Text, row))
    console().print(table, crop=False)


def _print_plain(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    """Print one line per row; a line break in a cell becomes a blank."""
    from rich.cells import cell_len

    rows = [[name.removeprefix(">") for name in columns], *([" ".join(cell.split()) for cell in row] for row in cells)]
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        padded = []
        for name, cell, width in zip(columns, row, widths, strict=True):
            blanks = " " * (width - cell_len(cell))
            padded.append(blanks + cell if name.startswith(">") else cell + blanks)
        _write("  ".join(padded).rstrip())


def print_records(
    records: Iterable[T], columns: Sequence[str], row: Callable[[T], Sequence[object]], *, empty: str = ""
) -> None:
    """Print records as JSON Lines, or as a table; ``row`` returns the cells of a record."""
    if wants_json():
        for record in records:
            print_json(record)
    else:
        print_table(columns, map(row, records), empty=empty)


@contextmanager
def live_status() -> Iterator[Callable[[str], None]]:
    """Yield a function that changes a line below the output of a terminal; elsewhere it does nothing."""
    if not sys.stdout.isatty():
        yield lambda _: None
        return
    from rich.text import Text

    with console().status("") as status:
        yield lambda line: status.update(Text(sanitize(line)))


def progress_bars(out: Console) -> Progress:
    from rich import progress

    return progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(bar_width=20),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
        progress.TextColumn("{task.fields[status]}", markup=False),
        console=out,
        disable=not out.is_terminal,
    )


def empty_message(what: str, hint: str, **filters: object) -> str:
    """Return the message for an empty list: no match for the filters or, without filters, the command to start with."""
    filtered = ", ".join(f"{name} {value}" for name, value in filters.items() if value is not None)
    return f"No {what} match {sanitize(filtered)}." if filtered else f"There are no {what} yet: {hint}"


def print_fields(*pairs: tuple[str, object], stderr: bool = False) -> None:
    """Print one name and value per line, omitting values that are None or empty."""
    fields = [(name, sanitize(value)) for name, value in pairs if value is not None and value != ""]
    width = max((len(name) for name, _ in fields), default=0)
    for name, value in fields:
        text = value.replace("\n", "\n" + " " * (width + 2))
        stream = sys.stderr if stderr else sys.stdout
        if not stream.isatty():
            _write(name.ljust(width + 2) + text, stream)
            continue
        from rich.text import Text

        styled = Text(name.ljust(width + 2), style="bold").append(text, style="not bold")
        console(stderr=stderr).print(styled, soft_wrap=True)


def print_json(value: BaseModel | Any) -> None:
    """Print a record or JSON value on one line."""
    dump = getattr(value, "model_dump", None)
    _write(json.dumps(value if dump is None else dump(mode="json"), allow_nan=False))


def exit_with_json(value: BaseModel | Any) -> None:
    """End the command with ``print_json`` if the user wants JSON."""
    if wants_json():
        print_json(value)
        raise typer.Exit


def print_result(value: BaseModel | Any, line: object) -> None:
    if wants_json():
        print_json(value)
    else:
        print_line(line)


def print_sections(texts: Iterable[tuple[str, str]]) -> None:
    for title, text in texts:
        print_line()
        print_line(f"--- {title}", style="bold")
        print_text(text)


def print_estimate(estimate: RunEstimate, actual: Mapping[str, float] | None = None) -> None:
    """Print what a run was estimated to spend, beside what it has spent, and where the estimate comes from."""
    rows = []
    for name, amount in estimate.ranges():
        values = [amount.expected, amount.low, amount.high, *([] if actual is None else [actual.get(name)])]
        digits = 4 if name == "dollars" else 0
        rows.append((name, *("" if value is None else f"{value:,.{digits}f}" for value in values)))
    print_table(("", ">expected", ">from", ">to", *([] if actual is None else [">actual"])), rows)
    print_note(f"Estimated for the whole budget. {estimate.basis}.")


def print_diagnosis(run: RunRecord) -> None:
    """Print why the service paused a run: the latest failure, what to do, and the command that shows the candidate."""
    if (diagnosis := run.diagnosis) is None:
        return
    print_sections([(f"candidate {diagnosis.candidate}: {diagnosis.reason}", diagnosis.detail)])
    print_line()
    print_line(diagnosis.remedy)
    verb = "rollout" if diagnosis.fault == "policy" else "show"
    print_line(f"Show it with: {command_line(f'candidates {verb}', f'{run.id}/{diagnosis.candidate}')}")


def format_number(value: float | None) -> str:
    """Format a number for people; None becomes an empty string."""
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else short_number(value)


def format_spent(used: float, limit: float | None) -> str:
    return format_number(used) if limit is None else f"{format_number(used)} of {format_number(limit)}"


def format_state(state: str, reason: str | None) -> str:
    return f"{state}: {reason}" if reason else state


def pluralize(count: int, one: str, more: str = "") -> str:
    """Return a count with its noun, singular or plural (default: ``one`` with an s)."""
    return f"{count:,} {one if count == 1 else more or one + 's'}"


def format_effort(unlock: UnlockRecord) -> tuple[str, str, str]:
    """Format evaluations, tokens and seconds of an unlock, each with those of the runs that its run started from."""
    sources = unlock.sources
    evaluations, tokens = sum(each.evaluations for each in sources), sum(each.tokens for each in sources)
    return (
        format_number(unlock.evaluations) + (f" (+{evaluations:,})" if sources else ""),
        format_number(unlock.tokens) + (f" (+{tokens:,})" if tokens else ""),
        f"{unlock.seconds:.1f}" + (f" (+{sum(each.seconds for each in sources):.1f})" if sources else ""),
    )


def learning_fields(learning: LearningRecord | None, *, over: bool) -> list[tuple[str, str | None]]:
    """Return the fields of what a run or a campaign has learned; empty if it does not learn."""
    if learning is None:
        return []
    state = learning.ended or ("" if over else LEARNING_WAITS if learning.busy else "collects groups")
    steps = pluralize(learning.taken, "step")
    if learning.campaign is not None and learning.taken < learning.step:
        steps += f" of {learning.step:,} of campaign {learning.campaign}"
    return [
        ("learning", f"{steps}; {state}" if state else steps),
        ("learned", learning.version),
        ("groups", learning.groups),
        ("cost of learning", f"{learning.seconds:,.1f} s, {learning.tokens:,} tokens"),
    ]


def format_rewards(values: Mapping[str, float | None] | None) -> str:
    return "  ".join(
        f"{name}={'–' if value is None else short_number(value)}" for name, value in (values or {}).items()
    )


def format_result(result: RunResult | None) -> str:
    """Format the rewards of a best candidate beside the seed program's, as far as they fit into a column."""
    return "" if result is None else shorten(", ".join(map(str, result.rewards)), 64, placeholder=" …")


def format_time(at: Any) -> str:
    """Format a time in the local time zone, with the zone's name: the dashboard shows UTC."""
    return "" if at is None else f"{at.astimezone():%Y-%m-%d %H:%M:%S %Z}"
