"""Agents as policies in a run of this process: their answers, their cost, and their end with the process."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from speciate.local.engine import local_client
from speciate.policies.inline import register
from speciate.problems.loader import bundled, load_problem
from speciate.settings import Settings

pytestmark = pytest.mark.fault

USAGE = {"input_tokens": 10, "output_tokens": 5}
REPORT = json.dumps({"type": "result", "result": "edited", "total_cost_usd": 0.5, "usage": USAGE})
EDITS = f"""
import os
with open("candidate.py", "a") as program:
    program.write("# version %d\\n" % os.getpid())
print({REPORT!r})
"""


@pytest.fixture
def data_dir() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="speciate-test-"))
    folder.chmod(0o711)  # PostgreSQL may have another account
    yield folder
    shutil.rmtree(folder)


def command(script: str) -> str:
    return shlex.join([sys.executable, "-c", script])


def wait_for(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_agents_evolve_programs_and_end_with_the_process(data_dir: Path, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    hangs = command(f"import os, time; open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep(600)")
    with local_client(Settings(data_dir=data_dir)) as client:
        client.problems.add(load_problem(bundled()["online-bin-packing"]))
        spec: dict[str, Any] = {"budget": 3, "strategy": "best_of_n"}
        run = client.runs.create("online-bin-packing", register(client.policies, [], [command(EDITS)]), **spec)
        wait_for(lambda: run.refresh().state != "running")
        assert run.record.state == "completed", run.record.reason
        assert (run.record.spent.cost, run.record.spent.tokens) == (1.0, 30)  # the seed program is an evaluation, too
        hung = client.runs.create("online-bin-packing", register(client.policies, [], [hangs]), **spec)
        wait_for(lambda: note.exists() and note.read_text() != "")
        left_at = time.monotonic()
    assert time.monotonic() - left_at < 30
    wait_for(lambda: not Path(f"/proc/{note.read_text()}").exists())
    with local_client(Settings(data_dir=data_dir, agent_commands=("claude -p",))) as client:
        run = client.runs.get(hung.id)
        assert run.record.state == "paused"
        run.resume()
        wait_for(lambda: run.refresh().state != "running")
        assert "operator does not allow" in (run.record.reason or "")
        assert f"SPECIATE_AGENT_COMMANDS={shlex.quote(json.dumps([hangs]))} speciate up" in (run.record.reason or "")
