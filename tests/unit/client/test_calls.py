"""Requests and responses with both clients."""

from __future__ import annotations

import json
import math
import socket
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import httpx
import pytest

from speciate.client import Client, connection
from speciate.domain import errors
from speciate.domain.errors import FieldError, InvalidInputError
from speciate.domain.run import RunState
from speciate.egress import transport
from speciate.schema.evaluations import LeasedEvaluation
from tests.unit.client.conftest import Ask
from tests.unit.client.fake_service import (
    RUN,
    FakeService,
    Handler,
    candidate_json,
    hang_up,
    page,
    problem,
    problem_json,
    run_json,
    say,
    stream,
)


def test_lists_are_read_page_by_page(ask: Ask, service: FakeService) -> None:
    first, last = run_json(), run_json(id=str(UUID(int=8)))
    service.on("GET", "/v1/runs", page(first, cursor="next one"), page(last))
    found = ask(lambda client: client.runs.list(state=RunState.RUNNING))
    assert [run.id for run in found] == [RUN, UUID(int=8)]
    assert [request.query.get("cursor") for request in service.requests] == [None, ["next one"]]
    assert all(request.query["state"] == ["running"] for request in service.requests)


def test_several_answers_are_proposed_with_the_tokens_of_their_prompts(ask: Ask, service: FakeService) -> None:
    service.on("GET", f"/v1/runs/{RUN}", say(run_json()))
    service.on("POST", f"/v1/runs/{RUN}/proposals", say({"items": []}))
    ask(lambda client: client.runs.get(RUN), lambda run: run.propose_all([{"completion": "x", "ask": RUN}]))
    assert service.requests[-1].body["proposals"] == [{"completion": "x", "ask": str(RUN)}]


def test_candidates_are_sorted_and_filtered(ask: Ask, service: FakeService) -> None:
    service.on("GET", f"/v1/runs/{RUN}", say(run_json()))
    service.on("GET", f"/v1/runs/{RUN}/candidates", page(candidate_json(3)))
    wanted = {
        "sort": "radius",
        "rule": "radius > 1 and radius < 2",
        "role": "mutate",
        "policy": "qwen",
        "target": "any",
    }
    for given, asked in (({}, {}), (wanted | {"elite": True}, wanted | {"elite": "true"})):
        found = ask(lambda client: client.runs.get(RUN), lambda run, given=given: run.candidates(**given))
        assert [candidate.number for candidate in found] == [3]
        query = {name: values[0] for name, values in service.requests[-1].query.items()}
        assert query == {"limit": "100", **asked}


def test_run_creation_sends_an_idempotency_key(ask: Ask, service: FakeService) -> None:
    service.on("POST", "/v1/runs", say(run_json(), 202))
    for _ in range(2):
        run = ask(lambda client: client.runs.create("packing", "mutator@3", budget=100, seed=5, strategy="best_of_n"))
        assert run.id == RUN
    ask(lambda client: client.runs.create("packing", "m", budget={"seconds": 2.5}, idempotency_key="mine"))
    one, two, mine = service.asked("/v1/runs")
    assert one.body["problem"] == "packing"
    assert one.body["policy"] == "mutator@3"
    assert (one.body["seed"], one.body["strategy"]) == (5, "best_of_n")
    assert one.body["budget"] == {"evaluations": 100, "tokens": None, "seconds": None, "dollars": None}
    assert one.headers["Idempotency-Key"] != two.headers["Idempotency-Key"]
    assert mine.headers["Idempotency-Key"] == "mine"


def test_ensembles_are_sent_with_weights(ask: Ask, service: FakeService) -> None:
    service.on("POST", "/v1/runs", say(run_json(), 202))
    several = {"big": 1, "small": 3}
    ask(lambda client: client.runs.create("packing", several, budget=5, mutator={"m": 1}, policy_choice="ucb"))
    body = service.requests[0].body
    assert (body["policy"], body["mutator"], body["policy_choice"]) == (several, {"m": 1}, "ucb")


