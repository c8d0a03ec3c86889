"""Sections of a report and the formatting of their cells."""

from collections.abc import Iterable
from dataclasses import dataclass

from speciate.domain.learning import ROUNDING
from speciate.tournaments.report.measures import Estimate, ReportModel


@dataclass(frozen=True, slots=True)
class Section:
    key: str
    """Short name that figures refer to."""
    title: str
    note: str
    """Explanation before the table: test, interval, and what is withheld and why."""
    columns: tuple[str, ...]
    """Headings; a leading ``>`` aligns the column to the right."""
    rows: tuple[tuple[str, ...], ...]
    """Cells; untrusted text."""


def estimate(measured: Estimate, form: str = ".3g") -> str:
    if measured.value is None:
        return f"– ({measured.note})" if measured.note else "–"
    return f"{shown(measured.value, form)}{ends(measured.low, measured.high, form)} n={measured.problems}"


def ends(low: float | None, high: float | None, form: str) -> str:
    return "" if low is None else f" [{shown(low, form)}, {'∞' if high is None else shown(high, form)}]"


def p_value(value: float | None, *, exact: bool = False) -> str:
    return "–" if value is None else f"{value:.2g}{' exact' if exact else ''}"


def shown(value: float, form: str) -> str:
    """Format a number; from 1000 on without 1.6e+03, and rounding errors as 0."""
    value = value if abs(value) > ROUNDING else 0.0
    return format(value, form if abs(value) < 999.5 else form.replace(".3g", ",.0f"))


def withheld(measures: Iterable[ReportModel]) -> str:
    """Return the reasons for missing intervals of measures, or of their fields, as sentences to append to a note."""
    notes = (getattr(each, "note", "") for measure in measures for each in (measure, *dict(measure).values()))
    reasons = dict.fromkeys(note for note in notes if note.startswith("interval"))
    return "".join(f" {reason.capitalize()}." for reason in reasons)
