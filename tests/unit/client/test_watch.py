"""Watching the events of a run over connections that break."""

from __future__ import annotations

import time
from typing import Any

import pytest
from httpx_sse import ServerSentEvent

from speciate.client import event_cursor
from speciate.domain import errors
from tests.unit.client.conftest import Ask
from tests.unit.client.fake_service import END, RUN, FakeService, event, hang_up, problem, run_json, say, stream

EVENTS = f"/v1/runs/{RUN}/events"


@pytest.fixture(autouse=True)
def _run(service: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    service.on("GET", f"/v1/runs/{RUN}", say(run_json()))
    monkeypatch.setattr(event_cursor, "_FIRST_DELAY_S", 0.001)
    monkeypatch.setattr(event_cursor, "_LONGEST_DELAY_S", 0.005)


def _watch(ask: Ask, after: int = 0) -> Any:
    events = ask(lambda client: client.runs.get(RUN), lambda run: run.watch(after=after))
    return [event.seq for event in events]


def test_events_until_the_end(ask: Ask, service: FakeService) -> None:
    whole = event(1) + b": still here\n\n" + event(2) + END + event(3)
    service.on("GET", EVENTS, stream(whole[:40], whole[40:41], whole[41:]))
    assert _watch(ask) == [1, 2]


@pytest.mark.parametrize("interface", ["ask", "ask_blocking"])
def test_broken_stream_continues_after_the_last_event(
    request: pytest.FixtureRequest, service: FakeService, interface: str
) -> None:
    service.on(
        "GET",
        EVENTS,
        stream(event(1), event(2), event(3)[:20], broken=True),
        hang_up,
        stream(event(2), event(3)),  # ends without saying so, and repeats an event
        problem(503, "unavailable", "PostgreSQL restarts."),
        stream(event(4), END),
    )
    assert _watch(request.getfixturevalue(interface)) == [1, 2, 3, 4]
    assert [request.headers["Last-Event-ID"] for request in service.asked(EVENTS)] == ["0", "2", "2", "3", "3"]


def test_watching_can_start_after_an_event(ask: Ask, service: FakeService) -> None:
    service.on("GET", EVENTS, stream(event(5), END))
    assert _watch(ask, after=4) == [5]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (hang_up, "disconnected"),
        (stream(), "without an end"),
        (stream(b"data: {}\n\n"), "cannot be read"),
        (stream(b"\xff\x00data: x\n\n: hello\n\n"), "without an end"),
        (stream(event(3)), "event 3 came after event 0"),
        (problem(503, "unavailable", "Valkey is away."), "Valkey is away"),
    ],
)
def test_gives_up_after_too_many_failures(ask: Ask, service: FakeService, answer: Any, reason: str) -> None:
    service.on("GET", EVENTS, answer)
    with pytest.raises(errors.UnavailableError, match=reason) as raised:
        _watch(ask)
    assert len(service.asked(EVENTS)) == event_cursor.MAX_ATTEMPTS
    assert str(RUN) in str(raised.value)


def test_progress_resets_the_failure_count(ask: Ask, service: FakeService) -> None:
    total = 2 * event_cursor.MAX_ATTEMPTS
    service.on("GET", EVENTS, *(stream(event(seq), broken=True) for seq in range(1, total)), stream(event(total), END))
    assert _watch(ask) == list(range(1, total + 1))


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (problem(404, "not-found", "there is no run."), errors.NotFoundError),
        (problem(401, "unauthorized", "no token."), errors.NotAllowedError),
        (say(b"<html>", kind="text/html"), errors.ConfigurationError),
    ],
)
def test_error_response_is_not_retried(
    ask: Ask, service: FakeService, answer: Any, kind: type[errors.SpeciateError]
) -> None:
    service.on("GET", EVENTS, answer)
    with pytest.raises(kind):
        _watch(ask)
    assert len(service.asked(EVENTS)) == 1


def test_delays_grow_and_respect_the_retry_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_cursor, "_FIRST_DELAY_S", 0.1)
    monkeypatch.setattr(event_cursor, "_LONGEST_DELAY_S", 5.0)
    follower = event_cursor.EventCursor(RUN)
    delays = [follower.delay_after(None) for _ in range(event_cursor.MAX_ATTEMPTS - 1)]
    assert delays == sorted(delays)
    assert delays[0] == 0.1
    assert delays[-1] == 5.0
    assert 50 < sum(delays) < 75
    patient = event_cursor.EventCursor(RUN)
    assert patient.accept(ServerSentEvent(retry=2000)) is None
    assert patient.delay_after(None) == 2.0


def test_idle_connection_is_not_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    follower = event_cursor.EventCursor(RUN)
    follower._attempts = event_cursor.MAX_ATTEMPTS - 1
    follower._connected_at = time.monotonic() - 60
    assert follower.delay_after(None) == event_cursor._FIRST_DELAY_S


@pytest.mark.parametrize("last", ["run.completed", "run.paused"])
def test_wait_ends_with_the_run_or_a_pause(ask: Ask, service: FakeService, last: str) -> None:
    tail = END if last == "run.completed" else event(3, "batch.evaluated")
    state = last.partition(".")[2]
    service.on("GET", f"/v1/runs/{RUN}", say(run_json()), say(run_json(state=state)))
    service.on("GET", EVENTS, stream(event(1), event(2, last), tail))
    assert ask(lambda client: client.runs.get(RUN), lambda run: run.wait()).state == state
    assert len(service.asked(EVENTS)) == 1


def test_wait_ignores_a_pause_that_is_over(ask: Ask, service: FakeService) -> None:
    service.on("GET", f"/v1/runs/{RUN}", say(run_json()), say(run_json()), say(run_json(state="completed")))
    service.on("GET", EVENTS, stream(event(1, "run.paused"), event(2, "run.resumed"), event(3, "run.completed"), END))
    assert ask(lambda client: client.runs.get(RUN), lambda run: run.wait()).state == "completed"
