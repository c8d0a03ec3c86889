"""Export of rollouts for trainers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from speciate.client import Client
from speciate.domain.policy import Policy
from speciate.policies.openai_compatible import OpenAICompatible
from speciate.schema.candidates import ExportedRollout
from tests.integration.service.conftest import Lab, refused, scripted
from tests.support.openai_endpoint import Reply, serve
from workers.retention import prune_runs

pytestmark = pytest.mark.servers

TOKENS = [{"logprob": -0.5}, {"logprob": -0.25}, {"logprob": -1.0}]
ANSWER = "```python\nx = {}\ny = 1\n```"


def _reply(body: dict[str, Any]) -> Reply:
    """Answer with logprobs of every token; the second completion lacks ids, the third one log-probability."""
    reported = [
        {"logprobs": {"content": TOKENS}, "token_ids": [7, 8, 2**31 - 1]},
        {"logprobs": {"content": TOKENS}},
        {"logprobs": {"content": [*TOKENS[:2], {"logprob": None}]}, "token_ids": [7, 8, 9]},
    ]
    choices = [
        {"index": i, "message": {"content": ANSWER.format(i)}, "finish_reason": "stop", **reported[i % 3]}
        for i in range(body["n"])
    ]
    usage = {"prompt_tokens": 11, "completion_tokens": 3 * body["n"]}
    return 200, {}, json.dumps({"choices": choices, "usage": usage}).encode()


def _lines(lab: Lab, run: object) -> list[dict[str, Any]]:
    answer = lab.api.get(f"/v1/runs/{run}/rollouts/export")
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    return [json.loads(line) for line in answer.text.splitlines()]


def test_rollouts_are_exported_with_tokens_and_the_rewards_of_their_answers(lab: Lab) -> None:
    with serve() as endpoint:
        endpoint.routes["/chat/completions"] = _reply
        sampling, options = {"logprobs": True}, {"check": False, "extra_body": {"return_token_ids": True}}
        given = {"kind": "openai_compatible", "base_url": endpoint.url, "model": "m", "sampling": sampling}
        policy = Policy.model_validate({"slug": "tokens", **given, "options": options})
        lab.stores.catalog.add_policy(policy)
        run = lab.start(7, policy="tokens", samples_per_prompt=3, batch=6)
        with OpenAICompatible(policy) as client:
            lab.work(client_for=lambda _: client)
    lines = _lines(lab, run)
    assert len(lines) == 6
    first = lines[0]
    assert [message["role"] for message in first["prompt"]] == ["system", "user"]
    assert first["completion"] == [{"role": "assistant", "content": ANSWER.format(0)}]
    assert (first["problem"], first["policy"], first["role"]) == ("toy@1", "tokens@1", "mutate")
    assert [(line["logprobs"], line["token_ids"]) for line in lines[:3]] == [
        ([-0.5, -0.25, -1.0], [7, 8, 2**31 - 1]),
        ([-0.5, -0.25, -1.0], None),
        (None, None),
    ]
    # Every candidate but the seed belongs to one rollout, with the rewards that the run recorded.
    stored = {c["number"]: c for c in lab.api.get(f"/v1/runs/{run}/candidates").json()["items"]}
    answers = [answer for line in lines for answer in line["answers"]]
    assert sorted(answer["number"] for answer in answers) == [2, 3, 4, 5, 6, 7]
    for answer in answers:
        assert answer == {name: stored[answer["number"]][name] for name in answer}
    assert first["answers"][0]["rewards"] == {"x": 0.0, "y": 1.0}
    assert first["answers"][0]["scalar"] is not None
    with Client(str(lab.api.http.base_url)) as client:
        records = list(client.runs.get(run).export_rollouts())
    assert [json.loads(record.model_dump_json()) for record in records] == lines
    assert prune_runs(lab.stores, -1.0) == 1
    kept = [line for line in _lines(lab, run) if line["completion"][0]["content"]]
    assert 0 < len(kept) < len(lines)
    assert all(line in lines for line in kept)
    assert not any(line["logprobs"] or line["token_ids"] for line in _lines(lab, run) if line not in kept)


def test_unread_completions_and_texts_are_exported(lab: Lab) -> None:
    texts = ["nothing to read", ANSWER.format(3)]
    lab.stores.catalog.add_policy(scripted(texts, slug="texts", prompt_format="completion"))
    run = lab.start(13, policy="texts")
    lab.work()
    lines = _lines(lab, run)
    assert all(isinstance(line["prompt"], str) and isinstance(line["completion"], str) for line in lines)
    unread = [line for line in lines if line["completion"] == "nothing to read"]
    assert unread
    assert {line["answers"][0]["failure"] for line in unread} == {"rejected"}
    assert all(line["token_ids"] is line["logprobs"] is None for line in lines)
    refused(lab.api.get("/v1/runs/0198c0de-7f00-7000-8000-000000000001/rollouts/export"), 404, "not-found")


def test_trl_reads_the_export(lab: Lab, tmp_path: Path) -> None:
    trl = pytest.importorskip("trl.data_utils")
    datasets = pytest.importorskip("datasets")
    run = lab.start(13)
    lab.work()
    file = tmp_path / "rollouts.jsonl"
    file.write_text(lab.api.get(f"/v1/runs/{run}/rollouts/export").text)
    rows = datasets.load_dataset("json", data_files=str(file), split="train", cache_dir=str(tmp_path / "cache"))
    assert {*ExportedRollout.model_fields} == {*rows.column_names}
    assert all(trl.is_conversational(row) for row in rows)
    scored = rows.filter(lambda row: any(answer["rewards"] for answer in row["answers"]))
    assert {*scored[0]["completion"][0]} == {"role", "content"}
