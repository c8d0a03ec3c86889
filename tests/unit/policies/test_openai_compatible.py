from __future__ import annotations

import gzip
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from speciate.domain.charge import Charge
from speciate.domain.errors import InvalidInputError, PolicyUnavailableError
from speciate.domain.policy import Policy, PolicyRole
from speciate.domain.rollout import ONLY_REASONING, REFUSED, Prompt
from speciate.egress.network import AllowedNetworks
from speciate.policies import build_client
from speciate.policies.embedded import ADDRESS_VARIABLE, InferenceServerPolicy
from speciate.policies.kind import ClientContext
from speciate.policies.openai_compatible import OpenAICompatible
from speciate.ports.interruption import interruptible
from speciate.ports.policy import SampleRequest
from speciate.problems.loader import bundled, load_problem
from speciate.prompts.compact import opening_of
from speciate.prompts.mutation import build_prompt
from speciate.prompts.parse import parse_completion
from speciate.training.tasks import Split
from speciate.training.tasks.python import PythonTask
from tests.support.openai_endpoint import Endpoint, Reply, serve

KEY = "sk-very-secret-0123456789"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serve() as served:
        yield served


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
def connect(endpoint: Endpoint, waits: list[float]) -> Iterator[Callable[..., OpenAICompatible]]:
    clients: list[OpenAICompatible] = []

    def make(**changes: Any) -> OpenAICompatible:
        definition = {"slug": "served", "kind": "openai_compatible", "base_url": endpoint.url, "model": "m", **changes}
        clients.append(OpenAICompatible(Policy.model_validate(definition), sleep=waits.append))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


Connect = Callable[..., OpenAICompatible]


def request(seed: int = 1, n: int = 2, user: str = "Improve x.") -> SampleRequest:
    return SampleRequest(Prompt("You improve.", user), PolicyRole.PROPOSE, n, seed)


def replies(*broken: Reply) -> Callable[[int], Reply | None]:
    return lambda number: broken[number] if number < len(broken) else None


def as_json(value: Any) -> Reply:
    return 200, {}, json.dumps(value).encode()


def test_chat_sends_what_vllm_expects(endpoint: Endpoint, connect: Connect) -> None:
    sampling = {"temperature": 0.7, "top_p": 0.9, "max_tokens": 64, "logprobs": True}
    client = connect(sampling=sampling, options={"extra_body": {"top_k": 5}})
    (result,) = client.sample([request(seed=2**40 + 3)])
    assert endpoint.seen == [
        {
            "path": "/v1/chat/completions",
            "model": "m",
            "messages": [{"role": "system", "content": "You improve."}, {"role": "user", "content": "Improve x."}],
            "n": 2,
            "seed": 3,
            "temperature": 0.7,
            "top_p": 0.9,
            "max_tokens": 64,
            "logprobs": True,
            "stream": False,
            "top_k": 5,
        }
    ]
    assert [completion.mean_logprob for completion in result.completions] == [-1.5, -1.5]
    assert [completion.tokens for completion in result.completions] == [5, 5]
    assert result.prompt_tokens == 11
    assert result.latency_s > 0


def test_completion_sends_one_text(endpoint: Endpoint, connect: Connect) -> None:
    (result,) = connect(prompt_format="completion", sampling={"logprobs": True}).sample([request()])
    assert endpoint.seen[0]["path"] == "/v1/completions"
    assert endpoint.seen[0]["prompt"] == "You improve.\n\nImprove x."
    assert endpoint.seen[0]["logprobs"] == 1
    assert result.completions[0].mean_logprob == -3.0


@pytest.mark.parametrize("answers", [1, 3])
def test_a_prefilled_reply_is_continued(endpoint: Endpoint, connect: Connect, answers: int) -> None:
    changes = {"prompt_style": "prefilled", "answers_per_rollout": answers}
    policy = Policy.model_validate({"slug": "p", "kind": "scripted", **changes})
    asked = build_prompt(
        load_problem(bundled()["sorting-network-8"]), PolicyRole.PROPOSE, [], [], policy, np.random.default_rng(0)
    )
    connect(**changes, options={"fields": {"add_generation_prompt": None}}).sample(
        [SampleRequest(asked, PolicyRole.PROPOSE, 2, 1)]
    )
    connect(**changes, prompt_format="completion").sample([SampleRequest(asked, PolicyRole.PROPOSE, 2, 1)])
    chat, text = endpoint.seen
    opening = opening_of(policy, asked)
    assert opening.startswith("```python\n")
    assert chat["messages"][-1] == {"role": "assistant", "content": opening}
    assert chat["continue_final_message"] is True
    assert "add_generation_prompt" not in chat
    assert text["prompt"].endswith(f"\n\n{opening}")
    stops = ["\n```", "\ndef ", "\nprint(", "\n# "] if answers == 1 else None
    assert [body.get("stop") for body in (chat, text)] == [stops, stops]


