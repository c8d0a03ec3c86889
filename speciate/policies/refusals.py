"""Explain a refused request: find the field that the endpoint names, and the option that fixes it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from speciate.domain.policy import Policy
from speciate.policies.openai_wire import error_message

_INSTEAD: Final = re.compile(r"[Uu]se [`'\"]([A-Za-z_]\w{0,60})[`'\"]")
_TOO_LONG: Final = re.compile(r"at most|maximum|too large|exceed|less than|<=|context", re.IGNORECASE)
_CONTEXT: Final = re.compile(r"context (?:length|window|size)|input tokens|this model reads \d", re.IGNORECASE)
_MOST_READ: Final = 20_000
_SAMPLED: Final = ("temperature", "top_p")
_CONTINUED: Final = ("add_generation_prompt", "continue_final_message")
_OMITTED: Final = ("seed", "return_token_ids")


def explain_refusal(body: bytes, payload: Mapping[str, Any] | None, policy: Policy) -> str | None:
    """Return how to change the policy so that its endpoint accepts the request; None if no field is named.

    Args:
        body: The response, untrusted.
        payload: The refused request.
        policy: The registration; its options name the fields that were renamed.
    """
    message = error_message(body)[:_MOST_READ]
    if _CONTEXT.search(message):
        return (
            f"Shorten the prompts with --prompt-tokens, a limit in bytes (now {policy.prompt_tokens}), lower --sampling"
            " max_tokens, or serve the model with a longer context."
        )
    renamed = {name: field for field, name in _fields(policy).items() if isinstance(name, str)}
    sent = [name for name in payload or {} if name not in ("model", "messages", "prompt", "stream")]
    sent += [name for name in renamed if "." in name]
    name = _named(body, message, sent)
    if name is None:
        return None
    return _remedy(renamed.get(name, name), name, message, policy)


def _remedy(field: str, name: str, message: str, policy: Policy) -> str:
    """Return the remedy for a field of the protocol that was sent under a name."""
    instead = _INSTEAD.search(message)
    if field == "max_tokens" and instead is not None and instead[1] != name:
        return _with_fields(policy, {field: instead[1]}, f"to send {name} as {instead[1]}")
    if field == "max_tokens":
        long = _TOO_LONG.search(message)
        return "Lower the limit with --sampling max_tokens=…." if long else "Rename max_tokens with the option fields."
    if field == "n":
        return _with_fields(policy, {"n": None}, "to send one request for each completion")
    if field == "logprobs":
        return "Register the policy again with --sampling logprobs=false."
    if field == "reasoning_effort" and "reasoning_effort" in policy.options:
        return "Change or remove the option reasoning_effort."
    if field in _SAMPLED:
        return _with_fields(policy, {field: None}, f"to omit {field}, or change --sampling {field}=…")
    if field in _CONTINUED:
        return "The endpoint does not continue a reply: register the policy again with --prompt-style compact."
    if field in _OMITTED:
        return _with_fields(policy, {field: None}, f"to omit {field}")
    return f"Remove or correct {name} in the policy's options."


def _with_fields(policy: Policy, change: Mapping[str, str | None], purpose: str) -> str:
    fields = json.dumps({**_fields(policy), **change})
    return f"Register the policy again with --option 'fields={fields}' {purpose}."


def _fields(policy: Policy) -> dict[str, Any]:
    fields = policy.options.get("fields")
    return dict(fields) if isinstance(fields, dict) else {}


def _named(body: bytes, message: str, sent: list[str]) -> str | None:
    """Return the sent field that an error names: in a place for it, else first in its text."""
    stated = next((name for name in _stated(_parsed(body)) if name in sent), None)
    if stated is not None:
        return stated
    places = {name: place for name in sent if (place := _place(name, message)) is not None}
    if places.keys() >= set(_SAMPLED):  # Claude takes one of the two: keep the temperature
        return "top_p"
    return min(places, key=places.__getitem__) if places else None


def _parsed(body: bytes) -> object:
    try:
        return json.loads(body[: 4 * _MOST_READ])
    except (ValueError, RecursionError):
        return None


def _stated(error: object) -> Iterator[str]:
    """Yield the fields that an error names in ``param`` (OpenAI) or at the end of ``loc`` (FastAPI)."""
    if isinstance(error, list):
        for item in error[:100]:
            yield from _stated(item)
    if not isinstance(error, dict):
        return
    place = error.get("loc")
    last = place[-1] if isinstance(place, list) and place else None
    yield from (name for name in (error.get("param"), last) if isinstance(name, str))
    for key in ("error", "detail"):
        yield from _stated(error.get(key))


def _place(name: str, message: str) -> int | None:
    """Return where a text names a field: in quotes, after ``body.``, as a parameter, or before a verdict."""
    word = re.escape(name)
    found = re.search(
        rf"[`'\"]{word}[`'\"]|\bbody\.{word}\b|\b(?:parameters?|params?|fields?|arguments?):? \[?{word}\b"
        rf"|(?:^|[\s(]){word}(?:: | (?:must|is not|should|cannot|and|can only)\b)",
        message,
    )
    return None if found is None else found.start()
