"""Form fields of the labels of a run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from speciate.domain.values import storable
from speciate.schema.runs import RunRecord

_OPENED: Final = "opened_"


def parse_tags(text: str) -> list[str]:
    return [tag for tag in re.split(r"[\s,]+", storable(text)) if tag]


def read_labels(values: Mapping[str, str]) -> dict[str, Any]:
    labels: dict[str, Any] = {name: values[name] for name in ("name", "note") if name in values}
    return labels | {"tags": parse_tags(values["tags"])} if "tags" in values else labels


def changed_labels(values: Mapping[str, str]) -> dict[str, str]:
    """Return the label fields that differ from the values with which the form was opened.

    Another person may have changed the other ones since.
    """
    return {name: value for name, value in values.items() if value != values.get(_OPENED + name)}


def labels_from_run(run: RunRecord) -> dict[str, str]:
    """Return a run's labels as form values, each also as the value with which the form is opened."""
    values = {"name": run.name, "tags": " ".join(run.tags), "note": run.note}
    return values | {_OPENED + name: value for name, value in values.items()}
