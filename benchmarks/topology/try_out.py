"""Check a deployment from outside its proxy."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from signal import SIGKILL

import httpx

from benchmarks.topology.processes import LIMIT_S, Topology
from speciate.client import Client
from speciate.problems.loader import bundled, load_problem


def try_out(graph: Topology) -> Iterator[str]:
    """Have a run done, watched through the proxy; kill a replica of the API meanwhile. Yields what was seen."""
    headers = {"Authorization": f"Bearer {graph.token}"}
    with (
        Client(graph.url, graph.token) as client,
        httpx.Client(base_url=graph.url, headers=headers, timeout=LIMIT_S, trust_env=False) as http,
    ):
        assert http.get("/v1/runs", headers={"Authorization": ""}).status_code == 401
        listed = {policy.definition.slug for policy in client.policies.list()}
        assert "maze-vpo" in listed, "the policies that come along are not registered"
        client.policies.ping("maze-vpo")
        yield f"{len(listed)} policies are registered, and the one beside us answers with its token"

        client.problems.add(load_problem(bundled()["sorting-network-8"]))
        begun = time.monotonic()
        body = {"problem": "sorting-network-8", "policy": "mutator", "budget": {"evaluations": 150}}
        run_id = http.post("/v1/runs", json=body).raise_for_status().json()["id"]
        kinds = list(_watched(http, run_id))
        assert kinds[-1] == "end", kinds
        run = http.get(f"/v1/runs/{run_id}").json()
        assert (run["state"], run["spent"]["evaluations"]) == ("completed", 150), run
        yield f"a run of 150 evaluations came through the stream and ended in {time.monotonic() - begun:.1f} s"

        for name in graph.names("api"):
            lines = [json.loads(line) for line in graph.log(name).splitlines()]
            assert any(line["logger"] == "speciate.requests" for line in lines), f"{name} was never asked"
        graph.processes.signal("api-1", SIGKILL)
        statuses = {http.get(f"/v1/runs/{run_id}").status_code for _ in range(20)}
        assert statuses == {200}, statuses
        yield "both replicas had been asked; with one of them killed every request is still answered"


def _watched(http: httpx.Client, run_id: str) -> Iterator[str]:
    with http.stream("GET", f"/v1/runs/{run_id}/events", headers={"Accept": "text/event-stream"}) as stream:
        for line in stream.iter_lines():
            if line.startswith("event:"):
                yield line.removeprefix("event:").strip()