@pytest.mark.parametrize("fields", [{}, {"n": None}])
def test_each_answer_of_a_scaffold_takes_a_request(
    endpoint: Endpoint, connect: Connect, fields: dict[str, None]
) -> None:
    changes = {"prompt_style": "scaffolded", "answers_per_rollout": 3, "sampling": {"max_tokens": 90, "logprobs": True}}
    policy = Policy.model_validate({"slug": "p", "kind": "scripted", **changes})
    (defined,) = PythonTask().problems(Split.TRAIN, 1)
    asked = build_prompt(defined, PolicyRole.PROPOSE, [], [], policy, np.random.default_rng(0))
    opening = opening_of(policy, asked)
    texts = iter(
        [("\n    return x\n", "stop"), ("\n    return 2 * x\nfor i\ud83d", "length"), ("\n    return 3", "stop")]
    )

    def answer(_: int) -> Reply:
        text, finish = next(texts)
        choice = {"message": {"content": text}, "finish_reason": finish, "logprobs": {"content": [{"logprob": -1.0}]}}
        return as_json({"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 1}})

    endpoint.misbehave = answer
    client = connect(**changes, options={"fields": fields, "check": False})
    sampled = SampleRequest(asked, PolicyRole.PROPOSE, 1, 1)
    (result,) = client.sample([sampled])
    assert [body["max_tokens"] for body in endpoint.seen] == [30] * 3
    assert all("\ndef " in body["stop"] for body in endpoint.seen)
    assert len({body["seed"] for body in endpoint.seen}) == 3
    line = opening.removeprefix("```python\n")
    assert endpoint.seen[2]["messages"][-1]["content"] == (
        f"{opening}\n    return x\n\n{line}\n    return 2 * x\nfor i\ufffd\n\n{line}"
    )
    assert (result.prompt_tokens, result.completions[0].tokens, result.completions[0].mean_logprob) == (27, 3, -1.0)
    assert result.tokens <= client.token_ceiling(sampled)
    read = parse_completion(result.completions[0].text, problem=defined, policy=policy, parent=None)
    assert [each.program for each in read] == [f"{line}\n    return {value}\n" for value in ("x", "2 * x", "3")]


def test_a_scaffold_that_fails_costs_all_of_its_requests(endpoint: Endpoint, connect: Connect) -> None:
    changes = {"prompt_style": "scaffolded", "answers_per_rollout": 3}
    policy = Policy.model_validate({"slug": "p", "kind": "scripted", **changes})
    problem = load_problem(bundled()["sorting-network-8"])
    asked = build_prompt(problem, PolicyRole.PROPOSE, [], [], policy, np.random.default_rng(0))
    endpoint.misbehave = replies(as_json({"choices": [CHOICE], "usage": {"completion_tokens": 5}}), (500, {}, b""))
    options = {"check": False, "max_retries": 0, "outage_s": 0}
    client = connect(**changes, price={"input": 0, "output": 1}, options=options)
    with pytest.raises(PolicyUnavailableError) as raised:
        client.sample([SampleRequest(asked, PolicyRole.PROPOSE, 1, 1)])
    assert raised.value.spent is not None
    assert raised.value.spent.tokens > 5


def test_impossible_numbers_in_an_answer_are_ignored(endpoint: Endpoint, connect: Connect) -> None:
    tokens = '{"token_logprobs": [-1.0, 1' + "0" * 400 + ', -1e308, -1e308, NaN, "-5"]}'
    text = json.dumps(CHOICE)[:-1] + f', "index": 1{"0" * 400}, "logprobs": {tokens}}}'
    usage = f'{{"prompt_tokens": 1{"0" * 400}, "completion_tokens": 1e999}}'
    endpoint.misbehave = lambda _: (200, {}, f'{{"choices": [{text}], "usage": {usage}}}'.encode())
    (result,) = connect(options={"check": False}).sample([request()])
    assert result.completions[0].mean_logprob == -1.0
    assert 0 < result.completions[0].tokens <= 64


def test_other_weights_than_the_registered_ones_are_refused_at_once(
    endpoint: Endpoint, connect: Connect, waits: list[float]
) -> None:
    policy = connect(checkpoint_digest="a" * 64, options={"check": False})
    answer: dict[str, Any] = {"choices": [CHOICE]}
    endpoint.misbehave = lambda _: as_json(answer)
    for known in (None, "fp_44709d6fcb", "weights-sha256:" + "a" * 64):
        answer["system_fingerprint"] = known
        assert policy.sample([request()])[0].completions
    answer["system_fingerprint"] = "weights-sha256:" + "b" * 64
    with pytest.raises(PolicyUnavailableError, match="other weights, sha256 bbbbbbbbbbbbbbbb, than sha256 aaaaaaaa"):
        policy.sample([request()])
    assert waits == []


def test_requests_run_side_by_side_and_come_back_in_order(endpoint: Endpoint, connect: Connect) -> None:
    client = connect()
    requests = [request(seed) for seed in range(20)]
    alone = [client.sample([one])[0].completions for one in requests]
    assert [result.completions for result in client.sample(requests)] == alone
    with ThreadPoolExecutor(4) as pool:
        for results in pool.map(client.sample, [requests] * 4):
            assert [result.completions for result in results] == alone


def test_the_key_goes_into_the_header_and_nowhere_else(
    endpoint: Endpoint, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVED_KEY", KEY)
    endpoint.key = KEY
    client = connect(api_key_env="SERVED_KEY")
    client.sample([request()])
    assert endpoint.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert KEY not in repr(vars(client)) + repr(client)
    endpoint.key = "another"
    with pytest.raises(PolicyUnavailableError) as caught:
        client.sample([request()])
    assert KEY not in str(caught.value)
    assert "401: Incorrect API key provided: Bearer [key]" in str(caught.value)
    assert "Check the key in SERVED_KEY" in str(caught.value)


@pytest.mark.parametrize(
    ("value", "says"), [(None, "is not set"), ("a\nb", "cannot carry"), ("schlüssel", "cannot carry")]
)
def test_a_missing_or_invalid_key_is_reported_without_its_value(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, endpoint: Endpoint, value: str | None, says: str
) -> None:
    if value is not None:
        monkeypatch.setenv("SERVED_KEY", value)
    with pytest.raises(PolicyUnavailableError, match="SERVED_KEY") as caught:
        connect(api_key_env="SERVED_KEY").ping()
    assert says in str(caught.value)
    assert value is None or value not in str(caught.value)
    assert not endpoint.headers


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
def test_transient_errors_are_retried(endpoint: Endpoint, connect: Connect, waits: list[float], status: int) -> None:
    endpoint.misbehave = replies(*[(status, {}, b"busy")] * 3)
    (result,) = connect().sample([request()])
    assert len(result.completions) == 2
    assert [0.25 * 2**i <= wait <= 0.5 * 2**i for i, wait in enumerate(waits)] == [True] * 3


def test_waits_are_bounded_and_depend_on_the_seed_alone(
    endpoint: Endpoint, connect: Connect, waits: list[float]
) -> None:
    endpoint.misbehave = lambda _: (503, {}, b"")
    client = connect(options={"longest_wait_s": 1.0, "max_retries": 5})
    for _ in range(2):
        with pytest.raises(PolicyUnavailableError, match=r"answered 503.*after 6 attempts"):
            client.sample([request(seed=4)])
    assert waits[:5] == waits[5:]
    assert max(waits) <= 1.0


@pytest.mark.parametrize(
    ("header", "low", "high"),
    [
        ("3", 3, 3),
        ("0", 0, 0),
        ("100000", 30, 30),
        ("Fri, 31 Dec 1999 23:59:59 GMT", 0, 0),
        ("soon", 0.25, 0.5),
        (f"Thu, 01 Jan {'9' * 20} 00:00:00 GMT", 0.25, 0.5),
        ("nan", 0.25, 0.5),
    ],
)
def test_retry_after_is_honoured(
    endpoint: Endpoint, connect: Connect, waits: list[float], header: str, low: float, high: float
) -> None:
    endpoint.misbehave = replies((429, {"Retry-After": header}, b"{}"))
    connect().sample([request()])
    assert low <= waits[0] <= high


def test_a_limit_per_minute_that_links_to_billing_is_waited_for(
    endpoint: Endpoint, connect: Connect, waits: list[float]
) -> None:
    text = "Rate limit reached: try again in 2s. Need more tokens? Upgrade at https://console.groq.com/settings/billing"
    endpoint.misbehave = replies((429, {}, json.dumps({"error": {"message": text}}).encode()))
    connect().sample([request()])
    assert waits


def test_a_limit_per_minute_that_is_worded_as_a_quota_is_waited_for(
    endpoint: Endpoint, connect: Connect, waits: list[float]
) -> None:
    error = {"code": 429, "message": "You exceeded your current quota", "details": [{"retryDelay": "23s"}]}
    endpoint.misbehave = replies((429, {}, json.dumps([{"error": error}]).encode()))
    connect().sample([request()])
    assert waits


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (400, b'{"error": {"message": "max_tokens is too large"}}', "answered 400: max_tokens is too large"),
        (429, b'{"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}', "Add credit"),
        (404, b'{"message": "no such model"}', "Check the policy's base_url"),
        (422, b'{"detail": [{"loc": ["body", "n"]}]}', '"loc"'),
        (403, b"<html>\x1b[2J\x00 no</html>", "answered 403: <html>"),
        (401, b"x" * 10_000_000, "characters cut"),
        (302, b"", "Redirects are not followed"),
    ],
)
def test_permanent_errors_are_not_retried(
    endpoint: Endpoint, connect: Connect, waits: list[float], status: int, body: bytes, says: str
) -> None:
    endpoint.misbehave = lambda _: (status, {"Location": "http://127.0.0.1:9/"}, body)
    with pytest.raises(PolicyUnavailableError) as caught:
        connect().sample([request()])
    assert says in str(caught.value)
    assert len(str(caught.value)) < 800
    assert str(caught.value).isprintable() or "\n" in str(caught.value)
    assert not waits


CHOICE = {"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}
LOGIN = (200, {"Content-Type": "text/html"}, b"<html>\x1b[2J" + b"Sign in " * 100)


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        ((200, {}, b""), "not JSON (JSONDecodeError) (an empty body)"),
        (LOGIN, "not JSON (JSONDecodeError) (text/html: <html>\ufffd[2JSign in Sign in"),
        ((200, {}, b"[" * 4000), "not JSON"),
        (as_json([1]), "the response is list"),
        (as_json({}), "no choices ({})"),
        (as_json({"choices": "x"}), "no choices"),
        (as_json({"choices": [{**CHOICE, "finish_reason": "error", "error": "lost"}]}), 'all choices failed: "lost"'),
        (as_json({"choices": ["x"]}), "hold no message"),
        (as_json({"choices": [{}]}), "hold no message"),
        (as_json({"choices": [CHOICE], "padding": "x" * 5000}), "longer than 4096 bytes"),
    ],
)
def test_a_malformed_response_is_retried_once(
    endpoint: Endpoint, connect: Connect, waits: list[float], reply: Reply, says: str
) -> None:
    """The same response twice in a row is no accident."""
    client = connect(options={"max_response_bytes": 4096, "outage_s": 0})
    endpoint.misbehave = replies(reply)
    assert client.sample([request()])[0].completions
    assert len(waits) == 1
    endpoint.misbehave = lambda _: reply
    with pytest.raises(PolicyUnavailableError) as caught:
        client.sample([request()])
    assert says in str(caught.value)
    assert "(after 2 attempts)" in str(caught.value)
    assert "Check that the endpoint runs" not in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 800
    assert len(waits) == 2


