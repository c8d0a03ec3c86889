"""Processor time of commands that ask the service."""

from __future__ import annotations

import os
import pty
import resource
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Final

from benchmarks.figures import Figure, record
from benchmarks.parts import SpinningService, begin, median, show, spec, wait_for
from speciate.settings import Settings
from speciate.storage.stores import open_stores

REPEATS: Final = 7
COMMANDS: Final = (
    "--version",
    "--help",
    "runs list",
    "runs show {run}",
    "runs watch {run}",
    "runs watch {run} --json",
    "candidates list {run}",
    "candidates show {run}/1",
    "problems list",
    "problems show spinning",
    "policies list",
    "unlocks",
    "strategies",
    "tournaments list",
    "campaigns list",
)


def run(settings: Settings) -> None:
    """Print the processor time of each command, user and system together."""
    with SpinningService(settings) as stack:
        for _ in stack.start():
            pass
        stores = open_stores(stack.settings)
        run_id = begin(stores, spec(480))
        wait_for(stores, run_id, 480)
        stores.close()
        environment = os.environ | {"SPECIATE_URL": stack.url, "TERM": "xterm-256color", "COLUMNS": "120"}
        rows = []
        for command in COMMANDS:
            arguments = [sys.executable, "-m", "speciate.cli", *command.format(run=run_id).split()]
            piped = [_seconds(arguments, environment, terminal=False) for _ in range(REPEATS)]
            drawn = [_seconds(arguments, environment, terminal=True) for _ in range(REPEATS)]
            name = command.replace("{run}", "").replace("/1", "").strip()
            record(f"commands: {name}", Figure(median(piped), "s", 0.4))
            rows.append((command.format(run="RUN"), median(piped), max(piped), median(drawn), max(drawn)))
    columns = ["command", "to a pipe", "slowest", "to a terminal", "slowest"]
    show(f"Seconds of processor time, median of {REPEATS}", columns, rows, "target: at most 0.4")


def _seconds(arguments: list[str], environment: dict[str, str], *, terminal: bool) -> float:
    ours, theirs = pty.openpty() if terminal else os.pipe()
    reader = threading.Thread(target=_drain, args=(ours,))
    reader.start()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(arguments, env=environment, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    os.close(theirs)
    reader.join()
    os.close(ours)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _drain(file: int) -> None:
    with suppress(OSError):  # Linux reports EIO when the other end of a terminal is closed.
        while os.read(file, 65536):
            pass