@pytest.mark.parametrize(
    ("values", "where"),
    [
        ({"budget": 0}, "budget.evaluations"),
        ({"budget": {}}, "budget"),
        ({"budget": {"evaluations": True}}, "budget.evaluations"),
        ({"budget": {"seconds": math.nan}}, "budget.seconds"),
        ({"budget": {"second": 3}}, "budget.second"),
        ({"budget": 5, "lanes": 0}, "lanes"),
        ({"budget": 5, "islands": 3}, "islands"),
    ],
)
def test_invalid_run_is_rejected_before_sending(
    ask: Ask, service: FakeService, values: dict[str, Any], where: str
) -> None:
    with pytest.raises(InvalidInputError) as raised:
        ask(lambda client: client.runs.create("packing", "m", **values))
    assert where in [field_error.where for field_error in raised.value.field_errors]
    assert service.requests == []


@pytest.mark.parametrize("value", [math.inf, "\ud800"])
def test_values_that_json_lacks_are_rejected(ask: Ask, service: FakeService, value: Any) -> None:
    with pytest.raises(InvalidInputError, match="expected finite numbers and Unicode"):
        ask(lambda client: client.policies.add({"slug": "m", "options": {"x": value}}))
    assert service.requests == []


@pytest.mark.parametrize(
    ("status", "slug", "kind"),
    [
        (404, "not-found", errors.NotFoundError),
        (409, "conflict", errors.ConflictError),
        (412, "precondition-failed", errors.PreconditionFailedError),
        (413, "too-large", errors.TooLargeError),
        (401, "unauthorized", errors.NotAllowedError),
        (503, "policy-unavailable", errors.PolicyUnavailableError),
        (503, "storage-full", errors.UnavailableError),
        (500, "internal", errors.SpeciateError),
        (403, "forbidden", errors.ForbiddenError),
        (403, "quota-exceeded", errors.QuotaExceededError),
        (422, "something-new", InvalidInputError),
    ],
)
def test_errors_have_the_class_and_message_of_the_service(
    ask: Ask, service: FakeService, status: int, slug: str, kind: type[errors.SpeciateError]
) -> None:
    service.on("GET", "/v1/problems/x", problem(status, slug, "Something is wrong. Mend it."))
    with pytest.raises(kind) as raised:
        ask(lambda client: client.problems.get("x"))
    assert type(raised.value) is kind
    assert str(raised.value) == "Something is wrong. Mend it."


_PLACED: dict[str, Any] = {
    "message": "m",
    "where": "targets.0.rule",
    "label": "target 'good', rule",
    "file": "a",
    "line": 1,
    "column": 3,
}


@pytest.mark.parametrize(
    ("sent", "read"), [([_PLACED], (FieldError(**_PLACED),)), ([{"message": "m", "line": "x"}, "nonsense"], ())]
)
def test_field_errors_keep_their_places(
    ask: Ask, service: FakeService, sent: list[Any], read: tuple[FieldError, ...]
) -> None:
    service.on("POST", "/v1/problems", problem(422, "invalid-rule", "It is not valid.", errors=sent))
    with pytest.raises(InvalidInputError) as raised:
        ask(lambda client: client.problems.add({"slug": "x"}))
    assert raised.value.field_errors == read


@pytest.mark.parametrize(
    "answer",
    [
        say(b"<html>hello", kind="text/html"),
        say({"id": "no"}),
        say(b"[1, 2"),
        say(b""),
        say({"title": "elsewhere"}, 404),
        say(b"", 302),
    ],
)
def test_response_of_another_server_is_recognized(ask: Ask, service: FakeService, answer: Any) -> None:
    service.on("GET", "/v1/problems/x", answer)
    with pytest.raises(errors.ConfigurationError, match="SPECIATE_URL"):
        ask(lambda client: client.problems.get("x"))


def test_failing_gateway_is_unavailable(ask: Ask, service: FakeService) -> None:
    service.on("GET", "/v1/problems/x", say(b"Bad Gateway", 502, "text/plain"))
    with pytest.raises(errors.UnavailableError, match="502"):
        ask(lambda client: client.problems.get("x"))


def test_repeatable_requests_are_retried(ask: Ask, service: FakeService) -> None:
    service.on("GET", f"/v1/runs/{RUN}", hang_up, say(run_json()))
    assert ask(lambda client: client.runs.get(RUN)).id == RUN
    service.on("POST", "/v1/runs", hang_up, say(run_json(), 202))
    ask(lambda client: client.runs.create("p", "m", budget=1))
    first, second = service.asked("/v1/runs")
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"]