CUT = (200, {}, b'{"choices": [{"index": 0, "mess')


@pytest.mark.parametrize("reply", [(429, {"Retry-After": "0"}, b"busy"), (500, {}, b"restarting"), CUT])
def test_an_endpoint_that_has_answered_is_asked_for_minutes(
    endpoint: Endpoint, connect: Connect, waits: list[float], reply: Reply
) -> None:
    client = connect()
    client.sample([request()])
    endpoint.headers.clear()
    endpoint.misbehave = replies(*[reply] * 12)
    assert client.sample([request()])[0].completions
    assert all(1 <= wait <= 30 for wait in waits[4:])
    assert 60 < sum(waits) < 300
    waits.clear()
    endpoint.misbehave = lambda _: reply
    with pytest.raises(PolicyUnavailableError) as caught:
        client.sample([request()])
    assert 300 <= sum(waits) < 331
    assert "not an OpenAI-compatible endpoint" not in str(caught.value)
    waits.clear()
    with pytest.raises(PolicyUnavailableError, match=r"after \d attempts"):  # a run that is resumed in vain pauses soon
        client.sample([request()])
    assert len(waits) == (1 if reply is CUT else 4)


def test_an_endpoint_that_others_can_replace_is_left_alone_for_a_minute(
    endpoint: Endpoint, connect: Connect, waits: list[float]
) -> None:
    client, replaceable = connect(), replace(request(), replaceable=True)
    client.sample([replaceable])
    endpoint.misbehave = lambda _: (503, {}, b"restarting")
    with pytest.raises(PolicyUnavailableError, match="restarting"):
        client.sample([replaceable])
    assert len(waits) == 4
    endpoint.misbehave = lambda _: None
    asked = len(endpoint.headers)
    with pytest.raises(PolicyUnavailableError, match="restarting") as caught:
        client.sample([replaceable])
    assert caught.value.spent == Charge()
    assert len(endpoint.headers) == asked
    assert client.sample([replaceable, request()])[0].completions  # asked, as one request has no other policy
    assert client.sample([replaceable])[0].completions


