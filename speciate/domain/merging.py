"""Merge nested tables, as a registration that completes a preset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of both; those of the second win, key by key also inside of tables."""
    values = dict(first)
    for key, value in second.items():
        tables = isinstance(value, Mapping) and isinstance(values.get(key), Mapping)
        values[key] = merged(values[key], value) if tables else value
    return values
