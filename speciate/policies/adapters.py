"""LoRA adapters on a vLLM server: loaded when a policy needs one, unloaded when another one needs the room."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from speciate.policies.identity import EndpointMismatchError
from speciate.policies.openai_wire import ModelCard, error_message
from speciate.policies.queueing import sequences_at_work

Send = Callable[[str, str, Mapping[str, Any] | None], tuple[int, bytes]]
"""``(method, path, body)`` to status and body of the answer."""

_OURS: Final = re.compile(r"-[0-9a-f]{12}$")
_STATE: Final = re.compile(r"^vllm:lora_requests_info\{([^}\n]*)\} +([0-9.eE+]+)", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')


def adapter_name(slug: str, digest: str | None) -> str:
    """Return the name under which an adapter is loaded: other weights have another name.

    vLLM keeps the prompts that it has read by name and path of the adapter, and an adapter of the same name is not read
    again: new weights under an old name would be answered by old ones.
    """
    return slug if digest is None else f"{slug}-{digest[:12]}"


def load_adapter(name: str, path: str, cards: Sequence[ModelCard], send: Send) -> None:
    """Load an adapter, after unloading idle ones of ours where the server holds as many as it computes at once.

    Raises:
        EndpointMismatchError: The server does not load adapters, or not this one; the message says why.
    """
    _make_room(cards, send)
    status, body = send("POST", "load_lora_adapter", {"lora_name": name, "lora_path": path})
    said = error_message(body)
    if status == 200 or "already been loaded" in said:
        return
    offers = ", ".join(card.id for card in cards[:10]) or "no model"
    if status in (404, 405, 501) and path not in said:
        raise EndpointMismatchError(
            f"it serves {offers}, not the adapter {name}, and loads none at run time",
            "Start vLLM with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True, on a private network only, or"
            f" with --lora-modules {name}={path}.",
        )
    raise EndpointMismatchError(
        f"it does not load the adapter {path}: it answered {status}: {said[:300]}",
        "The path is one of the server's machine; its --max-lora-rank and base model have to fit the adapter.",
    )


def _make_room(cards: Sequence[ModelCard], send: Send) -> None:
    """Unload idle adapters that were loaded by us, the oldest first, until there is a slot. Others are left alone."""
    loaded = [card.id for card in cards if card.parent is not None]
    status, body = send("GET", "/metrics", None)
    metrics = body.decode("utf-8", "replace") if status == 200 else ""
    states = [(float(value), dict(_LABEL.findall(labels))) for labels, value in _STATE.findall(metrics)]
    if not states:
        return
    # The latest state stands until the next step: of a server that rests it says what was at work last.
    state = max(states, key=lambda pair: pair[0])[1]
    busy: set[str] = set()
    if sequences_at_work(metrics):
        busy = {name for key in ("running_lora_adapters", "waiting_lora_adapters") for name in state[key].split(",")}
    surplus = len(loaded) + 1 - int(state["max_lora"])
    for name in [name for name in loaded if _OURS.search(name) and name not in busy][: max(0, surplus)]:
        send("POST", "unload_lora_adapter", {"lora_name": name})
