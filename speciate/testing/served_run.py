"""A small run in this process whose policy is asked over HTTP."""

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
from speciate.storage.work.memory import MemoryWorkStore
from speciate.testing.runs import ToyEvaluator, ticking_clock, toy_problem


@dataclass(frozen=True)
class FinishedRun:
    """What a run came to.

    Attributes:
        progress: Its counters.
        events: What happened, in order.
    """

    progress: RunProgress
    events: tuple[Event, ...]

    @property
    def booked_tokens(self) -> int:
        """Tokens of all batches."""
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
    """Run until nothing is left to do, one unit of work after the other; equal answers give equal events.

    Args:
        policy: Who is asked.
        spec: The run.
        problem: The toy problem if nothing else is said.
        client: Asks the policy in place of its own client.
        evaluator: Scores in place of the toy problem's.
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
    """Return a policy that is asked by completion, without long waits."""
    options = {"backoff_s": 0.01, "max_retries": 8, **changes.pop("options", {})}
    given = {"prompt_format": "completion", "prompt_tokens": 2000, "sampling": {"max_tokens": 24}, **changes}
    return Policy.model_validate(
        {"slug": "served", "kind": "openai_compatible", "base_url": url, "model": model, "options": options, **given}
    )
