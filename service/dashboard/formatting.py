"""Format numbers, durations, sizes and times for people."""

import math
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final
from uuid import UUID

MISSING: Final = "–"
_SPANS: Final = ((86400.0, "d", 3600.0, "h"), (3600.0, "h", 60.0, "min"), (60.0, "min", 1.0, "s"))


def number(value: float | None) -> str:
    """Format a number: integers with separators, others with four significant digits."""
    if value is None or math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if float(value).is_integer() and abs(value) < 1e15:
        text = f"{int(value):,}"
    elif 1e-4 <= abs(value) < 1e6:
        text = f"{value:,.4g}" if abs(value) < 9999.5 else f"{value:,.1f}"
    else:
        text = f"{value:.3g}"
    return text.replace("-", "−").replace(",", "\u202f")


def percent(share: float | None) -> str:
    if share is None or math.isnan(share):
        return MISSING
    digits = 0 if share in {0, 1} or 0.1 <= share <= 0.9 else 1
    return f"{100 * share:.{digits}f}\u202f%"


def dollars(amount: float) -> str:
    """Format an amount of US dollars; amounts below a cent with two significant digits."""
    return f"${amount:,.2f}".replace(",", "\u202f") if amount >= 0.01 or amount == 0 else f"${amount:.2g}"


def duration(seconds: float | None) -> str:
    """Format a duration with at most two units."""
    if seconds is None:
        return MISSING
    for size, unit, small, small_unit in _SPANS:
        if seconds >= size:
            whole, rest = divmod(round(seconds), int(size))
            more = rest // int(small)
            return f"{whole}\u202f{unit} {more}\u202f{small_unit}" if more else f"{whole}\u202f{unit}"
    return f"{seconds:.1f}\u202fs" if seconds >= 1 else f"{1000 * seconds:.0f}\u202fms"


def size(count: float | None) -> str:
    if count is None:
        return MISSING
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f}\u202f{unit}" if unit == "B" or count >= 10 else f"{count:.1f}\u202f{unit}"
        count /= 1024
    return f"{count:.1f}\u202fGiB"


def day(value: datetime | None) -> str:
    """Format a UTC time to the minute, without the year."""
    return MISSING if value is None else value.strftime("%d %b %H:%M").lstrip("0")


def timestamp(value: datetime | None) -> str:
    return MISSING if value is None else value.strftime("%Y-%m-%d %H:%M:%S UTC")


def short(value: UUID | str, length: int = 8) -> str:
    """Return the end of an id; the beginning of a UUIDv7 is a clock and similar for all."""
    return str(value)[-length:]


def clip(value: object, length: int = 120) -> str:
    text = str(value)
    return text if len(text) <= length else text[: length - 1] + "…"


FILTERS: Final[dict[str, Callable[..., Any]]] = {
    each.__name__: each for each in (number, percent, dollars, duration, size, day, timestamp, short, clip)
}
