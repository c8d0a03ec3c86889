"""Advice that a run writes for its own prompts, over HTTP and on PostgreSQL."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa

from service.api.schemas import RunSubmission
from speciate.cli.runs.replay import replay_run
from speciate.domain.budget import Budget
from speciate.domain.values import digest_of
from tests.integration.service.conftest import Lab, refused, scripted
from tests.support.runs import ToyEvaluator

pytestmark = pytest.mark.servers

HOSTILE = "\x1b[2J\u202e```</script>{}"
SAYS = [f"```python\nx = {n % 10}\ny = {n % 7}\n```\n<advice>Piece {n} {HOSTILE}</advice>" for n in range(97)]
GUIDED = {"policy": "adviser", "guidance": {"every": 2, "most": 2}, "lanes": 1, "batch": 4, "samples_per_prompt": 2}


@pytest.fixture
def guided(lab: Lab) -> Lab:
    lab.stores.catalog.add_policy(scripted(SAYS, slug="adviser"))
    lab.stores.catalog.add_policy(scripted(slug="tiny", prompt_format="completion", codec="programs"))
    return lab


def _items(lab: Lab, path: str, **params: Any) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    cursor: str | None = ""
    while cursor is not None:
        page = lab.api.get(path, params=params | ({"cursor": cursor} if cursor else {})).json()
        items += page["items"]
        cursor = page["next_cursor"]
    return items


def test_advice_lifecycle_is_recorded(guided: Lab) -> None:
    run_id = guided.start(61, **GUIDED)
    guided.work()
    run = guided.api.get(f"/v1/runs/{run_id}").json()
    assert (run["state"], run["spent"]["evaluations"], run["spec"]["guidance"]) == (
        "completed", 61, {"every": 2, "most": 2},
    )  # fmt: skip
    pieces = _items(guided, f"/v1/runs/{run_id}/guidance", limit=2)
    assert [piece["number"] for piece in pieces] == [14, 12, 10, 8, 6, 4, 2, 0]
    assert sum(piece["lives"] for piece in pieces) == 3
    by_number = {piece["number"]: piece for piece in pieces}
    assert (by_number[0]["text"], by_number[0]["rollout_id"], by_number[0]["lives"]) == ("", None, True)

    rollouts = {rollout["id"]: rollout for rollout in _items(guided, f"/v1/runs/{run_id}/rollouts")}
    for piece in pieces[:-1]:
        rollout = rollouts[piece["rollout_id"]]
        assert (rollout["role"], rollout["batch"], rollout["advice"]) == ("advise", piece["number"], piece["parent"])
        assert piece["parent"] == 0 or by_number[piece["parent"]]
        assert piece["text"].startswith("Piece ")
        assert "\x1b" not in piece["text"]
        assert "\u202e" not in piece["text"]
        whole = guided.api.get(f"/v1/rollouts/{piece['rollout_id']}").json()
        assert HOSTILE.partition("```")[0] in whole["completion"]
        assert "## Advice so far" in whole["user"]
    candidates = _items(guided, f"/v1/runs/{run_id}/candidates")
    carried = [c["advice"] for c in candidates if c["role"] == "mutate"]
    assert all(c["advice"] == rollouts[c["rollout_id"]]["advice"] for c in candidates if c["rollout_id"])
    assert {n: carried.count(n) for n in by_number} == {n: piece["judged"] for n, piece in by_number.items()}
    exported = guided.api.get(f"/v1/runs/{run_id}/export").text.splitlines()
    assert [json.loads(line)["advice"] for line in exported[1:]] == carried[::-1]
    for rollout in rollouts.values():
        if rollout["role"] == "mutate":
            prompt = guided.api.get(f"/v1/rollouts/{rollout['id']}").json()["user"]
            assert by_number[rollout["advice"]]["text"] in prompt
            assert ("## Advice" in prompt) == bool(rollout["advice"])


def test_guided_run_replays_and_a_pause_has_no_effect(guided: Lab) -> None:
    run_id = guided.start(61, **GUIDED)
    guided.work(9)
    guided.api.post(f"/v1/runs/{run_id}:pause")
    guided.api.post(f"/v1/runs/{run_id}:resume")
    guided.work()
    events = guided.api.get(f"/v1/runs/{run_id}/events", params={"limit": 500}).json()["items"]
    assert any(event["kind"] == "advice.written" and event["data"]["dropped"] for event in events)
    report = replay_run(guided.stores, run_id, ToyEvaluator())  # type: ignore[arg-type]
    assert report.identical, report.describe()


def test_advice_of_a_lost_worker_is_requested_again_once(guided: Lab) -> None:
    run_id = guided.start(30, **GUIDED)
    guided.work(4)
    # The unit that writes the first piece is taken and lost; another worker does it again.
    (waiting,) = guided.stores.runs.work_in_flight()
    assert guided.stores.work.claim(waiting.work_id) is not None
    with guided.stores.engine.begin() as connection:
        connection.execute(sa.text("UPDATE work SET lease_until = now() - interval '1 s' WHERE state = 'leased'"))
    assert guided.stores.work.reconcile().retried == 1
    guided.work()
    numbers = [piece["number"] for piece in _items(guided, f"/v1/runs/{run_id}/guidance")]
    assert numbers == sorted(set(numbers), reverse=True)
    assert replay_run(guided.stores, run_id, ToyEvaluator()).identical  # type: ignore[arg-type]


def test_run_without_guidance_has_no_advice(guided: Lab) -> None:
    run_id = guided.start(13)
    guided.work()
    assert guided.api.get(f"/v1/runs/{run_id}/guidance").json() == {"items": [], "next_cursor": None}
    assert {c["advice"] for c in _items(guided, f"/v1/runs/{run_id}/candidates")} == {None}
    refused(guided.api.get(f"/v1/runs/{UUID(int=9)}/guidance"), 404, "not-found")


def test_guidance_is_omitted_at_default(guided: Lab) -> None:
    body = {"problem": "toy", "policy": "adviser", "budget": {"evaluations": 9}}
    guided.api.post("/v1/runs", body, headers={"Idempotency-Key": "k"})
    sent = RunSubmission.model_validate(body).model_dump(mode="json")
    before = {name: value for name, value in sent.items() if name not in RunSubmission.omitted_at_default}
    before["budget"] = {
        name: value for name, value in before["budget"].items() if name not in Budget.omitted_at_default
    }
    with guided.stores.engine.connect() as connection:
        kept = connection.execute(sa.text("SELECT request_digest FROM idempotency_keys")).scalar_one()
    assert kept == digest_of(before)
    other = guided.api.post("/v1/runs", body | {"guidance": {}}, headers={"Idempotency-Key": "k"})
    refused(other, 409, "conflict")


INVALID: list[tuple[dict[str, Any], str]] = [
    ({"guidance": {"every": 0}}, "guidance.every"),
    ({"guidance": {"every": 1, "most": 17}}, "16"),
    ({"guidance": 8}, "guidance"),
    ({"guidance": {}, "policy": "tiny"}, "policy tiny@1 cannot write advice"),
    ({"guidance": {}, "mutator": "tiny"}, "policy tiny@1 cannot write advice"),
]


def test_invalid_guidance_is_rejected(guided: Lab) -> None:
    for changes, told in INVALID:
        body = {"problem": "toy", "policy": "adviser", "budget": {"evaluations": 9}} | changes
        details = refused(guided.api.post("/v1/runs", body), 422, "invalid-input")
        assert told in str(details)


def test_deleting_a_run_deletes_its_advice(guided: Lab) -> None:
    run_id = guided.start(30, **GUIDED)
    guided.work()
    with guided.stores.engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM runs WHERE id = :id"), {"id": run_id})
        assert connection.execute(sa.text("SELECT count(*) FROM advice")).scalar_one() == 0
