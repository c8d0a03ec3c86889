"""Read the standard output of coding agents: their answer as text, or JSON with usage and cost.

Forms (November 2026): ``claude -p --output-format json`` and ``stream-json``, ``codex exec --json``, ``gemini
--output-format json``, ``opencode run --format json``. Any other output is the answer itself.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from speciate.policies.numbers import read_json, read_number, read_tokens
from speciate.policies.usage import TokenCeilings, Usage, read_usage

_ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_NO_CEILING: Final = TokenCeilings(10**12, 10**12, 10**12)
_MOST_CHARACTERS: Final = 1000


@dataclass(slots=True)
class AgentOutput:
    """What an agent printed."""

    text: str = ""
    prompt: int | None = None
    """Prompt tokens of all its requests; None if it reports none."""
    completion: int | None = None
    cost: float | None = None
    """US dollars; None if it reports none."""
    error: str = ""
    """What failed, as the agent says; empty if it reports no error."""
    plain: bool = False
    """True if it printed no JSON that is known."""

    def count(self, usage: Usage) -> None:
        if usage != Usage():
            self.prompt = (self.prompt or 0) + (usage.prompt or 0)
            self.completion = (self.completion or 0) + (usage.completion or 0)

    def charge(self, cost: object) -> None:
        if (dollars := read_number(cost)) is not None and dollars >= 0:
            self.cost = (self.cost or 0.0) + dollars


def read_output(printed: str) -> AgentOutput:
    printed = _ESCAPES.sub("", printed)
    output = AgentOutput()
    for event in _events(printed):
        _read(event, output)
    return AgentOutput(printed, plain=True) if output == AgentOutput() else output


def _events(printed: str) -> list[dict[str, Any]]:
    """Return the objects of an output in JSON: one, an array, or one on each line beside lines of another form."""
    start = 0 if printed.lstrip().startswith("{") else printed.find("\n{") + 1  # after other lines
    if (values := read_json(printed) or read_json(printed[start:])) is None:
        values = [read_json(line) for line in printed.splitlines() if line.startswith("{")]
    return [value for value in (values if isinstance(values, list) else [values]) if isinstance(value, dict)]


def _read(event: Mapping[str, Any], output: AgentOutput) -> None:
    match event:
        case {"type": "result"}:  # Claude Code: all of its requests together, after a stream of messages
            said, subtype, usage = str(event.get("result") or ""), str(event.get("subtype")), event.get("usage")
            failed = event.get("is_error") or subtype.startswith("error")  # such as error_max_turns
            output.text, output.error = said, (said or subtype) if failed else ""
            output.count(read_usage(usage, _NO_CEILING))
            if failed and isinstance(usage, dict) and usage.get("input_tokens") == usage.get("output_tokens") == 0:
                output.prompt, output.completion = output.prompt or 0, output.completion or 0
            output.charge(event.get("total_cost_usd"))
        case {"stats": {"models": dict(models)}}:  # Gemini
            output.text, output.error = str(event.get("response") or ""), _message(event.get("error"))
            for model in models.values():
                output.count(_usage(model, "prompt", "candidates", "thoughts"))
        case {"type": "item.completed", "item": {"type": "agent_message", "text": str(text)}}:  # Codex
            output.text, output.error = f"{output.text}\n{text}".strip("\n"), ""
        case {"type": "turn.completed"}:
            output.count(read_usage(event.get("usage"), _NO_CEILING))
        case {"type": "turn.failed", "error": error} | {"type": "error", "message": error}:
            output.error = _message(error)  # a message after it shows that this was a reconnection
        case {"type": "text", "part": {"text": str(text)}}:  # OpenCode
            output.text = f"{output.text}\n{text}".strip("\n")
        case {"type": "step_finish", "part": dict(part)}:
            output.count(_usage(part, "input", "output", "reasoning"))
            output.charge(part.get("cost"))


def _usage(holder: object, prompt: str, *completion: str) -> Usage:
    tokens = holder.get("tokens") if isinstance(holder, dict) else None
    if not isinstance(tokens, dict):
        return Usage()
    cached = tokens.get("cache")  # OpenCode leaves it out of the input
    read = [tokens.get(prompt), *(cached.values() if isinstance(cached, dict) else ())]
    written = [tokens.get(name) for name in completion]
    return Usage(*(sum(read_tokens(number) or 0 for number in numbers) for numbers in (read, written)))


def _message(error: object) -> str:
    return str((error.get("message") if isinstance(error, dict) else error) or "")[:_MOST_CHARACTERS]