def test_a_replaced_request_leaves_the_patience_of_others(
    endpoint: Endpoint, connect: Connect, waits: list[float]
) -> None:
    client, replaceable = connect(), replace(request(), replaceable=True)
    client.sample([replaceable])
    endpoint.misbehave = lambda _: (503, {}, b"restarting")
    with pytest.raises(PolicyUnavailableError):
        client.sample([replaceable])
    waits.clear()
    endpoint.misbehave = lambda _: (503, {}, b"restarting") if sum(waits) < 60 else None
    assert all(result.completions for result in client.sample([replaceable, request()]))
    endpoint.misbehave = lambda _: (503, {}, b"restarting")
    with pytest.raises(PolicyUnavailableError):
        client.sample([replaceable])
    endpoint.misbehave = lambda _: None
    client.revalidate()  # as after a pause
    assert client.sample([replaceable])[0].completions


def test_an_interruption_ends_the_wait_for_an_endpoint(endpoint: Endpoint) -> None:
    fields = {"slug": "p", "kind": "openai_compatible", "base_url": endpoint.url, "model": "m"}
    lost = threading.Event()
    with OpenAICompatible(Policy.model_validate(fields)) as client, interruptible(lost):
        client.sample([request()])
        endpoint.misbehave = lambda _: (503, {"Retry-After": "30"}, b"")
        threading.Timer(0.3, lost.set).start()
        began = time.monotonic()
        with pytest.raises(PolicyUnavailableError, match="interrupted"):
            client.sample([request()])
        assert time.monotonic() - began < 10


def test_an_error_with_status_200_is_treated_by_its_code(
    endpoint: Endpoint, connect: Connect, waits: list[float]
) -> None:
    endpoint.misbehave = lambda _: as_json({"error": {"code": 429, "message": "busy upstream"}})
    with pytest.raises(PolicyUnavailableError, match=r"429: busy upstream \(after 5 attempts\).*--lanes 1"):
        connect().sample([request()])
    assert len(waits) == 4


@pytest.mark.parametrize(
    "usage",
    [
        None,
        "many",
        {},
        {"prompt_tokens": -1, "completion_tokens": -5},
        {"prompt_tokens": True},
        {"completion_tokens": 1.5},
        {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    ],
)
def test_tokens_that_are_missing_or_impossible_are_counted_conservatively(
    endpoint: Endpoint, connect: Connect, usage: object
) -> None:
    client = connect(sampling={"max_tokens": 10})
    choices = [{**CHOICE, "message": {"content": "é"}}, {**CHOICE, "message": {"content": "x" * 100}}]
    endpoint.misbehave = lambda _: as_json({"choices": choices, "usage": usage})
    asked = request(user="ü" * 10)
    (result,) = client.sample([asked])
    assert [completion.tokens for completion in result.completions] == [3, 10]
    assert result.prompt_tokens >= len(asked.prompt.text().encode())
    assert result.tokens <= client.token_ceiling(asked)


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 4, "completion_tokens": 9_000},
        {"prompt_tokens": 4, "completion_tokens": 10**12},
        {"prompt_tokens": 4, "completion_tokens": 3, "total_tokens": 9_000},
    ],
)
def test_more_tokens_than_a_request_can_cost_count_as_the_most(
    endpoint: Endpoint, connect: Connect, usage: object
) -> None:
    client = connect(sampling={"max_tokens": 10})
    endpoint.misbehave = lambda _: as_json({"choices": [CHOICE], "usage": usage})
    (result,) = client.sample([request(n=1)])
    assert (result.prompt_tokens, result.completions[0].tokens) == (4, 10)


