"""Webhooks from the event to a real receiver: one delivery per event, even when dispatchers die."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa
from pydantic import SecretStr

from speciate.client import verify_webhook
from speciate.domain.errors import ConflictError, NotFoundError
from speciate.domain.webhook import Webhook, WebhookEvent
from speciate.settings import Settings
from speciate.storage.access.projects import ProjectStore
from speciate.storage.access.tokens import OPERATOR
from speciate.storage.catalog import Catalog
from speciate.storage.database import reading
from speciate.storage.stores import Stores, open_stores
from speciate.storage.tables.columns import DEFAULT_PROJECT_ID
from speciate.storage.tables.webhooks import webhook_deliveries, webhooks
from speciate.storage.webhooks.queue import enqueue
from tests.integration.service.conftest import Api, Lab, refused, scripted
from tests.support.http_server import wait_for
from tests.support.runs import toy_problem
from tests.unit.egress.test_delivery import Receiver, receiver
from workers.reconciler import pause_when_full
from workers.webhooks import WebhookDispatcher

pytestmark = pytest.mark.servers
__all__ = ["receiver"]


@pytest.fixture
def dispatchers(stores: Stores, settings: Settings) -> Iterator[Callable[[], WebhookDispatcher]]:
    started: list[WebhookDispatcher] = []

    def start() -> WebhookDispatcher:
        started.append(WebhookDispatcher(stores, settings.network, "http://speciate.example"))
        started[-1].start()
        return started[-1]

    yield start
    for dispatcher in started:
        dispatcher._stopping.set()
        if dispatcher._thread is not None:
            dispatcher._thread.join()


def _add(api: Api, url: str, **body: Any) -> dict[str, Any]:
    answer = api.post("/v1/webhooks", {"url": url, **body})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def _deliveries(api: Api, webhook: dict[str, Any], **query: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = api.get(f"/v1/webhooks/{webhook['id']}/deliveries", params=query).json()["items"]
    return items


def _received(receiver: Receiver, event: str) -> list[dict[str, Any]]:
    return [value for _, body in list(receiver.seen) if (value := json.loads(body))["event"] == event]


def test_run_event_is_delivered_once_and_signed(
    lab: Lab,
    receiver: Receiver,
    dispatchers: Callable[[], WebhookDispatcher],
    stores: Stores,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hook = _add(lab.api, receiver.url, description="ours")
    only_alarms = _add(lab.api, receiver.url, events=["alarm"])
    listed = lab.api.get("/v1/webhooks").text
    assert hook["secret"] not in listed + lab.api.get(f"/v1/webhooks/{hook['id']}").text
    with stores.engine.connect() as connection:
        assert hook["secret"] not in repr(connection.execute(sa.text("SELECT * FROM webhooks")).all())

    run_id = lab.start(40)
    lab.work()
    cancelled = lab.start(13)
    lab.api.post(f"/v1/runs/{cancelled}:cancel")
    # Everything is in the queue before anybody sends: it was written with the effects.
    queued = _deliveries(lab.api, hook)
    assert [d["event"] for d in queued] == ["run.finished", "run.finished", "unlock"]
    assert _deliveries(lab.api, only_alarms) == []

    real = time.time
    with monkeypatch.context() as clock:  # the senders' clock is wrong; the database's dates signatures
        clock.setattr(time, "time", lambda: real() + 6 * 3600)
        for _ in range(3):
            dispatchers()
        wait_for(lambda: len(_deliveries(lab.api, hook, state="delivered")) == 3)
    (unlock,) = _received(receiver, "unlock")
    first, second = sorted(_received(receiver, "run.finished"), key=lambda value: value["created_at"])
    assert unlock["data"] | {"tokens": 0} == {
        "run_id": str(run_id), "problem": "toy@1", "policy": "scripted@1", "strategy": "islands_map_elites",
        "target": "both",
        "candidate": unlock["data"]["candidate"], "evaluations": unlock["data"]["evaluations"], "tokens": 0,
        "unlock": True,
    }  # fmt: skip
    assert unlock["links"]["candidate"] == (
        f"http://speciate.example/runs/{run_id}/candidates/{unlock['data']['candidate']}"
    )
    assert (first["data"]["state"], second["data"]["state"]) == ("completed", "cancelled")
    assert second["data"]["run_id"] == str(cancelled)
    for headers, body in receiver.seen:
        assert verify_webhook(hook["secret"], headers["Speciate-Signature"], body)
        assert headers["Speciate-Delivery"] == json.loads(body)["id"]
        assert headers["Speciate-Event"] == json.loads(body)["event"]
    assert {d["id"] for d in queued} == {json.loads(body)["id"] for _, body in receiver.seen}
    assert len(receiver.seen) == 3


def test_unlock_event_names_all_policies(
    lab: Lab, receiver: Receiver, dispatchers: Callable[[], WebhookDispatcher]
) -> None:
    _add(lab.api, receiver.url, events=["unlock"])
    for slug in ("other", "third"):
        lab.stores.catalog.add_policy(scripted(slug=slug))
    lab.start(40, mutator="other")
    lab.start(40, policy={"third": 1, "other": 1})
    lab.start(40, mutator="scripted")
    lab.work()
    dispatchers()
    wait_for(lambda: len(_received(receiver, "unlock")) == 3)
    told = [(u["data"].get("mutator"), u["data"].get("ensemble")) for u in _received(receiver, "unlock")]
    assert sorted(told, key=str) == [("other@1", None), (None, None), (None, ["other@1", "third@1"])]


def test_another_dispatcher_takes_over(
    lab: Lab, receiver: Receiver, dispatchers: Callable[[], WebhookDispatcher], stores: Stores
) -> None:
    hook = _add(lab.api, receiver.url)
    sent = lab.api.post(f"/v1/webhooks/{hook['id']}:test")
    assert sent.status_code == 202
    (claimed,) = stores.webhooks.claim(8)  # by a dispatcher that dies
    assert stores.webhooks.claim(8) == ()
    with stores.engine.begin() as connection:
        connection.execute(sa.update(webhook_deliveries).values(lease_until=sa.func.now()))
    dispatchers()
    wait_for(lambda: _deliveries(lab.api, hook, state="delivered"))
    (delivery,) = _deliveries(lab.api, hook)
    assert (delivery["id"], delivery["attempts"]) == (sent.json()["id"], 2)
    assert [value["id"] for value in _received(receiver, "test")] == [str(claimed.id)]
    stores.webhooks.postpone(claimed, 500, "too late to say so", 1.0)
    assert _deliveries(lab.api, hook)[0]["state"] == "delivered"


def test_backlog_of_one_webhook_does_not_block_another(lab: Lab, stores: Stores) -> None:
    slow = [_add(lab.api, f"http://127.0.0.1:9/{i}")["id"] for i in range(3)]
    healthy = _add(lab.api, "http://127.0.0.1:9/healthy")["id"]  # the youngest, and the last in any order
    for hook in (*slow * 3, healthy):
        stores.webhooks.test(UUID(hook))
    # One slot is free at a time, and the webhook that used it is due again at once.
    for _ in range(200):
        (delivery,) = stores.webhooks.claim(1)
        if str(delivery.webhook_id) == healthy:
            break
        stores.webhooks.postpone(delivery, None, "no answer", 0.0)
    else:
        pytest.fail("the healthy receiver was never asked")


def test_insert_is_repeatable_after_a_lost_response(stores: Stores) -> None:
    hooks, access = stores.webhooks, stores.tokens
    hook = hooks._add(Webhook(url="http://127.0.0.1:9/"), uuid4(), "whsec_a")
    assert hooks._add(Webhook(url="http://127.0.0.1:9/"), hook.id, "whsec_a") == hook
    assert [each.id for each in hooks.list().items] == [hook.id]
    # The functions within ``with_new_id``, which take the id.
    test, create, add_set = (
        method.__wrapped__ for method in (type(hooks).test, ProjectStore.create, Catalog.add_problem_set)
    )
    delivery = test(hooks, uuid4(), hook.id)
    assert test(hooks, delivery.id, hook.id) == delivery
    project = uuid4()
    assert create(stores.projects, project, "twice") == create(stores.projects, project, "twice")
    with pytest.raises(ConflictError):
        stores.projects.create("twice")
    assert access._log_in("secret", OPERATOR, None) == access._log_in("secret", OPERATOR, None)
    made = {
        "id": uuid4(), "project_id": DEFAULT_PROJECT_ID, "name": "n", "prefix": "p", "hash": b"h", "scope": "read",
        "created_by": "operator", "expires_at": None,
    }  # fmt: skip
    assert access._create("token", made) == access._create("token", made)
    members = [stores.catalog.add_problem(toy_problem())[0].id]
    set_id = uuid4()
    for _ in range(2):
        add_set(stores.catalog, set_id, "twice", "", members)
    assert [problem.id for problem in stores.catalog.problem_set("twice").problems] == members


def test_failed_delivery_is_retried_for_a_day_and_kept_for_thirty(
    lab: Lab,
    receiver: Receiver,
    dispatchers: Callable[[], WebhookDispatcher],
    stores: Stores,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hook = _add(lab.api, receiver.url)
    receiver.status, receiver.said = 500, b"\x1b[31mno\x00" + b"x" * 5000
    lab.api.post(f"/v1/webhooks/{hook['id']}:test")
    dispatchers()
    wait_for(lambda: _deliveries(lab.api, hook)[0]["error"])
    (delivery,) = _deliveries(lab.api, hook)
    assert (delivery["state"], delivery["status"], delivery["attempts"]) == ("pending", 500, 1)
    assert delivery["due_at"] > delivery["created_at"]
    assert len(delivery["error"]) < 1100
    assert "\x1b" not in delivery["error"]
    with stores.engine.begin() as connection:
        day = sa.text("UPDATE webhook_deliveries SET created_at = created_at - interval '1 day', due_at = now()")
        connection.execute(day)
    wait_for(lambda: _deliveries(lab.api, hook, state="failed"))
    (delivery,) = _deliveries(lab.api, hook)
    assert (delivery["attempts"], delivery["ended_at"] is not None) == (2, True)
    assert stores.webhooks.claim(8) == ()
    with stores.engine.begin() as connection:
        connection.execute(sa.text("UPDATE webhook_deliveries SET ended_at = ended_at - interval '31 days'"))
    monkeypatch.setattr("workers.webhooks._PRUNE_INTERVAL_S", 0.0)
    wait_for(lambda: not _deliveries(lab.api, hook))


def test_dead_receiver_delays_neither_runs_nor_others(
    lab: Lab, receiver: Receiver, dispatchers: Callable[[], WebhookDispatcher]
) -> None:
    dead, alive = _add(lab.api, "http://127.0.0.1:1/"), _add(lab.api, receiver.url)
    for _ in range(20):
        lab.api.post(f"/v1/webhooks/{dead['id']}:test")
    dispatchers()
    begun = time.monotonic()
    run_id = lab.start(40)
    lab.work()
    assert lab.api.get(f"/v1/runs/{run_id}").json()["state"] == "completed"
    wait_for(lambda: len(_deliveries(lab.api, alive, state="delivered")) == 2)
    assert time.monotonic() - begun < 10
    wait_for(lambda: all(d["error"] for d in _deliveries(lab.api, dead)))


def test_alarm_is_delivered_once_while_it_lasts(lab: Lab, stores: Stores) -> None:
    hook = _add(lab.api, "https://8.8.8.8/", events=["alarm"])
    failing = ["no program at all"] * 9 + ["```python\nx = 1\ny = 1\n```"]
    definition = lab.api.get("/v1/policies/scripted").json()["definition"] | {"slug": "failing"}
    lab.api.post("/v1/policies", {"definition": definition | {"options": {"completions": failing}}})
    run_id = lab.start(200, policy="failing", batch=20)
    lab.work()
    events = lab.api.get(f"/v1/runs/{run_id}/events", params={"limit": 500}).json()["items"]
    assert sum(event["kind"] == "alarm.raised" for event in events) > 1
    assert [sent["event"] for sent in _deliveries(lab.api, hook)] == ["alarm"]
    with stores.engine.connect() as connection:
        data = connection.execute(sa.select(webhook_deliveries.c.data)).scalar_one()
    assert (data["name"], data["run_id"]) == ("failures", str(run_id))


def test_automatic_pause_is_an_alarm(lab: Lab, stores: Stores, tmp_path: Path) -> None:
    hook = _add(lab.api, "https://8.8.8.8/", events=["alarm"])

    def told() -> list[str]:
        with stores.engine.connect() as connection:
            query = sa.select(webhook_deliveries.c.data).order_by(webhook_deliveries.c.id)
            found = connection.execute(query).scalars().all()
        assert {each["name"] for each in found} <= {"run.paused"}
        assert {each["run_id"] for each in found} <= {str(run_id)}
        return [each["message"] for each in found]

    run_id = lab.start(13)
    lab.work(1)  # the seed program's evaluation
    lab.api.post(f"/v1/runs/{run_id}:pause", {"reason": "lunch"})
    lab.api.post(f"/v1/runs/{run_id}:resume")
    assert told() == []
    # The policy does not answer.
    ref = stores.runs.work_in_flight(limit=1)[0]
    lease = stores.work.claim(ref.work_id)
    assert lease is not None
    stores.work.release(lease, "the endpoint does not answer")
    lab.api.post(f"/v1/runs/{run_id}:resume")
    assert told() == ["the endpoint does not answer"]
    # Whatever asks the policy kills its worker, again and again.
    with stores.engine.begin() as connection:
        expired = "state = 'leased', lease_until = now() - interval '1 s', attempt = 3"
        connection.exec_driver_sql(f"UPDATE work SET {expired} WHERE id = %s", (ref.work_id,))
    assert stores.work.reconcile().poisoned == 1
    lab.api.post(f"/v1/runs/{run_id}:resume")
    assert told()[1:] == ["batch 1 lost its worker 3 times during policy requests"]
    # The disk is full.
    (tmp_path / "postgres").mkdir()
    assert pause_when_full(stores, tmp_path, 1 << 62) == 1
    assert told()[2].startswith("the disk is full")
    assert len(_deliveries(lab.api, hook)) == 3
    events = lab.api.get(f"/v1/runs/{run_id}/events").json()["items"]
    faults = [event["data"].get("fault") for event in events if event["kind"] == "run.paused"]
    assert faults == [None, True, True, True]


def test_a_diagnosed_pause_is_an_alarm_with_the_diagnosis(lab: Lab, stores: Stores) -> None:
    hook = _add(lab.api, "https://8.8.8.8/", events=["alarm"])
    definition = lab.api.get("/v1/policies/scripted").json()["definition"]
    prose = definition | {"slug": "prose", "options": {"completions": ["I would rather not."]}}
    lab.api.post("/v1/policies", {"definition": prose})
    run_id = lab.start(200, policy="prose", batch=48)
    lab.work(3)
    run = lab.api.get(f"/v1/runs/{run_id}").json()
    assert (run["state"], run["diagnosis"]["reason"]) == ("paused", "no_code_block")
    assert run["reason"].startswith("no answer of the policy could be read (48 in a row): no_code_block")
    assert {alarm["event"] for alarm in _deliveries(lab.api, hook)} == {"alarm"}
    with stores.engine.connect() as connection:
        sent = {data["name"]: data for data in connection.scalars(sa.select(webhook_deliveries.c.data))}
    assert sent.keys() == {"failures", "run.paused"}
    assert sent["run.paused"]["diagnosis"] == run["diagnosis"]
    assert lab.api.post(f"/v1/runs/{run_id}:resume").json()["diagnosis"] is None


def test_webhooks_belong_to_a_project(api: Api, stores: Stores) -> None:
    hook = _add(api, "https://8.8.8.8/")
    other_id = stores.projects.create("other").id
    other = stores.within(other_id)
    assert other.webhooks.list().items == ()
    for method in (other.webhooks.get, other.webhooks.remove, other.webhooks.test, other.webhooks.deliveries):
        with pytest.raises(NotFoundError, match="no webhook"):
            method(UUID(hook["id"]))
    with stores.engine.begin() as connection:
        for project in (other_id, DEFAULT_PROJECT_ID):
            enqueue(connection, WebhookEvent.ALARM, project, {"of": str(project)})
        assert connection.execute(sa.select(webhook_deliveries.c.data)).scalars().all() == [
            {"of": str(DEFAULT_PROJECT_ID)}
        ]


def test_webhook_removed_during_a_test_is_not_found(api: Api, stores: Stores) -> None:
    hook = UUID(_add(api, "https://8.8.8.8/")["id"])
    waiting = sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    with ThreadPoolExecutor(1) as pool, stores.engine.connect() as removing:
        removing.execute(sa.delete(webhooks).where(webhooks.c.id == hook))
        asked = pool.submit(stores.webhooks.test, hook)
        with reading(stores.engine) as looking:
            wait_for(lambda: looking.execute(waiting).scalar_one() or asked.done())
        removing.commit()
        with pytest.raises(NotFoundError):
            asked.result(20)


def test_an_invalid_webhook_is_refused(api: Api, settings: Settings, serve: Callable[..., Api]) -> None:
    for body, expected in (
        ({"url": "http://169.254.169.254/"}, "link-local"),
        ({"url": "http://10.0.0.1/"}, "SPECIATE_ALLOWED_NETWORKS"),
        ({"url": "http://me:pw@8.8.8.8/"}, "password"),
        ({"url": "gopher://8.8.8.8/"}, "http://"),
        ({"url": "https://8.8.8.8/", "events": ["test"]}, "on request only"),
        ({"url": "https://8.8.8.8/", "events": []}, "expected one or several of unlock"),
        ({"url": "https://8.8.8.8/", "events": ["bogus"]}, "is not valid: events.0: expected 'unlock'"),
        ({"url": "https://8.8.8.8/", "secret": "mine"}, "secret"),
    ):
        assert expected in str(refused(api.post("/v1/webhooks", body), 422, "invalid-input"))
    for path in (f"/v1/webhooks/{uuid4()}", f"/v1/webhooks/{uuid4()}/deliveries"):
        refused(api.get(path), 404, "not-found")
    refused(api.http.delete(f"/v1/webhooks/{uuid4()}"), 404, "not-found")
    refused(api.post(f"/v1/webhooks/{uuid4()}:test"), 404, "not-found")
    hook = _add(api, "https://8.8.8.8/")
    assert api.http.delete(f"/v1/webhooks/{hook['id']}").status_code == 204
    assert api.get("/v1/webhooks").json()["items"] == []
    keyless = serve(settings.model_copy(update={"secret_key": None}))
    refused(keyless.post("/v1/webhooks", {"url": "https://8.8.8.8/"}), 503, "secret-key")


def test_webhook_secrets_are_re_encrypted(api: Api, settings: Settings, receiver: Receiver) -> None:
    hook = _add(api, receiver.url)
    api.post(f"/v1/webhooks/{hook['id']}:test")
    old = (settings.secret_key or SecretStr("")).get_secret_value()
    both = open_stores(settings.model_copy(update={"secret_key": SecretStr(f"{'n' * 32},{old}")}))
    assert both.webhooks.renew() == 1
    both.close()
    fresh = open_stores(settings.model_copy(update={"secret_key": SecretStr("n" * 32)}))
    (delivery,) = fresh.webhooks.claim(1)
    assert fresh.webhooks.secret_of(delivery) == hook["secret"]
    assert hook["secret"] not in repr(delivery)
    fresh.close()
