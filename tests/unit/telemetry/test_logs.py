"""Logs: one line per event, with context ids and without secrets."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import pytest
from pydantic import SecretStr

from speciate import telemetry
from speciate.settings import Settings
from speciate.telemetry import logs

_log = logging.getLogger("speciate.test")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield io.StringIO()
    root.handlers, root.level = before, level


def _fail(error: str, message: str) -> None:
    try:
        int(error)
    except ValueError:
        _log.exception(message)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_ids_come_from_the_block_and_from_additions(stream: io.StringIO) -> None:
    logs.configure(form="json", level="info", stream=stream)
    _log.info("before")
    with logs.log_context(run="r1"):
        with logs.log_context(work="w1"):
            _log.info("inside")
        with ThreadPoolExecutor(1) as pool:
            pool.submit(copy_context().run, lambda: logs.add_log_context(candidates="1-2")).result()
        _log.info("after")
    logs.add_log_context(run="ignored")
    _log.info("outside")
    ids = [{k: v for k, v in line.items() if k in {"run", "work", "candidates"}} for line in lines(stream)]
    assert ids == [{}, {"run": "r1", "work": "w1"}, {"run": "r1", "candidates": "1-2"}, {}]


def test_an_event_is_always_one_line(stream: io.StringIO) -> None:
    logs.configure(form="json", level="info", stream=stream)
    _log.info("a\nb %s", 'c\u2028\x1b[31m"')
    _fail("broken", "it failed")
    first, second = lines(stream)
    assert first["message"] == 'a\nb c\u2028\x1b[31m"'
    assert (second["level"], second["logger"]) == ("error", "speciate.test")
    assert "ValueError" in second["error"]


@pytest.mark.parametrize("form", ["json", "text"])
def test_no_line_holds_a_secret(stream: io.StringIO, form: str) -> None:
    secrets = ['postgresql://me:pass"word@host/x', 'pass"word', "ab"]
    logs.configure(form=form, level="info", secrets=secrets, stream=stream)
    with logs.log_context(run="cab"):
        _log.info('cannot reach postgresql://me:pass"word@host/x')
        _fail('pass"word', 'it is pass"word')
    assert "word" not in stream.getvalue()
    assert "********" in stream.getvalue()
    assert "cab" in stream.getvalue()  # too short to be masked


def test_level_and_format_come_from_the_settings(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}
    monkeypatch.setattr(telemetry.logs, "configure", lambda **given: seen.update(given))
    monkeypatch.setattr(logging, "captureWarnings", lambda _: None)
    url = SecretStr("postgresql://me:p%40ssw0rd@host/x")
    telemetry.configure_telemetry(Settings(database_url=url, token=SecretStr("[odd//token"), log_format="json"), "x")
    assert (seen["form"], seen["level"]) == ("json", "warning")
    assert set(seen["secrets"]) == {url.get_secret_value(), "p%40ssw0rd", "p@ssw0rd", "[odd//token"}


def test_configuring_twice_writes_once(stream: io.StringIO) -> None:
    logs.configure(form="text", level="info", stream=io.StringIO())
    logs.configure(form="text", level="warning", stream=stream)
    _log.info("unheard")
    with logs.log_context(run="r1"):
        _log.warning("heard")
    assert stream.getvalue().splitlines() == [stream.getvalue().strip()]
    assert stream.getvalue().endswith("WARNING speciate.test: heard run=r1\n")