def test_a_content_of_parts_is_one_text(endpoint: Endpoint, connect: Connect) -> None:
    parts = [{"type": "thinking", "thinking": []}, {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    endpoint.misbehave = lambda _: as_json({"choices": [{**CHOICE, "message": {"content": parts}}]})
    (result,) = connect().sample([request(n=1)])
    assert result.completions[0].text == "ab"


def test_reported_tokens_are_divided_without_losing_any(endpoint: Endpoint, connect: Connect) -> None:
    choices = [{**CHOICE, "index": i, "message": {"content": "x" * (1 + 9 * i)}} for i in range(3)]
    usage = {"prompt_tokens": 4, "completion_tokens": 100}
    endpoint.misbehave = lambda _: as_json({"choices": choices, "usage": usage})
    (result,) = connect().sample([request(n=3)])
    assert result.tokens == 104
    assert [completion.tokens for completion in result.completions] == [3, 33, 64]


def test_logprobs_count_the_tokens_of_each_completion(endpoint: Endpoint, connect: Connect) -> None:
    choices = [
        {**CHOICE, "index": i, "logprobs": {"content": [{"logprob": -1.0}] * tokens}} for i, tokens in enumerate((7, 2))
    ]
    endpoint.misbehave = lambda _: as_json({"choices": choices, "usage": {"prompt_tokens": 4, "completion_tokens": 9}})
    (result,) = connect().sample([request()])
    assert [completion.tokens for completion in result.completions] == [7, 2]


def test_every_attempt_that_was_billed_counts(endpoint: Endpoint, connect: Connect) -> None:
    """Tokens and dollars are those of the endpoint's bill, whatever became of an attempt."""
    usage = {"usage": {"prompt_tokens": 11, "completion_tokens": 10}}
    failed = (503, {}, json.dumps({"error": {"message": "busy"}, **usage}).encode())
    client = connect(price={"input": 1000, "output": 2000}, options={"max_retries": 3, "outage_s": 0})
    endpoint.misbehave = replies((200, {}, b""), failed, as_json({"object": "nothing", **usage}))
    endpoint.headers.clear()
    ceilings = client.token_ceiling(request())
    reserved: list[int] = []
    asked = replace(request(), reserve=lambda tokens: reserved.append(tokens) or True)  # type: ignore[func-returns-value]
    (result,) = client.sample([asked])
    assert reserved == [ceilings, 21, 21]  # nothing is known of the first attempt, so it counts as the dearest
    assert (result.tokens, result.estimated_tokens) == (ceilings + 3 * 21, ceilings)
    assert result.prompt_tokens - 3 * 11 == ceilings - 2 * 2048

    endpoint.misbehave = lambda number: failed if number % 2 else as_json({"choices": "none", **usage})
    endpoint.headers.clear()
    with pytest.raises(PolicyUnavailableError) as caught:
        client.sample([request()])
    assert caught.value.spent == Charge(4 * 21, pytest.approx(4 * (11 * 1000 + 10 * 2000) / 1e6), 0)


def test_no_attempt_exceeds_the_budget(endpoint: Endpoint, connect: Connect, waits: list[float]) -> None:
    endpoint.misbehave = lambda _: (
        503,
        {},
        json.dumps({"usage": {"prompt_tokens": 9, "completion_tokens": 1}}).encode(),
    )
    (result,) = connect().sample([replace(request(), reserve=lambda _: False)])
    assert "(after 1 attempts; the budget holds no further one)" in result.completions[0].text
    assert (result.completions[0].finish_reason, result.tokens, waits) == (REFUSED, 10, [])
    endpoint.misbehave = lambda _: (503, {}, b"free")
    with pytest.raises(PolicyUnavailableError, match="after 5 attempts"):
        connect().sample([replace(request(), reserve=lambda _: False)])


def test_a_request_that_timed_out_counts_as_the_dearest(endpoint: Endpoint, connect: Connect) -> None:
    endpoint.delay_s = 1.0
    client = connect(timeout_s=0.2, options={"max_retries": 1, "check": False})
    with pytest.raises(PolicyUnavailableError, match=r"within 0.2 s \(after 2 attempts\)") as caught:
        client.sample([request()])
    most = 2 * client.token_ceiling(request())
    assert caught.value.spent == Charge(most, 0.0, most)


GOOD = {"index": 9, "message": {"content": "```python\nx = 1\n```"}, "finish_reason": "stop"}


@pytest.mark.parametrize(
    ("choice", "text", "finish"),
    [
        ({"message": {"content": None}, "finish_reason": "stop"}, "", "stop"),
        ({"message": {"content": None}, "finish_reason": "length"}, "", "length"),
        ({"message": {"content": 5}, "finish_reason": "stop"}, "", "stop"),
        ({"message": {"content": {"text": "x"}}, "finish_reason": "stop"}, "", "stop"),
        ({"message": {}, "finish_reason": "stop"}, "", "stop"),
        ({"message": None}, "", "unknown"),
        ({}, "", "unknown"),
        ("x", "", "unknown"),
        (None, "", "unknown"),
        ({"message": {"content": None, "refusal": "No."}, "finish_reason": "stop"}, "No.", REFUSED),
        ({"finish_reason": "content_filter"}, "the completion ended with 'content_filter'", REFUSED),
        (
            {"message": {}, "finish_reason": "error", "error": "lost"},
            "the completion ended with 'error': \"lost\"",
            REFUSED,
        ),
        ({"message": {"content": "", "reasoning_content": "Hm."}, "finish_reason": "stop"}, "Hm.", ONLY_REASONING),
        (
            {"message": {"content": "I write it.", "tool_calls": [{"function": {"name": "write"}}]}},
            'I write it.\n<tool_call>\n{"name": "write"}\n</tool_call>',
            "unknown",
        ),
        ({"message": {"content": None, "reasoning": "Hm."}, "finish_reason": "length"}, "", "length"),
    ],
)
def test_a_choice_without_text_leaves_the_others(
    endpoint: Endpoint, connect: Connect, waits: list[float], choice: object, text: str, finish: str
) -> None:
    endpoint.misbehave = lambda _: as_json(
        {"choices": [choice, GOOD], "usage": {"prompt_tokens": 4, "completion_tokens": 100}}
    )
    (result,) = connect().sample([request()])
    assert [(one.text, one.finish_reason) for one in result.completions] == [
        (text, finish),
        (GOOD["message"]["content"], "stop"),  # type: ignore[index]
    ]
    assert (result.tokens, waits) == (104, [])


@pytest.mark.parametrize("choices", [[], None])
def test_a_response_without_choices_is_a_refused_prompt(
    endpoint: Endpoint, connect: Connect, waits: list[float], choices: object
) -> None:
    body = {
        "choices": choices,
        "prompt_filter_results": ["hate"],
        "usage": {"prompt_tokens": 4, "completion_tokens": 0},
    }
    endpoint.misbehave = lambda _: as_json(body)
    (result,) = connect().sample([request()])
    assert [one.finish_reason for one in result.completions] == [REFUSED]
    assert "prompt_filter_results" in result.completions[0].text
    assert (result.tokens, waits) == (4, [])


def test_a_refused_prompt_is_an_answer_and_leaves_the_others(
    endpoint: Endpoint, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVED_KEY", KEY)
    said = {"error": {"message": f"\x1b[2J{KEY} content_filter\nx", "code": "content_filter"}}

    def answer(body: dict[str, Any]) -> Reply:
        if "kill" in body["messages"][-1]["content"]:
            return 403 if body["seed"] == 2 else 400, {}, json.dumps(said).encode()
        return as_json({"choices": [GOOD] * body.get("n", 1), "usage": {"prompt_tokens": 4, "completion_tokens": 9}})

    endpoint.routes["chat/completions"] = answer
    for options in ({}, {"fields": {"n": None}}):
        client = connect(api_key_env="SERVED_KEY", options=options)
        first, *refused, last = client.sample(
            [request(1), request(2, user="kill"), request(3, user="kill"), request(4)]
        )
        assert len(first.completions) == len(last.completions) == 2
        for result in refused:
            assert [(one.finish_reason, one.tokens) for one in result.completions] == [(REFUSED, 0)]
            said_line, remedy = result.completions[0].text.split("\n")
            assert said_line.isprintable()
            assert "[key] content_filter x" in said_line
            assert "filter refused the prompt" in remedy


STREAMED = [
    {
        "choices": [
            {"index": 1, "delta": {"role": "assistant", "content": "b"}},
            {"index": 0, "delta": {"content": "a"}},
        ]
    },
    {"choices": [{"index": 0, "delta": {"content": None, "reasoning_content": "Hm"}, "finish_reason": None}]},
    {"choices": [{"index": 0, "delta": {"content": "1"}, "finish_reason": "stop"}], "usage": None},
    {"choices": [{"index": 1, "delta": {"content": "2"}, "finish_reason": "length"}]},
    {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 30}},
]


def as_stream(*chunks: object, end: str = "data: [DONE]\n\n") -> Reply:
    events = "".join(f"data: {json.dumps(chunk)}\r\n\r\n" for chunk in chunks)
    return 200, {"Content-Type": "text/event-stream; charset=utf-8"}, f": hello\n\nevent: x\n{events}{end}".encode()


@pytest.mark.parametrize("end", ["data: [DONE]\n\n", ""])
@pytest.mark.parametrize("stream", [True, False])
def test_a_stream_is_joined(endpoint: Endpoint, connect: Connect, *, stream: bool, end: str) -> None:
    """Also one that was not requested, and one without an end mark."""
    endpoint.misbehave = lambda _: as_stream(*STREAMED, end=end)
    (result,) = connect(options={"stream": stream}).sample([request()])
    assert endpoint.seen[0]["stream"] is stream
    assert endpoint.seen[0].get("stream_options") == ({"include_usage": True} if stream else None)
    assert [(one.text, one.finish_reason) for one in result.completions] == [("a1", "stop"), ("b2", "length")]
    assert (result.prompt_tokens, result.tokens, result.estimated_tokens) == (7, 37, 0)


@pytest.mark.parametrize(
    ("error", "waited"),
    [
        ({"message": "Slow down", "type": "tokens", "code": "rate_limit_exceeded"}, 1),
        ({"message": "Bad gateway", "type": "upstream_error"}, 1),
        ({"message": "No", "type": "moderation_error"}, 0),
    ],
)
def test_an_error_with_status_200(
    endpoint: Endpoint, connect: Connect, waits: list[float], error: object, waited: int
) -> None:
    endpoint.misbehave = replies(as_json({"error": error}))
    (result,) = connect(options={"check": False}).sample([request()])
    assert (len(waits), len(result.completions)) == (waited, 1 + waited)


def test_an_error_within_a_stream(endpoint: Endpoint, connect: Connect, waits: list[float]) -> None:
    overloaded = as_stream({"error": {"message": "Overloaded", "type": "server_error"}})
    endpoint.misbehave = replies(overloaded)
    client = connect(options={"stream": True, "check": False})
    assert len(client.sample([request()])[0].completions) == 2
    assert len(waits) == 1
    endpoint.misbehave = lambda _: as_stream({"error": {"message": "content_filter", "code": 400}})
    assert client.sample([request()])[0].completions[0].finish_reason == REFUSED
    broken = as_stream({"choices": [{"index": 0, "delta": {"content": "a"}}]}, end='data: {"choices": [{"ind')
    endpoint.misbehave = lambda _: broken
    with pytest.raises(PolicyUnavailableError, match=r"an event of the stream is not JSON .*The answer is cut off"):
        client.sample([request()])


@pytest.mark.parametrize(
    "choices", [[], [{"index": 0, "delta": {}, "finish_reason": "error"}]], ids=["vllm", "openrouter"]
)
def test_a_stream_that_an_error_ends_is_no_answer(endpoint: Endpoint, connect: Connect, choices: list[object]) -> None:
    error = {"error": {"message": "Lost", "code": 503}, "choices": choices}
    endpoint.misbehave = lambda _: as_stream({"choices": [{"index": 0, "delta": {"content": "a"}}]}, error)
    with pytest.raises(PolicyUnavailableError, match=r"it answered 503: Lost \(after 5 attempts\)"):
        connect(options={"stream": True, "check": False}).sample([request()])


def test_one_message_of_the_user(endpoint: Endpoint, connect: Connect) -> None:
    connect(options={"system_role": "user"}).sample([request()])
    assert endpoint.seen[0]["messages"] == [{"role": "user", "content": "You improve.\n\nImprove x."}]


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 100.0, "completion_tokens": 200.0},
        {"prompt_tokens": "100", "completion_tokens": "200", "total_tokens": "300"},
        {"input_tokens": 100, "output_tokens": 200},
        {"input_tokens": 10, "output_tokens": 200, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 30},
    ],
)
def test_tokens_in_other_types_and_names(endpoint: Endpoint, connect: Connect, usage: object) -> None:
    endpoint.misbehave = lambda _: as_json({"choices": [GOOD], "usage": usage})
    (result,) = connect().sample([request(n=1, user="x" * 200)])
    assert (result.prompt_tokens, result.tokens, result.estimated_tokens) == (100, 300, 0)


