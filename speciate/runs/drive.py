"""Doing all of a run's work in one process, in order: for tests and replays."""

from __future__ import annotations

from collections import deque
from uuid import UUID

from speciate.ports.work import Commit
from speciate.runs.executor import WorkExecutor


class LocalSignals:
    """``Signals`` that remember the doorbells instead of ringing them."""

    def __init__(self) -> None:
        self.waiting: deque[UUID] = deque()

    def committed(self, commit: Commit) -> None:
        """Remember what became ready."""
        self.waiting.extend(ref.id for ref in commit.dispatch)


def drive(bench: WorkExecutor, signals: LocalSignals, *, most_units: int = 1_000_000) -> int:
    """Do work, first come first served, until none is left.

    Args:
        bench: What the work needs; its ``signals`` are the ones below.
        signals: Where doorbells arrive, the first of them already.
        most_units: Bound on the units of work.

    Returns:
        Units done.
    """
    done = 0
    while signals.waiting and done < most_units:
        done += bench.perform(signals.waiting.popleft())
    return done
