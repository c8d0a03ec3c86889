"""Reading ``docker-compose.yml`` as the tool does: variables put in, profiles left out."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[2]
FILE: Final = ROOT / "docker-compose.yml"
_VARIABLE: Final = re.compile(r"\$(?:(?P<dollar>\$)|\{(?P<name>\w+)(?::-(?P<default>[^}]*))?\})")


def compose(path: Path = FILE, environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return the file with its variables replaced."""

    def fill(match: re.Match[str]) -> str:
        if match["dollar"]:
            return "$"
        return environment.get(match["name"]) or match["default"] or ""

    def walk(value: Any) -> Any:
        match value:
            case str():
                return _VARIABLE.sub(fill, value)
            case dict():
                return {key: walk(inner) for key, inner in value.items()}
            case list():
                return [walk(inner) for inner in value]
            case _:
                return value

    read: dict[str, Any] = walk(yaml.safe_load(path.read_text()))
    return read


def default_services(file: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the services that no profile keeps back."""
    return {name: service for name, service in file["services"].items() if not service.get("profiles")}


def replicas(service: Mapping[str, Any]) -> int:
    """Return how many containers a service has."""
    return int(service.get("deploy", {}).get("replicas", 1))
