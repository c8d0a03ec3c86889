"""``python -m tests.benchmarks [name …]``: all measurements, or the named ones."""

from __future__ import annotations

import platform
import shutil
import sys
import tempfile
from pathlib import Path

import psutil

from speciate.settings import Settings
from tests.benchmarks import batches, scaling, throughput
from tests.benchmarks.parts import CONSOLE

BENCHMARKS = {
    "throughput": throughput.run,
    "batches": batches.run,
    "control-plane": scaling.control_plane,
    "sampling": scaling.sampling,
}


def main(names: list[str]) -> None:
    """Run the benchmarks and describe the machine."""
    if unknown := set(names) - set(BENCHMARKS):
        raise SystemExit(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    memory = psutil.virtual_memory().total / 2**30
    CONSOLE.print(
        f"{platform.system()} {platform.release()}, {platform.machine()}, {psutil.cpu_count()} cores, {memory:.0f} GiB,"
        f" Python {platform.python_version()}, load {psutil.getloadavg()[0]:.1f} at the start"
    )
    for name in names or BENCHMARKS:
        home = Path(tempfile.mkdtemp(prefix="speciate-bench-"))
        home.chmod(0o711)
        try:
            BENCHMARKS[name](Settings(data_dir=home / "data", port=0, evaluate_slots=2, generate_slots=4))
        finally:
            shutil.rmtree(home)


main(sys.argv[1:])
