"""Names, tags and notes of runs over HTTP."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import httpx
import pytest

from tests.integration.service.conftest import Lab, refused

pytestmark = pytest.mark.servers

BODY = {"problem": "toy", "policy": "scripted", "budget": {"evaluations": 9}, "lanes": 1, "batch": 4}
LABELS = {"name": "<b>four islands</b>", "tags": ["baseline", "arm:a"], "note": "first line\nsecond line"}


def labelled(run: dict[str, Any]) -> dict[str, Any]:
    return {name: run[name] for name in LABELS}


def patch(lab: Lab, run_id: UUID, body: Any, **headers: str) -> httpx.Response:
    return lab.api.http.patch(f"/v1/runs/{run_id}", json=body, headers=headers)


def found(lab: Lab, **query: Any) -> list[str]:
    return [run["id"] for run in lab.api.get("/v1/runs", params=query).json()["items"]]


def test_labels_can_change_after_the_end(lab: Lab) -> None:
    plain, run_id = lab.start(), lab.start(**LABELS)
    run = lab.api.get(f"/v1/runs/{run_id}").json()
    assert labelled(run) == LABELS
    assert labelled(lab.api.get("/v1/runs").json()["items"][0]) == LABELS
    assert run["spec"] == lab.api.get(f"/v1/runs/{plain}").json()["spec"]
    lab.work()
    changed = patch(lab, run_id, {"name": "", "add_tags": ["done"], "remove_tags": ["arm:a"]})
    assert changed.status_code == 200, changed.text
    assert labelled(changed.json()) == {"name": "", "tags": ["baseline", "done"], "note": LABELS["note"]}
    assert changed.json()["state"] == "completed"
    assert labelled(patch(lab, run_id, {"tags": ["x"], "note": None}).json())["tags"] == ["x"]
    assert labelled(lab.api.get(f"/v1/runs/{run_id}").json())["note"] == LABELS["note"]


def test_label_change_updates_and_respects_the_etag(lab: Lab) -> None:
    run_id = lab.start()
    path, before = f"/v1/runs/{run_id}", lab.api.get(f"/v1/runs/{run_id}").headers["etag"]
    after = patch(lab, run_id, {"name": "mine"}, **{"If-Match": before}).headers["etag"]
    assert after != before
    assert lab.api.get(path, headers={"If-None-Match": before}).json()["name"] == "mine"
    assert lab.api.get(path, headers={"If-None-Match": after}).status_code == 304
    refused(patch(lab, run_id, {"name": "yours"}, **{"If-Match": before}), 412, "precondition-failed")
    assert lab.api.get(path).json()["name"] == "mine"
    lab.work()
    assert lab.api.get(path).json()["state"] == "completed"


def test_labels_do_not_affect_the_search(lab: Lab) -> None:
    runs = [lab.start(seed=5), lab.start(seed=5, **LABELS)]
    lab.work(units=3)
    patch(lab, runs[1], {"tags": ["half-way"]})
    lab.work()
    courses = []
    for run_id in runs:
        lines = lab.api.get(f"/v1/runs/{run_id}/candidates", params={"limit": 500}).json()["items"]
        courses.append([(c["number"], c["program_hash"], c["rewards"], c["parents"]) for c in lines])
        kinds = [event.kind for event in lab.stores.queries.events(run_id, after=0, limit=500)]
        assert not [kind for kind in kinds if "label" in kind]
    assert courses[0] == courses[1]


def test_export_contains_the_run_name(lab: Lab) -> None:
    for labels in (LABELS, {"name": "", "tags": []}):
        run_id = lab.start(**labels)
        lab.work()
        lines = [json.loads(line) for line in lab.api.get(f"/v1/runs/{run_id}/export").text.splitlines()]
        assert lines
        assert all((line["run_name"], line["run_tags"]) == (labels["name"], labels["tags"]) for line in lines)


def test_list_filters_by_tags_and_part_of_the_name(lab: Lab) -> None:
    runs = [
        lab.start(name="Island 100% baseline", tags=["a", "b"]),
        lab.start(name="island_2", tags=["b"]),
        lab.start(tags=["c"]),
        lab.start(name="else"),
    ]
    ids = [str(run_id) for run_id in runs]
    assert found(lab, tag="b") == [ids[1], ids[0]]
    assert found(lab, tag=["b", "a"]) == [ids[0]]
    assert found(lab, tag="B") == []
    assert found(lab, name="ISLAND") == [ids[1], ids[0]]
    assert found(lab, name="island", tag="a", state="running") == [ids[0]]
    # No pattern: what is looked for is what is written.
    assert found(lab, name="100%") == [ids[0]]
    assert found(lab, name="_") == [ids[1]]
    assert found(lab, name="") == found(lab) == ids[::-1]
    pages = [lab.api.get("/v1/runs", params={"tag": "b", "limit": 1}).json()]
    pages.append(lab.api.get("/v1/runs", params={"tag": "b", "limit": 1, "cursor": pages[0]["next_cursor"]}).json())
    assert [page["items"][0]["id"] for page in pages] == [ids[1], ids[0]]
    assert pages[1]["next_cursor"] is None


def test_invalid_labels_are_rejected_with_their_place(lab: Lab) -> None:
    run_id = lab.start(tags=[f"t{i}" for i in range(16)])
    bad: tuple[tuple[dict[str, Any], str], ...] = (
        ({"name": "two\nlines"}, "name"),
        ({"name": "x" * 121}, "name"),
        ({"tags": ["fine", "two words"]}, "tags.1"),
        ({"note": "x" * 4001}, "note"),
        ({"note": "NUL \x00"}, "note"),
    )
    for body, where in bad:
        for answer in (patch(lab, run_id, body), lab.api.post("/v1/runs", BODY | body)):
            assert where in [each["where"] for each in refused(answer, 422, "invalid-input")["errors"]]
    details = refused(patch(lab, run_id, {"add_tags": ["more"]}), 422, "invalid-input")
    assert details["errors"][0]["where"] == "add_tags"
    refused(patch(lab, run_id, {"seed": 1}), 422, "invalid-input")
    refused(patch(lab, run_id, {"state": "running"}), 422, "invalid-input")
    refused(patch(lab, UUID(int=1), {"name": "x"}), 404, "not-found")
    for query in ({"tag": "two words"}, {"tag": "\x00"}, {"name": "\x00"}, {"name": "x" * 121}):
        refused(lab.api.get("/v1/runs", params=query), 422, "invalid-input")
    details = refused(lab.api.get("/v1/runs", params={"group": "\x00"}), 422, "invalid-input")
    assert details["errors"][0]["where"] == "group"


def test_idempotency_key_covers_labels(lab: Lab) -> None:
    key = {"Idempotency-Key": "k"}
    first = lab.api.post("/v1/runs", BODY | LABELS, headers=key).json()["id"]
    patch(lab, UUID(first), {"name": "renamed"})
    again = lab.api.post("/v1/runs", BODY | LABELS, headers=key).json()
    assert (again["id"], again["name"]) == (first, "renamed")
    refused(lab.api.post("/v1/runs", BODY | LABELS | {"name": "other"}, headers=key), 409, "conflict")
    assert len(found(lab)) == 1


def test_concurrent_tag_changes_are_all_kept(lab: Lab) -> None:
    run_id = lab.start(200)
    with ThreadPoolExecutor(8) as pool:
        working = pool.submit(lab.work, 20)
        answers = list(pool.map(lambda i: patch(lab, run_id, {"add_tags": [f"t{i}"]}), range(12)))
        working.result()
    assert {answer.status_code for answer in answers} == {200}
    assert set(lab.api.get(f"/v1/runs/{run_id}").json()["tags"]) == {f"t{i}" for i in range(12)}


def test_label_change_is_audited(lab: Lab) -> None:
    run_id = lab.start()
    patch(lab, run_id, {"name": "secret words"})
    entry = lab.api.get("/v1/audit").json()["items"][0]
    assert (entry["action"], entry["object"], entry["status"]) == ("PATCH /v1/runs/{run_id}", f"run_id={run_id}", 200)
