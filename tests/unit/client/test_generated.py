"""The blocking client is generated from the asyncio client and has the same methods."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from speciate.client import aio

ROOT = Path(__file__).parents[3]
MODULES = sorted(path.stem for path in Path(str(aio.__file__)).parent.glob("[!_]*.py"))


def test_generated_client_is_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "scripts/generate_client.py"), "--check"]
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize("name", MODULES)
def test_both_clients_have_the_same_methods(name: str) -> None:
    module = importlib.import_module(f"speciate.client.aio.{name}")
    sync = importlib.import_module(f"speciate.client.sync.{name}")
    for _, kind in inspect.getmembers(module, inspect.isclass):
        if kind.__module__ == module.__name__:
            other = getattr(sync, kind.__name__.removeprefix("Async"))
            for method in (each for each in vars(kind) if not each.startswith("_") and callable(getattr(kind, each))):
                here, there = getattr(kind, method), getattr(other, _sync_name(method))
                assert [*inspect.signature(here).parameters] == [*inspect.signature(there).parameters]
                assert inspect.getdoc(here) == inspect.getdoc(there)


def _sync_name(method: str) -> str:
    return method.removeprefix("a") if method == "aiter_text" else method
