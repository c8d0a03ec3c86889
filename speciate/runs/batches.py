"""Sizes of the batches of a run that declares none (ADR 56)."""

from __future__ import annotations

from typing import Final

from speciate.domain.run import FIRST_BATCH, LARGEST_BATCH
from speciate.ports.work import RunContext
from speciate.runs.progress import RunProgress
from speciate.search.strategies import build_strategy

QUICK_S: Final = 0.5
"""Generation and evaluation of a batch in less time allow a batch of twice the size."""

SLOW_S: Final = 2.0
"""Generation and evaluation of a batch in more time require one of half the size."""

SHARE: Final = 16
"""A batch is at most one part in so many of the evaluations before it, so that most of its parents are recent."""


def adapts(context: RunContext) -> bool:
    """Return True if the sizes of the run's batches follow its pace.

    A run with one lane has batches of one size: time would make it differ from a repetition with the same seed. Runs
    that learn or write advice count in batches, as does a strategy whose batch is a turn. The time of evaluations
    outside the service is not that of the unit that collects them.
    """
    spec = context.spec
    fixed = spec.batch is not None or spec.lanes == 1 or spec.learning is not None or spec.guidance is not None
    if fixed or context.problem.attested:
        return False
    return not build_strategy(spec.strategy, spec.strategy_options).batch_is_turn


def size_of(progress: RunProgress, context: RunContext) -> int:
    """Return the answers to request in the next batch."""
    return max(progress.batch_size, context.spec.first_batch)


def adapt(progress: RunProgress, context: RunContext, answers: int, seconds: float) -> None:
    """Choose the size of the next batches after a batch of ``answers``, which took ``seconds``."""
    size = size_of(progress, context)
    if seconds > SLOW_S:
        size = min(size, max(FIRST_BATCH, answers // 2))
    elif seconds < QUICK_S:
        grown = min(2 * answers, LARGEST_BATCH, progress.evaluations // SHARE)
        size = max(size, grown - grown % context.spec.samples_per_prompt)
    progress.batch_size = size
