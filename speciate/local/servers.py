"""Locate PostgreSQL and Redis for commands that bypass the service, such as backup and replay."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from speciate.domain.errors import ConfigurationError
from speciate.service_address import ANNOUNCEMENT
from speciate.settings import Settings, load_settings

if TYPE_CHECKING:
    from speciate.storage.stores import Stores


def announce_servers(settings: Settings, url: str, *, embedded: bool) -> None:
    """Write the addresses of the servers and of the API to the data directory, readable by this user only."""
    from speciate.embedded.placement import write_private

    if settings.database_url is None or settings.redis_url is None:
        return
    addresses = {
        "database_url": (settings.database_direct_url or settings.database_url).get_secret_value(),
        "redis_url": settings.redis_url.get_secret_value(),
        "url": url,
        "embedded": embedded,
    }
    write_private(settings.data_dir / ANNOUNCEMENT, json.dumps(addresses))


def withdraw_servers(settings: Settings) -> None:
    (settings.data_dir / ANNOUNCEMENT).unlink(missing_ok=True)


@contextmanager
def connected_stores(data_dir: Path | None = None) -> Iterator[Stores]:
    """Open the stores of the configured servers, or of the ``speciate up`` that uses the data directory."""
    from speciate.storage.stores import open_stores

    stores = open_stores(with_server_addresses(load_settings(data_dir=data_dir)))
    try:
        yield stores
    finally:
        stores.close()


@contextmanager
def available_servers(data_dir: Path | None = None) -> Iterator[Settings]:
    """Return settings with server addresses, starting the embedded servers for this block if none is running."""
    settings = load_settings(data_dir=data_dir)
    if (settings.database_url is not None and settings.redis_url is not None) or _announced(settings) is not None:
        yield with_server_addresses(settings)
        return
    from speciate.embedded.servers import EmbeddedServers

    with EmbeddedServers(settings.data_dir) as servers:
        endpoints = servers.start()
        embedded = {"database_url": endpoints.database_url, "redis_url": endpoints.redis_url}
        # A configured server takes precedence over the embedded one.
        missing = {name: SecretStr(url) for name, url in embedded.items() if getattr(settings, name) is None}
        yield settings.model_copy(update=missing)


def with_server_addresses(settings: Settings) -> Settings:
    """Return settings that name the configured servers, or those of the ``speciate up`` on the data directory."""
    from speciate.embedded.secret_key import with_own_secret_key

    # A service with configured servers has its own key as well.
    settings = with_own_secret_key(settings, make=False)
    if settings.database_url is not None and settings.redis_url is not None:
        return settings
    if (addresses := _announced(settings)) is None:
        raise ConfigurationError(
            f"no service runs on {settings.data_dir}, and SPECIATE_DATABASE_URL and SPECIATE_REDIS_URL are not set.",
            remedy="Start `speciate up`, or set both variables.",
        )
    missing = [name for name in ("database_url", "redis_url") if getattr(settings, name) is None]
    return settings.model_copy(update={name: SecretStr(addresses[name]) for name in missing})


def _announced(settings: Settings) -> dict[str, Any] | None:
    """Return the addresses of the service that runs on the data directory; a killed one has left its file behind."""
    from speciate.embedded.errors import DataDirectoryBusyError
    from speciate.embedded.lock import shared_runtime_dir

    try:
        addresses: dict[str, Any] = json.loads((settings.data_dir / ANNOUNCEMENT).read_text())
        if addresses.get("embedded", True):
            shared_runtime_dir(settings.data_dir)
            return None
    except (OSError, ValueError):
        return None
    except DataDirectoryBusyError as error:
        return addresses if error.lasts else None
    return addresses
