"""CPU time per candidate by batch size, and how it is spent."""

from __future__ import annotations

import time

from benchmarks.figures import Figure, record
from benchmarks.parts import SpinningService, begin, processor_seconds, show, spec, wait_for
from benchmarks.spinning import EVALUATION_S
from speciate.settings import Settings
from speciate.storage.stores import open_stores

SIZES = (16, 64, 256)
CANDIDATES = 9_600


def run(settings: Settings) -> None:
    """Measure one run for each size on one service and print the table."""
    stack = SpinningService(settings)
    with stack:
        for _ in stack.start():
            pass
        stores = open_stores(stack.settings)
        wait_for(stores, begin(stores, spec(480)), 480)
        rows = []
        for size in SIZES:
            before, at = _app_state(stack), time.perf_counter()
            run_id = begin(stores, spec(CANDIDATES, batch=size, samples_per_prompt=size // 4))
            wait_for(stores, run_id, CANDIDATES)
            seconds = time.perf_counter() - at
            used = {name: (after - before[name]) / CANDIDATES * 1000 for name, after in _app_state(stack).items()}
            used["evaluate"] -= EVALUATION_S * 1000
            beyond = sum(used.values())
            rest = beyond - used["generate"] - used["evaluate"] - used["postgres"]
            rows.append(
                (size, CANDIDATES / seconds, beyond, used["generate"], used["evaluate"], used["postgres"], rest)
            )
            record(f"batches: beyond the evaluation at {size}", Figure(beyond, "ms", 0.4))
        stores.close()
    show(
        f"Size of a batch: {CANDIDATES} candidates of 1 ms; CPU ms/candidate beyond the evaluation",
        ["batch", "candidates/s", "all", "generate", "evaluate", "PostgreSQL", "rest"],
        rows,
        "target: at most 0.4 in all",
    )


def _app_state(stack: SpinningService) -> dict[str, float]:
    servers = stack.servers.poll() if stack.servers else {}
    return {name: processor_seconds([status.pid]) for name, status in {**servers, **stack.poll()}.items()}