@pytest.mark.parametrize("route", ["", "/", "/chat/completions"])
def test_the_query_of_an_address_stays_at_the_end(endpoint: Endpoint, connect: Connect, route: str) -> None:
    url = f"{endpoint.url}{route}?api-version=1&sig=hunter2"
    client = connect(base_url=url)
    client.sample([request()])
    assert endpoint.seen[0]["path"] == "/v1/chat/completions?api-version=1&sig=hunter2"
    endpoint.misbehave = lambda _: (404, {}, b"no")
    with pytest.raises(PolicyUnavailableError) as caught:
        client.sample([request()])
    assert f"{endpoint.url}?api-version=…&sig=…" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert "usually ends in /v1" not in str(caught.value)


def test_own_headers_carry_the_key(endpoint: Endpoint, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVED_KEY", KEY)
    client = connect(api_key_env="SERVED_KEY", options={"headers": {"api-key": "{key}", "X-Title": "search"}})
    client.sample([request()])
    sent = endpoint.headers[0]
    assert (sent["api-key"], sent["X-Title"], sent.get("Authorization")) == (KEY, "search", None)
    assert KEY not in repr(vars(client))
    endpoint.headers.clear()
    connect(api_key_env="SERVED_KEY", options={"headers": {"X-Title": "search"}}).sample([request()])
    assert endpoint.headers[0]["Authorization"] == f"Bearer {KEY}"
    with pytest.raises(PolicyUnavailableError, match="--api-key-file"):
        connect(options={"headers": {"api-key": "{key}"}}).sample([request()])


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "x"},
        {"content-length": "3"},
        {"Proxy-Authorization": "{key}"},
        {"api-key": KEY},
        {"Authorization": f"Bearer {KEY}"},
        {"X-A": "a\r\nHost: b"},
        {"X A": "a"},
        {"X-A": "ü"},
    ],
)
def test_headers_that_are_reserved_or_hold_a_secret_are_refused(connect: Connect, headers: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError, match="headers") as caught:
        connect(options={"headers": headers})
    assert KEY not in str(caught.value)


