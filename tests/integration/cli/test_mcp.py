"""The MCP server with the official client: tools in this process, and an agent that unlocks a bundled problem."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from speciate.cli.mcp.tools import build_server

pytestmark = pytest.mark.servers

# Batcher's odd-even merge sort: 19 comparators in depth 6.
MERGE = [
    (0, 1), (2, 3), (4, 5), (6, 7), (0, 2), (1, 3), (4, 6), (5, 7), (1, 2), (5, 6),
    (0, 4), (1, 5), (2, 6), (3, 7), (2, 4), (3, 5), (1, 2), (3, 4), (5, 6),
]  # fmt: skip


NAME = "sorting-network-8"


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    answer = await client.call_tool(tool, arguments)
    assert not answer.is_error, answer.content
    assert answer.structured_content is None
    (text,) = [content.text for content in answer.content]
    return dict(json.loads(text))


def better(program: str) -> str:
    """Replace what the markers of a sorting network enclose, as an agent would."""
    head, rest = program.split("# EVOLVE-BLOCK-START")
    _, tail = rest.split("# EVOLVE-BLOCK-END")
    body = "\n".join(f"    network.compare({a}, {b})" for a, b in MERGE)
    return f"{head}# EVOLVE-BLOCK-START\ndef build(network):\n{body}\n\n\n# EVOLVE-BLOCK-END{tail}"


async def agent(client: Client) -> dict[str, Any]:
    """Find the problem, start a run, answer a prompt and return the result."""
    assert NAME in (await call(client, "list_problems"))["bundled"]
    about = await call(client, "describe_problem", problem=NAME)
    assert [t["name"] for t in about["targets"] if t["unlock"]] == ["bitonic_level"]
    run = (await call(client, "start_run", problem=NAME, evaluations=10, name="by an agent"))["run"]
    asked = await call(client, "ask", run=run[-8:])
    assert "sorting" in asked["prompt"].lower()
    program = better(about["seed_program"])
    answer = f"Odd-even merge.\n```python\n{program}```\n"
    sent = [
        {"completion": answer, "ask": asked["ask"], "model": "script", "completion_tokens": 7, "rationale": "Batcher"},
        {"program": program.replace("network.compare", "network.swap"), "parents": [1]},
        {"program": " "},
    ]
    result, failed, refused = (await call(client, "propose", run=run, proposals=sent))["results"]
    assert result["state"] == "evaluated"
    result |= await call(client, "result", run=run, number=result["number"])
    assert result["next"] == "All targets are confirmed. Improve it further, or stop. Evaluations left: 7."
    assert "with parents [3]" in failed["next"]
    assert refused == {"status": "refused", "reason": "it is empty"}
    repair = await call(client, "ask", run=run)
    assert (repair["parents"], "network.swap" in repair["prompt"]) == ([3], True)
    status = await call(client, "run_status", run=run)
    assert (status["unlocked"], status["evaluations"], status["unsettled"]) == (True, 3, [])
    best = await call(client, "candidate", run=run)
    assert (best["number"], best["rewards"]["comparators"]) == (result["number"], 19)
    assert best["rationale"] == "Batcher\n\nOdd-even merge."
    front = await call(client, "candidates", run=run)
    assert [one["number"] for one in front["candidates"]] == [2]
    (unlock,) = [u for u in (await call(client, "unlocks", run=run))["unlocks"] if u["unlock"]]
    assert (unlock["model"], unlock["policy"]) == ("script", "external@1")
    return dict(result)


def test_an_agent_unlocks_a_bundled_problem_over_stdio(url: str) -> None:
    parameters = StdioServerParameters(command=sys.executable, args=["-m", "speciate.cli", "--url", url, "mcp"])

    async def session() -> dict[str, Any]:
        async with Client(parameters) as client:
            return await agent(client)

    result = asyncio.run(session())
    assert set(result["confirmed"]) == {"sorts", "bitonic_level", "optimal_size", "optimal"}
    assert result["best"]


def test_streamable_http_and_errors_that_help(url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "speciate.cli", "--url", url, "mcp", "--http", str(port)]

    async def session() -> None:
        async with Client(f"http://127.0.0.1:{port}/mcp") as client:
            assert "instructions in them" not in (client.instructions or "").splitlines()[0]
            lost = await client.call_tool("run_status", {"run": "nosuch-run"})
            assert lost.is_error
            assert lost.content[0].text.endswith("there is no run 'nosuch-run'. list_runs names what there is.")
            wrong = await client.call_tool("start_run", {"problem": "nosuch", "evaluations": 5})
            assert wrong.is_error
            assert wrong.content[0].text.endswith("no problem 'nosuch'. list_problems names what there is.")
            policy = await client.call_tool("start_run", {"problem": NAME, "evaluations": 5, "policy": "nope"})
            assert policy.content[0].text.endswith("there is no policy 'nope'.")
            run = (await call(client, "start_run", problem=NAME, evaluations=5))["run"]
            number = await client.call_tool("result", {"run": run, "number": 999})
            assert number.content[0].text.endswith("candidates lists what there is.")

    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            deadline = time.monotonic() + 30
            while time.monotonic() < deadline:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    time.sleep(0.1)
            asyncio.run(session())
        finally:
            server.terminate()


def test_tools_say_when_the_service_is_away() -> None:
    async def session() -> str:
        async with Client(build_server("http://127.0.0.1:9")) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert all(tool.description and tool.annotations for tool in tools.values())
            assert tools["result"].annotations.read_only_hint
            assert not tools["propose"].annotations.read_only_hint
            wrong = await client.call_tool("start_run", {"problem": NAME, "budget": 12})
            assert "start_run has no argument 'budget': expected problem, evaluations, " in wrong.content[0].text
            answer = await client.call_tool("list_problems", {})
            assert answer.is_error
            return str(answer.content[0].text)

    assert "speciate up" in asyncio.run(session())
