"""Routes: responses and errors in vLLM's format."""

from __future__ import annotations

import json
import shutil
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from speciate.cli.serve import named_folders
from speciate.domain.errors import UnavailableError
from speciate.inference import Engine, GenerationRequest
from speciate.inference.app import create_app
from speciate.inference.scheduler import Scheduler
from speciate.policies.manifest import weights_digest
from tests.support.http_server import serve_app, wait_for
from tests.unit.inference.checkpoints import QWEN2, write

ASKED = {"model": "toy", "prompt": "w1 w2 w3", "max_tokens": 12, "seed": 5}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("models")
    toy = write(base / "toy")
    (toy / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages[0].content }} w9"}))
    return {"toy": toy, "other": write(base / "other", QWEN2, seed=1)}


def _client(folders: dict[str, Path], **options: Any) -> TestClient:
    return TestClient(
        create_app(folders, **options),
        base_url="http://127.0.0.1",
        client=("127.0.0.1", 1234),
        raise_server_exceptions=False,
    )


@pytest.fixture(scope="module")
def http(folders: dict[str, Path]) -> Iterator[TestClient]:
    with _client(folders) as client:
        yield client


def _complete(http: TestClient, **changes: Any) -> dict[str, Any]:
    answer = http.post("/v1/completions", json=ASKED | changes)
    assert answer.status_code == 200, answer.text
    return answer.json()


def _refused(answer: httpx.Response, status: int = 400) -> str:
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["code"] == status
    assert error.keys() == {"message", "type", "param", "code"}
    return error["message"]


def test_models(http: TestClient) -> None:
    listed = http.get("/v1/models").json()["data"]
    assert [each["id"] for each in listed] == ["toy", "other"]
    assert listed[0]["max_model_len"] == 128
    assert http.get("/health").status_code == 200


def test_completions(http: TestClient, folders: dict[str, Path]) -> None:
    body = _complete(http, n=4)
    assert body["system_fingerprint"] == f"weights-sha256:{weights_digest(folders['toy'])}"
    assert body["object"] == "text_completion"
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
    usage = body["usage"]
    tokens = sum(len(c["text"].split()) + (c["finish_reason"] == "stop") for c in body["choices"])
    assert usage == {"prompt_tokens": 3, "completion_tokens": tokens, "total_tokens": tokens + 3}
    assert all(choice["logprobs"] is None for choice in body["choices"])
    assert body["choices"] == _complete(http, n=4, user="me", stream=False, top_k=-1, best_of=1, store=False)["choices"]
    assert body["choices"] != _complete(http, n=4, seed=6)["choices"]
    assert body["choices"] != _complete(http, n=4, model="other")["choices"]


def test_logprobs(http: TestClient) -> None:
    (choice,) = _complete(http, logprobs=2)["choices"]
    found = choice["logprobs"]
    assert "".join(found["tokens"]).startswith(choice["text"].replace(" ", ""))
    for token, value, tops in zip(found["tokens"], found["token_logprobs"], found["top_logprobs"], strict=True):
        assert tops[token] == value < 0
        assert len(tops) in (2, 3)
    pieces = [choice["text"][begin:] for begin in found["text_offset"]]
    assert all(piece.strip().startswith(token) for token, piece in zip(found["tokens"], pieces, strict=True) if piece)
    assert len(choice["text"]) > len("".join(found["tokens"][:2])), "the blanks between words count"
    assert "token_ids" not in choice
    (choice,) = _complete(http, logprobs=0, return_token_ids=True)["choices"]
    assert len(choice["token_ids"]) == len(choice["logprobs"]["tokens"])
    assert all(len(tops) == 1 for tops in choice["logprobs"]["top_logprobs"])


