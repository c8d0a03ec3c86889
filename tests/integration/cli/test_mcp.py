"""The MCP server with the official client: tools in this process, and an agent that unlocks a bundled problem."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from speciate.cli.mcp.tools import build_server
from speciate.client import Client as SpeciateClient
from speciate.problems.loader import bundled, load_problem

pytestmark = pytest.mark.servers

# Batcher's odd-even merge sort: 19 comparators in depth 6.
MERGE = [
    (0, 1), (2, 3), (4, 5), (6, 7), (0, 2), (1, 3), (4, 6), (5, 7), (1, 2), (5, 6),
    (0, 4), (1, 5), (2, 6), (3, 7), (2, 4), (3, 5), (1, 2), (3, 4), (5, 6),
]  # fmt: skip


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    answer = await client.call_tool(tool, arguments)
    assert not answer.is_error, answer.content
    assert answer.structured_content is not None
    return dict(answer.structured_content)


def better(program: str) -> str:
    """Replace what the markers of a sorting network enclose, as an agent would."""
    head, rest = program.split("# EVOLVE-BLOCK-START")
    _, tail = rest.split("# EVOLVE-BLOCK-END")
    body = "\n".join(f"    network.compare({a}, {b})" for a, b in MERGE)
    return f"{head}# EVOLVE-BLOCK-START\ndef build(network):\n{body}\n\n\n# EVOLVE-BLOCK-END{tail}"


async def agent(client: Client) -> dict[str, Any]:
    """Find the problem, start a run, answer a prompt and return the result."""
    problems = await call(client, "list_problems")
    (name,) = [p["problem"] for p in problems["problems"] if p["problem"].startswith("sorting-network")]
    about = await call(client, "describe_problem", problem=name)
    assert [t["name"] for t in about["targets"] if t["unlocks_the_problem"]] == ["bitonic_level"]
    run = (await call(client, "start_run", problem=name, evaluations=10, name="by an agent"))["run"]
    asked = await call(client, "ask", run=run[-8:])
    assert name.split("@")[0].split("-")[0] in asked["prompt"].lower()
    program = better(about["seed_program"])
    result = await call(client, "propose", run=run, program=program, ask=asked["ask"], model="script")
    assert (result["run"]["unlocked"], result["run"]["evaluations"]) == (True, 2)
    best = await call(client, "best", run=run)
    assert (best["number"], best["rewards"]["comparators"]) == (result["number"], 19)
    (unlock,) = [u for u in (await call(client, "unlocks", run=run))["unlocks"] if u["unlock"]]
    assert (unlock["model"], unlock["proposed_by"]) == ("script", "external@1")
    return result


def test_an_agent_unlocks_a_bundled_problem_over_stdio(url: str) -> None:
    with SpeciateClient(url) as service:
        service.problems.add(load_problem(bundled()["sorting-network-8"]))
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
            assert "list_runs" in lost.content[0].text
            wrong = await client.call_tool("start_run", {"problem": "nosuch", "evaluations": 5})
            assert wrong.is_error
            assert "no problem 'nosuch'" in wrong.content[0].text

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
            assert all(tool.description for tool in (await client.list_tools()).tools)
            answer = await client.call_tool("list_problems", {})
            assert answer.is_error
            return str(answer.content[0].text)

    assert "speciate up" in asyncio.run(session())
