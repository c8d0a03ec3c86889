"""What a worker process is made of, put together once and after the fork."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from evaluators.broker import Broker
from evaluators.choose import open_broker
from speciate.domain.candidate import Evaluation
from speciate.domain.policy import Policy
from speciate.domain.problem import Problem
from speciate.policies import build_client
from speciate.ports.policy import PolicyClient
from speciate.runs.leases import LeaseKeeper
from speciate.runs.workbench import Workbench
from speciate.settings import Settings, load_settings
from speciate.storage.plane import Plane, open_plane


@cache
def settings() -> Settings:
    """Return the settings of this process."""
    return load_settings()


@cache
def plane() -> Plane:
    """Return the stores of this process. Never call it before a pool forks: connections do not survive a fork."""
    return open_plane(settings(), pool_size=settings().generate_slots + 2)


class ClientPool:
    """One client for each policy version, kept for its connections."""

    def __init__(self) -> None:
        self._clients: dict[str, PolicyClient] = {}

    def __call__(self, policy: Policy) -> PolicyClient:
        """Return the client that asks a policy."""
        if policy.digest not in self._clients:
            self._clients[policy.digest] = build_client(policy)
        return self._clients[policy.digest]


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
    return LeaseKeeper(plane().work.extend, interval_s=settings().lease_s / 3)


@cache
def workbench() -> Workbench:
    """Return what the tasks of this process work with."""
    work = plane().work
    return Workbench(
        work=work, signals=plane().signals, evaluator=LateEvaluator(), client_for=ClientPool(), keep=keeper().keep
    )
