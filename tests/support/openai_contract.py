"""Conformance suite for inference servers: inherit ``OpenAIContract``; vLLM and the bundled server pass it.

Numbers are compared with those of ``ReferenceModel``, computed from the served checkpoint.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import pytest
from tokenizers import Tokenizer

from speciate.domain.policy import PolicyRole, Sampling
from speciate.domain.rollout import Prompt
from speciate.domain.run import RunSpec, RunState
from speciate.policies.openai_compatible import OpenAICompatible
from speciate.policies.openai_wire import model_cards
from speciate.ports.policy import SampleRequest
from tests.support.fault_proxy import Fault, fault_proxy
from tests.support.reference_model import ReferenceModel
from tests.support.served_run import FinishedRun, served_policy, served_run

TOLERANCE: Final = 1e-4
"""Largest difference of a log-probability."""

_PROMPTS: Final = ("S00 .01 G02 .12 E22 <b9> <one>", "S60 .50 .40 G41 .31 .21 E20 <b12> <one>")


@dataclass(frozen=True)
class ServedModel:
    """A served checkpoint.

    Attributes:
        url: Base URL.
        name: Name of the model.
        folder: Folder of the checkpoint.
    """

    url: str
    name: str
    folder: Path

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Tokenizer of the checkpoint."""
        return Tokenizer.from_file(str(self.folder / "tokenizer.json"))

    @cached_property
    def reference(self) -> ReferenceModel:
        """Reference implementation of the checkpoint."""
        return ReferenceModel(self.folder)

    def post(self, route: str, body: dict[str, Any]) -> httpx.Response:
        """Send a POST request."""
        body = {"model": self.name, **body}
        return httpx.post(f"{self.url}/{route}", json=body, timeout=120, trust_env=False, verify=False)

    def get(self, path: str) -> httpx.Response:
        """Read a route of the server that is not below the base URL."""
        return httpx.get(self.url.removesuffix("/v1") + path, timeout=30, trust_env=False, verify=False)

    def complete(self, prompt: str = _PROMPTS[0], **changes: Any) -> dict[str, Any]:
        """Return the response to a completion request."""
        asked = {"prompt": prompt, "max_tokens": 12, "seed": 5, "temperature": 1.0, "logprobs": 0}
        return self._good(self.post("completions", asked | changes))

    def chat(self, content: str, **changes: Any) -> dict[str, Any]:
        """Return the response to a chat request with one message."""
        asked = {"messages": [{"role": "user", "content": content}], "max_tokens": 12, "seed": 5, "temperature": 1.0}
        return self._good(self.post("chat/completions", asked | changes))

    def ids(self, text: str) -> list[int]:
        """Return the tokens of a prompt."""
        return list(self.tokenizer.encode(text).ids)

    def drawn(self, choice: dict[str, Any]) -> list[int]:
        """Return the tokens of a completion, as listed with its log-probabilities."""
        ids = [self.tokenizer.token_to_id(token) for token in choice["logprobs"]["tokens"]]
        assert None not in ids
        return [token for token in ids if token is not None]

    def _good(self, answer: httpx.Response) -> dict[str, Any]:
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body


