"""The fields of forms that say what a run is called."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from speciate.domain.values import storable
from speciate.ports.records.runs import RunRecord


def tags_in(text: str) -> list[str]:
    """Return the tags that a text names, with blanks or commas between them."""
    return [tag for tag in re.split(r"[\s,]+", storable(text)) if tag]


def labels_of(given: Mapping[str, str]) -> dict[str, Any]:
    """Return what the fields hold, as ``Labels`` or ``Relabelling`` take it; a field that is not there is left out."""
    found: dict[str, Any] = {name: given[name] for name in ("name", "note") if name in given}
    return {**found, "tags": tags_in(given["tags"])} if "tags" in given else found


def labels_like(run: RunRecord) -> dict[str, str]:
    """Return what the fields hold for a run as it is."""
    return {"name": run.name, "tags": " ".join(run.tags), "note": run.note}
