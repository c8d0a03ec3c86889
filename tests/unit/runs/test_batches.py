"""Batches without a declared size grow while they come quickly, and shrink when they do not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import uuid4

import pytest

from speciate.domain.event import EventKind
from speciate.domain.policy import Policy
from speciate.domain.run import FIRST_BATCH, LARGEST_BATCH
from speciate.policies import build_client
from speciate.ports.work import EvaluatedBatch, Lease, RunContext
from speciate.runs.batches import QUICK_S, SLOW_S, adapt, adapts, size_of
from speciate.runs.executor import LocalQueue, WorkExecutor, drain
from speciate.runs.progress import RunProgress
from speciate.search.strategies import STRATEGIES
from speciate.storage.work.memory import MemoryWorkStore
from tests.support.runs import ToyEvaluator, ticking_clock, toy_problem, toy_spec

TEXT = "```python\nx = {number}\ny = 5\n```"


def context_of(evaluations: int = 4000, **changes: object) -> RunContext:
    policy = Policy(slug="s", kind="scripted", options={"template": TEXT})
    spec = toy_spec(evaluations, **{"batch": None, "lanes": 3, "samples_per_prompt": 4, **changes})
    return RunContext(uuid4(), toy_problem(), policy, uuid4(), spec)


def sizes(*batches: tuple[int, float], evaluations: int = 10**6, samples: int = 4) -> list[int]:
    """Return the sizes chosen after batches of so many answers that took so many seconds."""
    progress, context = RunProgress(evaluations=evaluations), context_of(samples_per_prompt=samples)
    chosen = [size_of(progress, context)]
    for answers, seconds in batches:
        adapt(progress, context, answers, seconds)
        chosen.append(size_of(progress, context))
    return chosen


def test_sizes_follow_the_pace() -> None:
    quick, slow, between = QUICK_S / 2, SLOW_S * 2, (QUICK_S + SLOW_S) / 2
    assert sizes(*[(16 * 2**i, quick) for i in range(6)]) == [16, 32, 64, 128, 256, 256, 256]
    assert sizes((128, quick), (256, between), (256, slow), (128, slow), (16, slow)) == [16, 256, 256, 128, 64, 16]
    # Batches of other lanes, begun before a change, change it no second time.
    assert sizes((16, quick), (16, quick), (16, quick)) == [16, 32, 32, 32]
    assert sizes((128, quick), (256, slow), (256, slow)) == [16, 256, 128, 128]


def test_a_batch_is_a_small_part_of_what_was_evaluated_before_it() -> None:
    assert sizes((256, 0.0), evaluations=200) == [16, 16]
    assert sizes((256, 0.0), evaluations=800) == [16, 48]  # 50, in whole prompts
    assert sizes((256, 0.0), evaluations=800, samples=100) == [16, 16]


@pytest.mark.parametrize(
    "changes",
    [{"batch": 16}, {"lanes": 1}, {"guidance": {"every": 3}}, {"strategy": "sequential_revision"}],
    ids=lambda changes: next(iter(changes)),
)
def test_some_runs_keep_their_size(changes: Mapping[str, object]) -> None:
    assert adapts(context_of())
    assert not adapts(context_of(**changes))
    assert size_of(RunProgress(), context_of(batch=7)) == 7


def test_every_strategy_says_what_a_batch_is() -> None:
    assert {name for name, strategy in STRATEGIES.items() if strategy.batch_is_turn} == {
        "sequential_revision", "mind_evolution",
    }  # fmt: skip


@dataclass
class TimedStore(MemoryWorkStore):
    """Counts a time of its own for every evaluated batch."""

    seconds: float
    seen: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(ticking_clock())

    def record_evaluations(self, lease: Lease, batch: EvaluatedBatch) -> object:
        self.seen.append(batch.seconds)
        return super().record_evaluations(lease, EvaluatedBatch(batch.outcomes, batch.placements, self.seconds))


@pytest.mark.parametrize(("seconds", "largest"), [(0.01, 52), (60.0, FIRST_BATCH)])
def test_a_run_adapts_its_batches(seconds: float, largest: int) -> None:
    context, store, signals = context_of(1000), TimedStore(seconds), LocalQueue()
    client = build_client(context.proposer)
    store.add(context)
    signals.committed(store.start(context.run_id))
    drain(WorkExecutor(store, signals, ToyEvaluator(), lambda _: client), signals)
    run = store.runs[context.run_id]
    proposed = [e.data["proposals"] for e in run.events if e.kind is EventKind.BATCH_PROPOSED]
    assert sorted(run.candidates) == list(range(1, 1001))
    assert max(proposed) == largest <= LARGEST_BATCH
    assert all(0 < each < 60 for each in store.seen)
