"""Every preset works with an endpoint that answers, and refuses, in the shapes of its provider."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from speciate.domain.errors import ConfigurationError, InvalidInputError, PolicyUnavailableError
from speciate.domain.policy import Policy, PolicyRole, Price
from speciate.domain.rollout import REFUSED, Prompt
from speciate.policies.openai_compatible import OpenAICompatible
from speciate.policies.prices import PRICES_VARIABLE, price_of
from speciate.policies.providers import PROVIDERS
from speciate.policies.refusals import explain_refusal, key_remedy
from speciate.ports.policy import SampleRequest
from tests.support.openai_endpoint import Endpoint, Reply, serve
from tests.support.providers import RECORDED, RecordedProvider

Connect = Callable[[dict[str, Any]], OpenAICompatible]


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serve() as served:
        yield served


@pytest.fixture
def connect(endpoint: Endpoint) -> Iterator[Connect]:
    with ExitStack() as clients:

        def make(fields: dict[str, Any]) -> OpenAICompatible:
            base = {"slug": "p", "kind": "openai_compatible", "model": "m", "sampling": {"max_tokens": 64}}
            definition = {**base, **fields, "base_url": endpoint.url}
            return clients.enter_context(OpenAICompatible(Policy.model_validate(definition)))

        yield make


def asked(n: int = 1, seed: int = 7) -> SampleRequest:
    return SampleRequest(Prompt("You improve.", "Improve x."), PolicyRole.PROPOSE, n, seed)


def as_recorded(recorded: RecordedProvider) -> Callable[[Any], Reply]:
    """Return a handler that refuses what the provider refuses and answers one completion."""

    def handle(body: dict[str, Any]) -> Reply:
        for field, refusal in recorded.refused.items():
            if field in body and (field, body[field]) != ("n", 1):
                return 400, {}, json.dumps(refusal).encode()
        return 200, {}, json.dumps(recorded.answer).encode()

    return handle


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_preset_fits_its_provider(endpoint: Endpoint, connect: Connect, name: str) -> None:
    """Nothing is refused, the endpoint passes its check, and every token is counted."""
    recorded = RECORDED[name]
    endpoint.models = () if recorded.models is None else (recorded.models,)
    endpoint.routes["chat/completions"] = as_recorded(recorded)
    n = 3 if PROVIDERS[name].fields.get("n", 1) is None else 1
    client = connect(PROVIDERS[name].policy_fields({}))
    client.ping()
    (result,) = client.sample([asked(n)])
    assert result.tokens <= client.token_ceiling(asked(n))
    assert [c.text for c in result.completions] == [recorded.text] * n
    assert [c.tokens for c in result.completions] == [recorded.tokens] * n
    assert [c.reasoning_tokens for c in result.completions] == [recorded.reasoning] * n
    assert result.prompt_tokens == 11 * n


@pytest.mark.parametrize(
    ("name", "field"), [(name, field) for name, each in RECORDED.items() for field in each.refused]
)
def test_a_refusal_names_the_option_that_fixes_it(endpoint: Endpoint, connect: Connect, name: str, field: str) -> None:
    """Following the remedies, one refusal at a time, ends with an answer."""
    endpoint.routes["chat/completions"] = as_recorded(RECORDED[name])
    fields: dict[str, Any] = {
        "options": {"check": False},
        "sampling": {"max_tokens": 64, "logprobs": field == "logprobs"},
    }
    remedies: list[str] = []
    for _ in range(1 + len(RECORDED[name].refused)):
        try:
            connect(fields).sample([asked(2)])
            break
        except PolicyUnavailableError as error:
            remedies.append(error.remedy or "")
            fields = changed(fields, remedies[-1])
    else:
        pytest.fail(f"still refused: {remedies}")
    assert any(field in remedy for remedy in remedies)


def changed(fields: dict[str, Any], remedy: str) -> dict[str, Any]:
    """Return the policy fields after the options in a remedy."""
    if "logprobs=false" in remedy:
        return {**fields, "sampling": {**fields["sampling"], "logprobs": False}}
    option = remedy.partition("'fields=")[2].partition("'")[0]
    return {**fields, "options": {**fields["options"], "fields": json.loads(option)}}


def test_fields_are_renamed_omitted_and_fixed(endpoint: Endpoint, connect: Connect) -> None:
    options = {
        "fields": {"max_tokens": "max_completion_tokens", "seed": None, "reasoning_effort": "reasoning.effort"},
        "reasoning_effort": "low",
        "extra_body": {"temperature": 0.25, "top_k": 5},
    }
    endpoint.routes["chat/completions"] = as_recorded(RECORDED["ollama"])
    sent: list[Any] = []
    answer = endpoint.routes["chat/completions"]
    endpoint.routes["chat/completions"] = lambda body: sent.append(body) or answer(body)
    connect({"options": options}).sample([asked()])
    sent[0].pop("messages")
    assert sent == [
        {"model": "m", "n": 1, "temperature": 0.25, "top_p": 1.0, "max_completion_tokens": 64, "stream": False}
        | {"reasoning": {"effort": "low"}, "top_k": 5}
    ]


def test_without_n_each_completion_has_a_request_and_a_seed(endpoint: Endpoint, connect: Connect) -> None:
    """Completions of one prompt differ, and equal requests get equal completions."""
    client = connect({"options": {"fields": {"n": None}}})
    endpoint.routes["chat/completions"] = lambda body: (
        200,
        {},
        json.dumps({**RECORDED["ollama"].answer, "choices": [choice(body["seed"])]}).encode(),
    )
    first, second = client.sample([asked(4, seed=1), asked(2, seed=2)])
    texts = [completion.text for completion in (*first.completions, *second.completions)]
    assert len(set(texts)) == 6
    assert [completion.text for completion in client.sample([asked(4, seed=1)])[0].completions] == texts[:4]


def choice(seed: int) -> dict[str, Any]:
    return {"index": 0, "message": {"content": f"x = {seed}"}, "finish_reason": "stop"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"fields": {"seed": "temperature.seed"}}, "two values as temperature.seed"),
        ({"fields": {"n": "max_tokens"}}, "two values as max_tokens"),
        ({"extra_body": {"n": 4}}, "extra_body sets n"),
        ({"extra_body": {"max_completion_tokens": 9}}, "extra_body sets max_completion_tokens"),
        ({"fields": {"max_tokens": None}}, "omits max_tokens"),
        (
            {"fields": {"reasoning_effort": None}, "reasoning_effort": "low"},
            "reasoning_effort is set, and fields omits",
        ),
        ({"fields": {"seed": "messages"}}, "renames a field to messages"),
        ({"fields": {"tempreature": None}}, "fields"),
        ({"fields": {"seed": "a b"}}, "fields"),
    ],
)
def test_options_that_break_budgets_are_refused(
    endpoint: Endpoint, connect: Connect, options: dict[str, Any], expected: str
) -> None:
    with pytest.raises(InvalidInputError, match=expected):
        connect({"options": options})


def test_other_refusals_are_answers_with_the_general_remedy(endpoint: Endpoint, connect: Connect) -> None:
    """Unknown words may be about the prompt."""
    refusals = (
        b'{"error": "no"}',
        b"[" * 50_000,
        b'{"detail": [{"loc": ["body", "messages"], "msg": "bad"}]}',
        b"\xff",
    )
    for body in refusals:
        endpoint.routes["chat/completions"] = lambda _, body=body: (400, {}, body)
        (result,) = connect({"options": {"check": False}}).sample([asked()])
        assert (result.completions[0].finish_reason, result.tokens) == (REFUSED, 0)
        said, _, remedy = result.completions[0].text.partition("\n")
        assert said.startswith("it answered 400: ")
        assert "Correct the policy's model" in remedy


def test_a_place_of_fastapi_names_the_field(endpoint: Endpoint, connect: Connect) -> None:
    detail = [{"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "Extra inputs are not permitted", "input": 7}]
    endpoint.routes["chat/completions"] = lambda _: (422, {}, json.dumps({"detail": detail}).encode())
    with pytest.raises(PolicyUnavailableError, match="to omit seed"):
        connect({"options": {"check": False}}).sample([asked()])


def test_prices_come_from_the_users_table_first(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PRICES_VARIABLE, raising=False)
    shipped = price_of("openai", "gpt-5.4")
    assert shipped is not None
    assert shipped.price == Price(input=2.5, output=15)
    assert "2026-11-25" in shipped.origin
    assert price_of("openai", "no-such-model") is None
    table = tmp_path / "prices.toml"
    table.write_text('"openai/gpt-5.4" = { input = 1, output = 2 }\n"my-model" = { output = 3 }\n')
    monkeypatch.setenv(PRICES_VARIABLE, str(table))
    found = price_of("openai", "gpt-5.4")
    assert found is not None
    assert (found.price, found.origin) == (Price(input=1, output=2), f"from {table}")
    own = price_of("vllm", "my-model")
    assert own is not None
    assert own.price.cost(10, 1_000_000) == 3
    for wrong in ("x = [", "m = { input = -1 }", "m = { inptu = 1 }"):
        table.write_text(wrong)
        with pytest.raises(ConfigurationError, match=r"prices\.toml"):
            price_of("openai", "m")
    monkeypatch.setenv(PRICES_VARIABLE, "~nouser/prices.toml")
    with pytest.raises(ConfigurationError, match=r"~nouser/prices\.toml"):
        price_of("openai", "gpt-5.4")
    monkeypatch.setenv(PRICES_VARIABLE, str(tmp_path / "absent.toml"))
    with pytest.raises(ConfigurationError, match=r"absent\.toml"):
        price_of("openai", "m")


def test_the_limit_of_tokens_wins_over_further_fields(endpoint: Endpoint, connect: Connect) -> None:
    options = {
        "fields": {"max_tokens": "options.num_predict", "n": None, "reasoning_effort": "reasoning.effort"},
        "reasoning_effort": "low",
        "extra_body": {"options": {"num_ctx": 8192, "num_predict": -1}, "reasoning": {"exclude": True}},
    }
    answer, sent = as_recorded(RECORDED["ollama"]), list[Any]()
    endpoint.routes["chat/completions"] = lambda body: sent.append(body) or answer(body)
    connect({"options": options}).sample([asked()])
    assert sent[0]["options"] == {"num_ctx": 8192, "num_predict": 64}
    assert sent[0]["reasoning"] == {"effort": "low", "exclude": True}


PROMPT = (
    "This model's maximum context length is 32768 tokens, your request has 33000 input tokens.",
    "the prompt has 9000 tokens: this model reads 8192 at most",
    "Please reduce the length of the messages or completion.",
    "prompt is too long: 210000 tokens > 200000 maximum",
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease one of them",
    "the request exceeds the available context size, try increasing it",
    "Range of input length should be [1, 30720]",
    "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000",
    (
        "Request too large for model `llama` on tokens per minute (TPM): Limit 6000, Requested 9000, please reduce your"
        " message size and try again. Need more tokens? Upgrade at https://console.groq.com/settings/billing"
    ),
    (
        "'max_tokens' or 'max_completion_tokens' is too large: 16384. This model's maximum context length is 32768"
        " tokens and your request has 18954 input tokens (16384 > 32768 - 18954)."
    ),
    "Trying to keep the first 9000 tokens when context the overflows. However, the context length is only 4096 tokens",
)
CREDIT = (
    "Your credit balance is too low to access the API.",
    "Spend limit reached. Raise it at https://console.groq.com/settings/billing/limits",
    "Your account is not active, please visit https://platform.openai.com/account/billing",
    "No credits left. Purchase more: https://console.x.ai/team/default/billing",
)
FILTER = (
    "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
    "Content Exists Risk",
    "Input data may contain inappropriate content.",
    "Invalid prompt: your prompt was flagged as potentially violating our usage policy.",
    "Output blocked by content filtering policy",
)
LOWER = (
    "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
    "Range of max_tokens should be [1, 8192]",
    "'max_tokens' or 'max_completion_tokens' is too large: 20000. This model's maximum context length is 8192 tokens",
    "max_tokens: 64000 > 8192, which is the maximum allowed number of output tokens for claude",
    "`max_tokens` must be less than or equal to `8192`, the maximum value is less than the `context_window`",
    "max_tokens is too large: 100000. This model supports at most 16384 completion tokens",
    "too many tokens: max tokens must be less than or equal to 4096, the maximum output length for this model",
)
SYSTEM = (
    "System role not supported",
    "Developer instruction is not enabled for models/gemma-3-27b-it",
    "Unsupported value: 'messages[0].role' does not support 'system' with this model.",
    "Only user and assistant roles are supported!",
    "Conversation roles must alternate user/assistant/user/assistant/...",
    "`system` role is not supported by this model",
)
STREAM = (
    "Requests with max_tokens > 4096 must have stream=true",
    "This model only support stream mode, please enable the stream parameter to access the model.",
    "parameter.enable_thinking must be set to false for non-streaming calls",
    "Stream must be set to true",
)
SINGLE = ("Only one completion choice is allowed", "n > 1 is not supported", "Multiple candidates is not enabled")
OMIT = (
    "Unrecognized request argument supplied: reasoning_effort",
    '"qwen" does not support thinking',
    "litellm.UnsupportedParamsError: m does not support parameters: ['reasoning_effort'], for model=m.",
    'Invalid JSON payload received. Unknown name "reasoning_effort": Cannot find field.',
)


@pytest.mark.parametrize(
    ("messages", "remedy", "of_prompt"),
    [
        (PROMPT, "--max-tokens of `speciate evolve`", True),
        (FILTER, "filter refused the prompt", True),
        (LOWER, "--sampling max_tokens=", False),
        (SYSTEM, "--option system_role=user", False),
        (STREAM, "--option stream=true", False),
        (SINGLE, '{"n": null}', False),
        (OMIT, '{"reasoning_effort": null}', False),
        (("unknown field add_generation_prompt",), "--prompt-style compact", False),
        (("API key not valid. Please pass a valid API key.",), "key", False),
        (CREDIT, "Add credit", False),
        (("chat template is not set: you must provide a chat template",), "--prompt-format completion", False),
        (("Model Not Exist", "gpt is not a valid model ID"), "the policy's model", False),
    ],
)
def test_a_refusal_names_what_helps(messages: tuple[str, ...], remedy: str, *, of_prompt: bool) -> None:
    policy = Policy(slug="p", kind="openai_compatible", model="m")
    payload = {
        "messages": [{"role": "system", "content": "x"}],
        "n": 4,
        "max_tokens": 9,
        "add_generation_prompt": False,
    }
    for message in messages:
        explained = explain_refusal(json.dumps([{"error": {"message": message}}]).encode(), payload, policy)
        assert explained is not None, message
        assert (remedy in explained.remedy, explained.of_prompt) == (True, of_prompt), (message, explained)


def test_the_command_in_a_remedy_registers_the_policy_with_the_change() -> None:
    fields = {"slug": "p", "kind": "openai_compatible", "base_url": "http://127.0.0.1:9/v1", "model": "m"}
    policy = Policy.model_validate({**fields, "options": {"backoff_s": 0.5, "stream": False}})
    refusal = explain_refusal(b'{"error": {"message": "stream must be true"}}', {}, policy)
    assert refusal is not None
    assert "--kind openai_compatible --base-url http://127.0.0.1:9/v1 --model m" in refusal.remedy
    assert "--option backoff_s=0.5 --option stream=true`, and pass --policy p in place of --model" in refusal.remedy


@pytest.mark.parametrize(
    ("base_url", "variable"), [("http://127.0.0.1:9/v1", "POLICY_KEY"), ("https://api.openai.com/v1", "OPENAI_API_KEY")]
)
def test_a_wrong_key_names_the_variable_of_its_address(base_url: str, variable: str) -> None:
    policy = Policy(slug="p", kind="openai_compatible", base_url=base_url, model="m")
    assert f"Put the right key into {variable} for" in key_remedy(policy)


def test_the_code_of_a_refusal_is_read(endpoint: Endpoint, connect: Connect) -> None:
    refusal = {"error": {"message": "Bad Request", "code": "context_length_exceeded"}}
    endpoint.routes["chat/completions"] = lambda _: (400, {}, json.dumps(refusal).encode())
    (result,) = connect({"options": {"check": False}}).sample([asked()])
    assert "--prompt-tokens" in result.completions[0].text