def test_retries_are_limited_to_repeatable_requests(ask: Ask, service: FakeService) -> None:
    service.on("GET", f"/v1/runs/{RUN}", hang_up)
    with pytest.raises(errors.UnavailableError):
        ask(lambda client: client.runs.get(RUN))
    assert len(service.requests) == 3
    service.on("POST", "/v1/problem-sets", hang_up)
    with pytest.raises(errors.UnavailableError):
        ask(lambda client: client.problem_sets.create("s", ["p"]))
    assert len(service.asked("/v1/problem-sets")) == 1


def test_a_hint_whose_answer_is_lost_is_not_given_twice(ask: Ask, service: FakeService) -> None:
    service.on("GET", f"/v1/runs/{RUN}", say(run_json()))
    service.on("POST", f"/v1/runs/{RUN}/guidance", hang_up)
    with pytest.raises(errors.UnavailableError):
        ask(lambda client: client.runs.get(RUN), lambda run: run.hint("Try it."))
    assert len(service.asked(f"/v1/runs/{RUN}/guidance")) == 1


def test_the_named_authority_counts_for_this_machine_too(monkeypatch: pytest.MonkeyPatch) -> None:
    transport.tls_context.cache_clear()
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere.pem")
    with pytest.raises(errors.ConfigurationError, match="SSL_CERT_FILE"):
        connection.Connection("https://localhost", None, None, None).options()


def test_a_refused_connection() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        with (
            Client(f"http://127.0.0.1:{held.getsockname()[1]}") as client,
            pytest.raises(errors.UnavailableError, match=r"`speciate up`, or set SPECIATE_URL"),
        ):
            client.ready()


