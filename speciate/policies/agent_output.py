"""Read the standard output of coding agents: their answer as text, or JSON with usage and cost.

Forms (November 2026): ``claude -p --output-format json`` and ``stream-json``, ``codex exec --json``, ``gemini
--output-format json``, ``opencode run --format json``. Any other output is the answer itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from speciate.policies.numbers import read_number, read_tokens
from speciate.policies.usage import TokenCeilings, Usage, read_usage

_ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_NO_CEILING: Final = TokenCeilings(10**12, 10**12, 10**12)
_MOST_CHARACTERS: Final = 1000


@dataclass(frozen=True, slots=True)
class AgentOutput:
    """What an agent printed."""

    text: str
    """Its answer."""
    prompt: int | None = None
    """Prompt tokens of all its requests; None if it reports none."""
    completion: int | None = None
    cost: float | None = None
    """US dollars; None if it reports none."""
    error: str = ""
    """What failed, as the agent says; empty if it reports no error."""


def read_output(output: str) -> AgentOutput:
    output = _ESCAPES.sub("", output)
    events = _events(output)
    texts = [text for event in events if (text := _text(event)) is not None]
    usages = [usage for event in events for usage in _usages(event) if usage != Usage()]
    costs = [cost for event in events if (cost := read_number(_cost(event))) is not None and cost >= 0]
    errors = [error for event in events if (error := _error(event, last=not texts))]
    # The last object of ``claude`` repeats the answer, which its stream held before.
    results = [text for event in events if event.get("type") == "result" and (text := _text(event)) is not None]
    if not (texts or usages or costs or errors):
        return AgentOutput(output)
    return AgentOutput(
        text=results[-1] if results else "\n".join(texts),
        prompt=sum(usage.prompt or 0 for usage in usages) if usages else None,
        completion=sum(usage.completion or 0 for usage in usages) if usages else None,
        cost=sum(costs) if costs else None,
        error=errors[-1][:_MOST_CHARACTERS] if errors else "",
    )


def _events(output: str) -> list[dict[str, Any]]:
    """Return the objects of an output in JSON: one, an array, or one on each line; lines of another form are left out.

    An output may be truncated, and begin with a warning.
    """
    whole = _parsed(output)
    values = whole if isinstance(whole, list) else [whole]
    if whole is None:
        values = [_parsed(line) for line in output.splitlines() if line.startswith("{")]
    return [value for value in values if isinstance(value, dict)]


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _text(event: Mapping[str, Any]) -> str | None:
    match event:
        case {"type": "result", "result": str(text)} | {"response": str(text), "stats": _}:
            return text
        case {"type": "item.completed", "item": {"type": "agent_message", "text": str(text)}}:
            return text
        case {"type": "text", "part": {"text": str(text)}}:
            return text
    return None


def _usages(event: Mapping[str, Any]) -> Iterator[Usage]:
    match event:
        case {"type": "result" | "turn.completed", "usage": dict(reported)}:
            yield read_usage(reported, _NO_CEILING)
        case {"stats": {"models": dict(models)}}:
            for model in models.values():
                tokens = model.get("tokens") if isinstance(model, dict) else None
                if isinstance(tokens, dict):
                    yield Usage(_sum(tokens, ("prompt",)), _sum(tokens, ("candidates", "thoughts")))
        case {"type": "step_finish", "part": {"tokens": dict(tokens)}}:
            yield Usage(_sum(tokens, ("input",)), _sum(tokens, ("output", "reasoning")))


def _sum(tokens: Mapping[str, Any], names: Sequence[str]) -> int:
    return sum(read_tokens(tokens.get(name)) or 0 for name in names)


def _cost(event: Mapping[str, Any]) -> object:
    match event:
        case {"type": "result", "total_cost_usd": cost} | {"type": "step_finish", "part": {"cost": cost}}:
            return cost
    return None


def _error(event: Mapping[str, Any], *, last: bool) -> str:
    match event:
        case {"type": "result", "is_error": True}:
            return str(event.get("result") or event.get("subtype") or "an error")
        case {"type": "turn.failed" | "error", "error": error} | {"stats": _, "error": error}:
            return str(error.get("message") if isinstance(error, dict) else error)
        case {"type": "error", "message": str(message)} if last:  # before an answer it is a reconnection
            return message
    return ""
