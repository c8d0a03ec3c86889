"""Merge nested tables, as a registration that completes a preset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of both; those of the second win, key by key also inside of tables."""
    found = dict(first)
    for key, value in second.items():
        tables = isinstance(value, Mapping) and isinstance(found.get(key), Mapping)
        found[key] = merged(found[key], value) if tables else value
    return found
