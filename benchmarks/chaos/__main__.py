"""``python -m benchmarks.chaos [--minutes N] [--seed S] [--write]``: a storm over the whole service, and its report."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import psutil

from benchmarks.chaos.report import report
from benchmarks.chaos.storm import Plan, storm

PAGE = Path(__file__).parents[2] / "docs" / "evidence" / "reliability.md"


def main() -> int:
    """Do it; 1 when something was lost, doubled or did not come back."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos")
    parser.add_argument("--minutes", type=float, default=30.0, help="how long parts are broken")
    parser.add_argument("--seed", type=int, default=0, help="of the order of the faults")
    parser.add_argument("--runs", type=int, default=100, help="concurrent runs")
    parser.add_argument("--asking", type=float, default=0.1, help="share of runs that ask a model; half of them learn")
    parser.add_argument("--budget", type=int, default=160, help="evaluations of a run")
    parser.add_argument("--rate", type=float, default=1000.0, help="requests a second")
    parser.add_argument("--viewers", type=int, default=100, help="viewers of streams")
    parser.add_argument("--lease", type=float, default=10.0, help="seconds of a lease")
    parser.add_argument("--slack", type=float, default=0.0, help="seconds more for a lease, on a busy machine")
    parser.add_argument("--pause", type=float, default=20.0, help="mean seconds between faults")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    asked = parser.parse_args()
    load = psutil.cpu_percent(interval=5.0)
    plan = Plan(
        seconds=asked.minutes * 60,
        runs=asked.runs,
        budget=asked.budget,
        asking=asked.asking,
        rate=asked.rate,
        viewers=asked.viewers,
        lease_s=asked.lease,
        slack_s=asked.slack,
        pause_s=asked.pause,
        seed=asked.seed,
    )
    outcome = storm(plan)
    text = report(outcome, load)
    if asked.write:
        PAGE.write_text(text)
    sys.stdout.write(text)
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