def test_without_a_url_the_service_of_the_data_directory_is_asked(
    service: FakeService, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    service.on("GET", "/readyz", say({}))
    monkeypatch.setenv("SPECIATE_DATA_DIR", str(tmp_path))
    (tmp_path / "running.json").write_text(json.dumps({"url": service.url}))
    with Client() as client:
        client.ready()
        assert client.url == service.url
    monkeypatch.setenv("SPECIATE_URL", "http://127.0.0.1:1")
    with Client() as client:
        assert client.url == "http://127.0.0.1:1"


def test_token_is_only_in_the_header(ask: Ask, service: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    service.on("GET", "/readyz", say({}))
    ask(lambda client: client.ready(), token="sp_secret")
    monkeypatch.setenv("SPECIATE_TOKEN", "sp_other")
    ask(lambda client: client.ready())
    sent = [request.headers["Authorization"] for request in service.requests]
    assert sent == ["Bearer sp_secret", "Bearer sp_other"]
    assert "sp_secret" not in repr(Client(service.url, "sp_secret").__dict__)


@pytest.mark.parametrize("url", ["ftp://host", "localhost:80", "http://", "http://[::1", "//x"])
def test_invalid_url_is_rejected(url: str) -> None:
    with pytest.raises(errors.ConfigurationError, match="SPECIATE_URL"):
        Client(url)


def test_an_empty_token_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECIATE_TOKEN", "")
    with pytest.raises(errors.ConfigurationError, match="SPECIATE_TOKEN is empty"):
        Client("http://host")


def test_the_service_of_another_data_directory_is_not_used(
    service: FakeService, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPECIATE_DATA_DIR", str(tmp_path))
    with pytest.raises(errors.UnavailableError, match=f"no service runs on {tmp_path}") as raised:
        Client()
    assert "speciate up" in str(raised.value)
    monkeypatch.setenv("SPECIATE_PORT", str(urlsplit(service.url).port))
    with Client() as client:
        assert client.url == service.url


def test_misplaced_secrets_are_rejected() -> None:
    with pytest.raises(errors.ConfigurationError, match="SPECIATE_TOKEN"):
        Client("http://user:password@host")
    with pytest.raises(errors.ConfigurationError, match="SPECIATE_TOKEN") as raised:
        Client("http://host", "a\nb")
    assert "a\nb" not in str(raised.value)


@pytest.mark.parametrize(("name", "path"), [("x:cancel", "x%3Acancel"), ("p@2", "p@2"), ("é?", "%C3%A9%3F")])
def test_names_are_encoded_as_one_path_segment(ask: Ask, service: FakeService, name: str, path: str) -> None:
    with pytest.raises(errors.NotFoundError):
        ask(lambda client: client.problems.get(name))
    assert service.requests[0].path == f"/v1/problems/{path}"


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_names_that_change_the_path_are_rejected(ask: Ask, service: FakeService, name: str) -> None:
    with pytest.raises(InvalidInputError, match="expected a name"):
        ask(lambda client: client.problems.get(name))
    assert service.requests == []


def test_no_name_holds_a_slash(ask: Ask, service: FakeService) -> None:
    with pytest.raises(errors.NotFoundError, match=r"there is no problem '\./mine'"):
        ask(lambda client: client.problems.get("./mine"))
    assert service.requests == []


def test_export_is_streamed(ask: Ask, service: FakeService) -> None:

    lines = b"\n".join(json.dumps(candidate_json(n, program="\u2028"), ensure_ascii=False).encode() for n in (1, 2, 3))
    service.on("GET", f"/v1/runs/{RUN}", say(run_json()))
    path = f"/v1/runs/{RUN}/export"
    service.on("GET", path, stream(lines[:100], lines[100:], kind="application/x-ndjson"))
    found = ask(lambda client: client.runs.get(RUN), lambda run: run.export())
    assert [candidate.number for candidate in found] == [1, 2, 3]


def test_interrupted_export_is_an_error(ask: Ask, service: FakeService) -> None:

    service.on("GET", f"/v1/runs/{RUN}", say(run_json()))
    line = json.dumps(candidate_json()).encode() + b"\n"
    service.on(
        "GET",
        f"/v1/runs/{RUN}/export",
        stream(line, broken=True),
        stream(b"nonsense\n"),
        problem(404, "not-found", "gone"),
    )
    for kind in (errors.UnavailableError, errors.ConfigurationError, errors.NotFoundError):
        with pytest.raises(kind):
            ask(lambda client: client.runs.get(RUN), lambda run: run.export())


def test_guidance_is_paged(ask: Ask, service: FakeService) -> None:
    piece = {"number": 8, "parent": 0, "rollout_id": str(RUN), "text": "Be bold.", "judged": 4, "won": 1, "lives": True}
    none = {"number": 0, "judged": 9, "won": 1, "lives": True}
    service.on("GET", f"/v1/runs/{RUN}", say(run_json()))
    service.on("GET", f"/v1/runs/{RUN}/guidance", page(piece, cursor="next"), page(none))
    found = ask(lambda client: client.runs.get(RUN), lambda run: run.guidance())
    assert [(advice.number, advice.text, advice.won) for advice in found] == [(8, "Be bold.", 1), (0, "", 1)]


def test_slow_endpoint_does_not_time_out_registration(
    ask: Ask, service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition = {"slug": "m", "kind": "scripted"}
    made = {"id": str(RUN), "version": 1, "digest": "d", "created_at": "2026-01-02T03:04:05Z", "definition": definition}

    def slowly(handler: Handler) -> None:
        time.sleep(0.3)
        say(made, 201)(handler)

    monkeypatch.setattr(connection, "TIMEOUT", httpx.Timeout(0.1))
    service.on("POST", "/v1/policies", slowly)
    assert ask(lambda client: client.policies.add(definition)).version == 1


def test_run_returns_its_problem(ask: Ask, service: FakeService) -> None:
    service.on("GET", f"/v1/runs/{RUN}", say(run_json()))
    service.on("GET", f"/v1/problems/{UUID(int=1)}", say(problem_json()))
    found = ask(lambda client: client.runs.get(RUN), lambda run: run.problem())
    assert [objective.directed for objective in found.definition.objectives] == ["radius ↑"]


def test_many_leases_are_renewed_in_several_requests(ask: Ask, service: FakeService) -> None:
    lease = LeasedEvaluation.model_construct(id=RUN, lease=RUN)
    service.on("POST", "/v1/evaluations:heartbeat", page({"id": str(RUN), "lease_until": None}))
    assert len(ask(lambda client: client.evaluations.renew([lease] * 2500))) == 3
    assert [len(request.body["leases"]) for request in service.requests] == [1000, 1000, 500]
