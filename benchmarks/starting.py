"""Start of ``speciate up`` beside a bare Python with numpy; memory and processor time of the service at rest."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import psutil

from benchmarks.figures import Figure, record
from benchmarks.parts import median, show
from speciate.settings import Settings

REPEATS: Final = 5
SETTLING_S: Final = 5.0
RESTING_S: Final = 60.0
_BARE: Final = [sys.executable, "-c", "import numpy"]


def run(settings: Settings) -> None:
    """Print seconds until ready, memory and processor time at rest."""
    settings.data_dir.mkdir(parents=True)
    _stop(_start(settings.data_dir))
    bare, up, used = [], [], []
    for _ in range(REPEATS):
        at = time.perf_counter()
        subprocess.run(_BARE, check=True)
        bare.append(time.perf_counter() - at)
        at = time.perf_counter()
        service = _start(settings.data_dir)
        up.append(time.perf_counter() - at)
        used.append(_processor_seconds(service))
        _stop(service)
    service = _start(settings.data_dir)
    time.sleep(SETTLING_S)
    before = _processor_seconds(service)
    time.sleep(RESTING_S)
    idle = (_processor_seconds(service) - before) / RESTING_S
    megabytes = sum(each.memory_full_info().pss for each in _processes(service)) / 1e6
    _stop(service)
    ratio = median([ours / theirs for ours, theirs in zip(up, bare, strict=True)])
    record("start: second start against numpy", Figure(ratio, "×", 3, scales=False))
    record("start: memory at rest", Figure(megabytes, "MB", 500, scales=False))
    record("start: processor at rest", Figure(100 * idle, "% of a core", 1))
    rows = [
        ("bare Python with numpy, s", median(bare), "–"),
        ("second start until ready, s", median(up), f"{3 * median(bare):.2f}"),
        ("processor time of that start, s", median(used), "–"),
        ("memory at rest, MB", megabytes, "500"),
        ("processor at rest, % of a core", 100 * idle, "1"),
    ]
    title = (
        f"speciate up: median of {REPEATS} starts; proportional set size of all processes; {RESTING_S:.0f} s at rest"
    )
    show(title, ["", "measured", "goal"], rows)


def _start(data_dir: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "speciate.cli", "up", "--port", "0", "--data-dir", str(data_dir)]
    service = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=os.environ)
    assert service.stderr is not None
    for line in service.stderr:
        if line.startswith("Speciate is up"):
            return service
    raise RuntimeError("the service did not start")


def _stop(service: subprocess.Popen[str]) -> None:
    service.send_signal(signal.SIGTERM)
    service.communicate(timeout=60)


def _processes(service: subprocess.Popen[str]) -> list[psutil.Process]:
    parent = psutil.Process(service.pid)
    return [parent, *parent.children(recursive=True)]


def _processor_seconds(service: subprocess.Popen[str]) -> float:
    times = [each.cpu_times() for each in _processes(service)]
    return sum(each.user + each.system for each in times)
