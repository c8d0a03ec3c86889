"""The two addresses of an engine: what they answer and what they refuse."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from unittest.mock import Mock
from uuid import UUID

import httpx
import pytest

from speciate.domain.errors import ConflictError, PolicyUnavailableError, TooLargeError, UnavailableError
from speciate.domain.values import WORD
from speciate.engines.check import ToyService, toy_session
from speciate.engines.relay import Relay
from speciate.schema.engines import EngineEvaluation
from tests.support.http_server import wait_for

BUDGET = 8
MESSAGES = [{"role": "user", "content": "Improve it."}]


@pytest.fixture
def service() -> ToyService:
    return ToyService()


@pytest.fixture
def relay(service: ToyService) -> Iterator[Relay]:
    with Relay(service, toy_session("mine", service)) as relay:
        yield relay


@pytest.fixture
def http(relay: Relay) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=relay.variables["SPECIATE_EVALUATOR_URL"].removesuffix("/evaluate"), timeout=30) as http:
        yield http


def program(value: int) -> dict[str, str]:
    return {"program": f"def value():\n    return {value}\n"}


def test_an_evaluation_returns_score_rewards_and_what_is_left(http: httpx.Client) -> None:
    answer = http.post("/evaluate", json=program(7)).json()
    assert answer["score"] == 0.07
    assert answer["rewards"] == {"value": 0.07}
    assert answer["failure"] is None
    assert answer["evaluations_left"] == BUDGET - 1


def test_a_repeated_id_costs_one_evaluation(http: httpx.Client, service: ToyService) -> None:
    answers = [http.post("/evaluate", json={**program(7), "id": "first"}).json() for _ in range(3)]
    assert answers[0] == answers[1] == answers[2]
    assert len(service.programs) == 1


@pytest.mark.parametrize(
    "body",
    [
        {"score": 100.0},
        {"program": "x = 1", "score": 100.0},
        {"program": "x = 1", "rewards": {"value": 1.0}},
        {"program": 7},
        {"program": "x = 1", "id": 7},
        {},
    ],
)
def test_anything_but_a_program_is_refused_and_counted(
    http: httpx.Client, relay: Relay, service: ToyService, body: dict[str, object]
) -> None:
    assert http.post("/evaluate", json=body).status_code == 422
    assert relay.refused == {"score": 1}
    assert service.programs == []


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000])
def test_a_body_that_is_no_object_is_refused(http: httpx.Client, text: str) -> None:
    assert http.post("/v1/chat/completions", content=text).status_code == 422


def test_a_chat_is_answered_in_the_form_of_openai(http: httpx.Client) -> None:
    parts = [{"type": "text", "text": "Improve"}, {"type": "text", "text": "it."}]
    body = {"model": "any", "messages": [{"role": "user", "content": parts}], "n": 2, "temperature": 1.0}
    answer = http.post("/v1/chat/completions", json=body).json()
    assert answer["object"] == "chat.completion"
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    assert all("def value" in choice["message"]["content"] for choice in answer["choices"])
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] > 0


def test_a_stream_has_one_chunk_with_the_whole_answer(http: httpx.Client) -> None:
    body = {"messages": MESSAGES, "stream": True}
    reply = http.post("/v1/chat/completions", json=body)
    assert reply.headers["Content-Type"] == "text/event-stream"
    chunk, done = (line.removeprefix("data: ") for line in reply.text.split("\n\n") if line)
    assert "def value" in httpx.Response(200, text=chunk).json()["choices"][0]["delta"]["content"]
    assert done == "[DONE]"


@pytest.mark.parametrize(
    "body",
    [
        {"messages": "Improve it."},
        {"messages": []},
        {"messages": ["Improve it."]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        {"messages": MESSAGES, "n": 0},
        {"messages": MESSAGES, "n": 10**6},
    ],
)
def test_a_chat_that_cannot_be_passed_on_is_refused(http: httpx.Client, relay: Relay, body: dict[str, object]) -> None:
    assert http.post("/v1/chat/completions", json=body).status_code == 422
    assert relay.refused == {"request": 1}


def test_nothing_else_is_served(http: httpx.Client, relay: Relay) -> None:
    assert http.get("/v1/models").json()["data"][0]["id"] == "toy"
    for path in ("/v1/embeddings", "/v1/runs"):
        assert http.post(path, json={}).status_code == 404
    assert httpx.post(f"http://127.0.0.1:{relay.port}/evaluate", json=program(1)).status_code == 404


def test_after_the_budget_everything_is_refused(http: httpx.Client, relay: Relay, service: ToyService) -> None:
    codes = [http.post("/evaluate", json=program(value)).status_code for value in range(BUDGET + 3)]
    assert codes == [200] * BUDGET + [410] * 3
    refusal = http.post("/v1/chat/completions", json={"messages": MESSAGES})
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (410, "budget_spent")
    assert relay.refused == {"budget": 4}
    assert relay.spent_at is not None
    assert len(service.programs) == BUDGET
    assert service.asked == 0


def test_a_flood_is_refused_while_the_first_requests_wait(
    http: httpx.Client, relay: Relay, service: ToyService, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, waiting = threading.Event(), threading.Semaphore(0)

    def slowly(*_: object, **__: object) -> None:
        waiting.release()
        go_on.wait(30)
        raise PolicyUnavailableError("later")

    monkeypatch.setattr(service, "evaluate", slowly)
    with ThreadPoolExecutor(20) as pool, httpx.Client(base_url=http.base_url, timeout=60) as other:
        sent = [pool.submit(other.post, "/evaluate", json=program(1)) for _ in range(8)]
        for _ in sent:
            waiting.acquire()
        refused = [http.post("/evaluate", json=program(1)).status_code for _ in range(50)]
        go_on.set()
        answered = [each.result().status_code for each in sent]
    assert refused == [429] * 50
    assert answered == [503] * 8
    assert relay.refused == {"flood": 50, "service": 8}


def reachable(relay: Relay) -> bool:
    with suppress(httpx.TransportError):
        return httpx.get(f"{relay.variables['SPECIATE_MODEL_URL']}/models", trust_env=False).status_code == 200
    return False


def test_idle_connections_are_limited_for_each_engine(
    http: httpx.Client, service: ToyService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("speciate.engines.relay._MOST_CONNECTIONS", 3)
    with ExitStack() as stack:
        hostile = stack.enter_context(Relay(service, toy_session("mine", service)))
        idle = [stack.enter_context(socket.create_connection(("127.0.0.1", hostile.port), 10)) for _ in range(4)]
        assert idle[3].recv(1) == b"", "a connection beyond the limit stayed open"
        assert http.get("/v1/models").status_code == 200
        idle[0].close()
        wait_for(lambda: reachable(hostile))


def test_an_engine_may_wait_for_its_last_evaluations(
    http: httpx.Client, relay: Relay, service: ToyService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("speciate.engines.relay.GRACE_S", 0.0)
    begun, go_on = threading.Event(), threading.Event()
    evaluate = service.evaluate

    def slow_seventh(session: UUID, text: str, *, key: str) -> EngineEvaluation:
        result = evaluate(session, text, key=key)
        if text.endswith("7\n"):
            begun.set()
            go_on.wait(30)
        return result

    monkeypatch.setattr(service, "evaluate", slow_seventh)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(httpx.post, f"{http.base_url}evaluate", json=program(7), timeout=60)
        assert begun.wait(30)
        for value in range(10, 10 + BUDGET - 1):
            http.post("/evaluate", json=program(value))
        assert relay.spent_at is not None
        assert not relay.overdue
        go_on.set()
        slow.result()
    assert relay.overdue


def test_after_the_grace_even_the_seed_program_is_refused(
    http: httpx.Client, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("speciate.engines.relay.GRACE_S", 0.0)
    relay.spent_at = time.monotonic() - 1
    assert http.post("/evaluate", json=program(1)).status_code == 410


def test_a_body_that_is_too_long_is_refused(http: httpx.Client) -> None:
    assert http.post("/evaluate", content=b" " * ((16 << 20) + 1)).status_code == 413


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ConflictError("The lease is lost."), 409, "conflict"),
        (TooLargeError("The program is too long."), 413, "too_large"),
        (PolicyUnavailableError("No answer."), 503, "policy_unavailable"),
    ],
)
def test_what_the_service_refuses_is_passed_on(
    http: httpx.Client, service: ToyService, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, code: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(service, "evaluate", refuse)
    monkeypatch.setattr("speciate.engines.relay._CONFLICT_S", 0.1)
    reply = http.post("/evaluate", json=program(1))
    assert (reply.status_code, reply.json()["error"]["code"]) == (status, code)


def test_a_request_waits_for_a_service_that_restarts(
    http: httpx.Client, service: ToyService, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: list[str] = []
    evaluate = service.evaluate

    def restarting(session: object, text: str, *, key: str) -> object:
        keys.append(key)
        if len(keys) == 1:
            raise UnavailableError("The service restarts.")
        return evaluate(session, text, key=key)

    monkeypatch.setattr(service, "evaluate", restarting)
    assert http.post("/evaluate", json=program(7)).json()["score"] == 0.07
    assert keys[0] == keys[1]


@pytest.mark.parametrize("id_", ["é-1", "a\nb", "island 0, generation 3"])
def test_any_id_is_a_key_that_the_service_takes(
    http: httpx.Client, service: ToyService, monkeypatch: pytest.MonkeyPatch, id_: str
) -> None:
    evaluate = Mock(wraps=service.evaluate)
    monkeypatch.setattr(service, "evaluate", evaluate)
    assert http.post("/evaluate", json=program(7) | {"id": id_}).status_code == 200
    assert re.fullmatch(WORD, evaluate.call_args.kwargs["key"])


def test_a_body_in_chunks_is_named(http: httpx.Client, relay: Relay) -> None:
    reply = http.post("/evaluate", content=iter([json.dumps(program(7)).encode()]))
    assert (reply.status_code, reply.json()["error"]["code"]) == (411, "length_required")
    assert relay.refused["score"] == 0
