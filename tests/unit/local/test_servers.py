"""Which servers a command uses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from speciate.local.servers import ANNOUNCEMENT, available_servers


def test_a_configured_database_wins_over_that_of_a_running_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = {
        "database_url": "postgresql://a/LOCAL",
        "redis_url": "redis://a/0",
        "url": "http://a",
        "embedded": False,
    }
    (tmp_path / ANNOUNCEMENT).write_text(json.dumps(addresses))
    monkeypatch.setenv("SPECIATE_DATABASE_URL", "postgresql://b/PROD")
    monkeypatch.delenv("SPECIATE_REDIS_URL", raising=False)
    with available_servers(tmp_path) as settings:
        assert settings.database_url is not None
        assert settings.database_url.get_secret_value().endswith("/PROD")
