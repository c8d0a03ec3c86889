"""A running service for the commands."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from speciate.cli.local_service import LocalService
from speciate.settings import Settings


@pytest.fixture(scope="module")
def stack() -> Iterator[LocalService]:
    """Return a running service."""
    home = Path(tempfile.mkdtemp(prefix="speciate-test-"))
    home.chmod(0o711)
    try:
        with LocalService(Settings(data_dir=home / "data", port=0, evaluate_slots=2, generate_slots=2)) as stack:
            for _ in stack.start():
                pass
            yield stack
    finally:
        shutil.rmtree(home)


@pytest.fixture(scope="module")
def url(stack: LocalService) -> str:
    return stack.settings.base_url
