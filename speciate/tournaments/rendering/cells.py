"""What tables of a report are made of: a section, and a number with its interval and n in one cell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from speciate.tournaments.report.measures import BudgetLaw, Estimate, Strength


@dataclass(frozen=True, slots=True)
class Section:
    """One table with what has to be known to read it.

    Attributes:
        key: Short name, by which a figure finds its table.
        title: What it is.
        note: Sentences before the table: test, interval, what is withheld and why.
        columns: Headings; one that begins with ``>`` is aligned to the right.
        rows: Cells; hostile text.
    """

    key: str
    title: str
    note: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def estimate(found: Estimate, form: str = ".3g") -> str:
    """Return a number with its interval and n in one cell."""
    if found.value is None:
        return f"– ({found.note})" if found.note else "–"
    return f"{_shown(found.value, form)}{ends(found.low, found.high, form)} n={found.problems}"


def ends(low: float | None, high: float | None, form: str) -> str:
    """Return an interval in brackets, or nothing where it is withheld."""
    if low is None:
        return ""
    return f" [{_shown(low, form)}, {'∞' if high is None else _shown(high, form)}]"


def _shown(value: float, form: str) -> str:
    """Return a number in a form; from a thousand on whole, where three digits would be written as 1.6e+03."""
    return format(value, form if abs(value) < 999.5 else form.replace(".3g", ",.0f"))


def withheld(found: Iterable[Estimate | Strength | BudgetLaw]) -> str:
    """Return why numbers stand without an interval, as sentences that a note ends with; nothing where all have one."""
    reasons = dict.fromkeys(each.note for each in found if each.note.startswith("interval"))
    return "".join(f" {reason.capitalize()}." for reason in reasons)
