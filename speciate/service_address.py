"""Find the service of a data directory, which writes its address there."""

import json
import os
import socket
from typing import Final
from urllib.parse import urlsplit

from speciate.settings import Settings, default_data_dir

ANNOUNCEMENT: Final = "running.json"
"""File of the data directory with the addresses of a running service."""


def has_server_announcement(settings: Settings) -> bool:
    """Return True if a service runs on this data directory, or was killed and its processes may still be ending."""
    return os.path.exists(settings.data_dir / ANNOUNCEMENT)  # noqa: PTH110 - False in a folder of another user


def announced_url(settings: Settings) -> str | None:
    """Return the address of the API that runs on this data directory, or None if none is announced."""
    try:
        url = json.loads((settings.data_dir / ANNOUNCEMENT).read_text()).get("url")
    except (OSError, ValueError):
        return None
    return None if url is None else str(url)


def service_url(settings: Settings) -> str | None:
    """Return the address of the service that the settings name or that runs on their data directory, or None.

    One at the default address counts if the data directory is the default one.
    """
    if settings.url is not None:
        return settings.base_url
    if (announced := announced_url(settings)) is not None and _listens(announced):
        return announced
    return settings.base_url if settings.data_dir == default_data_dir() and _listens(settings.base_url) else None


def _listens(url: str) -> bool:
    address = urlsplit(url)
    try:
        with socket.create_connection((address.hostname, address.port or 80), timeout=2):
            return True
    except OSError:
        return False