def test_surplus_choices_are_dropped(endpoint: Endpoint, connect: Connect) -> None:
    endpoint.misbehave = lambda _: as_json({"choices": [{**CHOICE, "index": i} for i in range(9)]})
    assert len(connect().sample([request(n=2)])[0].completions) == 2


def test_a_refused_connection(waits: list[float]) -> None:
    with serve() as endpoint:
        url = endpoint.url
    definition = {"slug": "gone", "kind": "openai_compatible", "base_url": url, "model": "m"}
    client = OpenAICompatible(Policy.model_validate(definition), sleep=waits.append)
    with pytest.raises(
        PolicyUnavailableError, match=r"'gone' at http://127.0.0.1:\d+/v1: the connection failed \(ConnectError\)"
    ):
        client.sample([request()])
    assert len(waits) == 4
    with pytest.raises(PolicyUnavailableError, match="ConnectError"):
        client.ping()
    client.close()


@pytest.mark.parametrize("slowness", [{"delay_s": 1.0}, {"drip_s": 0.1}])
def test_a_slow_endpoint_does_not_hold_a_worker(
    endpoint: Endpoint, connect: Connect, slowness: dict[str, float]
) -> None:
    for name, value in slowness.items():
        setattr(endpoint, name, value)
    client = connect(timeout_s=0.2, options={"max_retries": 1})
    with pytest.raises(PolicyUnavailableError, match=r"within 0.2 s \(after 2 attempts\)"):
        client.sample([request()])


