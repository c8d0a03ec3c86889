"""Sample data of charts and pages."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
from starlette.requests import Request

from service.dashboard.charts import Chart
from speciate.domain.target import ClaimState
from speciate.schema.unlocks import UnlockRecord
from speciate.storage.candidates.arrays import CandidateArrays

_BUNDLED = set(re.findall(r"src/traces/(\w+)", Path("scripts/plotly/entry.js").read_text()))
_RNG = np.random.default_rng(7)


def sample_columns(n: int, d: int, *, failing: float = 0.1) -> CandidateArrays:
    rewards = _RNG.random((n, d))
    failed = _RNG.random(n) < failing
    rewards[failed] = np.nan
    counted = np.arange(1, n + 1)
    return CandidateArrays(
        number=counted,
        evaluations=counted,
        tokens=counted * 100,
        seconds=counted * 0.1,
        at=1.8e9 + counted * 0.5,
        island=counted % 3,
        parent=counted // 2,
        rewards=rewards,
        failure=tuple("timeout: <b>wall</b>" if f else "" for f in failed),
        duplicate=np.zeros(n, dtype=np.bool_),
        seed=counted == 1,
        targets=np.zeros(n, dtype=np.int64),
    )


def sample_claim(target: str, number: int, state: str) -> UnlockRecord:
    return UnlockRecord.model_construct(
        target=target, number=number, evaluations=number + 1, state=ClaimState(state), unlock=False
    )


def assert_accepted(chart: Chart) -> None:
    """Check a chart against the bundled traces and Plotly's schema, with a colour for every CSS token."""

    def coloured(value: Any) -> Any:
        if isinstance(value, str) and value.startswith("--"):
            return "#123456"
        if isinstance(value, list):
            return [coloured(item) for item in value]
        return {name: coloured(item) for name, item in value.items()} if isinstance(value, dict) else value

    spec = coloured(json.loads(json.dumps(chart.spec(), allow_nan=False)))
    go.Figure(data=spec["data"], layout=spec["layout"])
    assert {trace["type"] for trace in spec["data"]} <= _BUNDLED
    assert chart.note
    assert len(chart.table.columns) >= 2
    assert all(len(row) == len(chart.table.columns) for row in chart.table.rows)


def sample_request(method: str, headers: dict[str, str], body: bytes = b"") -> Request:
    raw = [(name.encode(), value.encode()) for name, value in {"host": "localhost", **headers}.items()]

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    return Request({"type": "http", "method": method, "path": "/", "query_string": b"", "headers": raw}, receive)
