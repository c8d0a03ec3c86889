"""Events of a run over HTTP: no loss, no repetition, no leak."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from uuid import UUID

import httpx
import pytest
from pydantic import SecretStr

from service.run_events import EventHub
from speciate.client import Client
from speciate.settings import Settings
from speciate.storage.database import StorageFullError
from speciate.storage.work.store import PostgresWorkStore
from tests.integration.service.conftest import Api, Lab, refused
from tests.support.http_server import wait_for
from tests.support.runs import ToyEvaluator

pytestmark = pytest.mark.servers

STREAM = {"Accept": "text/event-stream"}


class Listener:
    """A viewer in a thread; ``events`` grows while it listens."""

    def __init__(self, api: Api, run_id: UUID, **headers: str) -> None:
        self.events: list[dict[str, Any]] = []
        self.comments = 0
        self.ended = False
        self._url = f"{api.http.base_url}/v1/runs/{run_id}/events"
        self._headers = STREAM | headers
        self._leave = threading.Event()
        self.thread = threading.Thread(target=self._listen)
        self.thread.start()

    @property
    def seqs(self) -> list[int]:
        return [event["seq"] for event in self.events]

    def leave(self) -> None:
        self._leave.set()
        self.thread.join(20)
        assert not self.thread.is_alive()

    def _listen(self) -> None:
        with httpx.stream("GET", self._url, headers=self._headers, timeout=20, trust_env=False) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            for frame in self._frames(answer):
                if frame.get("event") == "end":
                    self.ended = True
                elif "data" in frame:
                    event = json.loads(frame["data"])
                    assert (frame["id"], frame["event"]) == (str(event["seq"]), event["kind"])
                    self.events.append(event)

    def _frames(self, answer: httpx.Response) -> Iterator[dict[str, str]]:
        rest = ""
        for text in answer.iter_text():
            *frames, rest = (rest + text).split("\n\n")
            for frame in frames:
                self.comments += frame.startswith(":")
                yield dict(line.split(": ", 1) for line in frame.split("\n") if not line.startswith(":"))
            # Heartbeats are frequent here, so this does not wait long.
            if self._leave.is_set():
                return


@contextmanager
def listening(api: Api, run_id: UUID, **headers: str) -> Iterator[Listener]:
    listener = Listener(api, run_id, **headers)
    try:
        yield listener
    finally:
        listener.leave()


@pytest.fixture
def talkative(lab: Lab) -> Lab:
    """A lab whose streams break their silence at once."""
    lab.api.hub.heartbeat_s = 0.02
    return lab


def test_live_events_until_the_run_ends(talkative: Lab) -> None:
    run_id = talkative.start(13)
    with listening(talkative.api, run_id) as first, listening(talkative.api, run_id) as second:
        wait_for(lambda: first.seqs and second.seqs)
        assert len(talkative.api.hub._channels) == 1
        while talkative.work(units=1):
            stored = talkative.stores.runs.get(run_id).last_event
            wait_for(lambda last=stored: first.seqs[-1] == second.seqs[-1] == last)
        wait_for(lambda: first.ended and second.ended)
    run = talkative.stores.runs.get(run_id)
    assert run.state.ended
    assert first.seqs == second.seqs == list(range(1, run.last_event + 1))
    assert [event["kind"] for event in first.events][:2] == ["run.created", "run.started"]
    assert first.events[-1]["kind"] == "run.completed"
    wait_for(lambda: not (talkative.api.hub.streams or talkative.api.hub._channels))


def test_stream_resumes_after_last_event_id(talkative: Lab) -> None:
    run_id = talkative.start(21)
    talkative.work(units=3)
    with listening(talkative.api, run_id) as before:
        wait_for(lambda: len(before.seqs) >= 4)
    talkative.work(units=2)
    with listening(talkative.api, run_id, **{"Last-Event-ID": str(before.seqs[-1])}) as after:
        talkative.work()
        wait_for(lambda: after.ended)
    last = talkative.stores.runs.get(run_id).last_event
    assert before.seqs + after.seqs == list(range(1, last + 1))


def test_stream_of_an_ended_run(talkative: Lab) -> None:
    run_id = talkative.start(9)
    talkative.work()
    last = talkative.stores.runs.get(run_id).last_event
    with listening(talkative.api, run_id) as listener:
        wait_for(lambda: listener.ended)
    assert listener.seqs == list(range(1, last + 1))
    with listening(talkative.api, run_id, **{"Last-Event-ID": str(last)}) as listener:
        wait_for(lambda: listener.ended)
    assert listener.seqs == []
    assert not talkative.api.hub._channels


def test_streams_work_without_redis(settings: Settings, lab: Lab, serve: Callable[..., Api]) -> None:
    deaf = serve(settings.model_copy(update={"redis_url": SecretStr("redis://127.0.0.1:1/0")}))
    deaf.hub.heartbeat_s = deaf.hub.poll_s = 0.02
    run_id = lab.start(9)
    with listening(deaf, run_id) as listener:
        lab.work()
        wait_for(lambda: listener.ended)
    assert listener.seqs == list(range(1, lab.stores.runs.get(run_id).last_event + 1))


def test_redis_wakes_streams_before_the_poll(talkative: Lab) -> None:
    talkative.api.hub.poll_s = 3600
    run_id = talkative.start(9)
    with listening(talkative.api, run_id) as listener:
        wait_for(lambda: listener.seqs)
        talkative.work()
        wait_for(lambda: listener.ended)


def test_disconnected_viewers_are_removed(talkative: Lab) -> None:
    run_id = talkative.start()
    with ExitStack() as stack:
        listeners = [stack.enter_context(listening(talkative.api, run_id)) for _ in range(10)]
        wait_for(lambda: all(listener.seqs for listener in listeners))
        assert (talkative.api.hub.streams, len(talkative.api.hub._channels)) == (10, 1)
    wait_for(lambda: not (talkative.api.hub.streams or talkative.api.hub._channels))


def test_heartbeat_during_silence(talkative: Lab) -> None:
    with listening(talkative.api, talkative.start()) as listener:
        wait_for(lambda: listener.comments >= 3)


def test_too_many_streams_are_rejected(talkative: Lab) -> None:
    run_id = talkative.start()
    talkative.api.hub.max_streams = 2
    with listening(talkative.api, run_id) as first, listening(talkative.api, run_id) as second:
        wait_for(lambda: first.seqs and second.seqs)
        answer = talkative.api.get(f"/v1/runs/{run_id}/events", headers=STREAM)
        assert "2 open event streams" in refused(answer, 503, "unavailable")["detail"]
        assert answer.headers["retry-after"]
    wait_for(lambda: talkative.api.hub.streams == 0)


def test_invalid_positions_are_rejected(lab: Lab) -> None:
    path = f"/v1/runs/{lab.start()}/events"
    for position in ("x", "-1", "1.5", "99999", "9" * 30, "٣"):
        headers = {**STREAM, "Last-Event-ID": position.encode()}
        refused(lab.api.get(path, headers=headers), 422, "invalid-input")
    for query in ({"after": -1}, {"after": "x"}, {"after": 99999}):
        refused(lab.api.get(path, params=query, headers=STREAM), 422, "invalid-input")
    assert lab.api.hub.streams == 0


def test_event_pages_match_the_stream(lab: Lab) -> None:
    run_id = lab.start(13)
    lab.work()
    path = f"/v1/runs/{run_id}/events"
    page = lab.api.get(path, params={"limit": 3}).json()
    events = page["items"]
    while page["next_cursor"]:
        page = lab.api.get(path, params={"limit": 3, "cursor": page["next_cursor"]}).json()
        events += page["items"]
    assert [event["seq"] for event in events] == list(range(1, lab.stores.runs.get(run_id).last_event + 1))
    assert lab.api.get(path, params={"after": 4}).json()["items"] == events[4:]


def test_shutdown_ends_streams_without_end_event(talkative: Lab, settings: Settings) -> None:
    run_id = talkative.start()
    with listening(talkative.api, run_id) as listener:
        wait_for(lambda: listener.seqs)
        hub: EventHub = talkative.api.hub
        hub.close_streams()
        wait_for(lambda: not listener.thread.is_alive())
    assert not listener.ended
    refused(talkative.api.get(f"/v1/runs/{run_id}/events", headers=STREAM), 503, "unavailable")


def test_client_watches_a_run_to_its_end(lab: Lab) -> None:
    with Client(url=str(lab.api.http.base_url)) as client:
        run = client.runs.create("toy", "scripted", budget=40, lanes=1, batch=4)
        worker = threading.Thread(target=lab.work)
        worker.start()
        seqs = [event.seq for event in run.watch()]
        worker.join()
        assert seqs == list(range(1, run.refresh().last_event + 1))
        assert [candidate.number for candidate in run.export()] == list(range(1, 41))
        assert {unlock.target for unlock in run.unlocks()} == {"half", "both"}
        assert client.workers() == ()
        assert len(tuple(client.strategies())) >= 2
        assert client.ready()["status"] == "ready"
        assert client.policies.ping("scripted")["policy"] == "scripted"


def test_waiting_ends_when_a_full_disk_pauses_the_run(talkative: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StorageFullError("PostgreSQL's disk is full; nothing was written.")

    monkeypatch.setattr(PostgresWorkStore, "_release", fail)
    monkeypatch.setattr(ToyEvaluator, "evaluate", fail)
    run_id, states = talkative.start(9), []
    with Client(str(talkative.api.http.base_url)) as client:
        run = client.runs.get(str(run_id))
        waiting = threading.Thread(target=lambda: states.append(run.wait().state.value), daemon=True)
        waiting.start()
        wait_for(lambda: talkative.api.hub.streams)
        talkative.work(1)
        waiting.join(5)
    assert states == ["paused"]
