"""Replaying a run: the recorded completions, the same seed, every choice and every evaluation made again.

A run with one lane has one order of events. If the code, the problem and the seed are the same, the replay's events
equal the recorded ones; where they differ, something is not deterministic or has changed, and the report says where.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from speciate.domain.errors import PolicyUnavailableError, ReplayError
from speciate.domain.event import Event, EventKind
from speciate.domain.policy import Policy
from speciate.domain.rollout import Completion
from speciate.ports.evaluator import EvaluatorClient
from speciate.ports.policy import PolicyClient, SampleRequest, SampleResult
from speciate.ports.work import Commit, RunContext, WorkStore
from speciate.runs.executor import LocalQueue, WorkExecutor, drain

# Steering and lost workers are part of a run's history, not of its course.
_OUTSIDE = frozenset(
    {
        EventKind.RUN_PAUSED,
        EventKind.RUN_RESUMED,
        EventKind.RUN_STALLED,
        EventKind.RUN_CANCELLED,
        EventKind.WORK_RETRIED,
        EventKind.WORK_POISONED,
    }
)


class ReplayStore(WorkStore, Protocol):
    """A work store that can be given a run by hand and tells its events."""

    def add(self, context: RunContext, granted: int | None = None) -> None:
        """Store a run that does nothing yet, with what a campaign grants it."""
        ...

    def grant(self, run_id: UUID, granted: int) -> Commit:
        """Let it spend up to so many evaluations."""
        ...

    def close(self, run_id: UUID, reason: str) -> Commit:
        """Complete it while it waits for a grant."""
        ...

    def start(self, run_id: UUID) -> Commit:
        """Begin the run."""
        ...

    def events(self, run_id: UUID) -> Sequence[Event]:
        """Return the events so far."""
        ...


@dataclass(frozen=True, slots=True)
class RecordedCompletion:
    """A completion as it was recorded.

    Attributes:
        prompt_digest: Digest of the prompt it answered.
        seed: Seed of its request.
        completion: The completion.
        prompt_tokens: Prompt tokens that were booked on it.
    """

    prompt_digest: str
    seed: int
    completion: Completion
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Difference:
    """The first event that differs."""

    position: int
    recorded: Event | None
    replayed: Event | None


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What a replay found.

    Attributes:
        events: Events compared.
        difference: The first difference, or None when all are equal.
    """

    events: int
    difference: Difference | None

    @property
    def identical(self) -> bool:
        """Whether every event is equal."""
        return self.difference is None

    def describe(self) -> str | None:
        """Return the first difference in one line, or None."""
        if self.difference is None:
            return None
        before, after = self.difference.recorded, self.difference.replayed
        if before is None or after is None:
            which = "the replay" if after is None else "the record"
            return f"event {self.difference.position + 1}: {which} has ended"
        keys = sorted({*before.data, *after.data})
        differing = next((key for key in keys if before.data.get(key) != after.data.get(key)), "kind")
        return (
            f"event {self.difference.position + 1} ({before.kind.value}), {differing}:"
            f" recorded {before.data.get(differing, before.kind.value)!r:.200},"
            f" replayed {after.data.get(differing, after.kind.value)!r:.200}"
        )


