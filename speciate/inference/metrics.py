"""Expose counters to Prometheus, under vLLM's names with our own prefix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

PREFIX: Final = "speciate_serve"


@dataclass(slots=True)
class ModelCounters:
    """Totals of one model since the start."""

    requests: int = 0
    refused: int = 0
    """Refused or failed requests."""
    prompt_tokens: int = 0
    generation_tokens: int = 0
    seconds: float = 0.0
    """Sum of the times from request to response."""


def exposition(counters: Mapping[str, ModelCounters], loads: Mapping[str, tuple[int, int]]) -> str:
    """Return the text format, version 0.0.4; ``loads`` are running and waiting sequences by model."""
    rows: list[tuple[str, str, str, Mapping[str, float]]] = [
        ("num_requests_running", "gauge", "Sequences being decoded.", {m: load[0] for m, load in loads.items()}),
        ("num_requests_waiting", "gauge", "Waiting sequences.", {m: load[1] for m, load in loads.items()}),
        ("request_success_total", "counter", "Requests answered.", {m: c.requests for m, c in counters.items()}),
        ("request_failure_total", "counter", "Requests refused.", {m: c.refused for m, c in counters.items()}),
        ("prompt_tokens_total", "counter", "Tokens read.", {m: c.prompt_tokens for m, c in counters.items()}),
        ("generation_tokens_total", "counter", "Tokens drawn.", {m: c.generation_tokens for m, c in counters.items()}),
        ("request_seconds_total", "counter", "Time to answers.", {m: c.seconds for m, c in counters.items()}),
    ]
    lines = []
    for name, kind, text, values in rows:
        lines += [f"# HELP {PREFIX}_{name} {text}", f"# TYPE {PREFIX}_{name} {kind}"]
        lines += [f'{PREFIX}_{name}{{model_name="{_escaped(model)}"}} {value}' for model, value in values.items()]
    return "\n".join(lines) + "\n"


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
