"""Replay a run: repeat every choice and evaluation with the recorded completions and the same seed.

A run with one lane has a single order of events. With the same code, problem and seed, the replay's events equal the
recorded ones. The report holds the first difference, which shows a change or a source of nondeterminism.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Protocol
from uuid import UUID

from pydantic import JsonValue

from speciate.domain.charge import Charge
from speciate.domain.diagnosis import OUTAGE
from speciate.domain.errors import PolicyUnavailableError, ReplayError
from speciate.domain.event import Event, EventKind
from speciate.domain.policy import Policy
from speciate.domain.rollout import Completion
from speciate.ports.evaluator import EvaluatorClient
from speciate.ports.policy import PolicyClient, SampleRequest, SampleResult
from speciate.ports.work import POLISHER, Commit, Lease, RunContext, WorkStore
from speciate.runs.executor import LocalQueue, WorkExecutor, drain
from speciate.runs.lanes import EXTERNAL_LANE

# Pauses and lost workers belong to the history of a run. Of them, its results show only what lost attempts cost.
_IGNORED = frozenset(
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
    """A work store of one process, whose runs the replay moves itself."""

    def add(self, context: RunContext, granted: int | None) -> UUID: ...

    def start(self, run_id: UUID) -> Commit: ...

    def grant(self, run_id: UUID, granted: int) -> Commit: ...

    def close(self, run_id: UUID, reason: str) -> Commit: ...

    def charge(self, run_id: UUID, lost: Charge) -> None: ...

    def resume_diagnosed(self, run_id: UUID) -> Commit | None: ...

    def events(self, run_id: UUID) -> Sequence[Event]: ...


@dataclass(frozen=True, slots=True)
class RecordedCompletion:
    prompt_digest: str
    seed: int
    completion: Completion
    prompt_tokens: int  # prompt tokens charged for it
    cost: float | None = None  # US dollars, if the policy reported them


@dataclass(frozen=True, slots=True)
class Difference:
    position: int
    recorded: Event | None
    replayed: Event | None


@dataclass(frozen=True, slots=True)
class ReplayReport:
    events: int  # events compared
    difference: Difference | None  # the first difference, or None if all events are equal

    @property
    def identical(self) -> bool:
        return self.difference is None

    def describe(self) -> str | None:
        """Return the first difference in one line, or None."""
        if self.difference is None:
            return None
        before, after = self.difference.recorded, self.difference.replayed
        if before is None or after is None:
            which = "the replay" if after is None else "the record"
            return f"event {self.difference.position + 1}: {which} ends before it"
        keys = sorted({*before.data, *after.data})
        differing = next((key for key in keys if before.data.get(key) != after.data.get(key)), "kind")
        return (
            f"event {self.difference.position + 1} ({before.kind.value}), {differing}:"
            f" recorded {before.data.get(differing, before.kind.value)!r:.200},"
            f" replayed {after.data.get(differing, after.kind.value)!r:.200}"
        )


class RecordedPolicy:
    """Returns the completions recorded for the same prompt and seed. Token ceilings come from the real client."""

    def __init__(self, recorded: Sequence[RecordedCompletion], client: PolicyClient) -> None:
        self._client = client
        self._answers: dict[tuple[str, int], list[RecordedCompletion]] = {}
        for item in recorded:
            self._answers.setdefault((item.prompt_digest, item.seed), []).append(item)

    def token_ceiling(self, request: SampleRequest) -> int:
        return self._client.token_ceiling(request)

    def sample(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        """Return the recorded completions; raises ``PolicyUnavailableError`` for a request that the run never sent."""
        return [self._answer(request) for request in requests]

    def ping(self) -> str:
        return f"{len(self._answers)} recorded requests"

    def _answer(self, request: SampleRequest) -> SampleResult:
        recorded = self._answers.get((request.prompt.digest, request.seed))
        if not recorded:
            raise PolicyUnavailableError(f"no completion is recorded for this prompt and seed {request.seed}.")
        prompt_tokens, costs = sum(item.prompt_tokens for item in recorded), [item.cost for item in recorded]
        cost = None if None in costs else math.fsum(cost or 0.0 for cost in costs)
        return SampleResult(tuple(item.completion for item in recorded), prompt_tokens, cost=cost)


def replay(
    context: RunContext,
    recorded: Sequence[RecordedCompletion],
    events: Sequence[Event],
    *,
    store: ReplayStore,
    evaluator: EvaluatorClient,
    client_for: Callable[[Policy], PolicyClient],
) -> ReplayReport:
    """Execute a finished run again and compare the events.

    ``recorded`` are its completions, in order like the events. The store must be empty. The evaluator evaluates every
    candidate again, while the real clients of ``client_for`` receive no requests. ``ReplayError`` if the run has
    several lanes or a budget of seconds, so that its seed does not determine its order.
    """
    _check(context, events)
    signals = LocalQueue()
    clients: dict[str, RecordedPolicy] = {}

    def recorded_for(policy: Policy) -> PolicyClient:
        if policy == POLISHER.policy:
            return client_for(policy)  # its answers follow from the record
        if policy.digest not in clients:
            clients[policy.digest] = RecordedPolicy(recorded, client_for(policy))
        return clients[policy.digest]

    executor = WorkExecutor(store, signals, evaluator, recorded_for, partial(_charged, store, events))
    grants = [int(str(event.data["evaluations"])) for event in events if event.kind is EventKind.RUN_GRANTED]
    run_id = store.add(context, grants[0] if grants else None)

    def settle(commit: Commit | None) -> None:
        while commit is not None and len(store.events(run_id)) < len(events):  # a failing seed fails each time
            signals.committed(commit)
            drain(executor, signals)
            commit = store.resume_diagnosed(run_id)

    settle(store.start(run_id))
    for granted in grants[1:]:
        settle(store.grant(run_id, granted))
    if grants and events[-1].kind is EventKind.RUN_COMPLETED and store.events(run_id)[-1].kind is EventKind.RUN_PAUSED:
        settle(store.close(run_id, str(events[-1].data["reason"])))
    return compare(events, store.events(run_id))


@contextmanager
def _charged(store: ReplayStore, events: Sequence[Event], lease: Lease) -> Iterator[None]:
    """Charge what earlier attempts of a unit cost before it is executed."""
    for lost in (event.data for event in events if event.kind is EventKind.WORK_RETRIED):
        if (lost["work"], lost["batch"]) == (lease.kind, lease.ordinal):
            store.charge(lease.run_id, Charge(int(str(lost.get("tokens", 0))), float(str(lost.get("cost", 0.0)))))
    yield


def compare(recorded: Sequence[Event], replayed: Sequence[Event]) -> ReplayReport:
    """Compare two event logs without pauses, lost workers and unavailable policies.

    If the recorded run did not complete, only its events so far are compared.
    """
    left, right = ([event for event in events if _is_compared(event)] for events in (recorded, replayed))
    if all(event.kind is not EventKind.RUN_COMPLETED for event in left):
        right = right[: len(left)]
    for position, (a, b) in enumerate(zip_longest(left, right)):
        if a is None or b is None or a.kind != b.kind or _comparable(a.data) != _comparable(b.data):
            return ReplayReport(max(len(left), len(right)), Difference(position, a, b))
    return ReplayReport(len(left), None)


def _is_compared(event: Event) -> bool:
    # A replay does not know why a policy was unavailable.
    return event.kind not in _IGNORED and event.data.get("name") != OUTAGE


def _comparable(data: Mapping[str, JsonValue]) -> object:
    """Return JSON values with integers as floats, since PostgreSQL stores -1e30 as an integer."""
    return json.loads(json.dumps(data), parse_int=float)


def _check(context: RunContext, events: Sequence[Event]) -> None:
    """Reject a run whose seed does not determine its events, or to which others sent what the log does not hold."""
    spec = context.spec
    reasons = (
        (spec.lanes != 1, f"has {spec.lanes} lanes, whose batches overlap in no fixed order", "with lanes = 1"),
        (
            spec.budget.seconds is not None,
            "has a budget of seconds, whose end depends on the machine",
            "with a budget of evaluations or tokens",
        ),
        (context.problem.attested, "was evaluated outside the service", "that the service evaluates"),
        (spec.learning is not None, "trained its policy, and a replay trains nothing", "without learning"),
        (
            any(event.data.get("lane") == EXTERNAL_LANE or "author" in event.data for event in events),
            "received proposals or hints from outside, which its seed does not determine",
            "that works alone",
        ),
    )
    for applies, why, other in reasons:
        if applies:
            raise ReplayError(f"run {context.run_id} {why}.", remedy=f"Only a run {other} can be replayed.")
