"""Tracing imports nothing while it is off, and reports missing packages when it is on."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from uuid import uuid4

import pytest

from speciate.domain.errors import ConfigurationError
from speciate.telemetry import tracing

_OFF = """
import sys
import service.app, workers.metrics, speciate.runs.executor
from uuid import uuid4
from speciate.telemetry import tracing
tracing.configure(None, "x")
with tracing.span("a", uuid4()), tracing.span("b"):
    tracing.record_request("c", 0.1, {}, uuid4())
tracing.shutdown()
# Libraries may import its programming interface where it is installed; what sends anything is ours to import.
ours = ("opentelemetry.sdk.trace", "opentelemetry.exporter")
assert not [name for name in sys.modules if name.startswith(ours)], "imported"
"""


def test_nothing_is_imported_while_tracing_is_off() -> None:
    result = subprocess.run([sys.executable, "-c", _OFF], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_missing_packages_are_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match="OpenTelemetry is not installed") as refused:
        tracing.configure("http://127.0.0.1:4318", "x")
    assert "telemetry" in str(refused.value.remedy)
    with tracing.span("a", uuid4()):
        pass  # still off