def test_chat(http: TestClient) -> None:
    pytest.importorskip("jinja2")
    messages = [{"role": "user", "content": "w1 w2"}]
    asked = {"model": "toy", "messages": messages, "max_tokens": 12, "seed": 5}
    body = http.post("/v1/chat/completions", json={**asked, "logprobs": True, "top_logprobs": 2}).json()
    (choice,) = body["choices"]
    assert choice["message"] == {
        "role": "assistant",
        "content": _complete(http, prompt="w1 w2 w9")["choices"][0]["text"],
    }
    assert all(len(place["top_logprobs"]) == 2 for place in choice["logprobs"]["content"])
    parts = [{"type": "text", "text": part} for part in messages[-1]["content"].split()]
    in_parts = {**asked, "messages": [*messages[:-1], {"role": "user", "content": parts}]}
    same = http.post("/v1/chat/completions", json=in_parts).json()["choices"]
    assert same == http.post("/v1/chat/completions", json=asked).json()["choices"]
    image = [{"type": "image_url", "image_url": {"url": "x"}}]
    _refused(http.post("/v1/chat/completions", json={**asked, "messages": [{"role": "user", "content": image}]}))
    whole = _complete(http, prompt="w1 w2 w9 w4")["choices"][0]["text"]
    opened = {**asked, "messages": [*messages, {"role": "assistant", "content": " w4"}]}
    continued = {**opened, "add_generation_prompt": False, "continue_final_message": True}
    body = http.post("/v1/chat/completions", json=continued).json()
    assert body["choices"][0]["message"]["content"] == whole
    both = http.post("/v1/chat/completions", json={**opened, "continue_final_message": True})
    assert "expected either add_generation_prompt or continue_final_message" in _refused(both)
    assert "last message of role assistant" in _refused(
        http.post("/v1/chat/completions", json={**continued, "messages": messages})
    )
    unlimited = {"model": "toy", "messages": messages, "seed": 5}
    assert http.post("/v1/chat/completions", json=unlimited).json()["usage"]["total_tokens"] <= 128
    assert "no chat template" in _refused(http.post("/v1/chat/completions", json=asked | {"model": "other"}))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"max_tokens": 126}, "3 tokens and max_tokens is 126, 129 together: this model reads 128"),
        ({"n": 257}, "n: Input should be less than or equal to 256"),
        ({"n": 0}, "n: "),
        ({"n": True}, "n: "),
        ({"n": "3"}, "n: "),
        ({"max_tokens": 0}, "max_tokens: "),
        ({"temperature": -1}, "temperature: "),
        ({"top_p": 0}, "top_p: "),
        ({"top_p": 1.5}, "top_p: "),
        ({"seed": -1}, "seed: "),
        ({"logprobs": 6}, "logprobs: "),
        ({"stop": ""}, "stop: "),
        ({"stop": ["x"] * 17}, "stop: List should have at most 16 items, not 17."),
        ({"stop": 5}, "stop: Input should be a valid string."),
        ({"prompt": []}, "prompt: List should have at least 1 item, not 0."),
        ({"prompt": ""}, "no tokens"),
        ({"prompt": "w1 " * 1_000_000}, "3000000 characters: toy reads 128 tokens at most, and prompts of 8192"),
        ({"prompt": ["w1 " * 150, "w1 " * 9000]}, "the prompt has 150 tokens"),  # the second is not checked
        ({"prompt": [1, 50]}, "not below 50"),
        ({"prompt": [[1], [-1]]}, "not below 50"),
        ({"prompt": ["w1"] * 200, "n": 200}, "40000 completions: this server answers 1024"),
        ({"stream": True}, "stream is not supported"),
        ({"echo": True}, "echo is not supported"),
        ({"store": True}, "store is not supported"),
        ({"best_of": 2}, "best_of is not supported"),
        ({"top_k": 5}, "top_k is not supported"),
        ({"min_p": 0.1}, "min_p is not supported"),
        ({"presence_penalty": 0.5}, "presence_penalty is not supported"),
        ({"repetition_penalty": 1.1}, "repetition_penalty is not supported"),
        ({"temprature": 1.0}, "temprature: is unknown"),
    ],
)
def test_refusals(http: TestClient, changes: dict[str, Any], words: str) -> None:
    assert words in _refused(http.post("/v1/completions", json=ASKED | changes))


def test_unusual_requests(http: TestClient) -> None:
    assert "there is no model 'nope': this server has toy, other" in _refused(
        http.post("/v1/completions", json=ASKED | {"model": "nope"}), 404
    )
    for body in (b"{", b"[]", b"null", b'{"model": "toy", "prompt": "w1", "temperature": NaN}', b"\xff"):
        _refused(http.post("/v1/completions", content=body, headers={"Content-Type": "application/json"}))
    assert "/v1/completions" in _refused(http.get("/v1/nothing"), 404)
    _refused(http.get("/v1/completions"), 405)
    _refused(http.post("/v1/completions", content=iter([b"{}"])), 411)
    _refused(http.post("/v1/completions", content=b" " * ((8 << 20) + 1)), 413)