class RecordedPolicy:
    """Answers with what was recorded for the same prompt and seed; only its ceilings are asked of the real client."""

    def __init__(self, recorded: Sequence[RecordedCompletion], client: PolicyClient) -> None:
        self._client = client
        self._answers: dict[tuple[str, int], list[RecordedCompletion]] = {}
        for item in recorded:
            self._answers.setdefault((item.prompt_digest, item.seed), []).append(item)

    def token_ceiling(self, request: SampleRequest) -> int:
        """Return the real client's ceiling, by which the run's budget was kept."""
        return self._client.token_ceiling(request)

    def sample(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        """Return the recorded completions.

        Raises:
            PolicyUnavailableError: The replay asks something that the run never asked: it has left its course.
        """
        return [self._answer(request) for request in requests]

    def ping(self) -> str:
        """Return how much is recorded."""
        return f"{len(self._answers)} recorded requests"

    def _answer(self, request: SampleRequest) -> SampleResult:
        held = self._answers.get((request.prompt.digest, request.seed))
        if not held:
            raise PolicyUnavailableError(f"no completion is recorded for seed {request.seed} and this prompt.")
        return SampleResult(tuple(item.completion for item in held), sum(item.prompt_tokens for item in held))


def replay(
    context: RunContext,
    recorded: Sequence[RecordedCompletion],
    events: Sequence[Event],
    *,
    store: ReplayStore,
    evaluator: EvaluatorClient,
    client_for: Callable[[Policy], PolicyClient],
) -> ReplayReport:
    """Run a finished run again and compare the events.

    Args:
        context: What defines the run.
        recorded: Its completions in order.
        events: Its events in order.
        store: An empty store in memory.
        evaluator: Scores every candidate again.
        client_for: Returns the real client of a policy; nothing is sent to it.

    Raises:
        ReplayError: The run has several lanes or a budget of seconds, so its order is not determined by its seed.
    """
    _check(context)
    signals = LocalQueue()
    clients: dict[str, RecordedPolicy] = {}

    def recorded_for(policy: Policy) -> PolicyClient:
        if policy.digest not in clients:
            clients[policy.digest] = RecordedPolicy(recorded, client_for(policy))
        return clients[policy.digest]

    executor = WorkExecutor(store, signals, evaluator, recorded_for)
    grants = [int(str(event.data["evaluations"])) for event in events if event.kind is EventKind.RUN_GRANTED]
    store.add(context, grants[0] if grants else None)
    signals.committed(store.start(context.run_id))
    drain(executor, signals)
    for granted in grants[1:]:
        signals.committed(store.grant(context.run_id, granted))
        drain(executor, signals)
    if grants and events[-1].kind is EventKind.RUN_COMPLETED:
        store.close(context.run_id, str(events[-1].data["reason"]))
    return compare(events, store.events(context.run_id))


def compare(recorded: Sequence[Event], replayed: Sequence[Event]) -> ReplayReport:
    """Compare two event logs, leaving out how the run was steered and which workers it lost.

    A run that is under way, or was cancelled, is compared as far as it came.
    """
    left, right = list(_course(recorded)), list(_course(replayed))
    if all(event.kind is not EventKind.RUN_COMPLETED for event in left):
        right = right[: len(left)]
    for position in range(max(len(left), len(right))):
        a = left[position] if position < len(left) else None
        b = right[position] if position < len(right) else None
        if a is None or b is None or a.kind != b.kind or _comparable(a.data) != _comparable(b.data):
            return ReplayReport(max(len(left), len(right)), Difference(position, a, b))
    return ReplayReport(len(left), None)


def _comparable(value: object) -> object:
    """Return JSON values with huge integers as floats: the database writes -1e30 as the integer nearest to it."""
    match value:
        case bool():
            return value
        case int() if abs(value) > 1 << 53:
            return float(value)
        case list() | tuple():
            return [_comparable(item) for item in value]
        case Mapping():
            return {key: _comparable(item) for key, item in value.items()}
    return value


def _check(context: RunContext) -> None:
    if context.spec.lanes != 1:
        raise ReplayError(
            f"run {context.run_id} has {context.spec.lanes} lanes, whose batches overlap in no fixed order.",
            remedy="Start a run with lanes = 1 to be able to replay it.",
        )
    if context.spec.budget.seconds is not None:
        raise ReplayError(
            f"run {context.run_id} has a budget of seconds, which no two machines spend alike.",
            remedy="Give a run that is to be replayed a budget of evaluations or tokens.",
        )


def _course(events: Sequence[Event]) -> Iterator[Event]:
    return (event for event in events if event.kind not in _OUTSIDE)
