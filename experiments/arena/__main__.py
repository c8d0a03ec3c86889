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
from dataclasses import astuple, fields
from pathlib import Path
from typing import Final

from experiments.arena.plan import ARMS, CLOCKS, DEFAULT, HALVES, IN_FLIGHT, LARGEST_IN_FLIGHT, jobs
from experiments.arena.report import Standing, Values, clock_table, extent, standings, table
from experiments.arena.searches import Row, prepare, rows_of
from experiments.arena.simulation import Job
from experiments.arena.standins import CHARACTERS

PAGE: Final = Path(__file__).parents[2] / "docs" / "evidence" / "arena.md"
DATA: Final = PAGE.with_suffix(".csv")
STANDINGS: Final = PAGE.with_name("arena-standings.csv")
"""Every arm after every mark; the page has the ranks, and the comparison after the last mark."""
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
    parser.add_argument("--keep", type=Path, default=None, help="results, some lines for each search")
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
    keep = given.keep or (Path(os.devnull) if given.quick else DATA)
    rows = _made(given.half, wanted, keep, given.workers)
    text, lines = _page([row for row in rows if row[0] == given.half])
    if not given.quick and given.half == "verdict":
        with STANDINGS.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("part", "mark", *(each.name for each in fields(Standing))))
            writer.writerows([f"{cell:.4g}" if isinstance(cell, float) else cell for cell in line] for line in lines)
        head, _, _ = PAGE.read_text("utf-8").partition("\n## Results\n")
        PAGE.write_text(f"{head}\n## Results\n\n{text}\n", "utf-8")
    else:
        print(text)  # noqa: T201
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
        for made in pool.map(rows_of, missing, chunksize=1):
            rows += (of_search := [(half, *row) for row in made])
            writer.writerows(of_search)
            file.flush()
    return rows


def _read(keep: Path) -> list[Row]:
    if not keep.exists():
        return []
    with keep.open(encoding="utf-8", newline="") as file:
        return [tuple(row) for row in csv.reader(file)][1:]


def _page(rows: Sequence[Row]) -> tuple[str, list[tuple[object, ...]]]:
    """Return the results as text, and the standings after every mark as rows of ``STANDINGS``."""
    texts, lines, of_clocks = [], [], {}
    for part in dict.fromkeys(row[1] for row in rows):
        of_part = [row for row in rows if row[1] == part]
        values = {
            mark: _values([row for row in of_part if row[5] == mark], 6)
            for mark in dict.fromkeys(r[5] for r in of_part)
        }
        of = LARGEST_IN_FLIGHT if part.startswith("clock") else DEFAULT
        of_marks = {mark: standings(of_mark, of) for mark, of_mark in values.items()}
        last = list(values)[-1]
        of_marks_and_coverage = of_marks
        if part == "main":
            of_marks_and_coverage = of_marks | {
                f"{last}, coverage": standings(_values([r for r in of_part if r[5] == last], 7))
            }
        lines += [(part, mark, *astuple(each)) for mark, found in of_marks_and_coverage.items() for each in found]
        if part.startswith("clock"):
            of_clocks[_title(part)] = of_marks
        elif all(of_marks.values()):
            texts.append(f"### {_title(part)}: {extent(values[last])}\n\n{table(of_marks)}")
    if of_clocks:
        texts.append(f"### Equal simulated time: {extent(values[last])}\n\n{clock_table(of_clocks)}")
    return "\n\n".join(texts), lines


def _title(part: str) -> str:
    if part.startswith("clock"):
        _, latency, slots = part.split()
        return f"{latency} s, {slots} evaluations"
    return {"main": "Small edits", "long": "Small edits, long runs"}.get(part, f"A model of character `{part}`")


def _values(rows: Sequence[Row], column: int) -> Values:
    return {(row[2], row[3], int(row[4])): float(row[column]) for row in rows}


if __name__ == "__main__":
    raise SystemExit(main())