def test_foreign_requests_are_refused(folders: dict[str, Path], http: TestClient) -> None:
    for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
        _refused(http.get("/v1/models", headers=headers), 403)
    with TestClient(create_app(folders), base_url="http://127.0.0.1", client=("10.0.0.7", 1)) as far:
        _refused(far.get("/v1/models"), 403)


def test_token(folders: dict[str, Path]) -> None:
    with _client({"toy": folders["toy"]}, token="secret") as client:
        assert client.get("/health").status_code == 200
        for sent in ("", "Bearer", "Bearer wrong", "Basic secret", "Bearer sécret"):
            _refused(client.get("/v1/models", headers={"Authorization": sent.encode()}), 401)
        assert client.get("/v1/models", headers={"Authorization": "Bearer secret"}).status_code == 200


def test_an_overfull_queue_answers_503(http: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "waiting", 4096)
    answer = http.post("/v1/completions", json=ASKED)
    assert "4096 completions of toy are waiting" in _refused(answer, 503)
    assert answer.headers["retry-after"] == "1"


def test_prompts_before_a_refused_one_are_cancelled(http: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    handed_in: list[Future[GenerationRequest]] = []

    def submit(*_: object) -> Future[GenerationRequest]:
        if handed_in:
            raise UnavailableError("4096 completions of toy are waiting.")
        handed_in.append(Future())
        return handed_in[0]

    monkeypatch.setattr(Scheduler, "submit", submit)
    _refused(http.post("/v1/completions", json=ASKED | {"prompt": ["w1", "w2"]}), 503)
    assert handed_in[0].cancelled()


def test_requests_of_a_client_that_leaves_are_cancelled(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: Future[GenerationRequest] = Future()
    monkeypatch.setattr(Scheduler, "submit", lambda *_: waiting)
    with serve_app(create_app(folders)) as url:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{url}/v1/completions", json=ASKED, timeout=0.2, trust_env=False)
        wait_for(waiting.cancelled)


def test_a_defect_fails_one_request_and_not_the_server(http: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = http.app.state.routes.scheduler._engines["toy"]  # type: ignore[attr-defined]
    with monkeypatch.context() as patch:
        patch.setattr(engine, "step", lambda: 1 / 0)
        assert "internal server error" in _refused(http.post("/v1/completions", json=ASKED), 500)
    assert _complete(http)["choices"]


def test_models_that_wait_are_listed_and_loaded_when_they_are_requested(folders: dict[str, Path]) -> None:
    with _client(folders) as eager, _client(folders, waiting=True) as client:
        served = client.app.state.routes._served
        assert [one["id"] for one in client.get("/v1/models").json()["data"]] == ["toy", "other"]
        cards = [one["metadata"] | {"length": one["max_model_len"]} for one in client.get("/v1/models").json()["data"]]
        assert cards == [
            one["metadata"] | {"length": one["max_model_len"]} for one in eager.get("/v1/models").json()["data"]
        ]
        assert served.loaded == {}
        assert "toy, other" in _refused(client.post("/v1/completions", json=ASKED | {"model": "third"}), 404)
        answers = [_complete(each, model="other") for each in (eager, client, client)]
        assert len({str(one["choices"]) for one in answers}) == 1
        assert list(served.loaded) == ["other"]
        assert [one["id"] for one in client.get("/v1/models").json()["data"]] == ["toy", "other"]


def test_a_model_that_waits_is_unloaded_after_a_rest_and_loaded_again(folders: dict[str, Path]) -> None:
    with _client(folders, waiting=True, rest_s=0.2) as client:
        served, scheduler = client.app.state.routes._served, client.app.state.routes.scheduler
        first = _complete(client)["choices"]
        engine = weakref.ref(scheduler._engines["toy"])
        deadline = time.monotonic() + 30
        while engine() is not None:
            assert time.monotonic() < deadline, "the model is still in memory"
            time.sleep(0.05)
        assert served.loaded == {}
        assert _complete(client)["choices"] == first


def test_a_broken_checkpoint_that_waits_is_reported_to_its_caller_alone(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(folders["toy"], broken)
    (broken / "model.safetensors").write_bytes(b"no weights")
    with _client({**folders, "broken": broken}, waiting=True) as client:
        assert "model.safetensors" in client.post("/v1/completions", json=ASKED | {"model": "broken"}).text
        _complete(client)


def test_a_folder_may_have_an_equals_sign_in_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "lr=1"
    folder.mkdir()
    assert named_folders([str(folder), f"other={folder}"], tmp_path) == {"lr=1": folder, "other": folder}
