"""The server commits, but its answer is lost: the store repeats the call, which must change nothing more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from speciate.domain.access import Quota
from speciate.domain.charge import Charge
from speciate.domain.policy import Policy
from speciate.domain.run import RunState
from speciate.ports.runs import NewRun
from speciate.ports.work import WeightedPolicy
from speciate.schema.policies import RunPolicies
from speciate.schema.proposals import ProposedCandidate
from speciate.storage.stores import Stores
from tests.support.runs import toy_policy, toy_problem, toy_rollout, toy_spec

pytestmark = pytest.mark.servers


class _ClosedError(Exception):
    sqlstate = None


class LossyEngine:
    """An engine that loses the answer to every second commit, the first one included."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._commits = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    @contextmanager
    def begin(self) -> Iterator[sa.Connection]:
        with self._engine.begin() as connection:
            yield connection
        self._commits += 1
        if self._commits % 2:
            raise OperationalError("COMMIT", {}, _ClosedError("server closed the connection"))


def _started(stores: Stores, **changes: Any) -> UUID:
    problem, _ = stores.catalog.add_problem(toy_problem(seed_program=""))
    policy, _ = stores.catalog.add_policy(toy_policy())
    run_id, _ = stores.runs.create(NewRun(problem, RunPolicies(policy), toy_spec(**changes)))
    stores.runs.start(run_id)
    return run_id


def test_a_request_of_an_engine_is_reserved_and_booked_once(stores: Stores) -> None:
    run_id = _started(stores, engine="mine")
    session, _ = stores.engines.acquire(holder="test", lease_s=600, versions={})
    assert session is not None
    context = stores.engines.context(session.id)
    lossy = replace(stores.engines, _engine=LossyEngine(stores.engine))

    def spent() -> tuple[int, ...]:
        query = sa.text(
            "SELECT tokens, g.reserved_tokens, s.reserved_tokens, batches, rollouts,"
            " (SELECT count(*) FROM rollouts) FROM run_progress g JOIN engine_sessions s USING (run_id)"
        )
        with stores.engine.connect() as connection:
            return tuple(connection.execute(query).one())

    first, second = (lossy.reserve(session.id, context, 1000) for _ in range(2))
    assert [each.ordinal for each in (first, second)] == [0, 1]
    assert spent() == (0, 2000, 2000, 2, 0, 0)
    lossy.book(session.id, context, first, [toy_rollout(100)], Charge())
    assert spent() == (100, 1000, 1000, 2, 1, 1)
    lossy.book(session.id, context, second, [], Charge(tokens=7))
    assert spent() == (107, 0, 0, 2, 1, 1)
    assert stores.runs.get(run_id).spent.tokens == 107


def test_a_prompt_for_a_proposer_is_stored_once(stores: Stores) -> None:
    run_id = _started(stores)
    policy, _ = stores.catalog.add_policy(Policy(slug="external", kind="external"))
    lossy = replace(stores.proposals, _engine=LossyEngine(stores.engine))
    asks = lossy.ask(run_id, WeightedPolicy(policy.definition, policy.id), count=2, author="test")
    assert asks is not None
    with stores.engine.connect() as connection:
        assert {*connection.execute(sa.text("SELECT id FROM asks")).scalars()} == {ask.ask for ask in asks}


def test_a_run_is_created_paused_and_resumed_once_within_the_quota(stores: Stores) -> None:
    problem, _ = stores.catalog.add_problem(toy_problem(seed_program=""))
    policy, _ = stores.catalog.add_policy(toy_policy())
    stores.projects.limit("default", Quota(concurrent_runs=1))
    lossy = replace(stores.runs, _engine=LossyEngine(stores.engine))
    run_id, new, _ = lossy.launch(NewRun(problem, RunPolicies(policy), toy_spec()))
    assert new
    for step, state in ((lossy.pause, RunState.PAUSED), (lossy.resume, RunState.RUNNING)):
        step(run_id)
        assert [(run.id, run.state) for run in stores.runs.list().items] == [(run_id, state)]


def test_a_hint_is_given_once(stores: Stores) -> None:
    run_id = _started(stores)
    replace(stores.proposals, _engine=LossyEngine(stores.engine)).hint(run_id, "try x = 9", author="me")
    with stores.engine.connect() as connection:
        assert connection.execute(sa.text("SELECT count(*) FROM advice")).scalar() == 1


def test_a_proposal_is_admitted_once(stores: Stores) -> None:
    run_id = _started(stores)
    policy, _ = stores.catalog.add_policy(Policy(slug="external", kind="external"))
    lossy = replace(stores.proposals, _engine=LossyEngine(stores.engine))
    sent, before = [ProposedCandidate(program="x = 1\ny = 2")], stores.runs.get(run_id).spent.reserved_evaluations
    proposer = WeightedPolicy(policy.definition, policy.id)
    (receipt,), _ = lossy.propose(run_id, proposer, sent, author="test", idempotency_key="first")
    assert stores.proposals.propose(run_id, proposer, sent, author="test", idempotency_key="first")[0] == (receipt,)
    assert stores.runs.get(run_id).spent.reserved_evaluations == before + 1
