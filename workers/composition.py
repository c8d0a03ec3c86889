"""What a worker process is made of, put together once and after the fork."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from evaluators.broker import Broker
from evaluators.choose import open_broker
from speciate.domain.candidate import Evaluation
from speciate.domain.policy import Policy
from speciate.domain.problem import Problem
from speciate.policies import Surroundings, build_client
from speciate.ports.policy import PolicyClient
from speciate.ports.work import Lease
from speciate.runs.executor import WorkExecutor
from speciate.runs.leases import LeaseKeeper
from speciate.settings import Settings, load_settings
from speciate.storage.counters import WORK, WORK_SECONDS, Counters
from speciate.storage.stores import Stores, open_stores
from workers.observing import CountedEvaluator, CountedPolicy


@cache
def settings() -> Settings:
    """Return the settings of this process."""
    return load_settings()


@cache
def stores() -> Stores:
    """Return the stores of this process. Never call it before a pool forks: connections do not survive a fork."""
    return open_stores(settings(), pool_size=2 * (settings().generate_slots + 2))


class ClientPool:
    """One client for each policy version and key, kept for its connections."""

    def __init__(self, surroundings: Surroundings, counters: Counters) -> None:
        self._surroundings = surroundings
        self._counters = counters
        self._clients: dict[tuple[str, str | None], PolicyClient] = {}

    def __call__(self, policy: Policy) -> PolicyClient:
        """Return the client that asks a policy."""
        which = (policy.digest, policy.api_key_id)
        if which not in self._clients:
            client = build_client(policy, self._surroundings)
            self._clients[which] = CountedPolicy(policy, client, self._counters)
        return self._clients[which]


@cache
def counters() -> Counters:
    """Return what this process counts with; like ``stores``, never before a pool forks."""
    return Counters(stores().redis)


@cache
def evaluator() -> Broker:
    """Return the broker of this process; its tier is chosen before a pool forks, each child warms its own zygotes."""
    return open_broker(settings().sandbox)


class LateEvaluator:
    """The broker of this process, opened by its first evaluation: workers that only ask policies never need one."""

    @property
    def tier(self) -> str:
        """Containment in force."""
        return evaluator().tier

    def evaluate(
        self, problem: Problem, programs: Sequence[str], *, seeds: Sequence[int], timeout_s: float | None = None
    ) -> list[Evaluation]:
        """Score programs, as ``Broker.evaluate`` does."""
        return evaluator().evaluate(problem, programs, seeds=seeds, timeout_s=timeout_s)


@cache
def keeper() -> LeaseKeeper:
    """Return who keeps the leases of this process."""
    return LeaseKeeper(stores().work.extend, interval_s=settings().lease_s / 3)


@cache
def workbench() -> WorkExecutor:
    """Return what the tasks of this process work with."""
    work = stores().work
    clients = ClientPool(Surroundings(settings().network, stores().policy_keys.open), counters())
    return WorkExecutor(
        work=work,
        signals=stores().signals,
        evaluator=CountedEvaluator(LateEvaluator(), counters()),
        client_for=clients,
        keep=keeper().keep,
        count=count_unit,
    )


def count_unit(lease: Lease, result: str, seconds: float) -> None:
    """Count a unit of work by what became of it."""
    counters().add(WORK, lease.kind.value, result)
    counters().observe(WORK_SECONDS, lease.kind.value, values=[seconds])
