"""Everything is killed once while runs go on, clients ask and viewers watch: the short form of `make chaos`."""

from __future__ import annotations

import random

import pytest

from benchmarks.chaos.faults import KINDS, RESTART
from benchmarks.chaos.fleet import STANDBY
from benchmarks.chaos.report import report
from benchmarks.chaos.storm import Plan, storm

pytestmark = [pytest.mark.fault, pytest.mark.servers]

# Restarts in order are the rolling test's; only PostgreSQL's is not in it.
_ONCE = tuple((kind, part) for kind, part in KINDS if (kind != RESTART or part == "postgres") and part != STANDBY)


def test_nothing_is_lost_when_everything_is_killed_once() -> None:
    once = tuple(random.Random(8).sample(_ONCE, len(_ONCE)))
    plan = Plan(
        seconds=20,
        runs=8,
        budget=160,
        rate=40,
        viewers=8,
        pause_s=0.8,
        lease_s=4,
        slack_s=30,  # other tests share the cores; `make chaos` has the tight limit
        evaluation_s=0.01,
        only=once,
    )
    outcome = storm(plan)
    assert outcome.violations == [], report(outcome, 0)
    assert [(fault.kind, fault.part) for fault in outcome.faults] == list(once)
    assert outcome.seen["followed"] >= plan.viewers
    assert outcome.seen["statuses"]["200"] > 100
