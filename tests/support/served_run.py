"""Run a small problem in this process with a policy behind HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from speciate.domain.event import Event, EventKind
from speciate.domain.policy import Policy
from speciate.domain.problem import Problem
from speciate.domain.run import RunSpec
from speciate.policies.openai_compatible import OpenAICompatible
from speciate.ports.evaluator import EvaluatorClient
from speciate.ports.policy import PolicyClient
from speciate.ports.work import RunContext
from speciate.runs.executor import LocalQueue, WorkExecutor, drain
from speciate.runs.progress import RunProgress
from tests.support.memory_store import MemoryWorkStore
from tests.support.runs import ToyEvaluator, ticking_clock, toy_problem


@dataclass(frozen=True)
class FinishedRun:
    """Result of a finished run.

    Attributes:
        progress: Its counters.
        events: Its events in order.
    """

    progress: RunProgress
    events: tuple[Event, ...]

    @property
    def booked_tokens(self) -> int:
        """Tokens recorded for all batches."""
        booked = (event.data["tokens"] for event in self.events if event.kind is EventKind.BATCH_PROPOSED)
        return sum(tokens for tokens in booked if isinstance(tokens, int))


def served_run(
    policy: Policy,
    spec: RunSpec,
    problem: Problem | None = None,
    *,
    client: PolicyClient | None = None,
    evaluator: EvaluatorClient | None = None,
) -> FinishedRun:
    """Execute a run to its end, one work unit at a time. Equal answers give equal events.

    Args:
        policy: The policy.
        spec: Specification of the run.
        problem: The problem (default: the toy problem).
        client: Replaces the client of the policy.
        evaluator: Replaces the toy evaluator.
    """
    run_id, policy_id = UUID(int=1), UUID(int=2)
    context = RunContext(run_id, problem or toy_problem(), policy, policy_id, spec)
    store, signals = MemoryWorkStore(ticking_clock()), LocalQueue()
    store.add(context)
    signals.committed(store.start(run_id))
    with OpenAICompatible(policy) as own:
        asked = client or own
        drain(WorkExecutor(store, signals, evaluator or ToyEvaluator(), lambda _: asked), signals)
    return FinishedRun(store.runs[run_id].progress, tuple(store.events(run_id)))


def served_policy(url: str, model: str, **changes: Any) -> Policy:
    """Return a policy with prompt format ``completion``, short retry delays and no patience with an outage."""
    options = {"backoff_s": 0.01, "max_retries": 8, "outage_s": 0, **changes.pop("options", {})}
    given = {"prompt_format": "completion", "prompt_tokens": 2000, "sampling": {"max_tokens": 24}, **changes}
    return Policy.model_validate(
        {"slug": "served", "kind": "openai_compatible", "base_url": url, "model": model, "options": options, **given}
    )
