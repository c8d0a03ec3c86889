"""Check an endpoint before use: health, model, weights, and LoRA adapters, which are loaded."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from speciate.domain.policy import Policy, Probe
from speciate.domain.suggestions import nearest
from speciate.policies.http_endpoint import HttpEndpoint, TransientError
from speciate.policies.identity import WeightsIdentity, check_length, identify
from speciate.policies.numbers import read_json, read_number, sum_of_counts
from speciate.policies.openai_options import OpenAICompatibleOptions
from speciate.policies.openai_wire import EndpointMismatchError, ModelCard, error_message, model_cards
from speciate.policies.providers import provider_at
from speciate.policies.verification import Verdict, Verification, verify
from speciate.prompts.text import bounded, printable

Send = Callable[[str, str, Mapping[str, Any] | None], tuple[int, bytes]]
"""Send ``(method, path, body)``; return status and body."""

_OURS: Final = re.compile(r"-[0-9a-f]{12}$")
_STATE: Final = re.compile(r"^vllm:lora_requests_info\{([^}\n]*)\} +([0-9.eE+]+)", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')
_WORK: Final = re.compile(r"^vllm:num_requests_(?:running|waiting)(?:\{[^}\n]*\})? +([0-9.eE+]+)", re.MULTILINE)
_MOST_SHOWN: Final = 300


class EndpointCheck:
    """Check of one endpoint for one policy, to be run repeatedly."""

    def __init__(self, policy: Policy, options: OpenAICompatibleOptions, endpoint: HttpEndpoint) -> None:
        self._policy, self._model = policy, policy.model or ""
        self._options, self._endpoint = options, endpoint
        self.verification: Verification | None = None

    def run(self) -> WeightsIdentity:
        """Return the identity of the served model; load the policy's adapter if its path is known."""
        cards = self._cards()
        # LiteLLM's route would ask all of its models.
        if any(c.max_model_len for c in cards) and (status := self._endpoint.query("GET", "/health", None)[0]) >= 500:
            raise TransientError(
                f"it is unhealthy: GET /health answers {status}",
                remedy="See the endpoint's log, or wait until it is ready.",
            )
        card = self._find(cards)
        if card is None and self._options.adapter_path is not None:
            load_adapter(self._model, self._options.adapter_path, cards, self._endpoint.query)
            cards = self._cards()
            card = self._find(cards)
        if card is None:
            provider = provider_at(self._policy.base_url or "")
            load = f" (`{provider.load.format(model=self._model)}`)" if provider is not None and provider.load else ""
            raise EndpointMismatchError(
                f"it serves {_names(cards, self._model)}, not {self._model!r}",
                "Pass the name it has there (--model NAME; to `speciate evolve` --model ADDRESS#NAME or PROVIDER/NAME),"
                f" or serve it under that name{load}.",
            )
        self._check_adapter(card, cards)
        check_length(self._policy, card, cards)
        identity = identify(self._policy, card, cards)
        if self._policy.probe is not None and self.verification is None:
            self.verification = self._verified(self._policy.probe, card, cards)
        return replace(identity, verification=self.verification)

    def _verified(self, probe: Probe, card: ModelCard, cards: Sequence[ModelCard]) -> Verification | None:
        root = card.parent or self._options.base_model
        related = [other.id for other in cards if root and root in (other.id, other.parent) and other.id != card.id]
        verification = verify(probe, self._model, related, self._complete)
        if verification is not None and verification.verdict not in (Verdict.OK, Verdict.UNCHANGED):
            raise EndpointMismatchError(
                f"{self._model} answers with {verification.said}", verification.verdict.value[1]
            )
        return verification

    def _complete(self, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        status, answer = self._endpoint.query("POST", "completions", self._options.apply(body))
        response = read_json(answer) if status == 200 else None
        return response if isinstance(response, dict) else None

    def _cards(self) -> list[ModelCard]:
        status, body = self._endpoint.query("GET", "models", None)
        if status == 200:
            return model_cards(body)
        if status in (404, 405):
            raise EndpointMismatchError(
                f"it lists no models: GET models answers {status}",
                "Correct base_url (it usually ends in /v1); for a gateway without the list set the option check=false.",
            )
        return model_cards(self._endpoint.check("GET", "models", None))

    def _find(self, cards: Sequence[ModelCard]) -> ModelCard | None:
        # Gemini lists ``models/NAME``, and Ollama adds the default tag; requests use the plain name. OpenRouter takes
        # ``MAKER/NAME:VARIANT`` for ``MAKER/NAME``.
        names = [self._model, f"models/{self._model}", f"{self._model}:latest"]
        names += [self._model.rpartition(":")[0]] if "/" in self._model and ":" in self._model else []
        return next((card for name in names for card in cards if card.id == name), None)

    def _check_adapter(self, card: ModelCard, cards: Sequence[ModelCard]) -> None:
        base, path = self._options.base_model, self._options.adapter_path
        if base is not None and base not in (other.id for other in cards):
            raise EndpointMismatchError(
                f"it serves {_names(cards, base)}, not the base model {base!r}",
                "Correct the policy's base_model, or serve it under that name.",
            )
        if base is not None and card.parent not in (None, base):
            raise EndpointMismatchError(
                f"{card.id} is an adapter of {card.parent}, not of {base}", "Correct the option base_model."
            )
        if path is not None and card.root not in (None, path):
            raise EndpointMismatchError(
                f"{card.id} is loaded from {card.root}, not from {path}",
                "Unload it on the server, or register the adapter under another model name.",
            )


def _names(cards: Sequence[ModelCard], wanted: str) -> str:
    """Return the first names in a list of models, those near the wanted one before all others."""
    ids = [card.id for card in cards]
    names = dict.fromkeys([*nearest(wanted, ids), *ids])
    return bounded(printable(", ".join([*names][:10])), _MOST_SHOWN) or "no model"


def adapter_name(slug: str, digest: str | None) -> str:
    """Return the name under which an adapter is loaded; it depends on the weights.

    vLLM does not read an adapter of a known name again and caches prompts by the adapter's name and path: new weights
    under an old name would have the old weights answer.
    """
    return slug if digest is None else f"{slug}-{digest[:12]}"


def load_adapter(name: str, path: str, cards: Sequence[ModelCard], send: Send) -> None:
    """Load an adapter, unloading idle ones of ours if there is no free slot; raises ``EndpointMismatchError``."""
    _free_slot(cards, send)
    status, body = send("POST", "load_lora_adapter", {"lora_name": name, "lora_path": path})
    answer = error_message(body)
    if status == 200 or "already been loaded" in answer:
        return
    models = ", ".join(card.id for card in cards[:10]) or "no model"
    if status in (404, 405, 501) and path not in answer:
        raise EndpointMismatchError(
            f"it serves {models}, not the adapter {name}, and cannot load adapters at run time",
            "Start vLLM with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True, on a private network only, or"
            f" with --lora-modules {name}={path}.",
        )
    raise EndpointMismatchError(
        f"it does not load the adapter {path}: it answered {status}: {answer[:300]}",
        "Check that the path exists on the server's machine, and that --max-lora-rank and base model fit the adapter.",
    )


def _free_slot(cards: Sequence[ModelCard], send: Send) -> None:
    """Unload idle adapters that we loaded, the oldest first, until there is a free slot; leave others alone."""
    status, body = send("GET", "/metrics", None)
    metrics = body.decode("utf-8", "replace") if status == 200 else ""
    states = [(read_number(value) or 0.0, dict(_LABEL.findall(labels))) for labels, value in _STATE.findall(metrics)]
    state = max(states, key=lambda pair: pair[0])[1] if states else {}
    if (slots := read_number(state.get("max_lora"))) is None:
        return
    loaded = [card.id for card in cards if card.parent is not None]
    busy: set[str] = set()
    # The state is updated by each step: an idle server still reports the adapters of its last step.
    if sum_of_counts(_WORK.findall(metrics)):
        busy = {*state.get("running_lora_adapters", "").split(","), *state.get("waiting_lora_adapters", "").split(",")}
    surplus = len(loaded) + 1 - int(slots)
    for name in [name for name in loaded if _OURS.search(name) and name not in busy][: max(0, surplus)]:
        send("POST", "unload_lora_adapter", {"lora_name": name})
