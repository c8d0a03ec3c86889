"""``python -m experiments.peers``: install the peers, run what is not done yet, and write the page."""

from __future__ import annotations

import argparse
import platform
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

import psutil

import speciate
from experiments.peers.declaration import PACKAGES, SYSTEMS, Task, tasks
from experiments.peers.endpoint import Endpoint
from experiments.peers.environments import Installed, install
from experiments.peers.peer_runs import run_peer
from experiments.peers.report import page
from experiments.peers.result import Result, append, read
from experiments.peers.speciate_runs import Service, run_speciate
from experiments.peers.standin import MODEL, stand_in

PAGE: Final = Path(__file__).parents[2] / "docs" / "evidence" / "peers.md"


def main() -> int:
    """Run the comparison."""
    parser = argparse.ArgumentParser(prog="python -m experiments.peers", description=__doc__)
    parser.add_argument("--home", type=Path, default=Path(".peers"), help="folder of environments and runs (.peers)")
    parser.add_argument(
        "--url",
        default="",
        help="OpenAI-compatible endpoint of a real model, key in OPENAI_API_KEY (default: the stand-in)",
    )
    parser.add_argument("--model", default=MODEL, help="its name")
    parser.add_argument("--page-only", action="store_true", help="write the page from the runs beside it")
    parser.add_argument("--page", type=Path, default=PAGE, help="file of the page")
    options = parser.parse_args()
    options.home.mkdir(parents=True, exist_ok=True)
    runs = options.home.resolve() / (f"runs-{options.model.replace('/', '-')}.jsonl" if options.url else "runs.jsonl")
    kept = options.page.with_suffix(".jsonl")
    if not options.page_only:
        peers = {name: install(name, options.home.resolve() / "environments") for name in PACKAGES}
        for name, peer in peers.items():
            print(f"{name}: {peer.version or f'left out: {peer.trouble}'}", flush=True)  # noqa: T201
        _run_all(options.home.resolve() / "work", runs, peers, options.url, options.model)
        shutil.copyfile(runs, kept)
    options.page.write_text(page(read(kept), options.model), encoding="utf-8")
    print(f"wrote {options.page}")  # noqa: T201
    return 0


def _run_all(work: Path, runs: Path, peers: Mapping[str, Installed], url: str, model: str) -> None:
    done = {result.task for result in read(runs)}
    usable = tuple(name for name in SYSTEMS if name == "speciate" or peers[name].version)
    left = [task for task in tasks(usable) if task not in done]
    with stand_in(url) as server, ExitStack() as stack:
        endpoint = Endpoint(server, model)
        service = stack.enter_context(Service()) if any(task.system == "speciate" for task in left) else None
        for number, task in enumerate(left, 1):
            endpoint.clear()
            version = _own_version() if task.system == "speciate" else peers[task.system].version
            machine = f"{platform.system()}, {psutil.cpu_count()} cores"
            result = replace(_run(task, work, peers, endpoint, service), version=version, machine=machine)
            append(runs, result)
            best = max(result.curve, default=0.0)
            print(f"{number}/{len(left)} {task.key}: {best:.5f} {result.note}", flush=True)  # noqa: T201


def _run(task: Task, work: Path, peers: Mapping[str, Installed], endpoint: Endpoint, service: Service | None) -> Result:
    if service is not None and task.system == "speciate":
        return run_speciate(task, service, endpoint)
    return run_peer(task, peers[task.system].python, endpoint, work)


def _own_version() -> str:
    command = ["git", "-C", str(PAGE.parent), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return f"{speciate.__version__} at {commit or 'an unknown commit'}"