class OpenAIContract(ABC):
    """The suite. ``plain`` has the vocabulary of mazes and no chat template; ``chatty`` has one token for each byte."""

    @abstractmethod
    @pytest.fixture
    def plain(self) -> ServedModel:
        """A bundled checkpoint of the task ``maze``."""

    @abstractmethod
    @pytest.fixture
    def chatty(self) -> ServedModel:
        """A checkpoint with a chat template."""

    def test_models_are_listed(self, plain: ServedModel) -> None:
        """The model list has names, context lengths, and the identity of the weights."""
        cards = {card.id: card for card in model_cards(plain.get("/v1/models").content)}
        assert cards[plain.name].max_model_len == 256
        assert cards[plain.name].digest or cards[plain.name].root == str(plain.folder)

    def test_health(self, plain: ServedModel) -> None:
        """A server that can answer says so."""
        assert plain.get("/health").status_code == 200

    def test_n_choices_with_exact_usage(self, plain: ServedModel) -> None:
        """Every choice has its index; usage counts the prompt once and every sampled token, including the end."""
        body = plain.complete(n=8)
        assert sorted(choice["index"] for choice in body["choices"]) == list(range(8))
        drawn = [plain.drawn(choice) for choice in body["choices"]]
        read = len(plain.ids(_PROMPTS[0]))
        total = sum(map(len, drawn))
        usage = {key: body["usage"][key] for key in ("prompt_tokens", "completion_tokens", "total_tokens")}
        assert usage == {"prompt_tokens": read, "completion_tokens": total, "total_tokens": read + total}
        for choice, tokens in zip(body["choices"], drawn, strict=True):
            ended = plain.tokenizer.id_to_token(tokens[-1]) == "<eos>"
            assert choice["finish_reason"] == ("stop" if ended else "length")
            assert len(tokens) == 12 or ended
            assert choice["text"].split() == plain.tokenizer.decode(tokens).split()

    def test_a_seed_decides(self, plain: ServedModel) -> None:
        """Equal seeds give equal texts, other seeds other texts, and without a seed texts vary."""
        texts = [[c["text"] for c in plain.complete(n=6, seed=seed)["choices"]] for seed in (1, 1, 2)]
        assert texts[0] == texts[1] != texts[2]
        assert len({plain.complete(seed=None, temperature=2.0)["choices"][0]["text"] for _ in range(4)}) > 1

    @pytest.mark.parametrize("prompt", _PROMPTS)
    def test_temperature_zero_takes_the_likeliest(self, plain: ServedModel, prompt: str) -> None:
        """At temperature 0 every token is the likeliest of the reference, whatever the seed."""
        (choice,) = plain.complete(prompt, temperature=0)["choices"]
        tokens = plain.drawn(choice)
        read = tuple(plain.ids(prompt))
        for place, token in enumerate(tokens):
            assert token == int(plain.reference.next_logprobs((*read, *tokens[:place])).argmax())
        assert plain.complete(prompt, temperature=0, seed=9)["choices"][0]["text"] == choice["text"]

    @pytest.mark.parametrize("sampling", [{}, {"temperature": 0.7}, {"top_p": 0.9}])
    def test_logprobs_are_the_checkpoints(self, plain: ServedModel, sampling: dict[str, float]) -> None:
        """Log-probabilities are those of the model, before temperature and top-p."""
        for prompt in _PROMPTS:
            for choice in plain.complete(prompt, n=4, **sampling)["choices"]:
                expected = plain.reference.logprobs(plain.ids(prompt), plain.drawn(choice))
                assert np.allclose(choice["logprobs"]["token_logprobs"], expected, atol=TOLERANCE, rtol=0)

    def test_runs_keep_ids_and_log_probabilities_of_every_token(self, plain: ServedModel, chatty: ServedModel) -> None:
        """A request that keeps tokens gets an id and the raw log-probability of every token, end included."""
        for served, form in ((plain, "completion"), (chatty, "chat")):
            policy = served_policy(served.url, served.name, prompt_format=form)
            request = SampleRequest(Prompt("", _PROMPTS[0]), PolicyRole.PROPOSE, n=4, seed=5, keep_tokens=True)
            with OpenAICompatible(policy.model_copy(update={"sampling": Sampling(max_tokens=12)})) as client:
                (result,) = client.sample([request])
            read = served.ids(_PROMPTS[0] if form == "completion" else f"[user] {_PROMPTS[0]}\n[assistant] ")
            for completion in result.completions:
                assert len(completion.token_ids) == len(completion.logprobs) == completion.tokens > 0
                expected = served.reference.logprobs(read, list(completion.token_ids))
                assert np.allclose(completion.logprobs, expected, atol=TOLERANCE, rtol=0)

    def test_top_logprobs_name_the_likeliest(self, plain: ServedModel) -> None:
        """Every position lists the likeliest tokens with their log-probabilities."""
        (choice,) = plain.complete(logprobs=3)["choices"]
        read, tokens = tuple(plain.ids(_PROMPTS[0])), plain.drawn(choice)
        for place, tops in enumerate(choice["logprobs"]["top_logprobs"]):
            row = plain.reference.next_logprobs((*read, *tokens[:place]))
            for token in np.argsort(-row)[:3]:
                assert abs(tops[plain.tokenizer.id_to_token(int(token))] - row[token]) <= TOLERANCE

    def test_top_p_leaves_the_tail_out(self, plain: ServedModel) -> None:
        """Every sampled token belongs to the nucleus."""
        for choice in plain.complete(n=8, top_p=0.6, temperature=2.0)["choices"]:
            read, tokens = tuple(plain.ids(_PROMPTS[0])), plain.drawn(choice)
            for place, token in enumerate(tokens):
                mass = np.exp(plain.reference.next_logprobs((*read, *tokens[:place])) / 2.0)
                mass /= mass.sum()
                assert mass[mass > mass[token] + 1e-6].sum() < 0.6 + 1e-4
        greedy = plain.complete(temperature=0)["choices"][0]["text"]
        assert plain.complete(top_p=1e-6)["choices"][0]["text"] == greedy

    def test_a_stop_string_ends_the_text_before_it(self, plain: ServedModel) -> None:
        """A stop string is not part of the text, and the finish reason is ``stop``."""
        (whole,) = plain.complete(temperature=0)["choices"]
        word = whole["text"].split()[3]
        (choice,) = plain.complete(temperature=0, stop=["never", word])["choices"]
        assert choice["finish_reason"] == "stop"
        assert choice["text"].rstrip() == whole["text"][: whole["text"].index(word)].rstrip()

    def test_max_tokens_cuts(self, plain: ServedModel) -> None:
        """``max_tokens`` is exact, and the finish reason is ``length``."""
        body = plain.complete(temperature=0, max_tokens=3)
        assert body["usage"]["completion_tokens"] == 3
        assert body["choices"][0]["finish_reason"] == "length"

    @pytest.mark.parametrize("prompts", [list(_PROMPTS), [[66, 165, 3], [67, 166, 3]]])
    def test_several_prompts_are_answered_in_order(self, plain: ServedModel, prompts: list[Any]) -> None:
        """Several prompts, as texts or tokens, are answered like single ones."""
        both = plain.post("completions", {"prompt": prompts, "max_tokens": 6, "temperature": 0}).json()["choices"]
        alone = [plain.complete(prompt, max_tokens=6, temperature=0)["choices"][0]["text"] for prompt in prompts]
        assert [choice["text"] for choice in sorted(both, key=lambda choice: choice["index"])] == alone

    def test_neighbours_do_not_matter(self, plain: ServedModel) -> None:
        """Sixteen concurrent requests are answered like single ones."""

        def ask(seed: int) -> list[str]:
            return [choice["text"] for choice in plain.complete(_PROMPTS[seed % 2], n=2, seed=seed)["choices"]]

        alone = [ask(seed) for seed in range(16)]
        with ThreadPoolExecutor(16) as pool:
            assert list(pool.map(ask, range(16))) == alone

    def test_chat_equals_completion_of_the_template(self, chatty: ServedModel) -> None:
        """Chat equals completion of the rendered template, including usage and log-probabilities."""
        body = chatty.chat("Improve x → y.", temperature=0, logprobs=True, n=1)
        (choice,) = body["choices"]
        filled = "[user] Improve x → y.\n[assistant] "
        completed = chatty.complete(filled, temperature=0, seed=1)
        assert choice["message"]["role"] == "assistant"
        assert choice["message"]["content"] == completed["choices"][0]["text"]
        assert body["usage"]["prompt_tokens"] == len(filled.encode()) == completed["usage"]["prompt_tokens"]
        assert body["usage"]["completion_tokens"] == completed["usage"]["completion_tokens"]
        found = [place["logprob"] for place in choice["logprobs"]["content"]]
        assert np.allclose(found, completed["choices"][0]["logprobs"]["token_logprobs"], atol=TOLERANCE, rtol=0)
        opened = [{"role": "user", "content": "Improve x → y."}, {"role": "assistant", "content": "Begin:"}]
        continues = {"messages": opened, "add_generation_prompt": False, "continue_final_message": True}
        continued = chatty.chat("", temperature=0, **continues)
        completed = chatty.complete(f"{filled}Begin:", temperature=0, seed=1)
        assert continued["choices"][0]["message"]["content"] == completed["choices"][0]["text"]
        several, again = (chatty.chat("x", n=3, temperature=1.5, seed=2)["choices"] for _ in range(2))
        assert [choice["message"] for choice in several] == [choice["message"] for choice in again]

    @pytest.mark.parametrize(
        "changes",
        [
            {"prompt": " ".join([".01"] * 300)},
            {"max_tokens": 300},
            {"max_tokens": 0},
            {"n": 0},
            {"n": "x"},
            {"temperature": -1},
            {"top_p": 0},
            {"top_p": 1.5},
            {"logprobs": 50},
            {"stop": ""},
            {"prompt": ""},
            {"prompt": [99999]},
            {"structured_outputs": {"regex": "("}},
        ],
    )
    def test_invalid_requests_are_refused(self, plain: ServedModel, changes: dict[str, Any]) -> None:
        """Invalid requests get 400 and a message, and the server keeps running."""
        asked = {"prompt": _PROMPTS[0], "max_tokens": 4, **changes}
        refused = plain.post("completions", asked)
        assert refused.status_code == 400, refused.text
        error = refused.json()["error"]
        assert error["message"]
        assert error["code"] == 400

    def test_unknown_models_routes_and_broken_bodies(self, plain: ServedModel) -> None:
        """404 names the unknown model, a missing chat template is reported, and invalid JSON gets 400."""
        unknown = plain.post("completions", {"model": "nope", "prompt": "x"})
        assert unknown.status_code == 404
        assert "nope" in unknown.json()["error"]["message"]
        chat = plain.post("chat/completions", {"messages": [{"role": "user", "content": "x"}]})
        assert chat.status_code == 400
        assert "chat template" in chat.json()["error"]["message"]
        assert plain.get("/v1/nothing").status_code == 404
        headers = {"Content-Type": "application/json"}
        broken = httpx.post(f"{plain.url}/completions", content=b"{", headers=headers, trust_env=False)
        assert broken.status_code == 400
        assert plain.complete(max_tokens=1)

    # Five answers: at the sixth that is cut off, a run pauses before its budget is spent.
    @pytest.mark.parametrize("budget", [{"evaluations": 6}, {"evaluations": 100, "tokens": 4500}])
    def test_lost_answers_are_charged_within_the_budget(self, chatty: ServedModel, budget: dict[str, int]) -> None:
        """A run in which every second request fails makes the same choices, and counts at least what was computed."""
        spec = RunSpec.model_validate({"budget": budget, "lanes": 1, "batch": 4, "samples_per_prompt": 2, "seed": 3})
        faults = [Fault.CUT, Fault.SWALLOWED, Fault.GARBLED, Fault.ERROR, Fault.DROPPED, Fault.BUSY]
        with fault_proxy(chatty.url) as proxy:
            began = time.monotonic()
            chatty.complete("x" * 1500, n=2, max_tokens=24)
            # Long enough for every answer that arrives, even on a busy machine.
            policy = served_policy(proxy.url, chatty.name, timeout_s=1.0 + 6 * (time.monotonic() - began))
            smooth = served_run(policy, spec)
            asked, computed = proxy.asked, sum(proxy.computed)
            proxy.asked, proxy.computed = 0, []
            proxy.faults = lambda number: faults[number // 2 % len(faults)] if number % 2 == 0 else None
            rough = served_run(policy, spec)
        # A budget without one readable answer, as this model may spend it, ends paused.
        assert smooth.progress.state in {RunState.COMPLETED, RunState.PAUSED}
        assert smooth.progress.live == smooth.progress.reserved_tokens == 0
        assert smooth.progress.tokens == smooth.booked_tokens <= computed
        assert smooth.progress.estimated_tokens == 0
        assert rough.progress.reserved_tokens == 0
        if "tokens" in budget:  # lost answers use up the budget
            assert rough.progress.tokens <= budget["tokens"]
            assert rough.progress.evaluations < smooth.progress.evaluations
            return
        assert _without_tokens(rough) == _without_tokens(smooth)
        assert proxy.asked > 1.5 * asked
        assert rough.progress.tokens > smooth.progress.tokens
        assert rough.progress.evaluations == budget["evaluations"]


def _without_tokens(run: FinishedRun) -> list[tuple[object, object]]:
    return [(e.kind, {name: value for name, value in e.data.items() if name != "tokens"}) for e in run.events]
