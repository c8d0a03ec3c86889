"""Suggest the names nearest to a mistyped one."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

_LONGEST: Final = 100


def did_you_mean(name: str, names: Iterable[str]) -> str | None:
    """Return a question with the one or two known names nearest to an unknown one, or None if none is near."""
    near = nearest(name, names)
    return f"Did you mean {' or '.join(map(repr, near))}?" if near else None


def nearest(name: str, names: Iterable[str]) -> list[str]:
    """Return the one or two known names nearest to an unknown one, ignoring its case."""
    return get_close_matches(name.lower(), list(names), n=2) if len(name) <= _LONGEST else []
