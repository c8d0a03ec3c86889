"""Load LoRA adapters on a vLLM server, and unload idle ones to make room."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from speciate.policies.identity import EndpointMismatchError
from speciate.policies.openai_wire import ModelCard, error_message
from speciate.policies.queueing import sequences_at_work

Send = Callable[[str, str, Mapping[str, Any] | None], tuple[int, bytes]]
"""Send ``(method, path, body)``; return status and body."""

_OURS: Final = re.compile(r"-[0-9a-f]{12}$")
_STATE: Final = re.compile(r"^vllm:lora_requests_info\{([^}\n]*)\} +([0-9.eE+]+)", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')


def adapter_name(slug: str, digest: str | None) -> str:
    """Return the name under which an adapter is loaded; it depends on the weights.

    vLLM does not read an adapter of a known name again and caches prompts by the adapter's name and path: new weights
    under an old name would have the old weights answer.
    """
    return slug if digest is None else f"{slug}-{digest[:12]}"


def load_adapter(name: str, path: str, cards: Sequence[ModelCard], send: Send) -> None:
    """Load an adapter; first unload idle adapters that we loaded if the server has no free slot.

    Raises:
        EndpointMismatchError: The server does not load adapters, or not this one; the message says why.
    """
    _make_room(cards, send)
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


def _make_room(cards: Sequence[ModelCard], send: Send) -> None:
    """Unload idle adapters that we loaded, the oldest first, until there is a free slot; leave others alone."""
    status, body = send("GET", "/metrics", None)
    metrics = body.decode("utf-8", "replace") if status == 200 else ""
    states = [(float(value), dict(_LABEL.findall(labels))) for labels, value in _STATE.findall(metrics)]
    if not states:
        return
    state = max(states, key=lambda pair: pair[0])[1]
    loaded = [card.id for card in cards if card.parent is not None]
    busy = _busy_adapters(metrics, state)
    surplus = len(loaded) + 1 - int(state["max_lora"])
    for name in [name for name in loaded if _OURS.search(name) and name not in busy][: max(0, surplus)]:
        send("POST", "unload_lora_adapter", {"lora_name": name})


def _busy_adapters(metrics: str, state: Mapping[str, str]) -> set[str]:
    # The state is updated by each step: an idle server still reports the adapters of its last step.
    if not sequences_at_work(metrics):
        return set()
    return {name for key in ("running_lora_adapters", "waiting_lora_adapters") for name in state[key].split(",")}
