"""Counters of several processes add up, gauges match the tables, and a stalled run is reported once."""

from __future__ import annotations

import pytest
import redis
import sqlalchemy as sa

from speciate.domain.event import EventKind
from speciate.domain.policy import EXTERNAL_POLICY, Policy
from speciate.domain.webhook import Webhook, WebhookEvent
from speciate.ports.runs import NewRun
from speciate.schema.policies import RunPolicies
from speciate.schema.runs import RunRecord
from speciate.storage.metrics import counters
from speciate.storage.metrics.counters import MAX_POLICIES, OTHER, WorkerCounters, read_counters
from speciate.storage.metrics.gauges import read_gauges
from speciate.storage.stores import Stores
from speciate.storage.work.reconciler import report_stalled
from tests.support.runs import SEED_PROGRAM, toy_policy, toy_problem, toy_spec

pytestmark = pytest.mark.servers


def _run(
    stores: Stores, policy: Policy | None = None, seed_program: str = SEED_PROGRAM, **spec: str | None
) -> RunRecord:
    problem, _ = stores.catalog.add_problem(toy_problem(seed_program=seed_program))
    version, _ = stores.catalog.add_policy(policy or toy_policy())
    run_id, _ = stores.runs.create(NewRun(problem, RunPolicies(version), toy_spec(**spec)))
    stores.runs.start(run_id)
    return stores.runs.get(run_id)


def _age(stores: Stores, seconds: int) -> None:
    with stores.engine.begin() as connection:
        interval = f"interval '{seconds} seconds'"
        connection.execute(sa.text(f"UPDATE run_progress SET running_since = running_since - {interval}"))
        connection.execute(sa.text(f"UPDATE work SET created_at = created_at - {interval}"))


def test_counts_of_several_processes_add_up(stores: Stores) -> None:
    for _ in range(2):
        one = WorkerCounters(stores.redis)
        one.add(counters.EVALUATIONS, "ok", "A", by=3)
        one.observe(counters.EVALUATION_SECONDS, "A", values=[0.001, 0.02, 99.0])
        one.close()
    found = read_counters(stores.redis)
    (series,) = found[counters.EVALUATIONS]
    assert (series.labels, series.counts) == (("ok", "A"), (6.0,))
    (times,) = found[counters.EVALUATION_SECONDS]
    assert (times.counts[0], times.counts[2], times.counts[-1], sum(times.counts)) == (2.0, 2.0, 2.0, 6.0)
    assert times.total == pytest.approx(2 * 99.021)
    assert found[counters.POISONED] == []


def test_counts_that_cannot_be_sent_are_sent_later(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    counting = WorkerCounters(stores.redis)
    away = redis.Redis(port=1, socket_connect_timeout=0.1)
    monkeypatch.setattr(counting, "_redis", away)
    counting.add(counters.POISONED)
    counting.flush()
    assert counting.policy("p") == OTHER
    monkeypatch.setattr(counting, "_redis", stores.redis)
    counting.close()
    assert read_counters(stores.redis)[counters.POISONED][0].counts == (1.0,)
    assert counting.policy("p") == "p"


def test_policies_beyond_the_limit_are_counted_together(stores: Stores) -> None:
    counting = WorkerCounters(stores.redis)
    names = [counting.policy(f"p{i}") for i in range(MAX_POLICIES + 20)]
    assert len(set(names)) == MAX_POLICIES + 1
    assert names[-1] == OTHER
    assert WorkerCounters(stores.redis).policy("p0") == "p0"


def test_gauges_match_the_tables(stores: Stores) -> None:
    _run(stores)
    _age(stores, 100)
    gauges = read_gauges(stores.engine, stall_s=900)
    assert gauges.runs == {"running": 1}
    (waiting,) = gauges.work
    assert (waiting.kind, waiting.state, waiting.units) == ("evaluate", "ready", 1)
    assert 100 <= waiting.oldest_s < 160
    assert gauges.spent["seconds"] >= 100
    assert gauges.left["evaluations"] > 0
    assert (gauges.stalled, gauges.reconciler_age_s) == (0, None)
    assert read_gauges(stores.engine, stall_s=50).stalled == 1


@pytest.mark.parametrize(("policy", "engine"), [(EXTERNAL_POLICY, None), (toy_policy(), "openevolve")])
def test_a_run_that_waits_for_proposals_is_stalled_only_while_its_work_is(
    stores: Stores, policy: Policy, engine: str | None
) -> None:
    waiting = _run(stores, policy, "", engine=engine)
    seeded = _run(stores, policy, engine=engine)
    assert stores.work.context(waiting.id).waits_for_proposals
    assert (waiting.waits, seeded.waits) == (True, False)
    _age(stores, 1000)
    assert read_gauges(stores.engine, stall_s=900).stalled == 1
    assert [commit.run_id for commit in report_stalled(stores.engine, stall_s=900)] == [seeded.id]
    assert read_gauges(stores.engine, stall_s=900).stalled == 1


def test_a_stalled_run_is_reported_once(stores: Stores) -> None:
    stores.webhooks.add(Webhook(url="http://127.0.0.1:9/hook", events=(WebhookEvent.ALARM,)))
    run = _run(stores)
    assert report_stalled(stores.engine, stall_s=900) == []
    _age(stores, 1000)
    (commit,) = report_stalled(stores.engine, stall_s=900)
    (event,) = stores.queries.events(run.id, after=run.last_event, limit=10)
    assert (commit.run_id, commit.last_event, event.kind) == (run.id, event.seq, EventKind.RUN_STALLED)
    assert event.data["message"] == ("nothing was committed for 900 s: 1 units of evaluate work wait for a worker")
    (parcel,) = stores.webhooks.claim(8)
    assert (parcel.event, parcel.data["name"], parcel.data["run_id"]) == ("alarm", "run.stuck", str(run.id))
    # Still stalled and already reported; the passed seconds are charged to the run.
    _age(stores, 1000)
    assert report_stalled(stores.engine, stall_s=900) == []
    assert read_gauges(stores.engine, stall_s=900).stalled == 1
    assert stores.runs.get(run.id).spent.seconds >= 2000
    stores.runs.pause(run.id)
    assert report_stalled(stores.engine, stall_s=900) == []
    assert read_gauges(stores.engine, stall_s=900).stalled == 0
    stores.runs.resume(run.id)
    _age(stores, 1000)
    assert len(report_stalled(stores.engine, stall_s=900)) == 1
