"""Make the missing searches of the arena and write its page.

``python -m experiments.arena verdict`` (an hour on 2 cores; ``--keep`` continues), or ``development --quick`` while
working on a strategy: a few minutes.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

from experiments.arena.plan import ARMS, CLOCKS, HALVES, IN_FLIGHT, jobs
from experiments.arena.report import Values, problems_table, table
from experiments.arena.searches import Row, prepare, rows_of
from experiments.arena.simulation import Job
from experiments.arena.standins import CHARACTERS

PAGE: Final = Path(__file__).parents[2] / "docs" / "evidence" / "arena.md"
DATA: Final = PAGE.with_suffix(".csv")
_COLUMNS: Final = ("half", "part", "arm", "problem", "seed", "mark", "best", "coverage")
_QUICK: Final = (2, 120)
_FULL: Final = (10, 240)
_LONG: Final = (3, 1000)
_ASIDE: Final = (4, 120)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments.arena")
    parser.add_argument("half", choices=HALVES, nargs="?", default="development", help="problems and seeds")
    parser.add_argument("--quick", action="store_true", help="two seeds of the main table only; writes no page")
    parser.add_argument("--parts", nargs="*", default=None, help="main, long, clock or a character; all by default")
    parser.add_argument("--keep", type=Path, default=DATA, help="results, some lines for each search")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    given = parser.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    seeds, evaluations = _QUICK if given.quick else _FULL
    parts = {"main": [("main", *each) for each in jobs(given.half, ARMS, seeds=seeds, evaluations=evaluations)]}
    if not given.quick:
        few, long = {name: ARMS[name] for name in list(ARMS)[:3]}, _LONG
        parts["long"] = [("long", *each) for each in jobs(given.half, few, seeds=long[0], evaluations=long[1])]
        for character in CHARACTERS[1:]:
            found = jobs(given.half, ARMS, seeds=_ASIDE[0], evaluations=_ASIDE[1], character=character)
            parts[character] = [(character, *each) for each in found]
        parts["clock"] = [
            (f"clock {latency_s:g} {slots}", *each)
            for latency_s, slots in CLOCKS
            for each in jobs(given.half, IN_FLIGHT, seeds=2, evaluations=_FULL[1], latency_s=latency_s, slots=slots)
        ]
    wanted = [job for name, of_part in parts.items() if given.parts is None or name in given.parts for job in of_part]
    rows = _made(given.half, wanted, given.keep, given.workers)
    text = _page([row for row in rows if row[0] == given.half])
    if not given.quick and given.half == "verdict":
        head, _, _ = PAGE.read_text("utf-8").partition("\n## Results\n")
        PAGE.write_text(f"{head}\n## Results\n\n{text}\n", "utf-8")
    return 0


def _made(half: str, wanted: Sequence[tuple[str, str, Job]], keep: Path, workers: int) -> list[Row]:
    """Make the searches that a file lacks, and return all of its rows."""
    rows = _read(keep)
    known = {row[:5] for row in rows}
    missing = [each for each in wanted if (half, each[0], each[1], each[2].problem, str(each[2].seed)) not in known]
    context = multiprocessing.get_context("spawn")
    new = not keep.exists()
    with (
        ProcessPoolExecutor(workers, context, initializer=prepare) as pool,
        keep.open("a", encoding="utf-8", newline="") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(_COLUMNS)
        for _count, made in enumerate(pool.map(rows_of, missing, chunksize=1), start=1):
            rows += (of_search := [(half, *row) for row in made])
            writer.writerows(of_search)
            file.flush()
    return rows


def _read(keep: Path) -> list[Row]:
    if not keep.exists():
        return []
    with keep.open(encoding="utf-8", newline="") as file:
        return [tuple(row) for row in csv.reader(file)][1:]


def _page(rows: Sequence[Row]) -> str:
    parts = list(dict.fromkeys(row[1] for row in rows))
    texts = []
    for part in parts:
        of_part = [row for row in rows if row[1] == part]
        marks = list(dict.fromkeys(row[5] for row in of_part))
        for mark in marks if part != "long" else marks[-1:]:
            of_mark = [row for row in of_part if row[5] == mark]
            at = mark if mark.endswith("min") else f"{mark} evaluations"
            texts.append(f"### {_title(part)}, after {at}\n\n{table(_values(of_mark, 6))}")
        if part == "main":
            last = [row for row in of_part if row[5] == marks[-1]]
            texts.append(f"### Means after {marks[-1]} evaluations\n\n{problems_table(_values(last, 6))}")
            coverage = f"E_w of the best wᵀr, w ~ Dir(1), after {marks[-1]} evaluations"
            texts.append(f"### {coverage}\n\n{table(_values(last, 7))}")
    return "\n\n".join(texts)


def _title(part: str) -> str:
    if part.startswith("clock"):
        _, latency, slots = part.split()
        return f"Requests of {latency} s, {slots} evaluations at once"
    return {"main": "Small edits", "long": "Small edits, long runs"}.get(part, f"A model of character `{part}`")


def _values(rows: Sequence[Row], column: int) -> Values:
    return {(row[2], row[3], int(row[4])): float(row[column]) for row in rows}


if __name__ == "__main__":
    raise SystemExit(main())
