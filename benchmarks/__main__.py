"""``python -m benchmarks [name …]``: all measurements, or the named ones; what takes an hour only by name."""

from __future__ import annotations

import argparse
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil

from benchmarks import (
    abuse,
    api,
    batches,
    campaigns,
    commands,
    dashboard,
    environments,
    figures,
    floor,
    languages,
    learning,
    power,
    sandbox,
    scale_out,
    scaling,
    search,
    serving,
    shared_sandbox,
    starting,
    strategies,
    throughput,
    tournaments,
    training,
    winners,
)
from benchmarks.parts import CONSOLE
from speciate.settings import Settings

BENCHMARKS = {
    "throughput": throughput.run,
    "batches": batches.run,
    "control-plane": scaling.control_plane,
    "sampling": scaling.sampling,
    "scale-out": scale_out.run,
    "strategies": strategies.run,
    "sandbox": sandbox.run,
    "environments": environments.run,
    "languages": languages.run,
    "serving": serving.run,
    "training": training.run,
    "tournaments": tournaments.run,
    "campaigns": campaigns.run,
    "learning": learning.run,
    "power": power.run,
    "dashboard": dashboard.run,
    "commands": commands.run,
    "start": starting.run,
    "api": api.run,
    "abuse": abuse.run,
}


def main(arguments: list[str]) -> None:
    """Run the benchmarks and describe the machine."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--evaluations", type=int, default=sandbox.ENDURANCE, help="length of sandbox-endurance")
    parser.add_argument(
        "--keep",
        type=Path,
        default=Path("search-runs.jsonl"),
        help="file of the runs of search-*; what it has is not run",
    )
    parser.add_argument("--workers", type=int, default=2, help="processes of search-*")
    parser.add_argument("--release", help="keep the figures as those of this release in benchmarks/figures.json")
    options = parser.parse_args(arguments)
    benchmarks: dict[str, Callable[[Settings], None]] = {
        **BENCHMARKS,
        "sandbox-endurance": partial(sandbox.endurance, evaluations=options.evaluations),
        "floor": floor.run,
        "shared-sandbox": shared_sandbox.run,
        "search-programs": partial(search.programs, keep=options.keep, workers=options.workers),
        "search-again": partial(search.again, keep=options.keep, workers=options.workers),
        "search-mazes": partial(search.mazes, keep=options.keep, workers=options.workers),
        "search-winners": partial(winners.run, keep=options.keep, workers=options.workers),
        "search-problems": partial(search.problems, keep=options.keep, workers=options.workers),
    }
    if unknown := set(options.names) - set(benchmarks):
        raise SystemExit(f"no benchmark {', '.join(unknown)}; there are {', '.join(benchmarks)}")
    memory = psutil.virtual_memory().total / 2**30
    CONSOLE.print(
        f"{platform.system()} {platform.release()}, {platform.machine()}, {psutil.cpu_count()} cores, {memory:.0f} GiB,"
        f" Python {platform.python_version()}, load {psutil.getloadavg()[0]:.1f} at the start"
    )
    failed = []
    for name in options.names or BENCHMARKS:
        home = Path(tempfile.mkdtemp(prefix="speciate-bench-"))
        home.chmod(0o711)
        try:
            benchmarks[name](Settings(data_dir=home / "data", port=0, evaluate_slots=2, generate_slots=4))
        except Exception:  # noqa: BLE001 - the others are measured all the same
            CONSOLE.print_exception()
            failed.append(name)
        finally:
            shutil.rmtree(home)
    figures.report()
    if options.release:
        figures.keep(options.release)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main(sys.argv[1:])
