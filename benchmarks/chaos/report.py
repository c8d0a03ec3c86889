"""The report of a storm as a text for ``docs/evidence/reliability.md``."""

from __future__ import annotations

import platform
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
import psutil

from benchmarks.chaos.faults import Fault
from benchmarks.chaos.storm import Outcome
from benchmarks.chaos.watch import GROWN_UP_S, growth

_QUIET = 5.0
"""Percent of the processors."""
_MOST_REFUSALS = 20

_TITLE = "# Reliability: what is lost when processes die?\n"

_METHOD = """## Method

`make chaos` writes this page. It starts the process graph of production on one machine (two replicas of the API, an
inference server, one generate, one evaluate, one learn and two control workers, PostgreSQL, Valkey), keeps runs in
progress, a part of which train their policy, sends requests, follows event streams, and kills or restarts parts in an
order that a seed decides. The test suite contains a short form.
"""


def machine() -> str:
    """Return what was measured on."""
    memory = psutil.virtual_memory().total / 2**30
    return (
        f"{psutil.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.release()},"
        f" Python {platform.python_version()}; everything, clients included, shares these cores"
    )


def report(outcome: Outcome, load: float) -> str:
    """Return the whole page.

    Args:
        outcome: What was found.
        load: Share of the processors that others used before anything was started, in percent.
    """
    state = "busy with other work: times are upper bounds" if load > _QUIET else "quiet"
    parts = [
        _TITLE,
        _conclusion(outcome),
        "## Load\n\n" + _table(("", "goal", "measured"), _load(outcome)) + _refusals(outcome),
        "## Faults\n\n" + _faults(outcome),
        "## Resources per process\n\n" + _holdings(outcome),
        f"{_METHOD}\n{_checks(outcome)}\n",
        f"Machine: {machine()}. Others used {load:.0f} % of them before the start; the machine was {state}.\n",
    ]
    return "\n".join(parts)


def _conclusion(outcome: Outcome) -> str:
    plan, seen = outcome.plan, outcome.seen
    if outcome.violations:
        violations = "\n".join(f"- {violation}" for violation in outcome.violations[:50])
        verdict, listed = f"**{len(outcome.violations)} violations**, listed below", f"\n{violations}\n"
    else:
        verdict, listed = "**Lost: 0. Doubled: 0. Budgets exceeded or unspent: 0**", ""
    return (
        f"{verdict}, in {outcome.seconds / 60:.1f} minutes with {len(outcome.faults)} faults (seed {plan.seed}).\n"
        f"{outcome.runs:,} runs of {plan.budget} evaluations completed, {outcome.evaluations:,} evaluations in all;"
        f" {seen['followed']:,} streams\nwere followed to their end, {seen['events']:,} events. Runs paused by a policy"
        f" outage and resumed: {outcome.resumed}.\n{_learned(outcome)}{listed}"
    )


def _learned(outcome: Outcome) -> str:
    found = outcome.learned
    if not found:
        return ""
    verdict = "none lost, none used twice" if not outcome.violations else "violations are listed below"
    return (
        f"{found['runs']:,} of the runs trained their policy: {found['groups']:,} groups, {found['used']:,} of them"
        f" used in {found['steps']:,} steps; {verdict}.\n"
    )


def _checks(outcome: Outcome) -> str:
    return (
        "Checks of every run: it completed, its budget is spent exactly, candidates and events are numbered without"
        " gap or repetition in the database and in each viewer's stream, no work unit is left, and every request to"
        " create a run created exactly one. Checks of every fault: its leases are free within lease + 3 s"
        f" ({outcome.plan.lease_s + 3:g} s here), counted from the return of PostgreSQL if that is the part, and the"
        " part works again."
    )


def _load(outcome: Outcome) -> list[tuple[str, ...]]:
    seen, plan = outcome.seen, outcome.plan
    answered = np.asarray(seen["latencies_ms"] or [0.0])
    statuses = {int(status): count for status, count in seen["statuses"].items()}
    total = max(1, sum(statuses.values()))
    unanswered = statuses.get(0, 0)
    refused = sum(count for status, count in statuses.items() if status >= 500)
    p50, p95, p99 = np.percentile(answered, (50, 95, 99))
    rows = [
        ("concurrent runs", plan.runs, plan.runs),
        ("viewers of streams", plan.viewers, plan.viewers),
        ("requests a second", plan.rate, total / seen["seconds"]),
        ("responses, median", "", f"{p50:.1f} ms"),
        ("responses, p95", "200 ms", f"{p95:.1f} ms"),
        ("responses, p99", "", f"{p99:.1f} ms"),
        ("retried at the other replica", "", f"{seen['passed_over']:,}"),
        ("answered by no replica", 0, f"{unanswered:,} ({unanswered / total:.3%})"),
        ("answered with a server error", "", f"{refused:,} ({refused / total:.3%})"),
        ("streams resumed", "", f"{seen['reconnects']:,}"),
        ("evaluations a second", "", outcome.evaluations / outcome.seconds),
    ]
    return [tuple(_cell(cell) for cell in row) for row in rows]


def _refusals(outcome: Outcome) -> str:
    lines = [f"    {count} × {words}" for words, count in list(outcome.seen["refusals"].items())[:_MOST_REFUSALS]]
    told = "\n".join(["\nAnswers with another status than 200:\n", *lines, ""]) if lines else ""
    failures = [f"    {count} × {words}" for words, count in outcome.failures.most_common(_MOST_REFUSALS)]
    return told + ("\n".join(["\nUnexpected errors in the API's logs:\n", *failures, ""]) if failures else "")


def _faults(outcome: Outcome) -> str:
    parts: dict[str, list[Fault]] = defaultdict(list)
    for fault in outcome.faults:
        parts[fault.part].append(fault)
    rows = [
        (part, _kinds(each), _longest([f.freed_s for f in each]), _longest([f.back_s for f in each]))
        for part, each in sorted(parts.items())
    ]
    head = ("part", "faults", "leases free after at most", "recovered after at most")
    return _table(head, [tuple(_cell(cell) for cell in row) for row in rows])


def _kinds(faults: Sequence[Fault]) -> str:
    counts = Counter(fault.kind for fault in faults)
    return ", ".join(f"{counts[kind]} {kind}" for kind in sorted(counts))


def _longest(seconds: Sequence[float | None]) -> str:
    known = [each for each in seconds if each is not None]
    return f"{max(known):.1f} s" if len(known) == len(seconds) else "never"


def _holdings(outcome: Outcome) -> str:
    rows = []
    for part, samples in sorted(outcome.watch.samples.items()):
        row: list[str] = [part]
        # A process that has just begun has not loaded everything yet.
        old = [s for s in samples if s.age_s >= GROWN_UP_S] or samples
        for name in ("memory_mb", "fds", "threads"):
            first, last = growth([getattr(sample, name) for sample in old])
            row.append(f"{first:,.0f} → {last:,.0f}")
        rows.append(tuple(row))
    connections, files = outcome.watch.connections, outcome.watch.files
    note = (
        f"Medians of the first and the last third of the time. Connections to PostgreSQL: at most"
        f" {max(connections, default=0)}, {outcome.left_connections} when all runs had ended. Temporary files and"
        f" folders: at most {max(files, default=0)}, {outcome.left_files} when all runs had ended; what is left when"
        " everything has stopped would be a violation.\n"
    )
    return _table(("part", "memory, MB", "file descriptors", "threads"), rows) + "\n" + note


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def _cell(value: object) -> str:
    return f"{value:,.0f}" if isinstance(value, float) else str(value)