@contextmanager
def dripping(drip: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that applies a handler to every connection with a POST request."""

    def handle(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            if connection.recv(3, socket.MSG_PEEK) == b"GET":  # a request for metrics
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            else:
                drip(connection)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=handle, args=[listener.accept()[0]], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        listener.shutdown(socket.SHUT_RDWR)


def _head(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    for _ in range(100):
        connection.sendall(b"x")
        time.sleep(0.1)


def _body(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    for _ in range(100):
        connection.sendall(b" ")
        time.sleep(0.1)


def _taking(connection: socket.socket) -> None:
    for _ in range(100):
        connection.recv(1 << 14)
        time.sleep(0.1)


def test_an_interruption_ends_a_request_that_waits_for_its_answer(endpoint: Endpoint, connect: Connect) -> None:
    endpoint.delay_s = 60.0
    lost = threading.Event()
    threading.Timer(0.3, lost.set).start()
    with interruptible(lost), pytest.raises(PolicyUnavailableError, match="interrupted"):
        connect(options={"check": False}).sample([request()])


@pytest.mark.parametrize("drip", [_head, _body, _taking])
def test_the_timeout_covers_the_whole_request(drip: Callable[[socket.socket], None]) -> None:
    with dripping(drip) as url:
        definition = {"slug": "slow", "kind": "openai_compatible", "base_url": url, "model": "m", "timeout_s": 0.5}
        policy = Policy.model_validate(definition | {"options": {"max_retries": 0, "check": False}})
        client = OpenAICompatible(policy, ClientContext(AllowedNetworks(("loopback",))))
        begun = time.monotonic()
        with client, pytest.raises(PolicyUnavailableError, match=r"answer within 0\.5 s") as caught:
            client.sample([request(user="x" * (8 << 20) if drip is _taking else "x")])
    assert time.monotonic() - begun < 5
    assert "Raise --timeout-s" in str(caught.value)


def test_the_inference_server_gets_requests_and_a_proxy_none(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    monkeypatch.setenv(ADDRESS_VARIABLE, endpoint.url)
    policy = Policy.model_validate({"slug": "own", "kind": "embedded", "model": "m", "options": {"check": False}})
    with InferenceServerPolicy(policy) as client:
        assert client.sample([request(n=1)])[0].completions


def test_a_nested_content_coding_is_refused_unread(endpoint: Endpoint, connect: Connect, waits: list[float]) -> None:
    """Two thousand bytes can expand to a gigabyte, so the limit on a response's bytes would apply too late."""

    def packed(number: int) -> Reply:
        body = gzip.compress(as_json({"choices": [CHOICE]})[2])
        return 200, {"Content-Encoding": "gzip, gzip" if number else "gzip"}, body

    endpoint.misbehave = packed
    client = connect()
    assert client.sample([request(n=1)])[0].completions[0].text == "x"
    with pytest.raises(PolicyUnavailableError, match="content coding 'gzip, gzip', which was not requested"):
        client.sample([request(n=1)])
    assert not waits


def test_a_response_of_millions_of_values_is_refused_unparsed(endpoint: Endpoint, connect: Connect) -> None:
    """Its 12 MB, 52 kB on the wire, would take 300 MB as Python values."""
    bomb = gzip.compress(b'{"choices": [' + b"[]," * 4_000_000 + b"0]}", 1)
    endpoint.misbehave = lambda _: (200, {"Content-Encoding": "gzip"}, bomb)
    client = connect(options={"max_retries": 0})
    with pytest.raises(PolicyUnavailableError, match="commas and opening brackets: more than 4000000"):
        client.sample([request(n=1)])


def test_one_refused_request_ends_the_call_with_its_reason(endpoint: Endpoint, connect: Connect) -> None:
    endpoint.misbehave = lambda number: (404, {}, b"bad seed") if number == 5 else None
    client = connect(options={"concurrency": 2})
    with pytest.raises(PolicyUnavailableError, match="answered 404: bad seed"):
        client.sample([request(seed) for seed in range(200)])
    assert len(endpoint.seen) < 200


def test_ping_finds_the_model(endpoint: Endpoint, connect: Connect) -> None:
    assert connect().ping() == f"{endpoint.url} serves m"
    with pytest.raises(PolicyUnavailableError, match="it serves m, not 'other'"):
        connect(model="other").ping()
    endpoint.misbehave = lambda _: as_json({"data": "m"})
    with pytest.raises(PolicyUnavailableError, match="lists no models"):
        connect().ping()


def test_a_password_in_the_address_is_not_repeated(endpoint: Endpoint, connect: Connect) -> None:
    endpoint.misbehave = lambda _: (404, {}, b"no")
    with pytest.raises(PolicyUnavailableError) as caught:
        connect(base_url=endpoint.url.replace("http://", "http://user:hunter2@")).sample([request()])
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("missing", ["base_url", "model"])
def test_an_incomplete_registration_is_refused(missing: str) -> None:
    definition = {
        "slug": "p",
        "kind": "openai_compatible",
        "base_url": "http://127.0.0.1/v1",
        "model": "m",
        missing: None,
    }
    with pytest.raises(InvalidInputError, match=f"has no {missing}"):
        build_client(Policy.model_validate(definition))
